"""`comity keys`: a party's key pair. The file stays with its owner; the public keys go into the study file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show

if TYPE_CHECKING:
    from comity.crypto.sealing import PublicIdentity

app = typer.Typer(
    help="A party's keys: one signs, the others open what is sealed to it.\n\nExample: comity keys new north.key",
    no_args_is_help=True,
    rich_markup_mode=None,
)

KeyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The key file.", show_default=False)]
Party = Annotated[str, typer.Option(help="The party's name in the study.")]


@app.command()
def new(path: KeyFile, party: Party = "NAME", as_json: AsJson = False) -> None:
    """Make a key file, readable by its owner alone, and print the public keys to pin in the study.

    Example: comity keys new north.key --party north
    """
    from comity.crypto import key_file
    from comity.federation.declare.consortium import check_party_name

    check_party_name(party, key="party")
    _print(key_file.create(path).public, party, as_json=as_json)


@app.command("show")
def show_keys(path: KeyFile, party: Party = "NAME", as_json: AsJson = False) -> None:
    """Print the public keys of a key file.

    Example: comity keys show north.key --party north
    """
    from comity.crypto import key_file
    from comity.federation.declare.consortium import check_party_name

    check_party_name(party, key="party")
    _print(key_file.load(path).public, party, as_json=as_json)


def _print(public: PublicIdentity, party: str, *, as_json: bool) -> None:
    texts = public.to_texts()
    # A study pins the coordinator's keys in a separate table.
    table = "coordinator.keys" if party == "coordinator" else f"parties.{party}.keys"
    lines = [
        f"# fingerprint: {public.fingerprint}",
        f"[{table}]",
        *(f'{name} = "{text}"' for name, text in texts.items()),
    ]
    show("\n".join(lines), {"party": party, "keys": texts}, as_json=as_json)
