"""The audit of a study: records from its schema, the strongest pair of neighbours, and what a run shows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from comity.audit.attack import sharpest_group
from comity.audit.capture import Coordinate, Run, capture
from comity.audit.claim import CONFIDENCE, THOROUGH, Effort, measure_claim
from comity.audit.neighbours import (
    Pair,
    Records,
    corner_rows,
    furthest,
    generated_rows,
    strength,
    with_identifiers,
)
from comity.audit.row import Audit, Check, Claim
from comity.data import Schema
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.bounds import Counts
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.payers import delta_of, payer_groups, spent_by
from comity.privacy.loss import float_above
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Neighbours, Unit
from comity.study.records.encoding import encode_records
from comity.study.study import Study

_FEWEST, _MOST = 12, 400
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
    claims, checks = [], []
    for party in paying:
        if progress is not None:
            progress(f"neighbours of {party}")
        rows = corner_rows(study.schema, effort.corners, study.name)
        pair = find_pair(study, agreement, party, rows=rows)
        name = study.name if len(paying) == 1 else f"{study.name}, {party}"
        claims.append(measure_pair(name, agreement, pair, party, effort=effort, confidence=each))
        checks += [debit_check(name, agreement, pair.first, party), sensitivity_check(name, pair)]
    return Audit(study.name, CONFIDENCE, tuple(claims), tuple(checks))


def find_pair(
    study: Study,
    agreement: Agreement,
    party: str,
    *,
    rows: pd.DataFrame,
    coordinate: Coordinate | None = None,
) -> Pair:
    """The strongest neighbours of this party among those that differ by copies of one of `rows`.

    Under Gaussian noise the search changes as many records together as make the sharpest attack. Under pure noise that
    number depends on how many coordinates a record moves: the search changes one, and the pair that it finds changes
    several where they move as far as so many single ones.
    """
    consortium = agreement.consortium

    def runs(group: int, candidates: Sequence[pd.DataFrame]) -> list[Run]:
        made = NeighbourRecords(
            study.schema, consortium, party, by_columns=bool(study.setting.columns), group=group, others=others
        )
        first = capture(agreement, encode(agreement, made.base), coordinate=coordinate)
        return [
            first,
            *(
                capture(agreement, encode(agreement, made.candidate(row)), coordinate=coordinate, replay=first.opened)
                for row in candidates
            ),
        ]

    others = _declared_records(study)
    every = [rows.iloc[[place]] for place in range(len(rows))]
    replaced = consortium.neighbours is Neighbours.REPLACE
    spent = spent_by(agreement.declaration, party, consortium)
    group = _group_size(float(spent.gaussian) ** 0.5, consortium, pure=False) if spent.gaussian else 1
    found = runs(group, every)
    one, other = furthest(found, replaced=replaced)
    pair = Pair(found[one], found[other], group)
    if spent.gaussian:
        return pair
    losses = np.concatenate([shift.epsilons for shift in pair.shifts])
    if not losses.any():
        raise StudyError(f"{study.name}: no tried neighbour changes what is opened, so the audit would show nothing")
    spherical = any(isinstance(shift.noise, Spherical) for shift in pair.shifts)
    group = _group_size(float(losses.max()) * (2 if spherical else 1), consortium, pure=True)
    again = runs(group, [every[place - 1] for place in (one, other) if place])
    first, second = again[-2:] if one else again[:2]
    several = Pair(first, second, group)
    # Fits are no sums: copies of one record may move them less than so many records could.
    return several if strength(several.shifts) / group > 0.7 * strength(pair.shifts) else pair


def encode(agreement: Agreement, frames: Mapping[str, pd.DataFrame]) -> Records:
    """What each party's site would hold of these frames."""
    return {name: encode_records(agreement.protocol, frame, name, party=name) for name, frame in frames.items()}


def _declared_records(study: Study) -> int:
    """How many records an owner that nothing changes at holds: as many as the study declares, within reason."""
    sizes = getattr(study.method, "sizes", None)
    declared = max(sizes.values()) if isinstance(sizes, Mapping) and sizes else sizes
    return max(_FEWEST, min(declared, _MOST)) if isinstance(declared, int) else _FEWEST


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

    Records that are replaced are all that their owner holds. Over columns a record is a person, whose columns all
    parties hold. Where the unit is a party, the group is one of parties, each of which holds nothing but that record.
    """

    schema: Schema
    consortium: Consortium
    party: str
    by_columns: bool
    group: int
    others: int

    @property
    def base(self) -> dict[str, pd.DataFrame]:
        return {
            name: with_identifiers(
                self.schema,
                generated_rows(self.schema, self._rows(name), "people" if self.by_columns else name),
                0 if self.by_columns else place * 100_000,
            )
            for place, name in enumerate(self.consortium.parties)
        }

    def _rows(self, name: str) -> int:
        if self.consortium.unit is Unit.PARTY or self.consortium.neighbours is not Neighbours.REPLACE:
            return self.others
        if self.by_columns:
            return self.others + self.group
        return self.group if name == self.party else self.others

    def candidate(self, row: pd.DataFrame) -> dict[str, pd.DataFrame]:
        frames = self.base
        if self.consortium.unit is Unit.PARTY:
            for name in self._changed_parties():
                frames[name] = self._copies(row, self.others, frames[name])
            return frames
        for name in self.consortium.parties if self.by_columns else (self.party,):
            own = frames[name]
            if self.consortium.neighbours is Neighbours.REPLACE:
                frames[name] = pd.concat(
                    [self._copies(row, self.group, own), own.iloc[self.group :]], ignore_index=True
                )
            else:
                added = with_identifiers(self.schema, pd.concat([row] * self.group, ignore_index=True), 10_000_000)
                frames[name] = pd.concat([own, added], ignore_index=True)
        return frames

    def _changed_parties(self) -> Sequence[str]:
        names = [self.party, *(name for name in self.consortium.parties if name != self.party)]
        return names[: self.group]

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
