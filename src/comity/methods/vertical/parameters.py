"""The `[vertical]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from comity.data import by_features
from comity.errors import StudyError
from comity.methods.by_columns import rows
from comity.methods.by_columns.terms import Way
from comity.methods.method import Method, Only, Setting
from comity.methods.vertical.gradients import GradientRegression, HowOften
from comity.methods.vertical.protocol import ColumnRegression, VerticalRegression
from comity.methods.vertical.published.protocol import PublishedVertical


class VerticalParameters(Method):
    """One regression over columns that different parties hold of the same records."""

    table: ClassVar[str] = "vertical"
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {"published": {"delta": 0}}
    by_columns: ClassVar[bool] = True

    variant: Literal["default", "published"] = Field(
        "default", description="noise on shares, or the functional mechanism of Xu, Yuan and Wu (2019)"
    )
    label_at: str | None = Field(None, description="the party with the target; found by its columns if left out")
    model: Literal["linear", "logistic"] | None = Field(None, description="by the target if left out")
    products: Annotated[Way, Only(variant="default")] = Field(
        "rlwe", description="how products across parties are computed"
    )
    solver: Annotated[Literal["quadratic", "gradient", "auto"], Only(variant="default")] = Field(
        "auto", description="logistic: one release, private rounds after it, or auto: rounds where they help"
    )
    rounds: Annotated[HowOften, Only(variant="default", solver=("gradient", "auto"))] = Field(
        6, description="private rounds, where there are any"
    )
    alignment: rows.Way | None = Field(
        None, description="how rows are matched; keyed if the schema has an identifier, none otherwise"
    )
    intercept: Annotated[bool, Only(variant="default")] = Field(True, description="a constant feature")
    bins: Annotated[bool, Only(variant="default")] = Field(
        False, description="numbers that declare edges become steps between them"
    )
    party_epsilon: Annotated[dict[str, float], Only(variant="default")] = Field(
        default_factory=dict,
        description="largest loss about a party's own columns, by party; the study is refused above",
    )
    block_epsilon: Annotated[dict[str, float], Only(variant="default")] = Field(
        default_factory=dict,
        description="pure losses from the bottom up: one for each party's own block, and one for each pair's, as a+b",
    )
    rows_at_most: rows.Most = Field(1 << 20, description="rows that the products are laid out for")

    def built(self, setting: Setting) -> ColumnRegression:
        if not setting.columns:
            raise StudyError(
                f"{setting.where}: vertical needs the columns of each party; add [parties.NAME] tables with columns",
                key="parties",
            )
        held = by_features(setting.schema, setting.columns)
        built = self._built(setting, held)
        if self.label_at is not None and self.label_at != built.layout.label_at:
            raise StudyError(
                f"{setting.where}: vertical.label_at = {self.label_at!r}, and the target is among the columns of "
                f"{built.layout.label_at}; correct one of them",
                key="vertical.label_at",
            )
        kind = "logistic" if built.layout.classes else "linear"
        if self.model is not None and self.model != kind:
            raise StudyError(
                f"{setting.where}: vertical.model = {self.model!r}, and the schema's target is for a {kind} model; "
                "declare [target] with classes for logistic, with low and high for linear",
                key="vertical.model",
            )
        return built

    def _built(self, setting: Setting, held: dict[str, tuple[str, ...]]) -> ColumnRegression:
        if self.variant == "published":
            return PublishedVertical(
                schema=setting.schema, columns=held, alignment=self._alignment(setting), most=self.rows_at_most
            )
        quadratic = VerticalRegression(
            schema=setting.schema,
            columns=held,
            pure=setting.pure,
            products=self.products,
            alignment=self._alignment(setting),
            intercept=self.intercept,
            bins=self.bins,
            party_epsilon=self.party_epsilon,
            block_epsilon=self.block_epsilon,
            most=self.rows_at_most,
        )
        if self.solver == "quadratic":
            return quadratic
        return GradientRegression(quadratic=quadratic, solver=self.solver, rounds=self.rounds)

    def _alignment(self, setting: Setting) -> rows.Way:
        return self.alignment or ("none" if setting.schema.identifier is None else "keyed")
