"""Regression over features held by different owners (after Xu, Yuan and Wu 2019).

    import comity

    method = comity.Vertical(schema, columns={"hospital": ["age", "readmitted"], "lab": ["crp"]})
    print(method.plan(epsilon=1, delta=1e-6))

`fit_alone_and_pooled`, `pool_columns`, `add_noise` and `run_rounds` compute on one machine, with all columns at hand,
what the parties compute together: baselines, and many draws of the noise on one sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.by_columns import ProductMethod as ProductMethod
    from comity.methods.vertical.centralised import add_noise as add_noise
    from comity.methods.vertical.centralised import fit_alone_and_pooled as fit_alone_and_pooled
    from comity.methods.vertical.centralised import measure_error as measure_error
    from comity.methods.vertical.centralised import pool_columns as pool_columns
    from comity.methods.vertical.centralised import run_rounds as run_rounds
    from comity.methods.vertical.design import scale_target as scale_target
    from comity.methods.vertical.method import ColumnRegression as ColumnRegression
    from comity.methods.vertical.method import GradientRegression as GradientRegression
    from comity.methods.vertical.method import Vertical as Vertical
    from comity.methods.vertical.method import VerticalRegression as VerticalRegression
    from comity.methods.vertical.moments import fit_regression as fit_regression

__all__ = [
    "ColumnRegression",
    "GradientRegression",
    "ProductMethod",
    "Vertical",
    "VerticalRegression",
    "add_noise",
    "fit_alone_and_pooled",
    "fit_regression",
    "measure_error",
    "pool_columns",
    "run_rounds",
    "scale_target",
]

_HOMES = {
    "ColumnRegression": "comity.methods.vertical.method",
    "GradientRegression": "comity.methods.vertical.method",
    "ProductMethod": "comity.methods.by_columns",
    "Vertical": "comity.methods.vertical.method",
    "VerticalRegression": "comity.methods.vertical.method",
    "add_noise": "comity.methods.vertical.centralised",
    "measure_error": "comity.methods.vertical.centralised",
    "fit_alone_and_pooled": "comity.methods.vertical.centralised",
    "fit_regression": "comity.methods.vertical.moments",
    "pool_columns": "comity.methods.vertical.centralised",
    "run_rounds": "comity.methods.vertical.centralised",
    "scale_target": "comity.methods.vertical.design",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
