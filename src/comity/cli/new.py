"""`comity new`: a folder with a study, its schema and generated data, which runs as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show
from comity.methods import PROTOCOLS, entry_of


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder to make; also the study's name.", show_default=False)
    ],
    protocol: Annotated[str, typer.Option(help=f"The method: {', '.join(PROTOCOLS)}.")] = "softlabel",
    as_json: AsJson = False,
) -> None:
    """Write a study that runs as it is: study.toml, schema.toml and generated records.

    Example: comity new triage --protocol softlabel
    """
    from comity.errors import BadInput
    from comity.files import make_folder, narrow
    from comity.methods.entry import found

    if protocol not in PROTOCOLS:
        raise typer.BadParameter(f"--protocol must be one of {', '.join(PROTOCOLS)}, found {protocol!r}.")
    folder = Path(name)
    if not re.fullmatch(r"[A-Za-z0-9._ -]{1,80}", folder.name):
        raise typer.BadParameter(
            f"a study's name has 1 to 80 letters, digits, spaces, . _ or -; found {folder.name!r}."
        )
    try:
        make_folder(folder, exist_ok=False)
    except FileExistsError:
        raise BadInput(f"{folder}: is there already, and nothing is overwritten; choose another name") from None
    except OSError as error:
        raise BadInput(f"{folder}: can't be made ({error.strerror}); choose another place") from error
    found(entry_of(protocol).starter)(folder)
    narrow(folder)
    files = sorted(path.name for path in folder.iterdir())
    text = (
        f"{folder}: {', '.join(files)}\n  next: cd {folder} && comity plan study.toml && comity run study.toml --seed 7"
    )
    show(text, {"folder": str(folder), "files": files}, as_json=as_json)
