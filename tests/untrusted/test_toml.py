"""TOML texts that the parser of the standard library fails on, or lets pass though nobody can use them."""

from __future__ import annotations

import random
import string

import pytest

from comity.errors import SchemaError
from comity.untrusted.toml import MAX_DEPTH, BadToml, parse_toml, read_tables

HOSTILE = {
    "deep list": "a = " + "[" * 100_000 + "]" * 100_000,
    "open list": "a = " + "[" * 100_000,
    "deep inline table": "a = " + "{b = " * 50_000 + "1" + "}" * 50_000,
    "deep dotted key": "a" + ".a" * 5_000 + " = 1",
    "deep header": "[a" + ".a" * 5_000 + "]",
    "long integer": "a = " + "9" * 5_000,
    "long hexadecimal integer": "a = 0x" + "f" * 5_000,
    "integer of 65 bits": "a = 9223372036854775808",
    "no such day": "a = 2026-02-30",
    "no such offset": "a = 2026-02-28T00:00:00+99:99",
    "half a character": 'a = "\\ud800"',
    "control character": "a = '\x00'",
    "twice": "a = 1\na = 2",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_can_not_be_used_is_one_kind_of_error(kind: str) -> None:
    with pytest.raises(BadToml) as wrong:
        read_tables(HOSTILE[kind])
    assert len(str(wrong.value)) < 300
    with pytest.raises(SchemaError, match=r"^schema.toml: not valid TOML: "):
        parse_toml(HOSTILE[kind], "schema.toml", SchemaError)


def test_what_people_write_is_read() -> None:
    deep = "a" + ".a" * (MAX_DEPTH - 1) + " = 1"
    assert read_tables(deep) and read_tables(
        "a = -9223372036854775808\nb = [[1], {c = 9223372036854775807}]\nd = 1e400"
    )
    with pytest.raises(BadToml, match="nested more than"):
        read_tables("a" + ".a" * (MAX_DEPTH + 1) + " = 1")


def test_random_texts_raise_nothing_else() -> None:
    rng = random.Random(7)
    words = [
        "[",
        "]",
        "{",
        "}",
        "=",
        "a",
        ".",
        '"',
        "'''",
        "\n",
        "0x",
        "1",
        "-",
        ":",
        "T",
        "e",
        ",",
        "#",
        "\\u",
        "\\",
        "\r",
    ]
    for _ in range(3_000):
        text = "".join(rng.choice(words + list(string.printable)) for _ in range(rng.randint(1, 40)))
        try:
            read_tables(text)
        except BadToml:
            continue
