"""What a party reads that records the wire of a vertical study: no mask of a peer, no score of a new record."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.packed_words import unpack_words
from comity.federation.coordinator.lifecycle import begin
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.methods.vertical.dealer_rounds import DealerRounds
from tests.support.channels import pieces, record_channel
from tests.support.noise import NoNoise
from tests.support.vertical import build_gradients, encode_parts, host_parties, make_consortium, make_people

from .test_prediction import prediction


def begun(tried: Any, records: Any) -> Any:
    parties, hosts = host_parties(tried, records, make_consortium(tried), NoNoise())
    line = record_channel(parties)
    begin(parties)
    return parties, hosts, line


def test_no_byte_of_a_mask_seed_or_of_what_it_masks_crosses_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every party knows every mask: whoever of them read what another shows to the coordinator would read its rows."""
    tried = build_gradients(rounds=2)
    rounds = cast(DealerRounds, tried.secure_rounds)
    parties, hosts, line = begun(tried, encode_parts(tried, make_people(60)))
    asked: list[Any] = []
    split = DealerRounds._split

    def splitting(self: DealerRounds, view: Any, label: int, opened: Any, sums: Any) -> Any:
        found = split(self, view, label, opened, sums)
        asked.extend([opened, *(one["part"]["rest"]["low"] for one in found.values() if "rest" in one["part"])])
        return found

    monkeypatch.setattr(DealerRounds, "_split", splitting)
    tried.coordinate(parties)
    view = parties.under("rounds")
    seed = decode(hosts["ash"].store.state("run-1", "rounds.seed"))
    given = [
        one for label in range(2) for kind in ("query", "part") for one in view.once(f"{kind}/{label}", dict).values()
    ]
    assert len(given) == 2 * (3 + 2) and not any(map(line.holds, [seed, *given]))
    shown = view.ask("mask", to=list(tried.columns), label=0)
    masked = [one["masked_instruments"][half] for one in shown.values() for half in ("low", "high")]
    assert not any(line.holds(piece) for words in (*asked, *masked) for piece in pieces(words))
    # Control: the seed is all that a peer needs to read the instruments that were shown to the coordinator.
    width = rounds.widths["ash"]
    words = unpack_words(shown["ash"]["masked_instruments"], shown["ash"]["masked_instruments"]["low"].size)
    found = words[: 60 * width].reshape(width, 60) + rounds._matrix_mask(seed, "ash", 0, slice(0, 60))
    ring = np.uint64((1 << rounds.bits) - 1)
    np.testing.assert_array_equal(found & ring, rounds._lines(_site(hosts["ash"]), 0) & ring)


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
