"""Keys of the `[summary]` table that only the published method has."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from comity.federation.constraints import Positive
from comity.methods.method import Method, Only
from comity.methods.summary.constraints import AtLeastOne
from comity.methods.summary.published.direction import Bid


class PublishedKeys(Method):
    bid_sign: Annotated[Bid, Only(variant="published")] = Field(
        "corrected", description="published only: bids by the objective's marginal gain, or as printed, sign reversed"
    )
    tau: Annotated[AtLeastOne, Only(variant="published")] = Field(
        5, description="published only: rounds as its owner's choice after which a record is asked for anyway"
    )
    auction_epsilon: Annotated[Positive, Only(variant="published")] = Field(
        0.5, description="published only: rank i is asked with probability exp(-auction_epsilon (i - 1))"
    )
