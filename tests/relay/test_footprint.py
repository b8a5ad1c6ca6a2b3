"""What a site's process needs: it answers for one owner, and brings nothing that simulates, draws or reports."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from comity.relay import sandbox
from comity.relay.sandbox import run_processes, start_process, stop_process
from tests.support.relays import needs_server

FOREIGN = {"matplotlib", "sklearn", "joblib", "jinja2", "opendp", "numba", "llvmlite", "rich.progress"}
"""What no process of a site imports, whatever it answers. What else a study needs comes with the
study."""
LATER = {"pandas", "pyarrow", "scipy.optimize", "scipy.stats", "scipy.linalg", "scipy.sparse", "gmpy2"}
OURS = (
    "comity.study.simulation.simulate",
    "comity.study.local.cohort",
    "comity.study.records.local_models",
)
ABOVE = ("comity.report", "comity.demo", "comity.estimators", "comity.audit")

# As `comity site serve` does before it reads its site file.
SERVE = """
import json, resource, sys
import comity.cli.site
import comity.relay.endpoint
from comity.site.service import SiteService
from comity.site.service import open_endpoint
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, sorted(sys.modules)]))
"""


def imported() -> tuple[float, set[str]]:
    said = subprocess.run([sys.executable, "-c", SERVE], capture_output=True, text=True, check=True).stdout
    seconds, modules = json.loads(said)
    return seconds, set(modules)


def test_a_site_that_serves_imports_nothing_that_simulates_draws_or_reports() -> None:
    _, modules = imported()
    assert not modules & (FOREIGN | LATER | set(OURS))
    assert not [one for one in modules if one.startswith(ABOVE)]
    assert {"comity.site.service", "comity.federation.owner.host"} <= modules, "the control: it is a site"


@pytest.mark.deploy
def test_a_site_imports_within_a_second_of_processor_time() -> None:
    imported()
    assert min(imported()[0] for _ in range(3)) <= 1.0


@needs_server
@pytest.mark.deploy
def test_a_site_takes_little_memory_after_a_run(tmp_path: Path) -> None:
    loopback = sandbox.create_sandbox(tmp_path, ["north", "south"])
    asker = tmp_path / "coordinator"
    with ExitStack() as stack:
        stack.enter_context(sandbox.sandbox_home(tmp_path))
        stack.enter_context(loopback.relay())
        serving = [
            (["-m", "comity", "site", "serve", "--site", str(tmp_path / name / "site.toml")], tmp_path / name / "log")
            for name in ("north", "south")
        ]
        sites = stack.enter_context(run_processes(serving))
        words = ["study", "submit", str(asker / "study.toml"), "--keys", str(asker / "coordinator.key")]
        places = ["--invitation", str(loopback.invitation), "--out", str(asker / "runs"), "--quiet"]
        coordinator = start_process(["-m", "comity", *words, *places], asker / "log")
        stack.callback(stop_process, coordinator)
        assert coordinator.wait(120) == 0, (asker / "log").read_text()
        peaks = [_peak(one.pid) for one in sites]
        maps = [Path(f"/proc/{one.pid}/maps").read_text() for one in sites]
    # With the compiler, whose kernel whitens rows. A site needs none of the others.
    assert max(peaks) <= 350
    assert not [name for name in ("sklearn", "matplotlib", "opendp") if any(name in one for one in maps)], peaks


def _peak(pid: int) -> float:
    """Megabytes that a process had at most."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024
