"""`comity synth`: further products of counts that a run released, at no further cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show
from comity.untrusted.text import one_line

if TYPE_CHECKING:
    import pandas as pd

    from comity.artefacts.table import Table
    from comity.methods.synthetic.artefact import SyntheticDataset


def synth(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run, or of its dataset.", show_default=False),
    ],
    rows: Annotated[int | None, typer.Option(help="Make so many rows; without it as many as records.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Draw this column anew from all others, to learn it from the rows.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Counts, shares, means, quantiles of all columns.")] = False,
    by: Annotated[str | None, typer.Option(help="With --table: by the groups of this column.")] = None,
    correlations: Annotated[bool, typer.Option("--correlations", help="Correlations of ordered columns.")] = False,
    regress: Annotated[str | None, typer.Option(help="Least squares of this column on the others.")] = None,
    on: Annotated[list[str] | None, typer.Option(help="With --regress: on this column; may be repeated.")] = None,
    to: Annotated[Path | None, typer.Option(help="Write here, .csv or .parquet; else print.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make rows, a Table 1, correlations or a regression of released counts. No ledger is opened: nothing is spent.

    Example: comity synth runs/2026-11-15-1 --rows 5000 --to rows.parquet

    Example: comity synth runs/2026-11-15-1 --table --by sex
    """
    asked = [
        name
        for name, wanted in (
            ("--rows or --target", rows is not None or target is not None),
            ("--table", table),
            ("--correlations", correlations),
            ("--regress", regress is not None),
        )
        if wanted
    ]
    if len(asked) != 1:
        found = " and ".join(asked) or "none"
        raise typer.BadParameter(f"ask for one of --rows, --target, --table, --correlations, --regress; found {found}.")
    if by is not None and not table:
        raise typer.BadParameter("--by goes with --table.")
    if on and regress is None:
        raise typer.BadParameter("--on goes with --regress.")
    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--to writes .csv or .parquet, found {to.name!r}.")
    dataset = _opened(run)
    if rows is not None or target is not None:
        if to is None:
            raise typer.BadParameter("rows are written to a file: add --to rows.parquet.")
        _write(dataset.rows(rows, target=target), to, as_json=as_json)
        return
    if table:
        made = dataset.table_one(by)
    else:
        made = dataset.correlations() if regress is None else dataset.regression(regress, on)
    if to is not None:
        _write(_frame(made), to, as_json=as_json)
        return
    text = f"{one_line(made.about)}\n{_frame(made).to_string(index=False, float_format=lambda value: f'{value:.4g}')}"
    show(text, {"about": made.about, "rows": _frame(made).to_dict("records")}, as_json=as_json)


def _opened(run: Path) -> SyntheticDataset:
    from comity.artefacts.artefact import load_artefact
    from comity.errors import BadInput
    from comity.methods.synthetic.artefact import SyntheticDataset

    found = load_artefact(run / "data" if (run / "data").is_dir() else run)
    if not isinstance(found, SyntheticDataset):
        raise BadInput(f"{run}: holds a {found.kind} and no released counts; name the run of a synthetic study")
    return found


def _frame(table: Table) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(table.rows), columns=list(table.heads))


def _write(frame: pd.DataFrame, to: Path, *, as_json: bool) -> None:
    from comity.artefacts.csv_cells import escape_frame
    from comity.errors import BadInput
    from comity.files import make_file

    try:
        make_file(to)
        if to.suffix == ".csv":
            escape_frame(frame).to_csv(to, index=False)
        else:
            frame.to_parquet(to, index=False)
    except OSError as error:
        raise BadInput(f"{to}: can't be written ({error.strerror or error}); choose another --to") from error
    show(f"{to}: {len(frame):,} rows", {"path": str(to), "rows": len(frame)}, as_json=as_json)
