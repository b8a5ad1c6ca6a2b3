"""Whatever a consortium, a site, a coordinator or a run writes is its owner's alone, also with a umask of 0."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comity.cli import main
from comity.cli.run_folder import read_manifest, site_log
from comity.errors import Stopped
from comity.files import is_shared, make_folder
from comity.methods import PROTOCOLS
from comity.relay import membership, roster
from comity.relay.sandbox import Loopback, start_process
from comity.site.service import lock_ledger
from comity.site.site_file import SiteFile
from tests.support.modes import umask_zero, wider
from tests.support.relays import needs_server
from tests.support.sites import NAMES, Sites
from tests.support.study_folder import write_study

from .test_fetch import ran


@pytest.fixture
def open_umask() -> Iterator[None]:
    with umask_zero():
        yield


@pytest.fixture
def prepared(sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Makes a place with the files that people write by hand; what is wider of all that comes after."""
    monkeypatch.chdir(tmp_path)
    sites.study()
    write_study(tmp_path / "simulated")
    known = set(tmp_path.rglob("*"))
    return lambda: wider(tmp_path, known)


def test_a_whole_deployed_run_writes_nothing_for_others(
    prepared: Callable[[], list[str]], sites: Sites, tmp_path: Path, open_umask: None
) -> None:
    folder = ran(sites, sites.study(), tmp_path / "made" / "runs")
    run = read_manifest(folder).run
    assert main(["fetch", run, "--out", str(folder.parent), "--to", str(tmp_path / "fetched" / "one")]) == 0
    north = sites.site("north")
    assert main(["fetch", run, "--site", str(north), "--to", str(tmp_path / "mine")]) == 0
    with lock_ledger(SiteFile.load(north)), site_log(folder):
        pass
    assert any(path.name == "weights.npz" for path in sites.home("north").rglob("*"))
    assert prepared() == []


def test_a_whole_simulated_run_and_what_is_made_of_it_is_the_owners(
    prepared: Callable[[], list[str]], tmp_path: Path, open_umask: None
) -> None:
    assert main(["run", "simulated/study.toml", "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    words = ["predict", str(folder), "simulated/public.csv", "--to"]
    for name in ("predicted.csv", "predicted.parquet"):
        assert main([*words, name]) == 0
    assert prepared() == []


@pytest.mark.parametrize("method", PROTOCOLS)
def test_a_study_that_somebody_begins_with_is_its_authors(
    prepared: Callable[[], list[str]], open_umask: None, method: str
) -> None:
    assert main(["new", "made/begun", "--protocol", method]) == 0
    assert prepared() == []


def test_what_a_site_begins_with_is_the_owners(
    prepared: Callable[[], list[str]], sites: Sites, tmp_path: Path, open_umask: None
) -> None:
    assert main(["keys", "new", "other.key", "--party", "other"]) == 0
    make_folder(tmp_path / "east")
    init = ["--party", "east", "--dataset", "patients", "--data", str(sites.home("north") / "patients.csv")]
    terms = ["--epsilon", "3", "--protocols", "averaging"]
    assert main(["site", "init", "--site", str(tmp_path / "east" / "site.toml"), *init, *terms]) == 0
    (ledger,) = (tmp_path / "east").glob("*.ledger")
    assert main(["ledger", "export", str(ledger), "--to", "east.json"]) == 0
    study = sites.study().folder / "study.toml"
    key = str(sites.folder / "coordinator.key")
    assert main(["study", "pack", str(study), "--keys", key, "--out", "a.study"]) == 0
    assert (
        main(
            ["schema", "draft", str(sites.home("north") / "patients.csv"), "--target", "readmitted", "--out", "d.toml"]
        )
        == 0
    )
    assert start_process(["-c", "print(1)"], tmp_path / "log").wait() == 0
    assert prepared() == []


@needs_server
def test_a_consortium_and_its_relay_write_nothing_for_others(
    prepared: Callable[[], list[str]], tmp_path: Path, open_umask: None
) -> None:
    made = Loopback.make(tmp_path / "deployed", NAMES)
    with made.relay():
        assert prepared() == []
    made.admit("east")
    membership.revoke_member(made.consortium, "east")
    assert prepared() == []
    assert (made.consortium / "relay" / "relay.log").stat().st_size


def test_a_consortium_that_somebody_keeps_locked_is_said_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_umask: None
) -> None:
    """Any user of the machine could hold a lock that it may read; the consortium's operator waited without end."""
    monkeypatch.setattr(roster, "LOCK_SECONDS", 0.2)
    made = Loopback(tmp_path)
    membership.create_consortium(made.consortium, address="127.0.0.1:1")
    lock = made.consortium / ".changing"
    assert not is_shared(lock)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Stopped, match="another process is changing this consortium"):
            made.admit("north")
    lock.chmod(0o644)
    made.admit("north")
    assert not is_shared(lock), "one of an earlier version is narrowed"
