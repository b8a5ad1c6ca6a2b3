"""A site answers what its owner approved and nothing else; each refusal has its code for others and a sentence here."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import pytest

from comity.errors import BadInput, BudgetExceeded, DataError, Refused, Stopped, StudyError
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin as begun
from comity.federation.coordinator.lifecycle import ready
from comity.federation.coordinator.parties import Parties
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.site import service as service_module
from comity.site.inbox import WITHIN_POLICY, Inbox
from comity.site.service import ENDPOINTS, SiteService, lock_ledger, open_endpoint
from comity.site.site_file import SiteFile
from comity.site.status import MAX_BYTES, Refusals, end_run, list_runs
from comity.study.results.released import load_received
from tests.support.sites import NAMES, STUDY, Sites, approve, connect_services, execute, write_invitation

PUBLISHED = 'variant = "published"\nrows = "normalised"'


def ledger(sites: Sites, name: str) -> Ledger:
    return Ledger(sites.home(name) / f"{name}.ledger")


def heads(sites: Sites) -> dict[str, Any]:
    return {name: ledger(sites, name).commit_head() for name in NAMES}


def begin(sites: Sites, study: Any, services: Any, **more: Any) -> Refused:
    """The refusal of a run that spends and reserves nothing."""
    before = heads(sites)
    with pytest.raises(Refused) as refusal:
        execute(connect_services(study, services, sites.coordinator, **more))
    assert heads(sites) == before
    return refusal.value


def approved(sites: Sites, study: Any, *, runs: int = 1) -> dict[str, SiteService]:
    services, raw = sites.services(), sites.pack(study)
    for service in services.values():
        service.inbox.approve(service.take_in(raw).study, dataset="patients", runs=runs)
    return services


def sentence(sites: Sites, name: str = "north") -> str:
    return Refusals(sites.home(name)).last(1)[0].sentence


# A whole study.


def test_a_study_that_all_owners_approved_runs_and_leaves_each_its_results(sites: Sites) -> None:
    study = sites.study()
    services = approved(sites, study)
    assert all(service.studies == () for service in services.values()), "before the next ask nothing is looked at"
    values, _ = execute(connect_services(study, services, sites.coordinator))
    for name in NAMES:
        folder = sites.home(name) / "results" / f"{study.hash[:12]}-run-1"
        found, model = load_received(folder)
        np.testing.assert_array_equal(found.releases["model"], values["model"])
        assert model is not None and json.loads((folder / "received.json").read_text())["missing"] == []
        (account,) = ledger(sites, name).summary()
        assert account.spent_epsilon > 0 and account.reserved_epsilon == 0
        (run,) = list_runs(ledger(sites, name))
        assert (run.run, run.dataset, run.state) == ("run-1", "patients", "closed") and run.is_of(study.hash)
    assert Refusals(sites.home("north")).last(9) == []
    # Of a process that was killed before it wrote them: they are written when the site serves again.
    (sites.home("north") / "results" / f"{study.hash[:12]}-run-1" / "received.json").unlink()
    SiteService(sites.site("north"))
    assert load_received(sites.home("north") / "results" / f"{study.hash[:12]}-run-1")[1] is not None


# Refusals. In each of them nobody reserves anything.


def test_a_study_that_was_not_approved_is_refused(sites: Sites) -> None:
    study = sites.study()
    services = sites.services()
    for name, service in services.items():
        arrival = service.take_in(sites.pack(study))
        if name != "north":
            approve(service, arrival)
    refusal = begin(sites, study, services)
    assert (refusal.code, refusal.party) == ("study", "north")
    assert "not served here" in sentence(sites) and study.hash[:12] in sentence(sites)
    # Control: with its approval it runs, under the same id.
    approve(services["north"], services["north"].inbox.find(study.hash))
    ready(connect_services(study, services, sites.coordinator))


def test_a_study_that_was_changed_after_its_approval_is_refused(sites: Sites) -> None:
    study = sites.study()
    approved(sites, study)
    path = sites.home("north") / "studies" / study.hash / "study" / "study.toml"
    path.write_text(path.read_text().replace("epsilon = 0.9", "epsilon = 0.99"))
    services = sites.services()
    assert "were changed after it arrived" in sentence(sites)
    assert begin(sites, study, services).code == "study"
    # Nor is the changed one served, under its own hash.
    assert begin(sites, sites.study(epsilon=0.99), services).code == "study"


def test_another_study_of_the_same_name_is_another(sites: Sites) -> None:
    services = approved(sites, sites.study())
    assert begin(sites, sites.study(epsilon=0.8), services).code == "study"


def test_not_one_run_more_than_approved(sites: Sites) -> None:
    study = sites.study(epsilon=0.3)
    services = approved(sites, study)
    begun(connect_services(study, services, sites.coordinator))
    assert begin(sites, study, services, run="run-2").code == "approval"
    assert "approved for 1 run here, and 1 have begun" in sentence(sites)
    for service in services.values():
        with pytest.raises(BadInput, match=r"has started 1 runs here.*give 2 or more"):
            approve(service, service.inbox.find(study.hash), runs=1)
        approve(service, service.inbox.find(study.hash), runs=2)
    ready(connect_services(study, services, sites.coordinator, run="run-2"))


def test_a_period_that_is_used_up_is_refused(sites: Sites) -> None:
    for name in NAMES:
        sites.write(name, policy="epsilon_per_period = 0.9\nperiod_days = 30")
    first, second = sites.study(epsilon=0.6), sites.study(epsilon=0.9, at="second")
    services = approved(sites, first)
    for service in services.values():
        approve(service, service.take_in(sites.pack(second)))
    begun(connect_services(first, services, sites.coordinator))
    refusal = begin(sites, second, services, run="run-2")
    assert (refusal.code, refusal.key) == ("policy", "epsilon_per_period")
    assert "the studies of the last 30 days cost patients eps" in sentence(sites)
    # The owner would be told the same before it approves.
    third = sites.study(epsilon=0.85, at="third")
    arrival = services["north"].take_in(sites.pack(third))
    with pytest.raises(Refused, match="epsilon_per_period"):
        approve(services["north"], arrival)
    for name in NAMES:
        sites.write(name, policy="epsilon_per_period = 1.5\nperiod_days = 30")
    ready(connect_services(second, services, sites.coordinator, run="run-2"))


POLICIES = {
    "submitters": ('submitters = ["coordinator"]', "submitters = []"),
    "protocols": ('["averaging", "softlabel"]', '["softlabel"]'),
    "variants": ('variants = ["default"]', 'variants = ["published"]'),
    "epsilon_per_study": ("epsilon_per_study = 1.0", "epsilon_per_study = 0.5"),
}


@pytest.mark.parametrize("key", POLICIES)
def test_a_policy_that_became_narrower_counts_from_the_next_ask_on(sites: Sites, key: str) -> None:
    study = sites.study()
    services = approved(sites, study)
    path = sites.site("north")
    text = path.read_text()
    path.write_text(text.replace(*POLICIES[key]))
    refusal = begin(sites, study, services)
    assert (refusal.code, refusal.key, refusal.party) == ("policy", key, "north")
    assert f"policy.{key}" in sentence(sites)
    path.write_text(text)
    ready(connect_services(study, services, sites.coordinator))


def test_a_variant_that_is_not_allowed_can_not_be_approved_either(sites: Sites) -> None:
    study = sites.study(table=PUBLISHED, text=STUDY.replace("delta = 1e-6", "colluders = 0"))
    service = SiteService(sites.site("north"))
    with pytest.raises(Refused) as refusal:
        approve(service, service.take_in(sites.pack(study)))
    assert refusal.value.key == "variants" and service.inbox.find(study.hash).decision is None


def test_what_the_ledger_can_not_pay_is_refused_with_the_figures_at_home(sites: Sites) -> None:
    study = sites.study(epsilon=0.9)
    north = ledger(sites, "north")
    north.write_off(Approx("2.9", 1e-5), "for the test")
    services = sites.services()
    with pytest.raises(BudgetExceeded, match="is left"):
        approve(services["north"], services["north"].take_in(sites.pack(study)))
    # Approved before the budget went elsewhere: refused when it is to begin.
    for name, service in services.items():
        if name != "north":
            approve(service, service.take_in(sites.pack(study)))
    services["north"].inbox.approve(study.hash, dataset="patients", runs=1)
    refusal = begin(sites, study, services)
    assert refusal.code == "budget" and "left" not in str(refusal)
    assert "is left" in sentence(sites)


def test_records_that_do_not_fit_are_told_before_the_approval(sites: Sites) -> None:
    study = sites.study()
    path = sites.home("north") / "patients.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace("readmitted", "returned"), *lines[1:]]))
    service = SiteService(sites.site("north"))
    with pytest.raises(DataError, match="readmitted"):
        approve(service, service.take_in(sites.pack(study)))
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        approve(service, service.inbox.find(study.hash))
    assert service.inbox.find(study.hash).decision is None


# Decisions while it serves.


def when(parties: Parties, step: str, deed: Any) -> Parties:
    """An owner does something just before a step is asked for."""
    parties.progress = lambda path: deed() if path == step else None
    return parties


def freed(sites: Sites) -> None:
    for name in NAMES:
        if name != "north":
            (account,) = ledger(sites, name).summary()
            assert account.reserved_epsilon == 0 and account.spent_epsilon > 0, "what was drawn stays spent"


def test_an_approval_that_is_withdrawn_in_the_middle_ends_the_run_for_all(sites: Sites) -> None:
    study = sites.study()
    parties = connect_services(study, approved(sites, study), sites.coordinator)
    box = Inbox(sites.home("north"))
    with pytest.raises(Refused, match=r"north refused.*study"):
        execute(when(parties, "gradient[0]", lambda: box.refuse(study.hash, "second thoughts")))
    freed(sites)
    assert [run.state for run in list_runs(ledger(sites, "north"))] == ["open"], "until its owner ends it"
    end_run(ledger(sites, "north"), "run-1")
    assert ledger(sites, "north").summary()[0].reserved_epsilon == 0


def test_a_run_that_its_owner_ended_is_over_for_all(sites: Sites) -> None:
    study = sites.study()
    parties = connect_services(study, approved(sites, study), sites.coordinator)
    own = ledger(sites, "north")
    with pytest.raises(Refused, match=r"north refused.*closed"):
        execute(when(parties, "gradient[0]", lambda: end_run(own, f"{study.hash[:12]}/run-1")))
    freed(sites)
    assert own.summary()[0].reserved_epsilon == 0
    with pytest.raises(BadInput, match="no open run is called 'run-1'; open are: none"):
        end_run(own, "run-1")


def test_a_run_id_of_several_studies_is_named_with_its_study(sites: Sites) -> None:
    studies = [sites.study(epsilon=epsilon, at=f"study {epsilon}") for epsilon in (0.3, 0.4)]
    for study in studies:
        parties = connect_services(study, approved(sites, study), sites.coordinator)
        with pytest.raises(Stopped, match="cancelled"):
            execute(when(parties, "second_moment[0]", parties.cancel))
    own = ledger(sites, "north")
    with pytest.raises(BadInput, match="2 open runs are called 'run-1'"):
        end_run(own, "run-1")
    assert end_run(own, f"{studies[1].hash[:8]}/run-1").is_of(studies[1].hash)
    assert end_run(own, "run-1").is_of(studies[0].hash)


def test_a_site_file_that_breaks_stops_the_desk_until_it_is_mended(sites: Sites) -> None:
    """And ends no run: a site that is asked meanwhile decides nothing."""
    study = sites.study()
    services, journal, path = approved(sites, study), Journal(), sites.site("north")
    text = path.read_text()
    parties = connect_services(study, services, sites.coordinator, journal=journal)
    with pytest.raises(Stopped, match="north"):
        execute(when(parties, "gradient[0]", lambda: path.write_text(text.replace("epsilon_per_s", "epsilon_per_z"))))
    assert services["north"].studies == ()
    assert any("epsilon_per_ztudy" in one.sentence for one in Refusals(sites.home("north")).last(9))
    # Nor does it take studies in, by terms that may not hold any more.
    with pytest.raises(Refused, match="can't be used"):
        services["north"].take_in(sites.pack(sites.study(epsilon=0.8, at="second")))
    # A decision does not open it: it would be served by the terms that were read last.
    services["north"].inbox.approve(study.hash, dataset="patients", runs=5)
    with pytest.raises(Stopped, match="north"):
        execute(connect_services(study, services, sites.coordinator, journal=journal))
    assert services["north"].studies == ()
    path.write_text(text)
    execute(connect_services(study, services, sites.coordinator, journal=journal))


def test_a_site_whose_ledger_was_missing_for_a_moment_opens_by_itself(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in its site file or its decisions changes by that. What it is closed for is written down once."""
    study = sites.study()
    services = approved(sites, study)
    path, text = sites.site("north"), sites.site("north").read_text()
    own = ledger(sites, "north").path
    assert own is not None
    away = own.rename(own.with_suffix(".away"))
    path.write_text(text + "\n")
    served = []
    for seconds in (5.0, 5.0, 0.0):
        monkeypatch.setattr(service_module, "RETRY_SECONDS", seconds)
        services["north"].refresh()
        served.append(services["north"].studies)
        if not own.exists():
            away.rename(own)
    assert served == [(), (), (study.hash,)]
    assert len(Refusals(sites.home("north")).last(9)) == 1
    path.write_text(text.replace("epsilon_per_s", "epsilon_per_z"))
    for _ in range(3):
        services["north"].refresh()
    assert len(Refusals(sites.home("north")).last(9)) == 2


def test_what_a_killed_site_left_in_its_inbox_goes_with_the_next_study(sites: Sites) -> None:
    folder = sites.services()["north"].inbox.folder
    for name, age in (("old", 3600), ("young", 5)):
        (folder / f".new-{name}" / "study").mkdir(parents=True)
        os.utime(folder / f".new-{name}", (time.time() - age,) * 2)
    sites.services()["north"].take_in(sites.pack(sites.study()))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".new-young"]


def test_a_site_that_starts_again_in_the_middle_goes_on(sites: Sites) -> None:
    study = sites.study()
    services: dict[str, Any] = {**approved(sites, study)}
    journal = Journal()
    parties = connect_services(study, services, sites.coordinator, journal=journal)
    with pytest.raises(Stopped, match="cancelled"):
        execute(when(parties, "gradient[0]", parties.cancel))
    values, _ = execute(connect_services(study, sites.services(), sites.coordinator, journal=journal))
    draws = [entry.release for entry in ledger(sites, "north").entries() if entry.kind == "draw"]
    assert "model" in values and sorted(set(draws)) == ["calibration", "gradient", "second_moment", "whitened_moment"]


def test_a_site_that_starts_again_with_other_records_does_not_go_on_with_a_run(sites: Sites) -> None:
    """Steps that ran are not run again: what they made of the old records would be mixed with the new ones."""
    study = sites.study()
    services: dict[str, Any] = {**approved(sites, study)}
    journal, path = Journal(), sites.home("north") / "patients.csv"
    parties = connect_services(study, services, sites.coordinator, journal=journal)
    with pytest.raises(Stopped, match="cancelled"):
        execute(when(parties, "gradient[0]", parties.cancel))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[1:-1]), lines[-2]]) + "\n")
    before = ledger(sites, "north").commit_head()
    with pytest.raises(Stopped, match=r"north.*stopped"):
        execute(connect_services(study, sites.services(), sites.coordinator, journal=journal))
    assert ledger(sites, "north").commit_head() == before, "nothing is drawn"
    assert "run run-1 began with other records than are there now" in sentence(sites)
    # Another run may begin with them; this one goes on with its own, in however other a file.
    path.write_text("\n".join(lines) + "\n\n")
    values, _ = execute(connect_services(study, sites.services(), sites.coordinator, journal=journal))
    assert "model" in values


def test_a_run_whose_records_are_gone_can_still_be_ended(sites: Sites) -> None:
    study = sites.study()
    parties = connect_services(study, approved(sites, study), sites.coordinator, journal=(journal := Journal()))
    with pytest.raises(Stopped, match="cancelled"):
        execute(when(parties, "run.end[0]", parties.cancel))
    (sites.home("north") / "patients.csv").unlink()
    values, _ = execute(connect_services(study, sites.services(), sites.coordinator, journal=journal))
    assert "model" in values and list_runs(ledger(sites, "north"))[0].state == "closed"


# Datasets.


def test_an_approval_binds_a_study_to_one_dataset(sites: Sites) -> None:
    with sites.site("north").open("a") as file:
        file.write('[data.visits]\nsource = "csv"\npath = "visits.csv"\n')
    (sites.home("north") / "visits.csv").write_bytes((sites.home("north") / "patients.csv").read_bytes())
    ledger(sites, "north").add_dataset(
        dataset="visits", grant=Approx(1, 1e-5), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    study = sites.study()
    services = sites.services()
    for name, service in services.items():
        arrival = service.take_in(sites.pack(study))
        if name == "north":
            with pytest.raises(BadInput, match=r"patients, visits.*--dataset"):
                approve(service, arrival)
        approve(service, arrival, dataset="visits" if name == "north" else None)
    begun(connect_services(study, services, sites.coordinator))
    reserved = {account.dataset: account.reserved_epsilon for account in ledger(sites, "north").summary()}
    assert reserved["visits"] > 0 and reserved["patients"] == 0


# Approval within the policy.


def test_a_policy_that_decides_approves_what_it_allows_once(sites: Sites) -> None:
    for name in NAMES:
        sites.write(name, policy='approval = "within-policy"')
    study, dear = sites.study(), sites.study(epsilon=1.5, at="dear")
    services = sites.services()
    for service in services.values():
        decision = service.take_in(sites.pack(study)).decision
        assert decision is not None and (decision.runs, decision.why) == (1, WITHIN_POLICY)
        waiting = service.take_in(sites.pack(dear))
        assert waiting.decision is None and not waiting.read
    assert "epsilon_per_study" in sentence(sites)
    begun(connect_services(study, services, sites.coordinator))
    assert begin(sites, study, services, run="run-2").code == "approval"
    # The same pack again is no new approval, and what its owner refused stays refused.
    services["north"].inbox.refuse(study.hash, "enough")
    decision = services["north"].take_in(sites.pack(study)).decision
    assert decision is not None and decision.decision == "refused"


# What is written down.


def test_strangers_make_the_site_write_no_more_than_its_file_holds(sites: Sites) -> None:
    service = SiteService(sites.site("north"))
    for raw in (b"", b"x" * 200, os.urandom(300)):
        assert service.answer(raw).refusal is not None
    noted = Refusals(sites.home("north"))
    assert [one.code for one in noted.last(3)] == ["sealed"] * 3
    path = sites.home("north") / "refusals.jsonl"
    assert path.stat().st_mode & 0o077 == 0
    error = Refused("x" * 5_000, code="study")
    for _ in range(2 * MAX_BYTES // 2_000):
        noted.record(error, study="\x1b[31m" * 9, run="r")
    sizes = [each.stat().st_size for each in sites.home("north").glob("refusals.jsonl*")]
    assert len(sizes) == 2 and sum(sizes) < 2 * MAX_BYTES + 10_000
    assert "\x1b" not in noted.last(1)[0].study


# Engines.


def test_serving_takes_any_endpoint(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    study = sites.study()

    class InProcess:
        served: list[SiteService] = []

        def serve(self, service: SiteService) -> None:
            self.served.append(service)

    monkeypatch.setitem(ENDPOINTS, "here", lambda site: InProcess())
    for name in NAMES:
        sites.write(name, top=write_invitation(sites.home(name), "here://service"))
        service = SiteService(sites.site(name))
        approve(service, service.take_in(sites.pack(study)))
        open_endpoint(service.site).serve(service)
    ready(connect_services(study, dict(zip(NAMES, InProcess.served)), sites.coordinator))


def test_one_process_serves_with_a_ledger(sites: Sites) -> None:
    """Two would answer two asks of one run at once."""
    north, south = (SiteFile.load(sites.site(name)) for name in NAMES)
    with (
        lock_ledger(north),
        lock_ledger(south),
        pytest.raises(BadInput, match="another process serves with this ledger"),
    ):
        lock_ledger(north, timeout=0.0).__enter__()
    with lock_ledger(north, timeout=0.0):
        assert ledger(sites, "north").summary()


@pytest.mark.parametrize("address", ["tls:x", "ftp://x"])
def test_an_address_without_an_engine_is_named(sites: Sites, address: str) -> None:
    sites.write("north", top=write_invitation(sites.home("north"), address))
    with pytest.raises(BadInput, match="no transport") as error:
        open_endpoint(SiteFile.load(sites.site("north")))
    assert error.value.key == "invitation"


def test_an_invitation_that_is_missing_is_named(sites: Sites) -> None:
    for top, said in (
        ("", "invitation is missing"),
        ('invitation = "elsewhere.toml"\n', "there is no invitation here"),
    ):
        sites.write("north", top=top)
        with pytest.raises(StudyError, match=said) as error:
            open_endpoint(SiteFile.load(sites.site("north")))
        assert error.value.key == "invitation"


def test_a_site_file_of_the_time_of_certificates_is_told_the_way_over(sites: Sites) -> None:
    sites.write("north", top='[relay]\naddress = "tls://127.0.0.1:4222"\ncertificate = "relay/certificate.pem"\n')
    with pytest.raises(StudyError, match="Coming from certificates") as error:
        SiteFile.load(sites.site("north"))
    assert error.value.key == "relay"


def test_a_site_without_the_client_of_the_relay_is_refused_at_its_start(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the agent's process imports nats-py: without this check its absence would show in a log alone, again and
    again, while the site seems to serve."""
    sites.write("north", top=write_invitation(sites.home("north")))
    site = SiteFile.load(sites.site("north"))
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(StudyError, match=r"pip install 'comity\[deploy\]'") as error:
        open_endpoint(site)
    assert error.value.key == "invitation"
    monkeypatch.undo()
    open_endpoint(site)  # the control: with the client it can connect


def test_what_a_site_keeps_is_its_owners_alone(sites: Sites) -> None:
    SiteService(sites.site("north")).take_in(sites.pack(sites.study()))
    assert (sites.home("north") / "studies").stat().st_mode & 0o077 == 0
