"""The runs of a site in a browser: their steps in words, refusals, results, the owner's own score, and downloads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from comity.console.people import Role
from comity.console.site_view import OpenedSite, SiteView
from comity.console.visit import Page, Visit
from comity.errors import BadInput, ComityError
from comity.files import read_file_state
from comity.report.dossier.folder import dossier_values
from comity.report.dossier.subject import Subject
from comity.report.page import render_block, result_values
from comity.site.inbox import Arrival
from comity.site.results import are_written, load_own_score, load_results, results_folder
from comity.site.status import Refusals, SiteRun, list_runs, list_steps, open_refusals
from comity.study.progress import describe_steps
from comity.study.results.result import Result
from comity.study.results.signatures import NAME, read_signed_files

_SHOWN, _REFUSALS, _STEPS = 100, 20, 12
_ID_CHARACTERS = 24


def run_pages(view: SiteView) -> list[Page]:
    return [
        Page("/runs", partial(show_runs, view), Role.READ, "looked at the runs"),
        Page("/runs/{id}", partial(show_run, view), Role.READ, "looked at a run"),
        Page("/runs/{id}/result", partial(show_result, view), Role.READ, "looked at a result"),
        Page("/runs/{id}/dossier", partial(show_dossier, view), Role.READ, "looked at a dossier"),
        Page("/runs/{id}/files/{file:path}", partial(download, view), Role.READ, "downloaded a file"),
    ]


def id_of(run: SiteRun) -> str:
    """A run's name in an address. Its own name is its coordinator's choice, and may hold anything."""
    return hashlib.sha256(run.key.encode()).hexdigest()[:_ID_CHARACTERS]


@dataclass(frozen=True)
class ListedRun:
    id: str
    run: SiteRun
    score: str
    worse: bool


def show_runs(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    home, runs = opened.site.home, list_runs(opened.owner.ledger)
    refusals = open_refusals(Refusals(home), opened.inbox.arrivals(), _REFUSALS)
    listed = []
    for run in runs[:_SHOWN]:
        score = load_own_score(home, run.mark, run.run) if run.mark else None
        sentence = "" if score is None else score.sentence
        listed.append(ListedRun(id_of(run), run, sentence, score is not None and score.is_worse))
    return visit.render(
        "runs.html.jinja", listed=listed, more=max(0, len(runs) - _SHOWN), refusals=list(reversed(refusals))
    )


def show_run(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    run, arrival = _find(opened, visit)
    steps: list[str] = []
    problem = ""
    if arrival is not None:
        try:
            study = view.study(opened, arrival.study)
            steps = describe_steps(study, list_steps(opened.owner.ledger, run))
        except ComityError as error:
            problem = str(error)
    files: list[str] = []
    if arrival is not None and are_written(opened.site.home, arrival.study, run.run):
        try:
            files = sorted(_files(opened, arrival, run))
        except ComityError as error:
            problem = str(error)
    score = load_own_score(opened.site.home, run.mark, run.run) if run.mark else None
    refusals = [one for one in Refusals(opened.site.home).last(_REFUSALS * 50) if one.run and one.run == run.run]
    return visit.render(
        "run.html.jinja",
        run=run,
        id=id_of(run),
        arrival=arrival,
        steps=steps[-_STEPS:],
        earlier_steps=max(0, len(steps) - _STEPS),
        score=score,
        files=files,
        problem=problem,
        refusals=refusals[-_REFUSALS:],
    )


def show_result(view: SiteView, visit: Visit) -> Response:
    """The page of what this owner received, with its signatures checked."""
    return _result_page(view, visit, "result", draw_result)


def show_dossier(view: SiteView, visit: Visit) -> Response:
    """The documents of `comity dossier` about what this owner received."""
    return _result_page(view, visit, "dossier", draw_dossier)


def _result_page(view: SiteView, visit: Visit, kind: str, draw: Callable[[Result], Markup]) -> Response:
    opened = view.current()
    run, arrival = _find(opened, visit)
    if arrival is None or not are_written(opened.site.home, arrival.study, run.run):
        raise BadInput("this run has no results here; it has not ended, or what it released is not for you", key="run")
    state = read_file_state(results_folder(opened.site.home, arrival.study, run.run) / NAME)

    def make() -> Markup:
        return draw(load_results(opened.site, f"{run.mark}/{run.run}", opened.owner.ledger)[1])

    body = view.rendered.get((kind, run.key, state), make)
    return visit.render("result.html.jinja", body=body, title=f"{run.title}: {kind}", back=f"/runs/{id_of(run)}")


def draw_result(result: Result) -> Markup:
    """The page of a result without its layout."""
    return Markup(render_block("report.html.jinja", "body", **result_values(result)))


def draw_dossier(result: Result) -> Markup:
    """The page of a dossier without its layout."""
    return Markup(render_block("dossier.html.jinja", "body", **dossier_values(Subject.of_result(result))))


def download(view: SiteView, visit: Visit) -> Response:
    """A file of the result: one that the site signed, by its exact name, and no other."""
    opened = view.current()
    run, arrival = _find(opened, visit)
    name = visit.part("file")
    files = {} if arrival is None else _files(opened, arrival, run)
    if name not in files:
        visit.about = f"{run.key}: a file that is none of its result"
        raise BadInput("the result of this run has no such file; choose one on the page of the run", key="file")
    visit.about = f"{run.key}: {name}"
    return send_file(files[name], name)


def send_file(content: bytes, name: str) -> Response:
    """A download that no browser opens as a page of this console."""
    leaf = quote(PurePosixPath(name).name)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{leaf}"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _files(opened: OpenedSite, arrival: Arrival, run: SiteRun) -> dict[str, bytes]:
    folder = results_folder(opened.site.home, arrival.study, run.run)
    return read_signed_files(folder, opened.owner.keys.public, study=arrival.study, run=run.run)


def _find(opened: OpenedSite, visit: Visit) -> tuple[SiteRun, Arrival | None]:
    """The run in the address, and its study, if it is in the inbox."""
    wanted = visit.part("id")
    run = next((one for one in list_runs(opened.owner.ledger) if id_of(one) == wanted), None)
    if run is None:
        raise BadInput("there is no such run here; choose one on the page of runs", key="run")
    visit.about = run.key
    return run, next((one for one in opened.inbox.arrivals() if run.is_of(one.study)), None)
