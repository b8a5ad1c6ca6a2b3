"""Products X_iᵀ X_j of matrices at different parties: shares of them stay at the sites.

    rlwe      offer      each evaluator gives its encryptors a nonce
              encrypt    each encryptor seals its encrypted columns to its evaluators, a stretch of rows at a time
              evaluate   each evaluator adds the stretch to its sums; after the last it keeps its share, seals a reply
    dealer    blind      the first party gives all others a seed, which the coordinator lacks
              mask       each party shows the coordinator masked rows and multiplies with masks: `STRETCH` at a time
              settle     the coordinator multiplies what it was shown, and gives each party a share of the products

Adversary    rlwe: semi-honest parties, each with everybody else and the coordinator on its side. dealer: any parties
             but one together; and a coordinator that works with no party. One that gives other words than shares of
             its products moves what is opened by a number that it knows: a wrong result, which tells no more.
Learned      nothing but the number of rows: with a dealer, the coordinator sees words that are uniform to it, and so
             does any coalition of parties but one. A protocol that mounts this part calls `shares` in a step that
             contributes them to a release with the bound `OpenedValue`: noise is added to shares, and the secure sum
             opens only the total.
             A share never goes to the coordinator alone: one that knows all masked rows could read the product from it.

The release that opens shares has `grid` = `Products.unit` and a bound with `ring` = `Products.bits`. With rlwe the
opened value may be one unit of 2^(−2·places) beside the product, with the small probability that
`Plan.carry_probability` states: the unit belongs in the sensitivity of what is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.packed_words import WIDTHS, pack_words, packed_parts, unpack_words
from comity.crypto.products.dealer_product import Hand, Layout, Office, Party, add_hand
from comity.crypto.products.fixed_point import FixedPoint, product_bits, require_bits
from comity.crypto.products.rlwe_product import NONCE_BYTES, Encryptor, Evaluator, Plan, Reply, Sums, order_pairs
from comity.data import Records
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public, Sealed
from comity.federation.declare.release import Array, Blob, Count, Each, Fields
from comity.federation.owner.site import Site
from comity.federation.part import Part, step
from comity.methods.by_columns.common_rows import common_rows

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

STRETCH = 1 << 21
"""Words that all parties together show in one ask: messages and memory do not grow with the rows."""
_MAX_STRETCHES = 1 << 16
_OWN = "product.own"


@dataclass(frozen=True, kw_only=True)
class Products(Part):
    """All pairs of the parties in `columns` (their public numbers of columns), in one fixed-point form.

    `max_rows` is the largest number of rows that the ring has room for, `noise` the room for noise, in product units.
    """

    name = "product"
    columns: Mapping[str, int]
    places: int = 12
    bound: float = 1.0
    method: str
    max_rows: int
    noise: int = 0

    def __post_init__(self) -> None:
        if self.method not in ("rlwe", "dealer"):
            raise StudyError(f"a product's method is rlwe or dealer, found {self.method!r}")
        if len(self.columns) < 2:
            raise StudyError("a product needs the columns of two parties or more")
        require_bits(self.bits, 64)

    @property
    def form(self) -> FixedPoint:
        return FixedPoint(self.places, self.bound)

    @property
    def bits(self) -> int:
        """Of the ring that shares live in: the same for every pair and every number of rows."""
        least = product_bits(self.max_rows, self.form, self.form, noise=self.noise)
        # Two bits to spare, as every sum has.
        if self.method == "dealer":
            return next((width for width in WIDTHS if width >= least + 2), max(least, WIDTHS[-1]))
        return least + 2

    @property
    def unit(self) -> float:
        """One unit of a product, in the units of the value: the `grid` of the release that opens shares."""
        return float(2.0 ** (-2 * self.places))

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Any) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        def between() -> tuple[Release, ...]:
            stretch = Count(_MAX_STRETCHES)
            message = Fields({"nonce": Blob(NONCE_BYTES), "stretch": stretch, "blocks": Array(None, "<i4")})
            reply = Fields({"h": Array(None, "<u4"), "v": Array(None, "<u4")})
            return (
                release("nonce", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), Blob(NONCE_BYTES)),
                release("encrypted", EVERY_PARTY, EVERY_PARTY, Sealed("ring-LWE ciphertexts"), message),
                release("evaluated", EVERY_PARTY, EVERY_PARTY, Sealed("a masked result"), reply),
            )

        def dealt() -> tuple[Release, ...]:
            words = Fields({name: Array(None, kind) for name, kind in packed_parts(self.bits).items()})
            hand = Fields({"seed": Blob(32), "corrections": Each(Array(None, "<u8"))})
            return (
                release("product_seed", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), Blob(32)),
                release("masked_columns", EVERY_PARTY, COORDINATOR, Sealed("a uniform matrix"), words),
                release("hand", COORDINATOR, EVERY_PARTY, Sealed("a share of products of uniform matrices"), hand),
            )

        rows = release(
            "rows", COORDINATOR, EVERY_PARTY, Public("how many records the parties share"), Count(self.max_rows)
        )
        return Declaration(
            (rows, *(between() if self.method == "rlwe" else dealt())),
            adversary="each party with everybody else" if self.method == "rlwe" else "a coordinator without parties",
        )

    def matrix(self, site: Site, rows: Records) -> NDArray[np.float64]:
        """What this party multiplies of these rows, within the public bound."""
        # A record outside its bound is clipped, not refused: nobody outside notices it.
        return np.clip(np.nan_to_num(rows.features), -self.bound, self.bound)

    def on_first_read(self, site: Site, matrix: NDArray[np.float64]) -> None:
        """A hook that sees every row once in a run, when it is first multiplied."""

    def _read_checked(self, site: Site, rows: int, part: slice, length: int) -> Iterator[NDArray[np.float64]]:
        """Rows of the matrix in blocks, in the common order if there was an alignment. If they differ from those read
        first, the step fails after the last block: a mask or a secret serves one matrix."""
        common, width, state = common_rows(site), self.columns[site.party], hashlib.sha256()
        name = f"product.digest/{part.start}"
        before = site.kept(name)
        for start in range(part.start, part.stop, length):
            which = slice(start, min(start + length, part.stop))
            block = self.matrix(site, common.read(which))
            if len(common) != rows or block.shape != (which.stop - start, width):
                raise Refused("the matrix has another shape than the study agreed on", code="stopped")
            state.update(self.digest_input(block).data)
            if before is None:
                self.on_first_read(site, block)
            yield block
        if before is None:
            site.keep(name, state.digest())
        elif before != state.digest():
            raise Refused("the records changed during the run", code="stopped")

    def digest_input(self, matrix: NDArray[np.float64]) -> NDArray[Any]:
        """The part of a matrix that is multiplied, for comparing two matrices by digest."""
        return np.ascontiguousarray(matrix)

    # Without a dealer.

    def _plan(self, first: str, second: str, rows: int) -> Plan:
        a, b = self.columns[first], self.columns[second]
        together = sum(self.columns.values())
        return Plan.choose(rows, a, b, self.form, self.form, noise=self.noise, bits=self.bits, together=together)

    def _as_evaluator(self, party: str) -> list[str]:
        return [a for a, b in order_pairs(self.columns) if b == party]

    def _as_encryptor(self, party: str) -> list[str]:
        return [b for a, b in order_pairs(self.columns) if a == party]

    @step()
    def offer(self, site: Site, rows: int) -> None:
        for peer in self._as_evaluator(site.party):
            seed = site.secret()
            site.keep(f"product.seed/{peer}", seed)
            site.send(peer, "nonce", Evaluator(self._plan(peer, site.party, rows), seed).nonce)

    @step(times=_MAX_STRETCHES)
    def encrypt(self, site: Site, rows: int) -> None:
        peers, number = self._as_encryptor(site.party), int(site.label)
        nonces, sides, messages = site.received("nonce", peers), {}, {}
        for peer in peers:
            plan = self._plan(site.party, peer, rows)
            part, seed = self._part(plan, number), site.kept(f"product.seed/{peer}")
            if number == 0:
                seed = site.secret()
                site.keep(f"product.seed/{peer}", seed)
                sides[peer] = Encryptor(plan, seed)
            else:
                sides[peer] = Encryptor.resume(plan, seed, nonces[peer], number)
            blocks = _Blocks(plan, np.empty(_length(plan, part, number), "<i4"))
            if number == 0:
                sides[peer].begin(nonces[peer], blocks.next(plan.block_rows))
            messages[peer] = blocks
        if peers:
            for lines in self._lines(site, rows, part, plan.block_rows):
                for peer, side in sides.items():
                    side.encrypt(lines, messages[peer].next(lines.shape[1]))
        for peer, side in sides.items():
            value = {"nonce": side.nonce, "stretch": number, "blocks": messages[peer].flat}
            site.send(peer, "encrypted", value)

    @step(times=_MAX_STRETCHES)
    # A first, a following and a last stretch of rows in one step.
    def evaluate(self, site: Site, rows: int) -> None:  # noqa: C901
        peers, number = self._as_evaluator(site.party), int(site.label)
        messages, sides, blocks = site.take("encrypted", peers), {}, {}
        for peer in peers:
            plan, found = self._plan(peer, site.party, rows), messages.get(peer)
            part = self._part(plan, number)
            if site.kept(f"product.evaluated/{peer}", 0) != number:
                raise Refused(f"stretch {number} of the rows is not the next one to be evaluated", code="stopped")
            if found is None or found["stretch"] != number or found["blocks"].size != _length(plan, part, number):
                raise Malformed(f"encrypted columns of stretch {number} were expected from {peer}", code="form")
            blocks[peer] = _Blocks(plan, found["blocks"])
            seed = site.kept(f"product.seed/{peer}")
            if number == 0:
                sides[peer] = Evaluator(plan, seed)
                sides[peer].begin(found["nonce"], blocks[peer].next(plan.block_rows))
            else:
                sums = site.kept(f"product.sums/{peer}")
                if sums["nonce"] != found["nonce"]:
                    raise Malformed(f"{peer} has one nonce for all stretches of its message", code="nonce")
                so_far = Sums(sums["digits"], sums["inner"])
                sides[peer] = Evaluator.resume(plan, seed, found["nonce"], number, so_far)
        if peers:
            for lines in self._lines(site, rows, part, plan.block_rows):
                for peer, side in sides.items():
                    side.absorb(blocks[peer].next(lines.shape[1]), lines)
        for peer, side in sides.items():
            site.keep(f"product.evaluated/{peer}", number + 1)
            if part.stop < rows:
                sums = side.so_far
                kept = {"nonce": messages[peer]["nonce"], "digits": sums.digits, "inner": sums.inner}
                site.keep(f"product.sums/{peer}", kept)
                continue
            reply = side.reply()
            site.forget(f"product.sums/{peer}")
            site.keep(f"product.share/{peer}", side.share())
            site.send(peer, "evaluated", {"h": reply.h, "v": reply.v})

    def _part(self, plan: Plan, number: int) -> slice:
        """The rows of a stretch: the same for every pair, because all have one form."""
        if number >= len(plan.stretches):
            raise Refused(f"there are {len(plan.stretches)} stretches of rows", code="too-often")
        return plan.stretches[number]

    def _lines(self, site: Site, rows: int, part: slice, length: int) -> Iterator[NDArray[np.int32]]:
        """The integers of a stretch, block by block, each in the room of the one before."""
        room = np.empty(length * self.columns[site.party], np.int32)
        for block in self._read_checked(site, rows, part, length):
            lines = room[: block.size].reshape(block.shape[::-1])
            self.form.fill(lines, block)
            yield lines

    # With a dealer.

    @step()
    def blind(self, site: Site) -> None:
        if site.party != self._first:
            raise Refused("the first party draws the seed of all masks", code="stopped")
        seed = site.secret()
        site.keep("product.seed", seed)
        site.send_all([party for party in self.columns if party != site.party], "product_seed", seed)

    @step(gives=("masked_columns",), times=_MAX_STRETCHES)
    def mask(self, site: Site, rows: int) -> dict[str, Any]:
        order, stretch, layout = list(self.columns), int(site.label), self._layout(rows)
        stretches = self._stretches(rows)
        if stretch >= len(stretches):
            raise Refused(f"there are {len(stretches)} stretches of rows", code="too-often")
        if site.kept("product.masked", 0) != stretch:
            raise Refused(f"stretch {stretch} of the rows is not the next one to be masked", code="stopped")
        part, sums = stretches[stretch], site.kept("product.sums")
        side = Party(
            layout,
            order.index(site.party),
            self._seed(site),
            [self.form] * len(order),
            noise=self.noise,
            block=part.start // layout.block_rows,
            so_far=None if sums is None else {order.index(peer): words for peer, words in sums.items()},
        )
        flat, at = np.empty((part.stop - part.start) * self.columns[site.party], np.uint64), 0
        for block in self._read_checked(site, rows, part, layout.block_rows):
            flat[at : at + block.size] = side.mask(block).reshape(-1)
            at += block.size
        site.keep("product.sums", {order[number]: words for number, words in side.so_far.items()})
        site.keep("product.masked", stretch + 1)
        return {"masked_columns": pack_words(flat, self.bits)}

    @step()
    def settle(self, site: Site, rows: int, hand: dict[str, Any]) -> None:
        if site.kept("product.masked", 0) != len(self._stretches(rows)):
            raise Refused("products are shared after all rows were masked", code="stopped")
        order, sums = list(self.columns), site.kept("product.sums")
        corrections = {order.index(peer): matrix for peer, matrix in hand["corrections"].items()}
        found = add_hand(
            self._layout(rows),
            order.index(site.party),
            {order.index(peer): words for peer, words in sums.items()},
            Hand(hand["seed"], corrections),
        )
        site.forget("product.sums")
        site.keep("product.shares", {order[number]: share for number, share in found.items()})

    @property
    def _first(self) -> str:
        return next(iter(self.columns))

    def _seed(self, site: Site) -> bytes:
        first = self._first
        seed = site.kept("product.seed") if site.party == first else site.received("product_seed", [first]).get(first)
        if seed is None:
            raise Refused("rows are masked after the parties have agreed on a seed", code="stopped")
        return bytes(seed)

    def _layout(self, rows: int) -> Layout:
        return Layout(rows, tuple(self.columns.values()), self.bits)

    def _stretches(self, rows: int) -> list[slice]:
        """The rows of each ask: whole blocks of the layout, each masked by a separate keystream."""
        block = self._layout(rows).block_rows
        length = max(1, STRETCH // sum(self.columns.values()) // block) * block
        return [slice(start, min(start + length, rows)) for start in range(0, rows, length)]

    # Towards the protocol that mounts this.

    def shares(self, site: Site, rows: int) -> dict[tuple[str, str], Words]:
        """This party's shares of X_iᵀ X_j by (i, j), in the order of `columns`, modulo 2^`bits`."""
        found = self._dealer_shares(site) if self.method == "dealer" else self._rlwe_shares(site, rows)
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
        return one if (one, other) in order_pairs(self.columns) else other

    def _rlwe_shares(self, site: Site, rows: int) -> dict[str, Words]:
        out = {peer: site.kept(f"product.share/{peer}") for peer in self._as_evaluator(site.party)}
        replies = site.received("evaluated", self._as_encryptor(site.party))
        for peer in self._as_encryptor(site.party):
            side = Encryptor.awaiting(self._plan(site.party, peer, rows), site.kept(f"product.seed/{peer}"))
            out[peer] = side.share(Reply(replies[peer]["h"], replies[peer]["v"]))
        return out

    def _dealer_shares(self, site: Site) -> dict[str, Words]:
        shares: dict[str, Words] | None = site.kept("product.shares")
        if shares is None:
            raise Refused("shares come after all rows were multiplied", code="stopped")
        return shares

    # The coordinator's side.

    def coordinate_products(self, parties: Parties, rows: int, mount: str = "product") -> None:
        """Bring shares of all products to the sites."""
        view, order = parties.under(mount), list(self.columns)
        if self.method == "rlwe":
            view.ask("offer", to=order, rows=rows)
            for stretch in range(len(self._plan(*order_pairs(self.columns)[0], rows).stretches)):
                view.ask("encrypt", to=order, label=stretch, rows=rows)
                view.ask("evaluate", to=order, label=stretch, rows=rows)
            return
        view.ask("blind", to=[self._first])
        layout = self._layout(rows)
        office = Office(layout)
        for stretch, part in enumerate(self._stretches(rows)):
            self._add_stretch(office, view.ask("mask", to=order, label=stretch, rows=rows), layout, part)
        # Journalled before they are used: a run that is resumed gives every party the same.
        seeds: dict[str, bytes] = view.once("seeds", lambda: {party: fresh_seed() for party in order})
        hands = office.hands([seeds[party] for party in order])
        each = {party: {"hand": self._write(hand)} for party, hand in zip(order, hands)}
        view.ask("settle", each=each, rows=rows)

    def _add_stretch(self, office: Office, shown: Mapping[str, Any], layout: Layout, part: slice) -> None:
        length, at = part.stop - part.start, 0
        words = [
            unpack_words(shown[party]["masked_columns"], columns * length) for party, columns in self.columns.items()
        ]
        while at < length:
            rows = min(layout.block_rows, length - at)
            office.add(
                [
                    one[columns * at : columns * (at + rows)].reshape(columns, rows)
                    for one, columns in zip(words, layout.columns)
                ]
            )
            at += rows

    def _write(self, hand: Hand) -> dict[str, Any]:
        order = list(self.columns)
        return {"seed": hand.seed, "corrections": {order[j]: matrix for j, matrix in hand.corrections.items()}}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductsWithOwnSums(Products):
    """Products whose parties also sum products of their own columns, when these are first multiplied."""

    def sum_own(self, matrix: Floats) -> Floats:
        """This party's sums over these rows; sums of blocks add up exactly."""
        raise NotImplementedError(f"{type(self).__name__} needs sum_own")

    def own_sums(self, site: Site) -> Floats:
        """The party's own sums, kept when its columns were first multiplied, hence of the same records."""
        found: Floats | None = site.kept(_OWN)
        if found is None:
            raise Refused("own sums come after the products", code="stopped")
        return found

    def on_first_read(self, site: Site, matrix: Floats) -> None:
        before, own = site.kept(_OWN), self.sum_own(matrix)
        site.keep(_OWN, own if before is None else before + own)


def _length(plan: Plan, part: slice, number: int) -> int:
    """Words of a stretch's message; the first has block 0 before its rows."""
    rows = int(part.stop) - int(part.start) + (plan.block_rows if number == 0 else 0)
    return plan.parameters.words * plan.columns_a * rows


class _Blocks:
    """A stretch's message, block by block."""

    def __init__(self, plan: Plan, flat: NDArray[np.int32]) -> None:
        self._plan, self.flat, self._at = plan, flat, 0

    def next(self, length: int) -> NDArray[np.int32]:
        words, columns = self._plan.parameters.words, self._plan.columns_a
        start, self._at = self._at, self._at + words * columns * length
        return self.flat[start : self._at].reshape(words, columns, length)
