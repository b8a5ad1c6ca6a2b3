"""What a method makes of what was contributed: totals, a trusted coordinator's noise, the values it releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import Malformed, Refused
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Correlated, Curated, Perturbed
from comity.privacy.permit import entrusted
from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over `parties` contributions, in the units of the value; `names` says whose, where sites answered. `given`
    is what the step gave beside its contribution, by party."""

    value: NDArray[np.float64]
    parties: int
    names: tuple[str, ...] | None = None
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def perturbed(
    release: Release,
    index: int,
    value: NDArray[np.float64],
    who: Consortium,
    source: NoiseSource | None,
    once: Callable[[str, Callable[[], Any]], Any],
) -> NDArray[np.float64]:
    """Put the value on the release's grid, add the noise of its number `index`, and return it in its own units.

    Value and noise are one record of the journal: a run that is resumed finds both or neither. With them goes what the
    noise of later rounds must know of this one.
    """
    if not isinstance(release.protection, Perturbed) or source is None:
        raise Refused(f"{release.name} is not declared as noised by a trusted coordinator", code="undeclared")
    _require_times(release, index)
    noise, scale, drawn_from = release.protection.noise, release.scale(who), source
    units = np.rint(value / scale.grid).astype("<i8")
    if units.shape != release.shape:
        raise Malformed(f"{release.name}: declared {release.shape}, found {units.shape}", code="form")

    def record(place: int) -> str:
        return f"noise:{release.name}/{place}"

    correlated = noise if isinstance(noise, Correlated) else None
    if correlated is not None and not np.array_equal(units * scale.grid, value):
        # Rounding the sum anew would move it by another unit in every later round, which one unit of noise per round
        # does not cover: a sum of rounded summands moves in the rounds of its summands alone.
        raise Malformed(
            f"{release.name}: a running sum is put on its grid of {scale.grid:g} summand by summand; round each first",
            code="form",
            key=release.name,
        )
    before = once(record(index - 1), _undrawn)["state"] if correlated is not None and index else None

    def draw() -> dict[str, Any]:
        permit, state = entrusted(release.name, index), None
        if correlated is None:
            drawn = noise.draw(drawn_from, scale, release.shape, permit=permit)
        else:
            drawn, state = correlated.draw_next(drawn_from, scale, release.shape, permit=permit, state=before)
        return {"units": units + drawn, "state": state}

    return np.asarray(once(record(index), draw)["units"] * scale.grid, np.float64)


def curated(
    release: Release,
    index: int,
    values: Any,
    who: Consortium,
    source: NoiseSource | None,
    once: Callable[[str, Callable[[], Any]], Any],
) -> Any:
    """What the release's mechanism makes of a trusted coordinator's values when it is run for the `index`-th time:
    drawn once, and journalled."""
    if not isinstance(release.protection, Curated) or source is None:
        raise Refused(f"{release.name} is not declared as computed by a trusted coordinator", code="undeclared")
    _require_times(release, index)
    mechanism, drawn_from = release.protection.mechanism, source
    mechanism.check(values)
    permit = entrusted(release.name, index)

    found = once(f"noise:{release.name}/{index}", lambda: mechanism.run(drawn_from, values, permit=permit))
    if not release.form.fits(found, {}, who):
        raise Malformed(f"{release.name} is not of its declared form {release.form}", code="form", key=release.name)
    return found


def _require_times(release: Release, index: int) -> None:
    if index >= release.times:
        raise Refused(
            f"{release.name} is declared {release.times} times and asked for once more; declare how often it is made",
            code="too-often",
            key=release.name,
        )


def _undrawn() -> Any:
    raise Refused("the noise of an earlier round was never drawn", code="undeclared")


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
