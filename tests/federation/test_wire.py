"""What a party reads that records the wire between the coordinator and the others: nothing but what it is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.crypto.comparisons.bits import unpack
from comity.crypto.comparisons.exchange import Side
from comity.crypto.comparisons.triples import dealt
from comity.crypto.products.dealer_product import _fill_mask
from comity.crypto.psi import keyed as psi_keyed
from comity.crypto.psi.keyed import Packed
from comity.entropy import derive
from comity.federation.messages.codec import decode
from comity.federation.messages.paths import StepPath
from tests.support.noise import NoNoise

from .test_alignment import Aligned, started
from .test_argmin import DEALER, SIDE, begun, smallest
from .test_product import COLUMNS, ROWS, study
from .test_product import begun as begun_products
from .wire import pieces, recorded

# Hands of the product's dealer.


def rows_of(peer: str, seed: bytes, opened: np.ndarray) -> np.ndarray:
    """A peer's rows from its seed and the masked rows that it sealed to whoever asks."""
    mask = np.empty((COLUMNS[peer], ROWS), np.uint64)
    _fill_mask(mask, seed, 0)
    return ((opened.reshape(COLUMNS[peer], ROWS) + mask).view(np.int64) * 2.0**-12).T


def test_no_byte_of_a_hand_crosses_in_clear() -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    line = recorded(parties)
    begun_products(parties)
    protocol.coordinate(parties)
    hands = parties.under("product").once("hands", dict)
    secrets = [secret for hand in hands.values() for secret in pieces(hand)]
    assert len(secrets) == 6, "three seeds, and a correction for each pair"
    assert not any(map(line.holds, secrets))


def test_a_party_that_records_the_wire_does_not_get_at_a_peers_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    line, opened = recorded(parties), {}
    received = type(parties.protocol.product)._absorb

    def listening(self: Any, site: Any, *args: Any) -> Any:
        if site.party == "birch":
            opened.update(site.received("blinded"))
        return received(self, site, *args)

    monkeypatch.setattr(type(parties.protocol.product), "_absorb", listening)
    begun_products(parties)
    protocol.coordinate(parties)
    truth = np.rint(hosts["cedar"].records.features * 2.0**12) * 2.0**-12
    (crossed,) = line.asked("cedar", "hand")
    assert isinstance(crossed, bytes), "a sealed box and no hand"
    for start in range(len(crossed) - 31):
        guess = crossed[start : start + 32]
        assert not np.array_equal(rows_of("cedar", guess, opened["cedar"]["words"])[:1], truth[:1])
    # Control: what the box holds is all that birch lacks.
    seed = parties.under("product").once("hands", dict)["cedar"]["seed"]
    np.testing.assert_array_equal(rows_of("cedar", seed, opened["cedar"]["words"]), truth)


# Triples.


def test_no_byte_of_a_triple_seed_crosses_in_clear() -> None:
    parties, _ = begun(smallest([[4, 2, 9]], DEALER))
    line = recorded(parties)
    assert parties.protocol.coordinate(parties)["found"].tolist() == [1]
    seed = parties.under("argmin").once("triple_seed/0", dict)
    assert len(seed) == 32
    assert not line.holds(seed)
    (crossed,) = line.asked(DEALER, "triple_seed")
    assert isinstance(crossed, bytes) and len(crossed) > 1000


def test_the_curators_seed_would_show_the_representative_its_inputs() -> None:
    """Control: masked inputs of the curator's gates, less what its seed expands to, are the same in every run."""
    protocol = smallest([[4, 2, 9]], DEALER)
    gates, triples = protocol.argmin.tournament.gates[0], protocol.argmin.tournament.triples
    crossed, inputs = [], []
    for _ in range(2):
        parties, _ = begun(protocol)
        line = recorded(parties)
        protocol.coordinate(parties)
        crossed.append(unpack(next(line.asked(SIDE, "masked_by_curator")), 2 * gates))
        seed = parties.under("argmin").once("triple_seed/0", dict)
        a, b, _ = dealt(Side.CURATOR, seed, triples).take(gates)
        inputs.append(crossed[-1] ^ np.concatenate([a, b]))
    np.testing.assert_array_equal(*inputs)
    assert not np.array_equal(crossed[0], crossed[1])


# Lists of pseudonyms.

LISTS = [["both 1", "both 2", "ash alone"], ["both 1", "both 2", "birch alone"]]


def tokens_that_crossed(method: Any) -> Any:
    """The tokens of ash as they crossed, and those of the ids of `LISTS` and of a guess, as birch could make them."""
    parties, hosts = started(LISTS, method)
    line = recorded(parties)
    assert Aligned(method).align.coordinate_alignment(parties) == 2
    (crossed,) = line.replied("ash", "tokens")
    return parties, hosts, crossed


def test_a_party_that_has_the_key_reads_no_peers_list_off_the_wire() -> None:
    parties, hosts, crossed = tokens_that_crossed("keyed")
    key = decode(hosts["birch"].store.state("run-1", "in:alignment_key:ash"))
    seed = derive(key, parties.study, parties.run, "pseudonyms")
    guessed = psi_keyed.pseudonyms(seed, Packed.of([b"ash alone"])).tobytes()
    assert guessed not in crossed
    # Control: what the coordinator opens holds the guess, so that a dictionary would find everybody.
    opened = parties._read(StepPath("align", "pseudonyms", "0"))
    assert guessed in opened["ash"]["tokens"]


def test_blinded_lists_of_two_parties_can_not_be_compared_on_the_wire() -> None:
    """Their overlaps are for the coordinator: a party is to learn whom all hold, and of nobody else who holds them."""
    parties, _ = started([*LISTS, ["both 1", "both 2", "cedar"]], "ecdh")
    line = recorded(parties)
    Aligned("ecdh").align.coordinate_alignment(parties)
    lists = []
    for name in parties.consortium.parties:
        (raw,) = line.replied(name, "tokens")
        lists.append({raw[at : at + 32] for at in range(len(raw) - 31)})
    assert not (lists[0] & lists[1]) | (lists[1] & lists[2])
