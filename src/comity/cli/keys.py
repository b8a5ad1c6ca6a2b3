"""`comity keys`: a party's keys. The key file stays with its owner; the study pins the public half."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson, make_group
from comity.cli.output import show
from comity.errors import BadInput

if TYPE_CHECKING:
    from comity.crypto.sealing import Identity, PublicIdentity

app = make_group(
    "The keys of a party: to sign, to open sealed messages, and to connect to a relay.",
    example="comity keys new north.key",
)

KeyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The key file.", show_default=False)]
Party = Annotated[str, typer.Option(help="The party's name in the study.")]


@app.command()
def new(path: KeyFile, party: Party = "NAME", as_json: AsJson = False) -> None:
    """Create a key file, readable by you alone, and print its public keys, for studies to pin and for a consortium.

    Example: comity keys new north.key --party north
    """
    from comity.crypto import key_file
    from comity.federation.declare.consortium import check_party_name

    check_party_name(party, key="party")
    _show_public(key_file.create(path), party, as_json=as_json)


@app.command("show")
def show_keys(path: KeyFile, party: Party = "NAME", as_json: AsJson = False) -> None:
    """Print the public keys of a key file.

    Example: comity keys show north.key --party north
    """
    from comity.crypto import key_file
    from comity.federation.declare.consortium import check_party_name

    check_party_name(party, key="party")
    _show_public(key_file.load(path), party, as_json=as_json)


def _show_public(keys: Identity, party: str, *, as_json: bool) -> None:
    from comity.crypto.public_block import block_text

    document = {"party": party, "keys": keys.to_texts(), "fingerprint": keys.public.fingerprint}
    show(block_text(party, keys).rstrip("\n"), document, as_json=as_json)


TEXTS = ("sign", "mlkem", "x25519")
_KEY_FILE = b"comity-identity-"


def read_key_texts(path: Path, *, key: str) -> dict[str, str]:
    """The public keys in a TOML file that studies and site files pin, at any depth. `key` is the option that named
    the file."""
    from comity.untrusted.toml import BadToml, read_tables

    try:
        found = _keys_in(read_tables(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, BadToml) as error:
        raise BadInput(f"{path}: can't be read as TOML ({error}); write it with: comity keys show", key=key) from error
    if found is None:
        raise BadInput(f"{path}: has no keys sign, mlkem and x25519; write it with: comity keys show", key=key)
    return found


def read_public_keys(path: Path, *, key: str) -> PublicIdentity:
    """The public keys in a key file, or in a TOML file of public keys."""
    from comity.crypto import key_file
    from comity.crypto.sealing import PublicIdentity

    try:
        is_key_file = path.read_bytes()[: len(_KEY_FILE)] == _KEY_FILE
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); give a file of keys", key=key) from error
    if is_key_file:
        return key_file.load(path).public
    try:
        return PublicIdentity.from_texts(read_key_texts(path, key=key))
    except ValueError as error:
        raise BadInput(
            f"{path}: sign, mlkem and x25519 are hexadecimal text; write it with: comity keys show", key=key
        ) from error


def _keys_in(table: Any) -> dict[str, str] | None:
    """The public keys in a table, or in one inside it."""
    if not isinstance(table, dict):
        return None
    if set(TEXTS) <= set(table):
        return {name: str(table[name]) for name in TEXTS}
    return next((found for inner in table.values() if (found := _keys_in(inner)) is not None), None)
