"""CSV as people have it: other separators, decimal commas, other encodings, ragged and empty files.

Each is recognised and named with the key that reads it, and no error text quotes a record.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.data import Categorical, Classes, Csv, Encoding, Numeric, Schema, explain, open_source
from comity.errors import BadInput, DataError

SCHEMA = Schema((Numeric("age", 0, 120), Numeric("dose", 0, 9)), Classes("sick", ("no", "yes")))
SECRET = ("Quillfeather", "8817", "77,25")


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def refusal(path: Path, **options: str) -> str:
    """What every way of reading says, which must be the same sentence."""
    table = {"source": "csv", "path": str(path), **options}
    said = []
    for act in (lambda: open_source(table).read(), lambda: list(open_source(table).batches(None, 5))):
        with pytest.raises(DataError) as caught:
            act()
        assert "\n" not in str(caught.value)
        # A chained error would carry the library's text, which quotes the record, into a log.
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        said.append(str(caught.value))
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize(
    ("separator", "word", "key"),
    [(";", "semicolons", 'separator = ";"'), ("\t", "tabs", 'separator = "\\t"'), ("|", "bars", 'separator = "|"')],
)
def test_another_separator_is_named_with_the_key_that_reads_it(
    tmp_path: Path, separator: str, word: str, key: str
) -> None:
    lines = [["age", "dose", "sick"], ["34", "1.5", "no"], ["71", "2.5", "yes"]]
    path = written(tmp_path / "t.csv", "\n".join(separator.join(line) for line in lines) + "\n")
    sentence = refusal(path)
    assert f"t.csv is separated by {word}" in sentence and key in sentence
    read = open_source({"source": "csv", "path": str(path), "separator": separator}).read()
    assert list(read.columns) == ["age", "dose", "sick"] and read["dose"].tolist() == [1.5, 2.5]


def test_a_separator_is_recognised_where_decimal_commas_make_rows_ragged(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "name;age;dose\nQuillfeather;8817;77,25\nMoss;3;1,5\n")
    sentence = refusal(path)
    assert "separated by semicolons" in sentence and 'decimal = ","' in sentence
    assert not [word for word in SECRET if word in sentence]
    read = open_source({"source": "csv", "path": str(path), "separator": ";", "decimal": ","}).read()
    assert read["dose"].tolist() == [77.25, 1.5] and read["age"].tolist() == [8817, 3]


@pytest.mark.parametrize(
    "text",
    ["note\na;b\nc;d\n", '"a;b",c\n1,2\n', "a,b\nx;y,z\n", "a\n1\n2\n", 'n,t\n1,"x\ty"\n', "a,b;c\n1,2\n3,4\n"],
)
def test_a_file_with_commas_is_not_taken_for_another(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "t.csv", text)
    rows = list(csv.reader(io.StringIO(text)))
    assert Csv(path).read().shape == (len(rows) - 1, len(rows[0]))


def test_one_column_with_a_semicolon_in_its_name_can_be_read(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "a;b\n1;2\n")
    assert list(Csv(path, separator=",").read().columns) == ["a;b"]


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("latin-1", "latin-1"), ("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le")],
)
@pytest.mark.parametrize("header", [True, False])
def test_another_encoding_is_named_with_the_key_that_reads_it(
    tmp_path: Path, encoding: str, named: str, header: bool
) -> None:
    price = "price €" if encoding == "cp1252" else "prix"
    head, cell = (
        (f"médecin,{price}", "x")
        if header
        else (f"doctor,{'p' if encoding == 'latin-1' else 'price'}", "é€" if encoding == "cp1252" else "é")
    )
    path = written(tmp_path / "t.csv", f"{head}\n{cell},2\n" + "Quillfeather,8817\n" * 5, encoding)
    sentence = refusal(path)
    assert f'encoding = "{named}"' in sentence and "not UTF-8" in sentence
    assert not [word for word in SECRET if word in sentence]
    read = open_source({"source": "csv", "path": str(path), "encoding": named}).read()
    assert list(read.columns) == head.split(",") and read.iloc[0, 0] == cell


def test_an_encoding_beyond_the_first_block_is_found_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"age,name\n" + b"34,Moss\n" * 200_000 + "35,Zoë\n".encode("latin-1"))
    assert 'encoding = "latin-1"' in refusal(path)
    assert len(Csv(path, encoding="latin-1").read()) == 200_001


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "﻿age,dose\n1,2\n")
    assert list(Csv(path).read().columns) == ["age", "dose"]


def test_a_ragged_row_is_named_by_its_line_and_not_quoted(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "name,age\nMoss,3\nQuillfeather,8817,77.25\n")
    sentence = refusal(path)
    assert "line 3 has 3 fields where the header has 2" in sentence and "quotes" in sentence
    assert not [word for word in SECRET if word in sentence]


def test_an_open_quote_does_not_quote_the_rest_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", 'name,age\nMoss,3\n"Quillfeather,8817\nReed,5\n')
    sentence = refusal(path)
    assert "t.csv can't be read" in sentence and not [word for word in SECRET if word in sentence]


def test_a_decimal_comma_is_named_with_the_key_that_reads_it(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", 'age,dose,sick\n34,"1,5",no\n71,"77,25",yes\n')
    frame = Csv(path).read()
    with pytest.raises(DataError) as caught:
        Encoding(SCHEMA).encode(frame, str(path))
    (finding,) = [one for one in explain(SCHEMA, frame, str(path)) if one.severity == "error"]
    for sentence in (str(caught.value), finding.sentence):
        assert "decimal comma" in sentence and 'decimal = ","' in sentence and "77,25" not in sentence
    assert Csv(path, decimal=",").read()["dose"].tolist() == [1.5, 77.25]


def test_points_under_a_decimal_comma_are_not_guessed_at(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "age;dose\n1;1.500\n2;2.000\n")
    sentence = refusal(path, separator=";", decimal=",")
    assert "'dose'" in sentence and "points" in sentence and "1.500" not in sentence
    assert Csv(path, separator=";").read()["dose"].tolist() == [1.5, 2.0]


@pytest.mark.parametrize("text", ["", "\n", "﻿", "\n\n"])
def test_a_file_without_a_byte_is_a_file_without_records(tmp_path: Path, text: str) -> None:
    empty, header = written(tmp_path / "zero.csv", text), written(tmp_path / "header.csv", "age,dose,sick\n")
    for path in (empty, header):
        records = Encoding(SCHEMA).encode(open_source(path).read(), str(path)).records
        assert records.features.shape == (0, 2) and records.labels is not None and len(records.labels) == 0
        assert open_source(path).read(["dose"]).shape == (0, 1)
        (part,) = open_source(path).batches(["dose"], 5)
        assert part.shape == (0, 1)
        findings = explain(SCHEMA, open_source(path).read(), path.name)
        assert [(one.severity, one.column) for one in findings] == [("warning", "")]
        assert findings[0].sentence.startswith(f"{path.name}: holds no records")


def test_a_table_without_columns_that_has_rows_misses_its_columns() -> None:
    with pytest.raises(DataError, match="column 'age' is missing"):
        Encoding(SCHEMA).encode(pd.DataFrame(index=range(3)))


cell = st.text(st.sampled_from("ab é0123456789,;.\t|\"'\n"), max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(cell, min_size=1, max_size=4), min_size=0, max_size=6),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["utf-8", "latin-1", "utf-16"]),
)
def test_whatever_a_file_holds_no_error_quotes_its_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], separator: str, encoding: str
) -> None:
    """Every cell has marks around it that stand nowhere else: a text with more than one pair quotes a record.

    `values` are those of one column, each looked at alone: two of them are two records' cells, not one record.
    """
    path = tmp_path_factory.mktemp("any") / "t.csv"
    marked = [[f"<{one}>" for one in row] for row in rows]
    path.write_bytes("\n".join(["age,dose,sick", *(separator.join(row) for row in marked)]).encode(encoding))
    try:
        frame = open_source(path).read()
        said = [text for one in explain(SCHEMA, frame, "t") for text in (one.sentence, *one.values)]
        assert not [one for one in said if one.count("<") > 1]
        Encoding(SCHEMA).encode(frame, "t")
    except BadInput as error:
        assert str(error).count("<") <= 1


def test_a_value_that_could_be_a_record_is_described_and_not_quoted() -> None:
    schema = Schema((Categorical("ward", ("a", "b")), Numeric("age", 0, 9)))
    for bad in (
        "Quillfeather;8817;77",
        "Quillfeather\t8817",
        "Quillfeather of the old mill lane",
        'Quill"8817',
        "a|8817",
    ):
        for frame in (pd.DataFrame({"ward": [bad], "age": [1]}), pd.DataFrame({"ward": ["a"], "age": [bad]})):
            with pytest.raises(DataError) as caught:
                Encoding(schema).encode(frame)
            findings = explain(schema, frame)
            said = " ".join([str(caught.value), *(f"{one.sentence} {one.values}" for one in findings)])
            assert "Quill" not in said and "8817" not in said
            assert "found a text" in str(caught.value)


def test_infinite_numbers_are_named(tmp_path: Path) -> None:
    frame = Csv(written(tmp_path / "t.csv", "age,dose,sick\ninf,1,no\n-inf,2,yes\n3,100,no\n")).read()
    found = {one.column: one for one in explain(SCHEMA, frame, "t.csv")}
    assert found["age"].severity == "warning" and "2 of 3 values are infinite" in found["age"].sentence
    assert "infinite" not in found["dose"].sentence and "1 of 3 values are outside" in found["dose"].sentence
    assert np.isfinite(Encoding(SCHEMA).encode(frame).records.features).all()
