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

from comity.privacy import zcdp_rho

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
    repair_mst()
    return _released("MST", {}, codes, sizes, epsilon, delta)


def repair_mst() -> None:
    """Two faults of OpenDP 0.16 would make a straw man of MST. What selecting costs is split into shares whose sum,
    rounded up, is more than the whole by the last bits, which it then refuses: shares are smaller by 1e-12 here. And
    pairs are scored by the largest column sum of their table (the matrix norm of that number), which passes over the
    pairs that are farthest from the model: here by the L1 distance, as published, with the same sensitivity."""
    module: Any = import_module("opendp.extras.mbi._mst")
    module.prior = lambda share: share * (1 - 1e-12)

    def scores(domain: Any, metric: Any, queries: Sequence[tuple[str, str]], model: Any) -> Any:
        def distance(query: tuple[str, str], exact: Any) -> float:
            return float(np.abs(np.asarray(exact) - np.asarray(model.project(query).values)).sum())

        return module._make_transformation(
            input_domain=domain,
            input_metric=metric,
            output_domain=module.vector_domain(module.atom_domain(T="f64", nan=False)),
            output_metric=module.linf_distance(T="f64", monotonic=False),
            function=lambda tables: [distance(query, tables[query]) for query in queries],
            stability_map=lambda moved: max(moved.values()),
        )

    module._make_mst_scores = scores


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
    table = context.query(rho=rho).contingency_table(keys=keys, algorithm=chosen).release()
    # The other way of drawing, "round", makes columns dependent that are independent in the model.
    made = table.synthesize(method="sample")
    # OpenDP has a cell for values that are in none; noise may put a record there.
    columns = [made[name].fill_null(0).to_numpy() for name in names]
    return np.column_stack(columns).astype(np.int64)
