"""Gradient rounds with a dealer: shares of scores, responses and sums stay at the sites.

    blind      (once) each party masks its instruments with what the coordinator dealt and seals them to the others
    weigh      its partial scores are its share of the scores; masked, they are sealed to the others
    respond    it computes its share of the curve, the label's holder less its labels; masked, sealed to the others: a
               stretch of rows at a time, with what was dealt for it
    (share)    its share of Σ u_i (s(z_i) − y_i + ½), for a release that adds noise on shares

Adversary    a coordinator that works with no party and deals correctly, and any parties but one together.
Learned      parties: the weights of every round, how to whiten, and words that are uniform to them. Coordinator:
             nothing here; a protocol declares what it opens.
Assumes      AES in counter mode as a generator; dealt words and messages between parties are sealed.

Each mask is used once. The coordinator journals seeds before the first ask, and every round has new ones; a site
refuses a seed that it was dealt before, and masks its matrix once per run, refusing if the records changed. No site can
check the total of dealt words (proof.md, 12).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import dealer_waves as waves
from comity.crypto.products import dealer_combination as vectors
from comity.entropy import derive, fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Sealed
from comity.federation.declare.release import Array, Blob, Count, Fields, Form
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rounds import (
    CURVES,
    LARGEST_RESIDUAL,
    MAX_ROUNDS,
    RESPONSE_PLACES,
    Rounds,
    constant_units,
    gradient_sensitivity,
)

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

STRETCH_ROWS = 1 << 17
"""Rows whose waves are dealt in one ask: 17 MB."""
_MAX_STRETCHES = 1 << 16

_SEEDS = "rounds.seeds"
"""Digests of all seeds that this site was dealt in the run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DealerRounds(Rounds):
    """Rounds for a coordinator that deals and works with no party."""

    @property
    def grid(self) -> float:
        return float(2.0 ** -(RESPONSE_PLACES + PLACES))

    @property
    def bound(self) -> OpenedValue:
        return OpenedValue(l2=gradient_sensitivity(), limit=self.max_rows * LARGEST_RESIDUAL)

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Sealed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        dealt = Sealed("random words, independent of all records")
        count = Count(MAX_ROUNDS)
        shown = Fields({"round": count, "words": Array(("rows",), "<u2")})
        letter = Fields({"round": count, "stretch": Count(_MAX_STRETCHES), "words": Array(None, "<u8")})
        hand = Fields({"seed": Blob(32), "sums": Array(None, "<u8")}, ("sums",))
        dealt_curve = Fields({"round": count, "waves": Array(None, "<u8")}, ("waves",))
        moments = Derived("moments")
        return Declaration(
            (
                release("matrix_seed", COORDINATOR, EVERY_PARTY, dealt, Blob(32)),
                release("whitening", COORDINATOR, EVERY_PARTY, moments, Array(None)),
                release("masked_features", EVERY_PARTY, EVERY_PARTY, Sealed("a uniform matrix"), Array(None, "<u8")),
                release("round_hand", COORDINATOR, EVERY_PARTY, dealt, hand),
                release("wave_hand", COORDINATOR, EVERY_PARTY, dealt, dealt_curve),
                release("weights", COORDINATOR, EVERY_PARTY, moments, Array((self.size,))),
                release("interval", COORDINATOR, EVERY_PARTY, moments, Array((2,))),
                release("curve", COORDINATOR, EVERY_PARTY, moments, Array((1,), "|u1")),
                release("masked_scores", EVERY_PARTY, EVERY_PARTY, Sealed("uniform words"), shown),
                release("masked_responses", EVERY_PARTY, EVERY_PARTY, Sealed("uniform words"), letter),
            ),
            adversary="a coordinator without parties, which deals correctly",
        )

    # At a site.

    @step()
    def blind(self, site: Site, matrix_seed: bytes, whitening: Floats) -> None:
        width = self.widths[site.party]
        if whitening.size != (width + 1) * width:
            raise Malformed("whitening is a matrix over a party's features, with one more row", code="form")
        self._require_fresh(site, matrix_seed, "matrix_seed")
        site.keep("rounds.matrix_seed", matrix_seed)
        site.keep("rounds.whitening", whitening.reshape(width + 1, width))
        self._send(site, "masked_features", self._masked(site, self._lines(site)).reshape(-1))

    @step(times=MAX_ROUNDS)
    def weigh(
        self, site: Site, weights: Floats, interval: Floats, curve: NDArray[np.uint8], round_hand: dict[str, Any]
    ) -> None:
        number, which = int(site.label), self._agree_on_curve(site, curve)
        self._require_fresh(site, round_hand["seed"], "round_hand")
        site.keep(f"rounds.hand/{number}", round_hand)
        share = self._partial_scores(site, weights, interval, which)
        for stretch, part in enumerate(self.stretches(len(share))):
            share[part] = waves.mask_angles(self._wave_hand(site, number, stretch), share[part])
        share = share.astype("<u2")
        site.keep(f"rounds.scores/{number}", share)
        self._send(site, "masked_scores", {"round": number, "words": share})

    @step(times=MAX_ROUNDS * _MAX_STRETCHES)
    def respond(self, site: Site, wave_hand: dict[str, Any]) -> None:
        stretches = self.stretches(site.dims["rows"])
        number, stretch = divmod(int(site.label), len(stretches))
        part, last = stretches[stretch], stretch == len(stretches) - 1
        if stretch > 0:
            self._keep_opened(site, number, stretch - 1)
        own = site.kept(f"rounds.scores/{number}")
        letters = self._letters(site, "masked_scores", number, own, last=last)
        shown = waves.open_angles([letter[part] for letter in letters])
        hand = self._wave_hand(site, number, stretch, wave_hand)
        response = waves.evaluate_share(hand, self._curve(site, number), shown)
        if site.party == self.design.label_at:
            response -= half_labels(self._labels(site, part))
        share = np.asarray(response - self._vector_hand(site, number).mask[part], "<u8")
        site.keep(f"rounds.responses/{number}", share)
        self._send(site, "masked_responses", {"round": number, "stretch": stretch, "words": share})

    def stretches(self, rows: int) -> list[slice]:
        """The rows of each stretch: the same for all parties. What is dealt for one is dealt independently."""
        return [slice(start, min(start + STRETCH_ROWS, rows)) for start in range(0, rows, STRETCH_ROWS)]

    def _keep_opened(self, site: Site, number: int, stretch: int) -> None:
        """Open what all parties sent of a stretch, once: a mask hides one value."""
        before = site.kept(f"rounds.opened/{number}", np.zeros(0, np.uint64))
        part = self.stretches(site.dims["rows"])[stretch]
        own = site.kept(f"rounds.responses/{number}")
        opened = np.zeros(part.stop - part.start, np.uint64)
        if len(before) != part.start:
            raise Refused(f"stretch {stretch} of round {number} is not the next one to be opened", code="stopped")
        for letter in self._letters(site, "masked_responses", number, own, stretch=stretch):
            if len(letter) != len(opened):
                raise Malformed(f"masked responses to {len(opened)} rows were expected", code="form")
            opened += letter
        site.keep(f"rounds.opened/{number}", np.concatenate([before, opened]))

    def share(self, site: Site, number: int) -> Words:
        self._keep_opened(site, number, len(self.stretches(site.dims["rows"])) - 1)
        opened = site.kept(f"rounds.opened/{number}")
        site.forget(f"rounds.opened/{number}")
        lines = self._lines(site)
        theirs = site.received("masked_features", self._peers(site))
        matrices = {}
        for at, (party, width) in enumerate(self.widths.items()):
            flat = self._masked(site, lines).reshape(-1) if party == site.party else theirs.get(party)
            if flat is None or flat.size != width * len(opened):
                raise Malformed(f"masked features of every other party were expected from {party}", code="form")
            matrices[at] = flat.reshape(width, len(opened))
        sums, total = vectors.combine(self._vector_hand(site, number), self._me(site), lines, matrices, opened)
        return np.append(sums, np.uint64(constant_units(self.size)) * total) if self.design.intercept else sums

    def _require_fresh(self, site: Site, seed: bytes, key: str) -> None:
        """Refuse a seed that was dealt before: two values under one mask reveal their difference."""
        digest, before = hashlib.sha256(seed).digest(), site.kept(_SEEDS, b"")
        if digest in (before[at : at + len(digest)] for at in range(0, len(before), len(digest))):
            raise Refused(f"{key} has a seed that was dealt before; a seed masks one value", code="form", key=key)
        site.keep(_SEEDS, before + digest)

    def _lines(self, site: Site) -> Words:
        """This party's instruments in units of 2^−PLACES, one line per column; the same in every step of a run."""
        if site.kept("rounds.whitening") is None:
            raise Refused("rounds come after the features were masked", code="stopped")
        found = self._instruments(site)
        digest = hashlib.sha256(found.data).digest()
        if site.kept("rounds.digest", digest) != digest:
            raise Refused("the records changed during the run", code="stopped")
        site.keep("rounds.digest", digest)
        return found.astype(np.int64).view(np.uint64)

    def _masked(self, site: Site, lines: Words) -> Words:
        seed = site.kept("rounds.matrix_seed")
        if seed is None:
            raise Refused("rounds come after the features were masked", code="stopped")
        return np.asarray(lines - vectors.expand_matrix_mask(seed, *lines.shape), "<u8")

    def _letters(
        self, site: Site, name: str, number: int, own: Any, *, stretch: int | None = None, last: bool = True
    ) -> list[Any]:
        """All parties' letters of this round, this party's first; of a `stretch`, where there are several. They stay
        until the `last` step that reads them."""
        letters = site.take(name, self._peers(site)) if last else site.received(name, self._peers(site))
        if (
            own is None
            or any((letter["round"], letter.get("stretch")) != (number, stretch) for letter in letters.values())
            or len(letters) < len(self.widths) - 1
        ):
            raise Refused(f"{name} of round {number} did not arrive from every party", code="stopped")
        return [own, *(letter["words"] for letter in letters.values())]

    def _wave_hand(self, site: Site, number: int, stretch: int, dealt: dict[str, Any] | None = None) -> waves.WaveHand:
        """The hand of a stretch; `dealt` is what the last party needs beyond its seed, and only for its shares."""
        part, count = self.stretches(site.dims["rows"])[stretch], len(self._curve(site, number).harmonics)
        rows, rest = part.stop - part.start, None
        if dealt is not None:
            found = dealt.get("waves")
            if dealt["round"] != number or (found is not None) != (site.party == self.design.parties[-1]):
                raise Refused(f"round {number} was not dealt as agreed on", code="stopped")
            if found is not None and found.size != 2 * count * rows:
                raise Malformed(f"waves of {rows} rows were expected", code="form", key="wave_hand")
            rest = None if found is None else found.reshape(2 * count, rows)
        seed = _seed_of_stretch(self._hand(site, number, "sums")["seed"], stretch)
        return waves.WaveHand(seed, rows, count, rest)

    def _vector_hand(self, site: Site, number: int) -> vectors.VectorHand:
        hand = self._hand(site, number, "sums")
        columns = sum(self.widths.values())
        return vectors.VectorHand(hand["seed"], site.dims["rows"], columns, hand.get("sums"))

    def _hand(self, site: Site, number: int, rest: str) -> dict[str, Any]:
        hand: dict[str, Any] | None = site.kept(f"rounds.hand/{number}")
        if hand is None or (rest in hand) != (site.party == self.design.parties[-1]):
            raise Refused(f"round {number} was not dealt as agreed on", code="stopped")
        return hand

    # The coordinator's side.

    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> None:
        view = parties.under(self.name)
        seeds = self._seeds(view, "matrices")
        each = {
            party: {"matrix_seed": derive(seed, "matrix"), "whitening": whitening[party].reshape(-1)}
            for party, seed in seeds.items()
        }
        view.ask("blind", each=each)

    def coordinate_round(
        self, parties: Parties, number: int, weights: Floats, intervals: Floats, curve: int = len(CURVES) - 1
    ) -> None:
        view, rows = parties.under(self.name), parties.dims["rows"]
        seeds = list(self._seeds(view, f"round/{number}").values())
        matrices = [
            (derive(seed, "matrix"), width)
            for seed, width in zip(self._seeds(view, "matrices").values(), self.widths.values())
        ]
        sums = vectors.deal_vector(matrices, seeds, rows)[-1].rest
        hands: dict[str, dict[str, Any]] = {party: {"seed": seed} for party, seed in zip(self.widths, seeds)}
        last = self.design.parties[-1]
        hands[last] |= {"sums": sums}
        each: Mapping[str, Mapping[str, Any]] = {
            party: {"round_hand": hand, "interval": interval}
            for (party, hand), interval in zip(hands.items(), intervals)
        }
        view.ask(
            "weigh", each=each, label=number, weights=np.asarray(weights, np.float64), curve=np.array([curve], np.uint8)
        )
        stretches = self.stretches(rows)
        for stretch, part in enumerate(stretches):
            own = [_seed_of_stretch(seed, stretch) for seed in seeds]
            dealt: dict[str, dict[str, Any]] = {party: {"round": number} for party in self.widths}
            found = waves.deal_waves(own, part.stop - part.start, CURVES[curve])[-1].rest
            assert found is not None
            dealt[last]["waves"] = found.reshape(-1)
            each = {party: {"wave_hand": hand} for party, hand in dealt.items()}
            view.ask("respond", each=each, label=number * len(stretches) + stretch)

    def _seeds(self, view: Parties, name: str) -> dict[str, bytes]:
        found: dict[str, bytes] = view.once(name, lambda: {party: fresh_seed() for party in self.design.parties})
        return {party: found[party] for party in self.design.parties}


def _seed_of_stretch(seed: bytes, stretch: int) -> bytes:
    return derive(seed, "stretch", stretch)


def half_labels(second: NDArray[np.bool_]) -> Words:
    """y − ½ in units of a response."""
    half = 1 << (RESPONSE_PLACES - 1)
    return np.where(second, half, -half).astype(np.int64).view(np.uint64)
