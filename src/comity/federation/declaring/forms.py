"""Forms: of what type and shape a released value must be. Sender and receiver check the same one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from comity.federation.declaring.consortium import Consortium


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
