"""Small studies whose strongest neighbours are known: every default method, and the published ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from comity.audit.neighbours import corner_rows
from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from comity.methods.averaging import Averaging
from comity.methods.softlabel import SoftLabel
from comity.methods.summary import Summary
from comity.methods.synthetic import Synthetic
from comity.methods.vertical import Vertical

if TYPE_CHECKING:
    from comity.study.study import Study

PARTIES = ("ash", "birch", "cedar")
EPSILON, DELTA = 1.0, 1e-6
CLASSES = Classes("outcome", ("no", "yes"))
PLANE = Schema((Numeric("x", -1, 1), Numeric("y", -1, 1)), CLASSES)
LINE = Schema(PLANE.columns[:1], CLASSES)


@dataclass(frozen=True, eq=False)
class Case:
    """A small study whose strongest neighbours are known, or found among `rows`. `party` is the one that changes.
    `held_out` says that the records which change are held out for an evaluation."""

    name: str
    study: Study
    rows: pd.DataFrame
    party: str
    held_out: bool = False


def method_cases() -> Iterator[Case]:
    """Every default method, over as few columns as it takes: the fewer numbers carry noise, the more an audit sees."""
    numbers = Schema(PLANE.columns, Bounded("outcome", -1, 1))
    terms = {"epsilon": EPSILON, "delta": DELTA}
    averaging = Averaging(PLANE, sizes=400, intercept=False)
    yield Case("averaging", averaging.study(PARTIES, **terms), _circle(24), "ash")
    added = averaging.study(PARTIES, **terms, neighbours="add-remove")
    yield Case("averaging, records added", added, _circle(8), "ash")
    linear = Averaging(numbers, sizes=400, intercept=False)
    yield Case("averaging, linear", linear.study(PARTIES, **terms), _numbers(), "ash")
    # Two records without a common category share no product but the square of the target: the more columns, the less it
    # is of all products. Over numbers, all records share all products.
    marks = tuple(Categorical(f"mark{place}", ("a", "b")) for place in range(9))
    marked = Schema(marks, numbers.target)
    pure = Averaging(marked, sizes=400, intercept=False).study(PARTIES, epsilon=EPSILON)
    yield Case("averaging, linear, pure", pure, corner_rows(marked, 2), "ash")
    local = Averaging(LINE, sizes=1000, intercept=False, model="svm", solver="average", l2=0.1)
    yield Case("averaging, local models, pure", local.study(PARTIES, epsilon=EPSILON), corner_rows(LINE, 6), "ash")
    evaluated = averaging.study(PARTIES, **terms, evaluation={})
    yield Case("averaging with an evaluation", evaluated, _circle(24), "ash")
    yield Case("averaging, a record held out", evaluated, _circle(24), "ash", held_out=True)
    synthetic = Synthetic(PLANE)
    yield Case("synthetic", synthetic.study(PARTIES, **terms), corner_rows(PLANE, 8), "ash")
    colluding = synthetic.study(PARTIES, **terms, colluders=1)
    yield Case("synthetic, a party colludes", colluding, corner_rows(PLANE, 8), "ash")
    yield Case("synthetic, pure", synthetic.study(PARTIES, epsilon=EPSILON), corner_rows(PLANE, 8), "ash")
    wide = Schema(tuple(Numeric(f"x{place}", -1, 1) for place in range(8)), Classes("outcome", tuple("abcdef")))
    public = corner_rows(wide, 60, "public").drop(columns="outcome")
    soft = SoftLabel(wide, auxiliary=public, sizes=12, statistic="class-sums")
    names = tuple(f"p{place:02d}" for place in range(20))
    yield Case("soft labels", soft.study(names, **terms), corner_rows(wide, 12), names[0])
    summary = Summary(PLANE, records=10, sizes=400, deliver="weights")
    bought = summary.study((*PARTIES, "elm"), consumer="elm", epsilon=EPSILON, delta=DELTA)
    yield Case("summary, an owner", bought, _circle(12), "ash")
    yield Case("summary, the consumer", bought, _circle(12), "elm")
    held = {"ash": ["x", "outcome"], "birch": ["y"]}
    vertical = Vertical(PLANE, columns=held)
    yield Case("vertical", vertical.study(tuple(held), **terms), _grid(), "ash")
    quadratic = Vertical(PLANE, columns=held, solver="quadratic")
    yield Case("vertical, quadratic", quadratic.study(tuple(held), **terms), _grid(), "ash")


def published_cases() -> Iterator[Case]:
    """Published methods that open one noisy vector in a run. What they lose truly is what their plans print beside the
    claims of their papers; `audit.published` attacks the others by their mechanisms."""
    held = {"ash": ["x", "outcome"], "birch": ["y"]}
    vertical = Vertical(PLANE, columns=held, variant="published", model="logistic", intercept=True)
    yield Case("vertical, published", vertical.study(tuple(held), epsilon=EPSILON), _grid(), "ash")
    # A large penalty: the loss is nearly quadratic, so one vote moves the weight as far as the bound says. A majority
    # turns by one party and no further by more, so its epsilon is large enough to be seen in one. A tie is the second
    # class's: on records at −1 the other party votes for the first, and the replaced one decides.
    public, many = pd.DataFrame({"x": -np.ones(5)}), tuple(f"p{place:02d}" for place in range(20))
    for method, names, epsilon in (("vote", PARTIES[:2], 8.0), ("soft", many, EPSILON), ("avg", many, EPSILON)):
        soft = SoftLabel(
            LINE,
            auxiliary=public,
            variant="published",
            method=method,
            sensitivity="paper",
            auxiliary_privacy="public",
            scaling="scaled",
            l2=20.0,
            intercept=False,
        )
        study = soft.study(names, epsilon=epsilon, delta=DELTA)
        yield Case(f"soft labels, published {method}", study, corner_rows(LINE, 4), names[0])


def _circle(angles: int) -> pd.DataFrame:
    """Rows in every direction of the plane, up to the sides of the square, of both classes."""
    turn = 2 * np.pi * np.arange(angles) / angles
    rows = pd.DataFrame({"x": np.cos(turn), "y": np.sin(turn)})
    rows = rows.div(rows.abs().max(axis=1), axis=0)
    return pd.concat([rows.assign(outcome=label) for label in CLASSES.values], ignore_index=True)


def _grid() -> pd.DataFrame:
    """Rows at the sides of the square, of both classes."""
    places = [(x, y) for x in np.linspace(-1, 1, 5) for y in (-1.0, 1.0)]
    rows = pd.DataFrame(places, columns=["x", "y"])
    return pd.concat([rows.assign(outcome=label) for label in CLASSES.values], ignore_index=True)


def _numbers() -> pd.DataFrame:
    """Corners and sides of the square with either end of the target."""
    rows = _grid().drop(columns="outcome").drop_duplicates()
    return pd.concat([rows.assign(outcome=end) for end in (-1.0, 1.0)], ignore_index=True)
