"""Products across parties: exact through the secure sum, and nobody sees an exact one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.crypto.products import dealer_product, rlwe_product
from comity.crypto.products.dealer_product import Layout, Party, _fill_mask, deal
from comity.crypto.products.fixed_point import FixedPoint
from comity.data import Records
from comity.errors import Refused, Stopped
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.codec import decode
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
    assert protocol.product.bits < 64 or method == "dealer"
    parts = Lifecycle().declare(parties.consortium), SecureSum().declare(parties.consortium)
    around = {release.name for part in parts for release in part.releases}
    assert not around & {release.name for release in protocol.product.declare(parties.consortium).releases}
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            values = decode(exchange.reply)["ok"]
            assert set(values) <= {*around, "cross"}, path
            if "cross" in values:
                assert not np.isin(truth << shift, values["cross"]).any()


def test_a_lone_share_would_tell_the_dealer_the_product() -> None:
    """Positive control for opening through the secure sum: the dealer knows all masks, so one share is enough."""
    protocol, parties, hosts = study("dealer", NoNoise())
    run_until_opened(protocol, parties)
    hands = parties.under("product").once("hands", dict)
    site = _site(hosts["cedar"])
    share = protocol.product.shares(site, ROWS)[("ash", "cedar")]
    # share = D_ashᵀ X_cedar + W, with D = X − U: the dealer, who knows U and W, lacks only Xᵀ X_cedar …
    from comity.crypto.products.dealer_product import _fill_mask, _own_share

    w = _own_share(hands["cedar"]["seed"], 0, COLUMNS["ash"], COLUMNS["cedar"])
    mask = np.empty((COLUMNS["ash"], ROWS), np.uint64)
    _fill_mask(mask, hands["ash"]["seed"], 0)
    units = {p: np.rint(hosts[p].records.features * 2.0**12).astype(np.int64).view(np.uint64) for p in ("ash", "cedar")}
    opened, x = units["ash"].T - mask, units["cedar"]
    np.testing.assert_array_equal(share - w, opened @ x)


def run_until_opened(protocol: Any, parties: Any) -> None:
    begin(parties)
    protocol.product.coordinate_products(parties, ROWS)
    parties.sum(protocol.open)


def _site(host: Any) -> Site:
    from comity.federation.messages.ask import StepPath
    from comity.federation.owner.site import Site

    return Site(host, "run-1", StepPath("", "open", "0"), "cross")


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_records_that_change_during_the_run_stop_it(method: str) -> None:
    protocol, parties, hosts = study(method, NoNoise())
    begin(parties)
    protocol.product.coordinate_products(parties, ROWS)
    hosts["birch"].__dict__["records"] = Records(np.zeros((ROWS, 3)))
    if method == "dealer":
        with pytest.raises(Exception, match="stopped"):
            parties.sum(protocol.open)
    else:
        parties.sum(protocol.open)  # shares were made before; the change has no effect


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


def dealt(protocol: Any, view: Any) -> None:
    """The first stretch, masked and on its way."""
    order = list(COLUMNS)
    hands = [
        {"seed": hand.seed, "corrections": {order[j]: words for j, words in hand.corrections.items()}}
        for hand in deal(protocol.product._layout(ROWS))
    ]
    view.ask("blind", each={party: {"hand": hand} for party, hand in zip(order, hands)}, rows=ROWS)


def test_rows_in_several_stretches_give_the_same_products(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    found = run(parties)["result"]
    np.testing.assert_allclose(found, exact(protocol, hosts), atol=1.5 * 2.0**-24)
    paths = [path for path, _ in parties.journal.traffic(parties.study, parties.run)]
    assert [p for p in paths if p.startswith("product.")] == [
        "product.blind[0]",
        "product.absorb[0]",
        "product.absorb[1]",
    ]


def test_one_stretch_and_several_release_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    whole = run(parties)["result"]
    monkeypatch.setattr(dealer_product, "_BLOCK_WORDS", 512)
    monkeypatch.setattr(product, "STRETCH", 1)
    protocol, parties, _ = study("dealer", NoNoise())
    assert len(protocol.product._stretches(ROWS)) == 2
    np.testing.assert_array_equal(run(parties)["result"], whole)


def test_a_site_does_not_keep_what_it_has_absorbed(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    begun(parties)
    protocol.product.coordinate_products(parties, ROWS)
    parties.sum(protocol.open)
    for host in hosts.values():
        with host.store.ledger.reading() as connection:
            names = connection.execute(
                "select name, length(value) from state where owner = ?", (host.store.ledger.owner,)
            ).fetchall()
        assert {"product.sums", "product.absorbed"} <= {name for name, _ in names}
        assert not any(name.startswith("in:blinded") for name, _ in names)
        assert max(length for _, length in names) < 8 * 512, "nothing as long as a stretch"


def test_every_block_has_a_mask_of_its_own_whatever_pass_makes_it(short: None) -> None:
    layout = Layout(1400, (2, 3, 1))
    hands, form = deal(layout), FixedPoint(12)
    rows = np.random.default_rng(3).uniform(-1, 1, (1400, 2))
    blocks = [rows[start : start + 512] for start in range(0, 1400, 512)]
    whole = Party(layout, 0, hands[0], [form] * 3)
    masks = []
    for number, block in enumerate(blocks):
        words = whole.mask(block)
        whole.skip()
        later = Party(layout, 0, hands[0], [form] * 3, block=number)
        np.testing.assert_array_equal(later.mask(block), words)
        masks.append(form.columns(block, np.int64).view(np.uint64) - words)
    flat = np.concatenate([mask.reshape(-1) for mask in masks])
    assert len(np.unique(flat)) == flat.size
    other = Party(layout, 0, deal(layout)[0], [form] * 3)
    assert not np.isin(form.columns(blocks[0], np.int64).view(np.uint64) - other.mask(blocks[0]), flat).any()


def test_masked_rows_of_an_earlier_stretch_are_not_taken_for_the_next(short: None) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    view = begun(parties)
    dealt(protocol, view)
    first = {party: list(letters) for party, letters in parties._memory.mail.items()}
    view.ask("absorb", label=0)
    parties._memory.mail["ash"] = first["ash"]
    with pytest.raises(Refused, match="form"):
        view.ask("absorb", label=1)


def test_masked_rows_that_did_not_come_are_missed(short: None) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    view = begun(parties)
    dealt(protocol, view)
    parties._memory.mail["ash"].pop()
    with pytest.raises(Refused, match="form"):
        view.ask("absorb", label=0)


def test_stretches_are_absorbed_in_order_and_no_more_than_there_are(short: None) -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    view = begun(parties)
    dealt(protocol, view)
    with pytest.raises(Stopped):
        view.ask("absorb", to=["ash"], label=1)
    with pytest.raises(Refused, match="too-often"):
        view.ask("absorb", to=["birch"], label=2)


def test_records_that_change_between_two_passes_over_a_stretch_stop_it(short: None) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    view = begun(parties)
    dealt(protocol, view)
    changed = hosts["birch"].records.features.copy()
    changed[511] += 0.01
    hosts["birch"].__dict__["records"] = Records(changed)
    with pytest.raises(Stopped):
        view.ask("absorb", label=0)


KILLS = [("coordinator", moment) for moment in ("before-ask", "before-journal", "after-journal")]
KILLS += [("birch", moment) for moment in ("before-commit", "after-commit")]


@pytest.mark.parametrize("path", ["product.blind[0]", "product.absorb[0]", "product.absorb[1]"])
@pytest.mark.parametrize(("killed", "moment"), KILLS)
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


# What a party reads that records the wire: no hand of the dealer.


def rows_of(peer: str, seed: bytes, opened: np.ndarray) -> np.ndarray:
    """A peer's rows from its seed and the masked rows that it sealed to whoever asks."""
    mask = np.empty((COLUMNS[peer], ROWS), np.uint64)
    _fill_mask(mask, seed, 0)
    return ((opened.reshape(COLUMNS[peer], ROWS) + mask).view(np.int64) * 2.0**-12).T


def test_no_byte_of_a_hand_crosses_in_clear() -> None:
    protocol, parties, _ = study("dealer", NoNoise())
    line = record_channel(parties)
    begun(parties)
    protocol.coordinate(parties)
    hands = parties.under("product").once("hands", dict)
    secrets = [secret for hand in hands.values() for secret in pieces(hand)]
    assert len(secrets) == 6, "three seeds, and a correction for each pair"
    assert not any(map(line.holds, secrets))


def test_a_party_that_records_the_wire_does_not_get_at_a_peers_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, parties, hosts = study("dealer", NoNoise())
    line, opened = record_channel(parties), {}
    received = type(parties.protocol.product)._absorb_stretch

    def listening(self: Any, site: Any, *args: Any) -> Any:
        if site.party == "birch":
            opened.update(site.received("blinded"))
        return received(self, site, *args)

    monkeypatch.setattr(type(parties.protocol.product), "_absorb_stretch", listening)
    begun(parties)
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
