"""What the coordinator makes of contributions: totals, a trusted coordinator's noise, and the released values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import Malformed, Refused
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Computed, Correlated, Curated, Perturbed, Summed
from comity.federation.part import StepSpec
from comity.federation.sum.coordinator import Sum, open_sum
from comity.privacy.permit import entrusted_permit
from comity.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from comity.federation.coordinator.parties import Parties


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over `parties` contributions, in the units of the value. `names` are the contributors, where sites
    answered; `given` is what the step gave beside its contribution, by party."""

    value: NDArray[np.float64]
    parties: int
    names: tuple[str, ...] | None = None
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def summed_release(declaration: Declaration, spec: StepSpec) -> Release:
    """The release that a step contributes to; refuses a step without a sum."""
    if spec.sends is None:
        raise Refused(f"{spec.name} contributes nothing", code="undeclared")
    release = declaration[spec.sends]
    if isinstance(release.protection, Computed):
        raise Refused(f"{release.name} is computed at each site, and there is no sum of it: ask for it", code="no-step")
    return release


def open_release(
    parties: Parties, agreement: Agreement, release: Release, index: int, got: Mapping[str, Mapping[str, Any]]
) -> Total:
    """Open a release after the parties have replied with `got`: by the secure sum, or by adding what each site sent."""
    if isinstance(release.protection, Summed):
        masked = {party: values[release.name] for party, values in got.items()}
        found = open_sum(parties, agreement.sum_group(f"{release.name}/{index}"), release, index, masked)
    else:
        units = np.zeros(release.shape, "<i8")
        for values in got.values():
            units += values[release.name]
        found = Sum(units, tuple(got))
    value = np.asarray(found.units * release.spacing(agreement.consortium), np.float64)
    given = {party: {k: v for k, v in of.items() if k != release.name} for party, of in got.items()}
    return Total(value, len(found.over), found.over, given)


def perturb(
    release: Release,
    index: int,
    value: NDArray[np.float64],
    consortium: Consortium,
    source: NoiseSource | None,
    once: Callable[[str, Callable[[], Any]], Any],
) -> NDArray[np.float64]:
    """Put a value on the release's grid and add the noise of round `index`; the result is in the value's units.

    Value and noise are one record of the journal, so a resumed run finds both or neither. The record also holds what
    the noise of later rounds depends on.
    """
    if not isinstance(release.protection, Perturbed) or source is None:
        raise Refused(f"{release.name} is not declared as noised by a trusted coordinator", code="undeclared")
    _require_times(release, index)
    noise, scale, drawn_from = release.protection.noise, release.scale(consortium), source
    units = np.rint(value / scale.grid).astype("<i8")
    if units.shape != release.shape:
        raise Malformed(f"{release.name}: declared {release.shape}, found {units.shape}", code="form")

    def record(round_index: int) -> str:
        return f"noise:{release.name}/{round_index}"

    correlated = noise if isinstance(noise, Correlated) else None
    if correlated is not None and not np.array_equal(units * scale.grid, value):
        # Rounding the running sum again would move it by one more unit in every later round, which the declared
        # sensitivity does not cover. A sum of rounded summands moves only in the rounds of its summands.
        raise Malformed(
            f"{release.name}: a running sum needs each summand on its grid of {scale.grid:g}; round each first",
            code="form",
            key=release.name,
        )
    before = once(record(index - 1), _undrawn)["state"] if correlated is not None and index else None

    def draw() -> dict[str, Any]:
        permit, state = entrusted_permit(release.name, index), None
        if correlated is None:
            drawn = noise.draw(drawn_from, scale, release.shape, permit=permit)
        else:
            drawn, state = correlated.draw_next(drawn_from, scale, release.shape, permit=permit, state=before)
        return {"units": units + drawn, "state": state}

    return np.asarray(once(record(index), draw)["units"] * scale.grid, np.float64)


def curate(
    release: Release,
    index: int,
    values: Any,
    consortium: Consortium,
    source: NoiseSource | None,
    once: Callable[[str, Callable[[], Any]], Any],
) -> Any:
    """Run the release's mechanism on a trusted coordinator's values, in round `index`: once, and journalled."""
    if not isinstance(release.protection, Curated) or source is None:
        raise Refused(f"{release.name} is not declared as computed by a trusted coordinator", code="undeclared")
    _require_times(release, index)
    mechanism, drawn_from = release.protection.mechanism, source
    mechanism.check(values)
    permit = entrusted_permit(release.name, index)

    found = once(f"noise:{release.name}/{index}", lambda: mechanism.run(drawn_from, values, permit=permit))
    if not release.form.fits(found, {}, consortium):
        raise Malformed(f"{release.name} is not of its declared form {release.form}", code="form", key=release.name)
    return found


def _require_times(release: Release, index: int) -> None:
    if index >= release.times:
        raise Refused(
            f"{release.name} is declared {release.times} times and made once more; declare how often it is made",
            code="too-often",
            key=release.name,
        )


def _undrawn() -> Any:
    raise Refused("the noise of an earlier round was never drawn", code="undeclared")


def check_released(
    released: dict[str, Any], declaration: Declaration, consortium: Consortium, dims: Mapping[str, int]
) -> dict[str, Any]:
    """Check what a method releases at its end against its declaration."""
    for name, value in released.items():
        release = declaration[name]
        if release.source != COORDINATOR:
            raise Malformed(f"{name} is not declared as released by the coordinator", code="undeclared", key=name)
        if not release.form.fits(value, dims, consortium):
            raise Malformed(f"{name} is not of its declared form {release.form}", code="form", key=name)
    return released
