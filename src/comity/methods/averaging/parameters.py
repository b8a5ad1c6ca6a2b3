"""The `[averaging]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from comity.data import Bounded, Classes, Encoding
from comity.errors import StudyError
from comity.methods.averaging.objectives import Kind, objective_of
from comity.methods.averaging.protocol import Averaging, Solver
from comity.methods.averaging.published.noise import Kind as NoiseKind
from comity.methods.averaging.published.protocol import Most, PublishedAverage
from comity.methods.averaging.solvers import auto_solver
from comity.methods.parameters import Only, Parameters, Setting


def _model_of(target: Bounded | Classes) -> Kind:
    if isinstance(target, Bounded):
        return "linear"
    return "logistic" if len(target.values) == 2 else "softmax"


class AveragingParameters(Parameters):
    """One linear model of all parties' records, by sums of gradients or of local models."""

    table: ClassVar[str] = "averaging"
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "published": {"delta": 0, "colluders": 0, "dropouts": 0}
    }

    variant: Literal["default", "published"] = Field(
        "default", description="secure sums with shared noise, or the three stages of Pathak, Rane and Raj (2010)"
    )
    model: Annotated[Kind | None, Only(variant="default")] = Field(
        None, description="by the target if left out: logistic, softmax above two classes, linear for a number"
    )
    solver: Annotated[Solver, Only(variant="default")] = Field(
        "auto",
        description="auto: moments for a linear model (to 1,500 features), gradient if delta > 0, else a public rule",
    )
    sizes: Annotated[dict[str, int] | int | None, Only(variant="default")] = Field(
        None, description="records of each party (replace), or public lower bounds on them (add-remove); one for all"
    )
    l2: Annotated[float | Literal["auto"], Only(solver="average", why="gradients have no local fits")] = Field(
        "auto", description="penalty of local fits; auto: by a public rule"
    )
    rounds: Annotated[int | Literal["auto"], Only(variant="default", solver="gradient")] = Field(
        "auto", description="gradient sums; auto: 20, above 400 features 40"
    )
    clip: Annotated[float | Literal["auto"], Only(variant="default", solver="gradient")] = Field(
        "auto", description="norm that residuals are cut at; auto: by the noise; 1 keeps probabilities of logistic true"
    )
    rows: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    bins: bool = Field(True, description="numbers with edges in the schema become one-hot bins")
    intercept: bool = Field(True, description="append a constant feature, bounded and penalised like any other")
    noise: Annotated[NoiseKind, Only(variant="published")] = Field(
        "spherical", description="published only: as corrected, or as printed"
    )
    key_bits: Annotated[int, Only(variant="published")] = Field(
        2048, description="published only: of the Paillier keys"
    )
    most: Annotated[Most, Only(variant="published")] = Field(
        1 << 20, description="published only: public bound on a party's records"
    )

    def resolved(self, setting: Setting) -> dict[str, Any]:
        """The published method averages local models; the default's `auto` is `solvers.auto_solver`. Where the noise
        decides between moments and the average, which has more keys, the keys are those of the average."""
        target, solver = setting.schema.target, self.solver
        if solver == "auto" and self.variant == "published":
            solver = "average"
        elif solver == "auto":
            solver = auto_solver(
                model=self.model or ("logistic" if target is None else _model_of(target)),
                features=self._encoding(setting).width,
                pure=setting.pure,
                asked=any(one != "auto" for one in (self.l2, self.rounds, self.clip)),
                moments_win=lambda: False,
            )
        return {**super().resolved(setting), "solver": solver}

    def _encoding(self, setting: Setting) -> Encoding:
        return Encoding(setting.schema, scaling="symmetric", rows=self.rows, intercept=self.intercept, bins=self.bins)

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def check_target(self, setting: Setting) -> None:
        target = setting.schema.target
        if target is None:
            raise StudyError(
                f"{setting.where}: averaging learns a target; declare [target] in the schema", key="target"
            )
        if self.variant == "published" and not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: averaging.variant = published learns classes; declare [target] with classes",
                key="target",
            )

    def built(self, setting: Setting) -> Averaging | PublishedAverage:
        target = setting.schema.target
        assert target is not None
        encoding = self._encoding(setting)
        if self.variant == "published":
            assert isinstance(target, Classes)
            return PublishedAverage(
                width=encoding.width,
                classes=target.values,
                l2=1e-2 if self.l2 == "auto" else self.l2,
                noise=self.noise,
                key_bits=self.key_bits,
                most=self.most,
                encoding=encoding,
            )
        kind = self.model or _model_of(target)
        objective_of(kind, target)
        return Averaging(
            features=encoding.width,
            model=kind,
            classes=target.values if isinstance(target, Classes) else (),
            low=target.low if isinstance(target, Bounded) else -1.0,
            high=target.high if isinstance(target, Bounded) else 1.0,
            sizes=self.sizes,
            solver=self.solver,
            l2=None if self.l2 == "auto" else self.l2,
            rounds=None if self.rounds == "auto" else self.rounds,
            clip=None if self.clip == "auto" else self.clip,
            encoding=encoding,
        )
