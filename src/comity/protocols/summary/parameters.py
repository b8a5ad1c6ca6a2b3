"""The `[summary]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from comity.data import Classes, Encoding
from comity.protocols.parameters import Only, Parameters, Setting
from comity.protocols.summary.features import width
from comity.protocols.summary.kernel_width import width_of_schema
from comity.protocols.summary.protocol import OneShotSummary


class SummaryParameters(Parameters):
    """Records of many owners, chosen so that together they look like a consumer's."""

    table: ClassVar[str] = "summary"

    variant: Literal["default"] = Field("default", description="a density ratio from noisy moments, in one shot")
    sizes: dict[str, int] = Field(
        default_factory=dict, description="records of each owner and of the consumer; they are public"
    )
    records: int = Field(100, ge=1, description="how many are chosen in all")
    deliver: Literal["records", "hashes", "weights"] = Field(
        "records",
        description="what curator and consumer get: chosen records, hashes of them under a seed that the curator does "
        "not know, or nothing but the released weights",
    )
    auxiliary: str | None = Field(
        None, description="file of public records beside the study, for the width of the kernel alone"
    )
    gamma: float | None = Field(
        None, gt=0, description="of the kernel exp(-gamma |x - y|^2); by auxiliary records or the schema if left out"
    )
    dimensions: int | Literal["auto"] = Field("auto", description="random features; auto: by a public rule")
    hash_dimensions: Annotated[int, Only(deliver="hashes")] = Field(140, description="numbers of a hash")
    payment: float = Field(100.0, ge=0, description="what the payout table divides")
    image: Annotated[tuple[int, int] | None, Only(deliver="records")] = Field(
        None, description="rows and columns where a record is a picture: chosen ones are shown on the page"
    )

    def privacy(self, setting: Setting) -> Mapping[str, str]:
        return {"unit": "record", "neighbours": "replace"}

    def files(self) -> Mapping[str, str]:
        return {} if self.auxiliary is None else {"summary.auxiliary": self.auxiliary}

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party)

    def built(self, setting: Setting) -> OneShotSummary:
        encoding = Encoding(setting.schema, scaling="unit")
        target = setting.schema.target
        gamma, why = self._gamma(setting, encoding)
        return OneShotSummary(
            columns=encoding.width,
            gamma=gamma,
            sizes=self.sizes,
            records=self.records,
            deliver=self.deliver,
            labels=None if target is None else "<i8" if isinstance(target, Classes) else "<f8",
            dimensions=None if self.dimensions == "auto" else self.dimensions,
            hash_dimensions=self.hash_dimensions,
            payment=self.payment,
            width_from=why,
            image=self.image,
            encoding=encoding,
        )

    def _gamma(self, setting: Setting, encoding: Encoding) -> tuple[float, str]:
        if self.gamma is not None:
            return self.gamma, "by the study"
        if self.auxiliary is None:
            return width_of_schema(encoding), "by the schema alone; public records of the kind give a better one"
        frame = setting.read(self.auxiliary, "summary.auxiliary")
        rows = encoding.encode_features(frame, where=f"{setting.where}: summary.auxiliary: {self.auxiliary}")
        return width(rows), f"by {len(rows)} public records"
