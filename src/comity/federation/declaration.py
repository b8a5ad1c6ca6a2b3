"""What may cross a trust boundary: releases, and the declaration that lists them. No data, no input or output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comity.crypto.neighbours import choose
from comity.errors import Malformed, Refused
from comity.federation.bounds import Bound, Opened
from comity.federation.consortium import COORDINATOR, Consortium
from comity.federation.forms import Array, Form
from comity.federation.protection import Derived, Disclosed, Entrusted, Noised, Perturbed, Protection, Sealed, Summed
from comity.privacy.loss import Loss
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.scale import Scale
from comity.privacy.mechanisms.spherical import Spherical

PRIVATE = "private"
DISCLOSING = "not private: what is marked EXACT leaves as it is, outside every guarantee"
"""The claim of a protocol that discloses on purpose: a site's policy must name each such release."""
# The opened integer may not wrap: room for this many standard deviations of the noise.
_TAILS = 40


@dataclass(frozen=True, kw_only=True)
class Release:
    """One value that leaves a participant: its name, from whom to whom, how protected, of what form, how often.

    `bound` is where a contribution lies, and hence the sensitivity; `grid` the spacing of the integers it is put on,
    if the method fixes it.
    """

    name: str
    source: str
    to: str
    protection: Protection
    form: Form
    times: int = 1
    bound: Bound | None = None
    grid: float | None = None

    @property
    def noise(self) -> Noise | None:
        return self.protection.noise if isinstance(self.protection, Summed | Noised | Entrusted | Perturbed) else None

    @property
    def loss(self) -> Loss | None:
        """What its source pays for one of it. A trusted coordinator's noise was paid for by the entrusted release."""
        return self.protection.noise.charged if isinstance(self.protection, Summed | Noised | Entrusted) else None

    @property
    def sealed(self) -> bool:
        """Whether it crosses in a box that only its receiver opens."""
        protection = self.protection
        return isinstance(protection, Sealed) or (isinstance(protection, Disclosed) and protection.sealed)

    @property
    def shape(self) -> tuple[int, ...]:
        if not isinstance(self.form, Array) or self.form.shape is None:
            raise Refused(f"{self.name}: a noised release is an array of a declared shape", key=self.name)
        sizes = tuple(size for size in self.form.shape if isinstance(size, int))
        if len(sizes) != len(self.form.shape):
            raise Refused(f"{self.name}: a noised release has no named dimensions", key=self.name)
        return sizes

    @property
    def bounded(self) -> Bound:
        if self.bound is None:
            raise Refused(f"{self.name}: a noised release declares its bound", key=self.name)
        return self.bound

    @property
    def ring(self) -> int:
        """Bits of the ring in which contributions add up."""
        return self.bound.ring if isinstance(self.bound, Opened) else 64

    @property
    def sensitivity(self) -> float:
        """How far one unit moves what the noise is added to, in the norm of that noise."""
        return self.bounded.l1 if self.noise is not None and self.noise.norm == "l1" else self.bounded.l2

    def scale(self, who: Consortium) -> Scale:
        """Grid and noise in grid units, from the bound alone; refuses parts below 2 units and missing headroom."""
        noise = self.noise
        if noise is None:
            raise Refused(f"{self.name} is not declared with noise", key=self.name)
        parts = who.honest_parts if isinstance(self.protection, Summed) else 1
        scale = noise.scale(sensitivity=self.sensitivity, shape=self.shape, parts=parts, grid=self.grid)
        if self.reach(who, scale) >= 2 ** (self.ring - 2):
            raise Refused(f"{self.name}: {self.ring} bits leave no headroom for the sum and its noise", key=self.name)
        return scale

    def deviation(self, scale: Scale) -> float:
        """Standard deviation of the noise on one coordinate, in grid units."""
        if isinstance(self.noise, Spherical):
            return scale.total * math.sqrt(math.prod(self.shape) + 1)
        return scale.total * math.sqrt(2) if isinstance(self.noise, Laplace) else scale.total

    def reach(self, who: Consortium, scale: Scale) -> float:
        """How far the opened integer can lie from zero: contributions, their rounding, the tail of the noise."""
        parts = who.honest_parts if isinstance(self.protection, Summed) else 1
        summands = 1 if isinstance(self.protection, Perturbed) else who.size
        tail = _TAILS * self.deviation(scale) * math.sqrt(who.size / parts)
        return float(summands * (self.bounded.limit / scale.grid + 1)) + tail

    def spacing(self, who: Consortium) -> float:
        """The grid that contributions are put on. An entrusted one carries no noise, so that it needs no scale."""
        if isinstance(self.protection, Entrusted) and self.grid is not None:
            return self.grid
        return self.scale(who).grid

    def check(self, value: Any, source: str, to: str, who: Consortium, dims: Mapping[str, int]) -> None:
        """The one place where a value meets its declaration: both ends call it, before sending and on receipt."""
        if not who.includes(self.source, source) or not who.includes(self.to, to):
            raise Malformed(f"{self.name} is not declared from {source} to {to}", code="undeclared", key=self.name)
        if not self.form.fits(value, dims, who):
            raise Malformed(f"{self.name} is not of its declared form {self.form}", code="form", key=self.name)


@dataclass(frozen=True)
class Declaration:
    """Every release of a protocol, the adversary it holds against, and the claim: "private", or why not as claimed.

    `aside` names the paid releases that are made from records that were set aside, and from no others. It is not for a
    method to say: a site lets no step outside the evaluation see such records, and none inside it see others.
    """

    releases: tuple[Release, ...]
    adversary: str
    claim: str = PRIVATE
    aside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [release.name for release in self.releases]
        if len(set(names)) != len(names):
            raise ValueError(f"two releases of one declaration have the same name: {names}")

    def __getitem__(self, name: str) -> Release:
        for release in self.releases:
            if release.name == name:
                return release
        raise Malformed(f"{name!r} is not declared", code="undeclared")

    def accept(self, who: Consortium) -> Declaration:
        """Refuse, before anything is reserved, whatever public figures decide: what can't be noised as declared, sums
        that so few survivors could not open, and shared noise that a reader could subtract. A party that receives
        something made from a secure sum knows its own part of the noise, so that at least one colluder must be counted
        with."""
        summed = {release.name for release in self.releases if isinstance(release.protection, Summed)}
        if summed:
            choose(who.size, who.colluders, who.dropouts)
        for release in self.releases:
            if release.noise is not None and not (isinstance(release.protection, Entrusted) and release.grid):
                release.scale(who)
        made_from = {r.name: r.protection.of for r in self.releases if isinstance(r.protection, Derived)}
        for release in self.releases:
            origin = release.name
            while origin in made_from and origin not in summed:
                origin = made_from[origin]
            read_by_parties = release.to != COORDINATOR
            if who.colluders == 0 and who.size > 1 and origin in summed and read_by_parties:
                advice = "set privacy.colluders to 1 or more"
                if who.survivors == 1:
                    advice = "lower privacy.dropouts, or add parties, so that two are left to hide behind each other"
                raise Refused(
                    f"{release.name} goes to parties and is made from {origin}, whose noise each of them knows a part "
                    f"of; {advice}",
                    code="colluders",
                    key="privacy.colluders",
                )
        return self

    @property
    def private(self) -> bool:
        return self.claim == PRIVATE

    def paid_by(self, party: str, who: Consortium) -> tuple[Release, ...]:
        """The releases whose noise this party pays for."""
        return tuple(r for r in self.releases if r.loss is not None and who.includes(r.source, party))

    def disclosures(self, party: str, who: Consortium) -> tuple[Release, ...]:
        return tuple(r for r in self.releases if isinstance(r.protection, Disclosed) and who.includes(r.source, party))

    def seen_by(self, name: str, who: Consortium) -> tuple[Release, ...]:
        """What a participant receives."""
        return tuple(r for r in self.releases if who.includes(r.to, name))

    def sums(self) -> tuple[str, ...]:
        """Labels of the secure sums of a run: release/index."""
        return tuple(f"{r.name}/{i}" for r in self.releases if isinstance(r.protection, Summed) for i in range(r.times))
