"""Four organisations and a coordinator as processes on loopback, in which any method's study can be run.

HOME/consortium/            roster, relay and invitation
HOME/coordinator/METHOD/    a study with its public files; HOME/coordinator/runs/ has its runs
HOME/researcher/METHOD/     the same study file with all parties' records, to be simulated
HOME/north/ ...             each owner's site, with a dataset for each method
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comity.cli import main
from comity.crypto import key_file
from comity.methods import PROTOCOLS
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Pure
from comity.relay.sandbox import Loopback, run_processes
from comity.study.study import Study
from tests.deploy.methods import METHODS, NAMES, records_of, study_text, write_public
from tests.support.sites import keys_table

COORDINATOR, RESEARCHER = "coordinator", "researcher"
_SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
invitation = "../consortium/consortium.toml"

{data}
[policy]
protocols = {protocols}
variants = ["default", "published"]
epsilon_per_study = 100.0
delta_per_study = 1e-5
submitters = ["coordinator"]
sizes_may_leave = true
records_may_leave = true
{policy}

[pinned.coordinator]
{pinned}
"""


@dataclass
class Deployment:
    """Relay and sites run inside the block of `deployed`; each study has a coordinator process."""

    home: Path
    loopback: Loopback
    sites: dict[str, subprocess.Popen[bytes]]

    def folder(self, method: str, member: str = COORDINATOR) -> Path:
        return self.home / member / method

    def site(self, party: str) -> str:
        return str(self.home / party / "site.toml")

    def study(self, method: str, epsilon: float) -> Study:
        """Write the study for its coordinator, and the same file for a researcher who has all records."""
        pinned = [f"[coordinator.keys]\n{keys_table(key_file.load(self.home / COORDINATOR / 'coordinator.key'))}\n"]
        for party in METHODS[method].parties:
            pinned.append(f"[parties.{party}.keys]\n{keys_table(key_file.load(self.home / party / f'{party}.keys'))}\n")
        text = study_text(method, epsilon) + "\n".join(pinned)
        for member in (COORDINATOR, RESEARCHER):
            folder = self.folder(method, member)
            folder.mkdir(parents=True, exist_ok=True)
            write_public(method, folder)
            (folder / "study.toml").write_text(text)
        for party, held in records_of(method).items():
            held.to_parquet(self.folder(method, RESEARCHER) / f"{party}.parquet", index=False)
        return Study.load(self.folder(method) / "study.toml")

    def approve(self, study: Study, method: str) -> None:
        """Approve the study at each site with the commands that owners use when it did not come over the relay."""
        pack = self.folder(method) / f"{study.hash[:12]}.study"
        assert self.comity("study", "pack", self.folder(method) / "study.toml", *self._keys(), "--out", pack) == 0
        for party in METHODS[method].parties:
            at = ("--site", self.site(party))
            assert self.comity("site", "receive", pack, *at) == 0
            assert self.comity("site", "approve", study.hash[:12], "--dataset", method, "--yes", *at) == 0

    def submit(self, method: str, *more: str) -> subprocess.CompletedProcess[str]:
        asker = self.home / COORDINATOR
        words = [
            "study",
            "submit",
            self.folder(method) / "study.toml",
            *self._keys(),
            "--invitation",
            self.loopback.invitation,
        ]
        places = ["--out", asker / "runs" / method, "--quiet", *more]
        command = [sys.executable, "-m", "comity", *map(str, [*words, *places])]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    def run(self, method: str, epsilon: float) -> tuple[Study, Path]:
        """Submit, approve and run the study; returns it and the coordinator's run folder."""
        study = self.study(method, epsilon)
        self.approve(study, method)
        done = self.submit(method)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        return study, max((self.home / COORDINATOR / "runs" / method).iterdir(), key=lambda path: path.stat().st_mtime)

    def simulated(self, method: str) -> Study:
        return Study.load(self.folder(method, RESEARCHER) / "study.toml")

    def results(self, party: str, study: Study, run: str) -> Path:
        return self.home / party / "results" / f"{study.hash[:12]}-{run}"

    def logs(self) -> str:
        return "\n".join((self.home / party / "log").read_text("utf-8", "replace")[-2000:] for party in NAMES)

    def comity(self, *words: Any) -> int:
        return main([str(word) for word in words])

    def _keys(self) -> tuple[str, Path]:
        return "--keys", self.home / COORDINATOR / "coordinator.key"


@contextmanager
def deployed(home: Path, serve: tuple[str, ...], policy: str = "") -> Iterator[Deployment]:
    """`serve` are the words of a site's process, before its site file; `policy` is a further line of each policy."""
    loopback = Loopback.make(home, NAMES)
    coordinator = key_file.load(loopback.keys_of(COORDINATOR))
    for party in NAMES:
        folder = home / party
        held = [name for name, method in METHODS.items() if party in method.parties]
        ledger: Ledger | None = None
        for name in held:
            method = METHODS[name]
            terms: dict[str, Any] = {
                "dataset": name,
                "grant": Approx(1000.0, 1e-4) if method.delta else Pure(1000.0),
                "unit": method.unit,
                "neighbours": method.neighbours,
            }
            if ledger is None:
                ledger = Ledger.create(folder / f"{party}.ledger", **terms)
            else:
                ledger.add_dataset(**terms)
            records_of(name)[party].to_parquet(folder / f"{name}.parquet", index=False)
        data = "".join(f'[data.{name}]\nsource = "parquet"\npath = "{name}.parquet"\n\n' for name in held)
        page = _SITE.format(
            party=party,
            data=data,
            pinned=keys_table(coordinator),
            protocols=json.dumps(list(PROTOCOLS)),
            policy=policy,
        )
        (folder / "site.toml").write_text(page)
    with ExitStack() as stack:
        stack.enter_context(loopback.relay())
        commands = [([*serve, str(home / party / "site.toml")], home / party / "log") for party in NAMES]
        running = stack.enter_context(run_processes(commands))
        yield Deployment(home, loopback, dict(zip(NAMES, running)))
