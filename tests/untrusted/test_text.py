"""Text of others on its way to a terminal or a log."""

from __future__ import annotations

import json

import pytest

from comity.untrusted.text import encode_json, escape_line, escape_lines, is_hidden

HIDDEN = {
    "C0": "\x00\x07\x08\t\r\x1b\x1f",
    "DEL": "\x7f",
    "C1": "\x80\x85\x9b\x9d\x9f",
    "direction": "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u180e",
    "fillers and selectors": "\u115f\u1160\u3164\uffa0\ufe00\ufe0f\U000e0100\U000e01ef",
    "tags": "\U000e0001\U000e0041\U000e007f",
    "lines": "\u2028\u2029",
    "halves": "\ud800\udfff",
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_acts_or_hides_is_written_out(kind: str) -> None:
    for one in HIDDEN[kind]:
        code = f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        assert is_hidden(one) and escape_line(f"a{one}b") == escape_lines(f"a{one}b") == f"a{code}b"
        document = {f"k{one}": [one, "é"]}
        text = encode_json(document, indent=2)
        assert json.loads(text) == document and not [left for left in text if left != "\n" and is_hidden(left)]


def test_text_of_every_language_stays_as_it_is() -> None:
    plain = "Zürich · naïve … 東京　都 · Ελλάδα · עברית · हिन्दी · 1\u00a0000 € ≤ 😀"
    assert escape_line(plain) == escape_lines(plain) == plain
    assert encode_json({"name": plain}) == json.dumps({"name": plain}, ensure_ascii=False)


def test_line_ends_stay_where_the_text_was_put_together_of_lines() -> None:
    assert escape_lines("one\ntwo\x1b\n") == "one\ntwo\\u001b\n"
    assert escape_line("one\ntwo") == "one\\u000atwo"
    assert encode_json({"a": "one\ntwo\x7f"}, indent=1) == '{\n "a": "one\\ntwo\\u007f"\n}'
