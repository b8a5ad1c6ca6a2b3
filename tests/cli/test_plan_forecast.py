"""`comity plan --sample`: what the result is likely to be worth, in words, in JSON and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.data import Classes, Numeric, Schema
from tests.study.test_forecast import sample

STUDY = """\
[study]
name = "plane"
protocol = "averaging"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-6
[averaging]
sizes = 300
[parties.ash]
[parties.birch]
[parties.cedar]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    schema = Schema((Numeric("x", -1, 1), Numeric("z", -1, 1)), Classes("y", ("no", "yes")))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    (tmp_path / "study.toml").write_text(STUDY)
    sample(400, noise=0.1).to_csv(tmp_path / "public.csv", index=False)
    return tmp_path / "study.toml"


def test_a_plan_forecasts_the_error_from_public_records(study: Path, comity: Any) -> None:
    page = study.parent / "plan.html"
    told = comity("plan", study, "--sample", study.parent / "public.csv", "--wish", "0.3", "--html", page, "--json")
    assert told.code == 0, told.err
    document = json.loads(told.out)
    assert document["forecast"]["basis"] == "400 public records" and document["forecast"]["records"] == 900
    assert "400 public records" in document["overview"]["expect"][0]
    assert "an error of 0.3" in document["overview"]["expect"][-1]
    assert "likely to be worth" in page.read_text("utf-8")


def test_without_being_asked_a_plan_says_what_public_figures_tell_and_how_to_forecast(study: Path, comity: Any) -> None:
    told = comity("plan", study)
    assert "--sample PUBLIC.csv, or --expect" in told.out
    assert "the noise " in told.out and "To know the error" in told.out and "error about" not in told.out


def test_a_sample_that_lacks_a_column_is_refused_in_one_sentence(study: Path, comity: Any) -> None:
    pd.DataFrame({"x": [0.0] * 60}).to_csv(study.parent / "short.csv", index=False)
    refused = comity("plan", study, "--sample", study.parent / "short.csv")
    assert refused.code == 3 and "'z'" in refused.err and refused.err.count("\n") == 1
