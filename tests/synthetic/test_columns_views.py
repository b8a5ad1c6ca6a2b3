"""Every table across owners comes from shares: no participant's view holds one, before or after the noise is added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from comity.crypto.packed_words import unpack_words
from comity.federation.coordinator.lifecycle import begin
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import decode
from comity.federation.messages.letters import Head
from comity.federation.owner.mailbox import Mailbox
from comity.federation.owner.site import Site
from comity.federation.sum.site import SecureSum
from comity.methods.synthetic.columns import PLACES
from tests.support.noise import NoNoise
from tests.support.vertical import encode_parts, host_parties

from .by_columns import build_columns, count_exactly, make_consortium_of, make_people

ROWS = 600
# Counts below this many product units are found by chance among so many words of 32 bits.
LEAST = 20 << (2 * PLACES)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """What each party opened of what others sealed to it."""
    found: dict[Any, Any]
    found, original = {}, Mailbox.open

    def reading(site: Any, letter: Any) -> None:
        original(site, letter)
        head = Head.of(letter)
        found.setdefault(site.party, []).append((head, decode(site.effects.state[f"in:{head.name}:{head.sender}"])))

    monkeypatch.setattr(Mailbox, "open", reading)
    return found


def across(tried: Any, consortium: Any, given: Any) -> np.ndarray:
    """Exact tables across owners in product units: plain, weighted, and as they stand in the words of a sum."""
    layout, units = tried.counting(consortium).layout, np.int64(1) << (2 * PLACES)
    whole = count_exactly(tried, consortium, given).astype(np.int64)
    found = []
    for block in tried.partition.across(layout):
        table = whole[block.start : block.stop] * units
        found += [table, table // block.weight]
    values = np.concatenate(found)
    values = np.unique(values[values >= LEAST]).view(np.uint64)
    return np.concatenate([values, values << np.uint64(64 - tried.product.bits)])


def arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for one in value.values():
            yield from arrays(one)
    elif isinstance(value, np.ndarray):
        yield value.reshape(-1)


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_no_participant_sees_an_exact_count_across_owners(products: str, letters: Any) -> None:
    tried, given = build_columns(3, products=products), make_people(ROWS)
    consortium = make_consortium_of(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, given), consortium, NoNoise())
    begin(parties)
    opened = tried.coordinate(parties)["tables"]["counts"]
    forbidden = across(tried, consortium, given)
    assert len(forbidden) > 60
    # The coordinator: sizes, the letters of a run's life, masked columns, and masked words whose sum alone is opened.
    shown = {"masked_columns"} if products == "dealer" else set()
    declared = {
        "size",
        "counts",
        *shown,
        *(release.name for part in (Lifecycle(), SecureSum()) for release in part.declare(consortium).releases),
    }
    masked = 0
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            values = decode(exchange.reply or b"")["ok"]
            assert set(values) <= declared, path
            if "counts" in values:
                masked += 1
                assert not np.isin(forbidden, values["counts"]).any()
    assert masked == 3
    if shown:
        for reply in parties.under("product").ask("mask", label=0, rows=ROWS).values():
            words = unpack_words(reply["masked_columns"], reply["masked_columns"]["low"].size)
            # One-hot columns of zeros and ones: of what is shown, no word comes twice.
            assert np.unique(words).size == words.size and not np.isin(forbidden, words).any()
    # The control: without noise, what the secure sum opens are those very counts.
    counts = np.rint(opened * 4.0**PLACES).astype(np.int64).view(np.uint64)
    assert np.isin(forbidden, counts).sum() > 20 or products == "rlwe"
    # Each owner: letters that are declared, shares that tell nothing, and zeros where it holds neither column.
    between = {release.name: release for release in tried.product.declare(consortium).releases}
    for name, host in hosts.items():
        site = Site(host, parties.run, StepPath("", "contribute", "0"), "counts")
        shares = tried.product.shares(site, ROWS)
        assert set(shares) == {pair for pair in shares if name in pair} and len(shares) == 2
        held = [share.reshape(-1) for share in shares.values()]
        for head, value in letters.get(name, []):
            if head.name in between:
                between[head.name].check(value, head.sender, name, consortium, {"rows": ROWS})
                held += list(arrays(value))
            else:
                assert head.name in declared
        assert len(held) >= (4 if products == "rlwe" else 2)
        for one in held:
            # A third of a ciphertext's 100,000 words of 32 bits have no lowest byte: one in five holds some count by
            # chance, and six of them once in millions. A table in the open would show a hundred.
            by_chance = 5 if one.itemsize < 8 else 0
            assert np.isin(forbidden, one.astype(np.uint64)).sum() <= by_chance, name
        own = tried.product.own_sums(site)
        assert own.shape == (tried.partition.widths[name],) * 2
        whole = tried.partition.share(tried.counting(consortium).layout, name, own, shares)
        for block in tried.counting(consortium).layout.blocks:
            if name not in {tried.partition.holders[place] for place in block.key}:
                assert not whole[block.start : block.stop].any()


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_every_table_across_owners_is_made_from_two_shares_and_neither_alone_is_it(products: str) -> None:
    tried, given = build_columns(3, products=products), make_people(ROWS)
    consortium = make_consortium_of(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, given), consortium, NoNoise())
    begin(parties)
    tried.coordinate(parties)
    layout, bits = tried.counting(consortium).layout, np.uint64((1 << tried.product.bits) - 1)
    shares = {}
    for name, host in hosts.items():
        site = Site(host, parties.run, StepPath("", "contribute", "0"), "counts")
        own, products_of = tried.product.own_sums(site), tried.product.shares(site, ROWS)
        shares[name] = tried.partition.share(layout, name, own, products_of) & bits
    wanted = count_exactly(tried, consortium, given)
    for block in tried.partition.across(layout):
        part = slice(block.start, block.stop)
        holders = {tried.partition.holders[place] for place in block.key}
        whole = sum(shares[name][part] for name in holders) & bits
        signed = (whole << np.uint64(64 - tried.product.bits)).view(np.int64) >> (64 - tried.product.bits)
        np.testing.assert_allclose(signed * 4.0**-PLACES, wanted[part], rtol=0, atol=1.01 * block.weight * 4.0**-PLACES)
        for name in holders:
            # A uniform word is below the largest count with a chance of 2^-20 or less.
            assert (shares[name][part] > np.uint64(block.weight * ROWS << (2 * PLACES))).mean() > 0.9
