"""The `[synthetic]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from comity.protocols.parameters import Only, Setting
from comity.protocols.synthetic.protocol import SyntheticData
from comity.protocols.synthetic.published.parameters import PublishedKeys
from comity.protocols.synthetic.published.protocol import PublishedSynthetic


class SyntheticParameters(PublishedKeys):
    """A dataset of records that are nobody's, from noisy counts of all parties' records."""

    table: ClassVar[str] = "synthetic"
    privacy: ClassVar[Mapping[str, str]] = {"unit": "record", "neighbours": "add-remove"}

    variant: Literal["default", "published"] = Field(
        "default",
        description="default: two-way counts by one secure sum with shared noise; published: private trees, shared and "
        "sampled",
    )
    model: Annotated[Literal["auto", "mixture", "naive-bayes"], Only(variant="default")] = Field(
        "auto", description="auto: naive-bayes where noise would cover the pairs of columns, by synthetic.rows"
    )
    rows: Annotated[int | None, Only(variant="default")] = Field(
        None,
        ge=1,
        description="records of all parties together: a round figure for the rule, or how many they are where "
        "neighbours replace",
    )
    bins: Annotated[int | Literal["auto"], Only(variant="default")] = Field(
        "auto", description="cells of numbers for which the schema says none; auto: 8, or fewer for very many columns"
    )
    pooling: Annotated[Literal["sum", "none"], Only(variant="default")] = Field(
        "sum", description="one noise for the sum of all, or each party releases its own counts with noise of its own"
    )

    def built(self, setting: Setting) -> SyntheticData | PublishedSynthetic:
        if self.variant == "published":
            return self.published(setting)
        return SyntheticData(
            schema=setting.schema,
            model=self.model,
            rows=self.rows,
            bins=None if self.bins == "auto" else self.bins,
            pooling=self.pooling,
        )
