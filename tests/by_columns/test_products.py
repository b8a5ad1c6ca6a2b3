"""Products across parties: exact through the secure sum, and nobody sees an exact one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.crypto.packed_words import pack_words, unpack_words
from comity.crypto.products import dealer_product, rlwe_product
from comity.crypto.products.dealer_product import _fill_mask, _own_share
from comity.data import Records
from comity.errors import Malformed, Refused, Stopped
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.codec import decode
from comity.federation.owner.mailbox import Mailbox
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.federation.sum.site import SecureSum
from comity.methods.by_columns import products as product
from comity.methods.by_columns.products import Products
from comity.privacy.loss import ZCDP
from comity.privacy.mechanisms import Gaussian
from tests.federation.test_resume import Killed, kill_at, stored
from tests.support.channels import pieces, record_channel
from tests.support.consortia import make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import set_up_run

COLUMNS = {"ash": 2, "birch": 3, "cedar": 1}
ROWS = 700


@dataclass(frozen=True, kw_only=True)
class Cross(Protocol):
    """All products of pairs, noised on shares and opened as one vector."""

    name = "cross"
    product: Products

    @property
    def parts(self) -> Any:
        return {"product": self.product}

    def pairs(self) -> Any:
        names = list(self.product.columns)
        return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

    def size(self) -> Any:
        return sum(self.product.columns[a] * self.product.columns[b] for a, b in self.pairs())

    def declare(self, consortium: Any) -> Declaration:
        width = sum(self.product.columns.values())
        return Declaration(
            (
                *self.product.declare(consortium).releases,
                Release(
                    name="cross",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Summed(Gaussian(ZCDP(5))),
                    form=Array((self.size(),), "<i8"),
                    bound=OpenedValue(
                        l2=width + self.product.unit * sqrt(self.size()),
                        limit=float(self.product.max_rows),
                        ring=self.product.bits,
                    ),
                    grid=self.product.unit,
                ),
                Release(
                    name="result",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Derived("cross"),
                    form=Array((self.size(),)),
                ),
            ),
            adversary="as the product says",
        )

    def coordinate(self, parties: Any) -> Any:
        self.product.coordinate_products(parties, ROWS)
        return {"result": parties.sum(self.open).value}

    @step(sends="cross")
    def open(self, site: Any) -> None:
        held = self.product.shares(site, ROWS)
        vector = np.zeros(0, np.uint64)
        for pair in self.pairs():
            shape = tuple(self.product.columns[p] for p in pair)
            mine = held.get(pair, np.zeros(shape, np.uint64))
            assert mine.shape == shape
            vector = np.concatenate([vector, mine.reshape(-1)])
        site.contribute(share=vector)


def study(method: Any, noise: Any = None, lose: Any = (), folder: Any = None, most: Any = 1 << 12) -> Any:
    protocol = Cross(product=Products(columns=COLUMNS, method=method, max_rows=most, noise=1 << 34))
    parties, hosts = set_up_run(protocol, make_consortium(3, dropouts=0), folder, noise=noise, lose=lose, epsilon=50.0)
    for number, (name, host) in enumerate(hosts.items()):
        generator = np.random.default_rng(number)
        host.__dict__["records"] = Records(generator.uniform(-1, 1, (ROWS, COLUMNS[name])))
    return protocol, parties, hosts


def exact(protocol: Any, hosts: Any) -> np.ndarray:
    units = {n: np.rint(h.records.features * 2.0**12) for n, h in hosts.items()}
    return np.concatenate([(units[a].T @ units[b]).reshape(-1) for a, b in protocol.pairs()]) * 2.0**-24


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_the_opened_products_are_exact_without_noise(method: str) -> None:
    protocol, parties, hosts = study(method, NoNoise())
    np.testing.assert_allclose(run(parties)["result"], exact(protocol, hosts), atol=1.5 * 2.0**-24)


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_noise_is_added_on_shares(method: str) -> None:
    protocol, parties, hosts = study(method)
    off = run(parties)["result"] - exact(protocol, hosts)
    scale = parties.declaration["cross"].scale(parties.consortium)
    assert 0.2 < off.std() / (scale.total * scale.grid * sqrt(3 / 2)) < 2.5


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_the_coordinator_sees_sealed_mail_masked_vectors_and_nothing_else(method: str) -> None:
    protocol, parties, hosts = study(method, NoNoise())
    run(parties)
    truth = np.rint(exact(protocol, hosts) * 2.0**24).astype(np.int64).view(np.uint64)
    shift = np.uint64(64 - protocol.product.bits)
    assert protocol.product.bits < 64
    parts = Lifecycle().declare(parties.consortium), SecureSum().declare(parties.consortium)
    around = {release.name for part in parts for release in part.releases}
    assert not around & {release.name for release in protocol.product.declare(parties.consortium).releases}
    shown = {"masked_columns"} if method == "dealer" else set()
    assert {
        release.name for release in protocol.product.declare(parties.consortium).releases if release.to == COORDINATOR
    } == shown
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            values = decode(exchange.reply)["ok"]
            assert set(values) <= {*around, *shown, "cross"}, path
            if "cross" in values:
                assert not np.isin(truth << shift, values["cross"]).any()


def shown_words(parties: Any, party: str, stretch: int = 0) -> np.ndarray:
    """What a party showed to the coordinator, whose journal answers."""
    found = parties.under("product").ask("mask", to=list(COLUMNS), label=stretch, rows=ROWS)[party]
    return unpack_words(found["masked_columns"], found["masked_columns"]["low"].size)


def units(host: Any) -> np.ndarray:
    return np.asarray(np.rint(host.records.features * 2.0**12).astype(np.int64).view(np.uint64))


def ring_of(protocol: Any) -> np.uint64:
    return np.uint64((1 << protocol.product.bits) - 1)


def seed_of(hosts: Any) -> bytes:
    return bytes(decode(hosts["ash"].store.state("run-1", "product.seed")))


def test_a_lone_share_would_tell_the_coordinator_the_product() -> None:
    """Positive control for opening through the secure sum: the coordinator has all masked rows, so one share is
    enough."""
    protocol, parties, hosts = study("dealer", NoNoise())
    run_until_opened(protocol, parties)
    seeds = parties.under("product").once("seeds", dict)
    share = protocol.product.shares(_site(hosts["ash"]), ROWS)[("ash", "cedar")]
    # share = Y_ashᵀ M_cedar + R, with R = Y_ashᵀ Y_cedar − W: the coordinator, who knows Y and W, lacks only X_cedar …
    w = _own_share(seeds["cedar"], 0, COLUMNS["ash"], COLUMNS["cedar"])
    shown = shown_words(parties, "ash").reshape(COLUMNS["ash"], ROWS)
    np.testing.assert_array_equal(share + w & ring_of(protocol), shown @ units(hosts["cedar"]) & ring_of(protocol))


def test_what_the_coordinator_is_shown_is_uniform_and_is_all_that_a_peer_lacks() -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    run_until_opened(protocol, parties)
    ring, seed = ring_of(protocol), seed_of(hosts)
    for number, (party, columns) in enumerate(COLUMNS.items()):
        words = shown_words(parties, party)
        assert words.size == columns * ROWS and words.max() <= ring
        # Of small integers every word lies in the lowest or highest 2^13; of uniform ones hardly one does.
        signed = (words << np.uint64(64 - protocol.product.bits)).view(np.int64) >> (64 - protocol.product.bits)
        assert np.abs(signed).min() > 1 << 13 and np.unique(words).size == words.size
        # Control: with the seed that every party has, the rows are read.
        mask = np.empty((columns, ROWS), np.uint64)
        _fill_mask(mask, seed, number, 0)
        np.testing.assert_array_equal(words.reshape(columns, ROWS) + mask & ring, units(hosts[party]).T & ring)


def test_what_the_parties_are_given_covers_the_products_of_what_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that knows all masks and reads Y_iᵀ Y_j would have X_iᵀ X_j up to sums that it computes."""
    given, write = list[Any](), Products._write

    def writing(self: Products, hand: Any) -> Any:
        given.append(write(self, hand))
        return given[-1]

    monkeypatch.setattr(Products, "_write", writing)
    protocol, parties, _ = study("dealer", NoNoise())
    run_until_opened(protocol, parties)
    y = {party: shown_words(parties, party).reshape(columns, ROWS) for party, columns in COLUMNS.items()}
    assert [set(hand["corrections"]) for hand in given] == [{"birch", "cedar"}, {"cedar"}, set()]
    assert len({hand["seed"] for hand in given}) == 3
    for number, (a, hand) in enumerate(zip(COLUMNS, given)):
        for b, correction in hand["corrections"].items():
            products = y[a] @ y[b].T
            assert not np.isin(correction, products).any()
            # Control: only the seed of the other party of the pair uncovers them.
            found = [one["seed"] for one in given if one is not hand]
            opened = [correction + _own_share(seed, number, COLUMNS[a], COLUMNS[b]) for seed in found]
            assert sum(np.array_equal(one, products) for one in opened) == 1


def test_a_wrong_share_of_the_coordinator_moves_the_sum_by_itself_and_no_party_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong result, by a number that the coordinator chose: what a site multiplies depends on no word of it."""
    write = Products._write

    def false(self: Any, hand: Any) -> Any:
        found = write(self, hand)
        if "cedar" in found["corrections"]:
            found["corrections"]["cedar"] = found["corrections"]["cedar"] + np.uint64(5 << 24)
        return found

    monkeypatch.setattr(Products, "_write", false)
    protocol, parties, hosts = study("dealer", NoNoise())
    off = run(parties)["result"] - exact(protocol, hosts)
    moved = np.concatenate([np.full(COLUMNS[a] * COLUMNS[b], 5.0 * (b == "cedar")) for a, b in protocol.pairs()])
    np.testing.assert_allclose(off, moved, atol=1.5 * 2.0**-24)


def run_until_opened(protocol: Any, parties: Any) -> None:
    begin(parties)
    protocol.product.coordinate_products(parties, ROWS)
    parties.sum(protocol.open)


def _site(host: Any) -> Site:
    from comity.federation.messages.ask import StepPath
    from comity.federation.owner.site import Site

    return Site(host, "run-1", StepPath("", "open", "0"), "cross")


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_shares_are_of_the_records_that_were_read(method: str) -> None:
    """Shares were made before the records change: the change has no effect."""
    protocol, parties, hosts = study(method, NoNoise())
    begin(parties)
    protocol.product.coordinate_products(parties, ROWS)
    truth = exact(protocol, hosts)
    hosts["birch"].__dict__["records"] = Records(np.zeros((ROWS, 3)))
    found = parties.sum(protocol.open).value
    np.testing.assert_allclose(found, truth, atol=1.5 * 2.0**-24)


def test_records_that_change_between_two_readings_of_a_stretch_stop_the_run() -> None:
    """A party of a ring product reads its rows once to encrypt them and once to evaluate."""
    _, parties, hosts = study("rlwe", NoNoise())
    view = begun(parties)
    view.ask("offer", to=list(COLUMNS), rows=ROWS)
    view.ask("encrypt", to=list(COLUMNS), label=0, rows=ROWS)
    reads_twice = [p for p in COLUMNS if parties.protocol.product._as_evaluator(p)]
    both = [p for p in reads_twice if parties.protocol.product._as_encryptor(p)]
    changed = hosts[both[0]].records.features.copy()
    changed[511] += 0.01
    hosts[both[0]].__dict__["records"] = Records(changed)
    with pytest.raises(Stopped):
        view.ask("evaluate", to=both, label=0, rows=ROWS)


def test_room_for_the_product_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(Refused):
        Products(columns=COLUMNS, places=30, method="rlwe", max_rows=1 << 24)


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_a_record_outside_its_bound_is_clipped_and_can_not_be_noticed(method: str) -> None:
    protocol, parties, hosts = study(method, NoNoise())
    wild = hosts["cedar"].records.features.copy()
    wild[0], wild[1] = 1e9, np.nan
    hosts["cedar"].__dict__["records"] = Records(wild)
    result = run(parties)["result"]
    hosts["cedar"].__dict__["records"] = Records(np.clip(np.nan_to_num(wild), -1, 1))
    np.testing.assert_allclose(result, exact(protocol, hosts), atol=1.5 * 2.0**-24)


# Rows in several stretches.


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 512 rows, one to a stretch: 1,400 rows are three of them."""
    monkeypatch.setattr(dealer_product, "_BLOCK_WORDS", 512)
    monkeypatch.setattr(product, "STRETCH", 1)
    monkeypatch.setattr(f"{__name__}.ROWS", 1400)


def begun(parties: Any) -> Any:
    begin(parties)
    return parties.under("product")


def masked(view: Any, *stretches: int) -> None:
    view.ask("blind", to=["ash"])
    for stretch in stretches:
        view.ask("mask", to=list(COLUMNS), label=stretch, rows=ROWS)


def test_rows_in_several_stretches_give_the_same_products(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    found = run(parties)["result"]
    np.testing.assert_allclose(found, exact(protocol, hosts), atol=1.5 * 2.0**-24)
    paths = [path for path, _ in parties.journal.traffic(parties.study, parties.run)]
    assert [p for p in paths if p.startswith("product.")] == [
        "product.blind[0]",
        "product.mask[0]",
        "product.mask[1]",
        "product.mask[2]",
        "product.settle[0]",
    ]


def test_one_stretch_and_several_release_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    whole = run(parties)["result"]
    monkeypatch.setattr(dealer_product, "_BLOCK_WORDS", 512)
    monkeypatch.setattr(product, "STRETCH", 1)
    protocol, parties, _ = study("dealer", NoNoise())
    assert len(protocol.product._stretches(ROWS)) == 2
    np.testing.assert_array_equal(run(parties)["result"], whole)


def test_nothing_that_a_site_keeps_grows_with_the_rows(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    begun(parties)
    protocol.product.coordinate_products(parties, ROWS)
    for host in hosts.values():
        with host.store.ledger.reading() as connection:
            names = connection.execute(
                "select name, length(value) from state where owner = ? and not name like 'out:%'",
                (host.store.ledger.owner,),
            ).fetchall()
        assert {"product.shares", "product.masked"} <= {name for name, _ in names}
        assert "product.sums" not in {name for name, _ in names}
        assert max(length for _, length in names) < 8 * 512, "nothing as long as a stretch"


def test_every_stretch_and_party_has_a_mask_of_its_own(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    begun(parties)
    protocol.product.coordinate_products(parties, ROWS)
    masks = []
    for party, columns in COLUMNS.items():
        for stretch, part in enumerate(protocol.product._stretches(ROWS)):
            words = shown_words(parties, party, stretch).reshape(columns, -1)
            masks.append(units(hosts[party])[part].T - words & ring_of(protocol))
    flat = np.concatenate([mask.reshape(-1) for mask in masks])
    assert len(np.unique(flat)) == flat.size


@pytest.mark.parametrize("shared", [False, True])
def test_the_attack_on_one_mask_for_all_stretches(short: None, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown of two stretches under one mask differs by their rows."""
    if shared:
        fill = dealer_product._fill_mask
        monkeypatch.setattr(dealer_product, "_fill_mask", lambda mask, seed, party, block: fill(mask, seed, party, 0))
    protocol, parties, hosts = study("dealer", NoNoise())
    begun(parties)
    protocol.product.coordinate_products(parties, ROWS)
    first, second = (shown_words(parties, "birch", stretch).reshape(3, 512) for stretch in range(2))
    rows = units(hosts["birch"])
    truth = (rows[:512] - rows[512:1024]).T & ring_of(protocol)
    assert np.array_equal(first - second & ring_of(protocol), truth) is shared


def test_stretches_are_masked_in_order_and_no_more_than_there_are(short: None) -> None:
    _, parties, _ = study("dealer", NoNoise())
    view = begun(parties)
    masked(view, 0)
    with pytest.raises(Stopped):
        view.ask("mask", to=["ash"], label=2, rows=ROWS)
    with pytest.raises(Refused, match="too-often"):
        view.ask("mask", to=["birch"], label=3, rows=ROWS)


def test_rows_are_masked_with_the_seed_of_the_first_party_alone(short: None) -> None:
    _, parties, _ = study("dealer", NoNoise())
    view = begun(parties)
    with pytest.raises(Stopped):
        view.ask("blind", to=["birch"])
    with pytest.raises(Stopped):
        view.ask("mask", to=["cedar"], label=0, rows=ROWS)


def test_products_are_shared_after_all_rows_and_in_their_shapes(short: None) -> None:
    _, parties, hosts = study("dealer", NoNoise())
    view = begun(parties)
    masked(view, 0, 1)
    corrections = {"cedar": np.zeros((3, 1), np.uint64)}
    with pytest.raises(Stopped):
        view.ask("settle", each={"birch": {"hand": {"seed": bytes(32), "corrections": corrections}}}, rows=ROWS)
    _, parties, hosts = study("dealer", NoNoise())
    view = begun(parties)
    masked(view, 0, 1, 2)
    for wrong in ({}, {"cedar": np.zeros((1, 3), np.uint64)}, {**corrections, "ash": np.zeros((2, 3), np.uint64)}):
        with pytest.raises(Refused, match="form"):
            view.ask("settle", each={"birch": {"hand": {"seed": bytes(32), "corrections": wrong}}}, rows=ROWS)
    with pytest.raises(Refused, match="after all rows"):
        parties.protocol.product.shares(_site(hosts["birch"]), ROWS)


def test_the_coordinator_takes_no_masked_rows_of_another_number(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    monkeypatch.setattr(product, "pack_words", lambda words, bits: pack_words(words[:-1], bits))
    begun(parties)
    with pytest.raises(Malformed, match="words were expected"):
        protocol.product.coordinate_products(parties, ROWS)


KILLS = [("coordinator", moment) for moment in ("before-ask", "before-journal", "after-journal")]
KILLS += [("birch", moment) for moment in ("before-commit", "after-commit")]


@pytest.mark.parametrize(
    ("path", "killed", "moment"),
    [
        # The first party alone is asked for the seed.
        *(("product.blind[0]", "ash" if killed == "birch" else killed, moment) for killed, moment in KILLS),
        *((f"product.{path}", *kill) for path in ("mask[0]", "mask[1]", "settle[0]") for kill in KILLS),
    ],
)
def test_a_run_killed_between_stretches_is_resumed(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, killed: Any, moment: Any
) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    _, parties, hosts = study("dealer", NoNoise(), folder=tmp_path)
    kill_at(parties, hosts, (killed, path, moment))
    with pytest.raises(Killed):
        run(parties)
    before = stored(hosts)
    protocol, parties, hosts = study("dealer", NoNoise(), folder=tmp_path)
    np.testing.assert_allclose(run(parties)["result"], exact(protocol, hosts), atol=1.5 * 2.0**-24)
    after = stored(hosts)
    assert all(after[key] == value for key, value in before.items())


# Ring products in several stretches.


@pytest.fixture
def stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of one block: 9,000 rows are three of them."""
    monkeypatch.setattr(rlwe_product, "STRETCH_BLOCKS", 1)
    monkeypatch.setattr(f"{__name__}.ROWS", 9000)


def asked(parties: Any, name: Any) -> list[Any]:
    return [path for path, _ in parties.journal.traffic(parties.study, parties.run) if path.startswith(name)]


def study_of_many() -> Any:
    return study("rlwe", NoNoise(), most=1 << 14)


def test_ring_products_in_several_stretches_are_the_same_products(stretched: None) -> None:
    protocol, parties, hosts = study_of_many()
    np.testing.assert_allclose(run(parties)["result"], exact(protocol, hosts), atol=1.5 * 2.0**-24)
    assert asked(parties, "product.e") == [f"product.{name}[{n}]" for n in range(3) for name in ("encrypt", "evaluate")]


def test_no_message_and_nothing_that_is_kept_grows_with_the_rows(stretched: None) -> None:
    _, parties, hosts = study_of_many()
    view = begun(parties)
    view.ask("offer", to=list(COLUMNS), rows=ROWS)
    sizes = []
    for stretch in range(2):
        view.ask("encrypt", to=list(COLUMNS), label=stretch, rows=ROWS)
        letters = [letter for mail in parties._memory.mail.values() for letter in mail]
        boxes = [one.get("box") or parties.journal._box(parties.run, one["bulk"]) for one in letters]
        sizes.append(max(map(len, boxes)))
        view.ask("evaluate", to=list(COLUMNS), label=stretch, rows=ROWS)
    block = 4 * 3 * max(COLUMNS["ash"], COLUMNS["cedar"]) * 4096
    assert sizes[0] < 2 * block + 10_000 and sizes[1] < block + 10_000
    for host in hosts.values():
        with host.store.ledger.reading() as connection:
            names = connection.execute(
                "select name, length(value) from state where owner = ?", (host.store.ledger.owner,)
            ).fetchall()
        assert not any(name.startswith("in:encrypted") for name, _ in names)
        assert max(length for _, length in names) < 8 * 4 * 3 * 4096 + 10_000, "the sums of one pair"


def test_stretches_of_a_ring_product_come_in_order_and_whole(stretched: None) -> None:
    _, parties, _ = study_of_many()
    view = begun(parties)
    order = list(COLUMNS)
    view.ask("offer", to=order, rows=ROWS)
    view.ask("encrypt", to=order, label=0, rows=ROWS)
    first = {party: list(letters) for party, letters in parties._memory.mail.items()}
    with pytest.raises(Stopped):
        view.ask("evaluate", to=["birch"], label=1, rows=ROWS)
    parties._memory.mail = {party: list(letters) for party, letters in first.items()}
    view.ask("evaluate", to=order, label=0, rows=ROWS)
    parties._memory.mail = first
    with pytest.raises(Refused, match="form"):
        view.ask("evaluate", to=["ash"], label=1, rows=ROWS)
    with pytest.raises(Refused, match="too-often"):
        view.ask("encrypt", to=["cedar"], label=3, rows=ROWS)


# What a party reads that records the wire.


def test_no_byte_of_a_seed_of_masked_rows_or_of_a_hand_crosses_in_clear() -> None:
    """Every party knows every mask: whoever of them read what another shows to the coordinator would read its rows."""
    protocol, parties, hosts = study("dealer", NoNoise())
    line = record_channel(parties)
    begun(parties)
    protocol.coordinate(parties)
    seeds = parties.under("product").once("seeds", dict)
    assert len(seeds) == 3 and not any(map(line.holds, [seed_of(hosts), *seeds.values()]))
    y = {party: shown_words(parties, party).reshape(columns, ROWS) for party, columns in COLUMNS.items()}
    office = dealer_product.Office(protocol.product._layout(ROWS))
    office.add(list(y.values()))
    hands = office.hands([seeds[party] for party in COLUMNS])
    shown = parties.under("product").ask("mask", to=list(COLUMNS), label=0, rows=ROWS)
    secrets = [matrix for hand in hands for matrix in hand.corrections.values()]
    secrets += [part for one in shown.values() for part in one["masked_columns"].values()]
    assert len(secrets) == 3 + 3 * 2
    assert not any(line.holds(piece) for secret in secrets for piece in pieces(secret))
    for party in COLUMNS:
        (crossed,) = line.asked(party, "hand")
        assert isinstance(crossed, bytes), "a sealed box and no hand"


def test_no_party_is_sent_what_another_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters between parties hold the seed of the masks and nothing that they mask."""
    protocol, parties, _ = study("dealer", NoNoise())
    sent: list[Any] = []
    send = Mailbox.send_all

    def sending(self: Mailbox, receivers: Any, name: str, value: Any) -> None:
        sent.append(name)
        send(self, receivers, name, value)

    monkeypatch.setattr(Mailbox, "send_all", sending)
    monkeypatch.setattr(Mailbox, "send", lambda self, to, name, *rest: sent.append(name))
    begun(parties)
    protocol.product.coordinate_products(parties, ROWS)
    assert sent == ["product_seed"]
