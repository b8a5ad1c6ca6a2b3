"""One value that may cross a trust boundary: what its noise must be, what it costs, and the check that it meets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from comity.errors import Malformed, Refused, StudyError
from comity.federation.declare.bounds import Bound, Counts, Opened
from comity.federation.declare.consortium import ITSELF, Consortium, Named, worded
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
    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        """Whether `value` has this form; `dims` are public sizes that the run has learnt."""


@dataclass(frozen=True)
class Array:
    """An array of one dtype. A size may be the name of a dimension that a `Count` release bound in this run;
    shape None is the shape of the release that the ask's label names, checked by the step."""

    shape: tuple[int | str, ...] | None = ()
    dtype: str = "<f8"

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype.str != self.dtype:
            return False
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return False
        if self.shape is None:
            return True
        return bool(value.shape == tuple(dims.get(size) if isinstance(size, str) else size for size in self.shape))


@dataclass(frozen=True)
class Count:
    """A whole number from 0 to `most`. It binds the dimension of its release's name, once per run."""

    most: int

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return type(value) is int and 0 <= value <= self.most


@dataclass(frozen=True)
class Blob:
    most: int

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return type(value) is bytes and len(value) <= self.most


@dataclass(frozen=True)
class Names:
    """Distinct parties of the consortium."""

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return type(value) is list and who.knows_all(value) and len(set(value)) == len(value)


@dataclass(frozen=True)
class Each:
    """A value of one form per party, or per sum of the run."""

    of: Form
    keys: str = "parties"

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return (
            type(value) is dict
            and (self.keys != "parties" or who.knows_all(value))
            and all(self.of.fits(item, dims, who) for item in value.values())
        )


@dataclass(frozen=True)
class Fields:
    """A closed set of named values; those in `optional` may be missing."""

    of: Mapping[str, Form]
    optional: tuple[str, ...] = ()

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return (
            type(value) is dict
            and set(self.of) - set(self.optional) <= set(value) <= set(self.of)
            and all(self.of[name].fits(item, dims, who) for name, item in value.items())
        )


# The opened integer may not wrap: room for this many standard deviations of the noise.
_TAILS = 40
_RELEASE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def is_release_name(name: str) -> bool:
    return _RELEASE.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Release:
    """One value that leaves a participant: its name, from whom to whom, how protected, of what form, how often.

    What is contributed is summed over the parties of its source and no others: they alone mask, pay and count. `bound`
    is where a contribution lies, and hence the sensitivity; `grid` the spacing of the integers it is put on, if the
    method fixes it. `known_parts` is how many parts of its shared noise count as known even where no colluders are
    assumed: 1 where a party that works with nobody reads what is made of the sum, since it knows its own part.
    """

    name: str
    source: Named
    to: Named
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
        """What its source pays for one of it. A trusted coordinator's noise was paid for by the entrusted release."""
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
        """How far one unit moves what the noise is added to, in the norm of that noise; or what a mechanism states."""
        if isinstance(self.protection, Computed):
            return self.protection.mechanism.sensitivity
        return self.bounded.l1 if self.noise is not None and self.noise.norm == "l1" else self.bounded.l2

    def scale(self, who: Consortium) -> Scale:
        """Grid and noise in grid units, from the bound alone; refuses parts below 2 units and missing headroom."""
        noise = self.noise
        if noise is None:
            raise Refused(f"{self.name} is not declared with noise", key=self.name)
        scale = noise.scale(
            sensitivity=self.sensitivity,
            shape=self.shape,
            parts=self.parts(who),
            grid=self.grid,
            exact=isinstance(self.bound, Counts),
        )
        if self.reach(who, scale) >= 2 ** (self.ring - 2):
            raise Refused(f"{self.name}: {self.ring} bits leave no headroom for the sum and its noise", key=self.name)
        return scale

    def summed_over(self, who: Consortium) -> Consortium:
        """The parties of its source, as the consortium of a secure sum; refused where none of them would be honest."""
        try:
            return who.within(self.source)
        except StudyError as error:
            raise Refused(
                f"{self.name} is summed over {worded(self.source)}, {len(who.among(self.source))} of {who.size} "
                f"parties, and all of privacy.colluders = {who.colluders} and privacy.dropouts = {who.dropouts} may be "
                "among them: no honest part of the noise would be left; lower one, or add parties to the source",
                code="colluders",
                key=error.key,
            ) from error

    def parts(self, who: Consortium) -> int:
        """How many parts of its noise no coalition of the colluders can subtract."""
        if not isinstance(self.protection, Summed):
            return 1
        over = self.summed_over(who)
        left = over.survivors - max(over.colluders, self.known_parts)
        if left < 1:
            raise Refused(
                f"{self.name}: every part of the noise would be known to a reader among {over.size} parties; add "
                "parties, or lower privacy.dropouts",
                code="colluders",
                key="privacy.dropouts",
            )
        return left

    def least(self, who: Consortium) -> int:
        """From how many parties of its source it must come for a run to go on."""
        return max(1, len(who.among(self.source)) - who.dropouts)

    def deviation(self, scale: Scale) -> float:
        """Standard deviation of the noise on one coordinate, in grid units."""
        if isinstance(self.noise, Spherical):
            return scale.total * math.sqrt(math.prod(self.shape) + 1)
        if isinstance(self.noise, PrefixSums):
            return scale.total * float(self.noise.deviations[-1])
        return scale.total * math.sqrt(2) if isinstance(self.noise, Laplace) else scale.total

    def opened_deviation(self, who: Consortium, parties: int | None = None) -> float:
        """Standard deviation of the noise on one coordinate of what is opened, in its own units, where so many of its
        source (all, unless said) have added their part. Parts beyond those it was laid out for are noise on top."""
        scale, added = self.scale(who), self._summands(who) if parties is None else parties
        return self.deviation(scale) * scale.grid * math.sqrt(added / self.parts(who))

    def _summands(self, who: Consortium) -> int:
        return 1 if isinstance(self.protection, Perturbed) else len(who.among(self.source))

    def reach(self, who: Consortium, scale: Scale) -> float:
        """How far the opened integer can lie from zero: contributions, their rounding, the tail of the noise."""
        summands = self._summands(who)
        tail = _TAILS * self.deviation(scale) * math.sqrt(summands / self.parts(who))
        return float(summands * (self.bounded.limit / scale.grid + 1)) + tail

    def spacing(self, who: Consortium) -> float:
        """The grid that contributions are put on. An entrusted one carries no noise, so that it needs no scale."""
        if isinstance(self.protection, Entrusted | EntrustedRounds) and self.grid is not None:
            return self.grid
        return self.scale(who).grid

    def draws(self, part: str = WHOLE) -> list[Draw]:
        """What one of its source is debited for, where it is made from this part of the records."""
        if self.loss is None:
            return []
        drawn: object = self.protection if isinstance(self.protection, EntrustedRounds) else self.noise
        if isinstance(self.protection, Computed):
            drawn = self.protection.mechanism
        return [
            Draw(self.name, index, self.loss, type(drawn).__name__, self.sensitivity, part)
            for index in range(self.debits)
        ]

    def _strays(self, source: str, to: str) -> bool:
        return self.to == ITSELF and source != to

    def check(self, value: Any, source: str, to: str, who: Consortium, dims: Mapping[str, int]) -> None:
        """The one place where a value meets its declaration: both ends call it, before sending and on receipt."""
        if not who.includes(self.source, source) or not who.includes(self.to, to) or self._strays(source, to):
            raise Malformed(f"{self.name} is not declared from {source} to {to}", code="undeclared", key=self.name)
        if not self.form.fits(value, dims, who):
            raise Malformed(f"{self.name} is not of its declared form {self.form}", code="form", key=self.name)
