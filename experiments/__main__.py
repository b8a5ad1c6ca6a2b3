"""`python -m experiments papers|bench|choose NAME`, from the root of a checkout. `list` in place of a name lists them.

Exit codes are those of `comity`: 0 done, 2 wrong usage, 3 bad input. A defect shows its traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from comity.cli.doctor import machine
from comity.cli.failure import report_failure
from comity.cli.options import AsJson
from comity.cli.output import show, table
from comity.errors import BadInput, ComityError
from comity.study.results.result import software_versions
from experiments.bench import BENCHES
from experiments.choose import METHODS
from experiments.experiment import Experiment
from experiments.papers import PAPERS

app = typer.Typer(
    help="The papers' tables and figures, measurements beside an anchor, and the choice of constants.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path | None, typer.Option(help="A folder for plots and pages.", show_default=False)]


@app.command()
def papers(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Which table or figure, or: list, all", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Under a minute each, with fewer repeats.")] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compute a paper's table or figure again, with the paper's figures beside ours; `all` writes one page of them all.

    The environment variable COMITY_DATA names the folder of the datasets. `all` writes papers.md, papers.html and their
    pictures into --out, by default the folder `papers`.

    Example: python -m experiments papers list

    Example: COMITY_DATA=data python -m experiments papers softlabel-har --quick --out plots

    Example: COMITY_DATA=data python -m experiments papers all --quick
    """
    if name == "list":
        _list(PAPERS, "computes", as_json=as_json)
        return
    if name == "all":
        _write_all(quick=quick, out=out or Path("papers"), as_json=as_json)
        return
    rows = _find(name, PAPERS, "paper").run(quick=quick, out=_make_folder(out))
    title = f"{name}, quick: fewer repeats than the paper's" if quick else name
    show(f"{title}\n{_as_table(rows)}", {**_document(name, rows), "quick": quick}, as_json=as_json)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure, or: list", show_default=False)],
    out: Out = None,
    rows: Annotated[int | None, typer.Option(help="How many records to measure with.", min=1000)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure Comity beside an anchor in the same run.

    Example: python -m experiments bench list

    Example: python -m experiments bench ledger --json

    Example: python -m experiments bench vertical --out plots

    Example: python -m experiments bench stream --rows 50000000
    """
    if name == "list":
        _list(BENCHES, "measures", as_json=as_json)
        return
    known = _find(name, BENCHES, "bench")
    options = {option: value for option, value in (("out", out), ("rows", rows)) if value is not None}
    for option in options:
        if option not in known.options:
            raise typer.BadParameter(f"bench {name} takes no --{option}; leave it out.")
    if "out" in options:
        _make_folder(out)
    document = _document(name, known.run(**options))
    show(f"{name} on {document['machine']['cpu']}\n{_as_table(document['rows'])}", document, as_json=as_json)


@app.command()
def choose(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help=f"{', '.join(METHODS)}, or: list", show_default=False)
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only constants whose name contains one of these."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each constant.")] = False,
) -> None:
    """Choose the constants of a method again, on training rows, with one dataset left out at a time.

    Prints for each constant the values that were tried, the best over all datasets, the best without each dataset, and
    what the dataset that was left out loses by that. COMITY_DATA names the folder of the datasets.

    Example: COMITY_DATA=data python -m experiments choose averaging ROUNDS
    """
    from experiments.choose.leaving_out import make_choices

    if method == "list":
        show("\n".join(f"  {name}" for name in METHODS), list(METHODS), as_json=as_json)
        return
    if method not in METHODS:
        raise typer.BadParameter(f"there is no method {method!r}; known: {', '.join(METHODS)}.")
    for one in make_choices(METHODS[method], words or ()):
        print(json.dumps(one.as_json()) if as_json else one, flush=True)


def _write_all(*, quick: bool, out: Path, as_json: bool) -> None:
    from experiments.papers.all_papers import as_rows, as_verdicts, write_pages

    _make_folder(out)
    chapters = write_pages(quick=quick, out=out.resolve())
    verdicts = as_verdicts(chapters)
    shown = [{key: row[key] for key in ("method", "exhibit", "verdict", "claim")} for row in verdicts]
    text = f"{_as_table(shown)}\n  {out / 'papers.html'} and {out / 'papers.md'} have every line"
    document = {**_document("all", as_rows(chapters)), "verdicts": verdicts, "quick": quick}
    show(text, document, as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(words, prog_name="python -m experiments", standalone_mode=False)
    except Exception as error:
        # Usage errors have `format_message`. Anything else is a defect, and shows its traceback.
        if not isinstance(error, ComityError) and not hasattr(error, "format_message"):
            raise
        return report_failure(error, as_json="--json" in words)
    return code if isinstance(code, int) else 0


def _as_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every field that some row has, in the order in which they first appear; notes follow below."""
    heads = list(dict.fromkeys(key for row in rows for key in row if key != "note"))
    if not heads:
        return "  nothing was measured"
    lines = [table(heads, [[_figure(row.get(head)) for head in heads] for row in rows])]
    notes = dict.fromkeys(str(row["note"]) for row in rows if row.get("note"))
    return "\n".join([*lines, *(f"  note: {note}" for note in notes)])


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _list(known: Mapping[str, Experiment], verb: str, *, as_json: bool) -> None:
    listed = [(name, one.about) for name, one in sorted(known.items())]
    show(table(("name", verb), listed), [{"name": name, "about": about} for name, about in listed], as_json=as_json)


def _find(name: str, known: Mapping[str, Experiment], kind: str) -> Experiment:
    if name not in known:
        raise typer.BadParameter(f"there is no {kind} {name!r}; known: {', '.join(sorted(known))}.")
    return known[name]


def _make_folder(out: Path | None) -> Path | None:
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{out}: plots can't be written here ({error.strerror}); choose another --out") from error
    return out


def _document(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON form of every experiment. No host name, no paths."""
    return {"name": name, "rows": [dict(row) for row in rows], "machine": machine(), "versions": software_versions()}


if __name__ == "__main__":
    sys.exit(main())
