"""Joint prediction by the commands that people meet, over a real relay between processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.cli import main
from comity.relay import sandbox
from comity.relay.sandbox import run_processes
from comity.site.status import Refusals
from tests.support.column_sites import NEW, ColumnSites
from tests.support.relays import Loopback, needs_server, wait_until

pytestmark = [needs_server, pytest.mark.deploy]

NAMES = ("north", "south")


def comity(folder: Any, *words: Any) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "comity", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        stack.enter_context(sandbox.sandbox_home(tmp_path))
        sites = ColumnSites.make_columns(tmp_path, NAMES)
        # The keys that the study pins are those of the relay's members.
        (tmp_path / "coordinator").mkdir()
        shutil.copy(tmp_path / "coordinator.key", tmp_path / "coordinator" / "coordinator.key")
        loopback = Loopback.make(tmp_path, NAMES)
        for name in NAMES:
            sites.terms(name, relay=relay_of(loopback))
        stack.enter_context(loopback.relay())
        serve = [
            (
                ["-m", "comity", "site", "serve", "--site", str(sites.site(name)), "--log", "json"],
                sites.home(name) / "log",
            )
            for name in NAMES
        ]
        stack.enter_context(run_processes(serve))
        yield sites, loopback


def relay_of(loopback: Any) -> str:
    return f'invitation = "{loopback.invitation}"\n'


def test_a_model_is_trained_approved_for_new_records_and_applied_jointly(owners: Any, tmp_path: Path) -> None:
    sites, loopback = owners
    study = sites.training_study()
    common = ["--keys", "coordinator.key", "--invitation", "consortium/consortium.toml"]
    submit = ["study", "submit", study.folder / "study.toml", *common, "--quiet"]
    code, _, said = comity(tmp_path, *submit)
    assert code == 4 and "has approved the study" in said
    approve(sites, study.hash, "patients")
    code, out, said = comity(
        tmp_path, *submit, "--resume", "runs/" + next((tmp_path / "runs").iterdir()).name, "--json"
    )
    assert code == 0, said
    run = json.loads(out)["folder"]

    # An owner whose terms do not allow it: a code for others, a sentence at home, nothing in its inbox.
    sites.terms("south", allowed=0, relay=relay_of(loopback))
    predict = ["predict", run, "--jointly", *common, "--records", NEW, "--receiver", "north", "--to", "scores.csv"]
    code, _, said = comity(tmp_path, *predict)
    assert code == 4 and "south does not take study" in said and "(policy)" in said
    assert "policy.joint_predictions is 0" in Refusals(sites.home("south")).last(1)[0].sentence
    sites.terms("south", relay=relay_of(loopback))

    code, _, said = comity(tmp_path, *predict)
    assert code == 4 and "--resume" in said and "EXACT" in said
    arrived = {path.name for path in (sites.home("south") / "studies").iterdir() if len(path.name) == len(study.hash)}
    (prediction,) = arrived - {study.hash}
    approve(sites, prediction, "new")
    last = max((tmp_path / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    code, _, said = comity(tmp_path, *predict, "--resume", last)
    assert code == 0, said
    assert len(pd.read_csv(tmp_path / "scores.csv")) == NEW
    wait_until(lambda: list(sites.home("north").glob(f"results/{prediction[:12]}-*/received.json")))
    (table,) = sites.home("north").glob(f"results/{prediction[:12]}-*/table/table.csv")
    found = pd.read_csv(table)
    assert set(found["person"]) == set(sites.new["person"])
    # Both processes of a site log objects, with the run's id and nobody's identifier.
    told = [line for line in (sites.home("north") / "log").read_text().splitlines() if line.startswith("{")]
    pages = [json.loads(line) for line in told]
    assert {page["logger"] for page in pages} >= {"comity.site", "comity.relay"}
    assert any(page.get("run") == table.parents[1].name.partition("-")[2] for page in pages)
    assert not [one for one in sites.new["person"] if any(f"{one}'" in line or f'{one}"' in line for line in told)]
    # The same answers as the whole model gives to whole records.
    new = sites.new.drop(columns="sick")
    new.to_csv(tmp_path / "whole.csv", index=False)
    assert main(["predict", str(tmp_path / run), str(tmp_path / "whole.csv"), "--to", str(tmp_path / "home.csv")]) == 0
    at_home = pd.Series(pd.read_csv(tmp_path / "home.csv")["predicted"].to_numpy(), index=new["person"])
    assert (found.set_index("person")["predicted"].loc[at_home.index] == at_home).all()


def approve(sites: Any, study: Any, dataset: Any) -> None:
    for name in NAMES:
        assert (
            main(["site", "approve", study[:12], "--dataset", dataset, "--yes", "--site", str(sites.site(name))]) == 0
        )
