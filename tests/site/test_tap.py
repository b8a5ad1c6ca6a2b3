"""What the carrier of a study's messages sees: boxes, even where values are entrusted to the coordinator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import public_cohort
from comity.errors import SiteLost
from comity.federation.coordinator.lifecycle import ready
from comity.federation.messages.codec import decode
from comity.federation.messages.sealed_channel import seal_messages
from comity.federation.messages.signatures import SIGNATURE_BYTES, verify_reply
from comity.federation.owner.host import Answer
from comity.federation.owner.registry import Registry
from comity.site.service import SiteService
from comity.site.status import Refusals
from comity.study.study import Study
from tests.support.sites import NAMES, STUDY, TABLE, Sites, connect_services, execute

pytestmark = pytest.mark.usefixtures("packs_read_here")

WINDOW = 12
ENTRUSTED = 'variant = "published"\nmethod = "avg"\nauxiliary = "public.csv"\nscaling = "normalised"'
SOFTLABEL = STUDY.replace("averaging", "softlabel").replace('unit = "record"', 'unit = "party"')


class Tapped:
    """A service, and the bytes that went to it and came from it."""

    def __init__(self, service: SiteService, change: Any = None) -> None:
        self.service, self.change = service, change
        self.bytes: list[bytes] = []

    def answer(self, raw: bytes) -> Any:
        answer = self.service.answer(raw)
        self.bytes += [raw, answer.reply]
        return answer if self.change is None else self.change(answer)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every ask and reply as it is where no box is around it."""
    seen: list[bytes] = []
    answered = Registry.answer

    def listening(self: Registry, raw: bytes) -> Answer:
        answer = answered(self, raw)
        seen.extend([raw, answer.reply])
        return answer

    monkeypatch.setattr(Registry, "answer", listening)
    return seen


def approved(sites: Sites, study: Any) -> dict[str, Tapped]:
    services, raw = sites.services(), sites.pack(study)
    for service in services.values():
        service.inbox.approve(service.take_in(raw).study, dataset="patients", runs=1)
    return {name: Tapped(service) for name, service in services.items()}


def entrusted(sites: Sites) -> Study:
    for name in NAMES:
        sites.write(name)
        path = sites.site(name)
        path.write_text(path.read_text().replace('variants = ["default"]', 'variants = ["default", "published"]'))
    (sites.folder / "study").mkdir(exist_ok=True)
    public_cohort(30, "tap").to_csv(sites.folder / "study" / "public.csv", index=False)
    return sites.study(table=ENTRUSTED, text=SOFTLABEL)


@pytest.mark.parametrize("kind", ["entrusted", "summed"])
def test_what_is_carried_holds_no_plain_value(sites: Sites, inside: list[bytes], kind: str) -> None:
    study = entrusted(sites) if kind == "entrusted" else sites.study()
    taps = approved(sites, study)
    values, _ = execute(connect_services(study, taps, sites.coordinator))
    carried = b"".join(one for tap in taps.values() for one in tap.bytes)
    known = {carried[at : at + WINDOW] for at in range(len(carried))}
    words = [study.hash, study.hash[:12], "run-1", "run.begin[0]", "coordinator_key", "refused", *NAMES]
    plain = [word.encode() for word in words]
    replies = [decode(raw[:-SIGNATURE_BYTES]) for raw in inside[1::2]]
    found = [value for reply in replies for value in reply.get("ok", {}).values() if isinstance(value, np.ndarray)]
    plain += [value.tobytes()[: 8 * 4] for value in (*found, *values.values())]
    # Positive control: all of that crosses, inside the boxes, and in the first case each party's own model in clear.
    crossing = b"".join(inside)
    assert all(one in crossing for one in plain if one not in (b"refused", *(name.encode() for name in NAMES)))
    assert len(found) >= 2
    assert not [one for one in plain if len(one) >= 5 and one in carried]
    # No two boxes are alike, and no stretch of what is inside is outside.
    boxes = [one[1_300:1_332] for tap in taps.values() for one in tap.bytes if len(one) > 1_332]
    assert len(boxes) > 8 and len(set(boxes)) == len(boxes)
    assert not [raw[:40] for raw in inside for at in range(0, len(raw) - WINDOW, 7) if raw[at : at + WINDOW] in known]


def test_an_ask_that_is_not_sealed_is_refused_and_written_down(sites: Sites, inside: list[bytes]) -> None:
    study = sites.study()
    taps = approved(sites, study)
    ready(connect_services(study, taps, sites.coordinator))
    north = taps["north"].service
    before = len(inside)
    answer = north.answer(inside[0])
    assert answer.refusal is not None and answer.refusal.code == "sealed" and len(inside) == before
    assert decode(answer.reply[:-SIGNATURE_BYTES]) == {"refused": "sealed", "key": ""}
    assert "comes in a sealed box" in Refusals(sites.home("north")).last(1)[0].sentence


def test_a_packed_study_comes_sealed_and_what_its_site_says_of_it_is_signed(sites: Sites) -> None:
    study, north = sites.study(), SiteService(sites.site("north"))
    packed, key = sites.pack(study), sites.identity("north").public
    boxes = seal_messages({"north": lambda: packed}, study.consortium.roster, "study")
    box = boxes.messages["north"]()
    words = [study.hash, "readmission", "averaging", "schema.toml", "epsilon", *NAMES]
    assert all(word.encode() in packed for word in words[1:]) and not [word for word in words if word.encode() in box]
    reply = north.receive(box)
    assert decode(verify_reply(key, "north", packed, boxes.open_reply("north", reply))) == {"ok": True}
    assert north.inbox.find(study.hash).decision is None and Refusals(sites.home("north")).last(1) == []
    # As it is, it is refused: whoever carried it has read it.
    said = verify_reply(key, "north", packed, north.receive(packed))
    assert decode(said) == {"refused": "sealed", "key": ""}
    assert (
        "a packed study between organisations comes in a sealed box"
        in Refusals(sites.home("north")).last(1)[0].sentence
    )
    # What can't be kept is a stop, and no exception: a full disk is no refusal.
    again = seal_messages({"north": lambda: packed}, study.consortium.roster, "study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SiteService, "take_in", lambda self, raw: (_ for _ in ()).throw(OSError("no space left")))
        stopped = again.open_reply("north", north.receive(again.messages["north"]()))
    assert decode(stopped[:-SIGNATURE_BYTES]) == {"refused": "stopped", "key": ""}


def test_whoever_carries_a_reply_can_not_change_or_swap_it(sites: Sites) -> None:
    study = sites.study(table=TABLE)
    for name, change in CHANGES.items():
        taps = approved(sites, study)
        taps["north"].change = change
        with pytest.raises(SiteLost, match="north"):
            execute(connect_services(study, taps, sites.coordinator, run=name))


def _flipped(answer: Any) -> Any:
    reply = bytearray(answer.reply)
    reply[-1] ^= 1
    return type(answer)(bytes(reply))


CHANGES: dict[str, Any] = {
    "flipped": _flipped,
    "cut": lambda answer: type(answer)(answer.reply[:-1]),
    "nothing": lambda answer: type(answer)(b""),
}
