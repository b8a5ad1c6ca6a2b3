"""What a round of gradients is, whoever multiplies: where weights stand, partial scores and instruments of a party.

`dealt_rounds` and `ring_rounds` bring shares of Σ u_i (s(z_i) − y_i + ½) to the sites, with a dealer and without one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import dealer_waves as waves
from comity.data import Records
from comity.errors import Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Opened
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol
from comity.methods.by_columns.alignment import ROWS
from comity.methods.vertical.dissection import integers
from comity.methods.vertical.instruments import Whitening, limit_of
from comity.methods.vertical.layout import LABEL, PLACES, Layout
from comity.methods.vertical.response import angles, partial_scores

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

MOST_ROUNDS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds(Protocol, ABC):
    """Between the parties of `layout`, whose target has two classes, over `most` rows at most."""

    name = "rounds"
    layout: Layout
    most: int

    @cached_property
    def widths(self) -> dict[str, int]:
        """Features of each party: its columns without the label."""
        return {party: int(self._is_feature(party).sum()) for party in self.layout.parties}

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each party's weights stand among all."""
        found, start = {}, 0
        for party, width in self.widths.items():
            found[party] = slice(start, start + width)
            start += width
        return found

    @property
    def size(self) -> int:
        """Weights of the model, and as many instruments: the features of all parties and, if there is one, the
        constant."""
        return sum(self.widths.values()) + self.layout.intercept

    def _is_feature(self, party: str) -> NDArray[np.bool_]:
        own = [piece for piece in self.layout.pieces if piece.party == party]
        return np.concatenate([np.full(piece.stop - piece.start, piece.kind != LABEL) for piece in own])

    def own_weights(self, party: str, weights: Floats) -> tuple[Floats, float]:
        """A party's part of the weights, and what it adds to every score: the constant is the label's holder's."""
        holds = self.layout.intercept and party == self.layout.label_at
        return weights[self.places[party]], self.layout.constant * float(weights[-1]) if holds else 0.0

    def features(self, columns: Floats, party: str) -> Floats:
        """A party's features in units of 2^−PLACES, from its columns of z."""
        return integers(columns[:, self._is_feature(party)])

    def scores(self, units: Floats, party: str, weights: Floats, interval: Floats) -> waves.Angles:
        """A party's part of the scores, on the circle, from its features."""
        own, constant = self.own_weights(party, weights)
        found = partial_scores(np.ldexp(units, -PLACES), own, constant, float(interval[0]), float(interval[1]))
        return angles(found)

    def instruments(self, units: Floats, party: str, whitening: Floats) -> Floats:
        """A party's instruments, in units of 2^−PLACES, from its features."""
        return Whitening(whitening).applied(units, self.limit(party))

    def limit(self, party: str) -> float:
        """Of the norm of a party's instruments."""
        return limit_of(self.widths[party], self.size, self.layout.intercept)

    # What a way of multiplying has.

    @property
    @abstractmethod
    def grid(self) -> float:
        """Of the sums whose shares are brought to the sites."""

    @property
    @abstractmethod
    def bound(self) -> Opened:
        """Of these sums: how far a replaced record moves them, for all weights, intervals and matrices that a
        coordinator may send. Where it deals, for words that are dealt as agreed on: they are part of the sums, and no
        party can tell what they add up to."""

    @abstractmethod
    def coordinate_whitening(self, parties: Parties, whitening: Mapping[str, Floats]) -> None:
        """Let every party whiten its features as said, before the first round."""

    @abstractmethod
    def coordinate_round(self, parties: Parties, number: int, weights: Floats, intervals: Floats) -> None:
        """Bring shares of Σ u (s(z) − y + ½) at these weights to the sites; `intervals` has a line per party."""

    @abstractmethod
    def share(self, site: Site, number: int) -> Words:
        """This party's share of Σ u (s(z) − y + ½), the constant last. For a release that adds noise to it, never as it
        is."""

    # At a site.

    def _columns(self, site: Site) -> Floats:
        """This party's columns of z, in the common order."""
        columns = self.layout.matrix(Records(site.features, site.records.labels), site.party)
        order = site.kept(ROWS)
        columns = columns if order is None else columns[order]
        if len(columns) != site.dims["rows"]:
            raise Refused("the matrix has another shape than the study agreed on", code="stopped")
        return columns

    def _labels(self, site: Site) -> NDArray[np.bool_]:
        """At the label's holder: whether a row is of the second class."""
        return np.asarray(self._columns(site)[:, ~self._is_feature(site.party)][:, 0] > 0, np.bool_)

    def _send(self, site: Site, name: str, value: Any) -> None:
        for peer in self._peers(site):
            site.send(peer, name, value)

    def _peers(self, site: Site) -> list[str]:
        return [party for party in self.layout.parties if party != site.party]

    def _me(self, site: Site) -> int:
        return self.layout.parties.index(site.party)
