from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.data import (
    Bounded,
    Categorical,
    Numeric,
    Schema,
    split_by_anchors,
    split_by_column,
    split_by_sizes,
    split_columns,
    split_evenly,
)
from comity.entropy import Stream
from comity.errors import DataError, StudyError


def stream() -> Stream:
    return Stream.public("partition test")


def assert_each_once(parts: Any, n: int) -> None:
    assert sorted(index for part in parts for index in part.tolist()) == list(range(n))


@given(st.integers(1, 200), st.data())
def test_even_deals_every_record_once(n: int, data: Any) -> None:
    parties = data.draw(st.integers(1, n))
    parts = split_evenly(n, parties, stream())
    assert_each_once(parts, n)
    assert len(parts) == parties
    assert {len(part) for part in parts} <= {n // parties, -(-n // parties)}


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9))
def test_by_counts_gives_those_counts(sizes: list[int]) -> None:
    parts = split_by_sizes(sum(sizes), sizes, stream())
    assert_each_once(parts, sum(sizes))
    assert [len(part) for part in parts] == sizes


@given(st.integers(0, 300), st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_by_shares_is_within_one_of_each_share(n: int, weights: list[float]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    parts = split_by_sizes(n, shares, stream())
    assert_each_once(parts, n)
    assert all(abs(len(part) - share * n) < 1 + 1e-6 for part, share in zip(parts, shares))


@given(st.lists(st.floats(-1e6, 1e6), max_size=80), st.integers(1, 9))
def test_by_anchors_deals_every_record_once(values: list[float], parties: int) -> None:
    parts = split_by_anchors(np.array(values), parties, stream())
    assert len(parts) == parties
    assert_each_once(parts, len(values))


def test_by_anchors_follows_the_published_probabilities() -> None:
    # With anchors uniform on [0, 1], those of this stream are its first draws.
    anchors = stream().uniform(3)
    parts = split_by_anchors(np.full((200_000, 2), [9.0, 0.3]), 3, stream(), column=1, low=0, high=1)
    weights = 1 / (np.abs(0.3 - anchors) + 0.001)
    assert np.allclose([len(part) / 200_000 for part in parts], weights / weights.sum(), atol=0.006)


def test_by_anchors_makes_parties_differ() -> None:
    values = np.random.default_rng(0).uniform(size=20_000)
    means = [values[part].mean() for part in split_by_anchors(values, 6, stream())]
    assert max(means) - min(means) > 0.1
    assert max(values[part].mean() for part in split_evenly(20_000, 6, stream())) < 0.53


def test_splits_repeat_with_their_label_and_differ_without() -> None:
    first, again = split_evenly(50, 4, stream()), split_evenly(50, 4, stream())
    assert all((a == b).all() for a, b in zip(first, again))
    assert any((a != b).any() for a, b in zip(first, split_evenly(50, 4, Stream.public("another"))) if len(a) == len(b))


@given(st.lists(st.sampled_from(["north", "south", "7"]), max_size=60))
def test_by_column_has_a_party_per_value(values: list[str]) -> None:
    parts = split_by_column(pd.DataFrame({"site": pd.Series(values, dtype=object)}), "site")
    assert list(parts) == sorted(set(values))
    assert_each_once(parts.values(), len(values))
    assert all(values[index] == name for name, part in parts.items() for index in part)


SCHEMA = Schema(
    (Numeric("age", 0, 1), Numeric("lab_a", 0, 1), Numeric("lab_b", 0, 1), Categorical("sex", ("f", "m"))),
    Bounded("cost", 0, 1),
    "patient",
)


def test_by_features_gives_every_column_to_one_party() -> None:
    split = split_columns(SCHEMA, {"north": ["cost", "age"], "south": "lab_*", "west": ["s?x"]})
    assert split == {"north": ("age", "cost"), "south": ("lab_a", "lab_b"), "west": ("sex",)}


@pytest.mark.parametrize(
    ("act", "kind", "sentence"),
    [
        (lambda: split_evenly(3, 4, stream()), StudyError, "3 records can't be dealt evenly to 4 parties"),
        (lambda: split_evenly(3, 0, stream()), StudyError, "3 records can't be dealt evenly to 0 parties"),
        (lambda: split_by_sizes(5, [2, 2], stream()), StudyError, "the sizes add up to 4, there are 5 records"),
        (lambda: split_by_sizes(5, [0.5, 0.6], stream()), StudyError, "the shares add up to 1.1, expected 1"),
        (lambda: split_by_sizes(5, [], stream()), StudyError, "expected sizes >= 0, found"),
        (lambda: split_by_sizes(5, [6, -1], stream()), StudyError, "expected sizes >= 0, found"),
        (lambda: split_by_anchors(np.ones(3), 0, stream()), StudyError, "at least one party"),
        (
            lambda: split_by_anchors(np.ones((3, 1)), 2, stream(), column=1),
            StudyError,
            "there is no column 1 among 1",
        ),
        (lambda: split_by_anchors(np.ones(3), 2, stream(), low=2, high=1), StudyError, "expected low <= high"),
        (lambda: split_by_anchors(np.array([1, np.nan]), 2, stream()), DataError, "1 missing or infinite values"),
        (lambda: split_by_column(pd.DataFrame({"a": [1]}), "b"), DataError, "column 'b' is missing"),
        (lambda: split_by_column(pd.DataFrame({"a": ["x", None]}), "a"), DataError, "is missing in record 2"),
        (
            lambda: split_columns(SCHEMA, {"n": "*", "s": "age"}),
            StudyError,
            "parties.s.columns: 'age' is at 'n' already",
        ),
        (lambda: split_columns(SCHEMA, {"n": ["age", "lab*"]}), StudyError, "no party has 'sex', 'cost'"),
        (
            lambda: split_columns(SCHEMA, {"n": ["agee"]}),
            StudyError,
            "parties.n.columns: 'agee' matches no column; did you",
        ),
    ],
)
def test_impossible_requests_say_why(act: Any, kind: Any, sentence: str) -> None:
    with pytest.raises(kind) as caught:
        act()
    assert sentence in str(caught.value)
