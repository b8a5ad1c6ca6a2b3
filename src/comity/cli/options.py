"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from comity.untrusted.toml import BadToml, tables_of

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, study.toml.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key for a simulation: --set privacy.epsilon=0.5"),
]


def overrides(sets: Sequence[str] | None) -> dict[str, Any]:
    """`table.key=value` pairs; a value is read as TOML where it is TOML, and as text otherwise."""
    found: dict[str, Any] = {}
    for pair in sets or ():
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise typer.BadParameter(f"--set expects TABLE.KEY=VALUE, as in privacy.epsilon=0.5; found {pair!r}.")
        found[key.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        table = tables_of(f"value = {text}")
    except BadToml:
        return text
    return table["value"] if set(table) == {"value"} else text
