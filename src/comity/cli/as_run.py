"""The text of a study as it was run: with the overrides of the command line in their places."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from comity.untrusted.toml import tables_of

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")


def text_as_run(text: str, overrides: Mapping[str, Any]) -> str:
    """TOML that means the study with its overrides; the author's own text, comments and all, where there are none."""
    if not overrides:
        return text
    tables = tables_of(text)
    for key, value in overrides.items():
        *path, leaf = key.split(".")
        at = tables
        for name in path:
            at = at.setdefault(name, {})
        at[leaf] = value
    return "\n".join(_table(tables, ())).lstrip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    deeper = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if path and (plain or not deeper) else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in deeper.items():
        lines += _table(value, (*path, key))
    return lines


def _key(name: str) -> str:
    return name if _BARE.match(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants the delete character escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(entry)}' for key, entry in value.items())}}}"
    return str(value)
