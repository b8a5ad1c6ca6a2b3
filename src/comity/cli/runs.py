"""`comity runs`: the runs that a coordinator, or a researcher, has begun."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table

if TYPE_CHECKING:
    from comity.cli.run_folder import Begun

Out = Annotated[Path, typer.Option(help="Where run folders are.")]
OUT = Path("runs")


@dataclass(frozen=True)
class Listed:
    """One run. `cost` is what it cost a party at most, once it has ended; before, sites alone know what they drew."""

    run: str
    study: str
    hash: str
    state: str
    when: str
    parties: int
    cost: str | None
    where: str
    folder: str


def runs(out: Out = OUT, as_json: AsJson = False) -> None:
    """List the runs that were begun from here, the newest first: deployed ones and simulated ones.

    Example: comity runs

    Example: comity runs --json
    """
    found = listed(out)
    rows = [
        (one.run, one.study, one.state, one.when[:16], str(one.parties), one.cost or "-", one.where, one.folder)
        for one in found
    ]
    heads = ("run", "study", "state", "began", "parties", "cost a party", "", "folder")
    text = table(heads, rows) if rows else f"{out}: no run was begun here"
    show(text, {"runs": [asdict(one) for one in found]}, as_json=as_json)


def listed(out: Path) -> list[Listed]:
    """The newest first; a folder that describes no run is none."""
    from comity.errors import StudyError

    found = []
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        try:
            found.append(_listed(folder))
        except StudyError:
            continue
    return sorted(found, key=lambda one: one.when, reverse=True)


def _listed(folder: Path) -> Listed:
    import json

    from comity.cli.run_folder import read_begun

    begun = read_begun(folder)
    page = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    state = _state(folder, begun)
    return Listed(
        run=begun.run,
        study=_name(folder, begun),
        hash=begun.study_hash,
        state=state,
        when=str(page.get("started", "")),
        parties=begun.parties,
        cost=_cost(folder) if state == "done" else None,
        where="deployed" if begun.deployed else "simulated",
        folder=str(folder),
    )


def _state(folder: Path, begun: Begun) -> str:
    """done; refused or abandoned, for good; else begun or waiting, and resumed by running it again."""
    from comity.errors import ComityError
    from comity.federation.coordinator.journal import ABANDONED, BEGUN, Journal
    from comity.federation.messages.paths import BEGIN

    if (folder / "result.json").exists():
        return "done"
    if begun.refused:
        return "refused"
    journal = folder / "journal.sqlite"
    if not journal.exists():
        return "waiting" if begun.deployed else "stopped"
    try:
        kept = Journal(journal)
        if kept.recall(begun.run, ABANDONED) is not None:
            return "abandoned"
        answered = kept.recall(begun.run, BEGUN) is not None or kept.is_closed(begun.run, str(BEGIN))
    except ComityError:
        return "unreadable"
    return "begun" if answered else "waiting"


def _name(folder: Path, begun: Begun) -> str:
    from comity.untrusted.toml import tables_of

    try:
        return str(tables_of((folder / "study.toml").read_text(encoding="utf-8"))["study"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return begun.study_hash[:12]


def _cost(folder: Path) -> str | None:
    import json

    try:
        return str(json.loads((folder / "result.json").read_text(encoding="utf-8"))["guarantee"]["loss"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
