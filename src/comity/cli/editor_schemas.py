"""`comity schema json`: JSON schemas of study, schema and site files, made from the classes that validate these files.

An editor that knows JSON schemas (taplo, Even Better TOML) completes keys with them and marks unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.key_meanings import describe_keys
from comity.cli.output import show

if TYPE_CHECKING:
    from pydantic import BaseModel

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Kind(StrEnum):
    STUDY = "study"
    SCHEMA = "schema"
    SITE = "site"


def json_schema(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="study, schema or site.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it here instead of printing it.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON schema of study files, schemas or site files, for an editor.

    Example: comity schema json study --to study.schema.json
    """
    makers: dict[Kind, Callable[[], dict[str, Any]]] = {
        Kind.STUDY: study_schema,
        Kind.SCHEMA: schema_schema,
        Kind.SITE: site_schema,
    }
    document = makers[kind]()
    if to is None:
        show("", document, as_json=True)
        return
    import json

    from comity.files import write_atomically

    write_atomically(to, json.dumps(document, indent=1) + "\n")
    show(str(to), {"path": str(to)}, as_json=False)


def study_schema() -> dict[str, Any]:
    """The tables of a study file, with one table for each method."""
    from comity.methods import PROTOCOLS, method_of
    from comity.study.tables import PartyTable, StudyFile

    page = StudyFile.model_json_schema()
    kinds: dict[str, type[BaseModel]] = {"PartyTable": PartyTable, **{name: method_of(name) for name in PROTOCOLS}}
    for name, kind in kinds.items():
        own = kind.model_json_schema()
        page["$defs"] |= {**own.pop("$defs", {}), name: own}
    page["properties"] |= {name: {"$ref": f"#/$defs/{name}"} for name in PROTOCOLS}
    for name, table in page["$defs"].items():
        describe_keys(name, table)
    page["$defs"]["StudyTable"]["properties"]["protocol"]["enum"] = list(PROTOCOLS)
    count = {"type": "integer", "minimum": 1, "description": "how many unnamed parties, for a simulation"}
    page["properties"]["parties"] = {
        "type": "object",
        "properties": {"count": count},
        "additionalProperties": {"$ref": "#/$defs/PartyTable"},
    }
    return {"$schema": _DRAFT, **page, "title": "A study of Comity"}


def site_schema() -> dict[str, Any]:
    from comity.site.site_file import SiteTables

    page = SiteTables.model_json_schema()
    for name, table in (("SiteTables", page), *page["$defs"].items()):
        describe_keys(name, table)
    return {"$schema": _DRAFT, **page, "title": "A site of Comity"}


def schema_schema() -> dict[str, Any]:
    """Columns by kind, a target of classes or with bounds, an identifier, and what no record can be."""
    from pydantic import TypeAdapter

    from comity.data.schemas.schema import KINDS

    kinds, definitions = [], dict[str, Any]()
    for kind, column in KINDS.items():
        own = TypeAdapter(column).json_schema()
        definitions |= own.pop("$defs", {})
        properties = {"kind": {"const": kind}, **{key: one for key, one in own["properties"].items() if key != "name"}}
        required = ["kind", *(key for key in own.get("required", ()) if key != "name")]
        kinds.append({**own, "properties": properties, "required": required, "additionalProperties": False})
    number, text = {"type": "number"}, {"type": "string"}
    target = {
        "type": "object",
        "properties": {"name": text, "classes": {"type": "array", "items": text}, "low": number, "high": number},
        "required": ["name"],
        "additionalProperties": False,
    }
    identifier = {
        "type": "object",
        "properties": {"name": text},
        "required": ["name"],
        "additionalProperties": False,
    }
    impossible = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}, "minProperties": 2}
    return {
        "$schema": _DRAFT,
        "title": "A schema of Comity",
        "type": "object",
        "properties": {
            "columns": {"type": "object", "additionalProperties": {"oneOf": kinds}},
            "target": target,
            "identifier": identifier,
            "impossible": {"type": "array", "items": impossible},
        },
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }
