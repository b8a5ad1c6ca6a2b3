"""A neighbour that is told from what the changed parties contribute opens what a whole run opens."""

from __future__ import annotations

import numpy as np
import pytest

from comity.audit import study
from comity.audit.capture import Coordinate, Run, capture
from comity.audit.cases import Case, method_cases
from comity.audit.neighbours import Records
from comity.audit.rerun import with_other_records
from comity.federation.owner.site import Site

CASES = {case.name: case for case in method_cases()}
TOLD = [
    "synthetic, pure",
    "summary, the consumer",
    "averaging with an evaluation",
    pytest.param("averaging, records added", marks=pytest.mark.long),
    pytest.param("soft labels", marks=pytest.mark.long),
]


def neighbours_of(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Run | None, Run]]:
    """Each neighbour that a search tries: as told from contributions, and as a whole run opens it."""
    found = []

    def both(first: Run, base: Records, changed: Records, coordinate: Coordinate | None) -> Run:
        assert first.hosted is not None
        whole = capture(first.hosted.agreement, {**base, **changed}, coordinate=coordinate, replay=first.opened)
        found.append((with_other_records(first, changed), whole))
        return whole

    monkeypatch.setattr(study, "neighbour_run", both)
    study.find_pair(case.study, case.study.agreement, case.party, rows=case.rows.iloc[[0, 1]], held_out=case.held_out)
    return found


@pytest.mark.parametrize("name", TOLD)
def test_contributions_tell_what_a_whole_run_opens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for told, whole in neighbours_of(CASES[name], monkeypatch):
        assert told is not None and len(told.opened) == len(whole.opened)
        for one, other in zip(told.opened, whole.opened, strict=True):
            assert (one.release.name, one.party) == (other.release.name, other.party)
            assert np.array_equal(one.units, other.units), one.release.name


@pytest.mark.parametrize("name", ["vertical, quadratic", "summary, an owner"])
def test_runs_that_contributions_do_not_tell_are_made_in_full(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters between parties, and steps that remember what an earlier one kept."""
    assert all(told is None for told, _ in neighbours_of(CASES[name], monkeypatch))


def test_a_step_that_remembers_is_not_told_from_contributions(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Site.contribute

    def remembering(site: Site, value: object = None, **options: object) -> None:
        site.keep("seen", 1)
        honest(site, value, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Site, "contribute", remembering)
    assert all(told is None for told, _ in neighbours_of(CASES["synthetic"], monkeypatch))
