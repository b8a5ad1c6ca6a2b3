from __future__ import annotations

import json

import pytest

from comity.demo import consortia, run_demo
from comity.demo.run import seeded_error
from comity.report.result import load_result
from tests.report.test_page import Page


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    words = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consortia, "CLINICS", 60)
        patch.setattr(consortia, "TESTED", 400)
        found = run_demo(out, words.append, repeats=2)
    return out, words, found


def test_the_table_has_every_cell_with_its_baselines(demo):
    _, words, found = demo
    rows = found["table"]
    assert [(row["dataset"], row["method"], row["epsilon"]) for row in rows] == [
        (dataset, method, epsilon)
        for dataset in ("clinics", "breast cancer")
        for method in ("default", "avg", "soft", "vote")
        for epsilon in (0.3, 1.0, 3.0, 10.0)
    ]
    assert list(rows[0]) == [
        "dataset",
        "method",
        "epsilon",
        "error",
        "spread",
        "repeats",
        "constant",
        "own_data",
        "pooled",
        "without_noise",
    ]
    assert {row["repeats"] for row in rows} == {2}
    assert all(row["pooled"] < row["own_data"] < row["constant"] for row in rows)
    json.dumps(found)
    assert "error against epsilon 7/8" in words


def test_more_epsilon_helps_where_noise_is_what_limits(demo):
    rows = {(r["dataset"], r["method"], r["epsilon"]): r for r in demo[2]["table"]}
    for dataset in ("clinics", "breast cancer"):
        assert rows[dataset, "avg", 10.0]["error"] < rows[dataset, "avg", 0.3]["error"]
        best = rows[dataset, "avg", 10.0]
        assert best["error"] < best["own_data"]
        assert best["error"] == pytest.approx(best["without_noise"], abs=0.05)


def test_repeats_that_share_their_sums_are_whole_runs():
    one = consortia.tumour_consortium()
    for method in ("avg", "soft"):
        protocol, sums = one.protocol(method), {}
        shared = [seeded_error(one, protocol, 1.0, seed, sums) for seed in range(6)]
        assert shared == [seeded_error(one, protocol, 1.0, seed, {}) for seed in range(6)]
        assert len(set(shared)) > 1


def test_the_saved_run_has_no_seed_and_left_some_budget(demo):
    out, _, found = demo
    result = load_result(found["run"])
    assert result.seed is None and result.guarantee.private
    assert {account.left for account in result.accounts} == {"eps 3.00"}
    assert "not a private result" not in (out / "run" / "report.html").read_text()


def test_the_page_links_to_the_run_alone(demo):
    out, _, found = demo
    page = Page((out / "report.html").read_text())
    outside = [address for address in page.addresses if not address.startswith(("#", "data:"))]
    assert outside == ["run/report.html"] and (out / outside[0]).is_file()
    assert page.wrong == [] and page.open == []
    assert "not private results" in page.text and "mean over 2 draws" in page.text
    assert f"{found['table'][0]['error']:.3f}" in page.text
    assert (out / "error.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')
