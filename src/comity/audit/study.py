"""The audit of a study: records from its schema, the strongest pair of neighbours, and what a run shows of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from comity.audit.attack import sharpest_group
from comity.audit.bound import gaussian_epsilon
from comity.audit.capture import Coordinate, Run, capture, holdout_key
from comity.audit.claim import CONFIDENCE, THOROUGH, Effort, measure_claim
from comity.audit.hostile import hostile_coordinator
from comity.audit.membership import illustrate_membership
from comity.audit.neighbours import (
    Pair,
    Records,
    corner_rows,
    declared_sizes,
    furthest,
    generated_rows,
    strength,
    with_identifiers,
)
from comity.audit.rerun import with_other_records
from comity.audit.row import Audit, Check, Claim
from comity.audit.shift import design_epsilon, design_mu
from comity.audit.whole_runs import attack_runs, has_likelihood
from comity.data import Schema
from comity.errors import ComityError, Stopped, StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.bounds import Counts
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.payers import delta_of, payer_groups, spent_by
from comity.federation.evaluation.holdout import hold_out_by_position
from comity.privacy.loss import float_above
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Neighbours, Unit
from comity.study.records.encoding import encode_records
from comity.study.study import Study

_FEWEST, _MOST = 12, 400
_FEWEST_RUNS = 100
_LARGEST_GROUP = {"gaussian": 60, "pure": 600}
Progress = Callable[[str], None]


def audit_study(study: Study, *, effort: Effort | None = None, progress: Progress | None = None) -> Audit:
    """Attack a study as its owners would be attacked: one claim for each group of parties that pays differently.

    No private record is read. Who reads: the coordinator with as many colluding parties as the study allows for, who
    know all records but those that differ.
    """
    agreement, effort = study.agreement, effort or THOROUGH
    consortium = agreement.consortium
    paying = [group.parties[0] for group in payer_groups(agreement.declaration, consortium) if group.releases]
    each = 1 - (1 - CONFIDENCE) / max(1, len(paying))
    claims: list[Claim] = []
    checks: list[Check] = []
    for party in paying:
        if progress is not None:
            progress(f"neighbours of {party}")
        rows = corner_rows(study.schema, effort.corners, study.name)
        name = study.name if len(paying) == 1 else f"{study.name}, {party}"
        if not has_likelihood(agreement, party):
            claims.append(measure_runs(name, study, party, rows, effort=effort, confidence=each))
            continue
        pair = find_pair(study, agreement, party, rows=rows)
        claims.append(measure_pair(name, agreement, pair, party, effort=effort, confidence=each))
        checks += pair_checks(name, study, agreement, pair, party, rows)
    if progress is not None:
        progress("membership inference")
    illustrations = illustrate_membership(study, seconds=effort.illustration_seconds)
    return Audit(study.name, CONFIDENCE, tuple(claims), tuple(checks), illustrations=illustrations)


def find_pair(
    study: Study,
    agreement: Agreement,
    party: str,
    *,
    rows: pd.DataFrame,
    held_out: bool = False,
) -> Pair:
    """The strongest neighbours of this party among those that differ by copies of one of `rows`, under the strongest
    messages that we know. With an evaluation, the records that differ are all trained on or all `held_out`.

    Under Gaussian noise the search changes as many records together as make the sharpest attack. Under pure noise that
    number depends on how many coordinates a record moves: the search changes one, and the pair that it finds changes
    several where they move as far as so many single ones.
    """
    consortium, coordinate = agreement.consortium, hostile_coordinator(study, rows)

    def begin(group: int, fewest: Mapping[str, int]) -> tuple[NeighbourRecords, Records, Run]:
        made = NeighbourRecords(
            study.schema,
            consortium,
            party,
            by_columns=bool(study.setting.columns),
            group=group,
            others=others,
            held_out=held_out,
            fewest=fewest,
        )
        base = encode(agreement, made.base)
        return made, base, capture(agreement, base, coordinate=coordinate, listen=made.changed_parties)

    def runs(group: int, candidates: Sequence[pd.DataFrame]) -> list[Run]:
        try:
            made, base, first = begin(group, {})
        except Stopped:
            # Some methods refuse owners of fewer records than the study declares.
            made, base, first = begin(group, declared_sizes(study))
        return [
            first,
            *(neighbour_run(first, base, encode(agreement, made.changed(row)), coordinate) for row in candidates),
        ]

    others = _declared_records(study)
    every = [rows.iloc[[place]] for place in range(len(rows))]
    replaced = consortium.neighbours is Neighbours.REPLACE
    spent = spent_by(agreement.declaration, party, consortium)
    group = _group_size(float(spent.gaussian) ** 0.5, consortium, pure=False) if spent.gaussian else 1
    found = runs(group, every)
    one, other = furthest(found, replaced=replaced)
    tried = tuple(place - 1 for place in (one, other) if place)
    pair = Pair(found[one], found[other], group, tried)
    if spent.gaussian:
        return pair
    losses = np.concatenate([shift.epsilons for shift in pair.shifts])
    if not losses.any():
        raise StudyError(f"{study.name}: no tried neighbour changes what is opened, so the audit would show nothing")
    spherical = any(isinstance(shift.noise, Spherical) for shift in pair.shifts)
    group = _group_size(float(losses.max()) * (2 if spherical else 1), consortium, pure=True)
    again = runs(group, [every[place] for place in tried])
    first, second = again[-2:] if one else again[:2]
    several = Pair(first, second, group, tried)
    # Fits are no sums: copies of one record may move them less than so many records could.
    return several if strength(several.shifts) / group > 0.7 * strength(pair.shifts) else pair


def neighbour_run(first: Run, base: Records, changed: Records, coordinate: Coordinate | None) -> Run:
    """A run on neighbouring records, with the messages of the first: from what the changed parties contribute, or in
    full where that does not tell."""
    found = with_other_records(first, changed)
    if found is not None:
        return found
    assert first.hosted is not None
    return capture(first.hosted.agreement, {**base, **changed}, coordinate=coordinate, replay=first.opened)


def encode(agreement: Agreement, frames: Mapping[str, pd.DataFrame]) -> Records:
    """What each party's site would hold of these frames."""
    return {name: encode_records(agreement.protocol, frame, name, party=name) for name, frame in frames.items()}


def _declared_records(study: Study) -> int:
    """How many records an owner that nothing changes at holds: as many as the study declares, within reason."""
    return max(_FEWEST, min(max(declared_sizes(study).values(), default=0), _MOST))


def _group_size(loss: float, consortium: Consortium, *, pure: bool) -> int:
    """How many records, or parties, change together, given what one of them loses."""
    largest = _LARGEST_GROUP["pure" if pure else "gaussian"]
    if consortium.unit is Unit.PARTY:
        # A part of the noise stays with a party that is neither a colluder nor changed.
        largest = max(1, consortium.size - max(1, consortium.colluders) - 1)
    return sharpest_group(loss, largest=largest)


@dataclass(frozen=True, eq=False)
class NeighbourRecords:
    """Frames of all parties, and the same with a group of equal records in them.

    Records that are replaced are all that their owner holds, or with an evaluation all that it trains on, or holds out.
    Over columns a record is a person, whose columns all parties hold. Where the unit is a party, the group is one of
    parties, each of which holds nothing but that record. A party holds at least the `fewest` of its name. `alone`, the
    changed owner holds nothing but what changes, and another owner holds nothing at all.
    """

    schema: Schema
    consortium: Consortium
    party: str
    by_columns: bool
    group: int
    others: int
    held_out: bool = False
    fewest: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False

    @cached_property
    def base(self) -> dict[str, pd.DataFrame]:
        return {
            name: with_identifiers(
                self.schema,
                generated_rows(
                    self.schema, max(self._rows(name), self.fewest.get(name, 0)), "people" if self.by_columns else name
                ),
                0 if self.by_columns else place * 100_000,
            )
            for place, name in enumerate(self.consortium.parties)
        }

    def _rows(self, name: str) -> int:
        return max(self._wanted_rows(name), self.fewest.get(name, 0))

    def _wanted_rows(self, name: str) -> int:
        if self.alone and not self.by_columns:
            if name == self._without_records:
                return 0
            if name == self.party and self.consortium.unit is not Unit.PARTY:
                return self.group if self.consortium.neighbours is Neighbours.REPLACE else 0
        if self.consortium.unit is Unit.PARTY or self.consortium.neighbours is not Neighbours.REPLACE:
            return self.others
        if self.by_columns:
            return self.others + self.group
        if name != self.party:
            return self.others
        terms = self.consortium.evaluation
        if terms is None:
            return self.group
        # The fewest records of which so many are in the part that changes.
        return next(rows for rows in itertools.count(self.group) if self._in_part(rows) >= self.group)

    def _in_part(self, rows: int) -> int:
        assert self.consortium.evaluation is not None
        count = self.consortium.evaluation.count(rows)
        return count if self.held_out else rows - count

    def _places(self, rows: int) -> list[int]:
        """Which of so many records of an owner are replaced."""
        terms = self.consortium.evaluation
        if terms is None or self.by_columns or self.consortium.unit is not Unit.RECORD:
            return list(range(self.group))
        which = hold_out_by_position(rows, terms.count(rows), holdout_key(self.party))
        return [int(place) for place in np.flatnonzero(which == self.held_out)[: self.group]]

    @property
    def _without_records(self) -> str:
        return next((name for name in reversed(self.consortium.parties) if name != self.party), "")

    @property
    def changed_parties(self) -> tuple[str, ...]:
        if self.by_columns:
            return tuple(self.consortium.parties)
        if self.consortium.unit is not Unit.PARTY:
            return (self.party,)
        return (self.party, *(name for name in self.consortium.parties if name != self.party))[: self.group]

    def candidate(self, row: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {**self.base, **self.changed(row)}

    def changed(self, row: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The frames of the parties that the group changes, with this record in them."""
        frames = {name: self.base[name] for name in self.changed_parties}
        if self.consortium.unit is Unit.PARTY:
            count = 1 if self.alone else self.others
            return {name: self._copies(row, count, own) for name, own in frames.items()}
        if self.consortium.neighbours is Neighbours.REPLACE:
            return {name: self._with_replaced(row, own) for name, own in frames.items()}
        added = with_identifiers(self.schema, pd.concat([row] * self.group, ignore_index=True), 10_000_000)
        return {name: pd.concat([own, added], ignore_index=True) for name, own in frames.items()}

    def _with_replaced(self, row: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
        places = self._places(len(own))
        rest = [place for place in range(len(own)) if place not in set(places)]
        found = pd.concat([self._copies(row, self.group, own.iloc[places]), own.iloc[rest]], ignore_index=True)
        return found.iloc[np.argsort([*places, *rest])].reset_index(drop=True)

    def _copies(self, row: pd.DataFrame, count: int, own: pd.DataFrame) -> pd.DataFrame:
        """The record so many times, under the identifiers that these rows had."""
        copies = pd.concat([row] * count, ignore_index=True)
        name = self.schema.identifier
        return copies if name is None else copies.assign(**{name: list(own[name].iloc[:count])})


def measure_pair(
    name: str,
    agreement: Agreement,
    pair: Pair,
    party: str,
    *,
    effort: Effort,
    confidence: float,
    claimed: float | None = None,
) -> Claim:
    """What the strongest pair shows, beside what this party pays, or what is `claimed` instead."""
    consortium = agreement.consortium
    delta = delta_of(consortium)
    what = "parties" if consortium.unit is Unit.PARTY else "records"
    how = "replaced" if consortium.neighbours is Neighbours.REPLACE else "added"
    return measure_claim(
        name,
        pair.shifts,
        claimed=claimed or float_above(spent_by(agreement.declaration, party, consortium).epsilon_at(delta)),
        delta=float(delta),
        group=pair.group,
        view=agreement.declaration.adversary,
        pair=f"{pair.group} {what} {how} together" if pair.group > 1 else f"one of the {what} {how}",
        effort=effort,
        confidence=confidence,
    )


def pair_checks(
    name: str, study: Study, agreement: Agreement, pair: Pair, party: str, rows: pd.DataFrame
) -> Iterator[Check]:
    yield debit_check(name, agreement, pair.first, party)
    yield sensitivity_check(name, pair)
    yield lone_owner_check(name, study, agreement, party, rows, pair.rows)


def lone_owner_check(
    name: str, study: Study, agreement: Agreement, party: str, rows: pd.DataFrame, tried: Sequence[int]
) -> Check:
    """That an owner of one record, or of none to which one is added, loses no more than declared, beside another owner
    without any record. Where the unit is a party, one that holds a single record replaces one of many.

    `tried` are the records of the strongest pair. What they move is exact, so no draws are needed. A method may refuse
    such owners: nothing is lost then.
    """
    consortium, coordinate = agreement.consortium, hostile_coordinator(study, rows)
    title, delta = f"{name}: an owner of one record or of none loses no more", float(delta_of(agreement.consortium))
    made = NeighbourRecords(
        study.schema,
        consortium,
        party,
        by_columns=bool(study.setting.columns),
        group=1,
        others=_declared_records(study),
        alone=True,
    )
    try:
        base = encode(agreement, made.base)
        first = capture(agreement, base, coordinate=coordinate, listen=made.changed_parties)
        changed = (encode(agreement, made.changed(rows.iloc[[place]])) for place in tried)
        runs = [first, *(neighbour_run(first, base, one, coordinate) for one in changed)]
    except ComityError as error:
        return Check(title, True, f"refused: {error}")
    one, other = furthest(runs, replaced=consortium.neighbours is Neighbours.REPLACE)
    shifts = Pair(runs[one], runs[other], 1).shifts
    gaussian = all(shift.gaussian for shift in shifts)
    lost = gaussian_epsilon(design_mu(shifts), delta) if gaussian else design_epsilon(shifts)
    claimed = float_above(spent_by(agreement.declaration, party, consortium).epsilon_at(delta_of(consortium)))
    return Check(title, lost <= claimed * (1 + 1e-9), f"{lost:.3f} of {claimed:.3f}")


def measure_runs(
    name: str, study: Study, party: str, rows: pd.DataFrame, *, effort: Effort, confidence: float
) -> Claim:
    """What whole runs show about the lowest and the highest record, beside what this party pays."""
    agreement, coordinate = study.agreement, hostile_coordinator(study, rows)
    consortium = agreement.consortium
    made = NeighbourRecords(
        study.schema,
        consortium,
        party,
        by_columns=bool(study.setting.columns),
        group=1,
        others=_declared_records(study),
        fewest=declared_sizes(study),
    )
    replaced = consortium.neighbours is Neighbours.REPLACE
    first = made.candidate(rows.iloc[[0]]) if replaced else made.base
    records = encode(agreement, first), encode(agreement, made.candidate(rows.iloc[[1]]))
    started = time.perf_counter()
    capture(agreement, records[0], coordinate=coordinate)
    took = time.perf_counter() - started
    # The number of runs follows from the time of one, before anything is drawn.
    runs = int(max(_FEWEST_RUNS, min(effort.runs, effort.run_seconds / 4 / took)))
    return attack_runs(
        name,
        agreement,
        party,
        records,
        delta=float(delta_of(consortium)),
        runs=runs,
        confidence=confidence,
        pair="the lowest and the highest record of the schema" if replaced else "the highest record added",
        coordinate=coordinate,
    )


def debit_check(name: str, agreement: Agreement, run: Run, party: str) -> Check:
    """That the ledger was charged what the declaration says, draw by draw."""
    declared = {
        (draw.release, draw.index): draw.loss.as_text()
        for release in agreement.declaration.paid_by(party, agreement.consortium)
        for draw in release.draws()
    }
    charged = {
        (entry.release, entry.index): entry.loss for entry in run.ledgers[party].entries() if entry.kind == "draw"
    }
    found = f"{len(charged)} debits, {len(declared)} declared"
    return Check(f"{name}: the ledger is charged as declared", charged == declared, found)


def sensitivity_check(name: str, pair: Pair) -> Check:
    """That no opened value moves further than declared, in its grid units, for as many records as the group has."""
    worst = 0.0
    for shift, one in zip(pair.shifts, pair.first.opened, strict=True):
        release, units = one.release, shift.units.astype(float)
        l1 = release.noise is not None and release.noise.norm == "l1"
        moved = float(abs(units).sum() if l1 else (units**2).sum() ** 0.5)
        # Rounding to the grid moves each coordinate by up to one unit; counts are on it already.
        rounding = 0.0 if isinstance(release.bound, Counts) else shift.dimensions ** (1.0 if l1 else 0.5)
        worst = max(worst, moved / (pair.group * release.sensitivity / shift.scale.grid + rounding))
    return Check(f"{name}: values move within the sensitivity", worst <= 1, f"{worst:.3f} of what is declared")
