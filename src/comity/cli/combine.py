"""`comity combine`: add published shares up into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show


def combine(
    shares: Annotated[
        list[Path],
        typer.Argument(metavar="SHARES...", help="Every participant's share, or a folder of them.", show_default=False),
    ],
    to: Annotated[Path, typer.Option(help="Write the model into this folder.")] = Path("model"),
    as_json: AsJson = False,
) -> None:
    """Add the shares that all participants of a run published into a model that predicts.

    Example: comity combine runs/2026-11-16-1/shares --to model; comity predict model new.parquet
    """
    from comity.artefacts.artefact import save_artefact
    from comity.errors import BadInput, DataError
    from comity.methods.averaging.published.shares import SUFFIX, combined, load_share

    paths: list[Path] = []
    for path in shares:
        within = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not within:
            raise DataError(f"{path}: no file *{SUFFIX} is in this folder; give the shares that were published")
        paths += within
    loaded = [load_share(path) for path in paths]
    model = combined(loaded)
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
