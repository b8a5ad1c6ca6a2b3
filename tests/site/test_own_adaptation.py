"""A model is adapted to its owner's records at the owner's site: the owner gets both models and three scores, and
nothing that leaves the owner has any of it."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.artefacts.artefact import load_artefact
from comity.cli import main
from comity.cli.run_folder import read_manifest
from comity.federation.evaluation.adaptation import Adaptation, OwnComparison
from comity.learn.classifiers import LinearClassifier
from comity.methods.averaging import AveragingProtocol
from comity.site.results import load_own_comparison, own_model_folder, results_folder
from comity.study.study import Study
from tests.support.sites import NAMES, Sites

from .test_fetch import files, ran
from .test_own_scores import _listening

# As text in pages and JSON, and as the bytes of a weight.
MARKER = 0.123456789
TELL = (b"0.1234567", b"0.1235", np.float64(MARKER).tobytes(), b"a measure that is found again")


@pytest.fixture
def done(sites: Sites, tmp_path: Path) -> tuple[Sites, Study, str]:
    study = sites.study()
    return sites, study, read_manifest(ran(sites, study, tmp_path / "runs")).run


def test_an_owner_fetches_both_models_and_sees_three_scores(
    done: tuple[Sites, Study, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, run = done
    models = []
    for name in NAMES:
        found = load_own_comparison(sites.home(name), study.hash, run)
        assert found is not None and found.records == 40
        assert main(["fetch", run, "--site", str(sites.site(name)), "--to", str(tmp_path / name)]) == 0
        assert found.sentence in capsys.readouterr().err
        joint, own = load_artefact(tmp_path / name / "model"), load_artefact(tmp_path / f"{name}-own" / "model")
        assert isinstance(joint, LinearClassifier) and isinstance(own, LinearClassifier)
        models += [joint.weights, own.weights]
        page = (tmp_path / f"{name}-own" / "own.html").read_text()
        assert f"for {name} alone" in page and "do not pass them on" in page
        for error in (found.alone, found.joint, found.adapted):
            assert f"{error:.4g}" in page
        assert main(["site", "status", "--site", str(sites.site(name))]) == 0
        assert found.sentence in capsys.readouterr().out
        assert main(["site", "status", "--site", str(sites.site(name)), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["own_comparisons"]
        assert shown[f"{study.hash[:12]}/{run}"]["adapted"] == found.adapted
    first, mine, second, theirs = models
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(mine, first) and not np.allclose(mine, theirs)


def test_it_is_in_nothing_that_leaves_the_owner(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither a reply, nor signed and fetched results, nor the coordinator's folder, nor a log has the adapted model or
    its scores; the files that have them are their owner's alone."""

    def adapt(self: Any, presented: LinearClassifier, records: Any, party: str) -> Adaptation:
        model = LinearClassifier(np.full(presented.weights.shape, MARKER), presented.classes, presented.encoding)
        return Adaptation(model, OwnComparison(40, MARKER, MARKER, MARKER, 0.0, TELL[-1].decode()))

    monkeypatch.setattr(AveragingProtocol, "adapt_own", adapt)
    caplog.set_level(logging.DEBUG)
    heard: list[bytes] = []
    monkeypatch.setattr("tests.site.test_fetch.LocalChannel", _listening(heard))
    study = sites.study()
    folder = ran(sites, study, tmp_path / "runs")
    run = read_manifest(folder).run
    assert len(heard) > 12 and not any(word in reply for reply in heard for word in TELL)
    for name in NAMES:
        home = sites.home(name)
        assert main(["fetch", run, "--site", str(sites.site(name)), "--to", str(tmp_path / name)]) == 0
        for place in (results_folder(home, study.hash, run), tmp_path / name, folder):
            for path in files(place):
                assert not any(word in (place / path).read_bytes() for word in TELL), path
        kept = [path for path in home.rglob("*") if path.is_file() and any(w in path.read_bytes() for w in TELL)]
        assert {path.relative_to(home).parts[0] for path in kept} == {"own-scores", "own-models"}
        own = tmp_path / f"{name}-own"
        assert files(own) == {"own.html", "model/artefact.json", "model/model.json", "model/weights.npz"}
        for file in (*kept, *(own / one for one in files(own))):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not any(word in caplog.text.encode() for word in (TELL[0], TELL[3]))
    assert TELL[0].decode() not in capsys.readouterr().out


def test_records_that_adapt_nothing_stop_nothing_and_are_not_quoted(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Any, presented: Any, records: Any, party: str) -> None:
        raise ValueError("the secret of a patient")

    monkeypatch.setattr(AveragingProtocol, "adapt_own", fails)
    study = sites.study()
    run = read_manifest(ran(sites, study, tmp_path / "runs")).run
    assert load_own_comparison(sites.home("north"), study.hash, run) is None
    assert not own_model_folder(sites.home("north"), study.hash, run).exists()
    assert "could not be adapted" in caplog.text and "secret" not in caplog.text
    assert main(["fetch", run, "--site", str(sites.site("north")), "--to", str(tmp_path / "north")]) == 0
    assert (tmp_path / "north" / "model").is_dir() and not (tmp_path / "north-own").exists()


@pytest.mark.parametrize("change", [{"alone": {}}, {"joint": -1.0}, {"adapted": float("nan")}, {"measure": 1}])
def test_a_comparison_of_other_types_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    page = {"records": 9, "alone": 0.1, "joint": 0.2, "adapted": 0.1, "margin": 0.1, "measure": "share", **change}
    (tmp_path / "own-scores").mkdir()
    (tmp_path / "own-scores" / f"{'a' * 12}-run.json").write_text(json.dumps({"comparison": page}))
    assert load_own_comparison(tmp_path, "a" * 64, "run") is None
