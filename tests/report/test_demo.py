from __future__ import annotations

import json
from typing import Any

import pytest

from comity.demo import averaging, run, run_demo, softlabel, softlabel_consortia, summary, synthetic, vertical
from comity.demo.run import demonstrations
from comity.demo.softlabel import seeded_error
from comity.methods import PROTOCOLS
from comity.report.result import load_result
from tests.report.test_page import Page

EPSILONS = (0.3, 10.0)
METHODS = {
    ("averaging", "hospitals"): ("gradient", "pure"),
    ("softlabel", "clinics"): ("default", "avg", "soft", "vote"),
    ("softlabel", "breast cancer"): ("default", "avg", "soft", "vote"),
    ("summary", "pictures"): ("one-shot",),
    ("synthetic", "hospitals"): ("delta", "pure"),
    ("vertical", "patients"): ("Gaussian", "pure"),
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("demo")
    words: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (averaging, run, softlabel, summary, synthetic, vertical):
            patch.setattr(module, "EPSILONS", EPSILONS)
        patch.setattr(softlabel_consortia, "CLINICS", 60)
        patch.setattr(softlabel_consortia, "TESTED", 400)
        patch.setattr(averaging, "SIZES", {"ashford": 300, "birkdale": 300, "calder": 200})
        patch.setattr(averaging, "TESTED", 400)
        patch.setattr(summary, "OWNERS", {"ashford": (300, 500), "birkdale": (500, 200), "calder": (400, 100)})
        patch.setattr(summary, "TESTED", 300)
        patch.setattr(synthetic, "SIZES", {"ashford": 400, "birkdale": 400, "calder": 300})
        patch.setattr(synthetic, "TESTED", 400)
        patch.setattr(vertical, "PATIENTS", 2000)
        patch.setattr(vertical, "SAVED", 300)
        patch.setattr(vertical, "TESTED", 400)
        found = run_demo(out, words.append, repeats=2)
    return out, words, found


def test_every_method_there_is_has_a_table_a_page_and_a_run(demo: Any) -> None:
    out, words, found = demo
    assert list(found["tables"]) == list(found["pages"]) == list(found["runs"]) == list(PROTOCOLS)
    for name in PROTOCOLS:
        assert callable(demonstrations()[name])
        assert (out / f"{name}.html").is_file() and (out / "runs" / name / "report.html").is_file()
        assert (out / f"{name}.svg").read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')
        assert any(word.startswith(f"{name}: ") for word in words)
    json.dumps(found)


def test_the_tables_have_every_cell_with_its_baselines(demo: Any) -> None:
    rows = [row for table in demo[2]["tables"].values() for row in table]
    assert [(row["protocol"], row["dataset"], row["method"], row["epsilon"]) for row in rows] == [
        (*case, method, epsilon) for case, methods in METHODS.items() for method in methods for epsilon in EPSILONS
    ]
    assert {row["repeats"] for row in rows} == {2}
    assert all(row["pooled"] < row["own_data"] < row["constant"] for row in rows)


def test_more_epsilon_helps_where_noise_is_what_limits(demo: Any) -> None:
    tables = demo[2]["tables"]
    rows = {(r["protocol"], r["dataset"], r["method"], r["epsilon"]): r for table in tables.values() for r in table}
    for case in [
        ("softlabel", "clinics", "avg"),
        ("softlabel", "breast cancer", "avg"),
        ("averaging", "hospitals", "pure"),
        ("synthetic", "hospitals", "pure"),
        ("vertical", "patients", "pure"),
    ]:
        assert rows[*case, 10.0]["error"] < rows[*case, 0.3]["error"]
    for dataset in ("clinics", "breast cancer"):
        best = rows["softlabel", dataset, "avg", 10.0]
        assert best["error"] < best["own_data"]
        assert best["error"] == pytest.approx(best["without_noise"], abs=0.05)


def test_repeats_that_share_their_sums_are_whole_runs() -> None:
    one = softlabel_consortia.tumour_consortium()
    for method in ("avg", "soft"):
        sums: dict[Any, Any]
        protocol, sums = one.protocol(method), {}
        shared = [seeded_error(one, protocol, 1.0, seed, sums) for seed in range(6)]
        assert shared == [seeded_error(one, protocol, 1.0, seed, {}) for seed in range(6)]
        assert len(set(shared)) > 1


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_saved_run_has_no_seed_and_left_some_budget(demo: Any, name: Any) -> None:
    out, _, found = demo
    result = load_result(found["runs"][name])
    assert result.seed is None and result.guarantee.private == (name != "summary")
    # Chosen records are real ones, and the page says so.
    page = (out / "runs" / name / "report.html").read_text()
    assert ("Exact values leave their owners" in page) == (name == "summary")
    assert all(float(account.left.removeprefix("eps ")) > 1.5 for account in result.accounts)
    assert "not a private result" not in (out / "runs" / name / "report.html").read_text()


@pytest.mark.parametrize("name", ["report", *PROTOCOLS])
def test_a_page_links_to_pages_beside_it_alone(demo: Any, name: Any) -> None:
    out, _, found = demo
    page = Page((out / f"{name}.html").read_text())
    outside = [address for address in page.addresses if not address.startswith(("#", "data:"))]
    assert all((out / address).is_file() for address in outside)
    assert page.wrong == [] and page.open == [] and page.loose == []
    assert "not private results" in page.text
    shown = PROTOCOLS if name == "report" else [name]
    for method in shown:
        assert f"runs/{method}/report.html" in outside
        assert all(f"{row['error']:.3f}" in page.text for row in found["tables"][method])
    if name == "report":
        assert {f"{method}.html" for method in PROTOCOLS} <= set(outside)
    else:
        assert "mean over 2 draws" in page.text and "report.html" in outside
