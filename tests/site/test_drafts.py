"""Bounds that were drafted from records: neither packed nor submitted, and refused by a site whatever it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from comity.cli import main
from comity.data import clinic_schema
from comity.errors import Refused
from comity.federation.declare.policy import SIMULATION, Policy
from comity.site.pack import pack, require_confirmed
from comity.study.drafting.draft import mark_drafts
from comity.study.study import Study
from tests.site.test_pack import files_of, forged
from tests.support.sites import Sites, approve, keys_table


def drafted(sites: Sites) -> Study:
    """The study with a schema whose bounds are marked."""
    path = Path(sites.study().where)
    schema = mark_drafts(clinic_schema("readmitted"))
    (path.parent / "schema.toml").write_text(schema.to_toml())
    return Study.load(path)


def forged_draft(sites: Sites) -> bytes:
    """A drafted study from a coordinator that does not use our pack."""
    files = files_of(sites.pack(sites.study()))
    files["schema.toml"] = mark_drafts(clinic_schema("readmitted")).to_toml().encode()
    return forged(sites, files)


def test_a_drafted_study_is_not_packed_before_every_mark_is_gone(sites: Sites) -> None:
    study = drafted(sites)
    with pytest.raises(Refused, match=r"age, sex.*delete its line draft = true") as caught:
        pack(study, sites.coordinator)
    assert caught.value.code == "draft" and str(study.folder / "schema.toml") in str(caught.value)
    text = (study.folder / "schema.toml").read_text()
    (study.folder / "schema.toml").write_text(text.replace("draft = true\n", "", text.count("draft = true") - 1))
    with pytest.raises(Refused, match="marks readmitted as a draft"):
        require_confirmed(Study.load(study.where))
    (study.folder / "schema.toml").write_text(text.replace("draft = true\n", ""))
    confirmed = Study.load(study.where)
    assert pack(confirmed, sites.coordinator)
    # What is confirmed is another agreement than the draft, and the one that never was a draft.
    assert confirmed.hash == sites.study().hash != study.hash


def test_the_commands_refuse_a_draft(sites: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    study, key = drafted(sites), str(sites.folder / "coordinator.key")
    for command in ("pack", "submit"):
        assert main(["study", command, study.where, "--keys", key]) == 4
        assert "as a draft" in capsys.readouterr().err
    assert main(["plan", study.where]) == 0
    assert "are a draft" in capsys.readouterr().out


def test_a_site_does_not_approve_a_draft(sites: Sites) -> None:
    service = sites.services(("north",))["north"]
    arrival = service.take_in(forged_draft(sites))
    with pytest.raises(Refused, match=r"marks age, sex.* as a draft") as caught:
        approve(service, arrival)
    assert (caught.value.code, caught.value.key) == ("policy", "schema")
    approve(service, service.take_in(sites.pack(sites.study())))


def test_a_site_that_approves_by_itself_leaves_a_draft_to_its_owner(sites: Sites) -> None:
    sites.write("north", policy='approval = "within-policy"')
    pinned = f"\n[pinned.south]\n{keys_table(sites.identity('south'))}\n"
    sites.site("north").write_text(sites.site("north").read_text() + pinned)
    service = sites.services(("north",))["north"]
    assert service.take_in(forged_draft(sites)).decision is None
    assert service.take_in(sites.pack(sites.study())).decision is not None


def test_only_a_simulation_allows_drafts(sites: Sites) -> None:
    consortium = drafted(sites).consortium
    SIMULATION.check_drafts(consortium)
    with pytest.raises(Refused, match="its author must replace them by public knowledge"):
        Policy().check_drafts(consortium)
    Policy().check_drafts(sites.study().consortium)
