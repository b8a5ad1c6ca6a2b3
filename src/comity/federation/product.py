"""Products X_iᵀ X_j of matrices at different parties, as a sub-protocol: shares stay at the sites.

    rlwe      offer      each evaluator gives its encryptors a nonce
              encrypt    each encryptor seals its encrypted columns to its evaluators
              evaluate   each evaluator keeps its share and seals a reply
    dealer    blind      each party masks its matrix with what the coordinator dealt and seals it to the others

Adversary    rlwe: semi-honest parties, each with everybody else and the coordinator on its side. dealer: a coordinator
             that works with no party.
Learned      nothing but the number of rows. A protocol that mounts this calls `shares` in a step that contributes
             them to a release declared as `Opened`: noise is added on shares, and the secure sum opens the total alone.
             A share never goes to the coordinator by itself; the dealer would read a product off it.

The release that opens shares has `grid` = `Products.unit` and a bound with `ring` = `Products.bits`. With rlwe the
opened value may be one unit of 2^(−2·places) beside the product, with the small probability that
`Plan.carry_probability` states: the unit belongs into the sensitivity of what is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.dealer_product import Hand, Layout, Party, deal
from comity.crypto.fixed_point import FixedPoint, product_bits, require
from comity.crypto.rlwe_product import NONCE_BYTES, Encryptor, Evaluator, Plan, Reply, pairs
from comity.errors import Malformed, Refused, StudyError
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Blob, Count, Each, Fields
from comity.federation.parties import Parties
from comity.federation.protection import Public, Sealed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site

Words = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Products(Protocol):
    """All pairs of the parties in `columns` (their public numbers of columns), in one fixed-point form.

    `most` is the largest number of rows that the widths are laid out for, `noise` the room for noise in product units.
    """

    name = "product"
    columns: Mapping[str, int]
    places: int = 12
    bound: float = 1.0
    method: str = "rlwe"
    most: int = 1 << 20
    noise: int = 0

    def __post_init__(self) -> None:
        if self.method not in ("rlwe", "dealer"):
            raise StudyError(f"a product's method is rlwe or dealer, found {self.method!r}")
        if len(self.columns) < 2:
            raise StudyError("a product needs the columns of two parties or more")
        require(self.bits, 64)

    @property
    def form(self) -> FixedPoint:
        return FixedPoint(self.places, self.bound)

    @property
    def bits(self) -> int:
        """Of the ring that shares live in: the same for every pair and every number of rows."""
        if self.method == "dealer":
            return 64
        # Two bits to spare, as every sum has.
        return product_bits(self.most, self.form, self.form, noise=self.noise) + 2

    @property
    def unit(self) -> float:
        """One unit of a product, in the units of the value: the `grid` of the release that opens shares."""
        return float(2.0 ** (-2 * self.places))

    def declare(self, who: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Any) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        hand = Fields({"seed": Blob(32), "corrections": Each(Array(None, "<u8"))})
        message = Fields({"nonce": Blob(NONCE_BYTES), "blocks": Array(None, "<i4")})
        reply = Fields({"h": Array(None, "<u4"), "v": Array(None, "<u4")})
        own = (
            release("nonce", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), Blob(NONCE_BYTES)),
            release("encrypted", EVERY_PARTY, EVERY_PARTY, Sealed("ring-LWE ciphertexts"), message),
            release("evaluated", EVERY_PARTY, EVERY_PARTY, Sealed("a masked result"), reply),
        )
        dealt = (
            release("hand", COORDINATOR, EVERY_PARTY, Public("random, independent of all records"), hand),
            release("blinded", EVERY_PARTY, EVERY_PARTY, Sealed("a uniform matrix"), Array(None, "<u8")),
        )
        rows = release("rows", COORDINATOR, EVERY_PARTY, Public("how many records the parties share"), Count(self.most))
        return Declaration(
            (rows, *(own if self.method == "rlwe" else dealt)),
            adversary="each party with everybody else" if self.method == "rlwe" else "a coordinator without parties",
        )

    def matrix(self, site: Site) -> NDArray[np.float64]:
        """This party's rows, in the common order if there was an alignment."""
        order = site.kept("align.rows")
        return site.features if order is None else site.features[order]

    def _checked(self, site: Site, rows: int) -> NDArray[np.float64]:
        """The matrix, the same as at the first step: a mask or a secret serves one matrix."""
        # Clipped here, so that no record outside its bound can be noticed from outside.
        found = np.clip(np.nan_to_num(self.matrix(site)), -self.bound, self.bound)
        if found.shape != (rows, self.columns[site.party]):
            raise Refused("the matrix has another shape than the study agreed on", code="stopped")
        digest = hashlib.sha256(found.tobytes()).digest()
        if site.kept("product.digest", digest) != digest:
            raise Refused("the records changed during the run", code="stopped")
        site.keep("product.digest", digest)
        return found

    # Without a dealer.

    def _plan(self, first: str, second: str, rows: int) -> Plan:
        a, b = self.columns[first], self.columns[second]
        return Plan.choose(rows, a, b, self.form, self.form, noise=self.noise, bits=self.bits)

    def _as_evaluator(self, party: str) -> list[str]:
        return [a for a, b in pairs(self.columns) if b == party]

    def _as_encryptor(self, party: str) -> list[str]:
        return [b for a, b in pairs(self.columns) if a == party]

    @step()
    def offer(self, site: Site, rows: int) -> None:
        for peer in self._as_evaluator(site.party):
            seed = site.secret()
            site.keep(f"product.seed/{peer}", seed)
            site.send(peer, "nonce", Evaluator(self._plan(peer, site.party, rows), seed).nonce)

    @step()
    def encrypt(self, site: Site, rows: int) -> None:
        matrix, nonces = self._checked(site, rows), site.received("nonce", self._as_encryptor(site.party))
        for peer in self._as_encryptor(site.party):
            plan, seed = self._plan(site.party, peer, rows), site.secret()
            site.keep(f"product.seed/{peer}", seed)
            side = Encryptor(plan, seed)
            blocks = [side.begin(nonces[peer])]
            for start in range(0, rows, plan.block_rows):
                lines = self.form.columns(matrix[start : start + plan.block_rows], np.int32)
                blocks.append(side.encrypt(lines))
            flat = np.concatenate([block.reshape(-1) for block in blocks]).astype("<i4")
            site.send(peer, "encrypted", {"nonce": side.nonce, "blocks": flat})

    @step()
    def evaluate(self, site: Site, rows: int) -> None:
        matrix, messages = self._checked(site, rows), site.received("encrypted", self._as_evaluator(site.party))
        for peer in self._as_evaluator(site.party):
            plan = self._plan(peer, site.party, rows)
            side = Evaluator(plan, site.kept(f"product.seed/{peer}"))
            flat, at = messages[peer]["blocks"], 0

            def take(length: int, plan: Plan = plan, flat: NDArray[np.int32] = flat) -> NDArray[np.int32]:
                nonlocal at
                shape = (plan.parameters.words, plan.columns_a, length)
                part = flat[at : at + int(np.prod(shape))]
                if part.size != int(np.prod(shape)):
                    raise Malformed("encrypted columns are missing", code="form")
                at += part.size
                return part.reshape(shape)

            side.begin(messages[peer]["nonce"], take(plan.block_rows))
            for start in range(0, rows, plan.block_rows):
                lines = self.form.columns(matrix[start : start + plan.block_rows], np.int32)
                side.absorb(take(lines.shape[1]), lines)
            reply = side.reply()
            site.keep(f"product.share/{peer}", side.share())
            site.send(peer, "evaluated", {"h": reply.h, "v": reply.v})

    # With a dealer.

    @step()
    def blind(self, site: Site, rows: int, hand: dict[str, Any]) -> None:
        site.keep("product.hand", hand)
        side, matrix = self._party(site, rows), self._checked(site, rows)
        masked = []
        for start, count in self._blocks(rows):
            masked.append(side.mask(matrix[start : start + count]).reshape(-1))
            # The peers' blocks are absorbed when they have arrived, in a pass of its own.
            side.forgo()
        flat = np.concatenate(masked)
        for peer in self.columns:
            if peer != site.party:
                site.send(peer, "blinded", flat)

    # Towards the protocol that mounts this.

    def shares(self, site: Site, rows: int) -> dict[tuple[str, str], Words]:
        """This party's shares of X_iᵀ X_j by (i, j), in the order of `columns`, modulo 2^`bits`."""
        found = self._dealt_shares(site, rows) if self.method == "dealer" else self._own_shares(site, rows)
        order = list(self.columns)
        out = {}
        for peer, share in found.items():
            # `found` has the rows of the encryptor or of the earlier party first.
            first = peer if self._rows_first(site.party, peer) == peer else site.party
            second = site.party if first == peer else peer
            flip = order.index(first) > order.index(second)
            out[(second, first) if flip else (first, second)] = share.T.copy() if flip else share
        return out

    def _rows_first(self, one: str, other: str) -> str:
        if self.method == "dealer":
            order = list(self.columns)
            return one if order.index(one) < order.index(other) else other
        return one if (one, other) in pairs(self.columns) else other

    def _own_shares(self, site: Site, rows: int) -> dict[str, Words]:
        out = {peer: site.kept(f"product.share/{peer}") for peer in self._as_evaluator(site.party)}
        replies = site.received("evaluated", self._as_encryptor(site.party))
        for peer in self._as_encryptor(site.party):
            side = Encryptor.awaiting(self._plan(site.party, peer, rows), site.kept(f"product.seed/{peer}"))
            out[peer] = side.share(Reply(replies[peer]["h"], replies[peer]["v"]))
        return out

    def _dealt_shares(self, site: Site, rows: int) -> dict[str, Words]:
        order, matrix = list(self.columns), self._checked(site, rows)
        side, opened = self._party(site, rows), site.received("blinded")
        at = dict.fromkeys(opened, 0)
        for start, count in self._blocks(rows):
            side.mask(matrix[start : start + count])
            blocks = {}
            for peer, flat in opened.items():
                size = count * self.columns[peer]
                blocks[order.index(peer)] = flat[at[peer] : at[peer] + size].reshape(self.columns[peer], -1)
                at[peer] += size
            side.absorb(blocks)
        return {order[number]: share for number, share in side.shares().items()}

    def _layout(self, rows: int) -> Layout:
        return Layout(rows, tuple(self.columns.values()))

    def _blocks(self, rows: int) -> list[tuple[int, int]]:
        out, start = [], 0
        for count in self._layout(rows).blocks():
            out.append((start, count))
            start += count
        return out

    def _party(self, site: Site, rows: int) -> Party:
        order, hand = list(self.columns), site.kept("product.hand")
        corrections = {order.index(peer): matrix for peer, matrix in hand["corrections"].items()}
        forms = [self.form] * len(order)
        return Party(
            self._layout(rows), order.index(site.party), Hand(hand["seed"], corrections), forms, noise=self.noise
        )

    # The coordinator's side.

    def coordinate_products(self, parties: Parties, rows: int, mount: str = "product") -> None:
        """Bring shares of all products to the sites."""
        view, order = parties.under(mount), list(self.columns)
        if self.method == "rlwe":
            for name in ("offer", "encrypt", "evaluate"):
                view.ask(name, to=order, rows=rows)
            return

        def dealt() -> dict[str, Any]:
            hands = deal(self._layout(rows))
            return {
                party: {"seed": hand.seed, "corrections": {order[j]: matrix for j, matrix in hand.corrections.items()}}
                for party, hand in zip(order, hands)
            }

        hands = view.once("hands", dealt)
        view.ask("blind", each={party: {"hand": hands[party]} for party in order}, rows=rows)
