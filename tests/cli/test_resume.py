"""A run that is killed and resumed ends as if nothing had happened, and each party pays once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.learn import LinearClassifier, load_model
from comity.privacy.ledger import Ledger, SharedFile
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation import simulate as simulation
from tests.support.study_folder import STUDY, write_study

PARTIES = 8
COMITY = [sys.executable, "-c", "import sys; from comity.cli import main; sys.exit(main())"]


def weights(folder: Path) -> np.ndarray:
    model = load_model(folder / "model")
    assert isinstance(model, LinearClassifier)
    return model.coef_


def each_paid_once(folder: Path, parties: int) -> None:
    ledgers = list((folder / "ledgers").glob("*.ledger"))
    assert len(ledgers) == parties
    for path in ledgers:
        ledger = Ledger(path)
        kinds = [entry.kind for entry in ledger.entries()]
        assert (kinds.count("reserve"), kinds.count("draw")) == (1, 1)
        ledger.verify()


@contextmanager
def interrupt(moment: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Interrupt every simulation at this step."""
    run_simulation = cast(Any, simulation).run_simulation

    def progress(words: str) -> None:
        if words == moment:
            raise KeyboardInterrupt

    def interrupted(agreement: Any, party_data: Any, *, seed: Any, options: Any) -> Any:
        return run_simulation(agreement, party_data, seed=seed, options=replace(options, progress=progress))

    with monkeypatch.context() as patch:
        patch.setattr(simulation, "run_simulation", interrupted)
        yield


@pytest.mark.parametrize("moment", ["run.begin[0]", "train[0]", "run.end[0]"])
def test_an_interrupted_run_says_how_to_go_on_and_does(
    comity: Any, study: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    whole = Path(comity("run", "study.toml", "--seed", "7", "--out", "whole", "--json").document["folder"])
    with interrupt(moment, monkeypatch):
        ended = comity("run", "study.toml", "--seed", "7", "--json")
    (folder,) = Path("runs").iterdir()
    assert ended.code == 5 and f"comity run --resume {folder}" in ended.failure["sentence"]
    assert comity("report", folder).code == 3
    resumed = comity("run", "--resume", folder, "--json")
    assert resumed.code == 0, resumed.err
    assert np.array_equal(weights(folder), weights(whole))
    each_paid_once(folder, 5)
    before = (folder / "result.json").read_bytes()
    assert comity("run", "--resume", folder.name, "--json").document == resumed.document | {"folder": str(folder)}
    assert (folder / "result.json").read_bytes() == before


def test_a_run_whose_result_was_lost_is_made_again_from_the_journal(comity: Any, study: Path) -> None:
    folder = Path(comity("run", "study.toml", "--json").document["folder"])
    before = weights(folder)
    (folder / "result.json").unlink()
    assert comity("run", "study.toml", "--resume", folder).code == 0
    assert np.array_equal(weights(folder), before)
    each_paid_once(folder, 5)


def test_resume_keeps_to_what_the_run_began_with(comity: Any, study: Path) -> None:
    folder = Path(comity("run", "study.toml", "--set", "softlabel.l2=0.02", "--json").document["folder"])
    before = weights(folder)
    (folder / "result.json").unlink()
    assert comity("run", "--resume", folder, "--seed", "1").code == 2
    assert comity("run", "--resume", folder, "--set", "softlabel.l2=0.5").code == 2
    study.write_text(STUDY.replace("epsilon = 2.0", "epsilon = 1.0"))
    other = comity("run", "study.toml", "--resume", folder)
    assert other.code == 4 and "not the study" in other.err
    assert comity("run", "--resume", folder).code == 0
    assert np.array_equal(weights(folder), before)
    (folder / "result.json").unlink()
    public = Path("public.csv").read_text()
    Path("public.csv").write_text("\n".join(public.splitlines()[:-1]))
    changed = comity("run", "--resume", folder)
    assert changed.code == 4 and "has changed" in changed.err
    assert comity("run", "--resume", "runs/nothing").code == 3
    Path("runs/empty").mkdir()
    empty = comity("run", "--resume", "runs/empty")
    assert empty.code == 3 and "run.json" in empty.err


def changed_records() -> None:
    lines = Path("records.csv").read_text().splitlines()
    Path("records.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")


def changed_test() -> None:
    lines = Path("test.csv").read_text().splitlines()
    Path("test.csv").write_text("\n".join(lines[:-1]) + "\n")


@pytest.mark.parametrize(
    ("change", "named"), [(changed_records, "records of clinic-01"), (changed_test, "test records")]
)
def test_a_run_is_not_resumed_with_other_records(
    comity: Any, study: Path, monkeypatch: pytest.MonkeyPatch, change: Any, named: str
) -> None:
    folder = interrupted_at("train[0]", comity, monkeypatch)
    before = {name: Path(name).read_bytes() for name in ("records.csv", "test.csv")}
    change()
    refused = comity("run", "--resume", folder)
    assert refused.code == 4 and named in refused.err and "Put the files back" in refused.err, refused.err
    assert "resume" in comity("report", folder).err
    for name, content in before.items():
        Path(name).write_bytes(content)
    assert (folder / "records.json").stat().st_mode & 0o077 == 0
    assert comity("run", "--resume", folder).code == 0
    each_paid_once(folder, 5)


def test_a_file_that_was_written_again_with_the_same_records_is_the_same(
    comity: Any, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted_at("train[0]", comity, monkeypatch)
    Path("records.csv").write_text(Path("records.csv").read_text() + "\n")
    assert comity("run", "--resume", folder).code == 0


def interrupted_at(moment: str, comity: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    with interrupt(moment, monkeypatch):
        assert comity("run", "study.toml", "--seed", "7").code == 5
    (folder,) = Path("runs").iterdir()
    return folder


MANY = 70


def many_parties(folder: Path) -> Path:
    """More than have a ledger in a file each."""
    return write_study(folder, text=STUDY.replace("count = 5", f"count = {MANY}"), parties=MANY, records=4).parent


def each_of_many_paid_once(folder: Path) -> None:
    assert not (folder / "ledgers").exists() and (folder / "sites.sqlite").stat().st_mode & 0o077 == 0
    shared = SharedFile(folder / "sites.sqlite")
    for number in range(1, MANY + 1):
        ledger = Ledger.in_shared_file(
            shared, number, dataset="none", grant=Pure(1), unit=Unit.PARTY, neighbours=Neighbours.REPLACE
        )
        kinds = [entry.kind for entry in ledger.entries()]
        assert (kinds.count("create"), kinds.count("reserve"), kinds.count("draw")) == (1, 1, 1)
        ledger.verify()


@pytest.mark.parametrize("moment", ["train[0]", "run.end[0]"])
def test_a_run_of_more_parties_than_files_is_resumed(
    comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.chdir(many_parties(tmp_path / "many"))
    folder = interrupted_at(moment, comity, monkeypatch)
    assert comity("run", "--resume", folder).code == 0
    each_of_many_paid_once(folder)


@pytest.mark.long
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_a_run_of_more_parties_than_files_is_killed_and_ends_the_same(tmp_path: Path, delay: float) -> None:
    home = many_parties(tmp_path / "many")
    subprocess.run([*COMITY, "run", "study.toml", "--seed", "7", "--out", "whole"], cwd=home, check=True, timeout=120)
    (whole,) = (home / "whole").iterdir()
    killed(["run", "study.toml", "--seed", "7"], home, None, delay)
    (folder,) = (home / "runs").iterdir()
    subprocess.run([*COMITY, "run", "--resume", str(folder)], cwd=home, check=True, timeout=120)
    assert np.array_equal(weights(folder), weights(whole))
    each_of_many_paid_once(folder)


def killed(arguments: list[str], folder: Path, journal: Path | None, delay: float) -> None:
    """Start a run, wait for its journal, wait a little more, and kill it the hard way."""
    process = subprocess.Popen([*COMITY, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if journal.exists() if journal is not None else any(folder.glob("runs/*/journal.sqlite")):
            break
        time.sleep(0.002)
    time.sleep(delay)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def killed_and_resumed(tmp_path: Path, delays: list[float]) -> None:
    path = write_study(tmp_path / "killed", text=STUDY.replace("count = 5", f"count = {PARTIES}"), parties=PARTIES)
    home = path.parent
    subprocess.run([*COMITY, "run", "study.toml", "--seed", "7", "--out", "whole"], cwd=home, check=True, timeout=120)
    (whole,) = (home / "whole").iterdir()
    killed(["run", "study.toml", "--seed", "7"], home, None, delays[0])
    (folder,) = (home / "runs").iterdir()
    for delay in delays[1:]:
        killed(["run", "--resume", str(folder)], home, folder / "journal.sqlite", delay)
    subprocess.run([*COMITY, "run", "--resume", str(folder)], cwd=home, check=True, timeout=120)
    assert np.array_equal(weights(folder), weights(whole))
    each_paid_once(folder, PARTIES)


def test_a_run_that_is_killed_twice_pays_once_and_ends_the_same(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, [0.05, 1.2])


@pytest.mark.long
@pytest.mark.parametrize("trial", range(30))
def test_runs_that_are_killed_at_random_pay_once_and_end_the_same(tmp_path: Path, trial: int) -> None:
    chance = np.random.default_rng(trial)
    killed_and_resumed(tmp_path, [float(chance.uniform(0, 0.2)), *chance.uniform(0.3, 2.5, size=2).tolist()])
