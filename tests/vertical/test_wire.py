"""What a party reads that records the wire of a vertical study: no mask of a peer, no score of a new record."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.crypto import dealer_waves as waves
from comity.crypto.products.dealer_combination import expand_matrix_mask
from comity.entropy import derive
from comity.federation.coordinator.lifecycle import begin
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.methods.vertical.dealer_rounds import DealerRounds, _seed_of_stretch
from tests.support.channels import pieces, record_channel
from tests.support.noise import NoNoise
from tests.support.vertical import build_gradients, encode_parts, host_parties, make_consortium, make_people

from .test_prediction import prediction


def begun(tried: Any, records: Any) -> Any:
    parties, hosts = host_parties(tried, records, make_consortium(tried), NoNoise())
    line = record_channel(parties)
    begin(parties)
    return parties, hosts, line


def test_no_byte_of_a_matrix_seed_or_a_rounds_hand_crosses_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = build_gradients(rounds=2)
    parties, hosts, line = begun(tried, encode_parts(tried, make_people(60)))
    dealt: list[Any] = []
    evaluate_share = waves.evaluate_share

    def evaluating(hand: Any, curve: Any, shown: Any) -> Any:
        if hand.rest is not None:
            dealt.append(hand.rest)
        return evaluate_share(hand, curve, shown)

    monkeypatch.setattr(waves, "evaluate_share", evaluating)
    tried.coordinate(parties)
    view = parties.under("rounds")
    seeds = {party: derive(seed, "matrix") for party, seed in view.once("matrices", dict).items()}
    secrets = [*seeds.values(), *(seed for number in range(2) for seed in view.once(f"round/{number}", dict).values())]
    assert len(secrets) == 6 and not any(map(line.holds, secrets))
    hands = [decode(hosts["birch"].store.state("run-1", f"rounds.hand/{number}"))["sums"] for number in range(2)]
    corrections = [piece for one in (*hands, *dealt) for piece in pieces(one)]
    assert len(corrections) == 4 and not any(map(line.holds, corrections))
    # Control: the seed is all that a peer lacks to read the features that were sealed to it.
    masked = decode(hosts["birch"].store.state("run-1", "rounds.masked/ash/0"))
    width = tried.secure_rounds.widths["ash"]
    found = masked.reshape(width, -1) + expand_matrix_mask(_seed_of_stretch(seeds["ash"], 0), width, 60)
    np.testing.assert_array_equal(found, cast(DealerRounds, tried.secure_rounds)._lines(_site(hosts["ash"]), 0))


def _site(host: Any) -> Site:
    from comity.federation.messages.ask import StepPath
    from comity.federation.owner.site import Site

    return Site(host, "run-1", StepPath("", "descend", "0"), "gradient")


def test_the_masked_scores_of_new_records_reach_the_coordinator_alone() -> None:
    """Of two parties, each knows the other's mask: what it reads on the wire would be the other's exact part."""
    tried, frame = prediction(2), make_people(20).drop(columns="sick")
    parties, _, line = begun(tried, encode_parts(tried, frame))
    tried.coordinate(parties)
    told = parties.ask(tried.partial, rows=20)
    assert set(told) == {"ash", "birch"}
    assert not any(line.holds(values["masked"].tobytes()[:16]) for values in told.values())
