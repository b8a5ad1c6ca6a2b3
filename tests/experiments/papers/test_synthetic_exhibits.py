"""Exhibits of Fioretto and Van Hentenryck (2019) on generated data: every cell with its source, verdicts both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.data import Date, Schema
from comity.errors import ComityError
from comity.methods.synthetic.published.baselines import PublishedErrors
from experiments.papers.publications import PUBLICATIONS
from experiments.papers.synthetic import datasets as synthetic_datasets
from experiments.papers.synthetic import figures_exhibit, table2_exhibit
from experiments.papers.synthetic.agents import Agents, Size
from experiments.papers.synthetic.datasets import Source
from experiments.papers.synthetic.exhibits import EXHIBITS, table1_exhibit
from experiments.papers.synthetic.fidelity import by_depth
from experiments.papers.synthetic.figures_exhibit import (
    by_default,
    collect,
    figure3_exhibits,
    figure4_exhibit,
    judge_factor,
    least_squares_shares,
)
from experiments.papers.synthetic.printed import COLUMNS, EPSILONS, REDUCTIONS, TABLE_1, TABLE_2, mean_reduction
from experiments.papers.synthetic.sharers import KINDS, by_sharers, released
from experiments.papers.synthetic.table2_exhibit import (
    Cell,
    Effort,
    exhibit_of,
    measure,
    text_exhibit,
    together,
    what_else_was_tried,
)
from tests.experiments.papers.test_synthetic_figures import SCHEMA, stand_in
from tests.synthetic.consortia import make_frame, make_schema


def test_the_publication_finds_its_exhibits_and_they_need_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = (one for one in PUBLICATIONS if one.method == "synthetic")
    assert found.computations() == EXHIBITS
    monkeypatch.delenv("COMITY_DATA", raising=False)
    for compute in EXHIBITS:
        with pytest.raises(ComityError, match="COMITY_DATA is not set"):
            compute(quick=True, out=tmp_path)


# Table 2.


def test_the_printed_table_has_24_rows_of_four_columns() -> None:
    assert len(TABLE_2) == 24 == sum(len(entry.learners) for entry in TABLE_1.values()) * len(EPSILONS)
    assert all(len(row) == len(COLUMNS) == 4 for row in TABLE_2.values())
    assert sum(sum(row) for row in TABLE_2.values()) == pytest.approx(28.99, abs=1e-9)
    # NP-Agt does not depend on epsilon.
    for dataset, entry in TABLE_1.items():
        for kind in entry.learners:
            assert len({TABLE_2[dataset, kind, epsilon][0] for epsilon in EPSILONS}) == 1


def test_the_reductions_of_the_text_are_those_of_the_table_but_for_svm() -> None:
    found = {kind: round(mean_reduction(kind), 3) for kind in REDUCTIONS}
    assert found == {"logistic": 0.053, "svm": 0.074, "linear": 0.113}
    assert REDUCTIONS == {"logistic": 0.053, "svm": 0.081, "linear": 0.113}


def made_cell(pfds: float, others: float) -> Cell:
    one = PublishedErrors(
        pfds=pfds,
        own_labels=others,
        shared=0.3,
        private=others,
        own=others,
        constant=0.3,
        pooled=0.1,
        rows=9,
        seconds=0.0,
    )
    return Cell((one, one), (0.15, 0.17))


def made_cells(pfds: tuple[float, ...], others: float) -> Any:
    return {("logistic", epsilon): made_cell(error, others) for epsilon, error in zip(EPSILONS, pfds)}


def test_verdicts_of_table_2_follow_the_figures() -> None:
    better = exhibit_of("Census", made_cells((0.1, 0.15, 0.2), 0.28), quick=True)
    assert [one.verdict for one in better.trends] == ["agrees"] * 4
    worse = exhibit_of("Census", made_cells((0.4, 0.37, 0.33), 0.28), quick=True)
    assert [one.verdict for one in worse.trends] == ["reversed"] * 4
    mixed = exhibit_of("Census", made_cells((0.4, 0.1, 0.33), 0.28), quick=True)
    assert [one.verdict for one in mixed.trends] == ["differs"] * 4
    assert together(["agrees", "reversed"]) == "differs"


def test_verdicts_of_the_text_follow_the_figures() -> None:
    for pfds, verdict in ((0.1, "agrees"), (0.4, "reversed"), (0.28, "differs")):
        found = text_exhibit({"Census": made_cells((pfds,) * 3, 0.28)}, Effort(1, 1, 1))
        assert [one.verdict for one in found.trends] == [verdict]
    # Against a constant of .3, Census: none of the paper's cells is worse but PFDS(s) at two epsilons.
    shares = {line.case.partition(":")[0]: line.paper for line in found.lines if "share of the paper" in line.case}
    assert shares == {"NP-Agt": 0.0, "DP-Pred": 0.0, "PFDS(s)": pytest.approx(2 / 3), "PFDS": 0.0}


def made_source(monkeypatch: pytest.MonkeyPatch) -> Source:
    plain = Schema(tuple(c for c in make_schema().columns if not isinstance(c, Date)), make_schema().target)
    monkeypatch.setitem(synthetic_datasets._READ, "Diabetes", lambda: make_frame(400))
    return Source("Diabetes", plain, (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), owners=3)


def test_every_cell_of_a_dataset_is_measured_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    source, effort = made_source(monkeypatch), Effort(1, 2, 1)
    monkeypatch.setattr(table2_exhibit, "EPSILONS", EPSILONS[:2])
    cells = measure(source, effort, ("logistic", "svm"))
    tried = what_else_was_tried(source, Effort(1, 1, 1))
    monkeypatch.setattr(table2_exhibit, "EPSILONS", EPSILONS)
    cells |= {(kind, 0.1): cells[kind, 0.5] for kind in ("logistic", "svm")}
    found = exhibit_of("Diabetes", cells, quick=True, more=tried)
    table = [line for line in found.lines if "tried" not in line.case]
    assert len(table) == 24 and len(tried) == 4
    for line in table:
        assert line.paper is not None and line.source == "Table 2" and line.why
        assert line.published is not None and line.published.repeats == 2
        assert line.constant is not None and line.non_private is not None
        assert (line.default is not None) is line.case.endswith(" PFDS")
    folds = list(table2_exhibit.folds_of(source, Effort(1, 10, 1)))
    shares = [np.mean(np.asarray(fold.test.labels)) for fold in folds]
    # Stratified: folds differ by less than a record in the share of a class.
    assert max(shares) - min(shares) <= 1 / 39 and sum(len(fold.test) for fold in folds) == 400


# Table 1.


def test_table_1_says_where_a_dataset_is_another() -> None:
    found = table1_exhibit({"Census": {"entries": 48842, "numerical": 6, "categorical": 8, "agents": 100}})
    assert [one.verdict for one in found.trends] == ["agrees"]
    assert [line.paper for line in found.lines] == [48842, 8, 6, 100]
    other = table1_exhibit({"Credit": {"entries": 30000, "numerical": 14, "categorical": 9, "agents": 100}})
    assert [one.verdict for one in other.trends] == ["differs"] and "Bank Marketing" in other.trends[0].why


# Figures 3 and 4.

SIZE = Size(6, 2, (4, 6), (2, 4), 3)


@pytest.fixture(scope="module")
def agents() -> Agents:
    return Agents.of(stand_in(900), SCHEMA, 6)


def test_figure_3_has_a_line_for_every_depth_and_draws_three_pictures(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = collect(list(by_depth(agents, SIZE)))
    values |= collect([("share of least squares", one) for one in least_squares_shares(agents, SIZE)])
    values |= collect(list(by_default(agents, stand_in(900), SCHEMA, SIZE)))
    found = figure3_exhibits(values, SIZE, tmp_path, quick=True)
    assert [one.name for one in found] == ["Figure 3a", "Figure 3b", "Figure 3c"]
    for one in found:
        assert all(line.source and line.why for line in one.lines) and one.trends
        ((path, caption),) = one.pictures
        assert path.suffix == ".svg" and path.is_file() and "PFDS from" in caption
        assert sum(line.default is not None for line in one.lines) == 1
    assert len(found[0].lines) == 3 * 2 + 2 + 1
    assert found[0].trends[0].verdict == "agrees"
    # Verdicts are those of the figures: with sizes the other way round they are reversed.
    monkeypatch.setattr(figures_exhibit, "_draw", lambda *given: (tmp_path, ""))
    turned = {**values, **{f"sizes, PFDS h={depth}": [1e6] for depth in SIZE.depths}}
    again = figure3_exhibits(turned, SIZE, tmp_path, quick=True)
    assert [one.verdict for one in again[0].trends[:2]] == ["reversed", "reversed"]
    faster = {**values, **{f"seconds, PFDS h={depth}": [1e-9] for depth in SIZE.depths}}
    assert figure3_exhibits(faster, SIZE, tmp_path, quick=True)[2].trends[0].verdict == "agrees"
    assert [judge_factor(one, 10.0) for one in (12.0, 3.0, 0.5)] == ["agrees", "differs", "reversed"]


def test_figure_4_has_a_line_for_every_number_of_sharers(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(6, 4, (4,), (2, 6), 3)
    values = collect(list(by_sharers(agents, "svm", size, released(agents))))
    values["svm, default"] = [0.2]
    found = figure4_exhibit("svm", values, (0.3, 0.1), size, tmp_path, quick=True)
    assert len(found.lines) == 2 + 3 * 2 + 1 and found.name == "Figure 4, centre"
    assert found.pictures[0][0].is_file()
    monkeypatch.setattr(figures_exhibit, "_draw", lambda *given: (tmp_path, ""))
    falling = {**values}
    for count, error in ((2, 0.4), (6, 0.05)):
        falling[f"svm, PFDS n={count}"] = [error]
    again = {
        one.claim: one.verdict for one in figure4_exhibit("svm", falling, (0.3, 0.1), size, tmp_path, quick=True).trends
    }
    assert again["The error of PFDS falls with the number of sharers."] == "agrees"
    rising = {**falling, "svm, PFDS n=6": [0.9]}
    again = {
        one.claim: one.verdict for one in figure4_exhibit("svm", rising, (0.3, 0.1), size, tmp_path, quick=True).trends
    }
    assert again["The error of PFDS falls with the number of sharers."] == "reversed"
    assert again["PFDS errs less than DP-Pred."] == "reversed"


def test_the_last_point_of_figure_4_is_that_of_table_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_exhibit, "_draw", lambda *given: (tmp_path, ""))
    size = Size(100, 4, (4,), (50, 100), 3)
    values = {f"linear, {one} n={count}": [0.05] for one in KINDS for count in (50, 100)}
    values |= {"linear, NP-Agt": [0.1], "linear, default": [0.02]}
    found = figure4_exhibit("linear", values, (0.03, 0.01), size, tmp_path, quick=False)
    papers = {line.case: line.paper for line in found.lines}
    assert papers["PFDS, 100 sharers"] == 0.079 and papers["PFDS, 50 sharers"] is None and papers["NP-Agt"] == 0.194
