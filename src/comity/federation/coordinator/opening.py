"""How a contributed release is opened: by the secure sum, or by adding what each site sent.

`Cohort` of the local runtime opens sums without sites; `released` has what a trusted coordinator makes of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from comity.errors import Refused
from comity.federation.agreement import Agreement
from comity.federation.coordinator.released import Total
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Computed, Summed
from comity.federation.declare.release import Release
from comity.federation.step import StepSpec
from comity.federation.sum.coordinator import Sum, Summing, open_sum


def summed_release(declaration: Declaration, spec: StepSpec) -> Release:
    """The release that a step contributes to, where there is a sum of it."""
    if spec.sends is None:
        raise Refused(f"{spec.name} contributes nothing", code="undeclared")
    release = declaration[spec.sends]
    if isinstance(release.protection, Computed):
        raise Refused(f"{release.name} is computed at each site, there is no sum: ask for it", code="no-step")
    return release


def open_release(
    summing: Summing, agreed: Agreement, release: Release, index: int, got: Mapping[str, Mapping[str, Any]]
) -> Total:
    """The total of what a step contributed, once the parties have answered with `got`, and what they gave beside it."""
    if isinstance(release.protection, Summed):
        found = open_sum(summing, agreed.circle(f"{release.name}/{index}"), release, index)
    else:
        units = np.zeros(release.shape, "<i8")
        for values in got.values():
            units += values[release.name]
        found = Sum(units, tuple(got))
    value = np.asarray(found.units * release.spacing(agreed.consortium), np.float64)
    given = {party: {k: v for k, v in of.items() if k != release.name} for party, of in got.items()}
    return Total(value, len(found.over), found.over, given)
