"""SIGKILL at random moments of a run whose coordinator and sites are processes of their own; then resume."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import Consortium
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.codec import decode, encode
from comity.federation.sum.site import SecureSum
from tests.support.children import fork
from tests.support.consortia import make_consortium
from tests.support.pipes import PIDS, PipeChannel
from tests.support.rounds import Rounds, host_party, set_up_run

from .test_resume import check_ledgers, stored

PROTOCOL = Rounds(rounds=1)
# Imported before any fork, or each child would import them, and what they need, for itself.
ALWAYS_MOUNTED = (Lifecycle, SecureSum)
_MEASURED_EVERY = 100


def members() -> Consortium:
    return make_consortium(4)


def answering(folder: Any) -> Any:
    """What a site's process answers with."""

    def answer_as(name: str) -> Any:
        host = host_party(PROTOCOL, members(), name, folder)
        return lambda raw: host.answer(raw).reply

    return answer_as


def coordinate(folder: Any) -> int:
    """Run or resume in a child process of its own group; returns its id."""
    child = fork()
    if child:
        return child
    code = 1
    try:
        parties, _ = set_up_run(PROTOCOL, members(), folder, hosts={})
        parties.channel = PipeChannel(folder, members().parties, answering(folder))
        result = run(parties)["result"]
        (folder / "result").write_bytes(encode(result))
        code = 0
    except Exception:
        (folder / "error").write_text(traceback.format_exc())
        code = 5  # stopped: a site was killed and too few are left, or a pipe broke
    finally:
        os._exit(code)


def kill(pid: Any, which: Any, folder: Any) -> None:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        if which == "everyone":
            os.killpg(pid, signal.SIGKILL)
        elif which == "coordinator":
            os.kill(pid, signal.SIGKILL)
        else:
            pids = (folder / PIDS).read_text().split()
            os.kill(int(pids[int(which)]), signal.SIGKILL)


def crash_and_resume(folder: Any, which: Any, delay: Any) -> Any:
    for name in members().parties:
        host_party(PROTOCOL, members(), name, folder)  # create the ledgers
    pid = coordinate(folder)
    time.sleep(delay)
    kill(pid, which, folder)
    _, status = os.waitpid(pid, 0)
    if which == "coordinator":
        time.sleep(0.02)  # orphaned sites finish their ask and see the closed pipe
    died = not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0)
    hosts = {name: host_party(PROTOCOL, members(), name, folder) for name in members().parties}
    before = stored(hosts)
    replies = sum(kind == "reply" for _, kind, *_ in before)
    finished = os.waitpid(coordinate(folder), 0)[1]
    assert os.WIFEXITED(finished) and os.WEXITSTATUS(finished) == 0, (which, delay, (folder / "error").read_text())
    first = decode((folder / "result").read_bytes())
    hosts = {name: host_party(PROTOCOL, members(), name, folder) for name in members().parties}
    after = stored(hosts)
    assert all(after[key] == value for key, value in before.items())
    replied = {name for name, kind, path, *_ in after if kind == "reply" and path.startswith("lean")}
    check_ledgers(hosts, set(members().parties) - replied, PROTOCOL.rounds)
    for name, kind, *rest in after:  # no release without a debit
        if kind == "reply" and rest[0] in ("average[0]", "lean[0]"):
            assert (name, "draw", {"average[0]": "mean", "lean[0]": "slope"}[rest[0]], 0) in after
    os.waitpid(coordinate(folder), 0)
    np.testing.assert_array_equal(decode((folder / "result").read_bytes()), first)
    return died, replies


def undisturbed(folder: Any) -> float:
    folder.mkdir()
    for name in members().parties:
        host_party(PROTOCOL, members(), name, folder)
    started = time.perf_counter()
    finished = os.waitpid(coordinate(folder), 0)[1]
    assert os.WIFEXITED(finished) and os.WEXITSTATUS(finished) == 0
    shutil.rmtree(folder, ignore_errors=True)
    return time.perf_counter() - started


def crashes(tmp_path: Path, count: Any, seed: Any) -> Any:
    """So many kills, one in each of as many equal parts of the length of a run: how many runs did not survive theirs,
    and how many replies each site had stored when it came.

    A third of the kills meet the coordinator, alone or with everyone, and end a run; a lost site is a drop-out that the
    run survives.
    """
    tmp_path.mkdir(exist_ok=True)
    generator = np.random.default_rng(seed)
    stages: Counter[Any]
    places, ended, stages = generator.permutation(count), 0, Counter()
    for trial, place in enumerate(places):
        if trial % _MEASURED_EVERY == 0:
            # Again and again, because the machine may be busier later on than it was at first.
            span = min(undisturbed(tmp_path / f"whole-{trial}-{turn}") for turn in range(2))
        folder = tmp_path / str(trial)
        folder.mkdir()
        which = ("everyone", "coordinator", "0", "1", "2", "3")[generator.integers(6)]
        delay = 0.95 * span * (place + generator.uniform()) / count
        died, stored_before = crash_and_resume(folder, which, float(delay))
        ended += died
        stages[stored_before] += 1
        shutil.rmtree(folder, ignore_errors=True)  # an orphaned site may still be closing its file
    return ended, stages


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))


def test_random_kills(tmp_path: Path, home: None) -> None:
    # Where the machine was busy when the length of a run was measured and is not any more, kills come too late.
    assert any(crashes(tmp_path / f"seed {seed}", 3, seed=seed)[0] for seed in (1, 2, 3))


@pytest.mark.long
@pytest.mark.parametrize("tenth", range(10))
def test_a_thousand_kills_spread_over_a_run(tmp_path: Path, home: None, tenth: int) -> None:
    ended, stages = crashes(tmp_path, 100, seed=2 + tenth)
    print(f"{ended} of 100 kills ended a run; replies stored when they came: {sorted(stages.items())}")
    assert ended >= 15
    # The run stores dozens of replies; kills that all came at one moment would have tried little.
    assert len(stages) >= 8 and max(stages.values()) <= 60
