"""Gradient rounds without a dealer: shares of products under ring learning with errors stay at the sites.

Every party k with instruments has one partner: the label's holder, and for the holder the first of the others. The
score of a row is split between the two, and the round is an inner product of what k and its partner compute from their
halves, of which both hold a share. In the order of a round:

    weigh      each party computes its partial scores; for every pair that it is not in, it splits them into a random
               part for one of the two and the rest for the other; k offers a nonce
    encrypt    the partner adds up its half of the scores, and seals what it multiplies to k, encrypted
    evaluate   k multiplies its instruments with it, keeps its share, and seals its reply
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
½ − y: one long inner product of `LINES` entries for each row, and no elementwise product of shared values. Entries are
rounded to 2^−PLACES.

Rounding: an entry on the left is off by at most h = 2^−(PLACES + 1), one on the right as well, except the label's line,
which is on the grid. For one row, over D instruments of norm 1 together, the sum is off by at most
Σ_w |left_w|·h + √D·h·Σ_w (|right_w| + h), where |sin| + |cos| <= √2 for each harmonic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.dealer_waves import STEPS
from comity.crypto.products.fixed_point import FixedPoint, product_bits
from comity.crypto.products.rlwe_product import NONCE_BYTES, Encryptor, Evaluator, Plan, Reply
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
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rounds import CURVE, MAX_ROUNDS, Rounds, constant_units

Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Words = NDArray[np.uint64]

_FORM = FixedPoint(PLACES)
_NOISE_ROOM = 1 << 46
"""Room in the ring for the noise, in units of a product."""

LINES = 2 * len(CURVE.harmonics) + 1
"""Entries of a row: sine and cosine of every harmonic, and the label's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RlweRounds(Rounds):
    """Rounds for a coordinator that may work with one party."""

    @property
    def grid(self) -> float:
        return float(4.0**-PLACES)

    @cached_property
    def bits(self) -> int:
        """Bits of the ring of shares."""
        return product_bits(LINES * self.max_rows, _FORM, _FORM, noise=_NOISE_ROOM) + 2

    @property
    def bound(self) -> OpenedValue:
        """Twice the largest contribution of a record, plus one unit of carry in every product at each of two
        neighbours."""
        largest = rounded_residual(self.size)
        l2 = 2 * largest * (1 + 1e-12) + 2 * self.grid * sqrt(self.size)
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

    def plan(self, party: str, rows: int) -> Plan:
        """Parameters of a party's product with its partner."""
        return Plan.choose(LINES * rows, 1, self._lines_of(party), _FORM, _FORM, noise=_NOISE_ROOM, bits=self.bits)

    def bytes_per_round(self, rows: int) -> int:
        """Bytes that all parties send each other in a round over so many rows."""
        products = sum(sum(self.plan(party, rows).message_bytes) for party in self.partner)
        return products + 2 * rows * len(self.partner) * (len(self.design.parties) - 2)

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Sealed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        count, moments = Count(MAX_ROUNDS), Derived("moments")
        parts = Fields({"round": count, "parts": Each(Array(("rows",), "<u2"))})
        seed = Fields({"round": count, "seed": Blob(32)})
        nonce = Fields({"round": count, "nonce": Blob(NONCE_BYTES)})
        message = Fields({"round": count, "nonce": Blob(NONCE_BYTES), "blocks": Array(None, "<i4")})
        reply = Fields({"round": count, "h": Array(None, "<u4"), "v": Array(None, "<u4")})
        return Declaration(
            (
                release("whitening", COORDINATOR, EVERY_PARTY, moments, Array(None)),
                release("weights", COORDINATOR, EVERY_PARTY, moments, Array((self.size,))),
                release("interval", COORDINATOR, EVERY_PARTY, moments, Array((2,))),
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
    def weigh(self, site: Site, weights: Floats, interval: Floats) -> None:
        number = int(site.label)
        own = self.scores(self.features(self._columns(site), site.party), site.party, weights, interval)
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
            nonce = Evaluator(self.plan(site.party, site.dims["rows"]), seed).nonce
            site.send(self.partner[site.party], "wave_nonce", {"round": number, "nonce": nonce})

    @step(times=MAX_ROUNDS)
    def encrypt(self, site: Site) -> None:
        number, peers = int(site.label), self._partnered_by(site.party)
        nonces = self._letters(site, "wave_nonce", number, peers)
        outside = {party for peer in peers for party in self._outside(peer)}
        parts = self._letters(site, "score_parts", number, sorted(outside))
        for peer in peers:
            place = self._scores(site, number).astype(np.int64)
            for party in self._outside(peer):
                if peer not in parts[party]["parts"]:
                    raise Malformed(f"a part of the scores for {peer} was expected from {party}", code="form")
                place += parts[party]["parts"][peer]
            plan, seed = self.plan(peer, site.dims["rows"]), site.secret()
            site.keep(f"rounds.encryptor/{number}/{peer}", seed)
            side, values = Encryptor(plan, seed), right_lines(_on_circle(place), self._halves(site))
            blocks = [side.begin(nonces[peer]["nonce"]).reshape(-1)]
            for start in range(0, plan.rows, plan.block_rows):
                block = np.ascontiguousarray(values[:, start : start + plan.block_rows])
                blocks.append(side.encrypt(block).reshape(-1))
            site.send(peer, "wave_encrypted", {"round": number, "nonce": side.nonce, "blocks": np.concatenate(blocks)})

    @step(times=MAX_ROUNDS)
    def evaluate(self, site: Site) -> None:
        number, other = int(site.label), self.partner.get(site.party)
        if other is None:
            return
        plan, seed = self.plan(site.party, site.dims["rows"]), site.kept(f"rounds.evaluator/{number}")
        message = self._letters(site, "wave_encrypted", number, [other])[other]
        seeds = self._letters(site, "score_seed", number, self._outside(site.party))
        words = plan.parameters.words
        if seed is None or message["blocks"].size != words * (plan.block_rows + plan.rows):
            raise Malformed(f"encrypted waves of round {number} were expected from {other}", code="form")
        place = self._scores(site, number).astype(np.int64)
        for letter in seeds.values():
            place += _part(letter["seed"], len(place))
        side, at = Evaluator(plan, seed), words * plan.block_rows
        side.begin(message["nonce"], message["blocks"][:at].reshape(words, 1, -1))
        own, lines = self._own_lines(site), left_lines(_on_circle(place))
        for start in range(0, plan.rows, plan.block_rows):
            part = slice(start, min(start + plan.block_rows, plan.rows))
            size = words * (part.stop - start)
            side.absorb(message["blocks"][at : at + size].reshape(words, 1, -1), multiply_lines(own, lines, part))
            at += size
        reply = side.reply()
        site.keep(f"rounds.share/{number}", side.share().reshape(-1))
        site.send(other, "wave_evaluated", {"round": number, "h": reply.h.reshape(-1), "v": reply.v.reshape(-1)})

    def share(self, site: Site, number: int) -> Words:
        total = np.zeros(self.size, np.uint64)
        if site.party in self.partner:
            found = site.kept(f"rounds.share/{number}")
            if found is None:
                raise Refused(f"round {number} was not multiplied", code="stopped")
            total[self._places_of(site.party)] += found
        peers = self._partnered_by(site.party)
        for peer, reply in self._letters(site, "wave_evaluated", number, peers).items():
            plan, seed = self.plan(peer, site.dims["rows"]), site.kept(f"rounds.encryptor/{number}/{peer}")
            words, columns = plan.parameters.words, plan.columns_b
            if reply["h"].size != words * columns * plan.block_rows or reply["v"].size != words * columns:
                raise Malformed(f"a reply of round {number} was expected from {peer}", code="form")
            answer = Reply(reply["h"].reshape(words, columns, -1), reply["v"].reshape(words, 1, columns))
            total[self._places_of(peer)] += Encryptor.awaiting(plan, seed).share(answer).reshape(-1)
        halves = self._halves(site)
        if halves is not None and site.party in self.partner:
            # The holder's partner does not have the label: the holder multiplies it alone.
            own = self._own_lines(site) @ np.ldexp(-halves, PLACES)
            total[self._places_of(site.party)] += own.astype(np.int64).view(np.uint64)
        return total & np.uint64((1 << self.bits) - 1)

    def _own_lines(self, site: Site) -> Floats:
        """This party's instruments in units of 2^−PLACES, one line for each; the constant last, at the party that has
        it."""
        whitening = site.kept("rounds.whitening")
        if whitening is None:
            raise Refused("rounds come after the features were whitened", code="stopped")
        units = self.instruments(self.features(self._columns(site), site.party), site.party, whitening)
        if site.party == self._with_constant:
            units = np.column_stack([units, np.full(len(units), float(constant_units(self.size)))])
        return np.ascontiguousarray(units.T)

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

    def _halves(self, site: Site) -> Floats | None:
        """y − ½, at the label's holder."""
        return np.where(self._labels(site), 0.5, -0.5) if site.party == self.design.label_at else None

    def _partnered_by(self, party: str) -> list[str]:
        """The parties whose partner this is."""
        return [one for one, other in self.partner.items() if other == party]

    def _outside(self, party: str) -> list[str]:
        """All parties but this one and its partner."""
        return [one for one in self.design.parties if one not in (party, self.partner[party])]

    def _letters(self, site: Site, name: str, number: int, senders: list[str]) -> dict[str, Any]:
        found = site.take(name, senders)
        if set(found) != set(senders) or any(letter["round"] != number for letter in found.values()):
            raise Refused(f"{name} of round {number} did not arrive from every party", code="stopped")
        return found

    # The coordinator's side.

    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> None:
        each = {party: {"whitening": matrix.reshape(-1)} for party, matrix in whitening.items()}
        parties.under(self.name).ask("whiten", each=each)

    def coordinate_round(self, parties: Parties, number: int, weights: Floats, intervals: Floats) -> None:
        view = parties.under(self.name)
        each = {party: {"interval": interval} for party, interval in zip(self.design.parties, intervals)}
        view.ask("weigh", each=each, label=number, weights=np.asarray(weights, np.float64))
        view.ask("encrypt", to=list(self.design.parties), label=number)
        view.ask("evaluate", to=list(self.design.parties), label=number)


def _part(seed: bytes, rows: int) -> NDArray[np.int64]:
    """Uniform angles from a seed."""
    words = Stream(derive(seed, "part of scores")).words(-(-rows // 4))
    return words.astype("<u8").view("<u2")[:rows].astype(np.int64) % STEPS


def _on_circle(place: NDArray[np.int64]) -> Angles:
    return np.asarray(place % STEPS, np.uint16)


def left_lines(place: Angles) -> Floats:
    """left_w, one line per entry."""
    angle = _angles(place)
    return np.vstack([np.sin(angle), np.cos(angle), np.ones(len(place))])


def right_lines(place: Angles, half_labels: Floats | None) -> Integers:
    """right_w, all lines in one row, in units of 2^−PLACES; ½ − y at the party that has it, zero elsewhere."""
    angle, amplitude = _angles(place), np.array(CURVE.amplitudes)[:, None]
    label = np.zeros(len(place)) if half_labels is None else -half_labels
    lines = np.vstack([amplitude * np.cos(angle), amplitude * np.sin(angle), label])
    return np.asarray(np.rint(np.ldexp(lines, PLACES)), np.int32).reshape(1, -1)


def multiply_lines(instruments: Floats, lines: Floats, part: slice) -> Integers:
    """Instruments, one line each in units of 2^−PLACES, times `left_lines`: a slice of all its lines in one row."""
    rows = instruments.shape[1]
    which = np.arange(part.start, part.stop)
    found = instruments[:, which % rows] * lines.reshape(-1)[part]
    return np.ascontiguousarray(np.rint(found).astype(np.int32))


def rounded_residual(instruments: int) -> float:
    """sup |Σ_w (u left_w) right_w| over all rows of so many instruments of norm at most 1, with rounding."""
    unit, harmonics = 2.0 ** -(PLACES + 1), len(CURVE.harmonics)
    exact = 0.5 + float(np.abs(CURVE.values).max())
    on_the_right = sqrt(2) * float(sum(CURVE.amplitudes)) + 2 * harmonics * unit
    return exact + unit * (sqrt(2) * harmonics + sqrt(instruments) * on_the_right)


def _angles(place: Angles) -> Floats:
    return np.asarray(2 * np.pi / STEPS * np.outer(CURVE.harmonics, place.astype(np.float64)), np.float64)
