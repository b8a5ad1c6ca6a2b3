"""`comity predict`, `export`, `combine`, `synth`: use what a run released. Nothing here is charged to a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import BY_SUFFIX, AsJson, Reading, reads_data
from comity.cli.output import say, show
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from comity.methods.synthetic.artefact import SyntheticDataset


@reads_data
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model's folder, or the folder of its run.", show_default=False)
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]",
            help="Records: CSV, Parquet, a database file or URL. With --jointly also PARTY=FILE for each party; with "
            "--keys none, because sites have their own.",
            show_default=False,
        ),
    ] = None,
    jointly: Annotated[
        bool,
        typer.Option("--jointly", help="Score records whose columns different parties hold. NOT private."),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="With --jointly: the coordinator's key file, to ask the parties' sites.",
            show_default=False,
        ),
    ] = None,
    invitation: Annotated[Path, typer.Option(help="With --keys: the consortium's invitation.")] = Path(
        "consortium.toml"
    ),
    records: Annotated[
        int | None, typer.Option(help="With --keys: how many new records to score at most.", min=1, show_default=False)
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(metavar="PARTY", help="With --keys: a party that also gets the scores.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="With --keys: the folder for run folders.")] = Path("runs"),
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --keys: continue a prediction.", show_default=False)
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Write this file (.csv or .parquet) instead of printing CSV.")] = None,
    reading: Reading = BY_SUFFIX,
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
                "--keys needs --jointly and --records, and takes no DATA, because sites have their own."
            )
        predicted = _predict_with_sites(model, keys, invitation, records, receiver, out, resume, quiet=as_json)
        _show_predictions(predicted, to, as_json=as_json)
        return
    if receiver is not None or records is not None or resume is not None:
        raise typer.BadParameter("--records, --receiver and --resume need --keys.")
    if not jointly and len(data) != 1:
        raise typer.BadParameter(f"give one file of records, found {len(data)}; for a file per party add --jointly.")
    if jointly and not data:
        raise typer.BadParameter("--jointly needs the records of each party, or --keys to ask the parties' own sites.")
    predicted = _predict_jointly(model, data, reading) if jointly else _predict_locally(model, data[0], reading)
    _show_predictions(predicted, to, as_json=as_json)


def _show_predictions(predicted: pd.DataFrame, to: Path | None, *, as_json: bool) -> None:
    from comity.artefacts.csv_cells import escape_frame

    if to is None:
        text = escape_frame(predicted).to_csv(index=False, float_format="%.6f").rstrip("\n")
        show(text, predicted.to_dict("records"), as_json=as_json)
        return
    _write_table(predicted, to)
    show(f"{to}: {len(predicted)} predictions", {"path": str(to), "records": len(predicted)}, as_json=as_json)


def _predict_locally(model: Path, data: str, reading: Reading) -> pd.DataFrame:
    """Apply the whole model to whole records."""
    from comity.data import Encoding as RecordEncoding
    from comity.learn import load_model

    loaded = load_model(model / "model" if (model / "model").is_dir() else model)
    frame = reading.open(data).read()
    rows: Any = frame
    if isinstance(loaded.encoding, RecordEncoding):
        # Encoding here rather than in the model lets an error name the file.
        rows = loaded.encoding.encode_features(frame, where=data)
    identifier = getattr(getattr(loaded.encoding, "schema", None), "identifier", None)
    kept = [identifier] if identifier in frame.columns else []
    return frame[kept].assign(**loaded.predict_table(rows))


def _predict_jointly(folder: Path, data: list[str], reading: Reading) -> pd.DataFrame:
    """Sum the partial scores of the parties in the run's study; prints the plan to stderr."""
    import pandas as pd

    from comity.cli.run_folder import load_study, read_manifest
    from comity.learn import load_model
    from comity.study.simulation.joint_prediction import predict_jointly

    study = load_study(folder, read_manifest(folder))
    loaded = load_model(folder / "model")
    files = _party_files(data, list(study.consortium.parties))
    frames = {file: reading.open(file).read() for file in dict.fromkeys(files.values())}
    prediction = predict_jointly(
        study, _weights(loaded), {party: frames[file] for party, file in files.items()}, where=files
    )
    say(prediction.plan.as_text(), err=True)
    beside = {} if prediction.ids is None else {str(study.schema.identifier): prediction.ids}
    frame = pd.DataFrame(beside, index=range(len(prediction.scores)))
    return frame.assign(**loaded.predict_table_from_scores(prediction.scores))


def _predict_with_sites(
    folder: Path,
    keys: Path,
    invitation: Path,
    records: int,
    receiver: str | None,
    out: Path,
    resume: Path | None,
    *,
    quiet: bool,
) -> pd.DataFrame:
    """Ask the parties' sites, each with its own columns of new records; their owners must approve."""
    import pandas as pd

    from comity.artefacts.artefact import load_artefact
    from comity.artefacts.table import Table as Figures
    from comity.cli.run_folder import load_study, read_manifest
    from comity.cli.study import submit_study
    from comity.learn import load_model
    from comity.study.prediction import write_prediction
    from comity.study.study import Study

    manifest = read_manifest(folder)
    study = load_study(folder, manifest)
    coef = _weights(load_model(folder / "model"))
    named = f"{records}-{receiver}" if receiver else str(records)
    at = folder / "predictions" / named
    path = write_prediction(study, run=manifest.run, coef=coef, records=records, receiver=receiver, folder=at)
    say(Study.load(path).plan().as_text(), err=True)
    scores = load_artefact(submit_study(path, keys, invitation, out, resume, quiet=quiet) / Figures.place)
    assert isinstance(scores, Figures)
    return pd.DataFrame(list(scores.rows), columns=list(scores.heads))


def _weights(model: Any) -> NDArray[np.float64]:
    import numpy as np

    return np.asarray(getattr(model, "weights", []), np.float64).reshape(-1)


def _party_files(data: list[str], parties: list[str]) -> dict[str, str]:
    """Each party's file: one file for all, or PARTY=FILE for each."""
    # A URL may contain an equals sign.
    if len(data) == 1 and "=" not in data[0].partition("://")[0]:
        return dict.fromkeys(parties, data[0])
    files: dict[str, str] = {}
    for pair in data:
        party, equals, file = pair.partition("=")
        if not equals or party not in parties or party in files:
            raise typer.BadParameter(
                f"--jointly takes one file, or PARTY=FILE once for each of {', '.join(parties)}; found {party!r}."
            )
        files[party] = file
    absent = [party for party in parties if party not in files]
    if absent:
        raise typer.BadParameter(f"--jointly needs the records of every party; {', '.join(absent)} has none.")
    return files


def combine(
    shares: Annotated[
        list[Path],
        typer.Argument(
            metavar="SHARES...", help="Every participant's share, or a folder of shares.", show_default=False
        ),
    ],
    to: Annotated[Path, typer.Option(help="Write the model into this folder.")] = Path("model"),
    as_json: AsJson = False,
) -> None:
    """Add up the shares that all participants of a run published, and write the model.

    Example: comity combine runs/2026-11-16-1/shares --to model; comity predict model new.parquet
    """
    from comity.artefacts.artefact import save_artefact
    from comity.errors import BadInput, DataError
    from comity.methods.averaging.published.shares import SUFFIX, combine_shares, load_share

    paths: list[Path] = []
    for path in shares:
        within = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not within:
            raise DataError(f"{path}: has no file *{SUFFIX}; give the published shares")
        paths += within
    loaded = [load_share(path) for path in paths]
    model = combine_shares(loaded)
    try:
        save_artefact(model, to)
    except OSError as error:
        raise BadInput(f"{to}: the model can't be written ({error.strerror or error}); choose another --to") from error
    run = loaded[0].terms.run
    show(
        f"{to}: the model of run {run}, from {len(loaded)} shares",
        {"path": str(to), "run": run, "shares": len(loaded), "features": model.n_features_in_},
        as_json=as_json,
    )


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    to: Annotated[Path, typer.Option(help="The file to write: .onnx, or .skops for scikit-learn.", show_default=False)],
    form: Annotated[
        str | None, typer.Option("--format", help="onnx or skops, where the file's name does not say.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a released linear model as a file for other programs. It carries the guarantee. This spends nothing.

    Example: comity export runs/2026-11-15-1 --to model.onnx

    Example: comity export runs/2026-11-15-1 --to model.skops
    """
    from comity.learn.export import FORMATS, export_model
    from comity.report.result import load_result

    if form is not None and form not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}, found {form!r}.")
    result = load_result(run)
    export_model(result.presented, to, result.export_metadata(), form)
    document = {"path": str(to), "format": form or to.suffix.removeprefix("."), "guarantee": str(result.guarantee)}
    show(f"{to}: the model of run {result.run}; {result.guarantee}", document, as_json=as_json)


def synth(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run, or of its dataset.", show_default=False),
    ],
    rows: Annotated[int | None, typer.Option(help="How many rows; by default as many as records.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Draw this column again from all others, for models of it.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Counts, shares, means and quantiles of all columns.")] = False,
    by: Annotated[str | None, typer.Option(help="With --table: figures for each group of this column.")] = None,
    correlations: Annotated[bool, typer.Option("--correlations", help="Correlations of ordered columns.")] = False,
    regress: Annotated[str | None, typer.Option(help="Least squares of this column on the others.")] = None,
    on: Annotated[list[str] | None, typer.Option(help="With --regress: on this column; may be repeated.")] = None,
    to: Annotated[Path | None, typer.Option(help="Write this file (.csv or .parquet) instead of printing.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make rows, a Table 1, correlations or a regression from released counts. This spends nothing.

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
        raise typer.BadParameter(f"give one of --rows, --target, --table, --correlations, --regress; found {found}.")
    if by is not None and not table:
        raise typer.BadParameter("--by needs --table.")
    if on and regress is None:
        raise typer.BadParameter("--on needs --regress.")
    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--to writes .csv or .parquet, found {to.name!r}.")
    dataset = _load_dataset(run)
    if rows is not None or target is not None:
        if to is None:
            raise typer.BadParameter("rows go into a file: add --to rows.parquet.")
        _show_rows(dataset.rows(rows, target=target), to, as_json=as_json)
        return
    if table:
        figures = dataset.table_one(by)
    else:
        figures = dataset.correlations() if regress is None else dataset.regression(regress, on)
    if to is not None:
        _show_rows(figures.frame, to, as_json=as_json)
        return
    frame = figures.frame
    text = f"{escape_line(figures.about)}\n{frame.to_string(index=False, float_format=lambda value: f'{value:.4g}')}"
    show(text, {"about": figures.about, "rows": frame.to_dict("records")}, as_json=as_json)


def _load_dataset(run: Path) -> SyntheticDataset:
    from comity.artefacts.artefact import load_artefact
    from comity.errors import BadInput
    from comity.methods.synthetic.artefact import SyntheticDataset

    artefact = load_artefact(run / "data" if (run / "data").is_dir() else run)
    if not isinstance(artefact, SyntheticDataset):
        raise BadInput(f"{run}: holds a {artefact.kind} and no released counts; give a run of a synthetic study")
    return artefact


def _show_rows(frame: pd.DataFrame, to: Path, *, as_json: bool) -> None:
    _write_table(frame, to)
    show(f"{to}: {len(frame):,} rows", {"path": str(to), "rows": len(frame)}, as_json=as_json)


def _write_table(frame: pd.DataFrame, to: Path) -> None:
    """As CSV or Parquet, readable by its owner alone."""
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
