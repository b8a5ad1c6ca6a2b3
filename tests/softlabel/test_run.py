"""Whole runs: stacks and hosts agree, seeds reproduce, everyone sees what was declared, every party pays once."""

from __future__ import annotations

from decimal import Decimal
from math import prod
from typing import Any, cast, get_args

import numpy as np
import pytest

from comity.data import Records
from comity.errors import BudgetExceeded
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.messages.wire_format import WIRE_FORMAT
from comity.methods.softlabel.published.method import TOLERANCE, LearnsFrom
from comity.privacy.accounting import gaussian_budget
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Pure, parse_loss
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation.simulate import RunOptions, simulate
from tests.support.channels import Whole, carry_messages
from tests.support.consortia import STUDY
from tests.support.noise import NoNoise

from .consortia import NAMES, host_parties, make_cohort, make_consortium, ordinary, protocol

EMPTY = Records(np.zeros((0, 4)), np.zeros(0, np.int64))


def named(records: Any) -> dict[Any, Any]:
    return dict(zip(NAMES, records))


def begun(method: Any, records: Any) -> Parties:
    parties, _, _ = host_parties(method, records)
    begin(parties)
    return parties


@pytest.mark.parametrize("classes", [2, 4])
def test_stacks_of_parties_send_the_same_integers_as_single_sites(classes: int) -> None:
    """Parties of different sizes, one without records. Every other one holds all classes: those that a party never saw
    have equal scores, and rounding decides among them."""
    records = ordinary(classes, parties=4, rows=30)
    records += [EMPTY, Records(records[0].features[:20], cast(Any, records[0].labels)[:20])]
    assert all(len(set(cast(Any, own.labels))) == classes for own in records if len(own))
    soft = protocol(classes)
    stacked, single = make_cohort(soft, records).sum(soft.vote), begun(soft, records).sum(soft.vote)
    grid: Any = soft.declare(make_consortium(6))["votes"].grid
    np.testing.assert_array_equal(np.rint(stacked.value / grid), np.rint(single.value / grid))
    assert stacked.parties == single.parties == 6


@pytest.mark.parametrize("classes", [2, 4])
def test_models_of_stacks_and_of_single_sites_agree_as_far_as_minimisers_are_exact(classes: int) -> None:
    records = [*ordinary(classes, parties=4), EMPTY]
    avg = protocol(classes, "avg")
    stacked, single = make_cohort(avg, records).sum(avg.train), begun(avg, records).sum(avg.train)
    np.testing.assert_allclose(stacked.value, single.value, atol=5 * 2 * TOLERANCE / avg.l2)
    assert np.abs(single.value).max() > 0.1


@pytest.mark.parametrize("method", get_args(LearnsFrom))
@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_a_run_releases_the_minimiser(method: Any, classes: int) -> None:
    tried, records = protocol(classes, method), ordinary(classes)
    parties, _, _ = host_parties(tried, records)
    released = run(parties)["model"]
    mean = make_cohort(tried, records).sum(tried.train if method == "avg" else tried.vote)
    exact = mean.value / 5 if method == "avg" else tried.fit(mean.value / 5)
    scale = tried.declare(make_consortium(5))["model"].scale(make_consortium(5))
    np.testing.assert_allclose(released, exact, atol=scale.grid / 2 + 4 * TOLERANCE / tried.l2)


@pytest.mark.parametrize("method", get_args(LearnsFrom))
def test_a_seed_reproduces_a_run_and_another_one_does_not(method: Any) -> None:
    tried, parties = protocol(3, method), named(ordinary(3))
    first, again, other = (simulate(tried, parties=parties, epsilon=1.0, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.released["model"], again.released["model"])
    assert (first.released["model"] != other.released["model"]).any()
    assert first.guarantee.seeded and not first.guarantee.private


def test_runs_without_a_seed_differ_and_are_private() -> None:
    tried, parties = protocol(3), named(ordinary(3))
    first, second = (simulate(tried, parties=parties, epsilon=1.0) for _ in range(2))
    assert (first.released["model"] != second.released["model"]).any()
    assert first.guarantee.private and first.guarantee.epsilon == 1.0 and first.guarantee.delta == 0.0


@pytest.fixture(scope="module", params=["soft", "avg"])
def noise_norms(request: pytest.FixtureRequest) -> dict[str, tuple[np.ndarray, float]]:
    """By sensitivity: distances of released models from the one without noise over forty seeds, and the sensitivity."""
    out = {}
    for bound in ("tight", "paper"):
        records, tried = ordinary(3), protocol(3, request.param, sensitivity=bound)
        parties, _, _ = host_parties(tried, records)
        exact = run(parties)["model"]
        runs = (
            simulate(tried, parties=named(records), epsilon=1.0, seed=seed, options=RunOptions(hosts=False))
            for seed in range(40)
        )
        norms = np.array([np.linalg.norm(found.released["model"] - exact) for found in runs])
        out[bound] = norms, tried.sensitivity(5)
    return out


def test_the_noise_of_the_papers_constants_is_bigger_by_what_the_constants_differ(
    noise_norms: dict[str, tuple[np.ndarray, float]],
) -> None:
    """Forty radii of Gamma(8) in each mean: a relative standard error of 0.056, of the ratio 0.08; six of these."""
    (tight, derived), (paper, printed) = noise_norms["tight"], noise_norms["paper"]
    assert printed > derived
    assert paper.mean() > tight.mean()
    assert paper.mean() / tight.mean() == pytest.approx(printed / derived, rel=0.48)


def test_the_radius_of_the_noise_grows_with_the_dimension(noise_norms: dict[str, tuple[np.ndarray, float]]) -> None:
    """Gamma(8) has mean 8; the radius that the published curves fit would have mean 1."""
    norms, sensitivity = noise_norms["tight"]
    assert prod(protocol(3).shape) == 8
    assert norms.mean() == pytest.approx(8 * sensitivity, rel=0.34)


class Recording(Whole):
    """Keeps every reply beside its ask."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.crossed: list[tuple[str, list[Any], dict[str, Any]]] = []

    def carry(self, messages: Any) -> Any:
        replies = carry_messages(self.channel, messages)
        self.crossed += [
            (party, decode(messages[party][:-SIGNATURE_BYTES]), decode(replies[party][:-SIGNATURE_BYTES]))
            for party in messages
        ]
        return replies


@pytest.mark.parametrize("method", get_args(LearnsFrom))
def test_everyone_sees_what_was_declared_and_nothing_else(method: Any) -> None:
    tried, records = protocol(3, method), ordinary(3)
    parties, _, channel = host_parties(tried, records)
    parties.channel = Recording(channel)
    run(parties)
    sent, step = ("models", "train") if method == "avg" else ("votes", "vote")
    paths = {"run.ready[0]", "run.begin[0]", f"{step}[0]", "run.end[0]"}
    assert {ask[2] for _, ask, _ in parties.channel.crossed} == paths
    declared = {release.name for release in tried.declare(parties.consortium).seen_by(COORDINATOR, parties.consortium)}
    assert sent in declared
    for party, (study, run_id, path, common, own, mail, *_), reply in parties.channel.crossed:
        assert (study, run_id, mail, reply["mail"]) == (STUDY, "run-1", [], [])
        asked = {**decode(common), **decode(own)}
        if path == "run.ready[0]":
            assert asked == {"wire_format": WIRE_FORMAT} and not reply["ok"]
        elif path == "run.begin[0]":
            assert set(asked) == {"coordinator_key"} and set(reply["ok"]) == {"run_key", "remembered"}
        elif path == "run.end[0]":
            assert set(asked) == {"heads", "released", "yours", "signed"} and not reply["ok"]
            assert set(asked["released"]) == set(asked["signed"]) == {"model"} and asked["yours"] == b""
        else:
            # Entrusted: the coordinator reads this party's votes or model in clear, and the declaration says so.
            assert not asked and set(reply["ok"]) == {sent}
            release = tried.declare(parties.consortium)[sent]
            exact = make_cohort(tried, [records[NAMES.index(party)]]).sum(getattr(tried, step)).value
            np.testing.assert_allclose(reply["ok"][sent] * release.grid, exact, atol=4 * TOLERANCE / tried.l2)
    assert "trusted" in tried.declare(parties.consortium).adversary


def test_the_transcript_has_no_digest_of_votes_in_clear() -> None:
    outcome = simulate(protocol(3), parties=named(ordinary(3)), epsilon=1.0, seed=1)
    lines = {(line.path, line.direction): line for line in outcome.transcript}
    assert lines["vote[0]", "to coordinator"].digest == ""
    assert lines["vote[0]", "to coordinator"].parties == 5
    assert lines["run.begin[0]", "to coordinator"].digest != ""
    assert outcome.transcript.rounds == 4


@pytest.mark.parametrize("method", get_args(LearnsFrom))
@pytest.mark.parametrize("loss", [Pure(1), Approx(1, "1e-6")])
def test_each_party_is_debited_once_for_the_whole_loss(method: Any, loss: Any) -> None:
    ledgers = {
        name: Ledger.in_memory(dataset=name, unit=Unit.PARTY, neighbours=Neighbours.REPLACE, grant=loss)
        for name in NAMES[:5]
    }
    delta = float(getattr(loss, "delta", 0))
    tried, parties = protocol(3, method), named(ordinary(3))
    simulate(tried, parties=parties, epsilon=1.0, delta=delta, seed=1, options=RunOptions(ledgers=ledgers))
    charged = loss if isinstance(loss, Pure) else gaussian_budget(loss)
    for ledger in ledgers.values():
        drawn = [entry for entry in ledger.entries() if entry.kind == "draw"]
        assert [entry.release for entry in drawn] == ["models" if method == "avg" else "votes"]
        assert parse_loss(drawn[0].loss) == charged
        assert ledger.summary()[0].spent.epsilon_at(Decimal(str(delta))) <= 1
        assert ledger.verify()
    # The grant is used up: nothing else of any size is left for a second run.
    before = {name: len(ledger.entries()) for name, ledger in ledgers.items()}
    with pytest.raises(BudgetExceeded):
        simulate(tried, parties=parties, epsilon=1.0, delta=delta, seed=1, options=RunOptions(ledgers=ledgers))
    assert {name: len(ledger.entries()) for name, ledger in ledgers.items()} == before


@pytest.mark.parametrize("method", get_args(LearnsFrom))
def test_a_party_without_records_takes_part_and_pays(method: Any) -> None:
    records = [*ordinary(3, parties=4), EMPTY]
    outcome = simulate(protocol(3, method), parties=named(records), epsilon=1.0, seed=1)
    assert outcome.parties == 5
    assert len({account.spent for account in outcome.accounts}) == 1
    alone = simulate(protocol(3, method), parties={"elm": EMPTY}, epsilon=1.0, seed=1)
    assert np.isfinite(alone.released["model"]).all()


@pytest.mark.parametrize("method", get_args(LearnsFrom))
def test_with_drop_outs_the_noise_is_for_those_who_may_be_left(method: Any) -> None:
    """A share of four parties weighs more than one of five: both the model and its noise are those of four."""
    consortium, tried, records = make_consortium(5, dropouts=1), protocol(3, method, l2=1.0), ordinary(3)
    # Small enough a share that the cap of two radii does not hide it; a vote has no share at all.
    assert tried.sensitivity(4) > tried.sensitivity(5) or method == "vote"
    step = "train[0]" if method == "avg" else "vote[0]"
    parties, _, _ = host_parties(tried, records, consortium=consortium, noise=NoNoise(), lose=[("elm", step)])
    released = run(parties)["model"]
    assert parties.declaration["model"].sensitivity == tried.sensitivity(4)
    mean = make_cohort(tried, records[:4]).sum(tried.train if method == "avg" else tried.vote)
    exact = mean.value / 4 if method == "avg" else tried.fit(mean.value / 4)
    grid = parties.declaration["model"].scale(consortium).grid
    np.testing.assert_allclose(released, exact, atol=grid / 2 + 4 * TOLERANCE / tried.l2)


@pytest.mark.parametrize("method", get_args(LearnsFrom))
@pytest.mark.parametrize("classes", [2, 3])
def test_a_run_with_a_generous_loss_learns_and_is_compared_with_the_same_method_without_noise(
    method: Any, classes: int
) -> None:
    records = ordinary(classes, parties=6, rows=30)
    test = ordinary(classes, parties=1, rows=600)[0]
    tried = protocol(classes, method, public=np.concatenate([own.features for own in records]))
    outcome = simulate(tried, parties=named(records), epsilon=30.0 if method == "avg" else 3000.0, seed=3, test=test)
    exact, constant = outcome.baseline("without noise"), outcome.baseline("constant")
    assert exact is not None and constant is not None and outcome.error is not None
    assert outcome.error == pytest.approx(exact.error, abs=0.1)
    assert outcome.error < constant.error - 0.05
