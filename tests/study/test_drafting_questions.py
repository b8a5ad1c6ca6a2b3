"""What `comity new --data` asks about single columns."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data.schemas.drafting import draft_schema
from comity.study.drafting.proposals import Decisions
from comity.study.drafting.questions import ask_about_codes, ask_about_target

COUNT = 400
PLACES = np.arange(COUNT)
ILL = np.where(PLACES % 3 == 0, "yes", "no")
NOISE = np.random.default_rng(1).normal(size=COUNT)


def asked(target: Any, **columns: Any) -> list[str]:
    frame = pd.DataFrame({**columns, "age": PLACES % 57, "target": target})
    schema, _ = draft_schema(frame, target="target")
    decisions = Decisions()
    ask_about_target(frame, schema, decisions)
    return decisions.checks


def with_errors(values: Any, errors: int) -> Any:
    """The values, of which the first ones are those of other records."""
    return np.concatenate([np.roll(values[: 3 * errors], 1), values[3 * errors :]])


@pytest.mark.parametrize(
    "column",
    [
        np.where(ILL == "yes", "treated", "none"),
        np.where(ILL == "yes", 1 + PLACES % 4, 0),
        np.where(ILL == "yes", 5 + abs(NOISE), 4 - abs(NOISE)),
        np.where(ILL == "yes", NOISE, np.nan),
        with_errors(np.where(PLACES % 3 == 0, 1, 0), 0),
    ],
    ids=["words", "codes", "numbers", "filled in for one class", "the target again"],
)
def test_a_column_that_tells_the_class_is_asked_about(column: Any) -> None:
    (question,) = asked(ILL, told=column)
    assert question.startswith("told alone tells target") and "--leave-out told" in question


@pytest.mark.parametrize(
    "column",
    [
        with_errors(np.where(ILL == "yes", "treated", "none"), 5),
        np.where(ILL == "yes", 1, 0) + NOISE,
        NOISE,
        [f"person {place % 50}" for place in PLACES],
        np.where(PLACES % 6 == 0, 100 + 10 * NOISE, 0),
    ],
    ids=["ten errors", "a good predictor", "chance", "many codes", "half of a class, zero for all others"],
)
def test_a_column_that_only_predicts_the_class_is_not(column: Any) -> None:
    assert asked(ILL, told=column) == []


def test_a_rare_class_is_not_told_by_chance() -> None:
    """With fewer than twenty records of it, single values of a number may hold them all."""
    assert asked(np.where(PLACES == 7, "yes", "no"), told=PLACES * 3) == []
    rare = np.where(PLACES % 20 == 0, "yes", "no")
    assert asked(rare, told=NOISE, other=PLACES % 40) == []
    assert len(asked(rare, told=np.where(rare == "yes", 9.0, 0.0) + NOISE / 9)) == 1


def test_a_number_that_follows_a_numeric_target_is_asked_about() -> None:
    income = 30_000 + 4_000 * NOISE
    assert len(asked(income, tax=income * 0.2)) == 1
    assert asked(income, tax=income * 0.2 + 400 * NOISE[::-1], constant=np.ones(COUNT)) == []


def test_few_whole_numbers_may_be_codes() -> None:
    frame = pd.DataFrame({"thal": 3 + PLACES % 3, "age": PLACES, "dose": (PLACES % 3) / 4, "sex": PLACES % 2})
    decisions = Decisions()
    ask_about_codes(frame, draft_schema(frame, target=None)[0], decisions)
    (question,) = decisions.checks
    assert question.startswith("thal: this column holds") and "--codes thal" in question
    settled, _ = draft_schema(frame, target=None, codes=("thal",))
    decisions = Decisions()
    ask_about_codes(frame, settled, decisions)
    assert decisions.checks == [] and '"3", "4", "5"' in settled.to_toml()
