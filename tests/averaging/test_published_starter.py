"""The published average with nothing but its variant set: the paper's constants, and a study that runs as it is."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from comity.cli import main
from comity.data import clinic_schema
from comity.methods.averaging import Averaging, PublishedAveraging
from comity.methods.averaging.published.noise import gradient_diameter
from comity.methods.averaging.starter import PUBLISHED_SIZES

NAMES = list(PUBLISHED_SIZES)


def published(**options: Any) -> Averaging:
    return Averaging(clinic_schema("readmitted"), variant="published", **options)


def protocol_of(method: Averaging) -> PublishedAveraging:
    protocol = method.study(NAMES, epsilon=1.0).protocol
    assert isinstance(protocol, PublishedAveraging)
    return protocol


def test_the_variant_takes_the_papers_constants() -> None:
    protocol = protocol_of(published())
    assert (protocol.noise, protocol.l2) == ("literal", 1.0)
    assert protocol.encoding is not None and not protocol.encoding.intercept
    assert all(constant.is_papers for constant in published().constants.values())
    assert protocol_of(published(l2="auto")).l2 == 1.0


def test_a_repair_is_an_option_and_shows_beside_the_papers_value() -> None:
    method = published(noise="spherical", l2=0.01, intercept=True)
    constants = method.constants
    assert {name for name, one in constants.items() if not one.is_papers} == {"noise", "l2", "intercept"}
    assert (constants["noise"].in_use, constants["noise"].value) == ("spherical", "literal")
    protocol = protocol_of(method)
    assert (protocol.noise, protocol.l2) == ("spherical", 0.01)
    assert Averaging(clinic_schema("readmitted"), sizes=10).constants == {}


def test_every_constant_says_where_it_is_printed() -> None:
    for name, constant in published().constants.items():
        assert "section" in constant.source or "Theorem" in constant.source, name


def test_the_starter_plans_runs_and_reports_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "baseline", "--protocol", "averaging", "--variant", "published"]) == 0
    capsys.readouterr()
    assert main(["plan", "baseline/study.toml", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["unproven"] and "not private as claimed" in planned["claim"]
    width = protocol_of(published()).width
    seen = planned["true_losses"][0]
    true = float(seen["true"].removeprefix("at most eps "))
    assert seen["claimed"] == "eps 1.00"
    assert true == pytest.approx(gradient_diameter(1.0) * sqrt(width) / (2 * len(NAMES)), rel=1e-3)
    assert main(["run", "baseline/study.toml", "--seed", "7", "--out", "runs"]) == 0
    assert "not private as claimed" in capsys.readouterr().out
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "report.html").exists() and len(list((run / "shares").glob("*.share.json"))) == len(NAMES) + 1
