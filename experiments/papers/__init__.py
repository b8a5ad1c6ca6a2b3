"""Tables and figures of the papers, by name. `generalisation`, `forecasts`, `intervals`, `owners`, `people`, `pate` and
`warnings` measure the defaults (`experiments.accuracy`)."""

from __future__ import annotations

from experiments.experiment import Experiment

__all__ = ["PAPERS"]


def _paper(about: str, home: str) -> Experiment:
    return Experiment(about, home, options=("quick", "out"))


PAPERS = {
    "averaging-adult": _paper(
        "averaged classifiers on Adult, Pathak, Rane and Raj (2010), Figure 2: test error against epsilon",
        "experiments.papers.averaging.adult:run",
    ),
    "forecasts": _paper(
        "what `comity plan` forecasts beside what forty studies on public tables then give",
        "experiments.accuracy.forecast:run",
    ),
    "owners": _paper(
        "four hospitals that differ: each one's accuracy alone, with the joint model, and with it adapted",
        "experiments.accuracy.owners:run",
    ),
    "people": _paper(
        "soft labels between 24 people of 60 records each, beside PATE and a constant",
        "experiments.accuracy.people:run",
    ),
    "pate": _paper(
        "soft labels between 24 parties of 20 records each on the tables of the comparison, beside PATE",
        "experiments.accuracy.pate:run",
    ),
    "warnings": _paper(
        "cells of docs/accuracy.md below their constant; fails where one has no warning of its plan",
        "experiments.accuracy.warnings:run",
    ),
    "intervals": _paper(
        "intervals of vertical linear models: width over an oracle's, and how often each coefficient is inside",
        "experiments.accuracy.intervals:run",
    ),
    "generalisation": _paper(
        "accuracy of the defaults on public tables, beside scikit-learn and diffprivlib (docs/accuracy.md)",
        "experiments.accuracy.comparison:run",
    ),
    "softlabel-har": _paper(
        "activity recognition of Hamm, Cao and Belkin (2016): accuracy against epsilon",
        "experiments.papers.softlabel.har:run",
    ),
    "softlabel-kdd": _paper(
        "network intrusions of Hamm, Cao and Belkin (2016): up to 20,000 parties",
        "experiments.papers.softlabel.kdd:run",
    ),
    "softlabel-mnist": _paper(
        "handwritten digits by parties of 6 and of 50 records: the default rule beside votes",
        "experiments.papers.softlabel.mnist:run",
    ),
    "summary-adult": _paper(
        "records that match a consumer's on Adult by education, which the paper does not have",
        "experiments.papers.summary.adult:run",
    ),
    "summary-cps": _paper(
        "records that match a consumer's on tax units of the CPS, Florida to Connecticut, for the Allstate extract",
        "experiments.papers.summary.cps:run",
    ),
    "summary-mnist": _paper(
        "records that match a consumer's, Sarpatwar et al. (2019): MMD² and accuracy, odd and even digits",
        "experiments.papers.summary.mnist:run",
    ),
    "synthetic-fidelity": _paper(
        "datasets from private trees, Fioretto and Van Hentenryck (2019), Figures 3 and 4",
        "experiments.papers.synthetic.fidelity:run",
    ),
    "synthetic-table2": _paper(
        "error of what is learned from released data, Fioretto and Van Hentenryck (2019), Table 2",
        "experiments.papers.synthetic.table2:run",
    ),
    "vertical-adult": _paper(
        "logistic regression over columns of several parties, Xu, Yuan and Wu (2019), Table 3",
        "experiments.papers.vertical.adult:run",
    ),
    "vertical-cps": _paper(
        "linear regression over columns of several parties, as Table 1 on tax units of the CPS",
        "experiments.papers.vertical.cps:run",
    ),
    "vertical-synthetic": _paper(
        "linear regression on 80,000 x 800 generated records, Table 2", "experiments.papers.vertical.synthetic:run"
    ),
}
