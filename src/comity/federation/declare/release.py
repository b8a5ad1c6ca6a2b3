"""A release, one value that leaves a participant, and its form.

A form is the type and shape that a released value must have; sender and receiver check the same one. A release adds
source, receiver, protection, bound, noise and cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from comity.errors import Malformed, Refused, StudyError
from comity.federation.declare.bounds import Bound, Counts, OpenedValue
from comity.federation.declare.consortium import ITSELF, Consortium, Participants, format_participants
from comity.federation.declare.protection import (
    Computed,
    Disclosed,
    Entrusted,
    EntrustedRounds,
    Noised,
    Perturbed,
    Protection,
    Sealed,
    Summed,
)
from comity.privacy.ledger import Draw
from comity.privacy.loss import Loss
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.prefix_sums import PrefixSums
from comity.privacy.mechanisms.scale import Scale
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.parallel import WHOLE


@runtime_checkable
class Form(Protocol):
    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        """Whether `value` has this form. `dims` are public sizes that the run has learnt."""


@dataclass(frozen=True)
class Array:
    """An array of one dtype. A size may name a dimension that a `Count` release sets in this run. With shape None the
    step checks the shape: that of the release in the ask's label."""

    shape: tuple[int | str, ...] | None = ()
    dtype: str = "<f8"

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype.str != self.dtype:
            return False
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return False
        if self.shape is None:
            return True
        return bool(value.shape == tuple(dims.get(size) if isinstance(size, str) else size for size in self.shape))


@dataclass(frozen=True)
class Count:
    """A whole number from 0 to `most`. It sets the dimension of its release's name, once per run."""

    most: int

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is int and 0 <= value <= self.most


@dataclass(frozen=True)
class Blob:
    most: int

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is bytes and len(value) <= self.most


@dataclass(frozen=True)
class Names:
    """Distinct parties of the consortium."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is list and consortium.knows_all(value) and len(set(value)) == len(value)


@dataclass(frozen=True)
class Each:
    """A value of one form per party, or per sum of the run."""

    of: Form
    keys: str = "parties"

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return (
            type(value) is dict
            and (self.keys != "parties" or consortium.knows_all(value))
            and all(self.of.fits(item, dims, consortium) for item in value.values())
        )


@dataclass(frozen=True)
class Fields:
    """A closed set of named values; those in `optional` may be missing."""

    of: Mapping[str, Form]
    optional: tuple[str, ...] = ()

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return (
            type(value) is dict
            and set(self.of) - set(self.optional) <= set(value) <= set(self.of)
            and all(self.of[name].fits(item, dims, consortium) for name, item in value.items())
        )


# The opened integer must not wrap: headroom for this many standard deviations of the noise.
_TAILS = 40
_RELEASE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def is_release_name(name: str) -> bool:
    return _RELEASE.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Release:
    """One value that leaves a participant: its name, source, receiver, protection and form, and how often.

    A sum is over the parties of its source and no others: they alone mask, pay and count. `bound` says where a
    contribution lies, which gives the sensitivity. `grid` is the spacing of the integers that values are rounded to, if
    the method fixes it. `known_parts` is how many parts of its shared noise count as known even without colluders: 1
    where a contributing party reads what is made from the sum, because it knows its own part.
    """

    name: str
    source: Participants
    to: Participants
    protection: Protection
    form: Form
    times: int = 1
    bound: Bound | None = None
    grid: float | None = None
    known_parts: int = 0

    @property
    def noise(self) -> Noise | None:
        return self.protection.noise if isinstance(self.protection, Summed | Noised | Entrusted | Perturbed) else None

    @property
    def loss(self) -> Loss | None:
        """What its source pays each time. A trusted coordinator's noise is paid for by the entrusted release."""
        if isinstance(self.protection, Computed):
            return self.protection.mechanism.charged
        if isinstance(self.protection, EntrustedRounds):
            return self.protection.loss
        return self.protection.noise.charged if isinstance(self.protection, Summed | Noised | Entrusted) else None

    @property
    def debits(self) -> int:
        """How often its source pays that loss in a run."""
        return 1 if isinstance(self.protection, EntrustedRounds) else self.times

    @property
    def sealed(self) -> bool:
        """Whether it is encrypted for its receiver."""
        protection = self.protection
        return isinstance(protection, Sealed) or (isinstance(protection, Disclosed) and protection.sealed)

    @property
    def shape(self) -> tuple[int, ...]:
        if not isinstance(self.form, Array) or self.form.shape is None:
            raise Refused(f"{self.name}: a noised release must be an array of a declared shape", key=self.name)
        sizes = tuple(size for size in self.form.shape if isinstance(size, int))
        if len(sizes) != len(self.form.shape):
            raise Refused(f"{self.name}: a noised release can't have named dimensions", key=self.name)
        return sizes

    @property
    def bounded(self) -> Bound:
        if self.bound is None:
            raise Refused(f"{self.name}: a noised release must declare its bound", key=self.name)
        return self.bound

    @property
    def ring(self) -> int:
        """Bits of the ring in which contributions are added."""
        return self.bound.ring if isinstance(self.bound, OpenedValue) else 64

    @property
    def sensitivity(self) -> float:
        """How far one unit moves the value before noise, in the norm of the noise; or what a mechanism states."""
        if isinstance(self.protection, Computed):
            return self.protection.mechanism.sensitivity
        return self.bounded.l1 if self.noise is not None and self.noise.norm == "l1" else self.bounded.l2

    def scale(self, consortium: Consortium) -> Scale:
        """Grid and noise in grid units, from the bound alone. Refuses parts below 2 units and missing headroom."""
        noise = self.noise
        if noise is None:
            raise Refused(f"{self.name} is not declared with noise", key=self.name)
        scale = noise.scale(
            sensitivity=self.sensitivity,
            shape=self.shape,
            parts=self.parts(consortium),
            grid=self.grid,
            exact=isinstance(self.bound, Counts),
        )
        if self.reach(consortium, scale) >= 2 ** (self.ring - 2):
            raise Refused(f"{self.name}: {self.ring} bits leave no headroom for the sum and its noise", key=self.name)
        return scale

    def summed_over(self, consortium: Consortium) -> Consortium:
        """The parties of its source, as the consortium of a secure sum. Refused where none of them would be honest."""
        try:
            return consortium.within(self.source)
        except StudyError as error:
            raise Refused(
                f"{self.name} is summed over {format_participants(self.source)}: "
                f"{len(consortium.among(self.source))} of {consortium.size} parties. All of "
                f"privacy.colluders = {consortium.colluders} and privacy.dropouts = {consortium.dropouts} may be among "
                "them, which leaves no honest part of the noise; lower one, or add parties to the source",
                code="colluders",
                key=error.key,
            ) from error

    def parts(self, consortium: Consortium) -> int:
        """How many parts of its noise the colluders together can't subtract."""
        if not isinstance(self.protection, Summed):
            return 1
        over = self.summed_over(consortium)
        left = over.survivors - max(over.colluders, self.known_parts)
        if left < 1:
            raise Refused(
                f"{self.name}: a reader among {over.size} parties would know all of the noise; add parties, or lower "
                "privacy.dropouts",
                code="colluders",
                key="privacy.dropouts",
            )
        return left

    def min_parties(self, consortium: Consortium) -> int:
        """How many parties of its source must send it for a run to go on."""
        return max(1, len(consortium.among(self.source)) - consortium.dropouts)

    def deviation(self, scale: Scale) -> float:
        """Standard deviation of the noise on one coordinate, in grid units."""
        if isinstance(self.noise, Spherical):
            return scale.total * math.sqrt(math.prod(self.shape) + 1)
        if isinstance(self.noise, PrefixSums):
            return scale.total * float(self.noise.deviations[-1])
        return scale.total * math.sqrt(2) if isinstance(self.noise, Laplace) else scale.total

    def opened_deviation(self, consortium: Consortium, parties: int | None = None) -> float:
        """Standard deviation of the noise on one coordinate of the opened value, in its own units, after so many
        `parties` (by default all) have added their parts. Parts beyond the sufficient number are extra noise."""
        scale, added = self.scale(consortium), self._summands(consortium) if parties is None else parties
        return self.deviation(scale) * scale.grid * math.sqrt(added / self.parts(consortium))

    def _summands(self, consortium: Consortium) -> int:
        return 1 if isinstance(self.protection, Perturbed) else len(consortium.among(self.source))

    def reach(self, consortium: Consortium, scale: Scale) -> float:
        """How far the opened integer can lie from zero: contributions, their rounding, the tail of the noise."""
        summands = self._summands(consortium)
        tail = _TAILS * self.deviation(scale) * math.sqrt(summands / self.parts(consortium))
        return float(summands * (self.bounded.limit / scale.grid + 1)) + tail

    def spacing(self, consortium: Consortium) -> float:
        """The grid that contributions are rounded to. An entrusted release carries no noise, so it needs no scale."""
        if isinstance(self.protection, Entrusted | EntrustedRounds) and self.grid is not None:
            return self.grid
        return self.scale(consortium).grid

    def draws(self, part: str = WHOLE) -> list[Draw]:
        """What each party of its source is debited for, if made from this part of the records."""
        if self.loss is None:
            return []
        drawn: object = self.protection if isinstance(self.protection, EntrustedRounds) else self.noise
        if isinstance(self.protection, Computed):
            drawn = self.protection.mechanism
        return [
            Draw(self.name, index, self.loss, type(drawn).__name__, self.sensitivity, part)
            for index in range(self.debits)
        ]

    def check(self, value: Any, source: str, to: str, consortium: Consortium, dims: Mapping[str, int]) -> None:
        """Check a value against its declaration. Both ends call this: before sending and on receipt."""
        declared = consortium.includes(self.source, source) and consortium.includes(self.to, to)
        leaves_itself = self.to == ITSELF and source != to
        if not declared or leaves_itself:
            raise Malformed(f"{self.name} is not declared from {source} to {to}", code="undeclared", key=self.name)
        if not self.form.fits(value, dims, consortium):
            raise Malformed(f"{self.name} is not of its declared form {self.form}", code="form", key=self.name)
