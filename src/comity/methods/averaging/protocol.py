"""Averaged models, the default: what the parties compute is summed securely, with noise that all of them share.

After M. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, NIPS
2010. Weighting local models by their sizes takes the smallest party out of the noise, and shared noise takes the search
for it out of the protocol (`solver="average"`). With δ > 0 the parties do better by descending together: each round
opens one noisy sum of clipped gradients (`solver="gradient"`). A linear model needs no rounds: one sum of second
moments holds all of it (`solver="moments"`). Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import Encoding, Records
from comity.errors import Refused, StudyError
from comity.federation.assessment import Figure
from comity.federation.baseline import Baseline
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived
from comity.federation.declare.release import Array
from comity.federation.evaluation.card import Predicts
from comity.federation.owner.rows import Rows
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import calibration, descent, forecast, releases, rule, shares_cut
from comity.methods.averaging.baselines import baselines, error_of
from comity.methods.averaging.by_moments import Moments, fitted
from comity.methods.averaging.moment_blocks import WIDEST_WHOLE, Blocks, blocks_of
from comity.methods.averaging.moment_blocks import moments as second_moments
from comity.methods.averaging.objectives import TOLERANCE, Kind, Objective, objective_of
from comity.methods.averaging.sizes import HEADROOM, Sizes, checked_sizes, largest, size_of, together
from comity.methods.averaging.solvers import Way, auto_solver
from comity.methods.averaging.whitening import Whitening, looks_at
from comity.methods.declared_records import tell_owner
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]
Solver = Literal["auto", "gradient", "average", "moments"]

# Below it the minimiser of a penalised fit is not known to the tolerance that the noise is scaled for.
SMALLEST_PENALTY = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaging(Protocol):
    """One linear model of all parties' records, by gradients or by local models, summed securely with shared noise.

    Adversary    an honest-but-curious coordinator with up to `colluders` parties, and whoever sees the model.
    Unit         a record, replaced (sizes are public), or added or removed (public lower bounds on sizes).
    Learned      coordinator: noisy sums over the parties. Parties: those models that the sums lead to.
    Sensitivity  gradient: 2·clip for a sum of gradients and √2 for second moments (add-remove: clip and √1.25), of rows
                 in the unit ball however they are whitened, and that of `calibration` (proof.md, 8); average:
                 c(λ)/λ for Σ m_j·w_j with public sizes m_j, whoever's record it is (proof.md, 2 to 4); moments: that
                 of `by_moments` (proof.md, 7).

    `features` is the width of an encoded row; None for `l2`, `rounds`, `clip` leaves them to `rule`.
    """

    name: ClassVar[str] = "averaging"
    version: ClassVar[int] = 4

    features: int
    model: Kind = "logistic"
    classes: tuple[str, ...] = ("0", "1")
    low: float = -1.0
    high: float = 1.0
    sizes: Sizes = None
    solver: Solver = "auto"
    l2: Annotated[float, Interval(ge=SMALLEST_PENALTY, lt=inf)] | None = None
    rounds: Annotated[int, Interval(ge=1, le=1000)] | None = None
    clip: Positive | None = None
    encoding: Encoding | None = field(default=None, repr=False)

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

    def cut(self, who: Consortium) -> float:
        """The norm that residuals are clipped to."""
        if self.clip is not None:
            return min(self.clip, self.objective.steepest)
        if self.objective.clip is not None:
            return self.objective.clip
        return rule.clip_for(rule.noise_level(who, self.features, together(self.sizes, who)))

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

    def budget(self, who: Consortium) -> rule.Budget:
        """Of the sums of a descent."""
        return rule.Budget.of(who, self.steps, self.looks, self.asks)

    @property
    def blocks(self) -> Blocks:
        """Features whose second moments are released together."""
        return blocks_of(self.features)

    @property
    def touched(self) -> int:
        """In how many blocks a row has entries at most: each column fills one entry."""
        groups = self.features if self.encoding is None else len(self.encoding.bounds.groups)
        return min(len(self.blocks), groups)

    def way(self, who: Consortium) -> Way:
        """How the model is made: as the study says, or by public figures."""
        pure = isinstance(who.loss, Pure)
        if self.solver == "gradient" and pure:
            raise StudyError(
                'averaging.solver = "gradient" needs privacy.delta above 0; set it, or solver = "average"',
                key="averaging.solver",
            )
        if self.solver != "auto":
            return self.solver

        def moments_win() -> bool:
            noise = self._moments(who).opened_deviation(who) * sqrt(self.features) / together(self.sizes, who)
            return rule.moments_are_better(noise)

        asked = any(one is not None for one in (self.l2, self.rounds, self.clip))
        return auto_solver(model=self.model, features=self.features, pure=pure, asked=asked, moments_win=moments_win)

    def layout(self, who: Consortium) -> Moments:
        """Of the one release of `moments`."""
        reach = sqrt(self.features) if self.encoding is None else min(sqrt(self.features), self.encoding.bounds.l1)
        return Moments(self.features, reach, pure=isinstance(who.loss, Pure))

    def penalty(self, who: Consortium) -> float:
        """λ of the local fits."""
        if self.l2 is not None:
            return self.l2
        ruled = rule.penalty(
            who,
            self.shape,
            together(self.sizes, who),
            start=self.objective.start,
            of_numbers=self.model == "linear",
        )
        return max(SMALLEST_PENALTY, ruled)

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        if who.unit is not Unit.RECORD:
            raise StudyError(
                f'averaging protects a record; found privacy.unit = "{who.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        checked_sizes(self.sizes, who)
        way, names = self.way(who), self._solved[:1]
        if way == "gradient":
            sent, of = releases.of_gradients(self, who), releases.made_of(self)
        elif way == "average":
            sent, of = releases.of_models(self, who), ("models",)
        else:
            sent, of, names = (self._moments(who),), ("moments",), self._solved
        made = [
            Release(name=name, source=COORDINATOR, to=EVERYONE, protection=Derived(*of), form=Array(self.shape))
            for name in names
        ]
        return Declaration(
            (*sent, *made),
            adversary=f"an honest-but-curious coordinator with up to {who.colluders} of {who.size} parties",
        )

    @property
    def _solved(self) -> tuple[str, ...]:
        """What is made from moments; how far the ridge decides is said where intervals are."""
        return ("model", "errors", "shrunk") if self.model == "linear" else ("model", "errors")

    def _moments(self, who: Consortium) -> Release:
        return self.layout(who).release(who, HEADROOM * largest(self.sizes))

    def streams(self, who: Consortium) -> bool:
        """A local fit goes over the records many times."""
        return self.way(who) != "average"

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        way = self.way(parties.consortium)
        if way == "moments":
            return self.solved(parties)
        return {"model": descent.descend(self, parties) if way == "gradient" else self.average(parties)}

    def solved(self, parties: Parties) -> dict[str, Any]:
        """Least squares from the opened moments, with standard errors."""
        who, total = parties.consortium, parties.sum(self.moments)
        layout, most = self.layout(who), total.parties * self._moments(who).bounded.limit
        parties.require("moments", total.parties, layout.ranges(total.value, most))
        found = fitted(
            layout,
            total.value,
            records=together(self.sizes, who, total.names),
            deviation=self.declare(who)["moments"].opened_deviation(who),
            classes=self.model != "linear",
        )
        made = {"model": found.coef[None], "errors": found.errors[None], "shrunk": found.shrunk[None]}
        return {name: made[name] for name in self._solved}

    def average(self, parties: Parties) -> Floats:
        """Σ m_j·w_j over those who answered, by the sum of their public sizes."""
        who, total = parties.consortium, parties.sum(self.train)
        return np.asarray(total.value / together(self.sizes, who, total.names), np.float64)

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
            tell_owner(site, size_of(self.sizes, site.party), "averaging.sizes", lower_bound=bound)

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
    def predicts(self) -> Predicts:
        return Predicts(0 if self.model == "linear" else len(self.classes), self.low, self.high)

    def on_training_part(self, terms: Evaluation) -> Averaging:
        sizes = self.sizes
        if isinstance(sizes, int):
            return replace(self, sizes=terms.left(sizes))
        return self if sizes is None else replace(self, sizes={name: terms.left(size) for name, size in sizes.items()})

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], who: Consortium) -> LinearClassifier | LinearRegressor:
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

    def shares_cut(self, opened: Mapping[str, Any], train: Sequence[Records], who: Consortium) -> tuple[Figure, ...]:
        return shares_cut.of(self, opened, train, who)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        sets = [(in_unit_ball(records.features), self.targets(_labels(records))) for records in train]
        return baselines(self.objective, sets, in_unit_ball(test.features), self.targets(_labels(test)))

    def protected(self, who: Consortium) -> int:
        return together(self.sizes, who)

    def warnings(self, who: Consortium) -> tuple[str, ...]:
        return forecast.warnings(self, who)

    def expectation(self, who: Consortium) -> str:
        return forecast.expectation(self, who)


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels
