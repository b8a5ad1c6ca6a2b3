"""The `[synthetic]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from comity.data import by_features
from comity.errors import StudyError
from comity.federation.constraints import Positive
from comity.methods.by_columns import rows as matching
from comity.methods.by_columns.terms import Way
from comity.methods.method import Method, Only, Setting
from comity.methods.synthetic.method import CountedData, Model, Pooling, Rounds, SyntheticData
from comity.methods.synthetic.published.method import Candidates, Depth, Labelling, Leaves, Levels, PublishedSynthetic
from comity.methods.synthetic.published.predictor import Learner


class SyntheticParameters(Method):
    """A dataset of records that are nobody's, from noisy counts of all parties' records."""

    table: ClassVar[str] = "synthetic"
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {"published": {"delta": 0}}
    by_columns: ClassVar[bool] = True
    facts: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "held": {
            "rows": "parties that hold whole records",
            "columns": "parties that hold different columns ([parties.NAME] columns)",
        }
    }

    depth: Annotated[Depth, Only(variant="published")] = Field(
        8, description="published only: levels of a tree, that of the leaves included"
    )
    candidates: Annotated[Candidates, Only(variant="published")] = Field(
        10, description="published only: thresholds that a choice is made among"
    )
    levels: Annotated[Levels, Only(variant="published")] = Field(
        4, description="published only: levels that sizes are made consistent over, that of the leaves included"
    )
    leaves: Annotated[Leaves, Only(variant="published")] = Field(
        20_000, description="published only: most nodes of a level, by a rule that sees no record"
    )
    labelling: Annotated[Labelling, Only(variant="published")] = Field(
        "vote", description="published only: labels by the vote of all trees, or by the sharer's own"
    )
    consistency: Annotated[bool, Only(variant="published")] = Field(
        True, description="published only: false leaves the noisy sizes of leaves as they are, cut at zero"
    )
    learner: Annotated[Learner | None, Only(variant="published")] = Field(
        None, description="published only: what each owner fits and keeps; by the target if left out"
    )
    l2: Annotated[Positive, Only(variant="published")] = Field(
        1e-4, description="published only: penalty of the owners' own models"
    )
    seed: Annotated[int, Only(variant="published")] = Field(
        0, description="published only: names the public chance that the shapes of trees are drawn from"
    )
    variant: Literal["default", "published"] = Field(
        "default",
        description="default: two-way counts by one secure sum with shared noise; published: private trees, shared and "
        "sampled",
    )
    model: Annotated[Model, Only(variant="default")] = Field(
        "auto", description="auto: naive-bayes where noise would cover the pairs of columns, by synthetic.rows"
    )
    rows: Annotated[int | None, Only(variant="default")] = Field(
        None,
        ge=1,
        description="records of all parties together: a round figure for the rule, or how many they are where "
        "neighbours replace; tables that count more than four times as many end the run",
    )
    bins: Annotated[int | Literal["auto"], Only(variant="default")] = Field(
        "auto", description="cells of numbers for which the schema says none; auto: 8, or fewer for very many columns"
    )
    pooling: Annotated[Pooling, Only(variant="default", held="rows")] = Field(
        "sum", description="one noise for the sum of all, or each party releases its own counts with noise of its own"
    )
    rounds: Annotated[Rounds, Only(variant="default", held="rows", pooling="sum", model=("auto", "mixture"))] = Field(
        1,
        description="2: all tables with 40 % of the loss, then those with the target and the 25 strongest others again",
    )
    products: Annotated[Way, Only(variant="default", held="columns")] = Field(
        "rlwe", description="parties with different columns: how tables across parties are computed"
    )
    alignment: Annotated[matching.Way | None, Only(variant="default", held="columns")] = Field(
        None,
        description="parties with different columns: how rows are matched; keyed if the schema has an identifier, none "
        "otherwise",
    )
    rows_at_most: Annotated[matching.Most, Only(variant="default", held="columns")] = Field(
        1 << 20, description="parties with different columns: rows that the products are laid out for"
    )

    def privacy(self, setting: Setting) -> Mapping[str, str]:
        # Matching rows of different columns tells how many records there are, so that they can only be replaced.
        return {"unit": "record", "neighbours": "replace" if setting.columns else "add-remove"}

    def resolved(self, setting: Setting) -> dict[str, Any]:
        return {**super().resolved(setting), "held": "columns" if setting.columns else "rows"}

    def built(self, setting: Setting) -> CountedData | PublishedSynthetic:
        if self.variant == "published":
            if setting.columns:
                raise StudyError(
                    f'{setting.where}: synthetic.variant = "published" is for parties that hold whole records, found '
                    "[parties.NAME] columns; leave the columns or the variant out",
                    key="synthetic.variant",
                )
            return self._published(setting)
        common: dict[str, Any] = {
            "schema": setting.schema,
            "model": self.model,
            "rows": self.rows,
            "bins": None if self.bins == "auto" else self.bins,
        }
        if not setting.columns:
            return SyntheticData(**common, pooling=self.pooling, rounds=self.rounds)
        # It comes with compiled products, which no study of whole records needs.
        from comity.methods.synthetic.columns import SyntheticColumns

        return SyntheticColumns(
            **common,
            columns=by_features(setting.schema, setting.columns),
            products=self.products,
            alignment=self.alignment or ("none" if setting.schema.identifier is None else "keyed"),
            most=self.rows_at_most,
        )

    def _published(self, setting: Setting) -> PublishedSynthetic:
        return PublishedSynthetic(
            schema=setting.schema,
            depth=self.depth,
            candidates=self.candidates,
            levels=self.levels,
            leaves=self.leaves,
            labelling=self.labelling,
            consistency=self.consistency,
            learner=self.learner,
            l2=self.l2,
            seed=self.seed,
        )
