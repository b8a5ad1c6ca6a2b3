"""`comity study`: pack a study for its parties, or submit it to them and run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson, StudyFile
from comity.cli.output import show

app = typer.Typer(
    help="Pack a study for its parties, or submit it to them and run it.\n\n"
    "Example: comity study pack study.toml --keys coordinator.key",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def pack(
    study: StudyFile,
    keys: Annotated[Path, typer.Option(help="The coordinator's key file, which signs.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the pack here.", show_default="NAME-HASH.study")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the study with its schema and public files into one signed file, without [simulation].

    Send it over any channel; a site takes it in with: comity site receive FILE

    Example: comity study pack study.toml --keys coordinator.key
    """
    from comity.crypto import key_file
    from comity.errors import BadInput
    from comity.files import write_new
    from comity.site.pack import pack as pack_study
    from comity.study.study import Study

    loaded = Study.load(study)
    loaded.plan()
    raw = pack_study(loaded, key_file.load(keys))
    path = out or Path(f"{loaded.name.replace(' ', '-')}-{loaded.hash[:12]}.study")
    try:
        write_new(path, raw)
    except OSError as error:
        raise BadInput(f"{path}: the pack can't be written ({error.strerror}); choose another --out") from error
    document = {"path": str(path), "hash": loaded.hash, "bytes": len(raw), "parties": list(loaded.consortium.parties)}
    show([f"{path}: {loaded.name}, study {loaded.hash}"], document, as_json=as_json)


@app.command()
def submit(
    study: StudyFile,
    keys: Annotated[Path, typer.Option(help="The coordinator's key file.", show_default=False)],
    relay: Annotated[Path, typer.Option(help="The coordinator's folder of: comity consortium join")] = Path("relay"),
    out: Annotated[Path, typer.Option(help="Where run folders are written.")] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume a run.", show_default=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver a study to its parties and run it with them. The run starts only once every party has agreed.

    If an owner has not approved the study yet, nothing is spent: use --resume once it has.

    Example: comity study submit study.toml --keys coordinator.key

    Example: comity study submit study.toml --keys coordinator.key --resume runs/2026-11-15-1
    """
    from comity.cli.deployed import submit_study
    from comity.cli.runs import show_run

    show_run(submit_study(study, keys, relay, out, resume, quiet=quiet or as_json), as_json=as_json)
