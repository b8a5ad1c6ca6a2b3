"""`comity schema`: compare data with a schema; draft one from a public sample."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, warn

app = typer.Typer(
    help="The public description of a record.\n\nExample: comity schema check schema.toml records.parquet",
    no_args_is_help=True,
    rich_markup_mode=None,
)

BAD_INPUT = 3


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema, a TOML file.", show_default=False)],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Your records: CSV or Parquet.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Explain every mismatch between a schema and your records. Quotes values: for your own terminal only.

    Ends with code 3 when a study could not read the data.

    Example: comity schema check schema.toml records.parquet
    """
    from comity.data import Schema, explain, open_source

    frame = open_source(data).read()
    findings = explain(Schema.load(schema), frame, where=str(data))
    errors = sum(finding.severity == "error" for finding in findings)
    lines = [f"{finding.severity}: {finding.sentence}" for finding in findings]
    verdict = f"{data} fits {schema}" if not errors else f"{data} does not fit {schema}: {errors} to correct"
    document = {"fits": not errors, "records": len(frame), "findings": [asdict(finding) for finding in findings]}
    show("\n".join([*lines, f"{verdict} ({len(frame)} records)"]), document, as_json=as_json)
    if errors:
        raise typer.Exit(BAD_INPUT)


@app.command()
def draft(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A PUBLIC sample: CSV or Parquet.", show_default=False)],
    target: Annotated[str, typer.Option(help="The column to be learnt.", show_default=False)],
    identifier: Annotated[str | None, typer.Option(help="The column that says whom a record is about.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the schema here instead of printing it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draft a schema from a PUBLIC sample. Bounds taken from private data void the guarantee.

    Example: comity schema draft public.csv --target readmitted --out schema.toml
    """
    from comity.data import draft as drafted
    from comity.data import open_source
    from comity.errors import BadInput

    text = drafted(open_source(data).read(), target=target, identifier=identifier, where=str(data))
    warn(
        f"WARNING: bounds and values of this draft come from {data}. If its records are PRIVATE, the draft gives them "
        "away and VOIDS THE GUARANTEE of every study that uses it. Draft from a public sample only, and check every "
        "line."
    )
    if out is None:
        show(text, {"schema": text}, as_json=as_json)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"{out}: the schema can't be written ({error.strerror}); choose another --out") from error
    show(f"{out}: a draft to be corrected", {"schema": text, "path": str(out)}, as_json=as_json)
