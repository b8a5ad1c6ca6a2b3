"""`comity plan`, `run`, `demo`: a study on one machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import RUNS, AsJson, Quiet, RunsFolder, Sets, StudyFile, parse_overrides, parse_sweep
from comity.cli.output import fields, progress_bar, say, show
from comity.untrusted.toml import read_tables

if TYPE_CHECKING:
    from comity.cli.run_folder import RunManifest
    from comity.study.forecast.forecast import Forecast
    from comity.study.records.party_data import PartyData
    from comity.study.results.result import Result
    from comity.study.study import Study


def plan(
    study: StudyFile,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show every release, its loss, and every default that the study uses.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page for the people who decide; it needs no network."),
    ] = None,
    expect: Annotated[
        bool, typer.Option("--expect", help="Forecast the error of the result, on generated records; takes seconds.")
    ] = False,
    sample: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Forecast it from these public records, CSV or Parquet.", show_default=False),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            help="How many records there are in all, where the study does not say.", show_default=False, min=1
        ),
    ] = None,
    wish: Annotated[
        float | None,
        typer.Option(help="An error to reach: the forecast names the smallest epsilon for it.", show_default=False),
    ] = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Show what a study would do: whom it protects, what it reads, what leaves, whom it trusts, what it costs.

    It reads no private data. With --expect or --sample it also says what the result is likely to be worth.

    Example: comity plan study.toml

    Example: comity plan study.toml --sample public.csv --wish 0.25

    Example: comity plan study.toml --all

    Example: comity plan study.toml --html plan.html
    """
    from comity.report.overview import describe_plan
    from comity.study.forecast import has_forecast
    from comity.study.forecast.signal import describe_expectation, describe_signal
    from comity.study.simulation.ledgers import forecast_budgets, require_grant
    from comity.study.study import Study

    loaded = Study.load(study, overrides=parse_overrides(sets))
    planned, defaults = loaded.plan(), loaded.defaults()
    require_grant(loaded)
    told = _forecast(loaded, sample, records) if expect or sample is not None or wish is not None else None
    if told is None:
        worth = describe_expectation(loaded)
    else:
        worth = (*describe_signal(loaded), *told.sentences, *_reach(told, wish))
    overview = describe_plan(planned, forecast_budgets(loaded), expect=worth)
    document: dict[str, Any] = {
        **planned.as_json(),
        "hash": loaded.hash,
        "notices": list(loaded.notices),
        "overview": vars(overview),
        "forecast": None if told is None else told.as_json(),
    }
    rows = [*overview.as_lines(), *(("note", one) for one in loaded.notices), ("hash", loaded.hash)]
    rows += [] if everything else [("details", f"comity plan {study} --all")]
    if told is None and has_forecast(loaded):
        rows.append(("forecast", f"comity plan {study} --sample PUBLIC.csv, or --expect"))
    if html is not None:
        from comity.files import write_atomically
        from comity.report.plan_page import render_plan

        write_atomically(html, render_plan(loaded, expect=worth))
        rows.append(("page", str(html)))
        document["page"] = str(html)
    lines = [overview.title, *fields(rows)]
    if everything:
        document["defaults"] = defaults
        width = max(map(len, defaults), default=0)
        lines += ["", *planned.as_text().split("\n")]
        lines += ["  defaults used", *(f"    {key.ljust(width)}  {value}" for key, value in defaults.items())]
    show(lines, document, as_json=as_json)


def _forecast(study: Study, sample: Path | None, records: int | None) -> Forecast:
    from comity.data import open_source
    from comity.study.forecast.forecast import forecast

    return forecast(study, None if sample is None else open_source(sample, str(sample)).read(), records=records)


def _reach(told: Forecast, wish: float | None) -> tuple[str, ...]:
    if wish is None:
        return ()
    epsilon = told.smallest_epsilon(wish)
    if epsilon is None:
        return (f"an error of {wish:g} is out of reach for every epsilon up to {told.points[-1].epsilon:g}",)
    return (f"the smallest epsilon for an error of {wish:g} is about {epsilon:.2g}",)


def run(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="The study file, study.toml.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Repeatable noise, which protects nobody; the result says so.",
            show_default=False,
            min=-(2**63),
            max=2**63 - 1,
        ),
    ] = None,
    sets: Sets = None,
    out: RunsFolder = RUNS,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Continue a run that was stopped.", show_default=False)
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Repeat it with fresh simulated noise, and show mean, spread and worst.", min=0)
    ] = 0,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Run once for each value of a key, and compare: --sweep privacy.epsilon=0.3,1,3",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a study on this machine, and write its result, page and transcript into a new run folder.

    Example: comity run study.toml --seed 7

    Example: comity run study.toml --set privacy.epsilon=0.5

    Example: comity run study.toml --sweep privacy.epsilon=0.3,1,3

    Example: comity run study.toml --repeats 20

    Example: comity run --resume runs/2026-11-15-1
    """
    if resume is not None:
        if seed is not None or sets or sweep:
            raise typer.BadParameter(
                "--resume uses the seed and the settings of the stopped run; leave --seed, --set and --sweep out."
            )
        folder, result = _resume_run(resume, study, out, repeats=repeats, quiet=quiet)
    elif study is None:
        raise typer.BadParameter("give a study file, as in: comity run study.toml; or a run: --resume RUN.")
    elif sweep is not None:
        settings = parse_overrides(sets)
        _sweep(study, seed, settings, parse_sweep(sweep), out, repeats=repeats, quiet=quiet, as_json=as_json)
        return
    else:
        settings, notes = parse_overrides(sets), not (quiet or as_json)
        folder, result = _start_run(study, seed, settings, out, repeats=repeats, quiet=quiet, notes=notes)
    from comity.cli.runs import show_run

    show_run(folder, result, as_json=as_json)


def _sweep(
    path: Path,
    seed: int | None,
    settings: dict[str, Any],
    sweep: tuple[str, list[Any]],
    out: Path,
    *,
    repeats: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the study once for each value of a key, each in its own folder, and compare the runs."""
    from comity.cli.runs import show_comparison
    from comity.study.study import Study

    key, values = sweep
    every = [{**settings, key: value} for value in values]
    for one in every:
        # A value that the study can't have is refused before anything runs.
        Study.load(path, overrides=one).plan()
    folders = []
    for place, one in enumerate(every, start=1):
        if not (quiet or as_json):
            say(f"{key} = {one[key]} ({place} of {len(every)})", err=True)
        notes = place == 1 and not (quiet or as_json)
        folder, _ = _start_run(path, seed, one, out, repeats=repeats, quiet=quiet, notes=notes)
        folders.append(folder)
    show_comparison(folders, out / f"{folders[0].name}-sweep.html", as_json=as_json)


def _start_run(
    path: Path, seed: int | None, settings: dict[str, Any], out: Path, *, repeats: int, quiet: bool, notes: bool
) -> tuple[Path, Result]:
    from comity.cli.run_folder import RunManifest, begin_run, make_folder
    from comity.study.local.consortium import new_run_id
    from comity.study.records.party_data import load_party_data
    from comity.study.simulation.simulate import can_resume
    from comity.study.study import Study

    study = Study.load(path, overrides=settings)
    with progress_bar(study.name, quiet=quiet) as progress:
        if progress is not None:
            progress("reading data")
        party_data = load_party_data(study)
    if not can_resume(study, party_data) and notes:
        say(
            f"note: {len(party_data.parties):,} parties are simulated in memory; "
            "if this run stops, it can't be resumed",
            err=True,
        )
    manifest = RunManifest(
        run=new_run_id(),
        study=str(path.absolute()),
        study_folder=str(path.parent.absolute()),
        study_hash=study.hash,
        seed=seed,
        overrides=settings,
        parties=len(party_data.parties),
        resumable=can_resume(study, party_data),
    )
    folder = make_folder(out)
    begin_run(folder, manifest, text_as_run(study.text, settings))
    return folder, _run_and_save(study, manifest, folder, party_data, repeats=repeats, quiet=quiet)


def _resume_run(named: Path, path: Path | None, out: Path, *, repeats: int, quiet: bool) -> tuple[Path, Result | None]:
    from comity.cli.run_folder import find_folder, load_study, read_manifest, require_resumable
    from comity.errors import Refused
    from comity.study.records.party_data import load_party_data
    from comity.study.study import Study

    folder = find_folder(named, out)
    manifest = read_manifest(folder)
    if path is not None and Study.load(path, overrides=manifest.overrides).hash != manifest.study_hash:
        raise Refused(f"{path} is not the study of {folder}; leave it out, or start a new run with it", code="study")
    if (folder / "result.json").exists():
        return folder, None
    require_resumable(folder, manifest)
    study = load_study(folder, manifest)
    return folder, _run_and_save(study, manifest, folder, load_party_data(study), repeats=repeats, quiet=quiet)


def _run_and_save(
    study: Study, manifest: RunManifest, folder: Path, party_data: PartyData, *, repeats: int, quiet: bool
) -> Result:
    from comity.cli.run_folder import site_log, write_manifest
    from comity.errors import BadInput, Refused, Stopped
    from comity.study.progress import RunProgress
    from comity.study.simulation.simulate import run_study

    try:
        with site_log(folder), progress_bar(study.name, quiet=quiet) as progress:
            result = run_study(
                study,
                seed=manifest.seed,
                folder=folder,
                run_id=manifest.run,
                progress=None if progress is None else RunProgress.of(study, progress),
                data=party_data,
                repeats=repeats,
            )
            if progress is not None:
                progress("writing the report")
            result.save(folder)
            return result
    except (KeyboardInterrupt, Stopped) as stop:
        why = f" ({stop})" if isinstance(stop, Stopped) else ""
        remedy = (
            f"Continue it with: comity run --resume {folder}"
            if manifest.resumable
            else "Its parties were simulated in memory: run the study again"
        )
        raise Stopped(f"{folder}: the run stopped before its end{why}. {remedy}") from stop
    except (Refused, BadInput) as refusal:
        # The study in the folder never changes, so a refusal that its keys decide is final.
        if refusal.key.partition(".")[0] in ("study", "privacy", "parties", "simulation", study.protocol_name):
            write_manifest(folder, replace(manifest, refused=str(refusal)))
        raise


def text_as_run(text: str, overrides: Mapping[str, Any]) -> str:
    """The study file with the overrides of the command line in their places; the author's text where there are none."""
    if not overrides:
        return text
    tables = read_tables(text)
    for key, value in overrides.items():
        *path, leaf = key.split(".")
        at = tables
        for name in path:
            at = at.setdefault(name, {})
        at[leaf] = value
    return "\n".join(_toml_lines(tables, ())).lstrip() + "\n"


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    deeper = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = ["", f"[{'.'.join(map(_toml_key, path))}]"] if path and (plain or not deeper) else []
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in deeper.items():
        lines += _toml_lines(value, (*path, key))
    return lines


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants the delete character escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(key)} = {_toml_value(entry)}' for key, entry in value.items())}}}"
    return str(value)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the page, the studies and their runs.")] = Path(
        "demo-report"
    ),
    as_json: AsJson = False,
) -> None:
    """Simulate a small study of every method on generated records, and write one page that shows the results.

    Example: comity demo --out demo-report
    """
    from comity.demo import run_demo

    with progress_bar("demo") as progress:
        document = run_demo(out, progress)
    lines = [_demo_line(row) for rows in document["tables"].values() for row in rows]
    show([*lines, f"page: {document['report']}"], document, as_json=as_json)


def _demo_line(row: Mapping[str, Any]) -> str:
    known = ("protocol", "dataset", "epsilon", "error")
    compared = " · ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in row.items() if name not in known)
    error = "" if row["error"] is None else f"  error {row['error']:.3f}  ({compared})"
    return f"{row['protocol']:<10} eps {row['epsilon']:g}{error}"
