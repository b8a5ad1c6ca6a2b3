"""A submitter that invents parties: what an owner's policy decides about its study, and what the owner is shown."""

from __future__ import annotations

import pytest

from comity.crypto.sealing import Identity
from comity.errors import Refused, StudyError
from comity.site.approval import OwnersView, preview_approval
from comity.site.inbox import WITHIN_POLICY, Arrival
from comity.site.service import SiteService
from comity.site.site_file import SiteFile
from comity.site.status import Refusals
from comity.study.study import Study
from tests.support.sites import STUDY, Sites, approve, connect_services, execute, keys_table

POLICY = 'approval = "within-policy"'


def invented(
    sites: Sites, *, parties: int, colluders: int = 1, names: tuple[str, ...] = (), at: str = "fakes"
) -> Study:
    """A study of north, of parties whose keys its submitter made, and of real ones."""
    text = STUDY.replace("delta = 1e-6", f"delta = 1e-6\ncolluders = {colluders}")
    fakes = (f"fake-{place}" for place in range(parties - 1 - len(names)))
    more = "".join(f"[parties.{name}.keys]\n{keys_table(Identity())}\n" for name in fakes)
    return sites.study(text=text.replace("[averaging]", more + "[averaging]"), names=("north", *names), at=at)


def pin(sites: Sites, name: str, *others: str, policy: str = POLICY) -> None:
    """Let an owner pin keys of others."""
    sites.write(name, policy=policy)
    path = sites.site(name)
    path.write_text(path.read_text() + "".join(f"\n[pinned.{o}]\n{keys_table(sites.identity(o))}\n" for o in others))


def said(sites: Sites) -> str:
    return Refusals(sites.home("north")).last(1)[0].sentence


def view(service: SiteService, arrival: Arrival) -> OwnersView:
    study = service.inbox.study(arrival.study)
    return preview_approval(service.site, service.site.owner(), study, dataset="patients", runs=1).view


@pytest.mark.usefixtures("packs_read_here")
@pytest.mark.parametrize("parties", [3, 50, 300])
def test_a_study_of_invented_parties_waits_for_a_hand(sites: Sites, parties: int) -> None:
    sites.write("north", policy=POLICY)
    service = SiteService(sites.site("north"))
    arrival = service.take_in(sites.pack(invented(sites, parties=parties)))
    assert arrival.decision is None and service.studies == ()
    assert f"you know 0 of {parties - 1} other parties" in said(sites) and "comity site approve" in said(sites)
    shown = view(service, arrival)
    assert shown.parties.unknown == tuple(f"fake-{place}" for place in range(parties - 1))
    assert shown.noise_left == pytest.approx(1 / (parties - 1))
    assert "WARNING" in shown.as_text() and "may have invented them" in shown.as_text()


def test_a_study_that_counts_them_as_colluders_is_accepted(sites: Sites) -> None:
    sites.write("north", policy=POLICY)
    service = SiteService(sites.site("north"))
    few = service.take_in(sites.pack(invented(sites, parties=4, colluders=2)))
    all_of_them = service.take_in(sites.pack(invented(sites, parties=4, colluders=3, at="more")))
    assert few.decision is None
    assert all_of_them.decision is not None and all_of_them.decision.why == WITHIN_POLICY
    assert "have invented" not in view(service, all_of_them).as_text()


def test_a_pinned_party_counts_and_one_more_colluder_is_needed_beside_unknown_ones(sites: Sites) -> None:
    """South reads the result and knows its own part of the noise; the invented party adds none."""
    pin(sites, "north", "south")
    service = SiteService(sites.site("north"))
    short = service.take_in(sites.pack(invented(sites, parties=3, names=("south",))))
    assert short.decision is None and "you know 1 of 2" in said(sites) and "2 would cover them" in said(sites)
    enough = service.take_in(sites.pack(invented(sites, parties=3, colluders=2, names=("south",), at="more")))
    assert enough.decision is not None and enough.decision.decision == "approved"


def test_an_approval_by_the_policy_ends_with_the_pin_that_it_rests_on(sites: Sites) -> None:
    west = keys_table(Identity())
    text = STUDY.replace("[averaging]", f"[parties.west.keys]\n{west}\n[averaging]")
    study = sites.study(text=text)
    pin(sites, "north", "south")
    path = sites.site("north")
    path.write_text(path.read_text() + f"\n[pinned.west]\n{west}\n")
    service = SiteService(path)
    assert service.take_in(sites.pack(study)).approval is not None and list(service.studies) == [study.hash]
    pin(sites, "north", "south")
    service.refresh()
    assert list(service.studies) == [] and "you know 1 of 2 other parties" in said(sites)


def test_a_policy_does_not_serve_what_it_would_not_approve_any_more(sites: Sites) -> None:
    pin(sites, "north", "south")
    study = invented(sites, parties=4, colluders=3, names=("south",))
    service = SiteService(sites.site("north"))
    assert service.take_in(sites.pack(study)).approval is not None
    short = invented(sites, parties=4, colluders=2, names=("south",), at="short")
    arrival = service.take_in(sites.pack(short))
    assert arrival.decision is None
    # As an earlier version would have decided.
    service.inbox.approve(arrival.study, dataset="patients", runs=1, why=WITHIN_POLICY)
    service.refresh()
    assert service.studies == (study.hash,) and "might add no noise" in said(sites)
    # The owner's own hand decides otherwise.
    approve(service, arrival)
    service.refresh()
    assert set(service.studies) == {study.hash, short.hash}


def test_an_owner_sees_every_party_with_its_fingerprint(sites: Sites) -> None:
    pin(sites, "north", "south", policy="")
    service = SiteService(sites.site("north"))
    shown = view(service, service.take_in(sites.pack(invented(sites, parties=4, names=("south",)))))
    text, document = shown.as_text(), shown.as_json()
    assert "you know 1 of 3 other parties" in text and document["parties_known"] == 1
    standing = {one["name"]: one["standing"] for one in document["parties"]}
    assert standing == {"north": "you", "south": "pinned", "fake-0": "not pinned", "fake-1": "not pinned"}
    for one in document["parties"]:
        line = next(line for line in text.splitlines() if line.split()[:1] == [one["name"]])
        assert one["fingerprint"] in line and line.endswith(one["standing"])
    for name in ("north", "south"):
        assert sites.identity(name).public.fingerprint in text
    assert sites.coordinator.public.fingerprint in text


def test_a_consortium_whose_owners_pinned_each_other_runs_by_policy(sites: Sites) -> None:
    for name, other in (("north", "south"), ("south", "north")):
        pin(sites, name, other)
    study = sites.study()
    services = sites.services()
    for service in services.values():
        assert service.take_in(sites.pack(study)).approval is not None
    values, _ = execute(connect_services(study, services, sites.coordinator))
    assert "model" in values


# Names that look alike.


@pytest.mark.parametrize("name", ["sou\\u200bth", "s\\u03BFuth", "south ", "SOUTH"])
def test_a_pin_is_not_passed_by_a_name_that_looks_like_it(sites: Sites, name: str) -> None:
    pin(sites, "north", "south", policy="")
    folder = sites.folder / "study"
    sites.study()
    text = (folder / "study.toml").read_text()
    swapped = text.replace("[parties.south.keys]", f'[parties."{name}".keys]')
    swapped = swapped.replace(keys_table(sites.identity("south")), keys_table(Identity()))
    assert swapped != text
    (folder / "study.toml").write_text(swapped)
    service = SiteService(sites.site("north"))
    if name == "SOUTH":
        with pytest.raises(Refused, match=r"another key of SOUTH than \[pinned.south\]"):
            service.take_in(sites.pack(Study.load(folder / "study.toml")))
        return
    with pytest.raises(StudyError, match=r"study\.toml: the name of a party.*rename"):
        Study.load(folder / "study.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('party = "north"', 'party = "n\\u200borth"', r"site\.toml: the name of a party"),
        ("[pinned.coordinator]", '[pinned."coordin\\u0430tor"]', "name of a party|submitters names"),
        ("[pinned.coordinator]", '[pinned.south]\nsign=""\nmlkem=""\nx25519=""\n[pinned.South]', "are the same name"),
    ],
)
def test_a_site_file_has_the_same_rule(sites: Sites, old: str, new: str, said: str) -> None:
    path = sites.site("north")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(StudyError, match=said):
        SiteFile.load(path)
