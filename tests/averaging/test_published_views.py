"""What each participant of the published average saw: uniform numbers and ciphertexts, whatever the sizes are.

Statistics are taken at a significance of 1e-6; each has a broken twin that the same look catches.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import chisquare

from comity.crypto.paillier.cryptosystem import Ciphertext, PrivateKey
from comity.crypto.paillier.packing import Packing
from comity.entropy import Stream, fresh_seed
from comity.errors import ComityError, Malformed, Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.replies import PartyValues
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.averaging import Averaging
from comity.methods.averaging.published import selection
from comity.methods.averaging.published.method import PublishedAveraging
from tests.support.published import build_published

from .published_consortium import STUDY, Interrupted, Meeting, QuickKeys, key_of_tests, observed

SURE = 1e-6
WIDTH = 4


def meeting(sizes: tuple[int, ...] = (30, 20, 40), kind: type[PublishedAveraging] = QuickKeys) -> Meeting:
    return Meeting(build_published(kind, width=WIDTH, l2=0.1), sizes)


@cache
def private() -> PrivateKey:
    return PrivateKey.from_bytes(key_of_tests(0))


# Stage 1, as its two sides compute it.


def first_stage(sizes: tuple[int, ...], *, places: np.ndarray | None = None, masked: bool = True) -> Any:
    """The curator's shares, what the keyholder decrypts, and the place of the smallest that the curator learns."""
    key = private().public
    pairs = [selection.split_size(size, key, Stream(fresh_seed())) for size in sizes]
    order = Stream(fresh_seed()).permutation(len(sizes)) if places is None else places
    shares, encrypted = selection.shuffle(key, pairs, order)
    found = selection.mask(key, shares, encrypted, Stream(fresh_seed()))
    decrypted = selection.unmask(private(), found.sent, len(sizes))
    values = (found.shares + decrypted).astype(np.int64)
    seen = decrypted if masked else selection.unmask(private(), encrypted, len(sizes))
    return shares, seen, int(found.order[int(np.argmin(values))]), values, order


def test_the_two_sides_share_the_sizes_in_an_order_of_neither() -> None:
    sizes = (31, 7, 1 << 20, 400)
    _, _, place, values, order = first_stage(sizes)
    assert sorted(values) == sorted(sizes)
    assert place == order[1]


SMALLEST_FIRST, SMALLEST_LAST = (3, 50, 60), (60, 50, 3)
REPEATS = 60


@cache
def observed_stages(sizes: tuple[int, ...]) -> list[Any]:
    return [first_stage(sizes) for _ in range(REPEATS)]


def even(counts: np.ndarray) -> float:
    return float(chisquare(counts).pvalue)


@pytest.mark.parametrize("sizes", [SMALLEST_FIRST, SMALLEST_LAST])
def test_the_place_that_the_curator_learns_is_uniform_whoever_is_smallest(sizes: Any) -> None:
    places = np.bincount([place for _, _, place, _, _ in observed_stages(sizes)], minlength=3)
    assert even(places) > SURE


def test_without_the_mixers_order_the_place_tells_who_is_smallest() -> None:
    places = np.bincount([first_stage(SMALLEST_LAST, places=np.arange(3))[2] for _ in range(20)], minlength=3)
    assert even(places) < SURE


def bytes_of(words: list[np.ndarray]) -> np.ndarray:
    return np.bincount(np.concatenate(words).astype("<u8").view(np.uint8) >> 4, minlength=16)


def test_what_curator_and_keyholder_see_of_the_sizes_is_uniform() -> None:
    seen = observed_stages(SMALLEST_FIRST)
    assert even(bytes_of([shares for shares, *_ in seen])) > SURE
    assert even(bytes_of([decrypted for _, decrypted, *_ in seen])) > SURE
    # A size is not: seven of its eight bytes are zero.
    assert even(bytes_of([values.astype("<u8") for *_, values, _ in seen])) < SURE


def test_without_the_curators_mask_keyholder_and_curator_hold_the_same_halves() -> None:
    """The mask separates what the keyholder decrypts from the order in which the mixer handed it over."""
    shares, seen, *_ = first_stage(SMALLEST_FIRST, masked=False)
    assert sorted((shares + seen).tolist()) == sorted(SMALLEST_FIRST)
    shares, seen, *_ = first_stage(SMALLEST_FIRST)
    assert sorted((shares + seen).tolist()) != sorted(SMALLEST_FIRST)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [SMALLEST_FIRST, SMALLEST_LAST])
def test_the_place_is_uniform_in_whole_runs(sizes: Any) -> None:
    places: list[int] = []
    kind = observed(QuickKeys, places.append)
    for _ in range(90):
        with pytest.raises(Interrupted):
            run(meeting(sizes, kind).parties())
    assert even(np.bincount(places, minlength=3)) > SURE


@pytest.mark.long
def test_a_mixer_that_does_not_mix_is_caught_in_whole_runs() -> None:
    places: list[int] = []

    class Unmixed(QuickKeys):
        @step()
        def make_order(self, site: Site) -> None:
            site.keep("averaging.places", np.arange(3))
            for place, party in enumerate(site.consortium.parties[1:], 1):
                site.send(party, "place", place)

    kind = observed(Unmixed, places.append)
    for _ in range(20):
        with pytest.raises(Interrupted):
            run(meeting(SMALLEST_LAST, kind).parties())
    assert even(np.bincount(places, minlength=3)) < SURE


# Stage 2.


def slots() -> Packing:
    return selection.make_slots(private().public, 3)


def test_an_exponentiation_alone_shows_its_exponent_to_a_search() -> None:
    packing, key = slots(), private().public
    element = key.encrypt(1)
    noise = np.array([-2, 5])
    factor = selection.select(packing, element, noise)
    guesses = {
        selection.select(packing, element, np.array([a, b])).ciphertexts[0].value: (a, b)
        for a in range(-6, 7)
        for b in range(-6, 7)
    }
    assert guesses[factor.ciphertexts[0].value] == (-2, 5)
    with pytest.raises(ValueError, match="re-randomised"):
        packing.write(factor)
    left = selection.extend_chain(packing, factor, None, 0)
    assert left.ciphertexts[0].value not in guesses
    assert packing.decrypt(private(), left) == [-2, 5]


def test_the_product_is_the_noise_of_the_indicated_party_alone() -> None:
    packing, key = slots(), private().public
    generator = np.random.default_rng(1)
    noises = generator.integers(-(2**62), 2**62, (3, 25))
    for place in range(3):
        elements = selection.read_ciphertexts(key, selection.encrypt_indicator(key, place, 3), 3)
        product: Any = None
        for turn, (element, noise) in enumerate(zip(elements, noises)):
            before = None if product is None else packing.write(product)
            product = selection.extend_chain(packing, selection.select(packing, element, noise), before, turn)
        sent, blind = selection.blind(packing, product, Stream(fresh_seed()))
        opened = selection.open_blinded(packing, private(), sent, 25)
        np.testing.assert_array_equal((opened - blind).view("<i8"), noises[place])


def test_the_largest_noise_that_can_be_drawn_fits_a_slot() -> None:
    packing, key = slots(), private().public
    edge = np.array([2**63 - 1, -(2**63), 0, -1])
    product = selection.extend_chain(packing, selection.select(packing, key.encrypt(1), edge), None, 0)
    sent, blind = selection.blind(packing, product, Stream(fresh_seed()))
    np.testing.assert_array_equal((selection.open_blinded(packing, private(), sent, 4) - blind).view("<i8"), edge)


def test_what_the_curator_opens_is_uniform() -> None:
    packing, key = slots(), private().public
    product = selection.extend_chain(packing, selection.select(packing, key.encrypt(1), np.ones(60, np.int64)), None, 0)
    seen = []
    for _ in range(12):
        sent, _ = selection.blind(packing, product, Stream(fresh_seed()))
        seen.append(selection.open_blinded(packing, private(), sent, 60))
    assert even(bytes_of(seen)) > SURE


# Whole runs.


def told(parties: Parties) -> dict[str, Counter[Any]]:
    """Names of the values that the curator was sent in clear, by step, and how many sealed letters it relayed."""
    found: dict[str, Counter[Any]] = {}
    for path, exchanges in parties.journal.traffic(STUDY, parties.run):
        names = found.setdefault(path.partition("[")[0], Counter())
        for exchange in exchanges.values():
            reply = decode(exchange.reply or b"")
            names.update(reply["ok"].keys())
            names["letters"] += len(reply["mail"])
    return found


def test_the_curator_is_sent_what_is_declared_to_it_and_relays_the_rest_sealed() -> None:
    room = meeting()
    parties = room.parties()
    run(parties)
    seen = told(parties)
    assert seen["split"] == Counter(letters=2)
    assert seen["make_order"] == Counter(letters=2)
    assert seen["shuffle"] == Counter(shuffled=1, letters=0)
    assert seen["unmask"] == Counter(letters=0)
    assert seen["select"] == Counter(blinded=1, letters=2)
    assert seen["divide"] == Counter(piece_for_curator=3, letters=6)
    assert seen["publish"] == Counter(share=3, letters=0)
    declared = room.protocol.declare(room.consortium)
    for step_name, names in seen.items():
        if not step_name.startswith("run."):
            for name in set(names) - {"letters"}:
                assert declared[name].to == "coordinator"


def test_nothing_has_another_length_for_other_sizes() -> None:
    lengths = []
    for sizes in ((30, 20, 40), (3, 500, 41)):
        parties = meeting(sizes).parties()
        run(parties)
        lengths.append([(line.path, line.direction, line.bytes) for line in parties.transcript])
    assert lengths[0] == lengths[1]


# Messages that are not what they should be.


def refused(kind: type[PublishedAveraging], said: str) -> Meeting:
    room = meeting(kind=kind)
    with pytest.raises(ComityError, match=said):
        run(room.parties())
    return room


class ShortMask(QuickKeys):
    def find_smallest(self, parties: Parties, stream: Stream) -> int:
        ask = parties.ask

        def shortened(step_of: Any, **values: Any) -> dict[str, PartyValues]:
            if "masked" in values:
                values["masked"] = values["masked"][:-1]
            return ask(step_of, **values)

        cast(Any, parties).ask = shortened
        return super().find_smallest(parties, stream)


class ShortIndicator(QuickKeys):
    def select_noise(self, parties: Parties, place: int) -> Any:
        key = PrivateKey.from_bytes(parties.once("curator key", self._new_key)).public
        parties.once("indicator", lambda: selection.encrypt_indicator(key, place, 2))
        return super().select_noise(parties, place)


class NoUnit(QuickKeys):
    def select_noise(self, parties: Parties, place: int) -> Any:
        parties.once("indicator", lambda: bytes(3 * 512))
        return super().select_noise(parties, place)


class AnothersTurn(QuickKeys):
    def select_noise(self, parties: Parties, place: int) -> Any:
        key = PrivateKey.from_bytes(parties.once("curator key", self._new_key)).public
        indicated = selection.encrypt_indicator(key, place, 3)
        parties.ask(self.select, to=["cedar"], label=0, curator_key=key.to_bytes(), indicator=indicated)
        raise AssertionError("a party took the turn of another one")


class AlteredLetter(QuickKeys):
    def find_smallest(self, parties: Parties, stream: Stream) -> int:
        ask = parties.ask

        def altered(step_of: Any, **values: Any) -> dict[str, PartyValues]:
            if getattr(step_of, "__name__", "") == "shuffle":
                letter = parties._memory.mail["ash"][-1]
                letter["box"] = letter["box"][:-1] + bytes([letter["box"][-1] ^ 1])
            return ask(step_of, **values)

        cast(Any, parties).ask = altered
        return super().find_smallest(parties, stream)


class LostLetter(AlteredLetter):
    def find_smallest(self, parties: Parties, stream: Stream) -> int:
        ask = parties.ask

        def lossy(step_of: Any, **values: Any) -> dict[str, PartyValues]:
            if getattr(step_of, "__name__", "") == "shuffle":
                parties._memory.mail["ash"].pop()
            return ask(step_of, **values)

        cast(Any, parties).ask = lossy
        return PublishedAveraging.find_smallest(self, parties, stream)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ShortMask, "ciphertext"),
        (ShortIndicator, "ciphertext"),
        (NoUnit, "ciphertext"),
        (AnothersTurn, "too-often"),
        (AlteredLetter, "missing"),
        (LostLetter, "missing"),
    ],
)
def test_a_message_that_is_cut_or_altered_is_refused_and_nothing_is_drawn(kind: Any, said: str) -> None:
    room = refused(kind, said)
    assert not any(noise.drawn for noise in room.noises.values())


def test_ciphertexts_are_read_whole_or_not_at_all() -> None:
    key = private().public
    raw = selection.write_ciphertexts(key, [key.encrypt(1), key.encrypt(2)])
    assert len(selection.read_ciphertexts(key, raw, 2)) == 2
    for wrong in (raw[:-1], raw + b"\0", raw[:512], bytes(1024)):
        with pytest.raises(Malformed):
            selection.read_ciphertexts(key, wrong, 2)
    with pytest.raises(ValueError, match="re-randomised"):
        selection.write_ciphertexts(key, [Ciphertext(key.encrypt(1).value)])


def test_a_key_of_another_size_is_refused() -> None:
    method = Averaging.published_over_rows(width=2, key_bits=3072)
    with pytest.raises(Malformed, match="3072"):
        method._key(private().public.to_bytes())


def test_steps_out_of_order_are_refused() -> None:
    room = meeting()
    parties = room.parties()
    begin(parties)
    for name in ("shuffle", "divide"):
        with pytest.raises(Refused):
            parties.ask(name, to=["ash"])


class Greedy(QuickKeys):
    """Draws for a larger sensitivity than declared, of a release that carries none, or twice."""

    how = "more"

    @step()
    def make_order(self, site: Site) -> None:
        if self.how == "more":
            site.draw("noise", sensitivity=2 * self.noise_for(site.consortium).sensitivity(1))
        elif self.how == "other":
            site.draw("piece", sensitivity=1.0)
        else:
            site.draw("noise", sensitivity=1.0)
            site.draw("noise", sensitivity=1.0)


@pytest.mark.parametrize(("how", "draws"), [("more", 0), ("other", 0), ("twice", None)])
def test_a_site_draws_what_is_declared_once(how: str, draws: Any) -> None:
    room = meeting(kind=type("Greedy", (Greedy,), {"how": how}))
    with pytest.raises(ComityError):
        run(room.parties())
    if draws is not None:
        assert len(room.noises["ash"].drawn) == draws and room.spent("ash") == 0
    assert room.spent("ash") <= 1.0
