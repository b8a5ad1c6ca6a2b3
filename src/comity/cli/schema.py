"""`comity schema`: check data against a schema; draft a schema from a public sample."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.failure import BAD_INPUT
from comity.cli.options import BY_SUFFIX, AsJson, Reading, make_group, reads_data
from comity.cli.output import show, warn

app = make_group("The public description of a record.", example="comity schema check schema.toml records.parquet")


@app.command()
@reads_data
def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema, a TOML file.", show_default=False)],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Your records: CSV, Parquet, a database's file or URL.", show_default=False
        ),
    ],
    records: Annotated[
        int | None,
        typer.Option(help="How many records the study declares for you.", min=1, show_default=False),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="The unit that the study protects: record, person or party.", show_default=False)
    ] = None,
    reading: Reading = BY_SUFFIX,
    as_json: AsJson = False,
) -> None:
    """Explain every mismatch between a schema and your records. Quotes values, so keep the output to yourself.

    Exits with code 3 when a study could not read the data.

    Example: comity schema check schema.toml records.parquet

    Example: comity schema check schema.toml postgresql+psycopg://reader@host/clinic --table visits
    """
    from comity.data import Schema, explain

    if unit not in (None, "record", "person", "party"):
        raise typer.BadParameter(f"--unit must be record, person or party, found {unit!r}.")
    frame = reading.open(data).read()
    findings = explain(Schema.load(schema), frame, where=data, unit=unit, records=records)
    errors = sum(finding.severity == "error" for finding in findings)
    lines = [
        f"{finding.severity}: {finding.sentence}" + (f" Found: {', '.join(finding.values)}." if finding.values else "")
        for finding in findings
    ]
    verdict = f"{data} fits {schema}" if not errors else f"{data} does not fit {schema}: {errors} to fix"
    document = {"fits": not errors, "records": len(frame), "findings": [asdict(finding) for finding in findings]}
    show([*lines, f"{verdict} ({len(frame)} records)"], document, as_json=as_json)
    if errors:
        raise typer.Exit(BAD_INPUT)


@app.command()
@reads_data
def draft(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A PUBLIC sample: CSV, Parquet, a database's file or URL.", show_default=False
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    identifier: Annotated[str | None, typer.Option(help="The column that identifies the person of a record.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write this file instead of printing the schema.")] = None,
    reading: Reading = BY_SUFFIX,
    as_json: AsJson = False,
) -> None:
    """Draft a schema from a PUBLIC sample. Bounds taken from private data void the guarantee.

    Example: comity schema draft public.csv --target readmitted --out schema.toml
    """
    from comity.data import draft as drafted
    from comity.errors import BadInput
    from comity.files import write_new

    text = drafted(reading.open(data).read(), target=target, identifier=identifier, where=data)
    warn(
        f"WARNING: bounds and values of this draft come from {data}. If its records are PRIVATE, the draft gives them "
        "away and VOIDS THE GUARANTEE of every study that uses it. Draft from a public sample only, and check every "
        "line."
    )
    if out is None:
        show(text, {"schema": text}, as_json=as_json)
        return
    try:
        write_new(out, text)
    except OSError as error:
        raise BadInput(f"{out}: can't be written ({error.strerror}); choose another --out") from error
    show(f"{out}: a draft; check every line", {"schema": text, "path": str(out)}, as_json=as_json)
