"""The `[averaging]` table of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from comity.data import Bounded, Classes, Encoding
from comity.errors import StudyError
from comity.protocols.averaging.losses import Kind, loss_of
from comity.protocols.averaging.protocol import Averaging
from comity.protocols.averaging.published import PublishedAverage
from comity.protocols.parameters import Parameters, Setting

# Keys that belong to one variant only; elsewhere they would be ignored without a word.
_DEFAULT_ONLY = ("model", "solver", "sizes", "rounds", "clip")
_PUBLISHED_ONLY = ("noise", "key_bits", "most")


def _model_of(target: Bounded | Classes) -> Kind:
    if isinstance(target, Bounded):
        return "linear"
    return "logistic" if len(target.values) == 2 else "softmax"


class AveragingParameters(Parameters):
    """One linear model of all parties' records, by sums of gradients or of local models."""

    variant: Literal["default", "published"] = Field(
        "default", description="secure sums with shared noise, or the three stages of Pathak, Rane and Raj (2010)"
    )
    model: Literal["logistic", "softmax", "svm", "linear"] | None = Field(
        None, description="by the target if left out: logistic, softmax above two classes, linear for a number"
    )
    solver: Literal["auto", "gradient", "average"] = Field("auto", description="auto: gradient if delta > 0")
    sizes: dict[str, int] | int | None = Field(
        None, description="records of each party (replace), or public lower bounds on them (add-remove); one for all"
    )
    l2: float | Literal["auto"] = Field("auto", description="penalty of local fits; auto: by a public rule")
    rounds: int | Literal["auto"] = Field("auto", description="gradient sums; auto: 20")
    clip: float | Literal["auto"] = Field(
        "auto", description="norm that residuals are cut at; 1 keeps probabilities of logistic true"
    )
    rows: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    bins: bool = Field(True, description="numbers with edges in the schema become one-hot bins")
    intercept: bool = Field(True, description="append a constant feature, bounded and penalised like any other")
    noise: Literal["spherical", "literal"] = Field(
        "spherical", description="published only: as corrected, or as printed"
    )
    key_bits: int = Field(2048, description="published only: of the Paillier keys")
    most: int = Field(1 << 20, description="published only: public bound on a party's records")

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def build(self, setting: Setting) -> Averaging | PublishedAverage:
        self._fitting(setting)
        target = setting.schema.target
        if target is None:
            raise StudyError(
                f"{setting.where}: averaging learns a target; declare [target] in the schema", key="target"
            )
        encoding = Encoding(
            setting.schema, scaling="symmetric", rows=self.rows, intercept=self.intercept, bins=self.bins
        )
        if self.variant == "published":
            if not isinstance(target, Classes):
                raise StudyError(
                    f"{setting.where}: averaging.variant = published learns classes; declare [target] with classes",
                    key="target",
                )
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
        loss_of(kind, target)
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

    def _fitting(self, setting: Setting) -> None:
        foreign = _PUBLISHED_ONLY if self.variant == "default" else _DEFAULT_ONLY
        for key in foreign:
            if key in self.model_fields_set:
                raise StudyError(
                    f'{setting.where}: averaging.{key} has no meaning with variant = "{self.variant}"; remove it',
                    key=f"averaging.{key}",
                )
