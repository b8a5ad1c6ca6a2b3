"""Gradient rounds without a dealer: shares of products under ring learning with errors stay at the sites.

Every party k with instruments has one partner: the label's holder, and for the holder the first of the others. The
score of a row is split between the two, and the round is an inner product of what k and its partner compute from their
halves, of which both hold a share. In the order of a round:

    weigh      each party computes its partial scores; for every pair that it is not in, it splits them into a random
               part for one of the two and the rest for the other; k offers a nonce
    encrypt    the partner adds up its half of the scores, and seals what it multiplies to k, encrypted, a stretch of
               rows at a time
    evaluate   k multiplies its instruments with the stretch; after the last it keeps its share, and seals its reply
    (share)    shares of Σ u_i (s(z_i) − y_i + ½), for a release that adds noise on shares

Adversary    the coordinator with one party. Two partners together would learn the partial scores of a third party from
             both parts: among three parties and more, one may collude.
Learned      parties: the weights of every round, how to whiten, and words that are uniform to them or ciphertexts.
             Coordinator: nothing here; a protocol declares what it opens.
Assumes      ring learning with errors (`crypto/products/rlwe_product.py`), AES in counter mode as a generator, and
             sealed messages between parties.

Every seed is drawn in the step that first uses it, and a step's reply is stored before it is sent: no seed serves two
messages.

The inner product. A score is z = a + b, with a known to one party and b to its partner. The curve is a sum of sines,
and sin k(a + b) = sin ka·cos kb + cos ka·sin kb, so with the first party's instruments u

    Σ_i u_i (s(z_i) − y_i + ½)  =  Σ_i Σ_w (u_i · left_w(a_i)) · right_w(b_i),

where left_w are the sines and cosines of all harmonics and 1, right_w the cosines and sines times their amplitudes and
½ − y: one long inner product of `count_lines` entries for each row, and no elementwise product of shared values.
Entries are
rounded to 2^−PLACES. A party that lacks the label leaves out its line. Rows come in chunks as long as a ring element,
each line of a chunk after the other: messages and memory do not grow with the rows.

Rounding: an entry on the left is off by at most h = 2^−(PLACES + 1), one on the right as well, except the label's line,
which is on the grid. For one row, over D instruments of norm 1 together, the sum is off by at most
Σ_w |left_w|·h + √D·h·Σ_w (|right_w| + h), where |sin| + |cos| <= √2 for each harmonic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.crypto.masked_lookup import STEPS
from comity.crypto.products.rlwe import NARROW
from comity.crypto.products.rlwe_product import DROPPED, NONCE_BYTES, Encryptor, Evaluator, Plan, Reply, Sums
from comity.entropy import Stream, derive
from comity.errors import Malformed, Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Sealed
from comity.federation.declare.release import Array, Blob, Count, Each, Fields, Form
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.vertical.curves import CURVES, WIDEST, Response
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rounds import MAX_ROUNDS, NOISE_ROOM, Held, Rounds, constant_units

Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Words = NDArray[np.uint64]

_LARGEST_ROUNDING = 2.0**-8
"""The most that bits which messages leave out may add to the sensitivity, as a share of it: as many are left out as it
allows. The noise grows by the same share."""

_LARGEST_DEVIATION = 0.25
"""The most that they may add to the deviation of an opened sum, where a record counts up to 1. Noise has a deviation
above 2 wherever ε is below 20."""

_RING = NARROW
CHUNK = _RING.degree
"""Rows whose lines follow each other."""

_STRETCH_CHUNKS = 32
"""Chunks of a stretch: 20 MB of a message."""
_MAX_STRETCHES = 1 << 16


def count_lines(curve: Response) -> int:
    """Entries of a row: sine and cosine of every harmonic, and the label's."""
    return 2 * len(curve.harmonics) + 1


@dataclass(frozen=True, kw_only=True, eq=False)
class RlweRounds(Rounds):
    """Rounds for a coordinator that may work with one party."""

    @property
    def grid(self) -> float:
        return float(4.0**-PLACES)

    @cached_property
    def bits(self) -> int:
        """Bits of the ring of shares: for the sums, with the number of parties as a factor, which the check of a
        declared sum includes, and two to spare."""
        return (len(self.design.parties) * self._most(self.max_rows) + NOISE_ROOM).bit_length() + 2

    def _most(self, rows: int) -> int:
        """The largest sum over so many rows, in units of a product."""
        return ceil(rows * rounded_residual(self.size) / self.grid)

    @cached_property
    def carry(self) -> int:
        """How many units errors of encryption may move a product, for all parties, curves and up to `max_rows` rows,
        and one for a carry."""
        plans = [self._plan(party, self.max_rows, curve, 0) for party in self.partner for curve in CURVES]
        return 1 + max((plan.off_by for plan in plans), default=1)

    @cached_property
    def moved_by_rounding(self) -> float:
        """How far what messages leave out moves the sums with one record, in L2 and in units of a product."""
        return self._moved(self._dropped)

    def _moved(self, dropped: int) -> float:
        """The error of a coefficient times the evaluator's entries of the same row, all instruments together."""
        return max(
            (
                self._plan(party, self.max_rows, curve, dropped).coefficient_error * _entries(self.size, curve)
                for party in self.partner
                for curve in CURVES
            ),
            default=0.0,
        )

    @property
    def bound(self) -> OpenedValue:
        """Twice the largest contribution of a record, with the rounding of its own coefficients, plus the carry of
        every product at each of two neighbours (proof.md, 11)."""
        largest = rounded_residual(self.size)
        beside = self.moved_by_rounding + self.carry * sqrt(self.size)
        l2 = 2 * largest * (1 + 1e-12) + 2 * self.grid * beside
        return OpenedValue(l2=l2, limit=self.max_rows * largest, ring=self.bits)

    @cached_property
    def partner(self) -> dict[str, str]:
        """The partner of every party with instruments."""
        holder = self.design.label_at
        first = next(party for party in self.design.parties if party != holder)
        return {party: first if party == holder else holder for party in self.design.parties if self._lines_of(party)}

    @cached_property
    def _with_constant(self) -> str | None:
        """The party whose instruments include the constant: a partner of the label's holder."""
        if not self.design.intercept:
            return None
        return next(party for party in self.design.parties if party != self.design.label_at)

    def _lines_of(self, party: str) -> int:
        return self.widths[party] + (party == self._with_constant)

    def lines(self, party: str, curve: Response = WIDEST) -> int:
        """Entries of a row in the product of a party with its partner: the label's only where the partner has it."""
        return count_lines(curve) - (self.partner[party] != self.design.label_at)

    @cached_property
    def _dropped(self) -> int:
        """How many bits messages leave out: the most that keeps within its shares of sensitivity and noise."""
        allowed = _LARGEST_ROUNDING * rounded_residual(self.size) / self.grid
        fits = [
            dropped
            for dropped in DROPPED
            if self._moved(dropped) <= allowed and self._deviation(dropped) <= _LARGEST_DEVIATION
        ]
        return max(fits, default=0)

    def _deviation(self, dropped: int) -> float:
        """Of the error that bits left out add to an opened sum, if they are as good as uniform: ciphertexts are."""
        squares = self.max_rows * len(WIDEST.harmonics) * 4.0**PLACES
        errors = max(self._plan(party, self.max_rows, WIDEST, dropped).coefficient_error for party in self.partner)
        return float(errors * sqrt(squares / 3) * self.grid)

    def plan(self, party: str, rows: int, curve: Response = WIDEST) -> Plan:
        """Parameters of a party's product with its partner."""
        return self._plan(party, rows, curve, self._dropped)

    def _plan(self, party: str, rows: int, curve: Response, dropped: int) -> Plan:
        lines, unit = self.lines(party, curve), 1 << PLACES
        limit = max(self.limit(party), constant_units(self.size) / unit if party == self._with_constant else 0.0)
        # Of one row's entries: |sin| + |cos| <= √2 for each harmonic, the label's, and rounding.
        of_row = unit * limit * (sqrt(2) * len(curve.harmonics) + lines % 2) + lines / 2
        return Plan(
            lines * rows,
            1,
            self._lines_of(party),
            unit,
            unit,
            self.bits,
            _RING,
            dropped=dropped,
            # Errors take part of the room for the noise.
            beside=NOISE_ROOM >> 2,
            sum_b=ceil(rows * of_row),
            most=self._most(rows),
            blocks=_STRETCH_CHUNKS * lines,
        )

    @property
    def low(self) -> np.dtype[Any]:
        """The type of the lowest words of a message."""
        found = {self.plan(party, self.max_rows).low for party in self.partner}
        return found.pop() if found else np.dtype("i1")

    def stretches(self, rows: int) -> list[slice]:
        """The rows of each stretch: the same for all parties."""
        length = _STRETCH_CHUNKS * CHUNK
        return [slice(start, min(start + length, rows)) for start in range(0, rows, length)]

    def bytes_per_round(self, rows: int, curve: Response = WIDEST) -> int:
        """Bytes that all parties send each other in a round over so many rows; at most those of the widest curve."""
        products = 0
        for party in self.partner:
            plan = self.plan(party, rows, curve)
            products += plan.packed_bytes * (CHUNK + plan.rows) + plan.message_bytes[1]
        return products + 2 * rows * len(self.partner) * (len(self.design.parties) - 2)

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Sealed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        count, moments = Count(MAX_ROUNDS), Derived("moments")
        parts = Fields({"round": count, "parts": Each(Array(("rows",), "<u2"))})
        seed = Fields({"round": count, "seed": Blob(32)})
        nonce = Fields({"round": count, "nonce": Blob(NONCE_BYTES)})
        stretch = Count(_MAX_STRETCHES)
        form = {"low": Array(None, self.low.str), "high": Array(None, "<i4")}
        message = Fields({"round": count, "stretch": stretch, "nonce": Blob(NONCE_BYTES), **form})
        reply = Fields({"round": count, "h": Array(None, "<u4"), "v": Array(None, "<u4")})
        return Declaration(
            (
                release("whitening", COORDINATOR, EVERY_PARTY, moments, Array(None)),
                release("weights", COORDINATOR, EVERY_PARTY, moments, Array((self.size,))),
                release("interval", COORDINATOR, EVERY_PARTY, moments, Array((2,))),
                release("curve", COORDINATOR, EVERY_PARTY, moments, Array((1,), "|u1")),
                release("score_seed", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), seed),
                release("score_parts", EVERY_PARTY, EVERY_PARTY, Sealed("uniform words"), parts),
                release("wave_nonce", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), nonce),
                release("wave_encrypted", EVERY_PARTY, EVERY_PARTY, Sealed("ring-LWE ciphertexts"), message),
                release("wave_evaluated", EVERY_PARTY, EVERY_PARTY, Sealed("a masked result"), reply),
            ),
            adversary="the coordinator with one party",
        )

    # At a site.

    @step()
    def whiten(self, site: Site, whitening: Floats) -> None:
        width = self.widths[site.party]
        if whitening.size != (width + 1) * width:
            raise Malformed("whitening is a matrix over a party's features, with one more row", code="form")
        site.keep("rounds.whitening", whitening.reshape(width + 1, width))

    @step(times=MAX_ROUNDS)
    def weigh(self, site: Site, weights: Floats, interval: Floats, curve: NDArray[np.uint8]) -> None:
        number, which = int(site.label), self._agree_on_curve(site, int(site.label), curve)
        own = self._partial_scores(site, weights, interval, which, slice(0, site.dims["rows"]))
        site.keep(f"rounds.scores/{number}", own.astype("<u2"))
        rest: dict[str, dict[str, Angles]] = {}
        for party, other in self.partner.items():
            if site.party not in (party, other):
                seed = site.secret()
                site.send(party, "score_seed", {"round": number, "seed": seed})
                rest.setdefault(other, {})[party] = ((own - _part(seed, len(own))) % STEPS).astype("<u2")
        for other, parts in rest.items():
            site.send(other, "score_parts", {"round": number, "parts": parts})
        if site.party in self.partner:
            seed = site.secret()
            site.keep(f"rounds.evaluator/{number}", seed)
            nonce = Evaluator(self.plan(site.party, site.dims["rows"], which), seed).nonce
            site.send(self.partner[site.party], "wave_nonce", {"round": number, "nonce": nonce})

    @step(times=MAX_ROUNDS * _MAX_STRETCHES)
    def encrypt(self, site: Site) -> None:
        number, stretch, part, last = self._part(site)
        peers = self._partnered_by(site.party)
        nonces = self._letters(site, "wave_nonce", number, peers, last)
        outside = {party for peer in peers for party in self._outside(peer)}
        parts = self._letters(site, "score_parts", number, sorted(outside), last)
        halves, curve = self._halves(site, part), self._curve(site, number)
        for peer in peers:
            place = self._scores(site, number)[part].astype(np.int64)
            for party in self._outside(peer):
                if peer not in parts[party]["parts"]:
                    raise Malformed(f"a part of the scores for {peer} was expected from {party}", code="form")
                place += parts[party]["parts"][peer][part]
            plan, nonce = self.plan(peer, site.dims["rows"], curve), nonces[peer]["nonce"]
            name = f"rounds.encryptor/{number}/{peer}"
            if stretch == 0:
                seed = site.secret()
                site.keep(name, seed)
                side = Encryptor(plan, seed)
            else:
                side = Encryptor.resume(plan, self._kept_seed(site, name), nonce, stretch)
            message = _Message.empty(plan, self._message_length(peer, curve, stretch, part))
            if stretch == 0:
                message.add(side.begin(nonce))
            for start in range(0, len(place), CHUNK):
                rows = slice(start, start + CHUNK)
                values = right_lines(curve, _on_circle(place[rows]), None if halves is None else halves[rows])
                for block in _blocks(values.reshape(1, -1), plan.block_rows):
                    message.add(side.encrypt(block))
            fields = {"round": number, "stretch": stretch, "nonce": side.nonce}
            site.send(peer, "wave_encrypted", {**fields, "low": message.low, "high": message.high.reshape(-1)})

    @step(times=MAX_ROUNDS * _MAX_STRETCHES)
    def evaluate(self, site: Site) -> None:
        number, stretch, part, last = self._part(site)
        other = self.partner.get(site.party)
        if other is None:
            return
        rows = site.dims["rows"]
        curve = self._curve(site, number)
        plan = self.plan(site.party, rows, curve)
        message = self._letters(site, "wave_encrypted", number, [other], True)[other]
        seeds = self._letters(site, "score_seed", number, self._outside(site.party), last)
        lines, length = self.lines(site.party, curve), self._message_length(site.party, curve, stretch, part)
        sizes = message["low"].size, message["high"].size
        if message["stretch"] != stretch or sizes != (length, plan.high * length):
            raise Malformed(f"encrypted waves of round {number} were expected from {other}", code="form")
        packed = _Message(plan, message["low"], message["high"].reshape(-1, length))
        place = self._scores(site, number)[part].astype(np.int64)
        for letter in seeds.values():
            place += _part(letter["seed"], rows)[part]
        side, alone = self._evaluator(site, number, stretch, message["nonce"], packed)
        own, halves = self._own_lines(site, part), self._halves(site, part)
        if halves is not None:
            # The holder's partner does not have the label: the holder multiplies it alone.
            alone += own @ np.ldexp(-halves, PLACES)
        for start in range(0, len(place), CHUNK):
            on_circle = _on_circle(place[start : start + CHUNK])
            values = multiply_lines(own[:, start : start + CHUNK], curve, on_circle, lines)
            for block in _blocks(values, plan.block_rows):
                side.absorb(packed.next(block.shape[1]), block)
        if not last:
            sums = side.so_far
            found = {"next": stretch + 1, "nonce": message["nonce"], "alone": alone}
            site.keep(f"rounds.sums/{number}", {**found, "digits": sums.digits, "inner": sums.inner})
            return
        site.forget(f"rounds.sums/{number}")
        reply = side.reply()
        # Integers below 2^53: exact as floating-point numbers.
        site.keep(f"rounds.share/{number}", side.share().reshape(-1) + alone.astype(np.int64).view(np.uint64))
        site.send(other, "wave_evaluated", {"round": number, "h": reply.h.reshape(-1), "v": reply.v.reshape(-1)})

    def _message_length(self, party: str, curve: Response, stretch: int, part: slice) -> int:
        """Coefficients of a stretch of the message to a party; the first has block 0 before its rows."""
        return self.lines(party, curve) * (int(part.stop) - int(part.start)) + (CHUNK if stretch == 0 else 0)

    def _evaluator(
        self, site: Site, number: int, stretch: int, nonce: bytes, message: _Message
    ) -> tuple[Evaluator, Floats]:
        """The evaluator before the rows of a stretch, and the holder's sums so far."""
        plan = message.plan
        seed, before = self._kept_seed(site, f"rounds.evaluator/{number}"), site.kept(f"rounds.sums/{number}")
        if (before is None) != (stretch == 0) or (before is not None and before["next"] != stretch):
            raise Refused(f"stretch {stretch} of round {number} is not the next one to be evaluated", code="stopped")
        if before is None:
            side = Evaluator(plan, seed)
            side.begin(nonce, message.next(plan.block_rows))
            return side, np.zeros(plan.columns_b)
        if before["nonce"] != nonce:
            raise Malformed("all stretches of a message have one nonce", code="nonce")
        sums = Sums(before["digits"], before["inner"])
        return Evaluator.resume(plan, seed, nonce, stretch, sums), before["alone"].copy()

    def _part(self, site: Site) -> tuple[int, int, slice, bool]:
        """The round and the stretch of a step, its rows, and whether they are the last."""
        stretches = self.stretches(site.dims["rows"])
        number, stretch = divmod(int(site.label), len(stretches))
        return number, stretch, stretches[stretch], stretch == len(stretches) - 1

    def share(self, site: Site, number: int) -> Words:
        total = np.zeros(self.size, np.uint64)
        if site.party in self.partner:
            found = site.kept(f"rounds.share/{number}")
            if found is None:
                raise Refused(f"round {number} was not multiplied", code="stopped")
            total[self._places_of(site.party)] += found
        peers = self._partnered_by(site.party)
        for peer, reply in self._letters(site, "wave_evaluated", number, peers, True).items():
            plan = self.plan(peer, site.dims["rows"], self._curve(site, number))
            seed = self._kept_seed(site, f"rounds.encryptor/{number}/{peer}")
            words, columns = plan.parameters.words, plan.columns_b
            if reply["h"].size != words * columns * plan.block_rows or reply["v"].size != words * columns:
                raise Malformed(f"a reply of round {number} was expected from {peer}", code="form")
            answer = Reply(reply["h"].reshape(words, columns, -1), reply["v"].reshape(words, 1, columns))
            total[self._places_of(peer)] += Encryptor.awaiting(plan, seed).share(answer).reshape(-1)
        return total & np.uint64((1 << self.bits) - 1)

    def _kept_seed(self, site: Site, name: str) -> bytes:
        seed: bytes | None = site.kept(name)
        if seed is None:
            raise Refused("the rows of a round come after its beginning", code="stopped")
        return seed

    def _own_lines(self, site: Site, part: slice) -> Floats:
        """This party's instruments in units of 2^−PLACES, one line for each; the constant last, at the party that has
        it."""
        lines = self._instruments(site, part).astype(np.float64)
        if site.party == self._with_constant:
            lines = np.vstack([lines, np.full(lines.shape[1], float(constant_units(self.size)))])
        return lines

    def _places_of(self, party: str) -> NDArray[np.int64]:
        """Places of a party's sums among all; the constant's is last."""
        own = self.places[party]
        places = np.arange(own.start, own.stop)
        return np.append(places, self.size - 1) if party == self._with_constant else places

    def _scores(self, site: Site, number: int) -> Angles:
        found: Angles | None = site.kept(f"rounds.scores/{number}")
        if found is None:
            raise Refused(f"round {number} was not weighed", code="stopped")
        return found

    def _halves(self, site: Site, part: slice) -> Floats | None:
        """y − ½ of these rows, at the label's holder."""
        return np.where(self._labels(site, part), 0.5, -0.5) if site.party == self.design.label_at else None

    def _partnered_by(self, party: str) -> list[str]:
        """The parties whose partner this is."""
        return [one for one, other in self.partner.items() if other == party]

    def _outside(self, party: str) -> list[str]:
        """All parties but this one and its partner."""
        return [one for one in self.design.parties if one not in (party, self.partner[party])]

    def _letters(self, site: Site, name: str, number: int, senders: list[str], last: bool) -> dict[str, Any]:
        """The letters of a round, which stay until the `last` step that reads them."""
        found = site.take(name, senders) if last else site.received(name, senders)
        if set(found) != set(senders) or any(letter["round"] != number for letter in found.values()):
            raise Refused(f"{name} of round {number} did not arrive from every party", code="stopped")
        return found

    # The coordinator's side.

    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> Held:
        each = {party: {"whitening": matrix.reshape(-1)} for party, matrix in whitening.items()}
        parties.under(self.name).ask("whiten", each=each)
        return None

    def coordinate_round(
        self,
        parties: Parties,
        number: int,
        weights: Floats,
        intervals: Floats,
        curve: int = len(CURVES) - 1,
        held: Held = None,
    ) -> None:
        view = parties.under(self.name)
        each = {party: {"interval": interval} for party, interval in zip(self.design.parties, intervals)}
        shown = np.array([curve], np.uint8)
        view.ask("weigh", each=each, label=number, weights=np.asarray(weights, np.float64), curve=shown)
        stretches = len(self.stretches(parties.dims["rows"]))
        for place in range(number * stretches, (number + 1) * stretches):
            view.ask("encrypt", to=list(self.design.parties), label=place)
            view.ask("evaluate", to=list(self.design.parties), label=place)


def _part(seed: bytes, rows: int) -> NDArray[np.int64]:
    """Uniform angles from a seed."""
    words = Stream(derive(seed, "part of scores")).words(-(-rows // 4))
    return words.astype("<u8").view("<u2")[:rows].astype(np.int64) % STEPS


def _on_circle(place: NDArray[np.int64]) -> Angles:
    return np.asarray(place % STEPS, np.uint16)


def left_lines(curve: Response, place: Angles) -> Floats:
    """left_w, one line per entry."""
    return np.asarray(_left_table(curve)[:, place], np.float64)


def right_lines(curve: Response, place: Angles, half_labels: Floats | None) -> Integers:
    """right_w, one line per entry, in units of 2^−PLACES; the last is ½ − y, at the party that has it."""
    table = _right_table(curve)
    lines = np.empty((len(table) + (half_labels is not None), len(place)), np.int32)
    np.take(table, place, axis=1, out=lines[: len(table)])
    if half_labels is not None:
        lines[-1] = np.rint(np.ldexp(-half_labels, PLACES))
    return lines


@cache
def _left_table(curve: Response) -> Floats:
    angle = _angles(curve, np.arange(STEPS))
    return np.vstack([np.sin(angle), np.cos(angle), np.ones(STEPS)])


@cache
def _right_table(curve: Response) -> Integers:
    angle, amplitude = _angles(curve, np.arange(STEPS)), np.array(curve.amplitudes)[:, None]
    lines = np.vstack([amplitude * np.cos(angle), amplitude * np.sin(angle)])
    return np.asarray(np.rint(np.ldexp(lines, PLACES)), np.int32)


def multiply_lines(instruments: Floats, curve: Response, place: Angles, lines: int) -> Integers:
    """Each of the instruments, one line each in units of 2^−PLACES, times the first `left_lines`, which follow each
    other."""
    out = np.empty((len(instruments), lines * len(place)), np.int32)
    _multiply_lines(np.ascontiguousarray(instruments), _left_table(curve), place, out)
    return out


@compiled
def _multiply_lines(instruments: Floats, table: Floats, place: Angles, out: Integers) -> None:
    count = place.size
    line = np.empty(count)
    for w in range(out.shape[1] // count):
        for k in range(count):
            line[k] = table[w, place[k]]
        for j in range(instruments.shape[0]):
            for k in range(count):
                out[j, w * count + k] = np.int32(np.rint(instruments[j, k] * line[k]))


class _Message:
    """A stretch's packed message, block by block."""

    def __init__(self, plan: Plan, low: NDArray[Any], high: Integers) -> None:
        self.plan, self.low, self.high, self._at = plan, low, high, 0

    @classmethod
    def empty(cls, plan: Plan, length: int) -> _Message:
        return cls(plan, np.empty(length, plan.low), np.empty((plan.high, length), "<i4"))

    def _take(self, length: int) -> tuple[NDArray[Any], Integers]:
        start, self._at = self._at, self._at + length
        return self.low[start : self._at], self.high[:, start : self._at]

    def add(self, block: Integers) -> None:
        self.plan.pack(block, *self._take(block.shape[-1]))

    def next(self, length: int) -> Integers:
        return self.plan.unpack(*self._take(length))


def _blocks(values: Integers, length: int) -> Iterator[Integers]:
    for start in range(0, values.shape[1], length):
        yield np.ascontiguousarray(values[:, start : start + length])


def rounded_residual(instruments: int) -> float:
    """sup |Σ_w (u left_w) right_w| over all rows of so many instruments of norm at most 1, with rounding, for every
    curve."""
    unit, found = 2.0 ** -(PLACES + 1), []
    for curve in CURVES:
        harmonics = len(curve.harmonics)
        exact = 0.5 + float(np.abs(curve.values).max())
        on_the_right = sqrt(2) * float(sum(curve.amplitudes)) + 2 * harmonics * unit
        found.append(exact + unit * (sqrt(2) * harmonics + sqrt(instruments) * on_the_right))
    return max(found)


def _entries(instruments: int, curve: Response) -> float:
    """A bound on Σ_w |u left_w| of one row in L2 over so many instruments, in units, with rounding."""
    return (1 << PLACES) * (sqrt(2) * len(curve.harmonics) + 1) + sqrt(instruments) * count_lines(curve) / 2


def _angles(curve: Response, place: NDArray[Any]) -> Floats:
    return np.asarray(2 * np.pi / STEPS * np.outer(curve.harmonics, place.astype(np.float64)), np.float64)
