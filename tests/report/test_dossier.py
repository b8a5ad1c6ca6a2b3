"""The dossier: filled from plan, ledger and report, blank where only the organisation knows, evidence and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comity.errors import DataError
from comity.methods import entry_of, load_object
from comity.report.compare import compare_results, render_comparison
from comity.report.dossier.document import quote
from comity.report.dossier.documents import make_documents
from comity.report.dossier.folder import write_dossier
from comity.report.dossier.registry import FIELDS, check_record, make_record, write_yaml
from comity.report.dossier.subject import Subject
from comity.report.page import render_result
from comity.report.result import load_result
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.html import check_page
from tests.support.pages import replace_value
from tests.support.study_folder import STUDY, write_study

NEVER = ("anonymous", "anonymised", "anonymized", "gdpr-compliant", "state of the art")
ABOUT = (
    'purpose = "find <b>patients</b> # who return"\ncontact = "the office"\n'
    'legal_basis = "consent"\nretention = "two years"\n'
)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Study]:
    found = {}
    for name in ("averaging", "vertical", "synthetic"):
        folder = tmp_path_factory.mktemp(name)
        load_object(entry_of(name).starter)(folder)
        found[name] = Study.load(folder / "study.toml")
    small = write_study(tmp_path_factory.mktemp("small"), text=STUDY.replace('"small"\n', f'"small"\n{ABOUT}'))
    return found | {"small": Study.load(small)}


@pytest.fixture(scope="module")
def run(studies: dict[str, Study]) -> Subject:
    return Subject.of_result(run_study(studies["small"], seed=2))


def words(subject: Subject) -> str:
    return "\n".join(one.as_markdown() for one in make_documents(subject))


@pytest.mark.parametrize("name", ["averaging", "vertical", "synthetic", "small"])
def test_every_document_states_facts_of_the_plan_and_leaves_the_law_blank(studies: dict[str, Study], name: str) -> None:
    study = studies[name]
    subject = Subject.of_study(study)
    dpia, nist, model, data = make_documents(subject)
    assert [one.heading for one in dpia.parts][1:7] == [
        "Description of the processing",
        "Data",
        "Recipients",
        "Retention",
        "Necessity and proportionality",
        "Risks",
    ]
    for heading in ("Unit of privacy", "Privacy parameters", "Algorithm", "Trust model", "Side channels"):
        assert heading in {one.heading for one in nist.parts}
    assert {"Composition", "Data collection"} <= {one.heading for one in nist.parts}
    text = words(subject)
    for one in study.plan().reads:
        assert all(quote(column) in data.as_markdown() for column in one.columns)
    assert quote(study.plan().adversary) in text and study.hash in text
    blanks = {blank for document in (dpia, nist, model, data) for blank in document.blanks}
    assert (
        "Opinion: Residual risk" in blanks
        and "Necessity and proportionality: Why the purpose needs these columns" in blanks
    )
    assert not [word for word in NEVER if word in text.lower()]


def test_evidence_has_the_number_and_its_limits(studies: dict[str, Study]) -> None:
    text = words(Subject.of_study(studies["averaging"]))
    for topic in ("singling out", "linkage", "inference"):
        assert f"Evidence about {topic}" in text
    assert "right at most 73.2 % of the time" in text and "is not bounded" in text
    vertical = words(Subject.of_study(studies["vertical"]))
    assert "Outside of this bound, exactly or in clear: listed: how many people" in vertical
    assert "Records stay with their owners." in text and "Records stay with their owners." not in vertical


def test_proportionality_says_what_the_result_may_be_worth(studies: dict[str, Study], run: Subject) -> None:
    text = words(Subject.of_study(studies["averaging"]))
    assert "What the result may be worth: the noise costs little" in text
    assert "What the result may be worth" not in words(run), "a run has been measured"


def test_a_broken_promise_bounds_nothing(run: Subject) -> None:
    assert run.result is not None
    guarantee = replace(run.result.guarantee, claim="not private as claimed: for this test")
    broken = replace(run, result=replace(run.result, guarantee=guarantee))
    text = words(broken)
    assert "No number bounds this" in text and "does NOT keep the promise" in text
    assert make_record(broken)["deployment"]["dp_variant"]["variant_name"] == "Custom"


def test_a_run_is_told_from_a_plan_and_a_seed_from_a_release(run: Subject, studies: dict[str, Study]) -> None:
    assert any("NOT a private release" in one for one in run.caveats)
    assert any("Drafted from a plan" in one for one in Subject.of_study(studies["small"]).caveats)
    assert run.result is not None
    text = words(run)
    account = run.result.accounts[0]
    assert f"Ledger of {account.party} after the run" in text and account.left in text
    assert f"measured {run.result.error:.3f}" in text
    assert make_record(run)["deployment"]["basic"]["publication_date"] == ""


def test_author_texts_are_quoted_and_never_markup(run: Subject, tmp_path: Path) -> None:
    text = words(run)
    assert r"find \<b\>patients\</b\> \# who return" in text and "<b>patients" not in text
    write_dossier(run, tmp_path)
    page = check_page((tmp_path / "dossier.html").read_text("utf-8"))
    assert "find <b>patients</b>" in page.text
    assert quote("a\nb\u202e`|") == "a\\\\u000ab\\\\u202e\\`\\|"


def test_the_registry_record_has_published_fields_only(studies: dict[str, Study], run: Subject) -> None:
    yaml: Any = pytest.importorskip(
        "yaml", reason="no extra has PyYAML, which reads the record back: pip install pyyaml"
    )
    for subject in (*map(Subject.of_study, studies.values()), run):
        record = make_record(subject)
        left = check_record(record)
        assert left and all(one.endswith(": to fill in") for one in left), left
        assert record["deployment"]["deployment_model"]["model_name"] == "Federated"
        assert yaml.safe_load(write_yaml(record)) == record
        assert set(record["deployment"]) == set(FIELDS["deployment"])
    parameters = make_record(Subject.of_study(studies["averaging"]))["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("deployment", "extra"), "x", "deployment.extra: unknown to the registry"),
        (("deployment", "deployment_model", "model_name"), "Ours", "'Ours' is none of Local"),
        (("deployment", "privacy_loss", "privacy_parameters", "epsilon"), "1", "number is expected"),
        (("deployment", "administrative", "tier"), True, "integer is expected"),
        (("deployment", "basic"), "x", "a table is expected"),
        (("deployment", "basic", "name"), "", "deployment.basic.name: to fill in"),
        (("deployment", "basic", "data_curators"), [], "a list is expected"),
    ],
)
def test_a_wrong_record_is_noticed(studies: dict[str, Study], path: tuple[str, ...], value: Any, said: str) -> None:
    record = json.loads(json.dumps(make_record(Subject.of_study(studies["small"]))))
    at = record
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert any(said in one for one in check_record(record)), check_record(record)


def test_a_dossier_is_the_same_from_the_saved_run(run: Subject, tmp_path: Path) -> None:
    assert run.result is not None
    loaded = Subject.of_result(load_result(run.result.save(tmp_path / "run")))
    assert words(loaded) == words(run) and make_record(loaded) == make_record(run)


HOSTILE: tuple[Any, ...] = ("x\u202e<b>", "", -1, 10**400, 1e308, "1e400000", "nan", None, [])
PLACES: list[Any] = [
    ("error",),
    ("tested",),
    ("model_noise",),
    ("plan", "unit"),
    ("guarantee", "unit"),
    ("baselines", 0, "error"),
]
PLACES += [("plan", "payers", 0, "epsilon"), ("plan", "loss_per_party"), ("plan", "makes"), ("plan", "reads")]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_foreign_result_is_refused_or_shown_and_never_a_defect(run: Subject, tmp_path: Path, place: Any) -> None:
    assert run.result is not None
    file = run.result.save(tmp_path / "run") / "result.json"
    page = json.loads(file.read_text("utf-8"))
    for value in HOSTILE:
        file.write_text(json.dumps(replace_value(page, place, value)), encoding="utf-8")
        try:
            loaded = load_result(file.parent)
        except DataError:
            continue
        subject = Subject.of_result(loaded)
        assert words(subject) and write_yaml(make_record(subject)) and render_result(loaded)
        assert render_comparison(compare_results({"ours": run.result, "theirs": loaded}))


def test_the_command_takes_a_study_a_run_or_the_latest(studies: dict[str, Study], tmp_path: Path, capsys: Any) -> None:
    from comity.cli import main

    assert main(["dossier", str(studies["small"].folder / "study.toml"), "--to", str(tmp_path / "d"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert all((tmp_path / "d" / name).is_file() for name in written["files"]) and written["to_fill_in"] > 20
    content = json.loads((tmp_path / "d" / "dossier.json").read_text("utf-8"))
    assert content["registry"]["deployment"]["basic"]["intended_use"] == studies["small"].about.purpose
    assert main(["dossier", "--out", str(tmp_path / "none")]) == 3
