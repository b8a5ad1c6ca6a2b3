"""Products across parties: exact through the secure sum, and nobody sees an exact one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Refused
from comity.federation.bounds import Opened
from comity.federation.codec import decode
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, EVERYONE
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array
from comity.federation.parties import run
from comity.federation.product import Products
from comity.federation.protection import Derived, Summed
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import ZCDP
from comity.privacy.mechanisms import Gaussian

from .toy import UNSEEN, NoNoise, consortium, setup

COLUMNS = {"ash": 2, "birch": 3, "cedar": 1}
ROWS = 700


@dataclass(frozen=True, kw_only=True)
class Cross(Protocol):
    """All products of pairs, noised on shares and opened as one vector."""

    name = "cross"
    product: Products

    @property
    def parts(self):
        return {"product": self.product}

    def pairs(self):
        names = list(self.product.columns)
        return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

    def size(self):
        return sum(self.product.columns[a] * self.product.columns[b] for a, b in self.pairs())

    def declare(self, who):
        width = sum(self.product.columns.values())
        return Declaration(
            (
                *self.product.declare(who).releases,
                Release(
                    name="cross",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Summed(Gaussian(ZCDP(5))),
                    form=Array((self.size(),), "<i8"),
                    bound=Opened(
                        l2=width + self.product.unit * sqrt(self.size()),
                        limit=float(self.product.most),
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

    def coordinate(self, parties):
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


def study(method, noise=None, lose=(), folder=None):
    protocol = Cross(product=Products(columns=COLUMNS, method=method, most=1 << 12, noise=1 << 34))
    parties, hosts = setup(protocol, consortium(3, dropouts=0), folder, noise=noise, lose=lose, epsilon=50.0)
    for number, (name, host) in enumerate(hosts.items()):
        generator = np.random.default_rng(number)
        host.__dict__["records"] = Records(generator.uniform(-1, 1, (ROWS, COLUMNS[name])))
    return protocol, parties, hosts


def exact(protocol, hosts):
    units = {n: np.rint(h.records.features * 2.0**12) for n, h in hosts.items()}
    return np.concatenate([(units[a].T @ units[b]).reshape(-1) for a, b in protocol.pairs()]) * 2.0**-24


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_the_opened_products_are_exact_without_noise(method):
    protocol, parties, hosts = study(method, NoNoise())
    np.testing.assert_allclose(run(parties)["result"], exact(protocol, hosts), atol=1.5 * 2.0**-24)


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_noise_is_added_on_shares(method):
    protocol, parties, hosts = study(method)
    off = run(parties)["result"] - exact(protocol, hosts)
    scale = parties.declaration["cross"].scale(parties.consortium)
    assert 0.2 < off.std() / (scale.total * scale.grid * sqrt(3 / 2)) < 2.5


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_the_coordinator_sees_sealed_mail_masked_vectors_and_nothing_else(method):
    protocol, parties, hosts = study(method, NoNoise())
    run(parties)
    truth = np.rint(exact(protocol, hosts) * 2.0**24).astype(np.int64).view(np.uint64)
    shift = np.uint64(64 - protocol.product.bits)
    assert protocol.product.bits < 64 or method == "dealer"
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            values = decode(exchange.reply)["ok"]
            assert set(values) <= {"head", "key", "wills", "masked", "consent", "opening"}, path
            if "masked" in values:
                assert not np.isin(truth << shift, values["masked"]).any()


def test_a_lone_share_would_tell_the_dealer_the_product():
    """Positive control for opening through the secure sum: the dealer knows all masks, so one share is enough."""
    protocol, parties, hosts = study("dealer", NoNoise())
    run_until_opened(protocol, parties)
    hands = parties.under("product").once("hands", dict)
    site = _site(hosts["cedar"])
    share = protocol.product.shares(site, ROWS)[("ash", "cedar")]
    # share = D_ashᵀ X_cedar + W, with D = X − U: the dealer, who knows U and W, lacks only Xᵀ X_cedar …
    from comity.crypto.dealer_product import _own_share

    w = _own_share(hands["cedar"]["seed"], 0, COLUMNS["ash"], COLUMNS["cedar"])
    opened = site.received("blinded")["ash"].reshape(COLUMNS["ash"], -1)
    x = np.rint(hosts["cedar"].records.features * 2.0**12).astype(np.int64).view(np.uint64)
    np.testing.assert_array_equal(share - w, opened @ x)


def run_until_opened(protocol, parties):
    parties.under("run").ask("begin", each={p: {"seen": UNSEEN} for p in parties.alive})
    protocol.product.coordinate_products(parties, ROWS)
    parties.sum(protocol.open)


def _site(host):
    from comity.federation.site import Site

    return Site(host, host.study, "run-1", "open[0]", "cross", "0")


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_records_that_change_during_the_run_stop_it(method):
    protocol, parties, hosts = study(method, NoNoise())
    parties.under("run").ask("begin", each={p: {"seen": UNSEEN} for p in parties.alive})
    protocol.product.coordinate_products(parties, ROWS)
    hosts["birch"].__dict__["records"] = Records(np.zeros((ROWS, 3)))
    if method == "dealer":
        with pytest.raises(Exception, match="stopped"):
            parties.sum(protocol.open)
    else:
        parties.sum(protocol.open)  # shares were made before; the change has no effect


def test_room_for_the_product_is_checked_before_anything_is_sent():
    with pytest.raises(Refused):
        Products(columns=COLUMNS, places=30, most=1 << 24)


@pytest.mark.parametrize("method", ["rlwe", "dealer"])
def test_a_record_outside_its_bound_is_clipped_and_can_not_be_noticed(method):
    protocol, parties, hosts = study(method, NoNoise())
    wild = hosts["cedar"].records.features.copy()
    wild[0], wild[1] = 1e9, np.nan
    hosts["cedar"].__dict__["records"] = Records(wild)
    result = run(parties)["result"]
    hosts["cedar"].__dict__["records"] = Records(np.clip(np.nan_to_num(wild), -1, 1))
    np.testing.assert_allclose(result, exact(protocol, hosts), atol=1.5 * 2.0**-24)
