"""Tables and figures of papers by name, one file each. A module is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["REPRODUCTIONS", "Reproduction"]


@dataclass(frozen=True)
class Reproduction:
    """`run(quick=..., out=...)` gives the rows; `out` is a folder for plots, or None."""

    name: str
    about: str
    run: Callable[..., list[dict[str, Any]]]


def _redo(module: str) -> Callable[..., list[dict[str, Any]]]:
    def run(**options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = import_module(f"comity.reproduce.{module}").run(**options)
        return rows

    return run


REPRODUCTIONS = {
    reproduction.name: reproduction
    for reproduction in (
        Reproduction(
            "averaging-adult",
            "averaged classifiers on Adult, Pathak, Rane and Raj (2010), Figure 2: test error against epsilon",
            _redo("averaging.adult"),
        ),
        Reproduction(
            "generalisation",
            "accuracy of the defaults on public tables, beside scikit-learn and diffprivlib (docs/accuracy.md)",
            _redo("generalisation.comparison"),
        ),
        Reproduction(
            "softlabel-har",
            "activity recognition of Hamm, Cao and Belkin (2016): accuracy against epsilon",
            _redo("softlabel.har"),
        ),
        Reproduction(
            "softlabel-kdd",
            "network intrusions of Hamm, Cao and Belkin (2016): up to 20,000 parties",
            _redo("softlabel.kdd"),
        ),
        Reproduction(
            "softlabel-mnist",
            "handwritten digits by parties of 6 and of 50 records: the default rule beside votes",
            _redo("softlabel.mnist"),
        ),
        Reproduction(
            "summary-mnist",
            "records that match a consumer's, Sarpatwar et al. (2019): MMD² and accuracy, odd and even digits",
            _redo("summary.mnist"),
        ),
        Reproduction(
            "summary-cps",
            "the same on tax units of the CPS, Florida to Connecticut, in place of the Allstate extract",
            _redo("summary.cps"),
        ),
        Reproduction(
            "summary-adult",
            "the same on Adult by education, which the paper does not have",
            _redo("summary.adult"),
        ),
        Reproduction(
            "synthetic-table2",
            "error of what is learned from released data, Fioretto and Van Hentenryck (2019), Table 2",
            _redo("synthetic.table2"),
        ),
        Reproduction(
            "synthetic-fidelity",
            "datasets from private trees, Fioretto and Van Hentenryck (2019), Figures 3 and 4",
            _redo("synthetic.fidelity"),
        ),
        Reproduction(
            "vertical-adult",
            "logistic regression over columns of several parties, Xu, Yuan and Wu (2019), Table 3",
            _redo("vertical.adult"),
        ),
        Reproduction(
            "vertical-cps",
            "linear regression over columns of several parties, as Table 1 on tax units of the CPS",
            _redo("vertical.cps"),
        ),
        Reproduction(
            "vertical-synthetic",
            "linear regression on 80,000 x 800 generated records, Table 2",
            _redo("vertical.synthetic"),
        ),
    )
}
