"""Vertical logistic regression with private rounds after the noisy moments.

The quadratic objective replaces the logistic curve by a tangent. A few rounds start from its solution. In each, every
party sees the current weights, shares of Σ u_i (s(z_i) − y_i + ½) over all records are computed (s the curve and u the
whitened and clipped features of `rounds`), noise enters on shares, and the coordinator takes a step from what is opened
(`descent`). The rounds solve the equation of the logistic fit, with u in place of x.

Weights go to the parties, each of which knows its part of the noise. Even with no colluders the noise is scaled so that
a single party learns no more than the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.data import Records, Schema
from comity.errors import StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Figure
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import step
from comity.learn.quadratic import solve, spectral_norm
from comity.methods.vertical.dealt_rounds import DealtRounds
from comity.methods.vertical.descent import Descent, Landscape, free_directions
from comity.methods.vertical.layout import PLACES, Layout
from comity.methods.vertical.method import ColumnProducts, ColumnRegression, VerticalRegression, check_terms
from comity.methods.vertical.moments import RIDGE
from comity.methods.vertical.pooled import pool_columns
from comity.methods.vertical.ring_rounds import RingRounds
from comity.methods.vertical.rounds import (
    ERROR,
    REACH,
    RoundCount,
    Rounds,
    Whitening,
    check_room,
    constant_units,
    emphasise_score,
    has_room,
)
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Loss
from comity.privacy.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from comity.federation.evaluation.protocol import ModelEvaluation
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

SWITCH = 0.3
"""`auto` makes rounds from this ε on. By training rows of Adult, credit defaults, KDD-99 and HAR, 12,000 of each at
most, one left out at a time (`experiments/choose`): the best of 0.03, 0.1, 0.3 and 1 over all, without credit defaults
and without HAR; without Adult 0.1 is, without KDD-99 1, by 0.02 on the one that was left out. At 0.3 rounds are ahead
in accuracy and log loss on Adult with 16 and 137 instruments and on credit defaults; at 0.1 on Adult with 16 alone, and
with all rows."""

TENTHS_FOR_MOMENTS = 4
"""Of μ². By the same: 6 of 2, 4 and 6, by 0.001 over 4 and by HAR, without which 4 is the best. With all training rows
4 is ahead of 6 by 0.0005 on Adult and credit defaults: the more rows, the less is asked of the moments, so 4."""

Solver = Literal["gradient", "auto"]

_DOWN = Context(prec=30, rounding=ROUND_FLOOR)
_READ_BY_ALL = (
    "prediction: the whole model goes to everyone, who applies it to whole records at home; its noise is scaled for "
    "parties that read weights. Jointly, where parties hold parts of a new record, it needs privacy.colluders >= 1"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientRegression(ColumnRegression):
    """Rounds after the release of `quadratic`. `solver` is gradient, or auto: rounds where they are possible and help,
    the quadratic alone elsewhere.

    Adversary    with `products="dealer"` a coordinator that works with no party and deals correctly, and up to
                 `colluders` parties together; with "rlwe" the coordinator with up to `colluders` parties, of three and
                 more with one at most. At `colluders` = 0 every party by itself.
    Unit         a record, replaced.
    Learned      coordinator: noisy moments and noisy sums of responses. Parties: the weights of every round.
    Sensitivity  `sensitivity.l2_sensitivity` for the moments, `Rounds.bound` for a round: instruments have norm 1 at
                 most (proof.md, 9 and 11).
    Loss         four tenths of μ² for the moments, the rest in equal parts for the rounds.
    """

    version: ClassVar[int] = 4
    quadratic: VerticalRegression
    solver: Solver = "gradient"
    rounds: RoundCount = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "gradient":
            self._require(self.layout.classes is not None, "target", "a target of two classes")
            self._require(not self.quadratic.pure, "privacy.delta", "Gaussian noise: set privacy.delta above 0")
            self._require(
                not self.quadratic.party_epsilon,
                "vertical.party_epsilon",
                "budgets about whole records: leave vertical.party_epsilon out",
            )

    def _require(self, holds: bool, key: str, what: str) -> None:
        if not holds:
            raise StudyError(f'vertical.solver = "gradient" needs {what}; or set it to "quadratic"', key=key)

    @property
    def title(self) -> str:
        if self._never:
            return self.quadratic.title
        where = "gradients" if self.solver == "gradient" else "gradients where they help"
        return f"vertical ({self.quadratic.traits}, {where})"

    @property
    def layout(self) -> Layout:
        return self.quadratic.layout

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return self.quadratic.columns

    @property
    def alignment(self) -> str:
        return self.quadratic.alignment

    @property
    def max_rows(self) -> int:
        return self.quadratic.max_rows

    @property
    def schema(self) -> Schema:
        return self.quadratic.schema

    @property
    def product(self) -> ColumnProducts:
        return self.quadratic.product

    def descends(self, consortium: Consortium) -> bool:
        """Whether this study makes gradient rounds, by public figures alone."""
        return self.lacking(consortium) is None

    def lacking(self, consortium: Consortium) -> str | None:
        """What `auto` would need for rounds; None where it makes them."""
        if self.solver == "gradient" or self._never:
            return self._never
        if not self._covers(consortium):
            return 'one colluder at most, or vertical.products = "dealer"'
        enough = isinstance(consortium.loss, Approx) and float(consortium.loss.epsilon) >= SWITCH
        return None if enough else f"a delta, and epsilon {SWITCH} or more"

    @cached_property
    def _never(self) -> str | None:
        """What the method itself lacks for rounds, on any terms; None where it lacks nothing."""
        if self.solver == "gradient":
            return None
        if not self.layout.classes:
            return "a target of two classes"
        if self.quadratic.pure:
            return "Gaussian noise, and so a delta"
        if self.quadratic.party_epsilon:
            return "budgets about whole records, without vertical.party_epsilon"
        if self.quadratic.products == "dealer" and not has_room(self.max_rows, len(self.columns)):
            return "a lower vertical.max_rows, so that their sums fit into 64 bits"
        return None

    def _covers(self, consortium: Consortium) -> bool:
        """Without a dealer, a score of three parties or more is split between two: at most one may collude."""
        return self.quadratic.products == "dealer" or consortium.size == 2 or consortium.colluders <= 1

    @cached_property
    def descent(self) -> Rounds:
        if self.quadratic.products == "rlwe":
            return RingRounds(layout=self.layout, max_rows=self.max_rows)
        check_room(self.max_rows, len(self.columns))
        return DealtRounds(layout=self.layout, max_rows=self.max_rows)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        before = self.quadratic.parts
        return before if self._never else {**before, "rounds": self.descent}

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if not self.descends(consortium):
            return self.quadratic.declare(consortium)
        check_terms(self.quadratic, consortium)
        if not self._covers(consortium):
            raise StudyError(
                f'vertical.solver = "gradient" with vertical.products = "rlwe" holds against one party of three or '
                f"more, found privacy.colluders = {consortium.colluders}; lower it, or set "
                'vertical.products = "dealer"',
                key="privacy.colluders",
            )
        told = Derived("moments", "gradient")
        before = [
            replace(release, known_parts=1) if release.name == "moments" else release
            for release in self.quadratic.declare(self.for_moments(consortium)).releases
            if release.name not in self.quadratic.made
        ]
        between = [
            replace(release, protection=told) if release.name in ("weights", "interval") else release
            for release in self.descent.declare(consortium).releases
        ]
        model = Release(
            name="model", source=COORDINATOR, to=EVERYONE, protection=told, form=Array((self.layout.encoding.width,))
        )
        alone = "" if consortium.colluders else ", and each party by itself"
        held = self.quadratic.describe_adversary(consortium, None, also=alone)
        return Declaration((*before, *between, self.gradient(consortium.loss), model), adversary=held)

    def for_moments(self, consortium: Consortium) -> Consortium:
        """The same terms with the moments' part of the loss, and one part of the noise known to its reader."""
        return (
            replace(self.read_by_parties(consortium), loss=self._split(consortium.loss)[0])
            if self.descends(consortium)
            else consortium
        )

    def read_by_parties(self, consortium: Consortium) -> Consortium:
        """The terms that the noise is scaled for: a single party counts as a colluder, since it reads weights."""
        return replace(consortium, colluders=max(1, consortium.colluders))

    def _split(self, loss: Loss) -> tuple[GDP, GDP]:
        """Loss of the moments and of one round; all together at most the budget."""
        square, tenth = gaussian_budget(loss).square, Decimal(10)
        moments = _DOWN.divide(_DOWN.multiply(square, Decimal(TENTHS_FOR_MOMENTS)), tenth)
        one = _DOWN.divide(
            _DOWN.multiply(square, tenth - TENTHS_FOR_MOMENTS), _DOWN.multiply(tenth, Decimal(self.rounds))
        )
        return GDP.squared(moments), GDP.squared(one)

    def gradient(self, loss: Loss) -> Release:
        """The noisy sums Σ u (s(z) − y + ½), the constant's last, once for every round."""
        return Release(
            name="gradient",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(self._split(loss)[1])),
            form=Array((self.descent.size,), "<i8"),
            times=self.rounds,
            bound=self.descent.bound,
            grid=self.descent.grid,
            known_parts=1,
        )

    def round_deviation(self, consortium: Consortium) -> float:
        """Deviation of the noise in one opened sum of a round."""
        return self.gradient(consortium.loss).opened_deviation(consortium)

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium = parties.consortium
        if not self.descends(consortium):
            return self.quadratic.coordinate(parties)
        opened, rows = self.quadratic.open_moments(parties)
        descent = self.start(opened, rows, consortium)
        self.descent.coordinate_whitening(parties, self.whitening(descent))
        for number in range(self.rounds):
            self.descent.coordinate_round(parties, number, descent.weights, self.intervals(descent))
            descent = descent.step(self.rescaled(parties.sum(self.descend).value))
        return {"model": self.coefficients(descent)}

    def start(self, opened: Floats, rows: int, consortium: Consortium) -> Descent:
        """The first descent: the quadratic's solution and the landscape of the moments."""
        entries, deviation = self.quadratic.entries, self.quadratic.deviation(self.for_moments(consortium))
        gram, moment, _ = entries.split(entries.assemble(opened, rows))
        variances, *_ = entries.split(entries.variances(deviation))
        found = solve(gram, moment, RIDGE * spectral_norm(variances))
        # The label column is ±label for y = 1 and 0.
        weights = 2 * found.weights / float(np.abs(self.layout.label.table).max())
        landscape = Landscape.of(gram, variances, rows, self.layout.constant)
        noise = self.round_deviation(consortium) * sqrt(self.descent.size)
        free = free_directions(weights, self.descent.places.values(), self.layout.intercept)
        return Descent(landscape, self._whitened(landscape, weights, noise / rows), noise, weights, free)

    def _whitened(self, landscape: Landscape, weights: Floats, noise: float) -> Floats:
        """Instruments as a matrix over features and constant, √D times what parties compute, before clipping."""
        size, places = self.descent.size, self.descent.places
        found = np.zeros((size, size))
        for party, matrix in landscape.whitening(places).items():
            own = places[party]
            matrix = emphasise_score(matrix, weights[own], noise)
            # On average a row has the largest allowed norm.
            matrix = matrix * self.descent.limit(party) * sqrt(size / max(1, len(matrix)))
            found[own, own] = matrix
            if self.layout.intercept:
                found[own, -1] = -matrix @ landscape.mean[own] / self.layout.constant
        if self.layout.intercept:
            found[-1, -1] = np.ldexp(constant_units(size), -PLACES) * sqrt(size) / self.layout.constant
        return found

    def whitening(self, descent: Descent) -> dict[str, Floats]:
        """The whitening matrix of each party."""
        size, mean = self.descent.size, descent.landscape.mean
        return {
            party: Whitening.of(descent.whitened[own, own], mean[own], size).matrix
            for party, own in self.descent.places.items()
        }

    def intervals(self, descent: Descent) -> Floats:
        return descent.landscape.intervals(descent.weights, self.descent.places, self.layout.label_at, REACH)

    def rescaled(self, opened: Floats) -> Floats:
        """Opened sums in the units of whitened features."""
        return np.asarray(opened * sqrt(self.descent.size), np.float64)

    def coefficients(self, descent: Descent) -> Floats:
        """Coefficients of encoded rows."""
        return np.asarray(self.layout.mapping @ descent.weights, np.float64)

    # At a site.

    @step(sends="moments")
    def contribute(self, site: Site) -> None:
        """The quadratic's step, under the name that `open_moments` asks for."""
        self.quadratic.contribute(site)

    @step(sends="gradient")
    def descend(self, site: Site) -> None:
        site.contribute(share=self.descent.share(site, int(site.label)))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        if "errors" in released:
            return self.quadratic.present(released, consortium)
        return self.model(np.asarray(released["model"], np.float64))

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        """In the last round, for the party that clips most."""
        if not self.descends(consortium):
            return ()
        from comity.methods.vertical.pooled import PooledRounds

        rows, widths = pool_columns(self.layout, train), self.descent.widths
        if not len(rows):
            return ()
        columns = {party: rows[:, self.layout.places(party)] for party in self.layout.parties}
        whitening = {
            party: matrix.reshape(widths[party] + 1, widths[party]) for party, matrix in opened["whitening"].items()
        }
        last = (value[-1] if isinstance(value, list) else value for value in (opened["weights"], opened["interval"]))
        weights, intervals = last
        ends = np.stack([intervals[party] for party in columns])
        held = PooledRounds(self.descent, columns, whitening)
        return tuple(
            Figure(
                name, share, f"share of the records whose {name.removesuffix(' cut')} a party cuts in the last round"
            )
            for name, share in held.cut(weights, ends).items()
        )

    def model_evaluation(self, consortium: Consortium) -> ModelEvaluation:
        from comity.methods.vertical.evaluation import ErrorsByColumns

        return ErrorsByColumns(self, self.quadratic)

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        before, lacking = self.quadratic.notes(consortium), self.lacking(consortium)
        if lacking is None:
            return before if consortium.colluders else (_READ_BY_ALL, *before[1:])
        if not self.layout.classes and self.rounds == type(self).rounds:
            return before
        why = (
            f'vertical.solver = "auto" takes the quadratic alone: the {self.rounds} private rounds would need {lacking}'
        )
        return (*before, why)

    def expectation(self, consortium: Consortium) -> str:
        if not self.descends(consortium):
            return self.quadratic.expectation(consortium)
        release = self.gradient(consortium.loss)
        factor = consortium.size / release.parts(consortium)
        moments = self.quadratic.deviation(self.for_moments(consortium)) / float(self.quadratic.entries.weight.max())
        return (
            f"each released sum of products carries noise of deviation {moments:.3g}, then each of {self.rounds} "
            f"rounds {self.round_deviation(consortium):.3g} in every sum of residuals, where one record counts at most "
            f"1 (colluders {consortium.colluders}: {factor:.3g} times the variance of a trusted curator's); the "
            f"logistic curve is a sum of waves, off by {ERROR} at most{self._cost}"
        )

    @property
    def _cost(self) -> str:
        """How much a round without a dealer sends."""
        if not isinstance(self.descent, RingRounds):
            return ""
        rows = min(self.max_rows, 10_000)
        sent = self.descent.bytes_per_round(rows) / 1e6
        return f"; without a dealer the parties send each other {sent:.3g} MB in each round over {rows} rows"
