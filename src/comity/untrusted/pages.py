"""JSON that another party may have written or damaged, read into values of declared types.

A dataclass checks nothing, and a text in the place of a number would be noticed only where it is added up. Here it is
noticed where it is read.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

_TOO_LONG = re.compile(r"[0-9]{309}")


def validate(kind: Any, page: Any) -> Any:
    """`page`, which came from JSON, as a `kind`: a dataclass, or a type like `tuple[str, ...]`. A `ValueError` names
    the first value that has another type, is not finite, or is a text that can't be written again."""
    from pydantic import ValidationError

    try:
        text = json.dumps(page, allow_nan=False)
        if _TOO_LONG.search(text):
            # As a float it would be infinite.
            raise ValueError("an integer of more digits than any number has here")
        return _adapter(kind).validate_json(text, strict=True)
    except (ValidationError, TypeError, RecursionError) as error:
        raise ValueError(_describe_first(error)) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _describe_first(error: Any) -> str:
    if not hasattr(error, "errors"):
        return "nested too deeply, or no JSON"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))[:100]
    return f"{place}: {first['msg']}" if place else str(first["msg"])
