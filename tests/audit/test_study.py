"""The audit of a study: real hosts without noise, neighbours from the schema, claims held and twins caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comity
from comity.audit.capture import NoNoise, capture
from comity.audit.claim import Effort
from comity.audit.neighbours import corner_rows, generated_rows, with_identifiers
from comity.audit.page import write_page
from comity.audit.row import Audit, Check, Claim, Control
from comity.audit.study import NeighbourRecords, audit_study, debit_check, encode, find_pair, sensitivity_check
from comity.audit.suite import wiring_checks
from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit

SMALL = Schema((Numeric("x", -1, 1), Categorical("place", ("town", "farm"))), Classes("sick", ("no", "yes")))
EFFORT = Effort(draws=20_000, pure_draws=100_000, spherical_draws=2_000, corners=8)
NAMES = ("ash", "birch", "cedar")
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def make_study(**terms: Any) -> Any:
    return comity.Synthetic(SMALL).study(NAMES, **{**TERMS, **terms})


def test_a_study_holds_its_claim_and_its_twins_are_caught() -> None:
    found = audit_study(make_study(), effort=EFFORT)
    (claim,) = found.claims
    assert found.passed and 0.9 < claim.measured <= claim.claimed <= 1.0
    assert claim.design <= claim.claimed * 1.001
    assert {control.name.partition(": ")[2] for control in claim.controls} == {
        "noise / 1.2",
        "noise for half the sensitivity",
        "one honest part missing",
    }


def test_a_pure_study_holds_its_claim() -> None:
    found = audit_study(make_study(delta=0.0), effort=EFFORT)
    assert found.passed and 0.85 < found.claims[0].measured <= 1.0


@pytest.mark.long
def test_each_payer_has_a_claim() -> None:
    study = comity.Summary(SMALL, records=10, sizes=400, deliver="weights").study(
        (*NAMES, "elm"), consumer="elm", **TERMS
    )
    found = audit_study(study, effort=replace(EFFORT, corners=4))
    assert len(found.claims) == 2 and all(claim.held for claim in found.claims)


def test_without_noise_two_runs_open_the_same_and_a_record_changes_it() -> None:
    study = make_study()
    agreement = study.agreement
    made = NeighbourRecords(SMALL, agreement.consortium, "ash", by_columns=False, group=1, others=12)
    first, again = (capture(agreement, encode(agreement, made.base)).opened[0] for _ in range(2))
    assert np.array_equal(first.units, again.units)
    other = capture(agreement, encode(agreement, made.candidate(corner_rows(SMALL, 8).iloc[[0]])))
    assert np.abs(other.opened[0].units - first.units).sum() > 0


def test_a_replayed_run_sends_the_messages_of_the_first() -> None:
    """Otherwise a shift would hold what other messages change, and no neighbour."""
    study = comity.Averaging(SMALL, sizes=40).study(NAMES, **TERMS)
    agreement = study.agreement
    made = NeighbourRecords(SMALL, agreement.consortium, "ash", by_columns=False, group=3, others=12)
    base = encode(agreement, made.base)
    first = capture(agreement, base)
    same = capture(agreement, base, replay=first.opened)
    assert all(np.array_equal(one.units, other.units) for one, other in zip(first.opened, same.opened, strict=True))
    noisy = capture(agreement, base, noise=lambda: SeededNoise(4))
    assert any(not np.array_equal(one.units, two.units) for one, two in zip(first.opened, noisy.opened, strict=True))


def test_debits_and_sensitivities_are_checked_and_faults_in_them_found() -> None:
    study = make_study()
    agreement = study.agreement
    pair = find_pair(study, agreement, "ash", rows=corner_rows(SMALL, 8))
    assert debit_check("study", agreement, pair.first, "ash").held and sensitivity_check("study", pair).held
    empty = comity.Ledger.in_memory(dataset="ash", unit=Unit.RECORD, neighbours=Neighbours.ADD_REMOVE)
    uncharged = replace(pair.first, ledgers={**pair.first.ledgers, "ash": empty})
    assert not debit_check("study", agreement, uncharged, "ash").held
    # Edges are measured before tables are counted: either sum may be the one that moves too far.
    assert len(pair.second.opened) == 2
    for place, opened in enumerate(pair.second.opened):
        moved = replace(opened, units=opened.units + 100 * np.sign(opened.units - pair.first.opened[place].units))
        changed = tuple(moved if at == place else one for at, one in enumerate(pair.second.opened))
        assert not sensitivity_check("study", replace(pair, second=replace(pair.second, opened=changed))).held


def test_the_wiring_has_the_declared_variance() -> None:
    assert all(check.held for check in wiring_checks(6))


def test_a_part_of_the_noise_that_is_lost_on_the_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(NoNoise):
        drawn: tuple[Any, ...] = ()

    monkeypatch.setattr("comity.audit.suite.KeptNoise", Lost)
    assert not any(check.held for check in wiring_checks(2))


def test_noise_that_counts_on_the_part_of_a_colluder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum whose noise is as wide as declared only with the part of the party that reads it."""
    monkeypatch.setattr("comity.federation.declare.release.Release.parts", lambda release, consortium: consortium.size)
    whole, less_own = wiring_checks(12)
    assert whole.held and not less_own.held


@pytest.mark.parametrize("target", [Classes("y", ("a", "b", "c")), Bounded("y", 0, 5), None])
def test_rows_lie_in_the_schema(target: Any) -> None:
    schema = Schema((Numeric("x", 0, 9, integer=True), Categorical("c", ("u", "v"))), target, "id")
    for frame in (corner_rows(schema, 5), generated_rows(schema, 7)):
        named = with_identifiers(schema, frame)
        assert named["id"].is_unique and set(named["x"]) <= {0, 9} and set(named["c"]) <= {"u", "v"}


def test_a_failed_row_fails_the_audit_and_the_page_shows_it(tmp_path: Path) -> None:
    good = Claim("ours", 1.0, 0.9, 0.95, 1e-6, "a reader", "a pair", curve=np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert Audit("t", 0.999, (good,), (), (Control("c", True, 2.0, 1.0),)).passed
    failed = (
        Audit("t", 0.999, (replace(good, measured=1.1),)),
        Audit("t", 0.999, (good,), (Check("grid", False, "none"),)),
        Audit("t", 0.999, (good,), (), (Control("<b>c", False, 0.5, 1.0),)),
    )
    assert not any(audit.passed for audit in failed)
    page = write_page(failed[2], tmp_path / "audit.html").read_text("utf-8")
    assert "failed" in page and "&lt;b&gt;c" in page and "<b>c" not in page
    rows = failed[0].as_json()["rows"]
    assert rows[0]["case"] == "claim ours" and rows[0]["held"] == 0 and rows[0]["claimed"] == 1.0
