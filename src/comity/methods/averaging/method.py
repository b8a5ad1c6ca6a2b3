"""Averaged models: one linear model of all parties' records, from sums that are opened with noise and nothing else.

After M. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, NIPS
2010. Weighting local models by their sizes takes the smallest party out of the noise, and shared noise takes the search
for it out of the protocol (`solver="average"`). With δ > 0 the parties do better by descending together: each round
opens one noisy sum of clipped gradients (`solver="gradient"`). A linear model needs no rounds: one sum of second
moments holds all of it (`solver="moments"`).

Weights, penalties and steps come from the declared sizes alone, never from what a site counts. A site with fewer
records raises its penalty in proportion, one with more takes it per record; either way one record moves what it sends
by no more than declared (proof.md, 4). A wrong size costs accuracy, not privacy, and no site reports that it is wrong.
The derivations are in `proof.md`. The protocol of the paper: `published/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Bounded, Classes, Encoding, Records, Schema, Target
from comity.data.exact_sums import rows_on_grid
from comity.data.row_products import round_rows, rows_in_cache
from comity.data.scratch import scratch
from comity.data.tables.encoded_cache import single_rows
from comity.errors import Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.adaptation import ADAPTATION_NOTE, Adaptation
from comity.federation.evaluation.assessment import Baseline, Figure
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.owner.prepared_rows import Preparation
from comity.federation.owner.rows import Arrays, Rows
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import assessment
from comity.methods.averaging.calibration import (
    FactorEstimate,
    calibration_sums,
    count_calibrations,
    limits_of,
    logistic_sums,
)
from comity.methods.averaging.descent import (
    MAX_NOISE,
    MIN_PROGRESS,
    Budget,
    Preconditioner,
    clip_for,
    count_rounds,
    first_averaged_round,
    fit_preconditioner,
    max_progress,
    noise_level,
    shared_noise_factor,
)
from comity.methods.averaging.objectives import (
    MIN_PENALTY,
    TOLERANCE,
    Kind,
    Objective,
    objective_of,
    penalty_for,
    penalty_for_numbers,
)
from comity.methods.averaging.published.constants import PAPER, MaxRecords
from comity.methods.averaging.published.noise import Kind as NoiseKind
from comity.methods.averaging.regression import Moments, fit_regression, moments_are_better
from comity.methods.averaging.row_kernels import single_columns, unit_columns
from comity.methods.averaging.second_moments import (
    MAX_WHOLE_FEATURES,
    Blocks,
    Whitening,
    count_entries,
    count_whitenings,
    fit_whitening,
    is_narrow,
    make_blocks,
    plausible_ranges,
    read_matrices,
    read_square,
    sensitivity,
    sum_moments,
    sum_products,
    sum_single_products,
    weigh_products,
)
from comity.methods.averaging.weight_noise import estimate_weight_noise
from comity.methods.constants import Constant
from comity.methods.declared_records import Sizes, check_sizes, largest_size, size_of, sum_sizes, warn_owner
from comity.methods.method import Method, Only, Setting
from comity.methods.tables import validate
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.data import LocalRecords
    from comity.federation.coordinator.parties import Parties
    from comity.federation.coordinator.released import Total
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor
    from comity.methods.averaging.published.method import PublishedAveraging

Floats = NDArray[np.float64]
Solver = Literal["auto", "gradient", "average", "moments"]
ResolvedSolver = Literal["gradient", "average", "moments"]
"""What `auto` becomes."""

# Sums have room for parties that hold so many times their declared records; beyond, they are shrunk. Not tuned on data:
# it sets the width of the integers, and changes no noise.
HEADROOM = 4

# Options.


class Averaging(Method):
    """One linear model of all parties' records, by sums of gradients, of local models or of moments.

        method = comity.Averaging(schema, sizes=400)
        print(method.plan(["north", "south", "east"], epsilon=1, delta=1e-6))
        result = method.simulate(frames, epsilon=1, delta=1e-6)
        result.model.predict_proba(frame)

    It protects each record, against a curious coordinator with up to `colluders` parties and against everyone who sees
    the model. `variant="published"` is the protocol of Pathak, Rane and Raj (2010) with the paper's constants, and with
    the guarantee that it has.
    """

    table: ClassVar[str] = "averaging"
    counts_sizes: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"scaling": "rows"}
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "published": {"delta": 0, "colluders": 0, "dropouts": 0}
    }
    paper: ClassVar[Mapping[str, Constant]] = PAPER

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
        "auto", description="penalty of local fits; auto: by a public rule, published: 1"
    )
    rounds: Annotated[int | Literal["auto"], Only(variant="default", solver="gradient")] = Field(
        "auto", description="gradient sums; auto: 20; above 400 features 40 where noise is little or much"
    )
    clip: Annotated[float | Literal["auto"], Only(variant="default", solver="gradient")] = Field(
        "auto", description="norm that residuals are clipped to; auto: by the noise; 1 clips no residual of logistic"
    )
    scaling: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    bins: bool = Field(True, description="numbers with edges in the schema become one-hot bins")
    intercept: bool = Field(
        True, description="append a constant feature, bounded and penalised like any other; published: false"
    )
    noise: Annotated[NoiseKind, Only(variant="published")] = Field(
        "spherical", description="published only: literal as printed, which is what it takes; spherical as corrected"
    )
    key_bits: Annotated[int, Only(variant="published")] = Field(
        2048, description="published only: of the Paillier keys"
    )
    most: Annotated[MaxRecords, Only(variant="published")] = Field(
        1 << 20, description="published only: public bound on a party's records"
    )

    def __init__(self, schema: Schema | None = None, /, **options: Any) -> None:
        # Without it, type checkers know of the options alone.
        super().__init__(schema, **options)

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "record", **super().privacy(setting)}

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def resolve_options(self, setting: Setting) -> dict[str, Any]:
        """The published method averages local models; in the default `choose_solver` decides. Where the noise decides
        between moments and the average, the options of the average are allowed, which has more."""
        target, solver = setting.schema.target, self.solver
        if solver == "auto" and self.variant == "published":
            solver = "average"
        elif solver == "auto":
            solver = choose_solver(
                model=self.model or ("logistic" if target is None else _model_of(target)),
                features=self._encoding(setting).width,
                pure=setting.pure,
                asked=any(one != "auto" for one in (self.l2, self.rounds, self.clip)),
                moments_win=lambda: False,
            )
        return {**super().resolve_options(setting), "solver": solver}

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

    def make_protocol(self, setting: Setting) -> AveragingProtocol | PublishedAveraging:
        target, encoding = setting.schema.target, self._encoding(setting)
        assert target is not None
        if self.variant == "published":
            assert isinstance(target, Classes)
            return self._published(width=encoding.width, classes=target.values, encoding=encoding)
        kind, classes = self.model or _model_of(target), target.values if isinstance(target, Classes) else ()
        objective_of(kind, len(classes))
        return self._over(
            features=encoding.width,
            model=kind,
            classes=classes,
            low=target.low if isinstance(target, Bounded) else -1.0,
            high=target.high if isinstance(target, Bounded) else 1.0,
            encoding=encoding,
        )

    @classmethod
    def over_rows(
        cls,
        *,
        features: int,
        model: Kind = "logistic",
        classes: tuple[str, ...] = ("0", "1"),
        low: float = -1.0,
        high: float = 1.0,
        encoding: Encoding | None = None,
        **options: Any,
    ) -> AveragingProtocol:
        """The protocol over rows that are already encoded, for estimators; None leaves an option at its default."""
        given = {key: value for key, value in options.items() if value is not None}
        method = validate(cls, given, cls.__name__, f"{cls.table}.")
        return method._over(features=features, model=model, classes=classes, low=low, high=high, encoding=encoding)

    @classmethod
    def published_over_rows(
        cls, *, width: int, classes: tuple[str, ...] = ("0", "1"), encoding: Encoding | None = None, **options: Any
    ) -> PublishedAveraging:
        """The published protocol over rows that are already encoded."""
        method = validate(cls, {**options, "variant": "published"}, cls.__name__, f"{cls.table}.")
        return method._published(width=width, classes=classes, encoding=encoding)

    def _published(self, **rows: Any) -> PublishedAveraging:
        # Plans of the default variant need none of the published protocol's cryptography.
        from comity.methods.averaging.published.method import PublishedAveraging

        return PublishedAveraging(
            l2=self.paper["l2"].value if self.l2 == "auto" else self.l2,
            noise=self.noise,
            key_bits=self.key_bits,
            most=self.most,
            **rows,
        )

    def _over(self, **rows: Any) -> AveragingProtocol:
        return AveragingProtocol(
            sizes=self.sizes,
            solver=self.solver,
            l2=None if self.l2 == "auto" else self.l2,
            rounds=None if self.rounds == "auto" else self.rounds,
            clip=None if self.clip == "auto" else self.clip,
            **rows,
        )

    def _encoding(self, setting: Setting) -> Encoding:
        return Encoding(
            setting.schema, scaling="symmetric", rows=self.scaling, intercept=self.intercept, bins=self.bins
        )


def _model_of(target: Target) -> Kind:
    if isinstance(target, Bounded):
        return "linear"
    return "logistic" if len(target.values) == 2 else "softmax"


def choose_solver(
    *, model: Kind, features: int, pure: bool, asked: bool, moments_win: Callable[[], bool]
) -> ResolvedSolver:
    """What `auto` stands for, from public figures. `asked`: a penalty, rounds or a clip is set, which moments lack.

    A linear model takes moments, which hold all of it. Otherwise gradients, which need a delta. Without one a logistic
    model takes moments where `moments_win` says that their noise allows it, and else the average of local fits.
    """
    moments_fit = features <= MAX_WHOLE_FEATURES and not asked
    if model == "linear" and moments_fit:
        return "moments"
    if not pure:
        return "gradient"
    return "moments" if model == "logistic" and moments_fit and moments_win() else "average"


# What runs.


_MODELS = {
    "logistic": "logistic model",
    "softmax": "softmax model",
    "svm": "support-vector classifier",
    "linear": "linear regression",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class AveragingProtocol(Protocol):
    """One linear model of all parties' records, by gradients or by local models, summed securely with shared noise.

    Adversary    an honest-but-curious coordinator with up to `colluders` parties, and everyone who sees the model.
    Unit         a record, replaced (sizes are public), or added or removed (public lower bounds on sizes).
    Learned      coordinator: noisy sums over the parties. Parties: the models that the sums lead to.
    Sensitivity  gradient: 2·clip for a sum of gradients and √2 for second moments (add-remove: clip and √1.25), for
                 rows in the unit ball under any whitening, and that of `calibration` (proof.md, 8); average: c(λ)/λ for
                 Σ m_j·w_j with public sizes m_j, at any party (proof.md, 2 to 4); moments: that of `regression`
                 (proof.md, 7).

    `features` is the width of an encoded row; None for `l2`, `rounds` and `clip` means `auto`.
    """

    name: ClassVar[str] = "averaging"
    version: ClassVar[int] = 4

    features: int
    model: Kind
    classes: tuple[str, ...]
    low: float
    high: float
    sizes: Sizes | None
    solver: Solver
    l2: Annotated[float, Interval(ge=MIN_PENALTY, lt=inf)] | None
    rounds: Annotated[int, Interval(ge=1, le=1000)] | None
    clip: Positive | None
    encoding: Encoding | None = field(repr=False)

    @property
    def makes(self) -> str:
        return f"one {_MODELS[self.model]}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "moments" and self.model not in ("linear", "logistic"):
            raise StudyError(
                f'averaging.solver = "moments" makes linear and logistic models, found model = {self.model!r}; choose '
                "another solver",
                key="averaging.solver",
            )
        if self.solver == "moments" and self.features > MAX_WHOLE_FEATURES:
            raise StudyError(
                f'averaging.solver = "moments" releases all products of at most {MAX_WHOLE_FEATURES} features, found '
                f'{self.features}; set solver = "gradient", or declare fewer',
                key="averaging.solver",
            )
        if self.features < 1 or (self.encoding is not None and self.encoding.width != self.features):
            raise StudyError(f"features must be the width of an encoded row, at least 1, found {self.features}")
        if self.model == "linear" and not self.low < self.high:
            raise StudyError(f"the target's low must be below its high, found {self.low} and {self.high}")
        objective_of(self.model, 0 if self.model == "linear" else len(self.classes))

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"averaging ({self.model}, solver {self.solver})"

    @property
    def objective(self) -> Objective:
        return objective_of(self.model, 0 if self.model == "linear" else len(self.classes))

    @property
    def shape(self) -> tuple[int, int]:
        return self.objective.width, self.features

    def declared_sizes(self, consortium: Consortium) -> Sizes:
        if self.sizes is not None:
            return self.sizes
        replaced = consortium.neighbours is Neighbours.REPLACE
        meant = "number of records" if replaced else "public lower bound on the records"
        raise StudyError(
            f"averaging.sizes is missing: with neighbours = {consortium.neighbours} the study must state the {meant} "
            "of each party; add [averaging.sizes] with a line NAME = COUNT for each, or one count for all",
            key="averaging.sizes",
        )

    def count_records(self, consortium: Consortium, parties: Collection[str] | None = None) -> int:
        """The declared records of some parties, by default of all."""
        return sum_sizes(self.declared_sizes(consortium), consortium.parties if parties is None else parties)

    def max_records(self, consortium: Consortium) -> int:
        """How many records a party's sum has room for."""
        return HEADROOM * largest_size(self.declared_sizes(consortium))

    def clip_norm(self, consortium: Consortium) -> float:
        """The norm that residuals are clipped to."""
        if self.clip is not None:
            return min(self.clip, self.objective.max_residual)
        if self.objective.clip is not None:
            return self.objective.clip
        return clip_for(self.noise_level(consortium))

    def round_count(self, consortium: Consortium) -> int:
        """How many gradient sums are opened."""
        if self.rounds is not None:
            return self.rounds
        return count_rounds(self.features, self.noise_level(consortium))

    def noise_level(self, consortium: Consortium) -> float:
        """The norm of the noise in a mean gradient, as `descent` counts it."""
        return noise_level(consortium, self.features, self.count_records(consortium))

    @property
    def whitenings(self) -> int:
        """How often the second moments of whitened rows are opened."""
        return count_whitenings(self.features)

    @property
    def calibrations(self) -> int:
        """How often calibration sums are opened."""
        return count_calibrations(self.objective)

    def budget(self, consortium: Consortium) -> Budget:
        """Of the sums of a descent."""
        return Budget.divide(consortium, self.round_count(consortium), self.whitenings, self.calibrations)

    @property
    def blocks(self) -> Blocks:
        """Features whose second moments are released together."""
        return make_blocks(self.features)

    @property
    def touched_blocks(self) -> int:
        """The most blocks in which a row has entries: each column fills one entry."""
        groups = self.features if self.encoding is None else len(self.encoding.bounds.groups)
        return min(len(self.blocks), groups)

    def solver_for(self, consortium: Consortium) -> ResolvedSolver:
        """The solver of the study, or what `auto` becomes."""
        pure = isinstance(consortium.loss, Pure)
        if self.solver == "gradient" and pure:
            raise StudyError(
                'averaging.solver = "gradient" needs privacy.delta above 0; set it, or solver = "average"',
                key="averaging.solver",
            )
        if self.solver != "auto":
            return self.solver

        def moments_win() -> bool:
            noise = self._moments(consortium).opened_deviation(consortium)
            return moments_are_better(noise * sqrt(self.features) / self.count_records(consortium))

        asked = any(one is not None for one in (self.l2, self.rounds, self.clip))
        return choose_solver(model=self.model, features=self.features, pure=pure, asked=asked, moments_win=moments_win)

    def layout(self, consortium: Consortium) -> Moments:
        """Of the one release of `moments`."""
        bound = sqrt(self.features) if self.encoding is None else min(sqrt(self.features), self.encoding.bounds.l1)
        return Moments(self.features, bound, pure=isinstance(consortium.loss, Pure))

    def penalty(self, consortium: Consortium) -> float:
        """λ of the local fits."""
        if self.l2 is not None:
            return self.l2
        size = prod(self.shape)
        if isinstance(consortium.loss, Pure):
            noise = size / float(consortium.loss.epsilon)
        else:
            noise = sqrt(size) / sqrt(float(gaussian_budget(consortium.loss).square))
        noise *= shared_noise_factor(consortium) / self.count_records(consortium)
        if self.model == "linear":
            return max(MIN_PENALTY, penalty_for_numbers(noise, self.features))
        return max(MIN_PENALTY, penalty_for(noise, self.objective.initial_residual))

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'averaging protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        check_sizes(self.declared_sizes(consortium), consortium, "averaging.sizes")
        solver, names = self.solver_for(consortium), self._solution_names[:1]
        if solver == "gradient":
            sent, of = self._gradient_releases(consortium), self._weights_from
        elif solver == "average":
            sent, of = self._model_releases(consortium), ("models",)
        else:
            sent, of, names = (self._moments(consortium),), ("moments",), self._solution_names
        models = [
            Release(name=name, source=COORDINATOR, to=EVERYONE, protection=Derived(*of), form=Array(self.shape))
            for name in names
        ]
        if self._tells_deviations(solver):
            form = Array(self.objective.coefficients(np.zeros(self.shape)).shape)
            protection = Derived(self._last_moments, *self._weights_from)
            models.append(Release(name="deviations", source=COORDINATOR, to=EVERYONE, protection=protection, form=form))
        return Declaration(
            (*sent, *models),
            adversary=(
                f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties"
            ),
        )

    def _gradient_releases(self, consortium: Consortium) -> tuple[Release, ...]:
        """Second moments of rows, original and whitened; a gradient each round; calibration sums; and where these are
        taken: the whitening and the iterates. Sensitivities: proof.md, 2 to 4."""
        budget, most = self.budget(consortium), self.max_records(consortium)
        replaced, clip = consortium.neighbours is Neighbours.REPLACE, self.clip_norm(consortium)
        moment = Release(
            name="second_moment",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(budget.second_moment)),
            form=Array((count_entries(self.blocks),), "<i8"),
            bound=RecordSum(sensitivity(replaced=replaced), sensitivity(replaced=False) * most, most),
        )
        return (
            moment,
            *((replace(moment, name="whitened_moment", times=self.whitenings),) if self.whitenings else ()),
            Release(
                name="whitening",
                source=COORDINATOR,
                to=EVERY_PARTY,
                protection=Derived("second_moment", *(("whitened_moment",) if self.whitenings else ())),
                form=Array(Whitening.identity(self.features).factors.shape),
                times=self.whitenings + budget.rounds,
            ),
            Release(
                name="gradient",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Summed(Gaussian(budget.gradient)),
                form=Array(self.shape, "<i8"),
                bound=RecordSum(clip * (2 if replaced else 1), clip * most, most),
                times=budget.rounds,
            ),
            *self._calibration_releases(budget.calibration, most, replaced=replaced),
            Release(
                name="iterate",
                source=COORDINATOR,
                to=EVERY_PARTY,
                protection=Derived(*self._weights_from),
                form=Array(self.shape),
                times=budget.rounds + self.calibrations,
            ),
        )

    def _tells_deviations(self, solver: ResolvedSolver) -> bool:
        """Whether it is released how far noise moves each number of the model."""
        return solver == "gradient" and self.model != "linear"

    @property
    def _last_moments(self) -> str:
        """The release of the second moments that steps are made from."""
        return "whitened_moment" if self.whitenings else "second_moment"

    @property
    def _weights_from(self) -> tuple[str, ...]:
        """The releases that the weights of a descent come from."""
        return ("gradient", "calibration") if self.calibrations else ("gradient",)

    def _calibration_releases(self, loss: GDP | None, most: int, *, replaced: bool) -> tuple[Release, ...]:
        """Sensitivity: proof.md, 8."""
        if loss is None:
            return ()
        limits = limits_of(self.objective)
        return (
            Release(
                name="calibration",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Summed(Gaussian(loss)),
                form=Array((2,), "<i8"),
                bound=RecordSum(limits.sensitivity(replaced=replaced), limits.sensitivity(replaced=False) * most, most),
                times=self.calibrations,
            ),
        )

    def _model_releases(self, consortium: Consortium) -> tuple[Release, ...]:
        """Local models weighted by public sizes, once."""
        l2, most = self.penalty(consortium), largest_size(self.declared_sizes(consortium))
        noise = (
            Spherical(consortium.loss)
            if isinstance(consortium.loss, Pure)
            else Gaussian(gaussian_budget(consortium.loss))
        )
        radius = self.objective.radius(l2)
        apart = min(self.objective.diameter(l2) / l2 + most * 2 * TOLERANCE / l2, 2 * most * radius)
        return (
            Release(
                name="models",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Summed(noise),
                form=Array(self.shape, "<i8"),
                bound=RecordSum(apart, most * radius),
            ),
        )

    @property
    def _solution_names(self) -> tuple[str, ...]:
        """What is released of a solution; how far the ridge decides matters to intervals of a linear model."""
        return ("model", "errors", "shrunk") if self.model == "linear" else ("model", "errors")

    def _moments(self, consortium: Consortium) -> Release:
        return self.layout(consortium).release(consortium, self.max_records(consortium))

    def streams(self, consortium: Consortium) -> bool:
        """A local fit reads the records many times."""
        return self.solver_for(consortium) != "average"

    def sums_exactly(self, consortium: Consortium) -> bool:
        return self.streams(consortium)

    def reads_singles(self, consortium: Consortium) -> bool:
        """The kernels of a descent do. An evaluation scores rows as they are."""
        return self._one_pass and consortium.evaluation is None and self.solver_for(consortium) == "gradient"

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        solver = self.solver_for(parties.consortium)
        if solver == "moments":
            return self.solve(parties)
        return self.descend(parties) if solver == "gradient" else {"model": self.average(parties)}

    def solve(self, parties: Parties) -> dict[str, Any]:
        """Least squares from the opened moments, with standard errors."""
        consortium, total = parties.consortium, parties.sum(self.moments)
        layout, most = self.layout(consortium), total.parties * self._moments(consortium).bounded.limit
        parties.require("moments", total.parties, layout.plausible_ranges(total.value, most))
        fit = fit_regression(
            layout,
            total.value,
            records=self.count_records(consortium, total.names),
            deviation=parties.declaration["moments"].opened_deviation(consortium),
            classes=self.model != "linear",
        )
        released = {"model": fit.coef[None], "errors": fit.errors[None], "shrunk": fit.shrunk[None]}
        return {name: released[name] for name in self._solution_names}

    def average(self, parties: Parties) -> Floats:
        """Σ m_j·w_j over the parties that answered, divided by the sum of their declared sizes."""
        consortium, total = parties.consortium, parties.sum(self.train)
        return np.asarray(total.value / self.count_records(consortium, total.names), np.float64)

    def descend(self, parties: Parties) -> dict[str, Any]:
        """Steps from zero along noisy gradients of whitened rows; the mean over the last half of the rounds,
        calibrated; and how far noise moves each coefficient."""
        consortium, declaration = parties.consortium, parties.declaration
        spread = declaration["second_moment"].opened_deviation(consortium)
        opened, whitening = parties.sum(self.second_moment), Whitening.identity(self.features)
        self._require_moments(parties, "second_moment", opened)
        for number in range(self.whitenings):
            records = self.count_records(consortium, opened.names)
            whitening = self.whiten(whitening, number, opened.value, records, spread)
            opened = parties.sum(self.whitened_moment, whitening=whitening.factors)
            self._require_moments(parties, "whitened_moment", opened)
        moments = read_matrices(opened.value, self.blocks)
        preconditioner = self.precondition(moments, consortium, declaration)
        weights, mean = np.zeros(self.shape), np.zeros(self.shape)
        rounds = self.round_count(consortium)
        first = first_averaged_round(rounds)
        for number in range(rounds):
            iterate = whitening.unwhiten(weights)
            noisy = parties.sum(self.gradient, iterate=iterate, whitening=whitening.factors).value
            weights = weights - preconditioner.step(noisy)
            if number >= first:
                mean += weights / (rounds - first)
        mean = whitening.unwhiten(mean)
        released = {"model": self._calibrate(parties, mean)}
        if self._tells_deviations("gradient"):
            factor = float(np.linalg.norm(released["model"])) / max(float(np.linalg.norm(mean)), 1e-300)
            released["deviations"] = factor * self._weight_noise(moments, preconditioner, whitening, consortium)
        return released

    def _require_moments(self, parties: Parties, name: str, opened: Total) -> None:
        most = opened.parties * parties.declaration[name].bounded.limit
        parties.require(name, opened.parties, plausible_ranges(opened.value, self.blocks, most))

    def whiten(self, before: Whitening, number: int, opened: Floats, records: int, spread: float) -> Whitening:
        """Add a stage of whitening, from opened second moments of rows after the stages before it. `spread` is the
        noise's deviation in each moment."""
        moments = read_matrices(opened, self.blocks)
        scale, directions = fit_whitening(moments, read_square(opened), self.blocks, records=records, spread=spread)
        return before.with_stage(number, scale, directions)

    def precondition(
        self, moments: Sequence[Floats], consortium: Consortium, declaration: Declaration
    ) -> Preconditioner:
        """From noisy second moments of the blocks."""
        return fit_preconditioner(
            moments,
            self.blocks,
            curvature=self.objective.step_curvature(self.clip_norm(consortium)),
            noise=self.gradient_noise(consortium, declaration),
            spread=declaration["second_moment"].opened_deviation(consortium),
            touched=self.touched_blocks,
        )

    def gradient_noise(self, consortium: Consortium, declaration: Declaration) -> float:
        """Deviation of one number of a gradient that takes the budget of all rounds."""
        budget = self.budget(consortium)
        whole = sqrt(float(budget.gradient.square) * budget.rounds)
        return declaration["gradient"].sensitivity / whole * shared_noise_factor(consortium)

    def _weight_noise(
        self, moments: Sequence[Floats], preconditioner: Preconditioner, whitening: Whitening, consortium: Consortium
    ) -> Floats:
        """How far noise moves each coefficient of the mean of the rounds, from the opened moments."""
        deviations = estimate_weight_noise(
            moments,
            preconditioner,
            whitening.unwhiten,
            objective=self.objective,
            clip=self.clip_norm(consortium),
            noise=self.declare(consortium)["gradient"].opened_deviation(consortium),
            rounds=self.round_count(consortium),
        )
        turned = np.linalg.norm(self.objective.coefficients(np.eye(self.shape[0])), axis=1)
        return np.asarray(turned[:, None] * deviations, np.float64)

    def _calibrate(self, parties: Parties, weights: Floats) -> Floats:
        estimate = FactorEstimate()
        for _ in range(self.calibrations):
            deviation = parties.declaration["calibration"].opened_deviation(parties.consortium)
            opened = parties.sum(self.calibration, iterate=estimate.factor * weights).value
            estimate = estimate.update(opened, deviation)
        return estimate.factor * weights

    # What a site does.

    @property
    def _at_once(self) -> int:
        """Records of a block: as many as stay in a processor's cache, and more where sums over a block have more
        numbers than that. Kernels have small tiles of any block, which is as large as those of a cache on disk."""
        if self._one_pass:
            return max(single_rows(self.features), 4 * self.features)
        return max(2 * rows_in_cache(self.features), 4 * self.features)

    @property
    def _one_pass(self) -> bool:
        """Whether kernels compute what a record adds to a sum, for losses of one margin."""
        return self.objective.margin is not None and is_narrow(self.features)

    @step(sends="second_moment", stacked=True)
    def second_moment(self, site: Site) -> None:
        blocks = self.blocks

        def part(rows: Rows) -> Floats:
            if is_narrow(self.features):
                return sum_single_products(unit_columns(rows.features), rows.filled, rows.filled.shape[:-1])
            return sum_products(rows_on_grid(in_unit_ball(rows.features), rows.filled), blocks)

        site.contribute(weigh_products(site.total(part, at_once=self._at_once, exact=True), blocks))

    @step(sends="whitened_moment", stacked=True)
    def whitened_moment(self, site: Site, whitening: Floats) -> None:
        blocks = self.blocks

        def part(rows: Rows) -> Floats:
            _, whitened = rows.prepared
            if is_narrow(self.features):
                return sum_single_products(single_columns(whitened), rows.filled, rows.filled.shape[:-1])
            return sum_products(rows_on_grid(whitened, rows.filled), blocks)

        total = site.total(part, at_once=self._at_once, prepare=_whiten_rows(whitening, self._one_pass), exact=True)
        site.contribute(weigh_products(total, blocks))

    @step(sends="gradient", stacked=True)
    def gradient(self, site: Site, iterate: Floats, whitening: Floats) -> None:
        self._warn_owner(site)
        objective, clip, scale = self.objective, self.clip_norm(site.consortium), self.scale_targets
        prepare, coefficients = _whiten_rows(whitening, self._one_pass), objective.clip_coefficients(iterate)
        prepare, map_rows = replace(prepare, only_kept=self._one_pass), Whitening(whitening)
        weights = objective.clip_weights(iterate).of_rounded_rows()
        # The kernels read class indices as they are.
        targets = scale if self.model == "linear" else np.asarray

        factors = map_rows.factors_of_kernel if self._one_pass else ()

        def by_kernel(rows: Rows) -> Floats:
            if not rows.prepared:
                lines = targets(rows.labels), rows.filled, clip, *factors
                found = objective.sum_whitened(coefficients, rows.features, *lines)
                if found is not None:
                    return found
            inside, whitened = rows.prepared or prepare.compute(rows.features, False)
            return objective.sum_margins(coefficients, inside, targets(rows.labels), rows.filled, clip, whitened)

        def by_products(rows: Rows) -> Floats:
            inside, whitened = rows.prepared
            return objective.sum_residuals(weights, inside, scale(rows.labels), rows.filled, clip, whitened)

        part = by_kernel if self._one_pass else by_products
        total = site.total(part, at_once=self._at_once, prepare=prepare, exact=True)
        site.contribute(objective.turn_sum(total))

    @step(sends="calibration", stacked=True)
    def calibration(self, site: Site, iterate: Floats) -> None:
        objective, limits, scale = self.objective, limits_of(self.objective), self.scale_targets
        coefficients, weights = objective.clip_coefficients(iterate), objective.clip_weights(iterate)

        def by_kernel(rows: Rows) -> Floats:
            inside = unit_columns(rows.features).T.reshape(rows.features.shape)
            return logistic_sums(coefficients, inside, rows.labels, rows.filled, limits)

        def by_products(rows: Rows) -> Floats:
            return calibration_sums(objective, weights, in_unit_ball(rows.features), scale(rows.labels), rows.filled)

        part = by_kernel if self._one_pass and self.model == "logistic" else by_products
        site.contribute(site.total(part, at_once=self._at_once, exact=True))

    @step(sends="moments", stacked=True)
    def moments(self, site: Site) -> None:
        self._warn_owner(site)
        layout = self.layout(site.consortium)

        def part(rows: Rows) -> Floats:
            return layout.sum_products(rows.features, self.sign_targets(rows.labels), rows.filled)

        site.contribute(layout.weigh(site.total(part, exact=True)))

    @step(sends="models")
    def train(self, site: Site) -> None:
        if not len(site.features):
            site.contribute()
            return
        self._warn_owner(site)
        size = size_of(self.declared_sizes(site.consortium), site.party)
        # With fewer records than declared the mean is over the declared number: a record weighs at most 1/m.
        l2 = self.penalty(site.consortium) * max(1.0, size / len(site.features))
        fit = self.objective.fit(in_unit_ball(site.features), self.scale_targets(site.labels), l2)
        if not fit.converged:
            # A neutral value could be further from a neighbour's fit than the noise is scaled for.
            raise Refused(f"{site.party}: the local fit did not come within {TOLERANCE}", code="stopped")
        site.contribute(size * np.atleast_2d(fit.weights))

    def _warn_owner(self, site: Site) -> None:
        if isinstance(site, Site) and site.label == "0":
            declared = size_of(self.declared_sizes(site.consortium), site.party)
            bound = site.consortium.neighbours is Neighbours.ADD_REMOVE
            warn_owner(site, declared, "averaging.sizes", lower_bound=bound)

    def scale_targets(self, labels: NDArray[Any]) -> Floats:
        """Class indices unchanged; numbers on [−1, 1] by the target's bounds."""
        values = np.asarray(labels, np.float64)
        if self.model != "linear":
            return values
        return np.clip(2 * (values - self.low) / (self.high - self.low) - 1, -1.0, 1.0)

    def sign_targets(self, labels: NDArray[Any]) -> Floats:
        """Targets on [−1, 1], two classes at its ends."""
        targets = self.scale_targets(labels)
        return targets if self.model == "linear" else 2 * targets - 1

    # A holdout.

    @property
    def prediction_task(self) -> PredictionTask:
        return PredictionTask(0 if self.model == "linear" else len(self.classes), self.low, self.high)

    def on_training_part(self, terms: Evaluation) -> AveragingProtocol:
        sizes = self.sizes
        if isinstance(sizes, int):
            return replace(self, sizes=terms.left(sizes))
        return self if sizes is None else replace(self, sizes={name: terms.left(size) for name, size in sizes.items()})

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        from comity.learn.classifiers import LinearClassifier
        from comity.learn.regressor import LinearRegressor

        weights = np.asarray(released["model"], np.float64)
        if self.model == "linear":
            errors, shrunk = (
                np.asarray(released[name], np.float64)[0] if name in released else None for name in ("errors", "shrunk")
            )
            return LinearRegressor(weights[0], self.low, self.high, self.encoding, errors, shrunk)
        return LinearClassifier(
            self.objective.coefficients(weights),
            classes=self.classes,
            encoding=self.encoding,
            deviations=released.get("deviations"),
        )

    def score(self, model: LinearClassifier | LinearRegressor, test: Records) -> float:
        coef = np.atleast_2d(model.weights)
        return assessment.measure_error(self.objective, coef, test.features, self.scale_targets(_labels(test)))

    def adapt_own(self, presented: Any, records: LocalRecords, party: str) -> Adaptation | None:
        from comity.methods.own_adaptation import adapt_linear

        return adapt_linear(presented, records)

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        figures = [assessment.measure_long_rows(train)]
        if self.model == "linear":
            figures.append(assessment.measure_outside_targets(train, self.low, self.high))
        if self.solver_for(consortium) == "gradient":
            rows = [in_unit_ball(records.features) for records in train]
            if self.whitenings:
                figures.append(assessment.measure_long_whitened_rows(self._whiten_exactly(rows, consortium), rows))
            weights, clip = np.asarray(opened["model"], np.float64), self.clip_norm(consortium)
            targets = [self.scale_targets(_labels(one)) for one in train]
            figures.append(assessment.measure_long_residuals(self.objective, weights, clip, rows, targets))
        return tuple(figures)

    def _whiten_exactly(self, rows: Sequence[Floats], consortium: Consortium) -> Whitening:
        """The whitening that second moments without noise would give: what was opened is not kept."""
        whitening, mapped = Whitening.identity(self.features), rows
        spread = self.declare(consortium)["second_moment"].opened_deviation(consortium)
        for number in range(self.whitenings):
            exact = np.sum([sum_moments(one, self.blocks) for one in mapped], axis=0)
            whitening = self.whiten(whitening, number, exact, sum(map(len, rows)), spread)
            mapped = [whitening.map_into_ball(one) for one in rows]
        return whitening

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        sets = [(in_unit_ball(records.features), self.scale_targets(_labels(records))) for records in train]
        features, targets = in_unit_ball(test.features), self.scale_targets(_labels(test))
        return assessment.fit_baselines(self.objective, sets, features, targets)

    def declared_units(self, consortium: Consortium) -> int:
        return self.count_records(consortium)

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """Where noise may leave no more than a constant, where steps can't converge, and where a model is shorter than
        its noise."""
        solver = self.solver_for(consortium)
        if solver == "average":
            release = self.declare(consortium)["models"]
            noise = release.opened_deviation(consortium) * sqrt(prod(self.shape)) / self.count_records(consortium)
            if noise <= self.objective.radius(self.penalty(consortium)):
                return ()
            return (
                "the noise in the model is longer than the model can be: expect one that may be less accurate than a "
                "constant. Raise privacy.epsilon or averaging.l2, or bring more records",
            )
        if solver != "gradient":
            return ()
        return self._noise_warning(consortium) or self._progress_warning(consortium)

    def _noise_warning(self, consortium: Consortium) -> tuple[str, ...]:
        noise = self.noise_level(consortium) * sqrt(self.objective.width)
        if self.model == "linear" or noise <= MAX_NOISE:
            return ()
        worse = "have worse probabilities than the frequencies of the classes, or " if self.calibrations else ""
        return (
            f"the noise in the mean of all gradients is {noise:.0%} of the longest gradient that a record can have, at "
            f"this epsilon and {self.count_records(consortium):,} records: the model may {worse}be no more accurate "
            "than the most frequent class. Raise privacy.epsilon, bring more records, or declare fewer features or "
            "classes",
        )

    def _progress_warning(self, consortium: Consortium) -> tuple[str, ...]:
        records, rounds = self.count_records(consortium), self.round_count(consortium)
        progress = max_progress(
            curvature=self.objective.curvature(self.clip_norm(consortium)),
            step_curvature=self.objective.step_curvature(self.clip_norm(consortium)),
            noise=self.gradient_noise(consortium, self.declare(consortium)),
            records=records,
            features=self.features,
            rounds=rounds,
            touched=self.touched_blocks,
        )
        if progress >= MIN_PROGRESS:
            return ()
        return (
            f"the steps can't converge: {rounds} rounds cover at most {progress:.0%} of the distance in an "
            f"average one of {self.features} directions, at this epsilon and {records:,} records; raise "
            "privacy.epsilon, bring more records, or declare fewer features",
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        return (ADAPTATION_NOTE,)

    def expectation(self, consortium: Consortium) -> str:
        """How much noise to expect, and where the model would be useless."""
        solver, declared = self.solver_for(consortium), self.declare(consortium)
        records = self.count_records(consortium)
        useless = ", so expect a useless model: raise epsilon or bring more records"
        if solver == "moments":
            noise = declared["moments"].opened_deviation(consortium)
            return (
                f"each released sum of products carries noise of deviation {noise:.3g}, where a record counts at most "
                f"1 of {records:,}{useless if noise * sqrt(self.features) > records else ''}"
            )
        release = declared["gradient" if solver == "gradient" else "models"]
        noise = release.opened_deviation(consortium) * sqrt(prod(self.shape)) / records
        if solver == "gradient":
            clip, calibration = self.clip_norm(consortium), self._calibration_expectation(consortium, declared)
            rounds = self.round_count(consortium)
            return (
                f"the mean gradient of a round carries noise of norm {noise:.3g}, a record's gradient is at most "
                f"{clip:.3g}; {rounds} rounds are averaged{useless if noise > clip else ''}{calibration}"
            )
        radius = self.objective.radius(self.penalty(consortium))
        useless = ", so expect a useless model: raise epsilon, l2 or the number of records" if noise > radius else ""
        return (
            f"the model carries noise of norm {noise:.3g}; no fit with l2 = {self.penalty(consortium):.3g} is longer "
            f"than {radius:.3g}{useless}"
        )

    def _calibration_expectation(self, consortium: Consortium, declared: Declaration) -> str:
        if not self.calibrations:
            return ""
        noise = declared["calibration"].opened_deviation(consortium)
        return (
            f"; {self.calibrations} more sums of two numbers calibrate its probabilities, with noise of deviation "
            f"{noise:.3g} where a record counts at most 1"
        )


def _whiten_rows(received: Floats, one_pass: bool) -> Preparation:
    """Rows as scores are computed of them, and beside them whitened rows on the grid of exact sums."""
    whitening = Whitening(received)

    def compute(features: Floats, keep: bool) -> Arrays:
        if not whitening.by_kernel:
            inside = in_unit_ball(features)
            return round_rows(inside), whitening.map_on_grid(inside)
        shape = features.shape[-1], prod(features.shape[:-1])
        columns = unit_columns(features, np.empty(shape, np.float32) if keep and one_pass else None)
        singles = columns.T.reshape(features.shape)
        whitened = whitening.map_on_grid(singles, None if keep else scratch("whitened", shape, np.float32))
        return singles if one_pass else round_rows(in_unit_ball(features)), whitened

    return Preparation(f"whitened {received.shape}".encode() + received.tobytes(), compute)


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels
