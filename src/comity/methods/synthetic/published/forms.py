"""Forms of what is shared: trees, whose sizes differ from owner to owner and are public, and records, whose number is
not known before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.release import Form


@dataclass(frozen=True)
class OneOf:
    """A value of one of several forms: an owner's own shape is checked where it is known whose value it is."""

    of: tuple[Form, ...]

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return any(form.fits(value, dims, who) for form in self.of)


@dataclass(frozen=True)
class Rows:
    """Up to `most` records of `width` finite numbers each."""

    width: int
    most: int

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        return (
            isinstance(value, np.ndarray)
            and value.dtype.str == "<f8"
            and value.ndim == 2
            and value.shape[1] == self.width
            and len(value) <= self.most
            and bool(np.isfinite(value).all())
        )
