"""`comity runs`, `report`, `compare`, `fetch`: the runs that were started from here, and their results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import RUNS, AsJson, RunsFolder
from comity.cli.output import fields, say, show, table

if TYPE_CHECKING:
    from comity.cli.run_folder import RunManifest
    from comity.federation.evaluation.adaptation import OwnComparison
    from comity.site.site_file import SiteFile
    from comity.study.results.result import Result


@dataclass(frozen=True)
class RunSummary:
    """One run. `cost` is the largest loss of a party, once the run has ended; until then only sites know it. `error` is
    that of a simulation with test records."""

    run: str
    study: str
    hash: str
    state: str
    when: str
    parties: int
    cost: str | None
    where: str
    folder: str
    error: float | None = None
    epsilon: float | None = None


def runs(out: RunsFolder = RUNS, as_json: AsJson = False) -> None:
    """List the runs that were started from here, simulated and deployed, newest first.

    Example: comity runs

    Example: comity runs --json
    """
    summaries = list_runs(out)
    rows = [
        (
            one.run,
            one.study,
            one.state,
            one.when[:16],
            str(one.parties),
            "-" if one.error is None else f"{one.error:.3f}",
            _short_cost(one),
            one.where,
            one.folder,
        )
        for one in summaries
    ]
    heads = ("run", "study", "state", "began", "parties", "error", "cost a party", "", "folder")
    text = table(heads, rows) if rows else f"{out}: no run was started here"
    show(text, {"runs": [asdict(one) for one in summaries]}, as_json=as_json)


def list_runs(out: Path) -> list[RunSummary]:
    """The runs in a folder, newest first; other folders are skipped."""
    from comity.errors import StudyError

    summaries = []
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        try:
            summaries.append(_summary(folder))
        except StudyError:
            continue
    return sorted(summaries, key=lambda one: (one.when, _number_of(one.folder)), reverse=True)


def _number_of(folder: str) -> int:
    """The number in the name of a run folder: runs that started within a second are listed in order, too."""
    number = Path(folder).name.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


def _summary(folder: Path) -> RunSummary:
    import json

    from comity.cli.run_folder import read_manifest

    manifest = read_manifest(folder)
    page = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    state = _state(folder, manifest)
    result = _result_page(folder) if state == "done" else {}
    guarantee = result.get("guarantee")
    guarantee = guarantee if isinstance(guarantee, dict) else {}
    return RunSummary(
        run=manifest.run,
        study=_name(folder, manifest),
        hash=manifest.study_hash,
        state=state,
        when=str(page.get("started", "")),
        parties=manifest.parties,
        cost=str(guarantee["loss"]) if "loss" in guarantee else None,
        where="deployed" if manifest.deployed else "simulated",
        folder=str(folder),
        error=_number(result.get("error")),
        epsilon=_number(guarantee.get("epsilon")),
    )


def _state(folder: Path, manifest: RunManifest) -> str:
    """done, refused and abandoned are final; begun, waiting and stopped runs can be resumed."""
    from comity.errors import ComityError
    from comity.federation.coordinator.journal import ABANDONED, BEGUN, Journal
    from comity.federation.messages.ask import BEGIN

    if (folder / "result.json").exists():
        return "done"
    if manifest.refused:
        return "refused"
    journal = folder / "journal.sqlite"
    if not journal.exists():
        return "waiting" if manifest.deployed else "stopped"
    try:
        entries = Journal(journal)
        if entries.recall(manifest.run, ABANDONED) is not None:
            return "abandoned"
        answered = entries.recall(manifest.run, BEGUN) is not None or entries.is_closed(manifest.run, str(BEGIN))
    except ComityError:
        return "unreadable"
    return "begun" if answered else "waiting"


def _name(folder: Path, manifest: RunManifest) -> str:
    from comity.untrusted.toml import read_tables

    try:
        return str(read_tables((folder / "study.toml").read_text(encoding="utf-8"))["study"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return manifest.study_hash[:12]


def _result_page(folder: Path) -> dict[str, Any]:
    """What `result.json` says; empty where it can't be read. A list of runs needs no arrays."""
    import json

    try:
        page = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return page if isinstance(page, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _short_cost(one: RunSummary) -> str:
    """Epsilon, rounded up; the whole loss is in the JSON."""
    from decimal import Decimal

    from comity.privacy.loss import format_up

    if one.epsilon is None:
        return one.cost or "-"
    return f"eps {format_up(Decimal(repr(one.epsilon)), decimals=2)}"


def find_finished(named: Path | None, out: Path) -> Path:
    """The folder of a run that has ended: the named one, or the latest."""
    from comity.cli.run_folder import find_folder, read_manifest, require_resumable
    from comity.errors import BadInput, StudyError

    if named is None:
        done = [one for one in list_runs(out) if one.state == "done"]
        if not done:
            raise BadInput(f"{out}: no run has ended here; start one with: comity run study.toml", key="run")
        return Path(done[0].folder)
    folder = find_folder(named, out)
    if not (folder / "result.json").is_file():
        manifest = read_manifest(folder)
        require_resumable(folder, manifest)
        raise StudyError(
            f"{folder}: has no result.json, so the run has not ended; continue it with: comity run --resume {folder}"
        )
    return folder


def compare(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Folders of runs; by default all that have ended.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with the plot and the table.", show_default=False)
    ] = None,
    out: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: what differs between them, their errors, their costs.

    Errors are compared only where the runs were tested on the same records.

    Example: comity compare runs/2026-11-18-1 runs/2026-11-18-2

    Example: comity compare runs/*

    Example: comity compare --html compare.html
    """
    # A pattern such as runs/* also names the pages that comity wrote beside the runs.
    given = [one for one in runs or () if not (one.suffix == ".html" and one.is_file())]
    named = given or [Path(one.folder) for one in reversed(list_runs(out)) if one.state == "done"]
    show_comparison([find_finished(one, out) for one in named], html, as_json=as_json)


def show_comparison(folders: Sequence[Path], html: Path | None, *, as_json: bool) -> None:
    """Print the comparison of these runs, and write its page."""
    from comity.cli.run_folder import read_manifest
    from comity.errors import StudyError
    from comity.report.compare import compare_results, render_comparison
    from comity.report.result import load_result

    alone = len({folder.name for folder in folders}) == len(folders)
    names = {folder.name if alone else str(folder): folder for folder in folders}
    places = {}
    for name, folder in names.items():
        with suppress(StudyError):
            # A fetched run has no manifest.
            places[name] = read_manifest(folder).study_folder
    comparison = compare_results({name: load_result(folder) for name, folder in names.items()}, folders=places)
    document = comparison.as_json()
    lines = table(comparison.heads, comparison.rows).split("\n") + [f"  note: {note}" for note in comparison.notes]
    if html is not None:
        from comity.files import write_atomically

        write_atomically(html, render_comparison(comparison))
        lines.append(f"  page: {html}")
        document["page"] = str(html)
    show(lines, document, as_json=as_json)


def fetch(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its folder.", show_default=False)],
    to: Annotated[Path | None, typer.Option(help="The folder to create.", show_default="named like the run")] = None,
    site: Annotated[
        Path | None, typer.Option(help="An owner's site file: fetch what this owner received.", show_default=False)
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="The coordinator's public keys, for a run submitted elsewhere.", show_default=False),
    ] = None,
    out: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Check the signatures of a finished run's results, and write the results into a new folder.

    A changed file is refused by name. Without --site it writes all that the coordinator has, except its journal. With
    --site it writes what this owner received and kept, and tells you, at your terminal only, how good the model or
    dataset is on your own records. A model that was adapted to your records goes into a second folder, TO-own, with a
    page of your own scores: both are exact, so keep them. The signer's key comes from the submission or from --keys,
    never from the folder.

    Example: comity fetch 2026-11-17-7f3a91c2 --to readmission

    Example: comity fetch 2026-11-17-7f3a91c2 --site site.toml

    Example: comity fetch copied/2026-11-17-1 --keys coordinator.toml
    """
    if site is None:
        show_run(_fetch_at_coordinator(run, to, out, keys), as_json=as_json)
        return
    folder, result, sentences = _fetch_at_site(run, to, site)
    for sentence in sentences:
        # To the terminal only: it depends on this owner's records.
        say(sentence, err=True)
    show_run(folder, result, as_json=as_json)


def _fetch_at_site(run: str, to: Path | None, path: Path) -> tuple[Path, Result, list[str]]:
    """The new folder, the result, and sentences on how good it is on this owner's records."""
    from comity.files import write_atomically
    from comity.site.results import load_own_comparison, load_own_score, load_results, own_copy_folder
    from comity.site.site_file import SiteFile
    from comity.study.results.released import safe_name

    loaded = SiteFile.load(path)
    study, result = load_results(loaded, run)
    score = load_own_score(loaded.home, study.hash, result.run)
    comparison = load_own_comparison(loaded.home, study.hash, result.run)
    folder = _create_folder(to or Path(safe_name(result.run)))
    write_atomically(folder / "study.toml", study.text)
    result.save(folder)
    sentences = [] if score is None else [f"{loaded.party}: {score.sentence}"]
    if comparison is not None:
        own = _create_folder(own_copy_folder(folder))
        _write_own(own, loaded, result, comparison)
        sentences += [f"{loaded.party}: {comparison.sentence}", f"{own}: the adapted model; keep it, it is exact"]
    return folder, result, sentences


def _write_own(folder: Path, site: SiteFile, result: Result, comparison: OwnComparison) -> None:
    """Write the adapted model and the page of the owner's own scores."""
    from comity.artefacts.artefact import load_artefact, save_artefact
    from comity.files import write_atomically
    from comity.report.own_page import render_own
    from comity.site.results import own_model_folder

    model = load_artefact(own_model_folder(site.home, result.study_hash, result.run))
    save_artefact(model, folder / model.place)
    write_atomically(folder / "own.html", render_own(result, site.party, comparison))


def _fetch_at_coordinator(run: str, to: Path | None, out: Path, keys: Path | None) -> Path:
    from comity.cli.keys import read_public_keys
    from comity.cli.run_folder import read_manifest
    from comity.errors import BadInput, Stopped
    from comity.relay.submissions import check_submitted, require_submission
    from comity.site.pack import write_files
    from comity.study.results.released import safe_name
    from comity.study.results.signatures import NAME, read_signed_files

    named = [one for one in list_runs(out) if run in (one.run, one.folder, Path(one.folder).name)]
    if len(named) != 1 and not Path(run).is_dir():
        known = ", ".join(one.run for one in list_runs(out)) or "none"
        raise BadInput(f"{out}: there is no run {run!r}; there are: {known}. See: comity runs", key="run")
    source = Path(named[0].folder) if len(named) == 1 else Path(run)
    manifest = read_manifest(source)
    if not manifest.deployed:
        raise BadInput(f"{source}: this run was simulated, so nothing is signed; its folder is the result", key="run")
    if not any((source / name).exists() for name in ("result.json", NAME)):
        raise Stopped(f"{source}: this run has not ended; continue it with: comity study submit ... --resume {source}")
    given = None if keys is None else read_public_keys(keys, key="keys")
    expected = require_submission(source, study=manifest.study_hash, run=manifest.run, given=given)
    files = read_signed_files(source, expected.coordinator, study=expected.study, run=expected.run)
    check_submitted(source, files, expected)
    folder = _create_folder(to or Path(safe_name(manifest.run)))
    write_files(files, folder)
    return folder


def _create_folder(folder: Path) -> Path:
    from comity.errors import BadInput
    from comity.files import make_folder

    try:
        make_folder(folder, exist_ok=False)
    except FileExistsError:
        raise BadInput(f"{folder}: exists already and is never overwritten; choose another --to", key="to") from None
    except OSError as error:
        raise BadInput(f"{folder}: can't be created ({error.strerror}); choose another --to", key="to") from error
    return folder


def report(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="The folder of a run.", show_default="the latest that ended")
    ] = None,
    open_it: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open it in a browser; by default on a terminal.", show_default=False),
    ] = None,
    out: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Write report.html again from the files of a run, print its path, and open it.

    Example: comity report

    Example: comity report runs/2026-11-15-1
    """
    from comity.report.result import load_result

    found = find_finished(folder, out)
    path = found / "report.html"
    load_result(found).report(path)
    show(str(path), {"report": str(path)}, as_json=as_json)
    if open_it if open_it is not None else sys.stdout.isatty():
        import webbrowser

        webbrowser.open(path.absolute().as_uri())


def _error(result: Result) -> str:
    """The error with its interval first, where the test records give one."""
    interval = result.assessment.interval
    if interval is None:
        return f"{result.error:.3f}"
    return f"{interval[0]:.3f} to {interval[1]:.3f}, measured {result.error:.3f}"


def _describe_worth(result: Result) -> list[tuple[str, str]]:
    """How good the result is, beside its baselines; what has no error is as near to the records as its figures say."""
    from comity.report.sentences import describe_quality

    assessment = result.assessment
    if result.error is None:
        shown = " · ".join(f"{figure.name} {figure.value:.3g}" for figure in assessment.figures)
        return [("quality", f"{shown}; the report says what each means")] if shown else []
    compared = " · ".join(f"{baseline.name} {baseline.error:.3f}" for baseline in result.baselines)
    rows = [("error", _error(result) + (f"   ({compared})" if compared else ""))]
    beside = " · ".join(
        f"{figure.name} {figure.value:.3f}" for figure in assessment.figures if not figure.is_about_bounds
    )
    said = describe_quality(result) if compared else ""
    measure = "" if said or assessment.is_share else assessment.measure
    return rows + [("", line) for line in (said, measure, beside) if line]


def show_run(folder: Path, result: Result | None = None, *, as_json: bool) -> None:
    """Print the result of a run that was just saved in this folder, or load it from there."""
    import json

    from comity.report.result import format_result, load_result
    from comity.report.sentences import describe_evaluation, left_exceeds_difference

    result = result or load_result(folder)
    document = json.loads(format_result(result))
    guarantee = result.guarantee
    title = f"{result.study} · run {result.run} · {result.parties} parties"
    if result.seconds:
        title += f" · {result.seconds:.1f} s"
    rows = _describe_worth(result)
    if result.assessment.repeats is not None:
        rows.append(("repeats", result.assessment.repeats.sentence()))
    for at, line in enumerate(describe_evaluation(result)):
        rows.append(("" if at else "evaluation", line))
    spent = [f"{loss} by {payer}" for payer, loss in guarantee.losses.items()]
    spent[-1] += f"; unit: {guarantee.unit}, {guarantee.neighbours}"
    rows += [("spent", one) for one in spent]
    left = sorted({account.left for account in result.accounts})
    if left:
        squares = " (losses add as squares)" if left_exceeds_difference(result) else ""
        rows.append(("left", left[0] + (f" to {left[-1]}" if len(left) > 1 else "") + squares))
    rows.append(("holds against", guarantee.adversary))
    if guarantee.claim != "private":
        rows.append(("WARNING", guarantee.claim))
    if guarantee.seeded:
        rows.append(("WARNING", "made with a seed: a simulation, not a private release"))
    rows += [("WARNING", sentence) for sentence in dict.fromkeys(result.findings)]
    rows.append(("report", str(folder / "report.html")))
    lines = [title, *fields(rows, label=14)]
    show(lines, {**document, "folder": str(folder)}, as_json=as_json)
