"""What a party was released carries the coordinator's signature, for as long as anybody keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.errors import Malformed
from comity.federation.coordinator.delivery import Sent, sign_for_parties
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.protection import Noised
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import check_signed_value
from tests.support.asks import answer_ask, sign_released, write_ask
from tests.support.consortia import STUDY, make_identity
from tests.support.rounds import set_up_run

from .test_delivery import HINT, OWN, Delivering, add_consumer, begun, boxed


def test_every_release_that_a_party_has_is_signed_and_nothing_that_it_has_not() -> None:
    parties, hosts = set_up_run(Delivering(protection=Noised), add_consumer())
    run(parties)
    coordinator = make_identity(COORDINATOR).public
    for party, one in hosts.items():
        found = one.received("run-1")
        assert set(found.signatures) == set(found.releases) == {"centre", "result", *(["hint"] * (party == "elm"))}
        for name, value in found.releases.items():
            values = value if isinstance(value, list) else [value]
            paths = found.signatures[name]
            assert len(values) == len(paths)
            for (path, signed), raw in zip(paths.items(), map(encode, values)):
                check_signed_value(coordinator, signed, STUDY, "run-1", name, path, raw)
                for wrong in (
                    ("6" * 64, "run-1", name, path, raw),
                    (STUDY, "run-2", name, path, raw),
                    (STUDY, "run-1", "slope", path, raw),
                    (STUDY, "run-1", name, "lean[9]", raw),
                    (STUDY, "run-1", name, path, raw[:-1] + bytes([raw[-1] ^ 1])),
                ):
                    with pytest.raises(Malformed):
                        check_signed_value(coordinator, signed, *wrong)


def test_what_the_end_brings_unsigned_or_signed_as_something_else_is_refused() -> None:
    one, value = begun(), np.ones(3)
    good = sign_released("result", "run.end[0]", value)
    wrong: dict[str, Any]
    for wrong in (
        {},
        {"result": {}},
        {"result": {"run.end[0]": bytes(64)}},
        {"result": {"run.end[0]": sign_released("result", "run.end[0]", np.zeros(3))}},
        {"result": {"run.end[0]": sign_released("result", "run.end[0]", value, run="run-2")}},
        {"centre": {"run.end[0]": good}},
    ):
        reply = decode(answer_ask(one, write_ask("run.end[0]", heads={}, released={"result": value}, signed=wrong)))
        assert (reply["refused"], reply["key"]) == ("signature", "result")
    short = write_ask("run.end[0]", heads={}, released={"result": value}, signed={"result": {"run.end[0]": b"x"}})
    assert decode(answer_ask(one, short))["refused"] == "form"
    assert one.store.runs_open() == ["run-1"]
    assert "ok" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, yours=boxed(one, {"result": value}))))
    # What a step brought and nobody signed stays as it came, and is shown as unsigned.
    found = one.received("run-1")
    assert set(found.releases) == {"centre", "result"} and set(found.signatures) == {"result"}


def test_signatures_on_what_is_for_others_are_given_to_nobody_else() -> None:
    parties, _ = set_up_run(Delivering(protection=Noised), add_consumer())
    sent = [Sent("hint", "lean[0]", HINT), Sent("result", "lean[0]", OWN), Sent("hint", "lean[1]", own={"ash": HINT})]
    found = sign_for_parties(parties.agreement, make_identity(COORDINATOR), "run-1", sent)
    assert {party: {name: list(of) for name, of in names.items()} for party, names in found.items()} == {
        party: {"result": ["lean[0]"], **({"hint": ["lean[0]"]} if party == "elm" else {})}
        for party in parties.consortium.parties
    }
