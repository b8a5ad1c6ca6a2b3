"""`comity predict`: apply a released model to records of one's own, or to those that parties hold parts of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import say, show
from comity.cli.records import Decimal, Encoding, PasswordFile, Query, Reading, Separator, Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from comity.study.study import Study


def predict(  # noqa: PLR0913 (a parameter for each option of the command)
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model's folder, or the folder of its run.", show_default=False)
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]",
            help="Records: CSV, Parquet, a database's file or URL. With --jointly also PARTY=FILE for each; with "
            "--keys none, because each party has its own.",
            show_default=False,
        ),
    ] = None,
    jointly: Annotated[
        bool,
        typer.Option("--jointly", help="Of records whose columns different parties hold. NOT private."),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(help="The coordinator's key file: --jointly with the parties' own sites.", show_default=False),
    ] = None,
    relay: Annotated[
        Path, typer.Option(help="With --keys: the coordinator's folder of comity consortium join.")
    ] = Path("relay"),
    records: Annotated[
        int | None, typer.Option(help="With --keys: score at most so many new records.", min=1, show_default=False)
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(metavar="PARTY", help="With --keys: a party that gets the scores too.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="With --keys: where run folders are written.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --keys: go on with a prediction.", show_default=False)
    ] = None,
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

    Example: comity predict runs/2026-11-15-1 --jointly --keys coordinator.key --records 500 --receiver north
    """
    data = data or []
    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--to writes .csv or .parquet, found {to.name!r}.")
    if keys is not None:
        if not jointly or data or records is None:
            raise typer.BadParameter(
                "--keys goes with --jointly and --records, and with no DATA: sites have their own."
            )
        predicted = _with_sites(model, keys, relay, records, receiver, out, resume, quiet=as_json)
        _show(predicted, to, as_json=as_json)
        return
    if receiver is not None or records is not None or resume is not None:
        raise typer.BadParameter("--records, --receiver and --resume go with --keys.")
    if not jointly and len(data) != 1:
        raise typer.BadParameter(f"name one file of records, found {len(data)}; for a file per party add --jointly.")
    reading = Reading(table, query, password_file, separator, decimal, encoding)
    if jointly and not data:
        raise typer.BadParameter("--jointly takes records of each party, or --keys to ask the parties' own sites.")
    predicted = _jointly(model, data, reading) if jointly else _at_home(model, data[0], reading)
    _show(predicted, to, as_json=as_json)


def _show(predicted: pd.DataFrame, to: Path | None, *, as_json: bool) -> None:
    from comity.artefacts.csv_cells import escape_frame
    from comity.errors import BadInput
    from comity.files import make_file

    if to is None:
        text = escape_frame(predicted).to_csv(index=False, float_format="%.6f").rstrip("\n")
        show(text, predicted.to_dict("records"), as_json=as_json)
        return
    try:
        make_file(to)
        if to.suffix == ".csv":
            escape_frame(predicted).to_csv(to, index=False)
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
    import pandas as pd

    from comity.learn import load_model
    from comity.study.simulation.joint_prediction import predict_jointly

    study, _ = _as_run(folder)
    loaded = load_model(folder / "model")
    files = _files(data, list(study.consortium.parties))
    frames = {file: reading.open(file).read() for file in dict.fromkeys(files.values())}
    found = predict_jointly(
        study, _weights(loaded), {party: frames[file] for party, file in files.items()}, where=files
    )
    say(found.plan.as_text(), err=True)
    beside = {} if found.ids is None else {str(study.schema.identifier): found.ids}
    frame = pd.DataFrame(beside, index=range(len(found.scores)))
    return frame.assign(**loaded.of_scores().predicted(found.scores[:, None]))


def _with_sites(
    folder: Path,
    keys: Path,
    relay: Path,
    records: int,
    receiver: str | None,
    out: Path,
    resume: Path | None,
    *,
    quiet: bool,
) -> pd.DataFrame:
    """By the parties' own sites, each with its own columns of new records, where their owners approved that."""
    import pandas as pd

    from comity.artefacts.artefact import load_artefact
    from comity.artefacts.table import Table as Figures
    from comity.cli.deployed import submit_study
    from comity.learn import load_model
    from comity.study.predicting import write_prediction
    from comity.study.study import Study

    study, run = _as_run(folder)
    coef = _weights(load_model(folder / "model"))
    named = f"{records}-{receiver}" if receiver else str(records)
    at = folder / "predictions" / named
    path = write_prediction(study, run=run, coef=coef, records=records, receiver=receiver, folder=at)
    say(Study.load(path).plan().as_text(), err=True)
    found = load_artefact(submit_study(path, keys, relay, out, resume, quiet=quiet) / Figures.place)
    assert isinstance(found, Figures)
    return pd.DataFrame(list(found.rows), columns=list(found.heads))


def _as_run(folder: Path) -> tuple[Study, str]:
    """The study that a run folder describes, and the run's id."""
    from comity.cli.run_folder import read_begun
    from comity.errors import Refused
    from comity.study.study import Study

    begun = read_begun(folder)
    text = (folder / "study.toml").read_text(encoding="utf-8")
    study = Study.parse(text, folder=Path(begun.study_folder), where=str(folder / "study.toml"))
    if study.hash != begun.study_hash:
        raise Refused(
            f"{folder}: the schema or a public file in {begun.study_folder} has changed since this run, which makes it "
            "another study; put the file back",
            code="study",
        )
    return study, begun.run


def _weights(model: Any) -> NDArray[np.float64]:
    import numpy as np

    return np.asarray(getattr(model, "weights", []), np.float64).reshape(-1)


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
