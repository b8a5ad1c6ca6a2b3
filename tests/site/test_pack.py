"""A study in one signed file: what is in it, whose it must be, and names that would lead elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.crypto.public_block import block_text
from comity.crypto.sealing import Identity
from comity.errors import BadInput, ComityError, Malformed, Refused, StudyError
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.messages.wire_format import OTHER_RELEASE, WIRE_FORMAT
from comity.relay.deployment import _Deliveries
from comity.site.inbox import Arrival, Inbox
from comity.site.pack import _signed, pack, unpack
from comity.site.site_file import SiteFile
from comity.study.study import Study
from tests.support.sites import STUDY, Sites, keys_table


def receive(sites: Sites, raw: bytes, name: str = "north") -> Arrival:
    site = SiteFile.load(sites.site(name))
    return Inbox(site.home).receive(raw, party=name, key=sites.identity(name).public, policy=site.policy)


def forged(sites: Sites, files: Any, **more: Any) -> bytes:
    """A pack as a submitter makes it who does not use ours."""
    body = encode({"format": f"comity-study-{WIRE_FORMAT}", "files": files, **more})
    return body + sites.coordinator.sign(_signed(body))


def files_of(raw: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = decode(raw[:-SIGNATURE_BYTES])["files"]
    return found


def everything(sites: Sites) -> set[Path]:
    return {path.relative_to(sites.folder) for path in sites.folder.rglob("*")}


def test_a_study_arrives_as_it_was_packed_and_without_its_simulation(sites: Sites) -> None:
    study = sites.study()
    raw = sites.pack(study)
    assert set(files_of(raw)) == {"study.toml", "schema.toml"} and b"/private/of/the/author" not in raw
    arrival = receive(sites, raw)
    assert (arrival.study, arrival.name, arrival.submitter) == (study.hash, "readmission", "coordinator")
    assert arrival.decision is None and not arrival.read
    assert Inbox(sites.home("north")).study(study.hash).hash == study.hash
    # Again it is the same arrival, decided or not.
    Inbox(sites.home("north")).refuse(study.hash, "no")
    assert receive(sites, raw).decision is not None


def test_a_study_takes_public_blocks_as_they_are_and_its_hash_ignores_relay_keys(sites: Sites) -> None:
    """An organisation may move to another relay, or to none: what owners approved is the same study."""
    study = sites.study()
    blocks = [block_text(name, sites.identity(name)) for name in study.consortium.parties]
    blocks.append(block_text("coordinator", sites.coordinator))
    (study.folder / "study.toml").write_text(study.text.partition("[parties.")[0] + "\n".join(blocks))
    pasted = Study.load(study.folder / "study.toml")
    assert "relay = " in pasted.text and pasted.hash == study.hash
    assert receive(sites, sites.pack(pasted)).study == study.hash


def test_no_byte_of_a_pack_can_be_changed(sites: Sites) -> None:
    raw = sites.pack(sites.study())
    before = everything(sites)
    for place in range(0, len(raw), 97):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        with pytest.raises(Refused, match=r"none of policy\.submitters"):
            receive(sites, changed)
    for short in (b"", raw[:10], raw[:-1], raw[SIGNATURE_BYTES:]):
        with pytest.raises(Refused, match=r"none of policy\.submitters"):
            receive(sites, short)
    assert everything(sites) == before


def test_a_pack_of_another_release_is_refused_when_it_arrives(sites: Sites) -> None:
    """Its messages differ: the run would stop in its first round, after the owners approved it."""
    body = encode({"format": "comity-study-1", "files": files_of(sites.pack(sites.study()))})
    before = everything(sites)
    with pytest.raises(Malformed, match=r"format '1', and this release of Comity runs '3'.*need the same release"):
        receive(sites, body + sites.coordinator.sign(_signed(body)))
    assert everything(sites) == before


@pytest.mark.parametrize("code", [OTHER_RELEASE, "form"])
def test_a_coordinator_is_told_that_a_site_runs_another_release(code: str) -> None:
    """An earlier release calls any pack that it can't read malformed."""
    deliveries = _Deliveries(("north", "south"), {"south": (code, "")}, {})
    with pytest.raises(
        Refused, match=r"south can't read study abc .*the coordinator and all sites need the same release"
    ):
        deliveries.require_arrived("abc")


def test_a_submitter_that_the_owner_does_not_know_is_refused(sites: Sites) -> None:
    mallory = Identity()
    raw = sites.pack(sites.study(coordinator=mallory), keys=mallory)
    with pytest.raises(Refused, match=r"none of policy\.submitters \(coordinator\)") as refusal:
        receive(sites, raw)
    assert (refusal.value.code, refusal.value.key) == ("policy", "submitters")
    sites.write("north", submitter=mallory)
    assert receive(sites, raw).submitter == "coordinator", "the owner's own name for whose key it is"


def test_a_submitter_submits_no_study_of_another_coordinator(sites: Sites) -> None:
    mallory = Identity()
    study = sites.study(coordinator=mallory)
    with pytest.raises(Refused, match="not those of the key file"):
        pack(study, sites.coordinator)
    text = (study.folder / "study.toml").read_bytes()
    schema = (study.folder / "schema.toml").read_bytes()
    with pytest.raises(Refused, match="pins another coordinator"):
        receive(sites, forged(sites, {"study.toml": text, "schema.toml": schema}))


NAMES = (
    *("../north.keys", "../../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "./a", "a/", "", ".", "..", ".hidden"),
    *("a\\b", "C:x", "a\0b", "a\nb", "~/x", "x" * 200, "/".join("a" * 9), "caf\u00e9.csv", "a/.ssh/x", "-rf"),
)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_no_name_in_a_pack_leads_out_of_its_folder(sites: Sites, name: str) -> None:
    files = files_of(sites.pack(sites.study()))
    before = everything(sites)
    with pytest.raises(Malformed, match="can't name a file inside"):
        receive(sites, forged(sites, {**files, name: b"planted"}))
    assert everything(sites) == before


@pytest.mark.usefixtures("packs_read_here")
@pytest.mark.parametrize("name", ["evil.py", "sitecustomize.py", "model.pkl", "patients.csv", "schema.toml.bak"])
def test_a_pack_holds_what_the_study_names_and_its_hash_covers_and_nothing_else(sites: Sites, name: str) -> None:
    files, before = files_of(sites.pack(sites.study())), everything(sites)
    with pytest.raises(Refused, match=f"contains {name}, which the study does not name"):
        receive(sites, forged(sites, {**files, name: b"planted"}))
    del files["schema.toml"]
    with pytest.raises(ComityError):
        receive(sites, forged(sites, files))
    assert everything(sites) - before <= {Path("north/studies")}


def test_a_name_that_is_a_folder_of_another_is_refused_and_not_an_accident(sites: Sites) -> None:
    files = files_of(sites.pack(sites.study()))
    for more in ("study.toml/x", "Schema.toml", "schema.toml/a/b"):
        with pytest.raises(Malformed, match="collides with another file"):
            receive(sites, forged(sites, {**files, more: b"planted"}))


MANY = {"study.toml": b"", **{f"f{place}": b"" for place in range(64)}}


@pytest.mark.parametrize("files", [{}, {"schema.toml": b""}, {"study.toml": "text"}, [], MANY])
def test_a_pack_of_another_form_is_refused(sites: Sites, files: Any) -> None:
    with pytest.raises(Malformed):
        receive(sites, forged(sites, files))
    with pytest.raises(Malformed):
        receive(sites, forged(sites, files_of(sites.pack(sites.study())), more=1))


def test_a_pack_whose_study_is_none_leaves_nothing(sites: Sites) -> None:
    files = files_of(sites.pack(sites.study()))
    before = everything(sites)
    for text in (b"", b"\xff", b"[study]\n", files["study.toml"].replace(b"schema.toml", b"../schema.toml")):
        with pytest.raises(ComityError):
            receive(sites, forged(sites, {**files, "study.toml": text}))
    assert everything(sites) - before <= {Path("north/studies")}


def test_a_study_that_does_not_ask_this_site_or_pins_another_key_is_refused(sites: Sites) -> None:
    with pytest.raises(Refused, match="has no party 'north'"):
        receive(sites, sites.pack(sites.study(names=("south",))))
    study = sites.study()
    (sites.home("north") / "north.keys").rename(sites.home("north") / "old.keys")
    from comity.crypto import key_file

    key_file.create(sites.home("north") / "north.keys")
    with pytest.raises(Refused, match="pins another key of north") as refusal:
        receive(sites, sites.pack(study))
    assert refusal.value.code == "keys"


def test_a_study_that_swaps_the_key_of_another_party_is_refused_where_the_owner_pinned_it(sites: Sites) -> None:
    """A coordinator that puts its own key in south's place would read what north writes to south."""
    mallory, honest = Identity(), sites.study()
    south = sites.site("north")
    text = (honest.folder / "study.toml").read_text()
    for mine, its in zip(keys_table(mallory).splitlines(), keys_table(sites.identity("south")).splitlines()):
        text = text.replace(its, mine)
    swapped = Study.parse(text, folder=honest.folder)
    assert receive(sites, sites.pack(swapped)).study == swapped.hash, "the control: nobody at north knows better"
    with south.open("a") as file:
        file.write(f"\n[pinned.south]\n{keys_table(sites.identity('south'))}\n")
    assert receive(sites, sites.pack(honest)).study == honest.hash
    (swapped.folder / "study.toml").write_text(text.replace('"readmission"', '"again"'))
    with pytest.raises(Refused, match=r"pins another key of south than \[pinned\.south\]") as refusal:
        receive(sites, sites.pack(Study.load(swapped.folder / "study.toml")))
    assert (refusal.value.code, refusal.value.key) == ("keys", "pinned.south")


def test_what_can_not_be_deployed_is_not_packed(sites: Sites) -> None:
    study = sites.study()
    for cut, key in (("[coordinator.keys]", "coordinator.keys"), ("[parties.north.keys]", "parties")):
        text = study.text
        start = text.index(cut)
        end = text.find("[", start + 1)
        kept = text[:start] + ("[parties.north]\n" if "north" in cut else "") + (text[end:] if end > 0 else "")
        with pytest.raises(StudyError) as error:
            pack(Study.parse(kept, folder=study.folder), sites.coordinator)
        assert error.value.key == key
    counted = STUDY.format(epsilon=1, table="") + "[parties]\ncount = 3\n"
    with pytest.raises(StudyError, match="pins the keys of each party"):
        pack(Study.parse(counted, folder=study.folder), sites.coordinator)


def test_nobody_in_the_policy_means_nobody(sites: Sites) -> None:
    with pytest.raises(Refused, match="none"):
        unpack(sites.pack(sites.study()), {})


def test_a_study_is_found_by_how_its_hash_begins(sites: Sites) -> None:
    study = sites.study()
    receive(sites, sites.pack(study))
    box = Inbox(sites.home("north"))
    assert box.find(study.hash[:4]).study == box.find(study.hash.upper()).study == study.hash
    for prefix in ("", study.hash[:3], "zzzz", "../.."):
        with pytest.raises(BadInput, match="names no study"):
            box.find(prefix)
    with pytest.raises(BadInput, match="no study of the inbox begins"):
        box.find("0000" if not study.hash.startswith("0000") else "1111")


def test_unread_studies_come_first_and_then_the_newest(sites: Sites) -> None:
    hashes = []
    for place, epsilon in enumerate((0.5, 0.6, 0.7)):
        study = sites.study(epsilon=epsilon, at=f"study {place}")
        receive(sites, sites.pack(study))
        hashes.append(study.hash)
    box = Inbox(sites.home("north"))
    assert [one.study for one in box.arrivals()] == hashes[::-1]
    box.mark_read(hashes[2])
    assert [one.study for one in box.arrivals()] == [hashes[1], hashes[0], hashes[2]]
