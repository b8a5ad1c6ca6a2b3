"""Sums over some of the parties: who masks, survives, hides and pays is counted by the source of a release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from comity.errors import Malformed, Refused, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.payers import payers
from comity.federation.declare.protection import Derived, Noised, Perturbed, Protection, Summed
from comity.federation.declare.release import Array
from comity.federation.messages.codec import decode, encode
from comity.federation.owner.site import Site
from comity.federation.plan import plan
from comity.federation.protocol import Protocol, step
from comity.federation.sum.terms import degree_of, digest_of
from comity.privacy.loss import ZCDP, Approx, Loss, Pure
from comity.privacy.mechanisms import Gaussian, Spherical
from comity.privacy.unit import Unit
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import make_identity, make_records
from tests.support.noise import NoNoise
from tests.support.rounds import set_up_run

OWNERS = ("ash", "birch", "cedar", "doum")
NAMES = (*OWNERS, "elm", "fir")
LOSS = ZCDP(0.15)


def make_consortium(
    parties: tuple[str, ...] = NAMES,
    *,
    owners: tuple[str, ...] = OWNERS,
    colluders: int = 1,
    dropouts: int = 0,
    loss: Loss = LOSS,
) -> Consortium:
    roles = {"owner": owners, "consumer": tuple(name for name in parties if name not in owners)}
    return Consortium(
        parties=parties,
        loss=loss,
        unit=Unit.RECORD,
        colluders=colluders,
        dropouts=dropouts,
        roles={role: names for role, names in roles.items() if names},
        roster={name: make_identity(name).public for name in (COORDINATOR, *parties)},
    )


def contribution(name: str, source: str | tuple[str, ...], protection: Protection, times: int = 1) -> Release:
    return Release(
        name=name,
        source=source,
        to=COORDINATOR,
        protection=protection,
        form=Array((3,), "<i8"),
        bound=Ball(2.0),
        times=times,
    )


def made(name: str, to: str | tuple[str, ...], *of: str) -> Release:
    return Release(name=name, source=COORDINATOR, to=to, protection=Derived(*of), form=Array((3,)))


@dataclass(frozen=True)
class Roles(Protocol):
    """A sum over the owners, one over everybody, and a consumer's own noised value: three sources, three losses."""

    name = "roles"

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(
            (
                contribution("held", "owner", Summed(Gaussian(ZCDP(0.05)))),
                contribution("common", EVERY_PARTY, Summed(Gaussian(ZCDP(0.02)))),
                contribution("again", "owner", Summed(Gaussian(ZCDP(0.03))), times=2),
                contribution("wished", "elm", Noised(Gaussian(ZCDP(0.1)))),
                made("result", EVERYONE, "held", "common", "wished"),
            ),
            adversary="a curious coordinator",
        )

    def coordinate(self, parties: Parties) -> Any:
        held, common = parties.sum(self.hold), parties.sum(self.share)
        for _ in range(2):
            held = parties.sum(self.hold_again)
        wished = parties.sum(self.wish)
        return {"result": held.value / held.parties + common.value / common.parties + wished.value}

    @step(sends="held")
    def hold(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=0))

    @step(sends="again")
    def hold_again(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=0))

    @step(sends="common")
    def share(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=0))

    @step(sends="wished")
    def wish(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=0))


def mean(*names: str) -> Any:
    return np.sum([make_records(name).features.mean(axis=0) for name in names], axis=0)


@pytest.mark.parametrize("lost", [None, "birch", "fir"])
def test_each_sum_is_over_its_own_parties(lost: Any) -> None:
    """Also when a party of one circle, or of another, is lost between the sums."""
    lose = [] if lost is None else [(lost, "share[0]")]
    parties, _ = set_up_run(Roles(), make_consortium(dropouts=1), noise=NoNoise(), lose=lose)
    begin(parties)
    held = parties.sum(Roles().hold)
    assert held.names == OWNERS
    np.testing.assert_allclose(held.value, mean(*OWNERS), atol=0.02)
    common = parties.sum(Roles().share)
    there = tuple(name for name in NAMES if name != lost)
    assert common.names == there
    np.testing.assert_allclose(common.value, mean(*there), atol=0.02)
    again = parties.sum(Roles().hold_again)
    left = tuple(name for name in OWNERS if name != lost)
    assert again.names == left
    np.testing.assert_allclose(again.value, mean(*left), atol=0.02)


def test_a_party_outside_the_source_neither_masks_nor_pays_nor_contributes() -> None:
    parties, hosts = set_up_run(Roles(), make_consortium(), noise=NoNoise())
    run(parties)
    asked = {path: set(to) for path, to in parties.journal.traffic(parties.study, parties.run)}
    for path, consortium in asked.items():
        if path.startswith(("hold", "sum.")) and not path.endswith(("[1]", "[common/0]")):
            assert consortium == set(OWNERS), path
    assert asked["sum.deal[1]"] == set(NAMES)
    spent = {name: host.store.ledger.summary()[0].spent.gaussian for name, host in hosts.items()}
    assert {name: round(float(square), 6) for name, square in spent.items()} == {
        **dict.fromkeys(OWNERS, 0.26),
        "elm": 0.24,
        "fir": 0.04,
    }


@pytest.mark.parametrize("path", ["hold[0]", "sum.deal[0]", "sum.unmask[held/0]", "sum.enlist[0]", "sum.deal[2]"])
def test_a_party_outside_the_source_refuses_to_take_part(path: str) -> None:
    parties, hosts = set_up_run(Roles(), make_consortium(), noise=NoNoise())
    begin(parties)
    known: dict[str, dict[str, Any]]
    known = {
        "sum.deal[0]": {"keys": {}},
        "sum.unmask[held/0]": {"consents": {}},
        "sum.enlist[0]": {"members": list(OWNERS)},
    }
    values = known.get(path, {})
    nonce = hosts["fir"].store.state("run-1", "run:nonce")
    assert nonce is not None
    reply = decode(answer_ask(hosts["fir"], write_ask(path, nonce=nonce, **values)))
    assert reply["refused"] in ("undeclared", "sum", "too-often")
    assert hosts["fir"].store.ledger.summary()[0].spent.gaussian == 0


def test_strangers_to_a_circle_do_not_make_up_its_number() -> None:
    """Noise is laid out for 6 − 1 owners, and 4 of them are a quorum: with a consumer on it, their list would be long
    enough, and the sum of 4 parts would be opened."""
    owners = NAMES
    consortium = make_consortium((*NAMES, "gum"), owners=owners, colluders=0, dropouts=1)
    protocol = Unread()
    parties, hosts = set_up_run(protocol, consortium, noise=NoNoise())
    begin(parties)
    view = parties.under("sum")
    holders = {party: [other for other in owners if other != party] for party in owners}
    keys = parties.run_keys
    view.ask("deal", each={p: {"keys": {h: keys[h] for h in holders[p]}} for p in owners})
    view.ask("meet", each={p: {"dealers": holders[p]} for p in owners})
    nonce = hosts["ash"].store.state("run-1", "run:nonce")
    assert nonce is not None

    def enlisted(members: Any) -> Any:
        return decode(answer_ask(hosts["ash"], write_ask("sum.enlist[0]", nonce=nonce, members=members)))

    assert degree_of(consortium.within("owner")).quorum == 4
    assert enlisted([*OWNERS, "gum"])["refused"] == "sum"
    assert enlisted([*OWNERS])["refused"] == "sum"
    assert "ok" in enlisted([*OWNERS, "elm"])


@dataclass(frozen=True)
class Unread(Roles):
    """The owners' sum goes to nobody but the coordinator."""

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(super().declare(consortium).releases[:1], adversary="a curious coordinator")


def test_a_signature_of_one_circle_s_list_does_not_serve_another() -> None:
    """Two circles may have equal lists of members; what was signed for one says nothing of the other."""
    parties, hosts = set_up_run(Roles(), make_consortium(dropouts=1), noise=NoNoise())
    begin(parties)
    parties.sum(Roles().hold)
    set_up = parties.set_ups[0]
    replies = dict(parties.journal.traffic(parties.study, parties.run))["sum.enlist[0]"]
    listed, signature = digest_of(sorted(set_up.members)), decode(replies["ash"].reply or b"")["ok"]["enlisted"]
    signer, text = hosts["ash"].keys.public, [parties.study, parties.run, "members"]
    signer.verify(signature, encode([*text, "0", listed]))
    for wrong in ([*text, "1", listed], [*text, listed]):
        with pytest.raises(Malformed, match="does not verify"):
            signer.verify(signature, encode(wrong))


@pytest.mark.parametrize(
    ("owners", "colluders", "dropouts", "parts"),
    [(4, 1, 0, 3), (4, 1, 1, 2), (4, 0, 1, 3), (3, 2, 0, 1), (2, 1, 0, 1), (1, 1, 1, 1), (1, 4, 0, 1)],
)
def test_parts_are_counted_as_if_all_colluders_and_drop_outs_were_in_the_source(
    owners: int, colluders: int, dropouts: int, parts: int
) -> None:
    consortium = make_consortium(owners=OWNERS[:owners], colluders=colluders, dropouts=dropouts)
    release = contribution("held", "owner", Summed(Gaussian(ZCDP(0.05))))
    assert release.parts(consortium) == parts
    alone = make_consortium(OWNERS[:owners], owners=OWNERS[:owners], colluders=owners - parts, dropouts=0)
    assert release.scale(consortium).part == release.scale(alone).part


@pytest.mark.parametrize(("owners", "colluders", "dropouts"), [(2, 2, 0), (2, 0, 2), (3, 2, 1), (4, 4, 0)])
def test_a_plan_refuses_a_source_in_which_nobody_honest_is_left(owners: int, colluders: int, dropouts: int) -> None:
    consortium = make_consortium(owners=OWNERS[:owners], colluders=colluders, dropouts=dropouts)
    declared = Declaration((contribution("held", "owner", Summed(Gaussian(ZCDP(0.05)))),), adversary="-")
    with pytest.raises(Refused, match="held is summed over owner") as found:
        declared.accept(consortium)
    assert found.value.key in ("privacy.colluders", "privacy.dropouts")


def test_a_plan_refuses_sums_that_so_few_of_the_source_could_not_open() -> None:
    """Six parties stand one drop-out; of three owners two are left, where three are needed."""
    consortium = make_consortium(owners=OWNERS[:3], colluders=1, dropouts=1)
    declared = Declaration((contribution("held", "owner", Summed(Gaussian(ZCDP(0.05)))),), adversary="-")
    with pytest.raises(Refused, match="needs 3 to finish"):
        declared.accept(consortium)
    whole = Declaration((contribution("held", EVERY_PARTY, Summed(Gaussian(ZCDP(0.05)))),), adversary="-")
    assert whole.accept(consortium) == whole


def test_a_sum_over_one_party_is_that_party_s_own_noise_in_full() -> None:
    consortium = make_consortium(owners=("birch",), colluders=3, dropouts=1)
    noise = Spherical(Pure(1))
    summed = Declaration((contribution("held", "owner", Summed(noise)),), adversary="-").accept(consortium)
    noised = Declaration((contribution("held", "owner", Noised(noise)),), adversary="-").accept(consortium)
    assert summed == noised and summed.sums() == ()
    shown = plan("study", OneOwner(), consortium)
    assert shown.rows[0].protection == "noised at the site" and not [n for n in shown.notes if "sufficient" in n]
    parties, _ = set_up_run(OneOwner(), consortium, noise=NoNoise())
    np.testing.assert_allclose(run(parties)["result"], mean("birch"), atol=0.02)
    assert not [path for path, _ in parties.journal.traffic(parties.study, parties.run) if path.startswith("sum.")]


@dataclass(frozen=True)
class OneOwner(Protocol):
    name = "one-owner"

    def declare(self, consortium: Consortium) -> Declaration:
        held = contribution("held", "owner", Summed(Gaussian(ZCDP(0.05))))
        return Declaration((held, made("result", EVERYONE, "held")), adversary="a curious coordinator")

    def coordinate(self, parties: Parties) -> Any:
        return {"result": parties.sum(self.hold).value}

    @step(sends="held")
    def hold(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=0))


SUMMED = contribution("held", "owner", Summed(Gaussian(ZCDP(0.05))))
FURTHER = contribution("also", "owner", Summed(Gaussian(ZCDP(0.05))))
OWN = contribution("own", EVERY_PARTY, Noised(Gaussian(ZCDP(0.05))))


def perturbed(of: str) -> Release:
    noise = Perturbed(Gaussian(ZCDP(0.05)), of=of)
    return Release(
        name="curated", source=COORDINATOR, to=COORDINATOR, protection=noise, form=Array((3,)), bound=Ball(1.0)
    )


@pytest.mark.parametrize(
    ("releases", "refused"),
    [
        ((SUMMED, made("result", "consumer", "held")), False),
        ((SUMMED, made("result", ("consumer", "elm"), "held")), False),
        ((SUMMED, made("result", "owner", "held")), True),
        ((SUMMED, made("result", ("consumer", "ash"), "held")), True),
        ((SUMMED, made("result", EVERYONE, "held")), True),
        ((SUMMED, OWN, made("result", EVERYONE, "own")), False),
        ((SUMMED, OWN, made("result", EVERYONE, "own", "held")), True),
        ((SUMMED, OWN, made("result", EVERYONE, "held", "own")), True),
        ((SUMMED, made("step", COORDINATOR, "held"), OWN, made("result", "ash", "own", "step")), True),
        ((SUMMED, FURTHER, made("step", COORDINATOR, "held", "also"), made("result", "consumer", "step")), False),
        ((SUMMED, perturbed("held"), made("result", "birch", "curated")), True),
        ((SUMMED, made("one", COORDINATOR, "two"), made("two", COORDINATOR, "one", "held")), False),
        ((SUMMED, made("one", COORDINATOR, "two"), made("two", "ash", "one", "held")), True),
        ((replace(SUMMED, to="cedar"),), True),
        ((replace(SUMMED, to="fir"),), False),
    ],
    ids=str,
)
def test_without_colluders_no_reader_may_know_a_part_of_the_noise(releases: Any, refused: bool) -> None:
    """Whoever contributed parties that know parts; a value may be made from several releases, over others."""
    declared = Declaration(releases, adversary="-")
    if refused:
        with pytest.raises(Refused, match="parties that know parts") as found:
            declared.accept(make_consortium(colluders=0))
        assert found.value.key == "privacy.colluders"
    else:
        declared.accept(make_consortium(colluders=0))
    declared.accept(make_consortium(colluders=1))


def test_what_a_release_is_made_from_must_be_declared() -> None:
    with pytest.raises(ValueError, match="'helt'"):
        Declaration((SUMMED, made("result", EVERYONE, "helt")), adversary="-").accept(make_consortium())
    with pytest.raises(ValueError, match="names what"):
        Derived()
    assert Derived("a", "b", "c").text == "made from a, b and c"


@pytest.mark.parametrize(("source", "to"), [("broker", COORDINATOR), ("owner", "broker"), (("ash", "broker"), "elm")])
def test_a_plan_refuses_releases_of_roles_that_nobody_has(source: Any, to: Any) -> None:
    release = replace(contribution("held", source, Noised(Gaussian(ZCDP(0.05)))), to=to)
    with pytest.raises(Refused, match="no party or role 'broker'") as found:
        Declaration((release,), adversary="-").accept(make_consortium())
    assert found.value.key == "parties"


@pytest.mark.parametrize("roles", [{"ash": ("birch",)}, {EVERYONE: ("ash",)}, {"owner": ("zelkova",)}])
def test_roles_have_names_of_their_own_and_parties_of_the_study(roles: Any) -> None:
    with pytest.raises(StudyError, match="role"):
        Consortium(parties=("ash", "birch"), loss=Pure(1), roles=roles)


def test_each_distinct_payer_is_shown_and_the_largest_is_the_guarantee() -> None:
    """The consumer pays 1.44 where the owners pay 1: nobody's figure stands for another's."""
    consortium = make_consortium(("ash", "birch", "elm"), owners=("ash", "birch"), loss=Pure(1))

    @dataclass(frozen=True)
    class Summary(Protocol):
        name = "summary"

        def declare(self, consortium: Consortium) -> Declaration:
            return Declaration(
                (
                    contribution("held", "owner", Summed(Spherical(Pure(1)))),
                    contribution("wished", "consumer", Noised(Spherical(Pure("0.72"))), times=2),
                ),
                adversary="-",
            )

    shown = plan("study", Summary(), consortium)
    assert [(payer.name, payer.parties, payer.loss) for payer in shown.payers] == [
        ("consumer (elm)", 1, "eps 1.44"),
        ("each owner (ash, birch)", 2, "eps 1.00"),
    ]
    assert shown.guarantee == "eps 1.44"
    text = shown.as_text()
    assert "in all         eps 1.44 for consumer (elm)" in text
    assert "in all         eps 1.00 for each owner (ash, birch)" in text and "each party" not in text
    assert shown.as_json()["payers"][0] == {
        "name": "consumer (elm)",
        "parties": 1,
        "loss": "eps 1.44",
        "epsilon": "1.44",
    }
    # A person at two owners is two units of one release; one at an owner and the consumer pays for both of theirs.
    (note,) = [note for note in shown.notes if note.startswith("the unit is")]
    assert note.endswith("at eps 2.44 instead of 1.44; each ledger is charged for one party")


def test_a_party_that_pays_nothing_is_said_to_pay_nothing() -> None:
    declared = Declaration((SUMMED,), adversary="-")
    assert [(one.name, one.loss) for one in payers(declared, make_consortium(loss=Approx(1, 1e-6)))][1] == (
        "each consumer (elm, fir)",
        "nothing",
    )


def test_a_reader_that_works_with_nobody_knows_its_own_part_of_the_noise() -> None:
    """Without colluders a party may read what is made of a sum only if the noise is laid out without its part."""
    consortium = make_consortium(colluders=0)
    sum_ = contribution("sum", EVERY_PARTY, Summed(Gaussian(LOSS)))
    read = Release(name="model", source=COORDINATOR, to=EVERYONE, protection=Derived("sum"), form=Array((3,)))
    with pytest.raises(Refused, match="parties that know parts"):
        Declaration((sum_, read), adversary="nobody").accept(consortium)
    laid_out = replace(sum_, known_parts=1)
    Declaration((laid_out, read), adversary="nobody").accept(consortium)
    assert laid_out.parts(consortium) == len(NAMES) - 1 == sum_.parts(make_consortium(colluders=1))
    assert laid_out.parts(make_consortium(colluders=2)) == len(NAMES) - 2
    with pytest.raises(Refused, match="would know all of the noise"):
        laid_out.parts(make_consortium(colluders=0, dropouts=len(NAMES) - 1))
