"""Gradient rounds with a coordinator that computes on masked values: shares of sums stay at the sites.

All parties share a seed that the coordinator lacks, and mask with it what they show to the coordinator alone. In the
order of a run, a stretch of rows at a time:

    blind      the first party gives all others the seed
    mask       (once) each party shows its masked instruments, the label's holder its masked labels too
    weigh      each party shows its masked partial scores; their sum is the score, masked
    respond    each party answers a share of a question; all answers are the masked response (`crypto/masked_lookup.py`)
    settle     each party gets a share of the masked responses, less the labels, and multiplies the masks with it
    (share)    its share of Σ u_i (s(z_i) − y_i + ½), for a release that adds noise on shares

Adversary    a coordinator that follows the protocol and works with no party, and any parties but one together.
Learned      coordinator: words that are uniform to it; a protocol declares what it opens. Parties: the weights of every
             round, how to whiten, and words that are uniform to a coalition of all but one.
Assumes      AES in counter mode as a generator; seeds and shares are sealed to their receiver.

The sums. With Y_k = u_k − M_k and E = r + v at the coordinator, M and v known to all parties,

    Σ u_k r  =  Y_k·E  +  M_k·E  −  u_k·v :

the coordinator has the first and splits it among the parties, as it splits E, of which every party multiplies its part
with all M_k; the last is party k's alone. Every mask is derived for one stretch of one round and masks one value.
A party masks its instruments once per run, and refuses if its records changed. No site can check what it is asked or
given (proof.md, 12).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import masked_lookup as lookup
from comity.crypto.packed_words import pack_words, packed_parts, unpack_words
from comity.crypto.products.inner_products import multiply_short, multiply_vector
from comity.entropy import derive, fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Sealed
from comity.federation.declare.release import Array, Blob, Fields, Form
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.vertical.curves import CURVES, TABLE_PLACES, Response
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rounds import (
    LARGEST_RESIDUAL,
    MAX_ROUNDS,
    NOISE_ROOM,
    Held,
    Rounds,
    constant_units,
    gradient_sensitivity,
)

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

STRETCH_WORDS = 1 << 23
"""Words that a party masks in one ask: 50 MB."""
_LARGEST_STRETCH = 1 << 19
_MAX_STRETCHES = 1 << 16

_SEEDS = "rounds.seeds"
"""Digests of all seeds that this site was given in the run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DealerRounds(Rounds):
    """Rounds for a coordinator that follows the protocol and works with no party."""

    @property
    def grid(self) -> float:
        return float(2.0 ** -(TABLE_PLACES + PLACES))

    @cached_property
    def bits(self) -> int:
        """Bits of the ring of shares: for the sums, with the number of parties as a factor, which the check of a
        declared sum includes, and two to spare."""
        most = len(self.design.parties) * ceil(self.max_rows * LARGEST_RESIDUAL / self.grid) + NOISE_ROOM
        return 48 if most.bit_length() + 2 <= 48 else 64

    @property
    def bound(self) -> OpenedValue:
        return OpenedValue(l2=gradient_sensitivity(), limit=self.max_rows * LARGEST_RESIDUAL, ring=self.bits)

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Sealed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        moments, uniform = Derived("moments"), Sealed("uniform words")
        words = Fields({name: Array(None, kind) for name, kind in packed_parts(self.bits).items()})
        query = Fields({"seed": Blob(32), "rest": Array(None, "|u1")}, ("rest",))
        part = Fields({"seed": Blob(32), "rest": words, "sums": Array((self.size,), "<u8")}, ("rest", "sums"))
        return Declaration(
            (
                release("mask_seed", EVERY_PARTY, EVERY_PARTY, Sealed("a random number"), Blob(32)),
                release("whitening", COORDINATOR, EVERY_PARTY, moments, Array(None)),
                release("masked_instruments", EVERY_PARTY, COORDINATOR, Sealed("a uniform matrix"), words),
                release("weights", COORDINATOR, EVERY_PARTY, moments, Array((self.size,))),
                release("interval", COORDINATOR, EVERY_PARTY, moments, Array((2,))),
                release("curve", COORDINATOR, EVERY_PARTY, moments, Array((1,), "|u1")),
                release("masked_scores", EVERY_PARTY, COORDINATOR, uniform, Array(None, "<u2")),
                release("query", COORDINATOR, EVERY_PARTY, Sealed("a share of which entry is looked up"), query),
                release("looked_up", EVERY_PARTY, COORDINATOR, uniform, words),
                release("part", COORDINATOR, EVERY_PARTY, Sealed("a share of masked responses"), part),
            ),
            adversary="a coordinator without parties, which follows the protocol",
        )

    # At a site.

    @step()
    def blind(self, site: Site, whitening: Floats) -> None:
        width = self.widths[site.party]
        if whitening.size != (width + 1) * width:
            raise Malformed("whitening is a matrix over a party's features, with one more row", code="form")
        site.keep("rounds.whitening", whitening.reshape(width + 1, width))
        if site.party == self.design.parties[0]:
            seed = site.secret()
            site.keep("rounds.seed", seed)
            self._send(site, "mask_seed", seed)

    @step(gives=("masked_instruments",), times=_MAX_STRETCHES)
    def mask(self, site: Site) -> dict[str, Any]:
        stretch = int(site.label)
        part, seed = self._stretch(site, stretch), self._seed(site)
        width, length, holds = self.widths[site.party], part.stop - part.start, site.party == self.design.label_at
        lines = np.empty((width + holds, length), np.uint64)
        np.subtract(self._lines(site, stretch), self._matrix_mask(seed, site.party, stretch, part), out=lines[:width])
        if holds:
            lines[-1] = half_labels(self._labels(site, part)) - self._label_mask(seed, stretch, part)
        return {"masked_instruments": pack_words(lines.reshape(-1), self.bits)}

    @step(gives=("masked_scores",), times=MAX_ROUNDS * _MAX_STRETCHES)
    def weigh(self, site: Site, weights: Floats, interval: Floats, curve: NDArray[np.uint8]) -> dict[str, Any]:
        number, stretch, part = self._part(site)
        which = self._agree_on_curve(site, number, curve)
        scores = self._partial_scores(site, weights, interval, which, part)
        seed = self._round_seed(site, number, stretch)
        return {"masked_scores": lookup.subtract_angles(scores, self._angle_mask(seed, site.party, len(scores)))}

    @step(gives=("looked_up",), times=MAX_ROUNDS * _MAX_STRETCHES)
    def respond(self, site: Site, query: dict[str, Any]) -> dict[str, Any]:
        number, stretch, part = self._part(site)
        self._require_fresh(site, query["seed"], "query")
        rows, table, last = part.stop - part.start, self._curve(site, number).table, self._is_last(site)
        if ("rest" in query) != last or (last and query["rest"].size != rows * table.query_bytes):
            raise Malformed(f"a share of the entries of {rows} rows was expected", code="form", key="query")
        asked = query["rest"].reshape(rows, -1) if last else lookup.draw_query(query["seed"], rows, table)
        seed, parties = self._round_seed(site, number, stretch), self.design.parties
        angles = lookup.add_angles([self._angle_mask(seed, party, rows) for party in parties])
        zero = lookup.draw_zero_share(seed, rows, parties.index(site.party), len(parties))
        found = lookup.look_up(table, asked, angles, lookup.draw_words(derive(seed, "responses"), rows), zero)
        return {"looked_up": pack_words(found, self.bits)}

    @step(times=MAX_ROUNDS * _MAX_STRETCHES)
    def settle(self, site: Site, part: dict[str, Any]) -> None:
        number, stretch, rows = self._part(site)
        self._require_fresh(site, part["seed"], "part")
        length, last = rows.stop - rows.start, stretch == len(self.stretches(site.dims["rows"])) - 1
        before = site.kept(f"rounds.sums/{number}", {"next": 0, "sums": np.zeros(self.size, np.uint64)})
        if before["next"] != stretch:
            raise Refused(f"stretch {stretch} of round {number} is not the next one to be settled", code="stopped")
        given = self._is_last(site)
        if ("rest" in part) != given or ("sums" in part) != (given and last):
            raise Refused(f"round {number} was not shared as agreed on", code="stopped")
        own = unpack_words(part["rest"], length) if given else lookup.draw_words(part["seed"], length)
        seed, sums = self._seed(site), before["sums"].copy()
        for party, place in self.places.items():
            made = self._matrix_seed(seed, party, stretch)
            sums[place] += lookup.multiply_drawn(made, self.widths[party], own)
        masks = lookup.draw_words(derive(self._round_seed(site, number, stretch), "responses"), length)
        masks += self._label_mask(seed, stretch, rows)
        sums[self.places[site.party]] -= multiply_short(self._own_instruments(site, stretch), masks)
        if self.design.intercept and site.party == self.design.parties[0]:
            sums[-1:] -= np.uint64(constant_units(self.size)) * masks.sum(dtype=np.uint64, keepdims=True)
        if last:
            sums += part["sums"] if given else self._sums_share(part["seed"])
        site.keep(f"rounds.sums/{number}", {"next": stretch + 1, "sums": sums})

    def share(self, site: Site, number: int) -> Words:
        found = site.kept(f"rounds.sums/{number}")
        if found is None or found["next"] != len(self.stretches(site.dims["rows"])):
            raise Refused(f"round {number} was not settled", code="stopped")
        site.forget(f"rounds.sums/{number}")
        return np.asarray(found["sums"] & np.uint64((1 << self.bits) - 1), np.uint64)

    def stretches(self, rows: int) -> list[slice]:
        """The rows of each stretch: the same for all parties."""
        length = max(1, min(_LARGEST_STRETCH, STRETCH_WORDS // (max(self.widths.values()) + 1)))
        return [slice(start, min(start + length, rows)) for start in range(0, rows, length)]

    def _stretch(self, site: Site, stretch: int) -> slice:
        stretches = self.stretches(site.dims["rows"])
        if stretch >= len(stretches):
            raise Refused(f"there are {len(stretches)} stretches of rows", code="too-often")
        return stretches[stretch]

    def _part(self, site: Site) -> tuple[int, int, slice]:
        """The round and the stretch of a step, and its rows."""
        number, stretch = divmod(int(site.label), len(self.stretches(site.dims["rows"])))
        return number, stretch, self._stretch(site, stretch)

    def _is_last(self, site: Site) -> bool:
        """Whether this party gets what makes shares right, where the others get a seed alone."""
        return site.party == self.design.parties[-1]

    def _require_fresh(self, site: Site, seed: bytes, key: str) -> None:
        """Refuse a seed that was given before: two values under one mask reveal their difference."""
        digest, before = hashlib.sha256(seed).digest(), site.kept(_SEEDS, b"")
        if digest in (before[at : at + len(digest)] for at in range(0, len(before), len(digest))):
            raise Refused(f"{key} has a seed that was given before; a seed masks one value", code="form", key=key)
        site.keep(_SEEDS, before + digest)

    def _lines(self, site: Site, stretch: int) -> Words:
        """This party's instruments as words."""
        return self._own_instruments(site, stretch).astype(np.int64).view(np.uint64)

    def _own_instruments(self, site: Site, stretch: int) -> NDArray[np.int16]:
        """This party's instruments in units of 2^−PLACES, one line per column; the same in every step of a run."""
        found = np.ascontiguousarray(self._instruments(site, self._stretch(site, stretch)))
        digest, name = hashlib.sha256(found.data).digest(), f"rounds.digest/{stretch}"
        if site.kept(name, digest) != digest:
            raise Refused("the records changed during the run", code="stopped")
        site.keep(name, digest)
        return found

    def _sums_share(self, seed: bytes) -> Words:
        return lookup.draw_words(derive(seed, "sums"), self.size)

    # Masks, which all parties know.

    def _seed(self, site: Site) -> bytes:
        first = self.design.parties[0]
        seed = site.kept("rounds.seed") if site.party == first else site.received("mask_seed", [first]).get(first)
        if seed is None:
            raise Refused("masks come after the parties have agreed on a seed", code="stopped")
        return bytes(seed)

    def _round_seed(self, site: Site, number: int, stretch: int) -> bytes:
        return derive(self._seed(site), "round", number, stretch)

    def _matrix_mask(self, seed: bytes, party: str, stretch: int, part: slice) -> Words:
        rows = part.stop - part.start
        words = lookup.draw_words(self._matrix_seed(seed, party, stretch), self.widths[party] * rows)
        return words.reshape(self.widths[party], rows)

    def _matrix_seed(self, seed: bytes, party: str, stretch: int) -> bytes:
        return derive(seed, "instruments", party, stretch)

    def _label_mask(self, seed: bytes, stretch: int, part: slice) -> Words:
        return lookup.draw_words(derive(seed, "labels", stretch), part.stop - part.start)

    def _angle_mask(self, round_seed: bytes, party: str, rows: int) -> lookup.Angles:
        return lookup.draw_angles(derive(round_seed, "scores", party), rows)

    # The coordinator's side.

    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> Held:
        view = parties.under(self.name)
        view.ask("blind", each={party: {"whitening": matrix.reshape(-1)} for party, matrix in whitening.items()})
        rows, held = self.stretches(parties.dims["rows"]), None
        for stretch, part in enumerate(rows):
            held = self._masked_matrices(view, stretch, part)
        # Rows that take several stretches stay in the journal.
        return held if len(rows) == 1 else None

    def _masked_matrices(self, view: Parties, stretch: int, part: slice) -> dict[str, Words]:
        """What the parties show of a stretch, one line for each instrument and the label last; asked once and read from
        the journal later."""
        found = view.ask("mask", to=list(self.design.parties), label=stretch)
        lines, rows = {}, part.stop - part.start
        for party, width in self.widths.items():
            count = width + (party == self.design.label_at)
            lines[party] = unpack_words(found[party]["masked_instruments"], count * rows).reshape(count, rows)
        return lines

    def coordinate_round(
        self,
        parties: Parties,
        number: int,
        weights: Floats,
        intervals: Floats,
        curve: int = len(CURVES) - 1,
        held: Held = None,
    ) -> None:
        view, stretches = parties.under(self.name), self.stretches(parties.dims["rows"])
        sums = np.zeros(self.size, np.uint64)
        weights, chosen = np.asarray(weights, np.float64), np.array([curve], np.uint8)
        each: dict[str, dict[str, Any]]
        for stretch, part in enumerate(stretches):
            label = number * len(stretches) + stretch
            each = {party: {"interval": interval} for party, interval in zip(self.design.parties, intervals)}
            shown = view.ask("weigh", each=each, label=label, weights=weights, curve=chosen)
            opened = self._look_up(view, label, CURVES[min(curve, len(CURVES) - 1)], shown)
            lines = held or self._masked_matrices(view, stretch, part)
            opened -= lines[self.design.label_at][-1]
            for party, place in self.places.items():
                sums[place] += multiply_vector(lines[party][: self.widths[party]], opened)
            if self.design.intercept:
                sums[-1:] += np.uint64(constant_units(self.size)) * opened.sum(dtype=np.uint64, keepdims=True)
            each = self._split(view, label, opened, sums if part.stop == parties.dims["rows"] else None)
            view.ask("settle", each=each, label=label)

    def _look_up(self, view: Parties, label: int, curve: Response, shown: Mapping[str, Any]) -> Words:
        """The masked responses at the masked scores of a stretch."""
        order = self.design.parties
        angles = lookup.add_angles([shown[party]["masked_scores"] for party in order])
        seeds = self._seeds(view, f"query/{label}", "rounding")
        places = lookup.round_to_entries(angles, curve.table, seeds["rounding"])
        each: dict[str, dict[str, Any]] = {party: {"seed": seeds[party]} for party in order}
        rest = lookup.split_entries(places, curve.table, [seeds[party] for party in order[:-1]])
        each[order[-1]]["rest"] = rest.reshape(-1)
        found = view.ask("respond", each={party: {"query": one} for party, one in each.items()}, label=label)
        return lookup.join_answers([unpack_words(found[party]["looked_up"], len(angles)) for party in order])

    def _split(self, view: Parties, label: int, opened: Words, sums: Words | None) -> dict[str, dict[str, Any]]:
        """Shares of masked responses, and of the coordinator's sums with the last stretch."""
        order, seeds = self.design.parties, self._seeds(view, f"part/{label}")
        each: dict[str, dict[str, Any]] = {party: {"seed": seeds[party]} for party in order}
        rest, left = opened.copy(), None if sums is None else sums.copy()
        for party in order[:-1]:
            rest -= lookup.draw_words(seeds[party], len(rest))
            if left is not None:
                left -= self._sums_share(seeds[party])
        each[order[-1]]["rest"] = pack_words(rest, self.bits)
        if left is not None:
            each[order[-1]]["sums"] = left
        return {party: {"part": one} for party, one in each.items()}

    def _seeds(self, view: Parties, name: str, *more: str) -> dict[str, bytes]:
        """Fresh seeds, one for each party and for each further purpose, journalled before they are used."""
        names = (*self.design.parties, *more)
        found: dict[str, bytes] = view.once(name, lambda: {f"{at}": fresh_seed() for at in range(len(names))})
        return {one: found[f"{at}"] for at, one in enumerate(names)}


def half_labels(second: NDArray[np.bool_]) -> Words:
    """y − ½ in units of a response."""
    half = 1 << (TABLE_PLACES - 1)
    return np.where(second, half, -half).astype(np.int64).view(np.uint64)
