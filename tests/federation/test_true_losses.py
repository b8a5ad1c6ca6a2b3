"""Every published method states in its plan what it truly loses, to whom, beside what its paper claims."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.cli import main
from comity.federation.plan import Plan, plan
from comity.methods.averaging import Averaging
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours
from comity.report.card import write_card
from comity.report.page import render_result
from comity.report.result import load_result
from tests.averaging.published_consortium import make_consortium as averaging_parties
from tests.report.small_run import simulated
from tests.softlabel.consortia import make_consortium as softlabel_parties
from tests.softlabel.consortia import protocol as softlabel
from tests.summary.auctions import build_published as summary
from tests.summary.consortia import make_consortium as summary_parties
from tests.support.consortia import make_consortium as toy_parties
from tests.support.rounds import Rounds
from tests.support.vertical import make_consortium as vertical_parties
from tests.synthetic.test_published_protocol import TOY, small, terms
from tests.vertical.test_published import method as vertical
from tests.vertical.test_study import PUBLISHED, study


def averaging(kind: Any = "spherical") -> Plan:
    return plan("s", Averaging.published_over_rows(width=3, l2=0.01, noise=kind), averaging_parties(5))


PLANS: dict[str, Callable[[], Plan]] = {
    "softlabel": lambda: plan("s", softlabel(2, l2=1.0, sensitivity="paper"), softlabel_parties(4)),
    "averaging": averaging,
    "summary": lambda: plan("s", summary(), summary_parties(Approx(1.0, 1e-5))),
    "synthetic": lambda: plan("s", small(TOY, depth=8, levels=4), terms()),
    "vertical": lambda: plan("s", vertical(2, linear=True), vertical_parties(vertical(2), Pure(1))),
}
SAID = {
    # about, to, claimed, true
    "softlabel": ("a whole party", "anyone who sees the model", "eps 1.00", "at most eps 0.50"),
    "averaging": ("a record", "anyone who sees the model and did not draw its noise", "eps 1.00", "at most eps 0.16"),
    "summary": ("a record of an owner", "each other owner", "(eps 0.04809, delta 1e-5)", "infinite at delta 1e-5"),
    "synthetic": ("a record", "everyone who sees all trees and datasets", "eps 1.00", "at most eps 0.7813"),
    "vertical": ("a record", "everyone who sees the coefficients or the model", "eps 1.00", "at most eps 0.50"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_shows_the_true_loss_beside_the_claimed_one(name: str) -> None:
    planned = PLANS[name]()
    about, to, claimed, true = SAID[name]
    found = [loss for loss in planned.true_losses if (loss.about, loss.to) == (about, to)]
    assert len(found) == 1 and found[0].claimed == claimed and found[0].true.startswith(true)
    assert f"  true loss      {about}, to {to}: {found[0].true}; the paper claims {claimed} (" in planned.as_text()
    assert planned.as_json()["true_losses"] == [vars(loss) for loss in planned.true_losses]


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("softlabel", "the coordinator"),
        ("averaging", "the party with the fewest records"),
        ("summary", "the curator and the consumer"),
        ("vertical", "each other party"),
    ],
)
def test_a_plan_names_those_against_whom_nothing_holds(name: str, to: str) -> None:
    assert [loss.to for loss in PLANS[name]().true_losses if loss.true == "infinite: no epsilon holds"] == [to]


def epsilons(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"eps ([0-9.]+|inf)", text.replace("infinite", "inf"))]


MORE_PLANS: dict[str, Callable[[], Plan]] = {
    **PLANS,
    "averaging, literal": lambda: averaging("literal"),
    "averaging, literal, many weights": lambda: plan(
        "s", Averaging.published_over_rows(width=400, l2=0.01, noise="literal"), averaging_parties(2)
    ),
    "synthetic, replaced": lambda: plan(
        "s", small(TOY, depth=8, levels=4), replace(terms(), neighbours=Neighbours.REPLACE)
    ),
    "vertical, classes": lambda: plan("s", vertical(3, linear=False), vertical_parties(vertical(3), Pure(1))),
}


@pytest.mark.parametrize("name", MORE_PLANS)
def test_no_ledger_is_charged_less_than_a_true_loss_that_has_a_bound(name: str) -> None:
    """And the warning promises no more than that: of two methods the printed loss is charged, twice the true one."""
    planned = MORE_PLANS[name]()
    true = [epsilons(loss.true)[-1] for loss in planned.true_losses if not loss.true.startswith("infinite")]
    charged = [max(epsilons(payer.loss)) for payer in planned.payers] or epsilons(planned.guarantee)
    assert true and max(true) <= min(charged) * (1 + 1e-3)
    assert "corrected ones" not in planned.as_text()
    assert ("at least every true loss that has a bound" in planned.as_text()) == planned.as_json()["unproven"]


def test_literal_noise_costs_the_root_of_the_weights_more_than_spherical_noise() -> None:
    spherical, literal = (
        float(averaging(kind).true_losses[0].true.removeprefix("at most eps ")) for kind in ("spherical", "literal")
    )
    assert literal == pytest.approx(np.sqrt(3) * spherical, rel=2e-3)


def test_a_published_method_that_states_no_true_loss_has_no_plan() -> None:
    class Silent(Rounds):
        variant = "published"

    plan("s", Rounds(), toy_parties())
    with pytest.raises(ValueError, match="states no true loss beside its claim"):
        plan("s", Silent(), toy_parties())


def test_the_command_prints_both_and_gives_both_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(tmp_path, PUBLISHED)
    (tmp_path / "study.toml").write_text(PUBLISHED)
    assert main(["plan", str(tmp_path / "study.toml")]) == 0
    said = capsys.readouterr().out
    assert "\n  true loss  a record, to each other party: infinite: no epsilon holds; the paper claims" in said
    assert main(["plan", str(tmp_path / "study.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["true_losses"]
    assert {one["to"] for one in found} == {"everyone who sees the coefficients or the model", "each other party"}


def test_the_page_the_card_and_a_result_that_is_read_again_show_both(tmp_path: Path) -> None:
    result = simulated("soft")
    (seen, trusted) = result.plan.true_losses
    again = load_result(result.save(tmp_path / "run"))
    assert again.plan.true_losses == result.plan.true_losses
    for page in (render_result(result), render_result(again)):
        assert "Claimed and true loss" in page
        assert f'<td data-label="claimed">{seen.claimed}</td><td data-label="true">{seen.true}</td>' in page
        assert f'{trusted.claimed}</td><td data-label="true">infinite: no epsilon holds</td>' in page
    assert f"- True loss: {trusted}" in write_card(result, result.presented)
