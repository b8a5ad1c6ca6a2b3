"""Averaged models: one linear model of all parties' records, from sums that are opened with noise and nothing else.

After M. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, NIPS
2010. Weighting local models by their sizes takes the smallest party out of the noise, and shared noise takes the search
for it out of the protocol (`solver="average"`). With δ > 0 the parties do better by descending together: each round
opens one noisy sum of clipped gradients (`solver="gradient"`). A linear model needs no rounds: one sum of second
moments holds all of it (`solver="moments"`).
Derivations: `proof.md`. The paper's own protocol: `published/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Bounded, Classes, Encoding, Records, Schema, Target
from comity.errors import Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Baseline, Figure
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.owner.site import Rows, Site
from comity.federation.protocol import Protocol, step
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import assessment, calibration, descent, rule
from comity.methods.averaging.assessment import baselines, error_of
from comity.methods.averaging.moment_blocks import WIDEST_WHOLE, Blocks, blocks_of, entries, moved
from comity.methods.averaging.moment_blocks import moments as second_moments
from comity.methods.averaging.moments import Moments, fitted
from comity.methods.averaging.objectives import TOLERANCE, Kind, Objective, objective_of
from comity.methods.averaging.published.noise import Kind as NoiseKind
from comity.methods.averaging.published.protocol import Most, PublishedAveraging
from comity.methods.averaging.sizes import HEADROOM, Sizes, checked_sizes, largest, size_of, together
from comity.methods.averaging.whitening import Whitening, looks_at
from comity.methods.declared_records import warn_owner
from comity.methods.method import Method, Only, Setting
from comity.methods.tables import validate
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]
Solver = Literal["auto", "gradient", "average", "moments"]
Way = Literal["gradient", "average", "moments"]
"""What `auto` becomes."""

# Below it the minimiser of a penalised fit is not known to the tolerance that the noise is scaled for.
SMALLEST_PENALTY = 1e-6

# Options.


class Averaging(Method):
    """One linear model of all parties' records, by sums of gradients, of local models or of moments.

        method = comity.Averaging(schema, sizes=400)
        print(method.plan(["north", "south", "east"], epsilon=1, delta=1e-6))
        result = method.simulate(frames, epsilon=1, delta=1e-6)
        result.model.predict_proba(frame)

    It protects each record, against a curious coordinator with up to `colluders` parties and against everyone who sees
    the model. `variant="published"` is the protocol of Pathak, Rane and Raj (2010), with the guarantee that it has.
    """

    table: ClassVar[str] = "averaging"
    counts_sizes: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"scaling": "rows"}
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
    scaling: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
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

    def __init__(self, schema: Schema | None = None, /, **options: Any) -> None:
        # Without it, type checkers know of the options alone.
        super().__init__(schema, **options)

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "record", **super().privacy(setting)}

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def resolve_options(self, setting: Setting) -> dict[str, Any]:
        """The published method averages local models; the default's `auto` is `auto_solver`. Where the noise decides
        between moments and the average, which has more options, the options are those of the average."""
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
            return PublishedAveraging(
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
        return self._over(
            features=encoding.width,
            model=kind,
            classes=target.values if isinstance(target, Classes) else (),
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
        """The protocol over rows that are encoded already, as estimators have them; None for an option is `auto`."""
        given = {key: value for key, value in options.items() if value is not None}
        method = validate(cls, given, cls.__name__, f"{cls.table}.")
        return method._over(features=features, model=model, classes=classes, low=low, high=high, encoding=encoding)

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


def auto_solver(*, model: Kind, features: int, pure: bool, asked: bool, moments_win: Callable[[], bool]) -> Way:
    """What `auto` stands for, by public figures. `asked`: a penalty, rounds or a clip is set, which moments lack.

    Moments of a linear model hold all of it. Otherwise gradients, which need a delta. Without one a logistic model is
    made from moments where their noise allows it, which `moments_win` tells, and else from the average of local fits.
    """
    moments_fit = features <= WIDEST_WHOLE and not asked
    if model == "linear" and moments_fit:
        return "moments"
    if not pure:
        return "gradient"
    return "moments" if model == "logistic" and moments_fit and moments_win() else "average"


# What runs.


@dataclass(frozen=True, kw_only=True, eq=False)
class AveragingProtocol(Protocol):
    """One linear model of all parties' records, by gradients or by local models, summed securely with shared noise.

    Adversary    an honest-but-curious coordinator with up to `colluders` parties, and everyone who sees the model.
    Unit         a record, replaced (sizes are public), or added or removed (public lower bounds on sizes).
    Learned      coordinator: noisy sums over the parties. Parties: those models that the sums lead to.
    Sensitivity  gradient: 2·clip for a sum of gradients and √2 for second moments (add-remove: clip and √1.25), of rows
                 in the unit ball however they are whitened, and that of `calibration` (proof.md, 8); average:
                 c(λ)/λ for Σ m_j·w_j with public sizes m_j, whoever's record it is (proof.md, 2 to 4); moments: that
                 of `by_moments` (proof.md, 7).

    `features` is the width of an encoded row; None for `l2`, `rounds` and `clip` leaves them to `rule`.
    """

    name: ClassVar[str] = "averaging"
    version: ClassVar[int] = 4

    features: int
    model: Kind
    classes: tuple[str, ...]
    low: float
    high: float
    sizes: Sizes
    solver: Solver
    l2: Annotated[float, Interval(ge=SMALLEST_PENALTY, lt=inf)] | None
    rounds: Annotated[int, Interval(ge=1, le=1000)] | None
    clip: Positive | None
    encoding: Encoding | None = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "moments" and self.model not in ("linear", "logistic"):
            raise StudyError(
                f'averaging.solver = "moments" makes linear and logistic models, found model = {self.model!r}; choose '
                "another solver",
                key="averaging.solver",
            )
        if self.solver == "moments" and self.features > WIDEST_WHOLE:
            raise StudyError(
                f'averaging.solver = "moments" releases all products of at most {WIDEST_WHOLE} features, found '
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

    def cut(self, consortium: Consortium) -> float:
        """The norm that residuals are clipped to."""
        if self.clip is not None:
            return min(self.clip, self.objective.steepest)
        if self.objective.clip is not None:
            return self.objective.clip
        return rule.clip_for(rule.noise_level(consortium, self.features, together(self.sizes, consortium)))

    @property
    def steps(self) -> int:
        return rule.rounds_for(self.features) if self.rounds is None else self.rounds

    @property
    def looks(self) -> int:
        """How often the second moments of whitened rows are opened."""
        return looks_at(self.features)

    @property
    def asks(self) -> int:
        """How often it is asked how sure the model is: of models that have probabilities."""
        return calibration.ASKS if self.model in ("logistic", "softmax") else 0

    def budget(self, consortium: Consortium) -> rule.Budget:
        """Of the sums of a descent."""
        return rule.Budget.of(consortium, self.steps, self.looks, self.asks)

    @property
    def blocks(self) -> Blocks:
        """Features whose second moments are released together."""
        return blocks_of(self.features)

    @property
    def touched(self) -> int:
        """In how many blocks a row has entries at most: each column fills one entry."""
        groups = self.features if self.encoding is None else len(self.encoding.bounds.groups)
        return min(len(self.blocks), groups)

    def way(self, consortium: Consortium) -> Way:
        """How the model is made: as the study says, or by public figures."""
        pure = isinstance(consortium.loss, Pure)
        if self.solver == "gradient" and pure:
            raise StudyError(
                'averaging.solver = "gradient" needs privacy.delta above 0; set it, or solver = "average"',
                key="averaging.solver",
            )
        if self.solver != "auto":
            return self.solver

        def moments_win() -> bool:
            noise = (
                self._moments(consortium).opened_deviation(consortium)
                * sqrt(self.features)
                / together(self.sizes, consortium)
            )
            return rule.moments_are_better(noise)

        asked = any(one is not None for one in (self.l2, self.rounds, self.clip))
        return auto_solver(model=self.model, features=self.features, pure=pure, asked=asked, moments_win=moments_win)

    def layout(self, consortium: Consortium) -> Moments:
        """Of the one release of `moments`."""
        reach = sqrt(self.features) if self.encoding is None else min(sqrt(self.features), self.encoding.bounds.l1)
        return Moments(self.features, reach, pure=isinstance(consortium.loss, Pure))

    def penalty(self, consortium: Consortium) -> float:
        """λ of the local fits."""
        if self.l2 is not None:
            return self.l2
        ruled = rule.penalty(
            consortium,
            self.shape,
            together(self.sizes, consortium),
            start=self.objective.start,
            of_numbers=self.model == "linear",
        )
        return max(SMALLEST_PENALTY, ruled)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'averaging protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        checked_sizes(self.sizes, consortium)
        way, names = self.way(consortium), self._solved[:1]
        if way == "gradient":
            sent, of = self._gradient_releases(consortium), self._weights_from
        elif way == "average":
            sent, of = self._model_releases(consortium), ("models",)
        else:
            sent, of, names = (self._moments(consortium),), ("moments",), self._solved
        made = [
            Release(name=name, source=COORDINATOR, to=EVERYONE, protection=Derived(*of), form=Array(self.shape))
            for name in names
        ]
        return Declaration(
            (*sent, *made),
            adversary=(
                f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties"
            ),
        )

    def _gradient_releases(self, consortium: Consortium) -> tuple[Release, ...]:
        """Second moments of rows, plain and whitened; a gradient each round; how sure the model is; and what these are
        taken at: the whitening and the iterates. Sensitivities: proof.md, 2 to 4."""
        budget = self.budget(consortium)
        most = HEADROOM * largest(self.sizes)
        replaced, cut = consortium.neighbours is Neighbours.REPLACE, self.cut(consortium)
        calibrations = (
            ()
            if budget.calibration is None
            else (self._calibration_release(budget.calibration, most, replaced=replaced),)
        )
        moment = Release(
            name="second_moment",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(budget.second_moment)),
            form=Array((entries(self.blocks),), "<i8"),
            bound=RecordSum(moved(replaced=replaced), moved(replaced=False) * most, most),
        )
        return (
            moment,
            *((replace(moment, name="whitened_moment", times=self.looks),) if self.looks else ()),
            Release(
                name="whitening",
                source=COORDINATOR,
                to=EVERY_PARTY,
                protection=Derived("second_moment", *(("whitened_moment",) if self.looks else ())),
                form=Array(Whitening.none(self.features).factors.shape),
                times=self.looks + budget.rounds,
            ),
            Release(
                name="gradient",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Summed(Gaussian(budget.gradient)),
                form=Array(self.shape, "<i8"),
                bound=RecordSum(cut * (2 if replaced else 1), cut * most, most),
                times=budget.rounds,
            ),
            *calibrations,
            Release(
                name="iterate",
                source=COORDINATOR,
                to=EVERY_PARTY,
                protection=Derived(*self._weights_from),
                form=Array(self.shape),
                times=budget.rounds + self.asks,
            ),
        )

    @property
    def _weights_from(self) -> tuple[str, ...]:
        """The releases that the weights of a descent come from."""
        return ("gradient", "calibration") if self.asks else ("gradient",)

    def _calibration_release(self, loss: GDP, most: int, *, replaced: bool) -> Release:
        """Sensitivity: proof.md, 8."""
        limits = calibration.limits(self.objective)
        return Release(
            name="calibration",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(loss)),
            form=Array((2,), "<i8"),
            bound=RecordSum(limits.moved(replaced=replaced), limits.moved(replaced=False) * most, most),
            times=self.asks,
        )

    def _model_releases(self, consortium: Consortium) -> tuple[Release, ...]:
        """Local models weighted by public sizes, once."""
        l2, most = self.penalty(consortium), largest(self.sizes)
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
    def _solved(self) -> tuple[str, ...]:
        """What is made from moments; how far the ridge decides is said where intervals are."""
        return ("model", "errors", "shrunk") if self.model == "linear" else ("model", "errors")

    def _moments(self, consortium: Consortium) -> Release:
        return self.layout(consortium).release(consortium, HEADROOM * largest(self.sizes))

    def streams(self, consortium: Consortium) -> bool:
        """A local fit goes over the records many times."""
        return self.way(consortium) != "average"

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        way = self.way(parties.consortium)
        if way == "moments":
            return self.solved(parties)
        return {"model": descent.descend(self, parties) if way == "gradient" else self.average(parties)}

    def solved(self, parties: Parties) -> dict[str, Any]:
        """Least squares from the opened moments, with standard errors."""
        consortium, total = parties.consortium, parties.sum(self.moments)
        layout, most = self.layout(consortium), total.parties * self._moments(consortium).bounded.limit
        parties.require("moments", total.parties, layout.ranges(total.value, most))
        found = fitted(
            layout,
            total.value,
            records=together(self.sizes, consortium, total.names),
            deviation=self.declare(consortium)["moments"].opened_deviation(consortium),
            classes=self.model != "linear",
        )
        made = {"model": found.coef[None], "errors": found.errors[None], "shrunk": found.shrunk[None]}
        return {name: made[name] for name in self._solved}

    def average(self, parties: Parties) -> Floats:
        """Σ m_j·w_j over those consortium answered, by the sum of their public sizes."""
        consortium, total = parties.consortium, parties.sum(self.train)
        return np.asarray(total.value / together(self.sizes, consortium, total.names), np.float64)

    # What a site does.

    @step(sends="second_moment", stacked=True)
    def second_moment(self, site: Site) -> None:
        blocks = self.blocks
        site.contribute(
            site.total(lambda rows: second_moments(in_unit_ball(rows.features) * rows.filled[..., None], blocks))
        )

    @step(sends="whitened_moment", stacked=True)
    def whitened_moment(self, site: Site, whitening: Floats) -> None:
        blocks, white = self.blocks, Whitening(whitening)
        site.contribute(
            site.total(
                lambda rows: second_moments(white.inside(in_unit_ball(rows.features)) * rows.filled[..., None], blocks)
            )
        )

    @step(sends="gradient", stacked=True)
    def gradient(self, site: Site, iterate: Floats, whitening: Floats) -> None:
        self._tell_owner(site)
        cut, white = self.cut(site.consortium), Whitening(whitening)
        site.contribute(site.total(lambda rows: self._gradient_of(rows, iterate, white, cut)))

    def _gradient_of(self, rows: Rows, iterate: Floats, white: Whitening, cut: float) -> Floats:
        inside, targets = in_unit_ball(rows.features), self.targets(rows.labels)
        return self.objective.gradient(iterate, inside, targets, rows.filled, cut, white.inside(inside))

    @step(sends="calibration", stacked=True)
    def calibration(self, site: Site, iterate: Floats) -> None:
        site.contribute(site.total(lambda rows: self._sureness_of(rows, iterate)))

    def _sureness_of(self, rows: Rows, iterate: Floats) -> Floats:
        inside, targets = in_unit_ball(rows.features), self.targets(rows.labels)
        return calibration.sureness(self.objective, iterate, inside, targets, rows.filled)

    @step(sends="moments", stacked=True)
    def moments(self, site: Site) -> None:
        self._tell_owner(site)
        layout = self.layout(site.consortium)
        site.contribute(site.total(lambda rows: layout.of(rows.features, self.signed(rows.labels), rows.filled)))

    @step(sends="models")
    def train(self, site: Site) -> None:
        if not len(site.features):
            site.contribute()
            return
        self._tell_owner(site)
        size = size_of(self.sizes, site.party)
        # With fewer records than the study says the mean is over as many as it says: a record weighs 1/m at most.
        l2 = self.penalty(site.consortium) * max(1.0, size / len(site.features))
        fit = self.objective.fit(in_unit_ball(site.features), self.targets(site.labels), l2)
        if not fit.converged:
            # A neutral value instead would be further from a neighbour's fit than the noise is scaled for.
            raise Refused(f"{site.party}: the local fit did not come within {TOLERANCE}", code="stopped")
        site.contribute(size * np.atleast_2d(fit.weights))

    def _tell_owner(self, site: Site) -> None:
        if isinstance(site, Site) and site.label == "0":
            bound = site.consortium.neighbours is Neighbours.ADD_REMOVE
            warn_owner(site, size_of(self.sizes, site.party), "averaging.sizes", lower_bound=bound)

    def targets(self, labels: NDArray[Any]) -> Floats:
        """Class indices as they are; numbers on [−1, 1] by the target's bounds."""
        values = np.asarray(labels, np.float64)
        if self.model != "linear":
            return values
        return np.clip(2 * (values - self.low) / (self.high - self.low) - 1, -1.0, 1.0)

    def signed(self, labels: NDArray[Any]) -> Floats:
        """Targets on [−1, 1], classes at its ends."""
        return self.targets(labels) if self.model == "linear" else 2 * self.targets(labels) - 1

    # Where records are set aside.

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
        return LinearClassifier(self.objective.coefficients(weights), classes=self.classes, encoding=self.encoding)

    def score(self, model: LinearClassifier | LinearRegressor, test: Records) -> float:
        return error_of(self.objective, np.atleast_2d(model.weights), test.features, self.targets(_labels(test)))

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        return assessment.measure_clipping(self, opened, train, consortium)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        sets = [(in_unit_ball(records.features), self.targets(_labels(records))) for records in train]
        return baselines(self.objective, sets, in_unit_ball(test.features), self.targets(_labels(test)))

    def declared_units(self, consortium: Consortium) -> int:
        return together(self.sizes, consortium)

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """That the steps of a descent can't converge, where they can't."""
        if self.way(consortium) != "gradient":
            return ()
        records = together(self.sizes, consortium)
        reached = rule.reached(
            curvature=self.objective.curvature(self.cut(consortium)),
            noise=descent.gradient_noise(self, consortium),
            records=records,
            features=self.features,
            rounds=self.steps,
            touched=self.touched,
        )
        if reached >= rule.FAR_ENOUGH:
            return ()
        return (
            f"the steps can't converge: {self.steps} rounds go at most {reached:.0%} of the way in an average one of "
            f"{self.features} directions, at this epsilon and {records:,} records; raise privacy.epsilon, bring more "
            "records, or declare fewer features",
        )

    def expectation(self, consortium: Consortium) -> str:
        """How much noise to expect, and that it drowns everything where it does."""
        way, declared, records = self.way(consortium), self.declare(consortium), together(self.sizes, consortium)
        if way == "moments":
            noise = declared["moments"].opened_deviation(consortium)
            useless = ", so expect a useless model: raise epsilon or bring more records"
            return (
                f"each released sum of products carries noise of deviation {noise:.3g}, where a record counts at most "
                f"1 of {records:,}{useless if noise * sqrt(self.features) > records else ''}"
            )
        release = declared["gradient" if way == "gradient" else "models"]
        noise = release.opened_deviation(consortium) * sqrt(prod(self.shape)) / records
        if way == "gradient":
            cut = self.cut(consortium)
            useless = ", so expect a useless model: raise epsilon or bring more records" if noise > cut else ""
            return (
                f"the mean gradient of a round carries noise of norm {noise:.3g}, a record's gradient is at most "
                f"{cut:.3g}; {self.steps} rounds are averaged{useless}{self._calibration_expectation(consortium)}"
            )
        radius = self.objective.radius(self.penalty(consortium))
        useless = ", so expect a useless model: raise epsilon, l2 or the number of records" if noise > radius else ""
        return (
            f"the model carries noise of norm {noise:.3g}; no fit with l2 = {self.penalty(consortium):.3g} is longer "
            f"than {radius:.3g}{useless}"
        )

    def _calibration_expectation(self, consortium: Consortium) -> str:
        if not self.asks:
            return ""
        noise = self.declare(consortium)["calibration"].opened_deviation(consortium)
        return (
            f"; {self.asks} more sums of two numbers say how sure the model is, with noise of deviation {noise:.3g} "
            "where a record counts at most 1"
        )


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels
