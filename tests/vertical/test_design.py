"""Columns of z: every record within its bounds, whatever it holds, and scores that survive the change of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Categorical, Classes, Numeric, Records, Schema
from comity.errors import StudyError
from comity.methods.vertical.design import PLACES, Design, simplex
from comity.methods.vertical.moments import MomentEntries, squared_bound, to_units
from tests.support.vertical import build_regression, encode_parts, make_people, make_schema


def make_design(schema: Schema, columns: dict[str, tuple[str, ...]], *, bins: bool = False) -> Design:
    return Design(schema, columns, centred=True, intercept=True, bins=bins)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("linear", [False, True])
def test_no_record_is_longer_than_the_bound_and_some_come_close(pure: bool, linear: bool) -> None:
    tried = build_regression(3, pure=pure, linear=linear)
    frame = make_people(400, linear=linear)
    frame.loc[:3, "age"], frame.loc[:3, "dose"] = 100, -1
    rows = np.hstack([tried.design.matrix(own, party) for party, own in encode_parts(tried, frame).items()])
    on_grid = to_units(rows) * 2.0**-PLACES
    lengths = (on_grid**2).sum(axis=1) + tried.design.constant**2
    assert lengths.max() <= squared_bound(tried.design)
    assert lengths.max() >= 0.75 * squared_bound(tried.design)


def test_records_that_are_no_encoded_rows_stay_within_the_bounds() -> None:
    """A host may be given anything; nobody clips a row that spans parties, so each piece is forced into its set."""
    design = build_regression(2).design
    wild = np.array([[1e9, np.nan, -5, 7, 3, 3], [np.inf, 1, 1, -1e300, 0.5, 0.5]])
    rows = to_units(design.matrix(Records(wild), "birch")) * 2.0**-PLACES
    bound = sum(piece.squared for piece in design.pieces if piece.party == "birch")
    assert ((rows**2).sum(axis=1) <= bound).all()


def test_corners_of_a_simplex_are_centred_and_equally_far_apart() -> None:
    for corners in (3, 5, 14):
        table = simplex(corners)
        np.testing.assert_allclose(table.sum(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose((table**2).sum(axis=1), 1 - 1 / corners)
        apart = ((table[:, None] - table[None]) ** 2).sum(axis=2)
        np.testing.assert_allclose(apart[~np.eye(corners, dtype=bool)], 2)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("parties", [2, 3, 4])
def test_weights_of_encoded_rows_give_the_same_scores_as_weights_of_columns(pure: bool, parties: int) -> None:
    tried = build_regression(parties, pure=pure)
    frame, design = make_people(50), tried.design
    rows = np.hstack([design.matrix(own, party) for party, own in encode_parts(tried, frame).items()])
    weights = np.random.default_rng(1).normal(size=len(design.features))
    scores = rows[:, design.features] @ weights + design.constant * 0.3
    encoded = design.encoding.encode_features(frame)
    np.testing.assert_allclose(encoded @ design.coefficients(weights, 0.3), scores, atol=1e-9)
    np.testing.assert_allclose(design.mapping @ np.append(weights, 0.3), design.coefficients(weights, 0.3))


def test_what_everybody_knows_is_not_released_and_comes_back() -> None:
    for pure in (False, True):
        tried = build_regression(2, pure=pure)
        frame, design = make_people(300), tried.design
        rows = to_units(np.hstack([design.matrix(own, party) for party, own in encode_parts(tried, frame).items()]))
        rows *= 2.0**-PLACES
        whole = np.column_stack([rows, np.full(len(rows), design.constant)])
        entries = MomentEntries.of(design)
        found = entries.assemble(entries.exact(rows), len(rows))
        np.testing.assert_allclose(found, whole.T @ whole, atol=1e-9)
        width = design.width + 1
        assert entries.size < width * (width + 1) // 2 - 1


def test_variances_belong_to_the_entries_that_carry_noise() -> None:
    tried = build_regression(2, pure=True)
    entries = tried.entries
    generator = np.random.default_rng(2)
    base = entries.assemble(np.zeros(entries.size), 10)
    drawn = [entries.assemble(generator.normal(size=entries.size), 10) - base for _ in range(4000)]
    np.testing.assert_allclose(np.var(drawn, axis=0), entries.variances(1.0), rtol=0.15, atol=1e-12)


def test_wrong_targets_and_parties_are_named() -> None:
    three = Schema((Numeric("age", 0, 1),), Classes("kind", ("a", "b", "c")))
    with pytest.raises(StudyError, match="two classes"):
        make_design(three, {"ash": ("age",), "birch": ("kind",)})
    with pytest.raises(StudyError, match="needs a target"):
        make_design(Schema((Numeric("age", 0, 1), Numeric("dose", 0, 1))), {"ash": ("age",), "birch": ("dose",)})
    with pytest.raises(StudyError, match="no party has 'sick'"):
        make_design(make_schema(), {"ash": ("age", "place"), "birch": ("dose", "sex")})
    with pytest.raises(StudyError, match="two parties"):
        make_design(make_schema(), {"ash": ("age", "place", "dose", "sex", "sick")})


def test_a_party_may_hold_the_label_alone() -> None:
    held = {"ash": ("age", "place", "dose", "sex"), "birch": ("sick",)}
    design = make_design(make_schema(), held)
    assert design.widths["birch"] == 1 and design.label_at == "birch" and design.pieces[-1].kind == "label"
    first = make_design(make_schema(), {"birch": ("sick",), "ash": ("age", "place", "dose", "sex")})
    assert first.pieces[0].kind == "label" and first.places("birch") == slice(0, 1)


def test_a_column_of_one_category_is_a_constant() -> None:
    one = Schema((Categorical("only", ("x",)), Numeric("age", 0, 1)), Classes("sick", ("no", "yes")))
    design = make_design(one, {"ash": ("only",), "birch": ("age", "sick")})
    assert np.ptp(design.matrix(Records(np.ones((3, 1))), "ash")) == 0


def test_a_number_whose_missing_values_are_a_cell_is_refused_with_its_key() -> None:
    from comity.data import Classes, Numeric, Schema
    from comity.errors import StudyError

    def lay_out(**options: Any) -> Design:
        schema = Schema((Numeric("x", 0, 1, missing="cell", **options), Numeric("z", 0, 1)), Classes("y", ("0", "1")))
        return make_design(schema, {"a": ("x",), "b": ("z", "y")}, bins=True)

    with pytest.raises(StudyError, match="cut it into bins") as caught:
        lay_out()
    assert caught.value.key == "columns.x.missing"
    assert lay_out(bins=2).width
