"""`comity schema`: check data against a schema; draft a schema from a public sample."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.editor_schemas import json_schema
from comity.cli.failure import BAD_INPUT
from comity.cli.options import BY_SUFFIX, AsJson, Reading, make_group, reads_data
from comity.cli.output import show, warn

if TYPE_CHECKING:
    from comity.data import Schema, Source
    from comity.study.study import Study

app = make_group("The public description of a record.", example="comity schema check schema.toml records.parquet")


@app.command()
@reads_data
def check(
    schema: Annotated[
        Path,
        typer.Argument(
            metavar="SCHEMA", help="The schema, or with --party the study, a TOML file.", show_default=False
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Your records: CSV, Parquet, a database's file or URL. With --party: by default what the study or the "
            "site file names.",
            show_default=False,
        ),
    ] = None,
    party: Annotated[
        str | None,
        typer.Option(help="Check the columns that this party of the study holds, and no others.", show_default=False),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(help="The site file that names the party's records, with their rename, recode, format and unit."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Which dataset of the site file, if it has several.", show_default=False)
    ] = None,
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

    Example: comity schema check study.toml --party north

    Example: comity schema check study.toml --party north --site site.toml
    """
    from comity.data import explain_source

    if unit not in (None, "record", "person", "party"):
        raise typer.BadParameter(f"--unit must be record, person or party, found {unit!r}.")
    checked = _find_records(schema, data, reading, party, site, dataset)
    unit, records = unit or checked.unit, records or checked.declared
    findings, count = explain_source(checked.schema, checked.source, checked.where, unit=unit, records=records)
    data = checked.where
    errors = sum(finding.severity == "error" for finding in findings)
    lines = [
        f"{finding.severity}: {finding.sentence}" + (f" Found: {', '.join(finding.values)}." if finding.values else "")
        for finding in findings
    ]
    verdict = f"{data} fits {schema}" if not errors else f"{data} does not fit {schema}: {errors} to fix"
    document = {"fits": not errors, "records": count, "findings": [asdict(finding) for finding in findings]}
    show([*lines, f"{verdict} ({count} records)"], document, as_json=as_json)
    if errors:
        raise typer.Exit(BAD_INPUT)


@dataclass(frozen=True)
class _Checked:
    """Records, the schema that they are checked against, and what the study declares about them."""

    schema: Schema
    source: Source
    where: str
    unit: str | None = None
    declared: int | None = None


def _find_records(
    schema: Path, data: str | None, reading: Reading, party: str | None, site: Path | None, dataset: str | None
) -> _Checked:
    from comity.data import Schema

    if party is not None:
        return _find_party_records(schema, data, reading, party, site, dataset)
    if site is not None or dataset is not None:
        raise typer.BadParameter("--site and --dataset need --party: comity schema check study.toml --party NAME")
    if data is None:
        raise typer.BadParameter(
            "give the records, as in: comity schema check schema.toml records.csv; or a study and a party: comity "
            "schema check study.toml --party NAME"
        )
    return _Checked(Schema.load(schema), reading.open(data), data)


def _find_party_records(
    path: Path, data: str | None, reading: Reading, party: str, site: Path | None, dataset: str | None
) -> _Checked:
    """The part of a study's schema that a party holds, and its records: DATA, those of the site file, or those that the
    study's simulation reads."""
    from comity.errors import StudyError, did_you_mean
    from comity.site.approval import choose_dataset
    from comity.site.site_file import SiteFile
    from comity.study.records.encoding import encoding_of
    from comity.study.records.sources import listed_parties
    from comity.study.study import Study
    from comity.study.tables import is_one_source

    study = Study.load(path)
    if isinstance(study.parties, int) or party not in study.parties:
        names = () if isinstance(study.parties, int) else tuple(study.parties)
        raise StudyError(f"{path}: the study has no party {party!r}{did_you_mean(party, names)}", key="parties")
    own, declared = encoding_of(study.protocol, str(path), party).schema, study.method.declared_records(party)
    if data is not None:
        source, where = reading.open(data), data
    elif site is not None:
        file = SiteFile.load(site)
        name = choose_dataset(file, dataset)
        source, where = file.source(name), f"{site}: data.{name}"
    else:
        source, where = _simulated_source(study, party)
        # One file has the records of all parties.
        declared = None if is_one_source(study.simulation.data, listed_parties(study)) else declared
    return _Checked(own, source, where, study.privacy.unit.value, declared)


def _simulated_source(study: Study, party: str) -> tuple[Source, str]:
    from comity.errors import StudyError
    from comity.study.records.sources import listed_parties, name_source, open_named
    from comity.study.tables import is_one_source

    data = study.simulation.data
    if data is None or (not is_one_source(data, listed_parties(study)) and party not in data):
        raise StudyError(
            f"{study.where}: simulation.data names no records of {party}; give them: comity schema check "
            f"{study.where} DATA --party {party}, or --site site.toml",
            key="simulation.data",
        )
    one = is_one_source(data, listed_parties(study))
    value, key = (data, "simulation.data") if one else (data[party], f"simulation.data.{party}")
    return open_named(study, value, key), name_source(study, value)


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


app.command("json")(json_schema)
