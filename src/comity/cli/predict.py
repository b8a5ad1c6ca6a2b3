"""`comity predict`: apply a released model to records of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import show


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model's folder, or the folder of its run.", show_default=False)
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Records: CSV or Parquet.", show_default=False)],
    to: Annotated[Path | None, typer.Option(help="Write here (.csv or .parquet) instead of printing CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict with a released model: the class of each record, with the probability of each class.

    Example: comity predict runs/2026-11-15-1/model new.parquet --to predicted.csv
    """
    from comity.data import Encoding, open_source
    from comity.errors import BadInput
    from comity.learn import LinearClassifier, LinearRegressor, load_model

    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"--to writes .csv or .parquet, found {to.name!r}.")
    loaded = load_model(model / "model" if (model / "model").is_dir() else model)
    frame = open_source(data).read()
    rows: Any = frame
    if isinstance(loaded, LinearClassifier | LinearRegressor) and loaded.encoding is not None:
        # Encoding here rather than in the model lets an error name the file.
        assert isinstance(loaded.encoding, Encoding)
        rows = loaded.encoding.encode_features(frame, where=str(data))
    predicted = frame.iloc[:, :0].assign(predicted=loaded.predict(rows))
    if not isinstance(loaded, LinearRegressor):
        for label, shares in zip(loaded.classes_, loaded.predict_proba(rows).T):
            predicted[f"p({label})"] = shares
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
