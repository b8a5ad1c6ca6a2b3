"""Both auctions run: real records, one debit, what an owner sees, what dishonest and lost owners do."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Refused, Stopped, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.declaration import DISCLOSING
from comity.federation.declare.policy import SIMULATION
from comity.federation.declare.protection import Derived
from comity.federation.owner.host import Host
from comity.federation.plan import plan
from comity.federation.protocol import step
from comity.methods.summary.auction.method import AuctionSummary
from comity.methods.summary.herding import mmd2
from comity.methods.summary.published.method import PublishedSummary
from comity.privacy.loss import Approx, Pure

from .auctions import build_auction, build_published, run_seeded
from .consortia import CONSUMER, OWNERS, make_consortium, make_records

BOTH = pytest.mark.parametrize("made", [build_auction, build_published], ids=["auction", "published"])


@BOTH
def test_what_is_bought_are_records_of_the_owners_each_once(made: Any) -> None:
    records, outcome = make_records(), run_seeded(made())
    bought = outcome.presented
    assert len(bought) == 8 and bought.bought.asked == 8 and bought.bought.basis == "bids"
    seen = set()
    for row, label, owner in zip(bought.rows, bought.labels, bought.owners):
        (places,) = np.nonzero((records[owner].features == row).all(axis=1))
        assert len(places) == 1 and cast(Any, records[owner].labels)[places[0]] == label
        seen.add((owner, int(places[0])))
    assert len(seen) == 8
    assert sum(bought.bought.quotas) == 8 <= bought.bought.seen
    assert sum(bought.bought.shares) == pytest.approx(1) and sum(bought.bought.payouts()) == pytest.approx(100)


def test_with_little_noise_the_auction_finds_the_consumers_cloud() -> None:
    records = make_records()
    found = run_seeded(build_auction(records=20, dimensions=40), epsilon=3000.0).presented
    target = records[CONSUMER].features
    assert set(found.owners) == {"ash"}
    assert mmd2(found.rows, target, 3.0) < 0.1 * mmd2(records["ash"].features, target, 3.0)


def test_the_printed_bid_prefers_what_the_target_is_not() -> None:
    """Its sign is reversed: with the same little noise it buys from the other cloud."""
    noise: dict[str, Any] = {"epsilon_v": "study", "epsilon_l": "study"}
    records = make_records()
    target = records[CONSUMER].features
    far, near = (
        mmd2(run_seeded(build_published(bid_sign=sign, **noise), epsilon=300.0).presented.rows, target, 3.0)
        for sign in ("printed", "corrected")
    )
    assert near < 0.3 < 1 < far


def test_each_side_pays_for_its_own_and_once() -> None:
    epsilon = 1.0
    outcome = run_seeded(build_auction(), epsilon=epsilon)
    assert outcome.guarantee.epsilon == pytest.approx(epsilon, rel=1e-3) and outcome.guarantee.epsilon <= epsilon
    for account in outcome.accounts:
        assert f"eps {epsilon:.2f}" in account.spent
    assert outcome.declaration.claim == DISCLOSING


def test_owners_receive_broadcasts_and_their_own_bits_and_the_consumer_the_records() -> None:
    outcome = run_seeded(build_auction())
    for owner in OWNERS:
        found = outcome.received[owner].releases
        assert set(found) == {"broadcast", "ask"}
        assert len(found["broadcast"]) == len(found["ask"]) == 8
        assert all(one.shape == (1,) for one in found["ask"])
    assert set(outcome.received[CONSUMER].releases) == {"summary", "attribution"}


@BOTH
def test_whatever_reaches_an_owner_is_made_from_what_was_paid_for(made: Any) -> None:
    consortium = make_consortium()
    declared = made().declare(consortium).accept(consortium)
    paid = {name for one in declared.releases for name in getattr(one.protection, "pays_for", ())}
    paid |= {one.name for one in declared.releases if one.loss is not None}
    for owner in OWNERS:
        for release in declared.seen_by(owner, consortium):
            assert isinstance(release.protection, Derived) and set(release.protection.of) <= paid


def views(protocol: Any, records: Any, monkeypatch: pytest.MonkeyPatch, given: Any = None) -> Any:
    """What ash is asked in each round, and what the curator drew; with `given` these draws stand in for its own."""
    drawn: dict[str, list[object]] = {"running": [], "asked": [], "means": []}
    seen: list[bytes] = []
    with monkeypatch.context() as patch:
        for name in ("perturb", "compute"):
            own = getattr(Parties, name)

            def drawing(self: Any, release: Any, values: Any, _of: Any = own) -> Any:
                found = _of(self, release, values)
                if given is not None:
                    found = given[release][len(drawn[release])]
                drawn[release].append(found)
                return found

            patch.setattr(Parties, name, drawing)
        for name in ("bid", "sell"):
            original = getattr(type(protocol), name)

            def watched(self: Any, site: Any, *args: Any, _of: Any = original, **values: Any) -> Any:
                if site.party == "ash":
                    seen.extend(value.tobytes() for value in values.values())
                return _of(self, site, *args, **values)

            watched.__dict__["spec"] = original.spec
            patch.setattr(type(protocol), name, watched)
        run_seeded(protocol, records)
    return seen, drawn


@BOTH
def test_an_owners_view_is_a_function_of_what_the_curator_drew(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other owners with entirely different records, and the same draws: the same asks, byte for byte."""
    first = make_records()
    others = {
        name: one if name in ("ash", CONSUMER) else Records(1 - one.features[::-1], one.labels)
        for name, one in first.items()
    }
    seen, drawn = views(made(), first, monkeypatch)
    assert len(seen) == 16
    assert views(made(), others, monkeypatch, given=drawn)[0] == seen
    # Control: with its own draws the other run looks different.
    assert views(made(), others, monkeypatch)[0] != seen


def test_records_leave_only_where_the_owner_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(SIMULATION, disclosures=frozenset())
    original = Host.__init__

    def made(self: Any, agreement: Any, party: Any, **more: Any) -> None:
        original(self, agreement, party, **{**more, "policy": strict if party == "birch" else more["policy"]})

    monkeypatch.setattr(Host, "__init__", made)
    with pytest.raises(Refused, match="records_may_leave"):
        run_seeded(build_auction())


@dataclass(frozen=True, kw_only=True, eq=False)
class Substituting(AuctionSummary):
    """birch bids with one record and hands over another."""

    @step(may_give=("offer",), times=16)
    def sell(self, site: Any, ask: Any) -> Any:
        found = super().sell(site, ask)
        if found and site.party == "birch":
            found["offer"]["rows"] = found["offer"]["rows"] + 0.3
        return found


def test_who_offers_another_record_than_it_bid_with_is_lost() -> None:
    known = {one.name: getattr(build_auction(), one.name) for one in fields(AuctionSummary)}
    with pytest.raises(Stopped, match="birch"):
        run_seeded(Substituting(**known))
    outcome = run_seeded(Substituting(**known), dropouts=1)
    assert len(outcome.presented) == 8 and "birch" not in outcome.presented.owners


def test_rounds_in_which_an_owner_has_no_record_pass_it_by() -> None:
    """cedar has three records for eight rounds: it is silent in five, and never hands over a record twice."""
    records = {
        **make_records(),
        "cedar": Records(make_records()["cedar"].features[:3], cast(Any, make_records()["cedar"].labels)[:3]),
    }
    outcome = run_seeded(build_auction(records), records, epsilon=0.01)
    assert len(outcome.presented) == 8
    assert outcome.presented.bought.quotas[2] <= 3


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"records": 1 << 15}, "summary.records"),
        ({"dimensions": 7}, "summary.dimensions"),
        ({"gamma": 0}, "summary.gamma"),
        ({"missed": 0.5}, "summary.missed"),
        ({"ask_share": 1.0}, "summary.ask_share"),
    ],
)
def test_wrong_figures_are_refused_with_their_key(wrong: Any, key: str) -> None:
    with pytest.raises(StudyError) as found:
        build_auction(**wrong)
    assert found.value.key == key


def test_terms_and_plan() -> None:
    with pytest.raises(StudyError) as found:
        build_auction().declare(make_consortium(Pure(1)))
    assert found.value.key == "privacy.delta"
    text = plan("s", build_auction(), make_consortium(Approx(1.0, 1e-5), colluders=2)).as_text()
    assert "one loss for all rounds" in text and "2 that pool what they saw eps 0.06" in text
    assert "up to 2 of 3 owners" in text and "owners are asked in a round" in text


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"bid_sign": "reversed"}, "summary.bid_sign"),
        ({"tau": 0}, "summary.tau"),
        ({"auction_epsilon": 0.0}, "summary.auction_epsilon"),
        ({"seeds": np.zeros((0, 4))}, "summary.auxiliary"),
    ],
)
def test_wrong_figures_of_the_published_method_are_refused_with_their_key(wrong: Any, key: str) -> None:
    with pytest.raises(StudyError) as found:
        build_published(**wrong)
    assert found.value.key == key


def test_a_record_that_waited_long_enough_is_asked_for_and_none_is_sold_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With coins that ask nobody but the best, an owner's patient choice is asked for in round τ."""
    told: list[tuple[str, int, int]] = []
    original = PublishedSummary.sell

    def watched(self: Any, site: Any, ask: Any) -> dict[str, Any]:
        told.append((site.party, int(site.label), int(ask[0])))
        return original(self, site, ask)

    watched.__dict__["spec"] = cast(Any, original).spec
    monkeypatch.setattr(PublishedSummary, "sell", watched)
    run_seeded(build_published(auction_epsilon=13.0, tau=1))
    assert all(asked for _, _, asked in told)
    told.clear()
    run_seeded(build_published(auction_epsilon=13.0, tau=100))
    assert sum(asked for _, _, asked in told) == 8
