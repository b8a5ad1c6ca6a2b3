from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Classes, Encoding, Numeric, Ordinal, Schema, Tally
from comity.data.encoding import Values
from comity.errors import DataError, SchemaError

SCHEMA = Schema(
    (
        Numeric("age", 0, 100, "fill", 25, edges=(20, 50)),
        Categorical("sex", ("f", "m"), other=True, missing="other"),
        Ordinal("grade", ("low", "mid", "high"), "fill", "mid"),
    ),
    Classes("sick", ("no", "yes")),
    "patient",
)
STRICT = Schema(
    (Numeric("age", 0, 100, integer=True), Categorical("sex", ("f", "m")), Ordinal("grade", ("1", "2"))),
    Bounded("cost", 0, 10),
)


def frame(**changes: object) -> pd.DataFrame:
    columns: dict[str, object] = {
        "age": [50.0, 0.0, 150.0, np.nan],
        "sex": ["f", "m", "x", None],
        "grade": ["low", "mid", "high", None],
        "sick": ["no", "yes", "yes", "no"],
        "patient": [7, 8, 9, 10],
    }
    return pd.DataFrame(columns | changes)


def strict(**changes: object) -> pd.DataFrame:
    columns: dict[str, object] = {"age": [1, 2], "sex": ["f", "m"], "grade": [1, 2], "cost": [-3.0, 4.0]}
    return pd.DataFrame(columns | changes)


def test_symmetric_rows_labels_ids_and_tally() -> None:
    encoding = Encoding(SCHEMA, intercept=True)
    assert encoding.names == ("age", "sex=f", "sex=m", "sex=(other)", "grade", "(intercept)")
    encoded = encoding.encode(frame())
    assert encoded.records.features.tolist() == [
        [0, 1, 0, 0, -1, 1],
        [-1, 0, 1, 0, 0, 1],
        [1, 0, 0, 1, 1, 1],
        [-0.5, 0, 0, 1, 0, 1],
    ]
    assert encoded.records.labels is not None and encoded.records.labels.tolist() == [0, 1, 1, 0]
    assert encoded.records.ids is not None and encoded.records.ids.tolist() == ["7", "8", "9", "10"]
    tally = encoded.tally
    assert (dict(tally.clipped), dict(tally.unknown)) == ({"age": 1}, {"sex": 1})
    assert dict(tally.missing) == {"age": 1, "sex": 1, "grade": 1}
    assert "never sent" in repr(tally) and "age: 1 of 4 clipped" in repr(tally)
    assert (tally + tally).clipped["age"] == 2 and (tally + tally).records == 8
    assert repr(Tally.start(3)) == "Tally(local, never sent: nothing changed)"


def test_unit_scaling_and_bins() -> None:
    encoding = Encoding(SCHEMA.restrict(["age", "grade"]), scaling="unit", bins=True)
    assert encoding.names == ("age<20", "20<=age<50", "50<=age", "grade")
    rows = encoding.encode_features(frame())
    # 50 is the left end of its bin; the missing age is filled with 25.
    assert rows.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0.5], [0, 0, 1, 1], [0, 1, 0, 0.5]]


def test_rows_are_rescaled_as_asked() -> None:
    plain = Encoding(SCHEMA).encode_features(frame())
    norms = np.linalg.norm(plain, axis=1)
    scaled = Encoding(SCHEMA, rows="scaled").encode_features(frame())
    assert np.allclose(scaled, plain / np.sqrt(3), rtol=1e-14)
    assert np.allclose(Encoding(SCHEMA, rows="normalised").encode_features(frame()), plain / norms[:, None], rtol=1e-14)
    numbers = Encoding(Schema((Numeric("a", 0, 1), Numeric("b", 0, 1))), scaling="unit", rows="clipped")
    rows = numbers.encode_features(pd.DataFrame({"a": [0.3, 1, 0], "b": [0.4, 1, 0]}))
    assert np.allclose(rows, [[0.3, 0.4], [0.5**0.5] * 2, [0, 0]], rtol=1e-14)
    normal = Encoding(numbers.schema, scaling="unit", rows="normalised")
    tiny = normal.encode_features(pd.DataFrame({"a": [0.0, 2.6e-162], "b": [0.0, 0.0]}))
    assert np.allclose(tiny, [[0, 0], [1, 0]], rtol=1e-14) and np.abs(tiny).max() <= 1


def test_bounded_target_is_clipped_and_counted() -> None:
    encoded = Encoding(STRICT).encode(strict())
    assert encoded.records.labels is not None and encoded.records.labels.tolist() == [0, 4]
    assert encoded.records.ids is None and dict(encoded.tally.clipped) == {"cost": 1}


def test_columns_are_found_by_name_and_types_do_not_matter() -> None:
    expected = Encoding(STRICT).encode_features(strict())
    shuffled = strict(age=["1", " 2 "], grade=["1.0", "2"], extra=0)[["extra", "grade", "sex", "age"]]
    assert (Encoding(STRICT).encode_features(shuffled) == expected).all()
    odd = strict(
        age=[Decimal(1), Decimal(2)],
        grade=pd.Series([1.0, 2.0]),
        sex=pd.Categorical(["f", "m"], categories=["m", "f", "z"]),
    )
    assert (Encoding(STRICT).encode_features(odd) == expected).all()
    arrow = strict(age=pd.array([1, 2], "Int64"), grade=pd.array([1, 2], "Int64"), sex=pd.array(["f", "m"], "string"))
    assert (Encoding(STRICT).encode_features(arrow) == expected).all()


def test_booleans_match_the_usual_spellings() -> None:
    for values in (("false", "true"), ("False", "True"), ("0", "1"), (False, True)):
        encoding = Encoding(Schema((Ordinal("flag", values),)), scaling="unit")  # type: ignore[arg-type]
        for column in ([False, True], ["False", "True"], ["false", "true"], np.array([False, True])):
            assert encoding.encode_features(pd.DataFrame({"flag": column})).ravel().tolist() == [0, 1]


def test_infinite_values_are_clipped() -> None:
    encoded = Encoding(Schema((Numeric("a", -1, 1),))).encode(pd.DataFrame({"a": [np.inf, -np.inf, 0]}))
    assert encoded.records.features.ravel().tolist() == [1, -1, 0] and encoded.tally.clipped["a"] == 2


@pytest.mark.parametrize("rows", ["none", "scaled", "clipped", "normalised"])
def test_no_records_are_fine(rows: Any) -> None:
    encoded = Encoding(SCHEMA, rows=rows).encode(frame().iloc[:0])
    assert encoded.records.features.shape == (0, 5) and len(encoded.records) == 0
    assert Encoding(SCHEMA).encode(frame().iloc[:0].astype(object)).records.features.shape == (0, 5)


@pytest.mark.parametrize(
    ("changes", "sentence", "key"),
    [
        ({"age": [1, "old"]}, "b.csv: column 'age' expects whole numbers, found a text in record 2 ", "age"),
        ({"age": [1.5, 2.5]}, "column 'age' expects whole numbers, found a number in record 1 and in others", "age"),
        (
            {"age": pd.to_datetime(["2020-01-01"] * 2)},
            "column 'age' expects whole numbers, found a date in record 1",
            "age",
        ),
        ({"age": [1j, 2j]}, "column 'age' expects whole numbers, found", "age"),
        ({"age": [None, 3]}, "column 'age' has no value in record 1 .*missing = 'fill'", "age"),
        ({"age": ["", "3"]}, "column 'age' has no value in record 1 ", "age"),
        (
            {"sex": ["f", "w"]},
            "column 'sex' expects one of 'f', 'm', found a text that is none of them in record 2 .*other = true",
            "sex",
        ),
        ({"sex": ["f", None]}, "column 'sex' has no value in record 2 .*missing = 'other'", "sex"),
        (
            {"grade": [1, 3]},
            "column 'grade' expects one of '1', '2', found a number that is none of them in record 2 .*add the value",
            "grade",
        ),
        ({"grade": [1, None]}, "column 'grade' has no value in record 2 .*missing = 'fill'", "grade"),
        (
            {"cost": [1, None]},
            "column 'cost' has no value in record 2 .*remove records without a target",
            "cost",
        ),
        ({"cost": ["x" * 99, 1]}, r"column 'cost' expects numbers, found a text in record 1", "cost"),
    ],
)
def test_bad_values_name_column_kind_record_and_remedy(changes: Any, sentence: str, key: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        Encoding(STRICT).encode(strict(**changes), "b.csv")
    assert caught.value.key == key and caught.value.code == "bad-data"


def test_missing_column_names_the_nearest_present() -> None:
    with pytest.raises(DataError, match=r"b.csv: column 'age' is missing; did you mean 'Age'") as caught:
        Encoding(STRICT).encode(strict().rename(columns={"age": "Age"}), "b.csv")
    assert (caught.value.code, caught.value.key) == ("missing-column", "age")
    headless = pd.DataFrame([["Quillfeather", 8817]], columns=["Moss", "8812"])
    with pytest.raises(
        DataError, match=r"'age' is missing; none of its 2 columns is like it; check .* header line"
    ) as caught:
        Encoding(STRICT).encode(headless, "b.csv")
    # The header of a file without one is its first record.
    assert "Moss" not in str(caught.value) and "8812" not in str(caught.value)
    with pytest.raises(DataError, match="expected one column 'sex', found 2; rename or remove the surplus"):
        Encoding(STRICT).encode(pd.concat([strict(), strict()[["sex"]]], axis=1))


def test_missing_identifier_is_refused_and_prediction_needs_none() -> None:
    with pytest.raises(DataError, match="column 'patient' identifies records and has no value in record 2 "):
        Encoding(SCHEMA).encode(frame(patient=["a", " ", "c", "d"]))
    assert Encoding(SCHEMA).encode_features(frame().drop(columns=["patient", "sick"])).shape == (4, 5)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"encoding.rows: unknown value 'cliped'; did you mean 'clipped'"):
        Encoding(SCHEMA, rows="cliped")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"encoding.scaling: unknown value 'units'; did you mean 'unit'"):
        Encoding(SCHEMA, scaling="units")  # type: ignore[arg-type]


def test_a_hundred_thousand_records_are_quick() -> None:
    columns = [Numeric(f"n{i}", -1, 1) for i in range(14)] + [Categorical(f"c{i}", tuple("abcd")) for i in range(6)]
    generator = np.random.default_rng(1)
    table = {f"n{i}": generator.normal(size=100_000) for i in range(14)}
    table |= {f"c{i}": np.array(list("abcd"), object)[generator.integers(4, size=100_000)] for i in range(6)}
    data = pd.DataFrame(table)
    begun = time.process_time()
    rows = Encoding(Schema(tuple(columns)), rows="clipped").encode_features(data)
    assert rows.shape == (100_000, 38) and time.process_time() - begun < 3


@pytest.mark.parametrize("rows", ["clipped", "normalised"])
def test_a_wide_row_is_the_same_beside_any_other_rows(rows: Any) -> None:
    """Beyond 8192 entries NumPy adds in pieces that begin where a buffer is full: the rows before decide where."""
    chance = np.random.default_rng(6)
    places = tuple(Categorical(f"c{place}", tuple(f"v{value}" for value in range(3000))) for place in range(3))
    numbers = tuple(Numeric(f"n{place}", -1, 1) for place in range(40))
    encoding = Encoding(Schema((*places, *numbers)), rows=rows)
    columns = [*(chance.integers(0, 3000, 60) for _ in places), *(chance.uniform(-1, 1, 60) for _ in numbers)]
    values = Values(60, tuple(columns))
    whole = encoding.rows_of(values)
    for start, stop in ((1, 60), (2, 60), (3, 9), *((place, place + 1) for place in range(60))):
        np.testing.assert_array_equal(encoding.rows_of(values[start:stop]), whole[start:stop])
