"""Vertical logistic regression with private gradient rounds after the noisy moments.

The quadratic objective puts a tangent in place of the logistic curve. Here its solution is where a few rounds start: in
each, every party sees the current weights, the sum of x_i s(z_i) over all records is computed on shares (s the cubic of
`response`), noise enters on shares, and the coordinator makes one preconditioned step from what is opened:

    w  ←  w − G⁻¹ (SLOPE · Σ x s(z) − Σ x (y − ½)) / SLOPE

with G (positive part and ridge) and Σ x (y − ½) from the moments: labels take no part in a round, which halves what one
record can move. Weights go to the parties, each of which knows its part of the noise, so at least one colluder is
counted with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.federation.bounds import Opened
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array
from comity.federation.parties import Parties
from comity.federation.protection import Derived, Summed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site
from comity.learn.quadratic import solve, spectral_norm
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Loss
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.protocols.by_columns.terms import adversary
from comity.protocols.vertical import terms
from comity.protocols.vertical.columns import PLACES
from comity.protocols.vertical.protocol import VerticalRegression
from comity.protocols.vertical.response import (
    ERROR,
    LARGEST,
    SLOPE,
    gradient_sensitivity,
    response_places,
    score_places,
)
from comity.protocols.vertical.rounds import MOST_ROUNDS, Rounds

if TYPE_CHECKING:
    from comity.learn.models import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

SWITCH = 0.5
"""`auto` makes gradient rounds from this ε on: below it their noise costs more than the better curve gains. And only
between two parties: among more, each has so narrow a part of the interval that clipped scores mislead. Chosen on Adult,
on the splits that `reproduce vertical-adult` scores."""

# Chosen on Adult, as the number of rounds and the interval of the scores were.
_TENTHS_FOR_MOMENTS = 7
_DOWN = Context(prec=30, rounding=ROUND_FLOOR)


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientRegression(VerticalRegression):
    """`solver` is gradient, or auto: gradients where they help (two parties, ε >= 0.5, a colluder counted with), and
    the quadratic alone elsewhere.

    Adversary    as `VerticalRegression` with `products="dealer"`: a coordinator that works with no party, and up to
                 `colluders` >= 1 parties together.
    Unit         a record, replaced.
    Learned      coordinator: noisy moments and noisy sums of responses. Parties: the weights of every round.
    Sensitivity  `sensitivity.l2_sensitivity` for the moments, 2·B·sup|s| for a round (proof.md, 9).
    Loss         seven tenths of μ² for the moments, the rest in equal parts for the rounds.
    """

    solver: str = "gradient"
    rounds: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in ("gradient", "auto"):
            raise StudyError(f"vertical.solver must be gradient or auto, found {self.solver!r}", key="vertical.solver")
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise StudyError(
                f"vertical.rounds must lie between 1 and {MOST_ROUNDS}, found {self.rounds}", key="vertical.rounds"
            )
        if self.solver == "gradient":
            self._require(self.layout.classes is not None, "target", "a target of two classes")
            self._require(not self.pure, "privacy.delta", "Gaussian noise: set privacy.delta above 0")
            self._require(
                self.products == "dealer",
                "vertical.products",
                'elementwise products, which "rlwe" has not: set vertical.products = "dealer"',
            )
            self._require(
                not self.party_epsilon,
                "vertical.party_epsilon",
                "budgets about whole records: leave vertical.party_epsilon out",
            )

    def _require(self, holds: bool, key: str, what: str) -> None:
        if not holds:
            raise StudyError(f'vertical.solver = "gradient" needs {what}; or set it to "quadratic"', key=key)

    @property
    def title(self) -> str:
        return f"{super().title[:-1]}, {'gradients' if self.solver == 'gradient' else 'gradients where they help'})"

    def descends(self, who: Consortium) -> bool:
        """Whether this study makes gradient rounds: decided by public things, before anything is spent."""
        if self.solver == "gradient":
            return True
        if not self.layout.classes or self.products != "dealer" or self.party_epsilon or not who.colluders:
            return False
        return who.size == 2 and isinstance(who.loss, Approx) and float(who.loss.epsilon) >= SWITCH

    @cached_property
    def descent(self) -> Rounds:
        return Rounds(layout=self.layout, places=score_places(self.most, len(self.columns)))

    @cached_property
    def parts(self) -> Mapping[str, Protocol]:
        before = super().parts
        return {**before, "rounds": self.descent} if self.layout.classes else before

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        if not self.descends(who):
            return super().declare(who)
        terms.check(self, who)
        if not who.colluders:
            raise StudyError(
                "gradient rounds show the weights to every party, and each knows its part of the noise: set "
                'privacy.colluders to 1 or more, or vertical.solver to "quadratic"',
                key="privacy.colluders",
            )
        before = [
            release
            for release in super().declare(self.for_moments(who)).releases
            if release.name not in ("model", "errors")
        ]
        model = Release(
            name="model",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("gradient"),
            form=Array((self.layout.encoding.width,)),
        )
        between = self.descent.declare(who).releases
        return Declaration(
            (*before, *between, self.gradient(who.loss), model), adversary=adversary(self, who, "the model")
        )

    def for_moments(self, who: Consortium) -> Consortium:
        """The same terms with the moments' part of the loss alone."""
        return replace(who, loss=self._split(who.loss)[0]) if self.descends(who) else who

    def _split(self, loss: Loss) -> tuple[GDP, GDP]:
        """Loss of the moments, and of one round; together never more than the budget."""
        square, tenth = gaussian_budget(loss).square, Decimal(10)
        moments = _DOWN.divide(_DOWN.multiply(square, Decimal(_TENTHS_FOR_MOMENTS)), tenth)
        one = _DOWN.divide(
            _DOWN.multiply(square, tenth - _TENTHS_FOR_MOMENTS), _DOWN.multiply(tenth, Decimal(self.rounds))
        )
        return GDP.squared(moments), GDP.squared(one)

    def gradient(self, loss: Loss) -> Release:
        """The noisy sums Σ x s(z), the constant's last, once for every round."""
        return Release(
            name="gradient",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(self._split(loss)[1])),
            form=Array((self.descent.size,), "<i8"),
            times=self.rounds,
            bound=Opened(l2=gradient_sensitivity(self.layout), limit=self.most * LARGEST),
            grid=2.0 ** -(response_places(self.descent.places) + PLACES),
        )

    def round_deviation(self, who: Consortium) -> float:
        """Of the noise in one opened sum of a round."""
        release = self.gradient(who.loss)
        scale = release.scale(who)
        return release.deviation(scale) * scale.grid * sqrt(who.size / who.honest_parts)

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        who = parties.consortium
        if not self.descends(who):
            return super().coordinate(parties)
        opened, rows = self.open_moments(parties)
        self.descent.coordinate_blinding(parties)
        descent = self.start(opened, rows, who)
        for number in range(self.rounds):
            self.descent.coordinate_round(parties, number, descent.weights)
            descent = descent.step(parties.sum(self.descend).value)
        return {"model": self.coefficients(descent)}

    def start(self, opened: Floats, rows: int, who: Consortium) -> Descent:
        """The quadratic's solution, and what the steps are preconditioned by."""
        dissection, deviation = self.dissection, self.deviation(self.for_moments(who))
        gram, moment, _ = dissection.split(dissection.assembled(opened, rows))
        variances, *_ = dissection.split(dissection.variances(deviation))
        found = solve(gram, moment, spectral_norm(variances) / 2)
        # The label column is ±label for y = 1 and 0.
        half = moment / (2 * float(np.abs(self.layout.label.table).max()))
        # A round has a constant in any case; without an intercept it is 0 and stays it.
        room = 0 if self.intercept else 1
        inverse = np.pad(found.inverse, (0, room))
        half = np.pad(half, (0, room))
        return Descent(4 * inverse @ half, half, inverse)

    def coefficients(self, descent: Descent) -> Floats:
        """Of encoded rows."""
        weights = descent.weights if self.intercept else descent.weights[:-1]
        return np.asarray(self.layout.mapping @ weights, np.float64)

    # At a site.

    @step(sends="gradient")
    def descend(self, site: Site) -> None:
        site.contribute(share=self.descent.share(site, int(site.label)))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], who: Consortium) -> LinearClassifier | LinearRegressor:
        if "errors" in released:
            return super().present(released, who)
        return self.model(np.asarray(released["model"], np.float64))

    def notes(self, who: Consortium) -> tuple[str, ...]:
        if self.descends(who):
            return super().notes(who)
        why = (
            f'vertical.solver = "auto": the quadratic alone, without the {self.rounds} gradient rounds: these are for '
            f'a target of two classes between two parties from eps {SWITCH} on, with vertical.products = "dealer", a '
            "delta, a colluder counted with and no party_epsilon"
        )
        return (*super().notes(who), why)

    def expectation(self, who: Consortium) -> str:
        if not self.descends(who):
            return super().expectation(who)
        factor = who.size / who.honest_parts
        moments = self.deviation(self.for_moments(who)) / float(self.dissection.weight.max())
        return (
            f"each released sum of products carries noise of deviation {moments:.3g}, then each of "
            f"{self.rounds} gradients {SLOPE * self.round_deviation(who):.3g}, where one record counts at "
            f"most 1 (colluders {who.colluders}: {factor:.3g} times the variance of a trusted curator's); the logistic "
            f"curve is a cubic, off by {ERROR} at most"
        )


@dataclass(frozen=True, eq=False)
class Descent:
    """Weights of features and constant, Σ x (y − ½), and the preconditioner: all from opened values."""

    weights: Floats
    half: Floats
    inverse: Floats

    def step(self, opened: Floats) -> Descent:
        """One step from the opened Σ x s(z) at these weights."""
        return replace(self, weights=self.weights - self.inverse @ (opened - self.half / SLOPE))
