"""What an owner receives is scored on its own records, for its own eyes: shown at its terminal, and in nothing that
leaves it."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.cli import main
from comity.cli.run_folder import read_manifest
from comity.federation.evaluation.own_score import OwnScore
from comity.federation.protocol import Protocol
from comity.methods.averaging import AveragingProtocol
from comity.site.results import load_own_score, results_folder
from comity.study.study import Study
from tests.support.sites import NAMES, Sites

from .test_fetch import files, ran

MARKER = 0.123456789


@pytest.fixture
def done(sites: Sites, tmp_path: Path) -> tuple[Sites, Study, str]:
    study = sites.study()
    return sites, study, read_manifest(ran(sites, study, tmp_path / "runs")).run


def test_an_owner_sees_how_good_a_model_is_on_its_own_records(
    done: tuple[Sites, Study, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, run = done
    for name in NAMES:
        found = load_own_score(sites.home(name), study.hash, run)
        assert found is not None and found.records == 40 and 0 <= found.error <= 1 and 0 <= found.constant <= 0.5
        assert main(["site", "status", "--site", str(sites.site(name))]) == 0
        assert found.sentence in capsys.readouterr().out
        assert main(["site", "status", "--site", str(sites.site(name)), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["own_scores"]
        assert shown[f"{study.hash[:12]}/{run}"]["error"] == found.error
        assert main(["fetch", run, "--site", str(sites.site(name)), "--to", str(tmp_path / name)]) == 0
        assert found.sentence in capsys.readouterr().err


def test_a_model_that_is_worse_than_a_constant_is_called_that_before_anybody_uses_it(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five times as many records: of 40 chance explains almost anything."""
    study, own = sites.study(), sites.home("north") / "patients.csv"
    pd.concat([pd.read_csv(own)] * 5).to_csv(own, index=False)

    def coordinate(self: AveragingProtocol, parties: Any) -> dict[str, Any]:
        """A liar's work: the opposite of what the records say."""
        assert self.encoding is not None
        records = self.encoding.encode(pd.read_csv(own)).records
        signs = 2.0 * np.asarray(records.labels) - 1
        return {"model": -np.linalg.lstsq(records.features, signs, rcond=None)[0][None]}

    monkeypatch.setattr(AveragingProtocol, "coordinate", coordinate)
    run = read_manifest(ran(sites, study, tmp_path / "runs")).run
    found = load_own_score(sites.home("north"), study.hash, run)
    assert found is not None and found.is_worse and found.error > found.constant
    assert main(["site", "status", "--site", str(sites.site("north"))]) == 0
    assert "WORSE THAN A CONSTANT on your records" in capsys.readouterr().out
    assert main(["fetch", run, "--site", str(sites.site("north")), "--to", str(tmp_path / "north")]) == 0
    assert "WORSE THAN A CONSTANT on your records" in capsys.readouterr().err


def test_it_is_in_nothing_that_leaves_the_owner(
    sites: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither a reply, nor the results that are signed and fetched, nor a log has it; the file is its owner's alone."""
    score = OwnScore(40, MARKER, MARKER, 0.0, "a measure that is found again")
    monkeypatch.setattr(Protocol, "score_own", lambda self, presented, records, party: score)
    caplog.set_level(logging.DEBUG)
    heard: list[bytes] = []
    monkeypatch.setattr("tests.site.test_fetch.LocalChannel", _listening(heard))
    study = sites.study()
    folder = ran(sites, study, tmp_path / "runs")
    run, tell = read_manifest(folder).run, (b"0.1234567", b"a measure that is found")
    assert len(heard) > 12 and not any(word in reply for reply in heard for word in tell)
    for name in NAMES:
        home = sites.home(name)
        assert main(["fetch", run, "--site", str(sites.site(name)), "--to", str(tmp_path / name)]) == 0
        for place in (results_folder(home, study.hash, run), tmp_path / name, folder):
            for path in files(place):
                assert not any(word in (place / path).read_bytes() for word in tell), path
        kept = [path for path in home.rglob("*") if path.is_file() and tell[0] in path.read_bytes()]
        assert [path.parent.name for path in kept] == ["own-scores"]
        assert stat.S_IMODE(kept[0].stat().st_mode) == 0o600 and stat.S_IMODE(kept[0].parent.stat().st_mode) == 0o700
    assert not any(word.decode() in caplog.text for word in tell)
    capsys.readouterr()


def test_the_wire_is_the_same_with_and_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The score does not change the number of replies. Their lengths vary with fresh keys and signatures anyway."""
    counts = []
    for at, score in (("one", None), ("two", OwnScore(1, 1.0, 0.0, 0.0, "x" * 500))):
        monkeypatch.setattr(Protocol, "score_own", lambda self, presented, records, party, s=score: s)
        heard: list[bytes] = []
        monkeypatch.setattr("tests.site.test_fetch.LocalChannel", _listening(heard))
        place = tmp_path / at
        place.mkdir()
        made = Sites.make(place)
        ran(made, made.study(), tmp_path / f"runs-{at}")
        counts.append(len(heard))
    assert counts[0] == counts[1] > 12


def test_records_that_can_not_be_scored_stop_nothing_and_are_not_quoted(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Any, presented: Any, records: Any, party: str) -> None:
        raise ValueError("the secret of a patient")

    monkeypatch.setattr(Protocol, "score_own", fails)
    study = sites.study()
    run = read_manifest(ran(sites, study, tmp_path / "runs")).run
    assert load_own_score(sites.home("north"), study.hash, run) is None
    assert (results_folder(sites.home("north"), study.hash, run) / "received.json").exists()
    assert "could not be scored" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize("change", [{"error": {}}, {"records": "9"}, {"constant": "x"}, {"measure": 1}])
def test_a_score_of_other_types_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    page = {"records": 9, "error": 0.1, "constant": 0.2, "margin": 0.1, "measure": "share", **change}
    (tmp_path / "own-scores").mkdir()
    (tmp_path / "own-scores" / f"{'a' * 12}-run.json").write_text(json.dumps({"score": page}))
    assert load_own_score(tmp_path, "a" * 64, "run") is None


def test_what_a_crash_left_unscored_is_scored_when_the_site_serves_again(done: tuple[Sites, Study, str]) -> None:
    sites, study, run = done
    before = load_own_score(sites.home("north"), study.hash, run)
    next((sites.home("north") / "own-scores").iterdir()).unlink()
    assert load_own_score(sites.home("north"), study.hash, run) is None
    sites.services()
    assert load_own_score(sites.home("north"), study.hash, run) == before


def _listening(heard: list[bytes]) -> Any:
    from comity.study.local.channel import LocalChannel

    def made(services: Any) -> Any:
        class Heard:
            def __init__(self, service: Any) -> None:
                self.service = service

            def answer(self, raw: bytes) -> Any:
                found = self.service.answer(raw)
                heard.append(found.reply)
                return found

            def __getattr__(self, name: str) -> Any:
                return getattr(self.service, name)

        return LocalChannel({name: Heard(service) for name, service in services.items()})

    return made
