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
_TURNS = 20


def anchors() -> dict[str, Anchor]:
    """By name; none where they are not installed."""
    if find_spec("mbi") is None or find_spec("polars") is None:
        return {}
    return {"MST": _mst, "AIM": _aim}


def _mst(codes: Integers, sizes: Sequence[int], epsilon: float, delta: float) -> Integers:
    return _released("MST", {}, codes, sizes, epsilon, delta)


def _aim(codes: Integers, sizes: Sequence[int], epsilon: float, delta: float) -> Integers:
    return _released("AIM", {"queries": _DEGREE}, codes, sizes, epsilon, delta)


def _released(
    algorithm: str, options: dict[str, Any], codes: Integers, sizes: Sequence[int], epsilon: float, delta: float
) -> Integers:
    """Records come and go. Cells are public, so that all of the loss goes to counts: the ρ whose (ε, δ) is the given
    one, by the tight conversion.

    Shares of ρ that OpenDP splits off can exceed what is left by the last bit, which it refuses; then a millionth less
    is asked for.
    """
    dp: Any = import_module("opendp.prelude")
    dp.enable_features("contrib")
    for turn in range(_TURNS):
        try:
            return _table(dp, getattr(dp.mbi, algorithm)(**options), codes, sizes, zcdp_rho(epsilon, delta), turn)
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error) or turn == _TURNS - 1:
                raise
    raise AssertionError("unreachable")


def _table(dp: Any, algorithm: Any, codes: Integers, sizes: Sequence[int], rho: float, turn: int) -> Integers:
    frames: Any = import_module("polars")
    names, asked = [f"c{place}" for place in range(len(sizes))], rho * (1 - 1e-6 * turn)
    context = dp.Context.compositor(
        data=frames.LazyFrame({name: codes[:, place] for place, name in enumerate(names)}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=asked),
    )
    keys = {name: list(range(size)) for name, size in zip(names, sizes)}
    made = context.query(rho=asked).contingency_table(keys=keys, algorithm=algorithm).release().synthesize()
    # OpenDP has a cell for values that are in none; noise may put a record there.
    columns = [made[name].fill_null(0).to_numpy() for name in names]
    return np.column_stack(columns).astype(np.int64)
