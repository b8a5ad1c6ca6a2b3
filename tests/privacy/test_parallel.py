"""Draws of disjoint parts of the records: together they cost what the dearest part costs, in ledger and replay."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.ledgers import RECORD, create_ledger

from comity.errors import BudgetExceeded, Refused
from comity.privacy.accounting import Spent
from comity.privacy.ledger import Draw, Ledger, verify_export
from comity.privacy.loss import GDP, Approx, Loss, Pure
from comity.privacy.parallel import Parts


def of(part: str, *losses: Loss, release: str | None = None) -> list[Draw]:
    name = release or part or "whole"
    return [Draw(name, index, loss, "noise", 1.0, part) for index, loss in enumerate(losses)]


def spent(ledger: Ledger) -> tuple[Decimal, Decimal]:
    [account] = ledger.summary()
    return account.spent.pure, account.reserved.pure


def reserve(ledger: Ledger, run: str, draws: list[Draw]) -> None:
    ledger.reserve(study="s", run=run, draws=draws, **RECORD)


def test_the_cost_is_that_of_the_dearest_part_and_of_whatever_reads_all_records() -> None:
    parts = Parts.of([("", Pure("0.1")), ("a", Pure("0.5")), ("a", Pure("0.2")), ("b", Pure("0.6")), ("", Pure("0.1"))])
    assert parts.cost.pure == Decimal("0.9")
    assert Parts().cost == Spent.zero()


def test_what_each_draw_adds_comes_to_the_cost_in_every_order() -> None:
    generator = np.random.default_rng(3)
    draws: list[tuple[str, Any]]
    draws = [(part, Pure(Decimal(int(n)) / 7)) for part, n in zip("aabbc", generator.integers(1, 99, 5))]
    draws += [("", Pure("0.3")), ("a", GDP("0.7")), ("b", GDP("0.2"))]
    for _ in range(20):
        parts, total = Parts(), Spent.zero()
        for at in generator.permutation(len(draws)):
            total = total.plus(parts.add(*draws[at]))
        assert total == parts.cost == Parts.of(draws).cost


def test_a_grant_of_epsilon_covers_training_and_evaluation_at_epsilon_each(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(1))
    reserve(ledger, "r", [*of("training", Pure("0.4"), Pure("0.6")), *of("set aside", Pure(1))])
    assert spent(ledger) == (Decimal(0), Decimal(1))
    steps = [("training", 0, "0.4"), ("set aside", 0, "1"), ("training", 1, "1")]
    for release, index, after in steps:
        ledger.draw(run="r", release=release, index=index, step=release).use()
        assert spent(ledger) == (Decimal(after), 1 - Decimal(after))
    ledger.close("r")
    assert spent(ledger) == (Decimal(1), Decimal(0))
    assert ledger.verify().entries == 8
    with pytest.raises(BudgetExceeded) as refusal:
        reserve(ledger, "next", of("set aside", Pure("0.1")))
    assert (refusal.value.requested, refusal.value.remaining) == ("0.10", "0.00")


def test_draws_that_read_all_records_add_up(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(1))
    with pytest.raises(BudgetExceeded, match=r"asks eps 1\.50 of patients, 1\.00 is left"):
        reserve(ledger, "r", [*of("", Pure("0.5")), *of("set aside", Pure(1))])


def test_parts_of_two_runs_add_up(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(2))
    reserve(ledger, "r1", of("training", Pure(1)))
    reserve(ledger, "r2", of("set aside", Pure(1)))
    assert spent(ledger) == (Decimal(0), Decimal(2))
    ledger.verify()


@pytest.mark.parametrize(
    ("drawn", "charged"), [((), "0"), (("training",), "0.7"), (("set aside",), "1"), (("training", "set aside"), "1")]
)
@pytest.mark.parametrize("end", ["close", "void", "abandon"])
def test_a_run_that_ends_early_is_charged_what_it_drew(
    tmp_path: Path, drawn: tuple[str, ...], charged: str, end: str
) -> None:
    ledger = create_ledger(tmp_path, Pure(3))
    reserve(ledger, "r", [*of("training", Pure("0.7")), *of("set aside", Pure(1))])
    for release in drawn:
        ledger.draw(run="r", release=release, index=0, step=release).use()
    getattr(ledger, end)("r")
    assert spent(ledger) == (Decimal(charged), Decimal(0))
    ledger.verify()


def test_what_may_have_been_forgotten_counts_as_drawn(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(5))
    reserve(ledger, "r", [*of("training", Pure("0.7"), Pure("0.7")), *of("set aside", Pure(1))])
    ledger.draw(run="r", release="training", index=0, step="t").use()
    ledger.write_off(Pure("0.5"), "restored")
    assert spent(ledger) == (Decimal("1.9"), Decimal(0))
    ledger.verify()


def test_mixed_currencies_round_no_part_away(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(1, "1e-6"))
    half = GDP.squared("0.02")
    reserve(ledger, "r", [*of("training", half, half), *of("set aside", half)])
    [account] = ledger.summary()
    assert account.reserved.gaussian == Decimal("0.04")


def test_replay_refuses_a_part_that_was_written_in_later(tmp_path: Path) -> None:
    """Parts stand in the chain: whoever moves a draw to another part breaks it, in an export too."""
    ledger = create_ledger(tmp_path, Pure(2))
    reserve(ledger, "r", [*of("training", Pure(1)), *of("", Pure(1))])
    ledger.export(tmp_path / "all.json")
    exported = json.loads((tmp_path / "all.json").read_text())
    assert verify_export(exported).entries == 3
    exported["entries"][2]["step"] = "set aside"
    with pytest.raises(Refused, match="chain"):
        verify_export(exported)


def test_the_same_draws_of_another_part_are_another_list(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(3))
    reserve(ledger, "r", of("training", Pure(1), release="x"))
    with pytest.raises(Refused, match="another list of draws"):
        reserve(ledger, "r", of("set aside", Pure(1), release="x"))
