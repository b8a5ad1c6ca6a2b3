"""The console of a coordinator: `comity study console`. Who is ready, who refused and why, rounds and lost parties."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from markupsafe import Markup
from starlette.responses import Response

from comity.console.app import Console, make_app
from comity.console.guard import Address, Application
from comity.console.people import People, Role
from comity.console.run_pages import draw_dossier, draw_result, send_file
from comity.console.sign_in import sign_in_pages
from comity.console.site_view import Cache
from comity.console.visit import Page, Visit
from comity.errors import BadInput, ComityError
from comity.federation.coordinator.journal_view import JournalView, read_journal
from comity.federation.messages.ask import BEGIN, READY
from comity.files import read_file_state
from comity.relay.delivery_file import Delivery, read_delivery
from comity.report.result import load_result
from comity.study.progress import describe_steps
from comity.study.results.result import Result
from comity.study.study import Study
from comity.untrusted.file_names import UnsafeName, read_inside

MENU = (("/", "Runs"),)
JOURNAL = "journal.sqlite"
_ID_CHARACTERS, _STEPS = 24, 12
_PRIVATE = (JOURNAL, "delivery.json", "run.json", "sites.log")
"""Files of a run folder that are no part of its result."""


class ListedRun(Protocol):
    """A run as `comity runs` lists it."""

    @property
    def run(self) -> str: ...
    @property
    def study(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def when(self) -> str: ...
    @property
    def parties(self) -> int: ...
    @property
    def cost(self) -> str | None: ...
    @property
    def where(self) -> str: ...
    @property
    def folder(self) -> str: ...


@dataclass(frozen=True)
class Runs:
    """The runs of a folder: `listed` lists them, `load` reads the study of a run's folder."""

    listed: Callable[[], Sequence[ListedRun]]
    load: Callable[[Path], Study]


def make_coordinator_console(
    home: Path, address: Address, runs: Runs, *, people: People | None = None, **more: Any
) -> tuple[Console, Application]:
    """The console over a folder of run folders, and its application."""
    console = Console(home, address, "coordinator: study console", MENU, people or People(home), **more)
    return console, make_app(console, coordinator_pages(runs))


def coordinator_pages(runs: Runs) -> list[Page]:
    kept: Cache[Any] = Cache()
    result = partial(show_page, runs, kept, "result", draw_result)
    dossier = partial(show_page, runs, kept, "dossier", draw_dossier)
    return [
        *sign_in_pages(),
        Page("/", partial(show_runs, runs), Role.READ, "looked at the runs"),
        Page("/runs/{id}", partial(show_run, runs), Role.READ, "looked at a run"),
        Page("/runs/{id}/result", result, Role.READ, "looked at a result"),
        Page("/runs/{id}/dossier", dossier, Role.READ, "looked at a dossier"),
        Page("/runs/{id}/files/{file:path}", partial(download, runs), Role.READ, "downloaded a file"),
    ]


def id_of(run: ListedRun) -> str:
    return hashlib.sha256(f"{run.hash}/{run.run}".encode()).hexdigest()[:_ID_CHARACTERS]


_WORDS = {
    "done": "ended, with a result",
    "begun": "running, or stopped: see its page",
    "waiting": "waits for the owners",
    "refused": "refused",
    "abandoned": "abandoned",
}


def show_runs(runs: Runs, visit: Visit) -> Response:
    listed = [(id_of(one), one, _WORDS.get(one.state, one.state)) for one in runs.listed() if one.where == "deployed"]
    return visit.render("coordinator_runs.html.jinja", listed=listed)


@dataclass(frozen=True)
class PartyState:
    name: str
    state: str
    words: str


def describe_parties(parties: Sequence[str], delivery: Delivery, journal: JournalView) -> list[PartyState]:
    """Where each party is: from the delivery to the end of the run."""
    answered = {step.path: set(step.answered) for step in journal.steps}
    last = journal.steps[-1] if journal.steps else None
    states = []
    for name in parties:
        said = (delivery.parties or {}).get(name, "")
        if name in journal.lost:
            states.append(PartyState(name, "lost", journal.lost[name]))
        elif name in answered.get(str(BEGIN), ()):
            waits = last is not None and name in last.waiting and not last.decided
            words = "took part to the end" if journal.released else "answered every step so far"
            states.append(PartyState(name, "takes part", "has not answered the last step yet" if waits else words))
        elif said.startswith("refused"):
            states.append(PartyState(name, "refused", said))
        elif name in answered.get(str(READY), ()):
            states.append(PartyState(name, "ready", "approved the study and can begin"))
        elif said:
            words = "has the study; its owner has not approved it yet" if said == "arrived" else said
            states.append(PartyState(name, "waits", words))
        else:
            states.append(PartyState(name, "not asked", "the study was not delivered yet"))
    return states


def show_run(runs: Runs, visit: Visit) -> Response:
    run = _find(runs, visit)
    folder = Path(run.folder)
    delivery = read_delivery(folder)
    journal, steps, parties, problem = JournalView(), list[str](), list[str](), ""
    try:
        journal = read_journal(folder / JOURNAL, run.run)
        study = runs.load(folder)
        parties = list(study.consortium.parties)
        steps = describe_steps(study, [one.path for one in journal.steps])
    except ComityError as error:
        problem = str(error)
    return visit.render(
        "coordinator_run.html.jinja",
        run=run,
        id=id_of(run),
        words=_WORDS.get(run.state, run.state),
        delivery=delivery,
        journal=journal,
        parties=describe_parties(parties, delivery, journal),
        steps=steps[-_STEPS:],
        earlier_steps=max(0, len(steps) - _STEPS),
        files=_files(folder) if run.state == "done" else [],
        problem=problem,
    )


def show_page(runs: Runs, kept: Cache[Any], kind: str, draw: Callable[[Result], Markup], visit: Visit) -> Response:
    run = _find(runs, visit)
    folder = Path(run.folder)
    if run.state != "done":
        raise BadInput("this run has not ended, so it has no result yet", key="run")
    state = read_file_state(folder / "result.json")
    body = kept.get((kind, run.folder, state), lambda: draw(load_result(folder)))
    return visit.render("result.html.jinja", body=body, title=f"{run.study}: {kind}", back=f"/runs/{id_of(run)}")


def download(runs: Runs, visit: Visit) -> Response:
    """A file of a finished run's folder, but for its journal and logs; no link is followed."""
    run = _find(runs, visit)
    folder, name = Path(run.folder), visit.part("file")
    if run.state != "done" or name not in _files(folder):
        visit.about = f"{run.run}: a file that is none of its result"
        raise BadInput("the result of this run has no such file; choose one on the page of the run", key="file")
    visit.about = f"{run.run}: {name}"
    try:
        return send_file(read_inside(folder, name), name)
    except (OSError, UnsafeName) as error:
        raise BadInput("this file can't be read", key="file") from error


def _files(folder: Path) -> list[str]:
    found = (one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    names = (one.relative_to(folder).as_posix() for one in found)
    return sorted(one for one in names if not one.startswith(_PRIVATE) and not one.startswith("."))


def _find(runs: Runs, visit: Visit) -> ListedRun:
    wanted = visit.part("id")
    run = next((one for one in runs.listed() if id_of(one) == wanted), None)
    if run is None:
        raise BadInput("there is no such run here; choose one on the page of runs", key="run")
    visit.about = run.run
    return run
