"""The design: the row z of numbers that each record becomes before parties multiply, by rules of the schema alone.

Nobody can clip a row that spans parties. Its norm is bounded by what each owner enforces for itself, schema column by
schema column. Centring makes these bounds small: a number lies in [−½, ½], a yes/no is ±½, a choice among m > 2
categories is a corner of a regular simplex around zero (squared norm 1 − 1/m instead of 1) where noise is measured in
L2, and one-hot, with its zeros, where noise is measured in L1. The label takes a quarter of the features' squared norm.
One public factor then scales all entries to at most 1 on the grid of the secure products. The bounds here are those of
the numbers on that grid, not of the numbers before rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Encoding, Numeric, Records, Schema, split_columns
from comity.errors import Refused, StudyError

Floats = NDArray[np.float64]

PLACES = 12
"""Binary places of every entry: integers of 13 bits, the width at which secure products are fastest."""

LABEL_SHARE = 0.25
"""Squared bound of the label over that of the features: a larger one makes XᵀX noisier, a smaller one Xᵀy. Chosen on
training rows of Adult, credit defaults, KDD-99, HAR and CPS, with one left out at a time (`experiments/choose`): 0.25
is the best of 0.1, 0.25 and 0.5, and 0.1 without CPS."""

NUMBER, BINARY, ONE_HOT, LABEL = "number", "yes/no", "one-hot", "label"


@dataclass(frozen=True, eq=False)
class Piece:
    """What one schema column becomes: the places start … stop − 1 of z, held by one party.

    `table` has a row of entries for each category (or class); for a number it is the one entry at its high bound.
    `squared` bounds the squared L2 norm of the piece, `absolute` its L1 norm, for every record.
    """

    column: str
    party: str
    kind: str
    start: int
    stop: int
    table: Floats

    @property
    def squared(self) -> float:
        return float((self.table**2).sum(axis=1).max())

    @property
    def absolute(self) -> float:
        return float(np.abs(self.table).sum(axis=1).max())

    @property
    def constant_square(self) -> bool:
        """Whether the square of its one entry is the same for every record, and so needs no release."""
        return self.kind in (BINARY, LABEL) and self.table.shape == (2, 1)


@dataclass(frozen=True, eq=False)
class Design:
    """The columns of z over all parties, in the parties' order; the label is the last one of its holder."""

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    centred: bool
    intercept: bool
    bins: bool

    def __post_init__(self) -> None:
        target = self.schema.target
        if target is None:
            raise StudyError("vertical regression needs a target; declare [target] in the schema", key="target")
        if isinstance(target, Classes) and len(target.values) != 2:
            raise StudyError(
                f"vertical regression has a target of two classes or a bounded number, found {len(target.values)} "
                "classes; merge some, or declare [target] with low and high",
                key="target",
            )
        if len(self.columns) < 2:
            raise StudyError("vertical regression needs the columns of two parties or more", key="parties")
        for column in self.schema.columns:
            binned = isinstance(column, Numeric) and self.bins and column.cuts is not None
            if column.missing == "cell" and not isinstance(column, Categorical) and not binned:
                # The products would leave out its entry for missing values.
                raise StudyError(
                    f'columns.{column.name}.missing = "cell" gives a number an entry beside it, which vertical '
                    'regression does not lay out; set missing = "fill", or cut it into bins',
                    key=f"columns.{column.name}.missing",
                )
        # Every column, the target too, at exactly one party.
        split_columns(self.schema, self.columns)

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def label_at(self) -> str:
        assert self.schema.target is not None
        return next(party for party, names in self.columns.items() if self.schema.target.name in names)

    @property
    def classes(self) -> tuple[str, ...] | None:
        target = self.schema.target
        return target.values if isinstance(target, Classes) else None

    @cached_property
    def encoding(self) -> Encoding:
        """Of a whole record, as the released model reads it."""
        return Encoding(self.schema, scaling="symmetric", rows="none", intercept=self.intercept, bins=self.bins)

    def encoding_of(self, party: str) -> Encoding:
        """Of one party's part of a record."""
        if party not in self.columns:
            raise StudyError(f"{party} holds no columns; add parties.{party}.columns", key=f"parties.{party}.columns")
        return self._encodings[party]

    @cached_property
    def _encodings(self) -> dict[str, Encoding]:
        return {
            party: Encoding(self.schema.restrict(names), scaling="symmetric", rows="none", bins=self.bins)
            for party, names in self.columns.items()
        }

    @cached_property
    def _raw_pieces(self) -> list[tuple[str, str, str, Floats]]:
        return [
            (group.column, party, *self._raw(group.stop - group.start, group.one_hot))
            for party in self.parties
            for group in self._encodings[party].bounds.groups
        ]

    @cached_property
    def _label_bound(self) -> float:
        """Before scaling, when the constant is 1."""
        features = sum(float((table**2).sum(axis=1).max()) for *_, table in self._raw_pieces)
        return sqrt(LABEL_SHARE * (features + float(self.intercept)))

    @property
    def _factor(self) -> float:
        return 1 / max(1.0, self._label_bound)

    @cached_property
    def constant(self) -> float:
        """The entry of the intercept, a public column; 0 without one."""
        return float(round_to_grid(np.array(self._factor))) if self.intercept else 0.0

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        assert self.schema.target is not None
        bound, raw = self._label_bound, list(self._raw_pieces)
        ends = np.array([[-bound], [bound]]) if self.classes else np.array([[bound]])
        # After the last column of the label's holder.
        place = max(
            (at + 1 for at, (_, party, _, _) in enumerate(raw) if party == self.label_at), default=self._before_label()
        )
        raw.insert(place, (self.schema.target.name, self.label_at, LABEL, ends))
        pieces, start = [], 0
        for column, party, kind, table in raw:
            stop = start + table.shape[1]
            pieces.append(Piece(column, party, kind, start, stop, round_to_grid(self._factor * table)))
            start = stop
        return tuple(pieces)

    def _before_label(self) -> int:
        """How many feature columns precede a holder of the label and nothing else."""
        before = self.parties[: self.parties.index(self.label_at)]
        return sum(len(self._encodings[party].bounds.groups) for party in before)

    def _raw(self, size: int, one_hot: bool) -> tuple[str, Floats]:
        if not one_hot:
            return NUMBER, np.array([[0.5]])
        if size == 1:
            return ONE_HOT, np.array([[1.0]])
        if size == 2:
            return BINARY, np.array([[-0.5], [0.5]])
        return ONE_HOT, simplex(size) if self.centred else np.eye(size)

    @property
    def width(self) -> int:
        return self.pieces[-1].stop

    @property
    def label(self) -> Piece:
        return next(piece for piece in self.pieces if piece.kind == LABEL)

    @cached_property
    def features(self) -> NDArray[np.int64]:
        """Places of all columns but the label."""
        return np.array([at for piece in self.pieces if piece.kind != LABEL for at in range(piece.start, piece.stop)])

    @cached_property
    def widths(self) -> dict[str, int]:
        return {
            party: sum(piece.stop - piece.start for piece in self.pieces if piece.party == party)
            for party in self.parties
        }

    def places(self, party: str) -> slice:
        own = [piece for piece in self.pieces if piece.party == party]
        return slice(own[0].start, own[-1].stop)

    def matrix(self, records: Records, party: str) -> Floats:
        """A party's columns of z; every piece lies within its bounds, whatever the records hold."""
        encoding, rows = self.encoding_of(party), records.features
        if rows.ndim != 2 or rows.shape[1] != encoding.width:
            raise Refused(f"{party}: rows of {encoding.width} encoded features were agreed on", code="stopped")
        own = [piece for piece in self.pieces if piece.party == party]
        out = np.zeros((len(rows), self.widths[party]))
        groups = {group.column: group for group in encoding.bounds.groups}
        numbers: list[tuple[int, int, float]] = []
        for piece in own:
            at = slice(piece.start - own[0].start, piece.stop - own[0].start)
            if piece.kind == LABEL:
                out[:, at] = self._label(records, piece)
            elif piece.kind == NUMBER:
                numbers.append((at.start, groups[piece.column].start, float(piece.table[0, 0])))
            else:
                group = groups[piece.column]
                out[:, at] = piece.table[np.nan_to_num(rows[:, group.start : group.stop]).argmax(axis=1)]
        if numbers:
            to, source, scale = (list(found) for found in zip(*numbers))
            values = rows if source == list(range(rows.shape[1])) else rows[:, source]
            # Given a number and NaN, fmax takes the number: NaN becomes the low end of the range.
            kept = np.fmin(np.fmax(values, -1.0), 1.0)
            kept *= np.array(scale)
            if to == list(range(to[0], to[-1] + 1)):
                out[:, to[0] : to[-1] + 1] = kept
            else:
                out[:, to] = kept
        return out

    def _label(self, records: Records, piece: Piece) -> Floats:
        if records.labels is None or len(records.labels) != len(records.features):
            raise Refused(f"{piece.party} holds the label, and its records have none", code="stopped")
        if self.classes:
            return np.asarray(piece.table[(np.asarray(records.labels) > 0).astype(np.int64)], np.float64)
        scaled = scale_target(self.schema, np.asarray(records.labels, np.float64))
        return np.asarray(scaled[:, None] * piece.table[0, 0], np.float64)

    def coefficients(self, weights: Floats, constant: float) -> Floats:
        """Weights of encoded whole rows from weights of z, which give every row the same score."""
        placed = dict(zip(self.features.tolist(), weights))
        by_column: dict[str, Floats] = {}
        for piece in self.pieces:
            if piece.kind == LABEL:
                continue
            own = np.array([placed[at] for at in range(piece.start, piece.stop)])
            by_column[piece.column] = piece.table @ own
        out = np.concatenate([by_column[column.name] for column in self.schema.columns])
        return np.append(out, self.constant * constant) if self.intercept else out

    @cached_property
    def mapping(self) -> Floats:
        """The matrix of `coefficients`: (encoded width, features of z + intercept)."""
        count = len(self.features)
        unit = np.eye(count)
        rows = [self.coefficients(unit[place], 0.0) for place in range(count)]
        if self.intercept:
            rows.append(self.coefficients(np.zeros(count), 1.0))
        return np.array(rows).T

    def about_average(self, means: Floats | None) -> Floats:
        """`mapping` with categories that count from the average record: of each choice, the mean of its coefficients
        over the records is zero, and the constant makes up for it. Scores are the same.

        Counted from the mean over categories, as in `mapping`, all coefficients of a choice depend on its rarest
        category, of which records tell least. `means` are those of the columns of features, noisy or not; they are
        brought to shares of categories. Without them, or without an intercept, it is `mapping`.
        """
        if means is None or not self.intercept:
            return self.mapping
        out, place = self.mapping.copy(), {at: number for number, at in enumerate(self.features.tolist())}
        groups = {group.column: slice(group.start, group.stop) for group in self.encoding.bounds.groups}
        for piece in self.pieces:
            if piece.kind in (LABEL, NUMBER) or len(piece.table) < 2:
                continue
            own = [place[at] for at in range(piece.start, piece.stop)]
            average = category_shares(piece.table, means[own]) @ piece.table
            out[groups[piece.column], own] -= average
            out[-1, own] += average
        return out


def category_shares(table: Floats, means: Floats) -> Floats:
    """Shares of categories whose mean row of the table is closest to these means; then the closest ones of which none
    is below zero and which add up to 1. Noise in the shares of rare categories is mostly gone in these."""
    known = np.vstack([table.T, np.ones(len(table))])
    free = np.linalg.lstsq(known, np.append(means, 1.0), rcond=None)[0]
    ordered = np.sort(free)[::-1]
    over = (np.cumsum(ordered) - 1) / np.arange(1, len(free) + 1)
    return np.asarray(np.maximum(free - over[np.flatnonzero(ordered > over)[-1]], 0.0), np.float64)


def round_to_grid(values: Floats) -> Floats:
    return np.asarray(np.rint(np.ldexp(values, PLACES)) * 2.0**-PLACES, np.float64)


def simplex(corners: int) -> Floats:
    """Corners of a regular simplex around zero, one per row, √2 apart: one-hot rows less their mean, in an orthonormal
    basis of the space they span."""
    basis = np.zeros((corners - 1, corners))
    for k in range(1, corners):
        basis[k - 1, :k] = 1.0
        basis[k - 1, k] = -k
        basis[k - 1] /= sqrt(k * (k + 1))
    return basis.T.copy()


def scale_target(schema: Schema, values: NDArray[Any]) -> Floats:
    """A bounded target on [−1, 1], clipped."""
    target = schema.target
    assert isinstance(target, Bounded)
    unit = (np.nan_to_num(values) - target.low) / (target.high - target.low)
    return np.asarray(np.clip(2 * unit - 1, -1.0, 1.0), np.float64)
