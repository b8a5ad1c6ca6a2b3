"""Rules that a site keeps whatever its coordinator, its peers or its own steps do; each test fails without its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from comity.crypto.sealing import PublicIdentity
from comity.data import Records
from comity.errors import Malformed, Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.bounds import Ball, OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Entrusted, Noised, Perturbed, Public, Sealed, Selected, Summed
from comity.federation.declare.release import Array, Blob, Count
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, attach_box, seal, seal_in_common
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.privacy.loss import ZCDP, Pure
from comity.privacy.mechanisms import Gaussian, Spherical
from comity.privacy.randomness import SeededNoise
from tests.support.asks import ask_and_decode
from tests.support.consortia import STUDY, list_draws, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, begin_host, host_party, set_up_run


def begin_with_values(protocol: Any, noise: Any = None, values: Any = None) -> Any:
    host = begin_host(protocol, noise=noise or NoNoise(), epsilon=50.0)
    if values is not None:
        host.__dict__["records"] = Records(np.asarray(values, float))
    return host


@pytest.mark.parametrize("protection", [Noised, Summed])
@pytest.mark.parametrize("length", [1.9, 3.0, 1e4])
def test_a_contribution_a_little_outside_of_its_bound_is_brought_inside(
    protection: Any, length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far enough out to count, and near enough to be a number like any other on the grid."""
    # What it would mask, where it would.
    monkeypatch.setattr(Site, "_prepared_sums", lambda *_: ())
    monkeypatch.setattr(Site, "_mask", lambda self, units, *_: units)
    one = begin_with_values(Rounds(protection=protection), values=np.tile([[0.0, length, 0.0]], (4, 1)))
    units = ask_and_decode(one, "average[0]")["ok"]["mean"]
    release = one.declaration["mean"]
    sent = np.linalg.norm(units * release.scale(one.consortium).grid)
    assert sent == pytest.approx(np.sqrt(3), rel=1e-3)


def test_a_value_has_the_sender_and_the_receiver_of_its_declaration() -> None:
    consortium = make_consortium()
    release = Rounds().declare(consortium)["centre"]
    release.check(np.zeros(3), COORDINATOR, "ash", consortium, {})
    for source, to in (("ash", "birch"), ("mallory", "ash"), (COORDINATOR, COORDINATOR), (COORDINATOR, "mallory")):
        with pytest.raises(Malformed, match="not declared from"):
            release.check(np.zeros(3), source, to, consortium, {})


def test_a_sum_that_could_wrap_is_refused() -> None:
    consortium = make_consortium()

    def declared(limit: Any) -> Release:
        bound = OpenedValue(l2=1.0, limit=limit, ring=40)
        form = Array((3,), "<i8")
        noise = Summed(Gaussian(ZCDP(0.1)))
        return Release(
            name="sum", source=EVERY_PARTY, to=COORDINATOR, protection=noise, form=form, bound=bound, grid=2.0**-12
        )

    # Five parties in units of 2^-12: 2^38 units are reached at a limit of 2^26/5.
    declared(0.95 * 2**26 / 5).scale(consortium)
    with pytest.raises(Refused, match="no headroom"):
        declared(1.05 * 2**26 / 5).scale(consortium)


@dataclass(frozen=True)
class Many(Rounds):
    """Steps that a careless protocol might have."""

    def declare(self, consortium: Any) -> Declaration:
        declaration = super().declare(consortium)
        noise = Gaussian(ZCDP(0.05))
        extra = (
            Release(name="rows", source=COORDINATOR, to=EVERY_PARTY, protection=Public("size"), form=Count(100)),
            Release(name="note", source=EVERY_PARTY, to=EVERY_PARTY, protection=Public("open"), form=Blob(8)),
            Release(name="hint", source=EVERY_PARTY, to=EVERY_PARTY, protection=Sealed("a hint"), form=Blob(8)),
            Release(name="heard", source=EVERY_PARTY, to=COORDINATOR, protection=Public("a count"), form=Count(9)),
            Release(
                name="total",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Noised(noise),
                form=Array((3,), "<i8"),
                bound=_OfRecords(1.0),
            ),
            Release(
                name="chosen",
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=Selected(Spherical(Pure(1))),
                form=Array((3,), "<i8"),
                bound=Ball(1.0),
                grid=2.0**-10,
            ),
        )
        return replace(declaration, releases=(*declaration.releases, *extra))

    @step(times=2)
    def size(self, site: Any, rows: int) -> None:
        """Binds a dimension."""

    @step()
    def whisper(self, site: Any) -> None:
        site.send("birch", "note", b"plain")

    @step(times=9, gives=("heard",))
    def listen(self, site: Any) -> dict[str, Any]:
        return {"heard": len(site.received("hint"))}

    @step(sends="total")
    def gather(self, site: Any) -> None:
        raise ZeroDivisionError("a solver failed")

    @step(times=3)
    def pick(self, site: Any) -> None:
        site.draw("chosen", sensitivity=(2.0, 2.1, -1.0)[int(site.label)])


@dataclass(frozen=True)
class _OfRecords(Ball):
    """A bound about one record of a party: the neutral value is as far away as all of its records."""

    neutral_within: ClassVar[bool] = False


def test_a_dimension_is_bound_once_in_a_run() -> None:
    one = begin_with_values(Many())
    assert "ok" in ask_and_decode(one, "size[0]", rows=20)
    assert ask_and_decode(one, "size[1]", rows=21)["refused"] == "form"
    assert "ok" in ask_and_decode(one, "size[1]", rows=20)


def test_only_what_is_declared_as_sealed_goes_to_a_party() -> None:
    one = begin_with_values(Many())
    assert ask_and_decode(one, "whisper[0]") == {"refused": "undeclared", "key": "note"}


def test_what_a_peer_seals_is_checked_like_anything_else() -> None:
    """A letter that is not what was declared is as good as none, and does not end the turn of its receiver."""
    one = host_party(Many(), make_consortium(), "ash", noise=NoNoise(), epsilon=50.0)
    key = PublicIdentity.from_sealing(ask_and_decode(one, "run.begin[0]")["ok"]["run_key"]["key"])

    def heard(turn: Any, name: Any, value: Any, path: str = "whisper[0]", sender: str = "birch") -> Any:
        head = Head(STUDY, "run-1", path, sender, "ash", name)
        letter = seal(make_identity(sender), key, head, encode(value))
        return ask_and_decode(one, f"listen[{turn}]", mail=[letter])["ok"]["heard"]

    assert heard(0, "hint", b"more than eight bytes") == 0
    assert heard(1, "hint", 7) == 0
    assert heard(2, "rows", 7) == 0
    assert heard(3, "secret", b"x") == 0
    assert heard(4, "hint", b"x", path="sum.deal[0]") == 0
    assert heard(5, "hint", b"short") == 1
    # The first stays, whatever comes later under its name.
    assert heard(6, "hint", b"later") == 1
    assert decode(one.store.state("run-1", "in:hint:birch") or b"") == b"short"


def test_a_letter_counts_only_if_the_sender_on_its_head_signed_it() -> None:
    """Whoever knows a party's key of the run, as the coordinator does, can seal to it, and could write for others."""
    one = host_party(Many(), make_consortium(), "ash", noise=NoNoise(), epsilon=50.0)
    key = PublicIdentity.from_sealing(ask_and_decode(one, "run.begin[0]")["ok"]["run_key"]["key"])
    head = Head(STUDY, "run-1", "whisper[0]", "birch", "ash", "hint")

    def heard(turn: Any, letter: Any) -> Any:
        return ask_and_decode(one, f"listen[{turn}]", mail=[letter])["ok"]["heard"]

    for turn, writer in enumerate(("cedar", COORDINATOR)):
        assert heard(turn, seal(make_identity(writer), key, head, encode(b"forged"))) == 0
        (letter,), box = seal_in_common(make_identity(writer), {"ash": key}, {"ash": head}, encode(b"forged"))
        kept: Callable[[bytes], bytes] = partial(lambda box, _: box, box)
        assert heard(2 + turn, attach_box(letter, kept)) == 0
    assert heard(4, seal(make_identity("birch"), key, head, encode(b"own"))) == 1


def test_where_the_neutral_value_lies_outside_of_the_bound_a_failure_stops_before_the_draw() -> None:
    one = begin_with_values(Many())
    assert ask_and_decode(one, "gather[0]") == {"refused": "stopped", "key": ""}
    assert list_draws(one) == []


def test_noise_is_never_selected_for_more_than_the_declared_sensitivity() -> None:
    one = begin_with_values(Many())
    assert one.declaration["chosen"].sensitivity == 2.0
    assert (
        ask_and_decode(one, "pick[1]")["refused"] == "stopped"
        and ask_and_decode(one, "pick[2]")["refused"] == "stopped"
    )
    assert list_draws(one) == []
    assert "ok" in ask_and_decode(one, "pick[0]") and list_draws(one) == [("chosen", 0)]


@dataclass(frozen=True)
class Trusting(Rounds):
    """The parties' means in clear to a coordinator that noises their sum."""

    def declare(self, consortium: Any) -> Declaration:
        noise = Gaussian(ZCDP(0.05))
        return Declaration(
            (
                Release(
                    name="mean",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Entrusted(noise),
                    form=Array((3,), "<i8"),
                    bound=Ball(2.0),
                    grid=2.0**-10,
                ),
                Release(
                    name="result",
                    source=COORDINATOR,
                    to=EVERY_PARTY,
                    protection=Perturbed(noise, of="mean"),
                    form=Array((3,)),
                    bound=OpenedValue(l2=4.0, limit=20.0),
                ),
            ),
            adversary="whoever sees the result",
        )

    def coordinate(self, parties: Any) -> dict[str, Any]:
        return {"result": parties.perturb("result", parties.sum(self.average).value)}


def test_a_trusted_coordinator_draws_its_noise_once_in_a_run() -> None:
    """Without a record of it, a coordinator that is killed before its end would draw a second noise for one debit."""
    parties, hosts = set_up_run(Trusting(), noise=SeededNoise(5))
    first = run_until_released(parties)
    again, _ = set_up_run(Trusting(), noise=SeededNoise(6), hosts=hosts)
    again.journal = parties.journal
    np.testing.assert_array_equal(run_until_released(again), first)
    exact = sum(one.records.features.mean(0) for one in hosts.values())
    assert not np.allclose(first, exact, atol=1e-2)
    assert all(list_draws(one) == [("mean", 0)] for one in hosts.values())


def run_until_released(parties: Any) -> Any:
    """A run that is killed before it has written its result down."""
    begin(parties)
    return parties.protocol.coordinate(parties)["result"]


def test_a_whole_run_of_the_toy_protocols_ends() -> None:
    assert set(run(set_up_run(Trusting(), noise=SeededNoise(5))[0])) == {"result"}
