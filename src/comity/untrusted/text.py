"""Text that may come from another party, on its way to a terminal or a log.

Promise    No character of it moves the cursor, changes colours, hides, reorders or joins lines: control characters (C0,
           C1, DEL), overrides of the writing direction, zero-width and other invisible ones are written as \\uXXXX.
           JSON stays JSON, with the same escapes inside its strings.
Against    A submitter, coordinator or author that puts them into names, keys, paths or sentences of a study, a schema,
           a result or a message.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any, Final

MAX_SENTENCE: Final = 2000
"""Characters of an error's sentence, or of a line of a log, at most."""
# Letters and marks that fonts draw as nothing: joiners, fillers, variation selectors.
_INVISIBLE: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def escape_lines(text: str) -> str:
    """A text of several lines. Its line ends stay: the caller joined the lines."""
    return "\n".join(map(escape_line, text.split("\n")))


def escape_line(text: str) -> str:
    """A text as one line: line ends are escaped too."""
    return text if text.isascii() and text.isprintable() else "".join(map(_escape, text))


def shorten(text: str) -> str:
    """A sentence that quotes another party, without its middle where it exceeds `MAX_SENTENCE`: a quoted name may
    have megabytes, and every refusal is logged."""
    if len(text) <= MAX_SENTENCE:
        return text
    half = MAX_SENTENCE // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"


def encode_json(document: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """One JSON document. Letters of all languages stay readable."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=default)
    if text.isascii() and "\x7f" not in text:
        return text
    # Line ends belong to the layout: inside strings JSON escapes them.
    return "".join(one if one == "\n" or not is_hidden(one) else _json_escape(one) for one in text)


def is_hidden(character: str) -> bool:
    """Whether a character is invisible or acts on the terminal."""
    if character.isprintable():
        return character in _INVISIBLE
    return unicodedata.category(character) != "Zs"


def _escape(character: str) -> str:
    if not is_hidden(character):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"
