"""A document of the dossier as values, and its forms: Markdown, HTML by a template, JSON.

A field that only the organisation can fill in is blank. Texts of a study's author are quoted: none becomes markup.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from comity.untrusted.text import escape_line

BLANK = "________"
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True)
class Field:
    """A question with its answer; `text` is empty where the organisation has to answer."""

    name: str
    text: str = ""
    by_author: bool = False

    @property
    def is_blank(self) -> bool:
        return not self.text


@dataclass(frozen=True)
class Part:
    """A heading with sentences and fields."""

    heading: str
    sentences: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Document:
    """`key` names its file; `note` says what it is and is not."""

    key: str
    title: str
    note: str
    parts: tuple[Part, ...]

    @property
    def blanks(self) -> tuple[str, ...]:
        return tuple(f"{part.heading}: {one.name}" for part in self.parts for one in part.fields if one.is_blank)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"blanks": list(self.blanks)}

    def as_markdown(self) -> str:
        lines = [f"# {quote(self.title)}", "", quote(self.note), ""]
        for part in self.parts:
            lines += [f"## {part.heading}", ""]
            lines += [f"- {quote(sentence)}" for sentence in part.sentences]
            lines += [f"- **{one.name}:** {_answer(one)}" for one in part.fields]
            lines.append("")
        return "\n".join(lines)


def _answer(one: Field) -> str:
    if one.is_blank:
        return BLANK.replace("_", r"\_")
    return f"“{quote(one.text)}” (the author's words)" if one.by_author else quote(one.text)


def quote(text: str) -> str:
    """A text as Markdown shows it: one line, and nothing in it is markup."""
    return _MARKUP.sub(r"\\\1", escape_line(text))
