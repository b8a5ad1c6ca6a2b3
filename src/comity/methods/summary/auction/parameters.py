"""Keys of the `[summary]` table that only the corrected auction has."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from comity.methods.method import Method, Only
from comity.methods.summary.auction.protocol import AskShare, Missed


class AuctionKeys(Method):
    missed: Annotated[Missed, Only(variant="default", selection="auction")] = Field(
        0.05, description="auction only: the chance that the best bidder of a round is not asked"
    )
    ask_share: Annotated[AskShare, Only(variant="default", selection="auction")] = Field(
        0.1, description="auction only: the part of an owner's loss that says whom the curator asks"
    )
