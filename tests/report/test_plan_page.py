"""The first screen of a plan and its page: answers in words that follow from the plan, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comity.methods import entry_of, load_object
from comity.report.overview import describe_leaving, describe_plan, describe_view, largest_epsilon
from comity.report.plan_page import list_risks, render_plan
from comity.study.results.views import list_views
from comity.study.simulation.ledgers import forecast_budgets
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.html import check_page
from tests.support.study_folder import STUDY, write_study

TECHNICAL = ("mu 0.", "second_moment", "whitened", "alignment_key", "rlwe", "gradient x", "class-sums", "ring-LWE")


@pytest.fixture(scope="module")
def starters(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    made: dict[str, Study] = {}

    def starter(name: str) -> Study:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            load_object(entry_of(name).starter)(folder)
            made[name] = Study.load(folder / "study.toml")
        return made[name]

    return starter


def overview_of(study: Study) -> Any:
    return describe_plan(study.plan(), forecast_budgets(study))


def test_the_first_screen_answers_in_words(starters: Any) -> None:
    shown = overview_of(starters("averaging"))
    assert shown.title == f"{starters('averaging').name}: one logistic model from the records of 10 parties (averaging)"
    assert "one record" in shown.protects and "at most 73.2 %" in shown.protects
    assert "(epsilon 1.00, delta 1e-6)" in shown.protects
    assert shown.reads == ("age, sex, arrival, ward and 8 more columns; target readmitted",)
    assert shown.leaves == ("24 encrypted sums with noise, opened only as totals of all parties that send them",)
    assert "no party's own values" in shown.trusts[0] and "up to 1 of 10 parties" in shown.trusts[1]
    assert shown.costs[0].startswith(
        "epsilon 1.00 of the 3.00 in the simulated budget of each party; 2.77 would be left"
    )
    assert "losses add as squares" in shown.costs[0]
    assert not any(word in shown.as_text() for word in TECHNICAL if word != "second_moment")


@pytest.mark.parametrize("protocol", ["averaging", "vertical", "synthetic"])
def test_the_loss_of_each_release_is_an_epsilon(starters: Any, protocol: str) -> None:
    """Readers of a page know epsilon, and not mu. One release alone loses less than the study."""
    study = starters(protocol)
    rows = [row for row in study.plan().rows if row.loss != "-"]
    assert rows and all(row.loss.startswith("mu ") and 0 < float(row.epsilon) <= 1 for row in rows)
    assert len(rows) == 1 or all(float(row.epsilon) < 1 for row in rows)
    page = render_plan(study)
    assert all(f"epsilon {row.epsilon}" in page for row in rows) and ">mu " not in page


def test_columns_of_different_parties_are_listed_by_party(starters: Any) -> None:
    shown = overview_of(starters("vertical"))
    assert shown.reads[0] == "hospital: age, sex, arrival, ward; target readmitted; identifier patient"
    assert shown.reads[1].startswith("surgery: triage")
    assert any(one.startswith("EXACTLY, with no privacy: how many people") for one in shown.leaves)
    assert "exact values" in shown.trusts[0]
    assert shown.results[0] == "to everyone: model"
    assert "intermediate values, computed only from values with noise" in shown.results[1]
    assert shown.results[1].endswith("EXACTLY, which of its own people all parties share")


def test_what_is_handed_over_exactly_is_outside_of_the_promise(starters: Any) -> None:
    shown = overview_of(starters("summary"))
    assert "this promise does not cover the values that leave exactly" in shown.protects
    assert any("EXACTLY" in one for one in shown.leaves) and shown.warnings
    assert "no party's own values" not in " ".join(shown.trusts)


def test_a_forecast_is_what_the_ledgers_of_a_run_show(tmp_path: Path) -> None:
    study = Study.load(write_study(tmp_path), overrides={"simulation.grant": 3.0})
    forecast = forecast_budgets(study)[0]
    account = run_study(study, seed=1).accounts[0]
    assert account.left == f"eps {int(100 * forecast.left) / 100:.2f}" and forecast.squares  # type: ignore[operator]
    short = Study.load(tmp_path / "study.toml", overrides={"simulation.grant": 1.0})
    assert forecast_budgets(short)[0].left is None
    assert "a run would be refused" in overview_of(short).costs[0]


def test_a_trusted_coordinator_and_a_false_claim_are_said(tmp_path: Path) -> None:
    published = Study.load(write_study(tmp_path)).plan()
    shown = describe_plan(published)
    assert "IN CLEAR" in shown.leaves[0] and "trusted with them" in shown.trusts[0]
    false = replace(published, claim="not private as claimed", exposed="every party")
    assert "NOT as the method's authors claim" in describe_plan(false).protects
    assert "73.2" not in describe_plan(false).protects
    assert "NOT protected from every party" in describe_plan(false).trusts


def test_an_epsilon_without_meaning_protects_nobody(tmp_path: Path) -> None:
    loose = Study.load(write_study(tmp_path, text=STUDY.replace("epsilon = 2.0", "epsilon = 900.0"))).plan()
    assert describe_plan(loose).protects.startswith("nobody")


def test_plans_of_earlier_releases_tell_their_epsilon(tmp_path: Path) -> None:
    plan = Study.load(write_study(tmp_path)).plan()
    earlier = replace(plan, payers=(), reads=(), makes="", rows=tuple(replace(row, kind="") for row in plan.rows))
    assert largest_epsilon(earlier) == largest_epsilon(plan) == 2
    assert describe_leaving(earlier.rows) == [f"{row.release}: {row.protection}" for row in plan.rows[:1]]


@pytest.mark.parametrize("name", ["averaging", "vertical", "summary", "softlabel"])
def test_the_page_needs_nobody_to_explain_it(starters: Any, name: str) -> None:
    study = starters(name)
    page = check_page(render_plan(study))
    questions = ("Which columns are read?", "Who would learn what?", "How are people protected?")
    assert all(question in page.text for question in (*questions, "What does it cost", "What could go wrong?"))
    assert not [word for word in TECHNICAL if word in page.text]
    for one in study.plan().reads:
        assert all(column in page.text for column in one.columns)
    assert study.about.purpose in page.text and "Comity checks none of them" in page.text
    assert all(row.release in " ".join(page.folded) for row in study.plan().rows)
    assert study.hash in " ".join(page.folded)
    assert page.tags.count("svg") >= 2
    assert "anonymous" not in page.text.lower()


def test_the_page_says_what_happens_if_a_party_lies(starters: Any) -> None:
    """About its records: the result is wrong. About whom it has: it learns whom the others have."""
    lies = "A party that lies about its own records changes the result."
    foreign = "A party that lists identifiers of people whom it does not have"
    assert [lies in " ".join(list_risks(starters(name).plan())) for name in ("averaging", "vertical")] == [True, True]
    assert [foreign in check_page(render_plan(starters(name))).text for name in ("averaging", "vertical")] == [
        False,
        True,
    ]


def test_exact_values_are_marked_where_they_are_learned(starters: Any) -> None:
    study = starters("vertical")
    views = list_views(study.agreement.accepted, study.consortium)
    learned = {view.participant: describe_view(view, study.plan()) for view in views}
    assert [one.words for one in learned["coordinator"] if one.exact] == [
        "exactly: how many people each party has",
        "exactly: how many people any of the parties share",
    ]
    assert any("no party's own value" in one.words for one in learned["coordinator"])
    assert sum(len(one.names) for one in learned["coordinator"]) == len(views[0].seen)


def test_bounds_that_are_a_draft_are_said_before_anything_else(tmp_path: Path, starters: Any) -> None:
    load_object(entry_of("averaging").starter)(tmp_path)
    schema = tmp_path / "schema.toml"
    schema.write_text(schema.read_text().replace('kind = "numeric"', 'kind = "numeric"\ndraft = true', 1))
    page = render_plan(Study.load(tmp_path / "study.toml"))
    header, _, rest = page.partition("<main>")
    assert 'role="alert"' in header and "are a draft (draft = true)" in header and "draft = true" not in rest
    assert "Before you decide" not in render_plan(starters("averaging"))


def test_texts_of_the_author_stay_text(tmp_path: Path) -> None:
    hostile = STUDY.replace('name = "small"\n', 'name = "small"\npurpose = "<script>x</script>\\u202e"\n')
    text = render_plan(Study.load(write_study(tmp_path, text=hostile)))
    assert "&lt;script&gt;x&lt;/script&gt;\\u202e" in text and "\u202e" not in text
    check_page(text)


def test_a_study_without_a_grant_is_shown_among_common_epsilons(tmp_path: Path) -> None:
    page = check_page(render_plan(Study.load(write_study(tmp_path))))
    assert "The study names no budget" in page.text and "this study: 2.00" in page.text
