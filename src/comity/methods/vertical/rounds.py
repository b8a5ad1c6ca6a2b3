"""A round of gradients: the response to a score, the instruments that it is multiplied with, and the base class of the
two protocols that bring shares of Σ u_i (s(z_i) − y_i + ½) to the sites: `dealer_rounds` and `rlwe_rounds`.

Response. s(z) of one of the periodic curves of `curves.py`. A score is a sum of the parties' partial scores modulo the
period, and s is bounded by `LARGEST` on the whole circle: the sensitivity of a round needs no clipping and holds for
all weights and curves. Scores that wrap around would mislead. Each party therefore clips its part to an interval around
its noisy mean, with a width in proportion to its noisy deviation (`FeatureDistribution.intervals`). The intervals add
up to the reach of the curve, 2.5 deviations or more of each part: clipping is rare, and matters for accuracy only.

Instruments. A party knows all of its own columns of a row, so it can clip *their* norm; nobody can clip a whole row's.
With d_k features at party k, d at all parties and a share c of the squared norm for the constant, party k's instruments
are u_k = W_k(x_k − m_k)/√D, clipped to norm √((1 − c)·d_k/d), and the constant is √c: the squared norm of a whole row
of instruments is at most 1 for any W_k and m_k that a coordinator sends and for any records. W_k comes from the noisy
moments and gives all directions the same variance: noise of one size treats them alike. Two directions get more: the
constant, which says how frequent the classes are, and each party's part of the score, which says how large scores
should be. The arithmetic is in integers: a row has the same instruments in every step of a run and on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import floor, sqrt
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data.row_products import clip_received
from comity.errors import Malformed, Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol
from comity.methods.by_columns.common_rows import CommonRows, common_rows
from comity.methods.vertical.curves import CURVES, LARGEST, WIDEST, Response
from comity.methods.vertical.design import LABEL, PLACES, Design
from comity.methods.vertical.moments import to_units

Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

Held = Mapping[str, Words] | None
"""What a coordinator holds in memory between rounds, by party."""

MAX_ROUNDS = 64
RoundCount = Annotated[int, Interval(ge=1, le=MAX_ROUNDS)]


LARGEST_RESIDUAL = 0.5 + LARGEST
"""sup |s − y + ½|."""

NOISE_ROOM = 1 << 43
"""Room in the ring for the noise, in units of 2^−24."""

_MATRIX_PLACES = 14
_LARGEST_ENTRY = 1 << 10
# Binary places before the norm is clipped: finer than the result, and squares still add up exactly.
_FINE = 16
_LARGEST_VALUE = 8.0

CONSTANT_SHARE = 0.05
"""The constant's share of the squared norm of a row of instruments; at least that of one instrument among equals. On
training rows of Adult, credit defaults, KDD-99 and HAR at ε = 1, six draws: of 0, 0.02, 0.05 and 0.1 the log losses are
lowest at the last two (KDD-99 0.106, 0.049, 0.033 and 0.024; Adult 0.341, 0.333, 0.331 and 0.330; credit defaults level
from 0.02 on; HAR level), and accuracies are equal up to chance. Whichever dataset is left out, 0.1 beats 0.05 by less
than 0.002; the smaller one costs other instruments less."""

SCORES_BY_NOISE, _MAX_FOR_SCORES = 0.5, 0.25
"""The share of a party's squared norm for its part of the score, per unit of noise in another instrument over the rows;
and its maximum. On the same training rows at ε = 1, six draws, of 0, 0.5 and 1: HAR is 0.057 below the pooled fit with
0.5, 0.112 without, 0.075 with 1. The others are equal up to chance: HAR alone decides. Other maxima were not tried."""


def compute_partial_scores(units: Floats, weights: Floats, constant: float, centre: float, half_width: float) -> Floats:
    """A party's features, in units of 2^−PLACES, times its weights, plus its constant, clipped to an interval around
    `centre`. The score of a row does not depend on the other rows: weights are rounded to so few places that all sums
    are whole numbers below 2^53."""
    received = clip_received(weights)
    places = 53 - PLACES - len(received).bit_length()
    exponent = int(np.frexp(np.abs(received).max(initial=0.0))[1])
    whole = np.rint(np.ldexp(received, places - exponent))
    with np.errstate(over="ignore", invalid="ignore"):
        away = np.ldexp(units @ whole, exponent - places - PLACES) + (constant - centre)
        # fmin and fmax take the number where a huge constant makes NaN.
        return np.asarray(centre + np.fmin(np.fmax(away, -half_width), half_width), np.float64)


def gradient_sensitivity() -> float:
    """L2 sensitivity of Σ u (s(z) − y + ½) to a replaced record: 2·sup|s − y + ½|, since |u| <= 1. It holds for all
    weights, curves, intervals and whitenings, and some approach it (proof.md, 9)."""
    return 2 * LARGEST_RESIDUAL * (1 + 1e-12)


@dataclass(frozen=True, eq=False)
class Whitening:
    """A party's matrix; its last row is subtracted from the product."""

    matrix: Floats

    @classmethod
    def of(cls, whitened: Floats, mean: Floats, instruments: int) -> Whitening:
        scaled = whitened.T / sqrt(instruments)
        return cls(np.vstack([scaled, mean @ scaled]))

    def apply(self, units: Floats, limit: float) -> Floats:
        """Instruments of rows of features, both in units of 2^−PLACES, of norm at most `limit`."""
        fine = self._fine(units)
        norm = np.sqrt((fine**2).sum(axis=1))
        factor = np.minimum(1.0, limit * 2.0**_FINE / np.maximum(norm, 1.0))
        # Rounding towards zero never increases a norm.
        return np.asarray(np.trunc(np.ldexp(fine * factor[:, None], PLACES - _FINE)), np.float64)

    def norms(self, units: Floats) -> Floats:
        """Norms of the rows' instruments before clipping."""
        return np.asarray(np.ldexp(np.linalg.norm(self._fine(units), axis=1), -_FINE), np.float64)

    def _fine(self, units: Floats) -> Floats:
        entries = np.nan_to_num(np.clip(self.matrix, -_LARGEST_ENTRY, _LARGEST_ENTRY))
        whole = np.rint(np.ldexp(entries, _MATRIX_PLACES))
        # Products of integers whose sums stay below 2^53: exact in any order of adding.
        value = np.ldexp(units @ whole[:-1], -PLACES - _MATRIX_PLACES) - np.ldexp(whole[-1], -_MATRIX_PLACES)
        return np.asarray(np.rint(np.ldexp(np.clip(value, -_LARGEST_VALUE, _LARGEST_VALUE), _FINE)), np.float64)


def emphasise_score(whitened: Floats, weights: Floats, noise: float) -> Floats:
    """A party's whitening with more of the norm for the direction of its part of the score at these weights.

    `noise` is the deviation of a round's opened sum of one instrument among equals, over the number of rows. Where many
    instruments share the norm of few rows, none of them says how large scores should be; one with a larger share does.
    The squared norm is the same on average.
    """
    count = len(whitened)
    along = np.linalg.solve(whitened.T, weights) if count > 1 else np.zeros(count)
    length = float(np.linalg.norm(along))
    if not length > 0:
        return whitened
    share = max(1 / count, min(_MAX_FOR_SCORES, SCORES_BY_NOISE * noise))
    rest = sqrt((1 - share) * count / (count - 1))
    along /= length
    return np.asarray(rest * whitened + (sqrt(share * count) - rest) * np.outer(along, along @ whitened), np.float64)


def instrument_limit(features: int, instruments: int, constant: bool) -> float:
    """The norm to which a party with so many features clips its instruments, of so many in all; the constant may be one
    of them."""
    left, others = (1 - _share(instruments), instruments - 1) if constant else (1.0, instruments)
    return sqrt(left * features / others) if features else 0.0


def constant_units(instruments: int) -> int:
    """The constant's instrument, in units of 2^−PLACES, rounded down."""
    return floor(float(1 << PLACES) * sqrt(_share(instruments)))


def _share(instruments: int) -> float:
    return max(CONSTANT_SHARE, 1 / instruments)


_PIECE_ROWS = 1 << 14


def _pieces(rows: int) -> Iterator[slice]:
    """Few enough rows for a processor's cache."""
    for start in range(0, rows, _PIECE_ROWS):
        yield slice(start, min(start + _PIECE_ROWS, rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds(Protocol, ABC):
    """Rounds between the parties of `design`, whose target has two classes, over at most `max_rows` rows."""

    name = "rounds"
    design: Design
    max_rows: int

    @cached_property
    def widths(self) -> dict[str, int]:
        """Features of each party: its columns without the label."""
        return {party: int(self._is_feature(party).sum()) for party in self.design.parties}

    @cached_property
    def places(self) -> dict[str, slice]:
        """Each party's slice of the weights."""
        found, start = {}, 0
        for party, width in self.widths.items():
            found[party] = slice(start, start + width)
            start += width
        return found

    @property
    def size(self) -> int:
        """Number of weights, and of instruments: the features of all parties and, if there is one, the constant."""
        return sum(self.widths.values()) + self.design.intercept

    def _is_feature(self, party: str) -> NDArray[np.bool_]:
        own = [piece for piece in self.design.pieces if piece.party == party]
        return np.concatenate([np.full(piece.stop - piece.start, piece.kind != LABEL) for piece in own])

    def own_weights(self, party: str, weights: Floats) -> tuple[Floats, float]:
        """A party's weights, and its constant part of every score: the label's holder adds the intercept."""
        holds = self.design.intercept and party == self.design.label_at
        return weights[self.places[party]], self.design.constant * float(weights[-1]) if holds else 0.0

    def features(self, columns: Floats, party: str) -> Floats:
        """A party's features in units of 2^−PLACES, from its columns of z."""
        return to_units(columns[:, self._is_feature(party)])

    def scores(self, units: Floats, party: str, weights: Floats, interval: Floats, curve: Response = WIDEST) -> Angles:
        """A party's partial scores on the circle, from its features."""
        own, constant = self.own_weights(party, weights)
        found = compute_partial_scores(units, own, constant, float(interval[0]), float(interval[1]))
        return curve.to_angles(found)

    def instruments(self, units: Floats, party: str, whitening: Floats) -> Floats:
        """A party's instruments, in units of 2^−PLACES, from its features."""
        return Whitening(whitening).apply(units, self.limit(party))

    def limit(self, party: str) -> float:
        """The norm to which a party clips its instruments."""
        return instrument_limit(self.widths[party], self.size, self.design.intercept)

    # What a protocol of rounds provides.

    @property
    @abstractmethod
    def grid(self) -> float:
        """Grid of the sums."""

    @property
    @abstractmethod
    def bound(self) -> OpenedValue:
        """Bound of the sums: how far a replaced record moves them, for all weights, intervals and matrices that a
        coordinator may send. With a dealer it assumes that words are dealt correctly: they are part of the sums, and no
        party can check their total."""

    @abstractmethod
    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> Held:
        """Tell every party how to whiten its features, before the first round. What it returns spares the rounds work;
        they do without it."""

    @abstractmethod
    def coordinate_round(
        self,
        parties: Parties,
        number: int,
        weights: Floats,
        intervals: Floats,
        curve: int = len(CURVES) - 1,
        held: Held = None,
    ) -> None:
        """Bring shares of Σ u (s(z) − y + ½) at these weights to the sites; `intervals` has a line per party, and s is
        the curve of this number."""

    @abstractmethod
    def share(self, site: Site, number: int) -> Words:
        """This party's share of Σ u (s(z) − y + ½), the constant last. A release adds noise to it; it never leaves
        without."""

    # At a site.

    def _rows(self, site: Site) -> CommonRows:
        """This party's rows in the common order."""
        rows = common_rows(site)
        if len(rows) != site.dims["rows"]:
            raise Refused("the matrix has another shape than the study agreed on", code="stopped")
        return rows

    def _columns(self, rows: CommonRows, party: str, part: slice) -> Floats:
        """This party's columns of z."""
        return self.design.matrix(rows.read(part), party)

    def _units(self, site: Site, part: slice) -> NDArray[np.int16]:
        """This party's features of these rows in units of 2^−PLACES. Records in memory are encoded once."""
        rows, party = self._rows(site), site.party

        def make(part: slice) -> NDArray[np.int16]:
            out = np.empty((part.stop - part.start, self.widths[party]), np.int16)
            for piece in _pieces(part.stop - part.start):
                here = slice(part.start + piece.start, part.start + piece.stop)
                out[piece] = self.features(self._columns(rows, party, here), party)
            return out

        if rows.in_memory:
            return site.prepared("vertical.units", b"", lambda: make(slice(0, len(rows))))[part]
        return make(part)

    def _instruments(self, site: Site, part: slice) -> NDArray[np.int16]:
        """This party's instruments of these rows in units of 2^−PLACES, one line for each."""
        whitening = site.kept("rounds.whitening")
        if whitening is None:
            raise Refused("rounds come after the features were whitened", code="stopped")

        def make(part: slice) -> NDArray[np.int16]:
            units = self._units(site, part)
            out = np.empty(units.shape[::-1], np.int16)
            for piece in _pieces(len(units)):
                out[:, piece] = self.instruments(units[piece].astype(np.float64), site.party, whitening).T
            return out

        rows = self._rows(site)
        if rows.in_memory:
            whole = slice(0, len(rows))
            return site.prepared("vertical.instruments", whitening.tobytes(), lambda: make(whole))[:, part]
        return make(part)

    def _agree_on_curve(self, site: Site, number: int, curve: NDArray[np.uint8]) -> Response:
        """The curve of a round, kept for its later steps."""
        if curve[0] >= len(CURVES):
            raise Malformed(f"one of {len(CURVES)} curves was expected", code="form", key="curve")
        if site.kept(f"rounds.curve/{number}", int(curve[0])) != int(curve[0]):
            raise Refused(f"round {number} has another curve already", code="form", key="curve")
        site.keep(f"rounds.curve/{number}", int(curve[0]))
        return CURVES[int(curve[0])]

    def _curve(self, site: Site, number: int) -> Response:
        found = site.kept(f"rounds.curve/{number}")
        if found is None:
            raise Refused(f"round {number} was not weighed", code="stopped")
        return CURVES[found]

    def _labels(self, site: Site, part: slice) -> NDArray[np.bool_]:
        """Whether each of these rows is of the second class, at the label's holder."""
        return np.asarray(self._rows(site).labels(part) > 0, np.bool_)

    def _send(self, site: Site, name: str, value: Any) -> None:
        site.send_all(self._peers(site), name, value)

    def _peers(self, site: Site) -> list[str]:
        return [party for party in self.design.parties if party != site.party]

    def _partial_scores(self, site: Site, weights: Floats, interval: Floats, curve: Response, part: slice) -> Angles:
        """This party's partial scores of these rows."""
        out = np.empty(part.stop - part.start, np.uint16)
        for piece in _pieces(len(out)):
            here = slice(part.start + piece.start, part.start + piece.stop)
            out[piece] = self.scores(self._units(site, here).astype(np.float64), site.party, weights, interval, curve)
        return out
