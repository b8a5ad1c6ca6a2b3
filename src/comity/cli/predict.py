"""`comity predict`: apply a released model to records of one's own, or to those that parties hold parts of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import show
from comity.cli.records import Decimal, Encoding, PasswordFile, Query, Reading, Separator, Table

if TYPE_CHECKING:
    import pandas as pd


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model's folder, or the folder of its run.", show_default=False)
    ],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Records: CSV, Parquet, a database's file or URL. With --jointly also PARTY=FILE for each.",
            show_default=False,
        ),
    ],
    jointly: Annotated[
        bool,
        typer.Option(
            "--jointly", help="Of records whose columns different parties hold, as a simulation. NOT private."
        ),
    ] = False,
    to: Annotated[Path | None, typer.Option(help="Write here (.csv or .parquet) instead of printing CSV.")] = None,
    table: Table = None,
    query: Query = None,
    password_file: PasswordFile = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Predict with a released model: the class of each record, with the probability of each class.

    Example: comity predict runs/2026-11-15-1/model new.parquet --to predicted.csv

    Example: comity predict runs/2026-11-15-1 north=north.csv south=south.csv --jointly
    """
    from comity.errors import BadInput

    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--to writes .csv or .parquet, found {to.name!r}.")
    if not jointly and len(data) != 1:
        raise typer.BadParameter(f"name one file of records, found {len(data)}; for a file per party add --jointly.")
    reading = Reading(table, query, password_file, separator, decimal, encoding)
    predicted = _jointly(model, data, reading) if jointly else _at_home(model, data[0], reading)
    if to is None:
        text = predicted.to_csv(index=False, float_format="%.6f").rstrip("\n")
        show(text, predicted.to_dict("records"), as_json=as_json)
        return
    try:
        if to.suffix == ".csv":
            predicted.to_csv(to, index=False)
        else:
            predicted.to_parquet(to, index=False)
    except OSError as error:
        raise BadInput(
            f"{to}: predictions can't be written ({error.strerror or error}); choose another --to"
        ) from error
    show(f"{to}: {len(predicted)} predictions", {"path": str(to), "records": len(predicted)}, as_json=as_json)


def _at_home(model: Path, data: str, reading: Reading) -> pd.DataFrame:
    """By the whole model, of whole records."""
    from comity.data import Encoding as RecordEncoding
    from comity.learn import load_model

    loaded = load_model(model / "model" if (model / "model").is_dir() else model)
    frame = reading.open(data).read()
    rows: Any = frame
    if isinstance(loaded.encoding, RecordEncoding):
        # Encoding here rather than in the model lets an error name the file.
        rows = loaded.encoding.encode_features(frame, where=data)
    return frame.iloc[:, :0].assign(**loaded.predicted(rows))


def _jointly(folder: Path, data: list[str], reading: Reading) -> pd.DataFrame:
    """By the sum of partial scores, of the study that the run folder describes; the plan goes to stderr."""
    import numpy as np
    import pandas as pd

    from comity.cli.run_folder import read_begun
    from comity.errors import Refused
    from comity.learn import load_model
    from comity.runtime.joint_prediction import predict_jointly
    from comity.runtime.study import Study

    begun = read_begun(folder)
    text = (folder / "study.toml").read_text(encoding="utf-8")
    study = Study.parse(text, folder=Path(begun.study_folder), where=str(folder / "study.toml"))
    if study.hash != begun.study_hash:
        raise Refused(
            f"{folder}: the schema or a public file in {begun.study_folder} has changed since this run, which makes it "
            "another study; put the file back",
            code="study",
        )
    loaded = load_model(folder / "model")
    files = _files(data, list(study.consortium.parties))
    frames = {file: reading.open(file).read() for file in dict.fromkeys(files.values())}
    coef = np.asarray(getattr(loaded, "coef_", []), np.float64)
    found = predict_jointly(
        study, coef.reshape(-1), {party: frames[file] for party, file in files.items()}, where=files
    )
    typer.echo(found.plan.as_text(), err=True)
    beside = {} if found.ids is None else {str(study.schema.identifier): found.ids}
    frame = pd.DataFrame(beside, index=range(len(found.scores)))
    return frame.assign(**loaded.of_scores().predicted(found.scores[:, None]))


def _files(data: list[str], parties: list[str]) -> dict[str, str]:
    """Each party's file: one for all, whose columns are dealt, or PARTY=FILE for each."""
    # A URL may have an equals sign of its own.
    if len(data) == 1 and "=" not in data[0].partition("://")[0]:
        return dict.fromkeys(parties, data[0])
    found: dict[str, str] = {}
    for pair in data:
        party, equals, file = pair.partition("=")
        if not equals or party not in parties or party in found:
            raise typer.BadParameter(
                f"--jointly takes one file, or PARTY=FILE once for each of {', '.join(parties)}; found {party!r}."
            )
        found[party] = file
    absent = [party for party in parties if party not in found]
    if absent:
        raise typer.BadParameter(f"--jointly needs the records of every party; {', '.join(absent)} has none.")
    return found
