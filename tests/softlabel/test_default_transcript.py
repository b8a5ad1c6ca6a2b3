"""The coordinator's view of the default protocol: masked vectors and declared values, and no trace of a contribution.

Every test of secrecy has a twin that sends a contribution unmasked, and must be caught by the same test. Masks come
from the operating system's entropy: bounds on p-values are low enough for one false alarm in a hundred thousand runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import chi2

from comity.data import Records
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Entrusted, Summed
from comity.federation.messages.codec import decode
from comity.federation.sum.site import SecureSum
from comity.federation.sum.terms import to_words
from comity.learn.local_models import as_local_model, linear_votes, linear_weights
from comity.methods.softlabel.method import SoftLabelProtocol

from .default_consortia import (
    RUN,
    STATISTICS,
    clusters,
    contribution,
    filled,
    host_parties,
    make_consortium,
    quantise,
    soft,
)

UNLIKELY = 1e-7


@dataclass(frozen=True, kw_only=True, eq=False)
class Unmasked(SoftLabelProtocol):
    """The broken twin: the same steps, with contributions sent as they are."""

    def declare(self, consortium: Any) -> Declaration:
        declared = super().declare(consortium)
        return replace(
            declared,
            releases=tuple(
                replace(release, protection=Entrusted(release.protection.noise))
                if isinstance(release.protection, Summed)
                else release
                for release in declared.releases
            ),
        )


def unmasked(protocol: SoftLabelProtocol) -> Unmasked:
    return Unmasked(**{one.name: getattr(protocol, one.name) for one in fields(protocol)})


def messages(parties: Any, released: Any) -> list[bytes]:
    """Everything that crossed: asks as the parties got them, replies as the coordinator did.

    The end brings the releases themselves, which may look like votes that all parties agree on: they are compared with
    what was released, and taken out.
    """
    found = []
    for path, exchanges in parties.journal.traffic(parties.study, RUN):
        for one in exchanges.values():
            message = one.message
            if path == "run.end[0]":
                ask = decode(message)
                brought = decode(ask[3])["released"]
                assert set(brought) == set(released)
                assert all(np.array_equal(brought[name], released[name]) for name in released)
                message = message.replace(ask[3], b"")
                assert len(message) < len(one.message)
            found += [blob for blob in (message, one.reply) if blob]
    assert len(found) > 20
    return found


def replies(parties: Any) -> Iterator[Any]:
    for path, exchanges in parties.journal.traffic(parties.study, RUN):
        for party, one in exchanges.items():
            yield path, party, decode(one.reply)


def secrets(protocol: Any, consortium: Any, own: Records, model: Any = None) -> dict[str, bytes]:
    """What a party has that nobody may see, in the encodings in which it could cross."""
    units = quantise(protocol, consortium, contribution(protocol, consortium, own, model))
    present, y, count = np.ones(len(own), bool), np.asarray(own.labels), len(protocol.classes)
    votes = linear_votes(own.features, y, present, protocol.auxiliary, count, protocol.local_l2)
    weights, _ = linear_weights(own.features, y, present, count, protocol.local_l2)
    return {
        "integers": units.astype("<i8").tobytes(),
        "words": to_words(units.astype("<i8"), "<u4").tobytes(),
        "last row": units.astype("<i8")[-1].tobytes(),
        "values": contribution(protocol, consortium, own, model).astype("<f8").tobytes(),
        "votes": votes.astype("<f8").tobytes(),
        "whole votes": votes.astype("<i8").tobytes(),
        "weights": weights.astype("<f8").tobytes(),
        "features": own.features[0].astype("<f8").tobytes(),
    }


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("classes", [2, 3])
def test_no_contribution_vote_or_model_crosses_in_clear(statistic: Any, classes: int) -> None:
    protocol, records, consortium = soft(statistic, classes), filled(classes), make_consortium()
    parties, _ = host_parties(protocol, records, consortium=consortium)
    crossed = messages(parties, run(parties))
    for own in records:
        for kind, secret in secrets(protocol, consortium, own).items():
            assert len(secret) >= 8 and any(secret), kind
            assert not any(secret in message for message in crossed), kind


@pytest.mark.parametrize("statistic", STATISTICS)
def test_an_unmasked_contribution_is_found_by_the_same_search(statistic: Any) -> None:
    protocol, records, consortium = unmasked(soft(statistic)), filled(3), make_consortium()
    parties, _ = host_parties(protocol, records, consortium=consortium)
    run(parties)
    found = [blob for _, exchanges in parties.journal.traffic(parties.study, RUN) for blob in exchanges.values()]
    for own in records:
        assert any(secrets(protocol, consortium, own)["integers"] in cast(Any, one.reply) for one in found)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_replies_hold_what_is_declared_and_nothing_else(statistic: Any) -> None:
    protocol, records, consortium = soft(statistic), filled(3), make_consortium()
    parties, _ = host_parties(protocol, records, consortium=consortium)
    run(parties)
    sums = SecureSum().declare(consortium)
    allowed = {
        "run.ready[0]": set(),
        "run.begin[0]": {"run_key", "remembered"},
        "sum.deal[0]": set(),
        "sum.meet[0]": {"recovery_seeds", "unserved"},
        "contribute[0]": {statistic},
        "run.end[0]": set(),
    }
    seen = set()
    for path, party, reply in replies(parties):
        seen.add(path)
        assert set(reply["ok"]) == allowed[path]
        if path.startswith("sum."):
            for name, value in reply["ok"].items():
                sums[name].check(value, party, COORDINATOR, consortium, {})
        # Between parties: seeds of pair masks, sealed, while the sum is set up and never after. One of a pair deals.
        assert {letter["to"] for letter in reply["mail"]} == (
            {other for other in consortium.parties if party < other} if path == "sum.deal[0]" else set()
        )
    assert seen == set(allowed)
    declared = protocol.declare(consortium)
    assert next(r.name for r in declared.seen_by(COORDINATOR, consortium)) == statistic
    assert isinstance(declared[statistic].protection, Summed)
    masked = {party: reply["ok"][statistic] for path, party, reply in replies(parties) if path == "contribute[0]"}
    assert {value.shape for value in masked.values()} == {declared[statistic].shape}


# Masked vectors are uniform, whatever is in them.


def all_for(chosen: int) -> Any:
    return as_local_model(lambda features, labels, auxiliary, classes: np.full(len(auxiliary), chosen))


def seen_words(protocol: Any, consortium: Any, records: Any, chosen: int, runs: int) -> np.ndarray:
    """What the coordinator gets from each party over several runs, all parties voting for one class: (runs, K, ...)."""
    out = []
    for place in range(runs):
        models = {name: all_for(chosen) for name in consortium.parties}
        parties, _ = host_parties(protocol, records, consortium=consortium, models=models, study=f"{place:064d}")
        run(parties)
        name = protocol.statistic
        out.append([reply["ok"][name] for _, _, reply in replies(parties) if name in reply["ok"]])
    return np.array(out)


def uniformity(words: np.ndarray) -> float:
    """The p-value of a chi-square test of the bytes against uniform ones."""
    found = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
    expected = found.sum() / 256
    assert expected > 20
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), 255))


def likeness(first: np.ndarray, second: np.ndarray) -> float:
    """The p-value of a chi-square test of two samples of bytes for one distribution."""
    counts = np.stack([np.bincount(np.frombuffer(w.tobytes(), np.uint8), minlength=256) for w in (first, second)])
    expected = counts.sum(0) * counts.sum(1, keepdims=True) / counts.sum()
    statistic = ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float(chi2.sf(statistic, max(1, int((counts.sum(0) > 0).sum()) - 1)))


RUNS, ROWS = 3, 300


@pytest.fixture(scope="module")
def masked_views() -> dict[int, np.ndarray]:
    protocol, records, consortium = soft("histograms", rows=ROWS), filled(3, parties=4), make_consortium(4)
    return {chosen: seen_words(protocol, consortium, records, chosen, RUNS) for chosen in (0, 2)}


@pytest.mark.parametrize("chosen", [0, 2])
def test_masked_vectors_are_uniform_whatever_is_voted(masked_views: dict[int, np.ndarray], chosen: int) -> None:
    assert masked_views[chosen].shape == (RUNS, 4, ROWS, 3)
    assert uniformity(masked_views[chosen]) > UNLIKELY
    for party in range(4):
        assert uniformity(masked_views[chosen][:, party]) > UNLIKELY


@pytest.mark.parametrize("chosen", [0, 2])
def test_sums_of_some_masked_vectors_are_uniform_too(masked_views: dict[int, np.ndarray], chosen: int) -> None:
    """A coordinator may add up what it likes: the vectors of all parties but one tell nothing."""
    words = masked_views[chosen]
    for together in ([0, 1], [1, 2, 3]):
        assert uniformity(words[:, together].sum(axis=1, dtype=words.dtype)) > UNLIKELY


def test_views_of_two_inputs_are_alike_and_no_mask_is_used_twice(masked_views: dict[int, np.ndarray]) -> None:
    first, second = masked_views[0], masked_views[2]
    assert likeness(first, second) > UNLIKELY
    # The same mask twice would leave the difference of the inputs, which is far from uniform.
    assert uniformity(first - second) > UNLIKELY
    assert uniformity(first[0] - first[1]) > UNLIKELY
    assert uniformity(first[:, 0] - first[:, 1]) > UNLIKELY


def test_unmasked_vectors_are_caught_by_the_same_tests() -> None:
    protocol, records, consortium = unmasked(soft("histograms", rows=ROWS)), filled(3, parties=4), make_consortium(4)
    first, second = (seen_words(protocol, consortium, records, chosen, 1) for chosen in (0, 2))
    assert uniformity(first) < UNLIKELY
    assert uniformity(first[:, [0, 1]].sum(axis=1)) < UNLIKELY
    assert uniformity(first - second) < UNLIKELY


def test_half_a_mask_is_caught() -> None:
    """Masks on the low half of each word only: the votes stand in the upper one."""
    protocol, consortium = soft("histograms", rows=ROWS), make_consortium(4)
    votes = contribution(protocol, consortium, clusters(3, 24, 0), all_for(0))
    words = to_words(quantise(protocol, consortium, votes), "<u4")
    mask = np.random.default_rng(0).integers(0, 2**16, (RUNS, *words.shape), dtype=np.uint32)
    assert uniformity(words + mask) < UNLIKELY
