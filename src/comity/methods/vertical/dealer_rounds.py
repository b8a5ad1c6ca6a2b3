"""Gradient rounds with a dealer: shares of scores, responses and sums stay at the sites.

    blind      (once) each party masks its instruments with what the coordinator dealt and seals them to the others
    weigh      its partial scores are its share of the scores; masked, they are sealed to the others
    respond    it computes its share of the curve, the label's holder less its labels; masked, sealed to the others
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
    CURVE,
    LARGEST_RESIDUAL,
    MAX_ROUNDS,
    RESPONSE_PLACES,
    Rounds,
    constant_units,
    gradient_sensitivity,
)

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

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
        letter = Fields({"round": count, "words": Array(("rows",), "<u8")})
        dealt_waves = Array((2 * len(CURVE.harmonics), "rows"), "<u8")
        hand = Fields({"seed": Blob(32), "waves": dealt_waves, "sums": Array(None, "<u8")}, ("waves", "sums"))
        moments = Derived("moments")
        return Declaration(
            (
                release("matrix_seed", COORDINATOR, EVERY_PARTY, dealt, Blob(32)),
                release("whitening", COORDINATOR, EVERY_PARTY, moments, Array(None)),
                release("masked_features", EVERY_PARTY, EVERY_PARTY, Sealed("a uniform matrix"), Array(None, "<u8")),
                release("round_hand", COORDINATOR, EVERY_PARTY, dealt, hand),
                release("weights", COORDINATOR, EVERY_PARTY, moments, Array((self.size,))),
                release("interval", COORDINATOR, EVERY_PARTY, moments, Array((2,))),
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
    def weigh(self, site: Site, weights: Floats, interval: Floats, round_hand: dict[str, Any]) -> None:
        number = int(site.label)
        self._require_fresh(site, round_hand["seed"], "round_hand")
        site.keep(f"rounds.hand/{number}", round_hand)
        found = self.scores(self.features(self._columns(site), site.party), site.party, weights, interval)
        share = waves.mask_angles(self._wave_hand(site, number), found)
        site.keep(f"rounds.scores/{number}", share)
        self._send(site, "masked_scores", {"round": number, "words": share})

    @step(times=MAX_ROUNDS)
    def respond(self, site: Site) -> None:
        number = int(site.label)
        shown = waves.open_angles(self._letters(site, "masked_scores", number, site.kept(f"rounds.scores/{number}")))
        response = waves.evaluate_share(self._wave_hand(site, number), CURVE, shown)
        if site.party == self.design.label_at:
            response -= half_labels(self._labels(site))
        share = vectors.mask_share(self._vector_hand(site, number), response)
        site.keep(f"rounds.responses/{number}", share)
        self._send(site, "masked_responses", {"round": number, "words": share})

    def share(self, site: Site, number: int) -> Words:
        letters = self._letters(site, "masked_responses", number, site.kept(f"rounds.responses/{number}"))
        opened = np.zeros(site.dims["rows"], np.uint64)
        for letter in letters:
            opened += letter
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
        whitening = site.kept("rounds.whitening")
        if whitening is None:
            raise Refused("rounds come after the features were masked", code="stopped")
        units = self.instruments(self.features(self._columns(site), site.party), site.party, whitening)
        lines = np.ascontiguousarray(units.T.astype(np.int64))
        digest = hashlib.sha256(lines.tobytes()).digest()
        if site.kept("rounds.digest", digest) != digest:
            raise Refused("the records changed during the run", code="stopped")
        site.keep("rounds.digest", digest)
        return lines.view(np.uint64)

    def _masked(self, site: Site, lines: Words) -> Words:
        seed = site.kept("rounds.matrix_seed")
        if seed is None:
            raise Refused("rounds come after the features were masked", code="stopped")
        return np.asarray(lines - vectors.expand_matrix_mask(seed, *lines.shape), "<u8")

    def _letters(self, site: Site, name: str, number: int, own: Any) -> list[Any]:
        """All parties' letters of this round, this party's first."""
        letters = site.take(name, self._peers(site))
        if (
            own is None
            or any(letter["round"] != number for letter in letters.values())
            or len(letters) < len(self.widths) - 1
        ):
            raise Refused(f"{name} of round {number} did not arrive from every party", code="stopped")
        return [own, *(letter["words"] for letter in letters.values())]

    def _wave_hand(self, site: Site, number: int) -> waves.WaveHand:
        hand = self._hand(site, number, "waves")
        return waves.WaveHand(hand["seed"], site.dims["rows"], len(CURVE.harmonics), hand.get("waves"))

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

    def coordinate_round(self, parties: Parties, number: int, weights: Floats, intervals: Floats) -> None:
        view, rows = parties.under(self.name), parties.dims["rows"]
        seeds = list(self._seeds(view, f"round/{number}").values())
        matrices = [
            (derive(seed, "matrix"), width)
            for seed, width in zip(self._seeds(view, "matrices").values(), self.widths.values())
        ]
        dealt, sums = waves.deal_waves(seeds, rows, CURVE)[-1].rest, vectors.deal_vector(matrices, seeds, rows)[-1].rest
        hands: dict[str, dict[str, Any]] = {party: {"seed": seed} for party, seed in zip(self.widths, seeds)}
        hands[self.design.parties[-1]] |= {"waves": dealt, "sums": sums}
        each: Mapping[str, Mapping[str, Any]] = {
            party: {"round_hand": hand, "interval": interval}
            for (party, hand), interval in zip(hands.items(), intervals)
        }
        view.ask("weigh", each=each, label=number, weights=np.asarray(weights, np.float64))
        view.ask("respond", to=list(self.widths), label=number)

    def _seeds(self, view: Parties, name: str) -> dict[str, bytes]:
        found: dict[str, bytes] = view.once(name, lambda: {party: fresh_seed() for party in self.design.parties})
        return {party: found[party] for party in self.design.parties}


def half_labels(second: NDArray[np.bool_]) -> Words:
    """y − ½ in units of a response."""
    half = 1 << (RESPONSE_PLACES - 1)
    return np.where(second, half, -half).astype(np.int64).view(np.uint64)
