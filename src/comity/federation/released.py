"""What a method makes of what was contributed: totals, a trusted coordinator's noise, the values it releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import Malformed, Refused
from comity.federation.consortium import COORDINATOR, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.protection import Perturbed
from comity.privacy.permit import Permit
from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over `parties` contributions, in the units of the value; `names` says whose, where sites answered."""

    value: NDArray[np.float64]
    parties: int
    names: tuple[str, ...] | None = None


def perturbed(
    release: Release,
    value: NDArray[np.float64],
    who: Consortium,
    source: NoiseSource | None,
    once: Callable[[Callable[[], Any]], Any],
) -> NDArray[np.float64]:
    """Put the value on the release's grid, add its noise, and return it in its own units."""
    if not isinstance(release.protection, Perturbed) or source is None:
        raise Refused(f"{release.name} is not declared as noised by a trusted coordinator", code="undeclared")
    noise, scale, drawn_from = release.protection.noise, release.scale(who), source
    units = np.rint(value / scale.grid).astype("<i8")
    if units.shape != release.shape:
        raise Malformed(f"{release.name}: declared {release.shape}, found {units.shape}", code="form")
    noisy = once(lambda: units + noise.draw(drawn_from, scale, release.shape, permit=Permit(release.name, 0)))
    return np.asarray(noisy * scale.grid, np.float64)


def checked(
    released: dict[str, Any], declaration: Declaration, who: Consortium, dims: Mapping[str, int]
) -> dict[str, Any]:
    """What the method releases at its end meets its declaration like anything else that leaves."""
    for name, value in released.items():
        release = declaration[name]
        if release.source != COORDINATOR:
            raise Malformed(f"{name} is not declared as released by the coordinator", code="undeclared", key=name)
        if not release.form.fits(value, dims, who):
            raise Malformed(f"{name} is not of its declared form {release.form}", code="form", key=name)
    return released
