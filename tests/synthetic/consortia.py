"""Small schemas and records of every kind of column, and consortia that count them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from comity.data import Bounded, Categorical, Classes, Date, Numeric, Ordinal, Records, Schema, Target
from comity.federation.declare.consortium import Consortium
from comity.methods.synthetic.method import CountsProtocol, Synthetic, SyntheticProtocol
from comity.methods.synthetic.published.method import PublishedSynthetic
from comity.privacy.loss import Approx, Loss
from comity.privacy.unit import Neighbours, Unit

NAMES = ("ash", "birch", "cedar", "dogwood", "elm")
CLASSES = Classes("ill", ("no", "yes"))
NUMBER = Bounded("cost", 0.0, 200.0)


def make_schema(target: Target | None = CLASSES) -> Schema:
    """A whole number, a number on a logarithmic scale with missing values, a category with another and one that
    follows it, an order, a day."""
    return Schema(
        (
            Numeric("age", 18, 90, integer=True, bins=4),
            Numeric("income", 0.0, 100_000.0, scale="log", missing="cell", bins=3),
            Categorical("town", ("A", "B", "C"), other=True),
            Categorical("region", ("north", "south"), follows="town"),
            Ordinal("stage", ("one", "two", "three")),
            Date("seen", date(2020, 1, 1), date(2023, 12, 31), step="day", bins=4),
        ),
        target,
    )


def make_frame(count: int, seed: int = 0, target: Target | None = CLASSES) -> pd.DataFrame:
    """Columns that hang together: older people are further on and more often ill."""
    chance = np.random.default_rng(seed)
    age = chance.integers(18, 91, count)
    town = chance.choice(["A", "B", "C", "D"], count, p=[0.4, 0.3, 0.2, 0.1])
    income = np.round(np.exp(chance.normal(8 + age / 60, 1, count)).clip(0, 100_000), 2)
    income[chance.random(count) < 0.1] = np.nan
    ill = chance.random(count) < age / 120
    found: dict[str, Any] = {
        "age": age,
        "income": income,
        "town": town,
        "region": np.where(np.isin(town, ["A", "B"]), "north", "south"),
        "stage": np.array(["one", "two", "three"])[np.clip((age - 18) // 25, 0, 2)],
        "seen": np.datetime64("2020-01-01", "s") + chance.integers(0, 1460, count) * np.timedelta64(86_400, "s"),
    }
    if target is not None:
        found[target.name] = (
            np.where(ill, "yes", "no")
            if isinstance(target, Classes)
            else (age + 20 * chance.random(count)).clip(0, 200)
        )
    return pd.DataFrame(found)


Counts = TypeVar("Counts", bound=CountsProtocol)


def build_synthetic(**options: Any) -> SyntheticProtocol:
    """What runs over a schema, by the method's own defaults."""
    return build_as(SyntheticProtocol, **options)


def build_as(
    kind: type[Counts], *, schema: Schema, columns: Mapping[str, tuple[str, ...]] | None = None, **options: Any
) -> Counts:
    """The same as an instance of `kind`, which a test may have changed."""
    built = Synthetic(schema, columns=columns, **options).protocol()
    return kind(**{field.name: getattr(built, field.name) for field in fields(built)})


def build_published(schema: Schema, **options: Any) -> PublishedSynthetic:
    built = Synthetic(schema, **{"variant": "published", **options}).protocol()
    assert isinstance(built, PublishedSynthetic)
    return built


def encode_records(built: SyntheticProtocol, count: int, seed: int = 0) -> Records:
    return built.encoding.encode(make_frame(count, seed, built.schema.target)).records


def make_consortium(
    loss: Loss | None = None, *, parties: int = 3, neighbours: str = "add-remove", dropouts: int = 0
) -> Consortium:
    return Consortium(
        parties=NAMES[:parties],
        loss=loss or Approx(1.0, 1e-6),
        unit=Unit.RECORD,
        neighbours=Neighbours(neighbours),
        colluders=1 if parties > 1 else 0,
        dropouts=dropouts,
    )
