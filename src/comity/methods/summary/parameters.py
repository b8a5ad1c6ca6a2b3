"""The `[summary]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.federation.constraints import Positive
from comity.methods.method import Method, Only, Setting
from comity.methods.summary.auction.market import FEATURES
from comity.methods.summary.auction.method import AskShare, AuctionSummary, Missed
from comity.methods.summary.features import gamma_of_records, gamma_of_schema
from comity.methods.summary.method import Deliver, OneShotSummary
from comity.methods.summary.published.method import Bid, PublishedSummary
from comity.methods.summary.terms import AtLeastOne, Features, Payment


class SummaryParameters(Method):
    """Records of many owners, chosen so that together they look like a consumer's."""

    table: ClassVar[str] = "summary"

    bid_sign: Annotated[Bid, Only(variant="published")] = Field(
        "corrected", description="published only: bids by the objective's marginal gain, or as printed, sign reversed"
    )
    tau: Annotated[AtLeastOne, Only(variant="published")] = Field(
        5, description="published only: rounds as its owner's choice after which a record is asked for anyway"
    )
    auction_epsilon: Annotated[Positive, Only(variant="published")] = Field(
        0.5, description="published only: rank i is asked with probability exp(-auction_epsilon (i - 1))"
    )
    missed: Annotated[Missed, Only(variant="default", selection="auction")] = Field(
        0.05, description="auction only: the chance that the best bidder of a round is not asked"
    )
    ask_share: Annotated[AskShare, Only(variant="default", selection="auction")] = Field(
        0.1, description="auction only: the part of an owner's loss that says whom the curator asks"
    )
    variant: Literal["default", "published"] = Field(
        "default",
        description="default: as `selection` says; published: an auction that is not private as claimed, to compare",
    )
    selection: Annotated[Literal["one-shot", "auction"], Only(variant="default")] = Field(
        "one-shot",
        description="by a density ratio from noisy moments, at once; or record by record from who bids best for it",
    )
    sizes: dict[str, int] = Field(
        default_factory=dict, description="records of each owner and of the consumer; they are public"
    )
    records: AtLeastOne = Field(100, description="how many are chosen in all")
    deliver: Deliver = Field(
        "records",
        description="what curator and consumer get: chosen records, hashes of them under a seed that the curator does "
        "not know, or nothing but the released weights",
    )
    auxiliary: str | None = Field(
        None,
        description="file of public records beside the study, for the width of the kernel; published: what the summary "
        "begins with, too",
    )
    gamma: Positive | None = Field(
        None, description="of the kernel exp(-gamma |x - y|^2); by auxiliary records or the schema if left out"
    )
    dimensions: int | Literal["auto"] = Field(
        "auto", description="random features; auto: by a public rule, 140 in an auction"
    )
    hash_dimensions: Annotated[Features, Only(deliver="hashes")] = Field(140, description="numbers of a hash")
    payment: Payment = Field(100.0, description="what the payout table divides")
    image: Annotated[tuple[int, int] | None, Only(deliver="records")] = Field(
        None, description="rows and columns where a record is a picture: chosen ones are shown on the page"
    )

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "record", "neighbours": "replace"}

    def files(self) -> Mapping[str, str]:
        return {} if self.auxiliary is None else {"summary.auxiliary": self.auxiliary}

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party)

    def built(self, setting: Setting) -> OneShotSummary | AuctionSummary | PublishedSummary:
        encoding = Encoding(setting.schema, scaling="unit")
        target = setting.schema.target
        public = self._public(setting, encoding)
        gamma, why = self._gamma(encoding, public)
        common = Common(
            columns=encoding.width,
            gamma=gamma,
            sizes=self.sizes,
            records=self.records,
            labels=None if target is None else "<i8" if isinstance(target, Classes) else "<f8",
            payment=self.payment,
            width_from=why,
            image=self.image,
            encoding=encoding,
        )
        if self.variant == "default" and self.selection == "one-shot":
            return OneShotSummary(
                deliver=self.deliver,
                dimensions=None if self.dimensions == "auto" else self.dimensions,
                hash_dimensions=self.hash_dimensions,
                **common,
            )
        if self.deliver != "records":
            raise StudyError(
                f'{setting.where}: summary.deliver = "{self.deliver}" needs the default variant with selection = '
                '"one-shot": an auction hands over records; leave one of them out',
                key="summary.deliver",
            )
        dimensions = FEATURES if self.dimensions == "auto" else self.dimensions
        if self.variant == "default":
            return AuctionSummary(dimensions=dimensions, missed=self.missed, ask_share=self.ask_share, **common)
        return PublishedSummary(
            dimensions=dimensions,
            seeds=np.zeros((0, encoding.width)) if public is None else public,
            bid_sign=self.bid_sign,
            tau=self.tau,
            auction_epsilon=self.auction_epsilon,
            **common,
        )

    def _public(self, setting: Setting, encoding: Encoding) -> NDArray[np.float64] | None:
        if self.auxiliary is None:
            return None
        frame = setting.read(self.auxiliary, "summary.auxiliary")
        return encoding.encode_features(frame, where=f"{setting.where}: summary.auxiliary: {self.auxiliary}")

    def _gamma(self, encoding: Encoding, public: NDArray[np.float64] | None) -> tuple[float, str]:
        if self.gamma is not None:
            return self.gamma, "by the study"
        if public is None:
            return gamma_of_schema(encoding), "by the schema alone; public records of the kind give a better one"
        return gamma_of_records(public), f"by {len(public)} public records"


class Common(TypedDict):
    """What every form of the method is made from."""

    columns: int
    gamma: float
    sizes: Mapping[str, int]
    records: int
    labels: Literal["<i8", "<f8"] | None
    payment: float
    width_from: str
    image: tuple[int, int] | None
    encoding: Encoding
