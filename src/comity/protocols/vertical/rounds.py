"""One round of gradients on shares, as a sub-protocol: partial scores, responses and sums stay at the sites.

    blind      (once) each party masks its features with what the coordinator dealt and seals them to the others
    weigh      its clipped partial scores are its share of the scores; masked, they are sealed to the others
    respond    it puts its share into the cubic; masked, its share of the responses is sealed to the others
    (share)    its share of Σ x_i s(z_i), for a release that adds noise on shares

Adversary    a coordinator that works with no party (it deals), and any parties but one together.
Learned      parties: the weights of every round, and words that are uniform to them. Coordinator: nothing here; what a
             protocol opens is declared there.
Assumes      AES in counter mode as a generator; what is dealt and what parties send each other is sealed.

One mask, one use: the seeds are journalled before the first ask, a matrix is masked once per run and refused if the
records changed, and every round has seeds of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import dealer_combination as vectors
from comity.crypto import dealer_cubes as cubes
from comity.data import Records
from comity.entropy import derive, fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.alignment import ROWS
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Blob, Count, Fields, Form
from comity.federation.parties import Parties
from comity.federation.protection import Derived, Sealed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site
from comity.protocols.vertical.columns import LABEL, PLACES, Columns
from comity.protocols.vertical.dissection import integers
from comity.protocols.vertical.response import BEND, limits, partial_scores

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

MOST_ROUNDS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds(Protocol):
    """`places` are the binary places of a score."""

    name = "rounds"
    layout: Columns
    places: int

    @cached_property
    def widths(self) -> dict[str, int]:
        """Features of each party: its columns without the label."""
        return {party: int(self._is_feature(party).sum()) for party in self.layout.parties}

    @property
    def size(self) -> int:
        """Weights of the model: the features of all parties, and the constant."""
        return sum(self.widths.values()) + 1

    def _is_feature(self, party: str) -> NDArray[np.bool_]:
        own = [piece for piece in self.layout.pieces if piece.party == party]
        return np.concatenate([np.full(piece.stop - piece.start, piece.kind != LABEL) for piece in own])

    def own_weights(self, party: str, weights: Floats) -> tuple[Floats, float]:
        """A party's part of the weights, and what it adds to every score: the constant is the label's holder's."""
        start = sum(self.widths[before] for before in self.layout.parties[: self.layout.parties.index(party)])
        constant = self.layout.constant * float(weights[-1]) if party == self.layout.label_at else 0.0
        return weights[start : start + self.widths[party]], constant

    def features(self, columns: Floats, party: str) -> Floats:
        """A party's features on the grid, from its columns of z."""
        return integers(columns[:, self._is_feature(party)]) * 2.0**-PLACES

    def declare(self, who: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Sealed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        dealt = Sealed("random words, independent of all records")
        letter = Fields({"round": Count(MOST_ROUNDS), "words": Array(("rows",), "<u8")})
        hand = Fields(
            {"seed": Blob(32), "powers": Array((2, "rows"), "<u8"), "sums": Array(None, "<u8")}, ("powers", "sums")
        )
        return Declaration(
            (
                release("matrix_seed", COORDINATOR, EVERY_PARTY, dealt, Blob(32)),
                release("masked_features", EVERY_PARTY, EVERY_PARTY, Sealed("a uniform matrix"), Array(None, "<u8")),
                release("round_hand", COORDINATOR, EVERY_PARTY, dealt, hand),
                release("weights", COORDINATOR, EVERY_PARTY, Derived("moments"), Array((self.size,))),
                release("masked_scores", EVERY_PARTY, EVERY_PARTY, Sealed("uniform words"), letter),
                release("masked_responses", EVERY_PARTY, EVERY_PARTY, Sealed("uniform words"), letter),
            ),
            adversary="a coordinator without parties",
        )

    # At a site.

    @step()
    def blind(self, site: Site, matrix_seed: bytes) -> None:
        site.keep("rounds.matrix_seed", matrix_seed)
        self._send(site, "masked_features", self._masked(site, self._lines(site)).reshape(-1))

    @step(times=MOST_ROUNDS)
    def weigh(self, site: Site, weights: Floats, round_hand: dict[str, Any]) -> None:
        number = int(site.label)
        site.keep(f"rounds.hand/{number}", round_hand)
        lines, (own, constant) = self._lines(site), self.own_weights(site.party, weights)
        limit = limits(self.layout, self.places)[site.party]
        rows = np.ldexp(np.ascontiguousarray(lines.view(np.int64).T).astype(np.float64), -PLACES)
        found = partial_scores(rows, own, constant, limit, self.places)
        share = cubes.masked(self._cube_hand(site, number), found.view(np.uint64))
        site.keep(f"rounds.scores/{number}", share)
        self._send(site, "masked_scores", {"round": number, "words": share})

    @step(times=MOST_ROUNDS)
    def respond(self, site: Site) -> None:
        number = int(site.label)
        opened = self._opened(site, "masked_scores", number, site.kept(f"rounds.scores/{number}"))
        value, cube = cubes.value_and_cube(self._cube_hand(site, number), opened, first=self._me(site) == 0)
        response = value * np.uint64(1 << (2 * self.places + BEND)) - cube
        share = vectors.masked(self._vector_hand(site, number), response)
        site.keep(f"rounds.responses/{number}", share)
        self._send(site, "masked_responses", {"round": number, "words": share})

    def share(self, site: Site, number: int) -> Words:
        """This party's share of Σ x s(z), the constant last. For a release that adds noise to it, never as it is."""
        opened = self._opened(site, "masked_responses", number, site.kept(f"rounds.responses/{number}"))
        lines = self._lines(site)
        theirs = site.received("masked_features", self._peers(site))
        matrices = {}
        for at, (party, width) in enumerate(self.widths.items()):
            flat = self._masked(site, lines).reshape(-1) if party == site.party else theirs.get(party)
            if flat is None or flat.size != width * len(opened):
                raise Malformed(f"masked features of every other party were expected from {party}", code="form")
            matrices[at] = flat.reshape(width, -1)
        sums, total = vectors.combination(self._vector_hand(site, number), self._me(site), lines, matrices, opened)
        constant = np.uint64(round(self.layout.constant * 2**PLACES))
        return np.append(sums, constant * total)

    def _lines(self, site: Site) -> Words:
        """This party's features in units of 2^−PLACES, one line per column; the same in every step of a run."""
        columns = self.layout.matrix(Records(site.features, site.records.labels), site.party)
        order = site.kept(ROWS)
        units = integers((columns if order is None else columns[order])[:, self._is_feature(site.party)])
        if len(units) != site.dims["rows"]:
            raise Refused("the matrix has another shape than the study agreed on", code="stopped")
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
        return np.asarray(lines - vectors.matrix_mask(seed, *lines.shape), "<u8")

    def _opened(self, site: Site, name: str, number: int, own: Words | None) -> Words:
        """The sum of all parties' letters of this round."""
        letters = site.take(name, self._peers(site))
        if (
            own is None
            or any(letter["round"] != number for letter in letters.values())
            or len(letters) < len(self.widths) - 1
        ):
            raise Refused(f"{name} of round {number} did not arrive from every party", code="stopped")
        total = own.copy()
        for letter in letters.values():
            total += letter["words"]
        return total

    def _send(self, site: Site, name: str, value: Any) -> None:
        for peer in self._peers(site):
            site.send(peer, name, value)

    def _peers(self, site: Site) -> list[str]:
        return [party for party in self.layout.parties if party != site.party]

    def _me(self, site: Site) -> int:
        return self.layout.parties.index(site.party)

    def _cube_hand(self, site: Site, number: int) -> cubes.CubeHand:
        hand = self._hand(site, number, "powers")
        return cubes.CubeHand(hand["seed"], site.dims["rows"], hand.get("powers"))

    def _vector_hand(self, site: Site, number: int) -> vectors.VectorHand:
        hand = self._hand(site, number, "sums")
        return vectors.VectorHand(hand["seed"], site.dims["rows"], self.size - 1, hand.get("sums"))

    def _hand(self, site: Site, number: int, rest: str) -> dict[str, Any]:
        hand: dict[str, Any] | None = site.kept(f"rounds.hand/{number}")
        if hand is None or (rest in hand) != (site.party == self.layout.parties[-1]):
            raise Refused(f"round {number} was not dealt as agreed on", code="stopped")
        return hand

    # The coordinator's side.

    def coordinate_blinding(self, parties: Parties, mount: str = "rounds") -> None:
        view = parties.under(mount)
        seeds = self._seeds(view, "matrices")
        view.ask("blind", each={party: {"matrix_seed": derive(seed, "matrix")} for party, seed in seeds.items()})

    def coordinate_round(self, parties: Parties, number: int, weights: Floats, mount: str = "rounds") -> None:
        """Bring shares of Σ x s(z) at these weights to the sites."""
        view, rows = parties.under(mount), parties.dims["rows"]
        seeds = list(self._seeds(view, f"round/{number}").values())
        matrices = [
            (derive(seed, "matrix"), width)
            for seed, width in zip(self._seeds(view, "matrices").values(), self.widths.values())
        ]
        powers, sums = cubes.deal_cubes(seeds, rows)[-1].rest, vectors.deal_vector(matrices, seeds, rows)[-1].rest
        hands: dict[str, dict[str, Any]] = {party: {"seed": seed} for party, seed in zip(self.widths, seeds)}
        hands[self.layout.parties[-1]] |= {"powers": powers, "sums": sums}
        each: Mapping[str, Mapping[str, Any]] = {party: {"round_hand": hand} for party, hand in hands.items()}
        view.ask("weigh", each=each, label=number, weights=np.asarray(weights, np.float64))
        view.ask("respond", to=list(self.widths), label=number)

    def _seeds(self, view: Parties, name: str) -> dict[str, bytes]:
        found: dict[str, bytes] = view.once(name, lambda: {party: fresh_seed() for party in self.layout.parties})
        return {party: found[party] for party in self.layout.parties}
