"""`policy.unproven`: a method that is not private as its authors claim runs where an owner allows it, at the loss that
does hold, and says so everywhere."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from comity.errors import Refused
from comity.federation.coordinator.lifecycle import ready
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit
from comity.site.approval import preview_approval
from comity.site.service import SiteService
from comity.site.site_file import SiteFile
from comity.site.status import Refusals
from comity.study.results.result import Result
from comity.study.study import Study
from tests.support.sites import NAMES, STUDY, Sites, approve, connect_services, execute

PRINTED = 0.6
# Of a tree of depth 3 with 3 levels of counts, a record replaced: 2/6 + 2/6 + 1/2 of what is printed.
CORRECTED = Decimal("0.70")
TREE = 'variant = "published"\ndepth = 3\nlevels = 3'
AVERAGE = 'variant = "published"\nrows = "normalised"\nnoise = "literal"\nkey_bits = 2048\nmost = 64'


def allow(sites: Sites, *lines: str) -> None:
    for name in NAMES:
        path = sites.home(name) / f"{name}.ledger"
        for old in path.parent.glob(f"{name}.ledger*"):
            old.unlink()
        Ledger.create(path, dataset="patients", grant=Pure(3), unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
        sites.write(name, policy="\n".join(lines))
        text = sites.site(name).read_text().replace('variants = ["default"]', 'variants = ["published"]')
        sites.site(name).write_text(text.replace('"softlabel"', '"softlabel", "synthetic"'))


def tree(sites: Sites) -> Study:
    text = STUDY.replace("averaging", "synthetic").replace("delta = 1e-6\n", 'neighbours = "replace"\n')
    return sites.study(epsilon=PRINTED, text=text, table=TREE)


def average(sites: Sites) -> Study:
    text = STUDY.replace("delta = 1e-6\n", 'neighbours = "replace"\ncolluders = 0\n')
    return sites.study(epsilon=0.3, text=text, table=AVERAGE)


def said(sites: Sites) -> str:
    return Refusals(sites.home("north")).last(1)[0].sentence


def test_it_is_off_unless_an_owner_writes_it(sites: Sites) -> None:
    assert not SiteFile.load(sites.site("north")).policy.unproven
    allow(sites)
    study = tree(sites)
    services = sites.services()
    for service in services.values():
        arrival = service.take_in(sites.pack(study))
        with pytest.raises(Refused, match=r"not private as claimed.*policy\.unproven does not allow") as error:
            approve(service, arrival)
        assert (error.value.code, error.value.key) == ("policy", "unproven")
        service.inbox.approve(arrival.study, dataset="patients", runs=1)
    with pytest.raises(Refused) as error:
        ready(connect_services(study, services, sites.coordinator))
    assert (error.value.code, error.value.key) == ("policy", "unproven") and "policy.unproven" in said(sites)


def test_a_method_whose_claim_is_wrong_runs_at_its_corrected_loss(sites: Sites, tmp_path: Path) -> None:
    allow(sites, "unproven = true")
    study = tree(sites)
    services = sites.services()
    for service in services.values():
        arrival = service.take_in(sites.pack(study))
        view = preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1).view
        assert view.cost == "eps 0.70" and f"the paper claims eps {PRINTED:.2f}" in view.as_text()
        assert "NOT PRIVATE AS CLAIMED: see each true loss" in view.as_text() and "  true loss " in view.as_text()
        assert "NOT PRIVATE AS CLAIMED" in study.plan().as_text()
        assert view.as_json()["plan"]["unproven"] is True and view.plan.guarantee == "eps 0.70"
        approve(service, arrival)
    parties = connect_services(study, services, sites.coordinator)
    released, kept = execute(parties)
    for name in NAMES:
        entries = Ledger(sites.home(name) / f"{name}.ledger").entries()
        assert sum(Decimal(one.loss.removeprefix("pure:")) for one in entries if one.kind == "reserve") == CORRECTED
        # Public chance may leave a level without a choice; leaves and counts are always drawn.
        drawn = {one.release: one.loss for one in entries if one.kind == "draw"}
        assert (drawn["leaves"], drawn["counts"]) == ("pure:0.2", "pure:0.3")
        page = json.loads((sites.home(name) / "results" / f"{study.hash[:12]}-run-1" / "received.json").read_text())
        assert page["claim"].startswith("not private as claimed") and page["loss"] == "eps 0.70"
    outcome = Result.of(study.agreement, released, parties.transcript, run="run-1", kept=kept)
    assert not outcome.guarantee.private and outcome.guarantee.epsilon == float(CORRECTED)
    assert "not private as claimed" in str(outcome.guarantee)
    text = outcome.report(tmp_path / "page.html").read_text()
    assert "Not private as claimed" in text and "Ledgers were charged the loss on this page" in text


def test_the_corrected_loss_is_what_a_ceiling_is_compared_with(sites: Sites) -> None:
    allow(sites, "unproven = true")
    path = sites.site("north")
    path.write_text(path.read_text().replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.65"))
    service = SiteService(path)
    with pytest.raises(Refused, match=r"cost eps 0\.70.*policy\.epsilon_per_study is 0\.65"):
        approve(service, service.take_in(sites.pack(tree(sites))))


def test_a_policy_does_not_approve_it_by_itself(sites: Sites) -> None:
    allow(sites, "unproven = true", 'approval = "within-policy"')
    service = SiteService(sites.site("north"))
    arrival = service.take_in(sites.pack(tree(sites)))
    assert arrival.decision is None and "It waits for you" in said(sites)
    service.inbox.approve(arrival.study, dataset="patients", runs=1, why="within the policy")
    service.refresh()
    assert list(service.studies) == []
    approve(service, arrival)
    service.refresh()
    assert list(service.studies) == [arrival.study]


def test_where_nothing_is_bounded_against_somebody_records_must_be_allowed_to_leave(sites: Sites) -> None:
    allow(sites, "unproven = true")
    study = average(sites)
    assert study.plan().exposed.startswith("the party with the fewest records")
    assert "NO BOUND against the party with the fewest records" in study.plan().as_text()
    service = SiteService(sites.site("north"))
    with pytest.raises(
        Refused, match=r"no loss is bounded against the party with the fewest.*records_may_leave"
    ) as error:
        approve(service, service.take_in(sites.pack(study)))
    assert error.value.key == "records_may_leave"
    allow(sites, "unproven = true", "records_may_leave = true")
    services = sites.services()
    for service in services.values():
        arrival = service.take_in(sites.pack(study))
        view = preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1).view
        assert "NO BOUND against" in view.as_text() and "NOT PRIVATE AS CLAIMED" in view.as_text()
        approve(service, arrival)
    execute(connect_services(study, services, sites.coordinator))
    for name in NAMES:
        (account,) = Ledger(sites.home(name) / f"{name}.ledger").summary()
        declared = study.agreement.declaration["noise"].loss
        assert isinstance(declared, Pure) and account.spent_epsilon == declared.epsilon
