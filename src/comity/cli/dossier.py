"""`comity dossier`: documents for the people who decide about a study, from its plan or from a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.options import RUNS, AsJson, RunsFolder
from comity.cli.output import show

if TYPE_CHECKING:
    from comity.report.dossier.subject import Subject


def dossier(
    named: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN|STUDY]", help="The folder of a run, or a study file.", show_default="the latest run"
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="The folder to write into.", show_default="dossier, beside the study or in the run"),
    ] = None,
    out: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Write the documents that an approval needs: a DPIA annex, a NIST checklist, cards, a registry record.

    They are filled from the plan of a study, or from a run with its ledgers and report. What only your organisation
    knows is left blank. They give evidence about singling out, linkage and inference, and no legal conclusion.

    Example: comity dossier

    Example: comity dossier study.toml --to dossier

    Example: comity dossier runs/2026-11-18-1
    """
    from comity.report.dossier.folder import write_dossier

    subject, beside = _subject(named, out)
    written = write_dossier(subject, to or beside / "dossier")
    lines = [f"{written['folder']}: {', '.join(written['files'])}"]
    lines += [f"  note: {one}" for one in written["caveats"]]
    lines.append(f"  {written['to_fill_in']} fields are left for your organisation to fill in")
    show(lines, written, as_json=as_json)


def _subject(named: Path | None, out: Path) -> tuple[Subject, Path]:
    from comity.cli.runs import find_finished
    from comity.report.dossier.subject import Subject
    from comity.report.result import load_result
    from comity.study.study import Study

    if named is not None and named.is_file():
        return Subject.of_study(Study.load(named)), named.parent
    folder = find_finished(named, out)
    return Subject.of_result(load_result(folder)), folder
