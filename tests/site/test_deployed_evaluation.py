"""`[evaluation]` between owners with site files: its cost at approval, what their terms count, and what comes of it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from comity.data import public_cohort
from comity.errors import Refused
from comity.federation.declare.payers import spent_by
from comity.federation.evaluation.figures import Figures
from comity.privacy.ledger import Ledger
from comity.report.result import load_result
from comity.site.approval import preview_approval
from comity.study.results.result import Result
from comity.study.study import Study
from tests.support.sites import NAMES, STUDY, Sites, approve, connect_services, execute

MEASURED = STUDY.replace("[simulation]", "[evaluation]\n\n[simulation]")
PARTY = MEASURED.replace('unit = "record"', 'unit = "party"').replace("averaging", "softlabel")
SUMS = 'statistic = "class-sums"\nsizes = 40\nauxiliary = "public.csv"'


def measured(sites: Sites, **more: Any) -> Study:
    return sites.study(text=MEASURED, **more)


def run(sites: Sites, study: Study) -> Result:
    """As a coordinator does it, over services in this process."""
    services = sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    parties = connect_services(study, services, sites.coordinator)
    released, kept = execute(parties)
    return Result.of(study.agreement, released, parties.transcript, run="run-1", kept=kept)


def test_the_report_says_how_good_the_model_is_and_so_do_the_owners_results(sites: Sites) -> None:
    outcome = run(sites, measured(sites))
    assert outcome.guarantee.private
    outcome.save(sites.folder / "run")
    found = load_result(sites.folder / "run").evaluation
    assert found is not None and {"accuracy", "AUC", "log loss", "squared error"} <= set(found.figures)
    assert all(one.low <= one.value <= one.high for one in found.figures.values())
    assert "Measured under privacy" in (sites.folder / "run" / "report.html").read_text()
    for name in NAMES:
        (page,) = sites.home(name).glob("results/*/received.json")
        assert Figures.from_json(json.loads(page.read_text())["evaluation"]) == found


def test_the_owner_sees_its_release_and_its_cost_before_it_approves_and_pays_that(sites: Sites) -> None:
    study = measured(sites)
    service = sites.services()["north"]
    service.take_in(sites.pack(study))
    view = preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1).view
    (line,) = [one for one in view.leaves if one.release == "evaluation"]
    assert (line.other, line.protection) == ("coordinator", "secure sum + shared noise") and line.loss.startswith("mu ")
    assert "eps 0.90" in view.cost
    assert any("held out" in note and "costs nothing beyond" in note for note in view.plan.notes)
    run(sites, study)
    ledger = Ledger(sites.home("north") / "north.ledger")
    drawn = {entry.release for entry in ledger.entries() if entry.kind == "draw"}
    assert {"gradient", "evaluation"} <= drawn
    (account,) = ledger.summary()
    assert f"left {view.after.removeprefix('eps ')} " in str(account)


@pytest.mark.usefixtures("packs_read_here")
def test_the_policy_counts_it(sites: Sites) -> None:
    """A whole party is in both parts and pays for both: a ceiling that the method alone would keep refuses the pair."""
    (sites.folder / "study").mkdir()
    public_cohort(30, "evaluation").to_csv(sites.folder / "study" / "public.csv", index=False)
    study = sites.study(text=PARTY, table=SUMS, epsilon=0.3)
    delta, consortium = Decimal("1e-5"), study.consortium
    alone, both = (
        spent_by(made, "north", consortium, runs=1).epsilon_at(delta)
        for made in (study.protocol.declare(consortium), study.agreement.declaration)
    )
    assert alone < both
    home = sites.site("north")
    text = home.read_text()
    for ceiling in (both + Decimal("0.001"), (alone + both) / 2):
        home.write_text(text.replace("epsilon_per_study = 1.0", f"epsilon_per_study = {ceiling:.6f}"))
        service = sites.services()["north"]
        service.take_in(sites.pack(study))
        if ceiling > both:
            preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1)
        else:
            with pytest.raises(Refused, match=r"policy\.epsilon_per_study is") as refusal:
                preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1)
            assert refusal.value.key == "epsilon_per_study"
