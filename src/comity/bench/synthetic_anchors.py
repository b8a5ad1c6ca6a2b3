"""MST and AIM as OpenDP has them, which one curator with all records would run: codes of cells in, codes out.

Their marginals are chosen and measured by OpenDP under zCDP, their models are those of Private-PGM (`mbi`). Needs
`opendp[mbi]`, which `make bench-synthetic` installs in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.privacy.accounting import zcdp_rho

Integers = NDArray[np.int64]
Anchor = Callable[[Integers, Sequence[int], float, float], Integers]

ABSENT = "opendp[mbi]: absent; make bench-synthetic installs it, in an environment of its own"
# The workload of AIM: pairs of columns, which is what is compared.
_DEGREE = 2


def anchors() -> dict[str, Anchor]:
    """By name; none where they are not installed."""
    if find_spec("mbi") is None or find_spec("polars") is None:
        return {}
    return {"MST": _mst, "AIM": _aim}


def _mst(codes: Integers, sizes: Sequence[int], epsilon: float, delta: float) -> Integers:
    # OpenDP splits what selecting costs into equal shares whose sum, rounded up, is more than the whole by the last
    # bits, and then refuses its own query: a share that is smaller by 1e-12 is not.
    selecting: Any = import_module("opendp.extras.mbi._mst")
    selecting.prior = lambda share: share * (1 - 1e-12)
    return _released("MST", {}, codes, sizes, epsilon, delta)


def _aim(codes: Integers, sizes: Sequence[int], epsilon: float, delta: float) -> Integers:
    return _released("AIM", {"queries": _DEGREE}, codes, sizes, epsilon, delta)


def _released(
    algorithm: str, options: dict[str, Any], codes: Integers, sizes: Sequence[int], epsilon: float, delta: float
) -> Integers:
    """Records come and go. Cells are public, so that all of the loss goes to counts: the ρ whose (ε, δ) is the given
    one, by the tight conversion."""
    dp: Any = import_module("opendp.prelude")
    frames: Any = import_module("polars")
    dp.enable_features("contrib")
    names, rho = [f"c{place}" for place in range(len(sizes))], zcdp_rho(epsilon, delta)
    context = dp.Context.compositor(
        data=frames.LazyFrame({name: codes[:, place] for place, name in enumerate(names)}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    keys = {name: list(range(size)) for name, size in zip(names, sizes)}
    chosen = getattr(dp.mbi, algorithm)(**options)
    made = context.query(rho=rho).contingency_table(keys=keys, algorithm=chosen).release().synthesize()
    # OpenDP has a cell for values that are in none; noise may put a record there.
    columns = [made[name].fill_null(0).to_numpy() for name in names]
    return np.column_stack(columns).astype(np.int64)
