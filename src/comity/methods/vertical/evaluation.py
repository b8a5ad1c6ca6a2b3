"""Evaluation of a vertical model on holdout rows of all owners: sums of squared errors that nobody sees row by row.

The error of a row, e = t − (prediction), is a sum over the owners: each has its part of the score, and the label's
holder has the target t on [−1, 1] (±1 for two classes, whose prediction is half the score: a probability of ½ +
score/4). Both are scaled to |e| <= 1. In the order of the run:

    receive   each owner reads the model and tells how many rows it holds out, a function of a public number
    align     (where rows are aligned) their common rows
    product   shares of the products of all parts of e, and of t, across owners
    evaluate  each owner adds its own sums, its shares and its part of the noise; the secure sum opens Σe, Σt, 3Σe²,
              Σet, Σt², from which every figure follows

Sensitivity  for every model that a coordinator may send: √16 in L2 and 22/3 in L1 (proof.md, 10), plus the carry of the
             products; with a dealer it assumes that words are dealt correctly (proof.md, 12). Parts of a score are
             clipped to public limits, which follow from the model and the schema's bounds. Weights are clipped to a
             public range and scores are exact, so a row has the same part of an error in any batch
             (`comity.data.row_products`).

Figures. For two classes an answer is right where the prediction has the sign of t. A linear programme over all
distributions of (t, prediction) gives the shares of right answers that the five moments allow; without noise and with
predictions of any size its lower end is Cantelli's inequality (proof.md, 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import hypot, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import ndtr

from comity.data import Bounded, Records
from comity.data.row_products import clip_received, products
from comity.errors import DataError, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Disclosed, Public, Summed
from comity.federation.declare.release import Array, Count
from comity.federation.evaluation.consistency import nearest
from comity.federation.evaluation.figures import (
    UNIT,
    Z_LAPLACE,
    Estimate,
    Figures,
    NoisySum,
    estimate_r_squared,
    estimate_ratio,
    estimate_share,
    estimate_slope,
    scale_estimate,
    widen_to_estimate,
)
from comity.federation.evaluation.protocol import MODEL, QUALITY, SUMS, ModelEvaluation
from comity.federation.owner.site import Site
from comity.federation.part import EVALUATION, Part
from comity.federation.protocol import step
from comity.methods.by_columns.products import Products
from comity.methods.vertical.design import PLACES, Design, scale_target
from comity.methods.vertical.method import VerticalRegression

Floats = NDArray[np.float64]

REACH = 2.0
"""Predictions lie in [−2, 2], where the target's range is [−1, 1]. Not tuned on data."""
SQUARES = 3
"""Weight of Σe², on which most figures rest."""
L2, L1 = 4.0, 22 / 3
_ENTRIES = 5
Z_OF_FOUR_GAUSSIAN, Z_OF_FOUR_LAPLACE = 2.4977, 3.0985
"""Standard deviations of an interval of 98.75 %: four such intervals all hold in 95 %."""
_MODEL = "score.model"
_OWN = "score.own"

_PREDICTIONS = 65
_TARGETS = 33
_SIGN = 1e-9
"""A prediction of almost zero with a sign."""


@dataclass(frozen=True, eq=False)
class ErrorParts:
    """Each owner's part of an error under one model. Its bounds follow from the model and the schema alone."""

    design: Design
    coef: Floats

    @property
    def factor(self) -> float:
        """Prediction per unit of score, for a target on [−1, 1]."""
        return 0.5 if self.design.classes else 1.0

    @cached_property
    def weights(self) -> dict[str, Floats]:
        place = {group.column: slice(group.start, group.stop) for group in self.design.encoding.bounds.groups}
        out = {}
        for party in self.design.parties:
            groups = self.design.encoding_of(party).bounds.groups
            own = [clip_received(self.coef[place[group.column]]) for group in groups]
            out[party] = self.factor * np.concatenate(own) if own else np.zeros(0)
        return out

    @property
    def offset(self) -> float:
        return self.factor * float(clip_received(self.coef[-1])) if self.design.intercept else 0.0

    @cached_property
    def limits(self) -> dict[str, float]:
        """The largest part of a prediction that an owner's columns can make, scaled down where all together exceed the
        reach; the label's holder adds the constant."""
        largest = {}
        for party in self.design.parties:
            groups, weights, total = self.design.encoding_of(party).bounds.groups, self.weights[party], 0.0
            for group in groups:
                own = np.abs(weights[group.start : group.stop])
                total += float(own.max() if group.one_hot else own.sum()) if len(own) else 0.0
            largest[party] = total + (abs(self.offset) if party == self.design.label_at else 0.0)
        together = sum(largest.values())
        kept = min(1.0, REACH / together) if together > 0 else 1.0
        return {party: kept * one for party, one in largest.items()}

    @property
    def scale(self) -> float:
        """The largest |e|."""
        return 1.0 + sum(self.limits.values())

    def matrix(self, records: Records, party: str) -> Floats:
        """A party's part of e, scaled and clipped to its limits; at the label's holder also t."""
        rows = np.clip(np.nan_to_num(records.features), -1.0, 1.0)
        limit, holds = self.limits[party], party == self.design.label_at
        part = products(rows, self.weights[party][None])[:, 0] + (self.offset if holds else 0.0)
        part = -np.fmin(np.fmax(part, -limit), limit)
        if not holds:
            return truncate_to_grid(part / self.scale)[:, None]
        target = self._target(records)
        return np.column_stack([truncate_to_grid((target + part) / self.scale), truncate_to_grid(target)])

    def _target(self, records: Records) -> Floats:
        if records.labels is None or len(records.labels) != len(records.features):
            raise Refused("the label's holder has records without one", code="stopped")
        if self.design.classes:
            return np.where(np.asarray(records.labels) > 0, 1.0, -1.0)
        return scale_target(self.design.schema, np.asarray(records.labels, np.float64))


def truncate_to_grid(values: Floats) -> Floats:
    """Rounded towards zero, so parts that add up to at most 1 still do."""
    return np.asarray(np.trunc(np.ldexp(values, PLACES)) * 2.0**-PLACES, np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorProducts(Products):
    """Products of parts of errors; a party keeps its own sums when rows are first read."""

    design: Design

    def matrix(self, site: Site, rows: Records) -> Floats:
        coef = site.kept(_MODEL)
        if coef is None:
            raise Refused("rows are scored after the model came", code="stopped")
        return ErrorParts(self.design, coef).matrix(rows, site.party)

    def on_first_read(self, site: Site, matrix: Floats) -> None:
        units = np.rint(np.ldexp(matrix, PLACES))
        sums = np.vstack([units.T @ units, np.ldexp(units.sum(axis=0), PLACES)])
        before = site.kept(_OWN)
        site.keep(_OWN, sums if before is None else before + sums)


@dataclass(frozen=True, eq=False)
class ErrorsByColumns(ModelEvaluation):
    """Owners hold different columns of the holdout rows, which are multiplied as the method multiplies its own."""

    method: VerticalRegression
    name: ClassVar[str] = "evaluation"

    @property
    def common(self) -> str:
        return "positions" if self.method.aligned is None else "identifiers"

    @cached_property
    def product(self) -> ErrorProducts:
        design, max_rows = self.method.design, self.method.max_rows
        return ErrorProducts(
            columns={party: 2 if party == design.label_at else 1 for party in design.parties},
            places=PLACES,
            bound=1.0,
            method=self.method.products,
            max_rows=max_rows,
            noise=(2 * SQUARES * len(design.parties) ** 2 * max_rows << (2 * PLACES)) + (1 << 46),
            design=design,
        )

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        aligned = self.method.aligned
        return {**({} if aligned is None else {"align": aligned}), "product": self.product}

    def sums(self, consortium: Consortium) -> Release:
        owners, unit = len(self.method.design.parties), self.product.unit
        # An opened entry adds up to 2·SQUARES·pairs products, each of which may be one unit off at either neighbour.
        carry = 0.0 if self.method.products == "dealer" else 2 * unit * SQUARES * owners**2
        bound = OpenedValue(
            l2=L2 * (1 + 1e-9) + carry * sqrt(_ENTRIES),
            l1=L1 * (1 + 1e-9) + carry * _ENTRIES,
            limit=float(SQUARES * self.method.max_rows),
            ring=self.product.bits,
        )
        return Release(
            name=SUMS,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self.noise(consortium)),
            form=Array((_ENTRIES,), "<i8"),
            bound=bound,
            grid=unit,
        )

    def declare(self, consortium: Consortium) -> Declaration:
        if self.method.party_epsilon or self.method.block_epsilon:
            key = "party_epsilon" if self.method.party_epsilon else "block_epsilon"
            raise StudyError(
                f"[evaluation] costs a set-aside row the whole epsilon, about one party too, and vertical.{key} "
                "promises less; leave one of them out",
                key=f"vertical.{key}",
            )
        aside = Release(
            name="aside",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Public("how many records a party set aside, which follows from how many it has")
            if self.method.aligned is None
            else Disclosed("how many people each party set aside", "sizes_may_leave"),
            form=Count(self.method.max_rows),
        )
        # The method has the same parts and lists their releases already.
        own = (self.model(consortium), aside, self.sums(consortium), self.quality(_ENTRIES))
        return Declaration(own, adversary="as the method's")

    # The coordinator's side.

    def measure(self, parties: Parties, released: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {values["aside"] for values in parties.ask(self.receive, model=released[MODEL]).values()}
        aligned = self.method.aligned
        try:
            if aligned is not None:
                rows = 0 if 0 in sizes else aligned.coordinate_alignment(parties, f"{EVALUATION}_align")
            else:
                rows = sizes.pop() if len(sizes) == 1 else 0
        except DataError as error:
            if error.code != "empty-intersection":
                raise
            rows = 0
        if not 0 < rows <= self.method.max_rows:
            return {}
        self.product.coordinate_products(parties, rows, f"{EVALUATION}_product")
        total = parties.sum(self.evaluate)
        return {QUALITY: np.append(self._in_own_units(total.value, rows, released[MODEL]), float(rows))}

    def _in_own_units(self, opened: Floats, rows: int, coef: Floats) -> Floats:
        """Means of e, t, e², et, t² in the model's units."""
        scale = ErrorParts(self.method.design, np.asarray(coef, np.float64)).scale
        return np.asarray(opened * _units(scale) / rows, np.float64)

    # At a site.

    @step(gives=("aside",))
    def receive(self, site: Site, model: Floats) -> dict[str, Any]:
        if not np.isfinite(model).all():
            raise Refused("a model of finite weights was expected", code="form", key=MODEL)
        site.keep(_MODEL, model)
        return {"aside": min(len(site.records), self.method.max_rows)}

    @step(sends=SUMS)
    def evaluate(self, site: Site) -> None:
        own, design = site.kept(_OWN), self.method.design
        if own is None:
            raise Refused("own sums come after the products", code="stopped")
        label = design.label_at
        first = np.array([own[-1, 0], 0.0, SQUARES * own[0, 0], 0.0, 0.0])
        if site.party == label:
            first[[1, 3, 4]] = own[-1, 1], own[0, 1], own[1, 1]
        total = first.astype(np.int64).view(np.uint64)
        for (earlier, later), found in self.product.shares(site, site.dims["rows"]).items():
            # Slices: single words would warn of the overflow modulo 2^64.
            total[2:3] += found[0, :1] * np.uint64(2 * SQUARES)
            if label == earlier:
                total[3:4] += found[1, :1]
            if label == later:
                total[3:4] += found[0, 1:2]
        site.contribute(share=total)

    # What the sums say.

    def figures(self, released: Mapping[str, Any], consortium: Consortium) -> Figures | None:
        """For two classes accuracy, squared error (Brier score) and R²; for a number mean squared error, R² and slope;
        each with its interval. Estimates use the nearest moments that rows can have (`find_consistent_moments`).

        Sampling: a mean of values in an interval varies by at most Bhatia and Davis' bound; a central moment by its own
        noise, that of the means, and the largest square of one factor times the mean square of the other.
        """
        if QUALITY not in released:
            return None
        design, quality = self.method.design, np.asarray(released[QUALITY], np.float64)
        rows, scale = float(quality[-1]), ErrorParts(design, np.asarray(released[MODEL], np.float64)).scale
        two_classes, units = bool(design.classes), _units(scale)
        found = np.array(quality[:_ENTRIES])
        e, t, ee, et, tt = (float(value) for value in found)
        noise = self.sums(consortium).opened_deviation(consortium, consortium.size) / rows
        of_e, of_t, of_ee, of_et, of_tt = (float(unit) * noise for unit in units)
        if two_classes:
            tt, of_tt = 1.0, 0.0
        z, span = self.z(consortium), scale**2
        mean = scale_estimate(
            estimate_share(NoisySum(ee * rows / span, of_ee * rows / span), NoisySum(rows, 0.0), z), span
        )
        error = hypot(of_ee, sqrt(max(mean.value * (span - mean.value), 0.0) / rows))
        var_t, cov, var_e = max(tt - t * t, 0.0), et - e * t, max(ee - e * e, 0.0)
        far_t, far_e = 1 + abs(t), scale + abs(e)
        d_t = hypot(of_tt, 2 * t * of_t, far_t * sqrt(var_t / rows))
        d_et = hypot(of_et, e * of_t, t * of_e, min(far_e * sqrt(var_t / rows), far_t * sqrt(var_e / rows)))
        d_e = hypot(of_ee, 2 * e * of_e, far_e * sqrt(var_e / rows))
        left = estimate_ratio(NoisySum(max(0.0, ee), error), NoisySum(var_t, d_t), z)
        true = find_consistent_moments(found, units, limit=scale - 1, two_classes=two_classes)
        varied = true.tt - true.t**2
        name, factor, note = self._describe_error()
        figures = {
            name: scale_estimate(widen_to_estimate(mean, true.ee, (0.0, span)), factor),
            "R²": estimate_r_squared(left, true.ee, varied),
        }
        if two_classes:
            spread = self._z_of_four(consortium) * np.hypot(units * noise, _sampling_deviations(found, scale, rows))
            figures = {"accuracy": estimate_accuracy(found, spread, true, limit=scale - 1), **figures}
        else:
            # The prediction is t − e: its covariance with t, and its variance.
            slope = estimate_ratio(
                NoisySum(var_t - cov, hypot(d_t, d_et)), NoisySum(var_t - 2 * cov + var_e, hypot(d_t, 2 * d_et, d_e)), z
            )
            together = true.et - true.e * true.t
            guesses = varied - 2 * together + true.ee - true.e**2
            figures["slope"] = estimate_slope(slope, varied - together, guesses)
        return Figures(figures=figures, records=rows, of="records", noise=noise * rows, notes=(note,))

    def _z_of_four(self, consortium: Consortium) -> float:
        """Deviations within which all four moments lie 19 times out of 20; Laplace noise has heavier tails."""
        return Z_OF_FOUR_LAPLACE if self.z(consortium) == Z_LAPLACE else Z_OF_FOUR_GAUSSIAN

    def _describe_error(self) -> tuple[str, float, str]:
        """Name of the mean of e², its factor to units of the target, and a note."""
        target = self.method.design.schema.target
        if not isinstance(target, Bounded):
            note = (
                "squared error (Brier score) and R² are of the probability ½ + score/4, of which each owner's part "
                "counts within a public range; accuracy lies where these moments allow it, estimated as if margins "
                "were normal"
            )
            return "squared error", 0.25, note
        return "mean squared error", ((target.high - target.low) / 2) ** 2, "predictions count within twice the bounds"


def _sampling_deviations(found: Floats, scale: float, rows: float) -> Floats:
    """Largest deviations of means of so many rows (Bhatia and Davis), for values in their ranges."""
    e, t, ee, et, tt = (float(value) for value in found)
    products = [(scale - e) * (scale + e), 1 - t * t, ee * (scale**2 - ee), (scale - et) * (scale + et), tt * (1 - tt)]
    return np.sqrt(np.maximum(products, 0.0) / rows)


def _units(scale: float) -> Floats:
    """Units of the means of e, t, e², et, t² in the opened entries."""
    return np.array([scale, 1.0, scale**2 / SQUARES, scale, 1.0])


@dataclass(frozen=True)
class Moments:
    """Means of e, t, e², et, t²."""

    e: float
    t: float
    ee: float
    et: float
    tt: float

    @classmethod
    def of(cls, values: Floats) -> Moments:
        return cls(*(float(value) for value in values))


@lru_cache(maxsize=16)
def single_rows(limit: float, two_classes: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """Moments (5, k) of single rows with predictions up to `limit`, and which of them are right."""
    side = np.linspace(-1.0, 1.0, 2 if two_classes else _TARGETS)
    beside = [-_SIGN, _SIGN, *side[np.abs(side) <= limit]]
    guesses = np.unique(np.concatenate([np.linspace(-limit, limit, _PREDICTIONS), beside]))
    t, g = (one.reshape(-1) for one in np.meshgrid(side, guesses))
    e = t - g
    return np.stack([e, t, e * e, e * t, t * t]), (g > 0) == (t > 0)


def find_consistent_moments(found: Floats, units: Floats, *, limit: float, two_classes: bool) -> Moments:
    """The moments nearest to noisy ones that rows can have, each counted in units of its noise."""
    rows, _ = single_rows(limit, two_classes)
    ones = np.ones((1, rows.shape[1]))
    return Moments.of(nearest(rows / units[:, None], np.asarray(found, np.float64) / units, ones, np.ones(1)) * units)


def estimate_accuracy(found: Floats, spread: Floats, center: Moments, *, limit: float) -> Estimate:
    """The shares of right answers that moments within `spread` of the found ones allow, for any rows.

    The estimate assumes normal margins, as far as the consistent moments `center` of the other figures allow.
    """
    low, high = _accuracy_range(found, np.asarray(spread, np.float64), limit)
    margin = 1 - center.et
    deviation = sqrt(max(1e-12, 1 - 2 * center.et + center.ee - margin * margin))
    least, largest = _accuracy_range(np.array([center.e, center.t, center.ee, center.et]), np.zeros(4), limit)
    value = min(largest, max(least, float(ndtr(margin / deviation))))
    return Estimate(value, min(low, value), max(high, value), UNIT)


def _accuracy_range(found: Floats, spread: Floats, limit: float) -> tuple[float, float]:
    """The range of the share of right answers, for rows whose moments lie within `spread` of the found ones."""
    rows, right = single_rows(limit, True)
    reach = np.maximum(spread[:4], 1e-6)
    # Noise may leave moments that no rows have: widen until some do.
    for _ in range(60):
        ends = [_extreme(rows[:4], right, found[:4], reach, sign) for sign in (1.0, -1.0)]
        if all(end is not None for end in ends):
            low, high = (min(1.0, max(0.0, end)) for end in ends if end is not None)
            return low, high
        reach = 2 * reach
    return UNIT


def _extreme(rows: Floats, right: NDArray[np.bool_], found: Floats, reach: Floats, sign: float) -> float | None:
    """The least (sign 1) or the largest (−1) share of right answers; None where no rows have such moments."""
    solved = linprog(
        sign * right.astype(np.float64),
        A_ub=np.vstack([rows, -rows]),
        b_ub=np.concatenate([found + reach, reach - found]),
        A_eq=np.ones((1, rows.shape[1])),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    return sign * float(solved.fun) if solved.status == 0 else None
