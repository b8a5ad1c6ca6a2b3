"""The runs that a site's ledger knows, by study, and ending one."""

from __future__ import annotations

from dataclasses import dataclass

from comity.errors import BadInput
from comity.federation.owner.store import MARK, Store
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit


@dataclass(frozen=True)
class RunHere:
    """`mark` is the beginning of the study's hash, `run` its coordinator's id, `state` open or how it ended."""

    mark: str
    run: str
    dataset: str
    title: str
    state: str

    @property
    def key(self) -> str:
        """By what the ledger knows it."""
        return f"{self.mark}/{self.run}" if self.mark else self.run

    def is_of(self, study: str) -> bool:
        return bool(self.mark) and study.startswith(self.mark)


def runs_of(ledger: Ledger) -> list[RunHere]:
    """Open ones first."""
    found = []
    for one in ledger.runs():
        mark, slash, run = one.run.partition("/")
        marked = bool(slash) and len(mark) == MARK
        found.append(RunHere(mark if marked else "", run if marked else one.run, one.dataset, one.study, one.state))
    return sorted(found, key=lambda one: one.state != "open")


def end_run(ledger: Ledger, named: str) -> RunHere:
    """Abandon an open run for good: frees what it never drew, deletes its masks and replies. `named` is its id, with
    the beginning of the study's hash and a slash before it where several studies have a run of that id."""
    open_runs = [one for one in runs_of(ledger) if one.state == "open"]
    mark, slash, run = named.partition("/")
    found = [one for one in open_runs if named == one.run]
    found = found or [one for one in open_runs if slash and one.run == run and one.mark.startswith(mark)]
    if len(found) != 1:
        listed = ", ".join(f"{one.mark[:12]}/{one.run}" for one in open_runs) or "none"
        many = f"{len(found)} open runs are" if found else "no open run is"
        raise BadInput(f"{many} called {named!r}; open are: {listed}", key="run")
    Store(ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE).abandon(found[0].key)
    return found[0]
