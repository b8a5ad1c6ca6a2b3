"""`comity run`: simulate a study on this machine and write its run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson, Sets, overrides
from comity.cli.progress import progress_bar

if TYPE_CHECKING:
    from comity.cli.run_folder import Begun
    from comity.study.records.material import Material
    from comity.study.study import Study


def run(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="The study file, study.toml.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Repeatable noise, which protects nobody: the result says so.",
            show_default=False,
            min=-(2**63),
            max=2**63 - 1,
        ),
    ] = None,
    sets: Sets = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped.", show_default=False)
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Run so many times again with fresh simulated noise: mean, spread, worst.", min=0)
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a study on this machine: model, report and transcript go into a new run folder.

    Example: comity run study.toml --seed 7

    Example: comity run study.toml --set privacy.epsilon=0.5

    Example: comity run study.toml --repeats 20

    Example: comity run --resume runs/2026-11-15-1
    """
    if resume is not None:
        if seed is not None or sets:
            raise typer.BadParameter(
                "--resume takes the seed and the settings that the run began with; leave them out."
            )
        folder = _resumed(resume, study, out, repeats=repeats, quiet=quiet)
    elif study is None:
        raise typer.BadParameter("name a study file, as in: comity run study.toml; or a run: --resume RUN.")
    else:
        folder = _started(study, seed, overrides(sets), out, repeats=repeats, quiet=quiet, notes=not (quiet or as_json))
    show_run(folder, as_json=as_json)


def _started(
    path: Path, seed: int | None, settings: dict[str, Any], out: Path, *, repeats: int, quiet: bool, notes: bool
) -> Path:
    from comity.cli.as_run import text_as_run
    from comity.cli.output import say
    from comity.cli.run_folder import Begun, begin, make_folder
    from comity.study.local.chance import new_run_id
    from comity.study.records.gather import gather
    from comity.study.simulation.run import can_resume
    from comity.study.study import Study

    study = Study.load(path, overrides=settings)
    with progress_bar(study.name, quiet=quiet) as progress:
        if progress is not None:
            progress("reading data")
        material = gather(study)
    if not can_resume(study, material) and notes:
        say(
            f"note: the sites of {len(material.parties):,} parties live in memory; if this run is stopped, it can't be "
            "resumed",
            err=True,
        )
    begun = Begun(
        run=new_run_id(),
        study=str(path.absolute()),
        study_folder=str(path.parent.absolute()),
        study_hash=study.hash,
        seed=seed,
        overrides=settings,
        parties=len(material.parties),
        resumable=can_resume(study, material),
    )
    folder = make_folder(out)
    begin(folder, begun, text_as_run(study.text, settings))
    _simulate(study, begun, folder, material, repeats=repeats, quiet=quiet)
    return folder


def _resumed(named: Path, path: Path | None, out: Path, *, repeats: int, quiet: bool) -> Path:
    from comity.cli.run_folder import find_folder, read_begun, require_resumable
    from comity.errors import Refused
    from comity.study.records.gather import gather
    from comity.study.study import Study

    folder = find_folder(named, out)
    begun = read_begun(folder)
    if path is not None and Study.load(path, overrides=begun.overrides).hash != begun.study_hash:
        raise Refused(f"{path} is not the study of {folder}; leave it out, or start a new run with it", code="study")
    if (folder / "result.json").exists():
        return folder
    require_resumable(folder, begun)
    text = (folder / "study.toml").read_text(encoding="utf-8")
    study = Study.parse(text, folder=Path(begun.study_folder), where=str(folder / "study.toml"))
    if study.hash != begun.study_hash:
        raise Refused(
            f"{folder}: the schema or a public file in {begun.study_folder} has changed since this run began, which "
            "makes it another study. Put the file back, or start a new run",
            code="study",
        )
    _simulate(study, begun, folder, gather(study), repeats=repeats, quiet=quiet)
    return folder


def _simulate(study: Study, begun: Begun, folder: Path, material: Material, *, repeats: int, quiet: bool) -> None:
    from comity.cli.run_folder import describe, site_log
    from comity.errors import BadInput, Refused, Stopped
    from comity.report.result import Result
    from comity.study.simulation.run import run_study

    try:
        with site_log(folder), progress_bar(study.name, quiet=quiet) as progress:
            outcome = run_study(
                study,
                seed=begun.seed,
                folder=folder,
                run_id=begun.run,
                progress=progress,
                material=material,
                repeats=repeats,
            )
            if progress is not None:
                progress("writing the report")
            Result.of(outcome).save(folder)
    except (KeyboardInterrupt, Stopped) as stop:
        why = f" ({stop})" if isinstance(stop, Stopped) else ""
        remedy = (
            f"Go on with: comity run --resume {folder}" if begun.resumable else "Its sites were in memory: run it again"
        )
        raise Stopped(f"{folder}: the run was stopped before its end{why}. {remedy}") from stop
    except (Refused, BadInput) as refusal:
        # The study of this folder stays as it is, and with it a refusal that one of its keys decides.
        if refusal.key.partition(".")[0] in ("study", "privacy", "parties", "simulation", study.protocol_name):
            describe(folder, replace(begun, refused=str(refusal)))
        raise


def show_run(folder: Path, *, as_json: bool) -> None:
    """Print what a run folder holds."""
    import json

    from comity.cli.output import show
    from comity.report.quality import measured_privately, verdict
    from comity.report.result import load_result

    result = load_result(folder)
    document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    guarantee = result.guarantee
    lines = [f"{result.study} · run {result.run} · {result.parties} parties"]
    if result.seconds:
        lines[0] += f" · {result.seconds:.1f} s"
    if result.error is not None:
        compared = " · ".join(f"{baseline.name} {baseline.error:.3f}" for baseline in result.baselines)
        lines.append(f"  error          {result.error:.3f}" + (f"   ({compared})" if compared else ""))
        if compared:
            lines.append(f"                 {verdict(result)}")
        beside = " · ".join(f"{figure.name} {figure.value:.3f}" for figure in result.assessment.figures)
        if beside:
            lines.append(f"                 {beside}")
    if result.assessment.repeats is not None:
        lines.append(f"  repeats        {result.assessment.repeats.sentence()}")
    for at, line in enumerate(measured_privately(result)):
        lines.append(f"  {'' if at else 'evaluation':<15}{line}")
    lines += [f"  spent          {loss} by {payer}" for payer, loss in guarantee.losses.items()]
    lines[-1] += f"; unit: {guarantee.unit}, {guarantee.neighbours}"
    left = sorted({account.left for account in result.accounts})
    if left:
        lines.append(f"  left           {left[0]}" + (f" to {left[-1]}" if len(left) > 1 else ""))
    lines.append(f"  holds against  {guarantee.adversary}")
    if guarantee.claim != "private":
        lines.append(f"  WARNING        {guarantee.claim}")
    if guarantee.seeded:
        lines.append("  WARNING        made with a seed: a simulation, not a private release")
    lines += [f"  WARNING        {sentence}" for sentence in result.findings]
    lines.append(f"  report         {folder / 'report.html'}")
    show(lines, {**document, "folder": str(folder)}, as_json=as_json)
