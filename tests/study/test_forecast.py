"""A forecast runs the study on made records: it follows epsilon and records, warns where nothing is learned, and needs
no private record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity.data import Bounded, Categorical, Classes, Numeric, Schema, clinic_schema, clinics, public_cohort
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.study.forecast.forecast import Forecast, Point, _raised
from comity.study.forecast.population import GENERATED_ERROR, Population, _sharpened, from_sample, from_schema

PLANE = Schema((Numeric("x", -1, 1), Numeric("z", -1, 1)), Classes("y", ("no", "yes")))


def sample(count: int, *, noise: float = 0.0) -> pd.DataFrame:
    stream = Stream.public("forecast tests", count)
    x, z = 2 * stream.uniform((count,)) - 1, 2 * stream.uniform((count,)) - 1
    flipped = stream.uniform((count,)) < noise
    return pd.DataFrame({"x": x, "z": z, "y": np.where((x + z > 0) ^ flipped, "yes", "no")})


def made(epsilon: float, sizes: int = 300, parties: int = 3) -> comity.Study:
    names = [f"owner-{place}" for place in range(parties)]
    return comity.Averaging(PLANE, sizes=sizes).study(names, epsilon=epsilon, delta=1e-6)


@pytest.fixture(scope="module")
def told() -> Forecast:
    return comity.forecast(made(1.0), sample(600, noise=0.1), repeats=2)


def test_errors_fall_with_epsilon_and_lie_between_the_levels(told: Forecast) -> None:
    errors = [point.error for point in told.points]
    assert errors[0] > errors[-1] and told.pooled is not None
    assert told.pooled - 0.03 < told.at_epsilon.error < told.constant
    assert told.at_epsilon.epsilon == 1.0 and not told.learns_nothing


def test_sentences_name_the_basis_and_the_levels(told: Forecast) -> None:
    (first, *_) = told.sentences
    assert "600 public records" in first and "a constant has" in first and "900 records" in first
    assert told.as_json()["points"][0]["epsilon"] == pytest.approx(0.1)
    assert repr(told).startswith("error about") and "epsilon" in told._repr_html_()


def test_a_study_that_learns_nothing_is_told_so() -> None:
    told = comity.forecast(made(0.01, sizes=50), sample(600, noise=0.1), factors=(1.0,), repeats=2)
    assert told.learns_nothing
    assert any("little or nothing" in sentence for sentence in told.sentences)


def test_own_records_that_do_as_well_are_said() -> None:
    points = (Point(1.0, 0.2, 0.18, 0.22),)
    told = Forecast(1.0, 100, points, constant=0.5, own=0.19, pooled=0.18, basis="b", measure="error")
    assert told.own_does_as_well and "own records would do as well" in told.sentences[1]
    # A gain of a tenth of what all records would gain over a constant is next to nothing; the best party is compared.
    assert replace(told, own=0.23).own_does_as_well and not replace(told, own=0.24).own_does_as_well
    uneven = replace(told, own=0.4, best=0.21)
    assert not uneven.own_does_as_well and uneven.best_does_as_well
    assert "0.40 on average, 0.21 at best" in uneven.sentences[0] and "the best party's own" in uneven.sentences[1]
    assert len(replace(uneven, best=0.3).sentences) == 1


def test_the_smallest_epsilon_for_an_error_lies_between_the_points_around_it() -> None:
    points = tuple(Point(e, error, error, error) for e, error in ((0.1, 0.4), (1.0, 0.3), (10.0, 0.2)))
    told = Forecast(1.0, 100, points, constant=0.5, own=None, pooled=None, basis="b", measure="error")
    assert told.smallest_epsilon(0.25) == pytest.approx(10**0.5)
    assert told.smallest_epsilon(0.45) == 0.1
    assert told.smallest_epsilon(0.1) is None


def test_made_records_are_as_hard_as_the_sample() -> None:
    """A linear model errs on one record in ten of the sample, and so does the model that made records follow."""
    population = from_sample(PLANE, sample(2000, noise=0.1), "here")
    assert population.chances is not None
    assert np.mean(1 - population.chances.max(axis=1)) == pytest.approx(0.1, abs=0.03)
    drawn = population.draw(4000, Stream.public("drawn"))
    right = (drawn["x"] + drawn["z"] > 0) == (drawn["y"] == "yes")
    assert np.mean(right) == pytest.approx(0.9, abs=0.05)


def test_a_target_that_is_a_number_keeps_its_residuals() -> None:
    schema = Schema(PLANE.columns, Bounded("y", -3, 3))
    rows = sample(1000)
    noise = Stream.public("residuals").normal((1000,)) * 0.3
    population = from_sample(schema, rows.assign(y=rows["x"] + noise), "here")
    drawn = population.draw(4000, Stream.public("drawn"))
    assert np.std(drawn["y"] - drawn["x"]) == pytest.approx(0.3, abs=0.03)


def test_a_target_near_its_bound_keeps_its_variance() -> None:
    """Residuals are small near the bound, so a residual from anywhere would be clipped there. Values beyond the bound
    are clipped as a study clips them."""
    schema = Schema(PLANE.columns, Bounded("y", 0, 3))
    rows = sample(2000)
    width = np.clip(rows["x"], 0, None)
    y = 2 * width + width * Stream.public("near a bound").normal((2000,))
    population = from_sample(schema, rows.assign(y=y.clip(lower=0)), "here")
    drawn = population.draw(8000, Stream.public("drawn"))["y"]
    assert np.var(drawn) == pytest.approx(np.var(y.clip(0, 3)), rel=0.1)


def test_sharper_classes_are_as_frequent_as_in_the_sample() -> None:
    """One class is rare; sharper scores alone would make it rarer."""
    scores = Stream.public("scores").normal((2000, 2)) + np.array([1.5, 0.0])
    shares = np.array([0.75, 0.25])
    sharp = _sharpened(scores, 0.1, 0.5, 4.0, shares)
    np.testing.assert_allclose(sharp.mean(axis=0), shares, atol=1e-4)
    assert _sharpened(scores, 0.1, 0.5, 4.0).mean(axis=0)[1] < 0.2
    assert np.mean(1 - sharp.max(axis=1)) == pytest.approx(0.1, abs=0.01)


def test_generated_records_have_the_schemas_values_and_the_stated_error() -> None:
    schema = Schema((*PLANE.columns, Categorical("ward", ("a", "b", "c"))), PLANE.target)
    population = from_schema(schema)
    assert set(population.rows["ward"]) == {"a", "b", "c"} and population.rows["x"].between(-1, 1).all()
    assert population.chances is not None
    assert np.mean(1 - population.chances.max(axis=1)) == pytest.approx(GENERATED_ERROR, abs=0.01)


def test_a_class_that_the_sample_lacks_is_never_drawn() -> None:
    schema = Schema(PLANE.columns, Classes("y", ("no", "maybe", "yes")))
    drawn = from_sample(schema, sample(300), "here").draw(500, Stream.public("drawn"))
    assert set(drawn["y"]) == {"no", "yes"}


def test_fewer_records_at_a_higher_epsilon_have_the_same_noise() -> None:
    from comity.privacy.accounting import gdp_square

    assert _raised(0.5, 0.0, 4.0) == 2.0
    assert gdp_square(_raised(1.0, 1e-6, 4.0), 1e-6) == pytest.approx(16 * gdp_square(1.0, 1e-6), rel=1e-6)


def test_many_records_are_forecast_by_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = comity.forecast(made(0.3, sizes=2000), sample(600, noise=0.1), factors=(1.0,), repeats=6)
    monkeypatch.setattr("comity.study.forecast.forecast.MAX_RECORDS", 1500)
    fewer = comity.forecast(made(0.3, sizes=2000), sample(600, noise=0.1), factors=(1.0,), repeats=6)
    assert fewer.records == whole.records == 6000
    assert fewer.at_epsilon.error == pytest.approx(whole.at_epsilon.error, abs=0.03)


@pytest.mark.parametrize("method", ["softlabel", "synthetic", "vertical"])
def test_every_method_with_a_model_or_a_dataset_is_forecast(method: str) -> None:
    schema, frames = clinic_schema("readmitted"), clinics(4, 60)
    public = pd.concat(clinics(4, 60, "public").values(), ignore_index=True)
    makes: dict[str, Any] = {
        "softlabel": lambda: comity.SoftLabel(schema, auxiliary=public_cohort(100), sizes=60),
        "synthetic": lambda: comity.Synthetic(schema, sizes=60),
        "vertical": lambda: comity.Vertical(
            schema, columns={"clinic-01": ["age", "readmitted"], "clinic-02": _others(schema)}, products="dealer"
        ),
    }
    made = makes[method]()
    parties = list(made.given_columns) or list(frames)
    study = made.study(parties, epsilon=5, delta=1e-6)
    told = comity.forecast(study, public, records=240, factors=(1.0,), repeats=1)
    assert 0 < told.at_epsilon.error < 1 and 0 < told.constant < 1


def _others(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns if column.name != "age"]


def test_what_can_not_be_forecast_is_refused_with_what_to_do() -> None:
    with pytest.raises(DataError, match="at least 50 public records, found 10"):
        from_sample(PLANE, sample(10), "public.csv")
    with pytest.raises(StudyError, match="no forecast for averaging as published"):
        comity.forecast(comity.Averaging(PLANE, variant="published").study(["a", "b"], epsilon=1))
    with pytest.raises(StudyError, match="--records"):
        comity.forecast(comity.Synthetic(PLANE).study(["a", "b"], epsilon=1, delta=1e-6), sample(100))
    with pytest.raises(StudyError, match="--sample"):
        from_schema(Schema(PLANE.columns, Bounded("y", 0, 1)))
    with pytest.raises(StudyError, match=r"no \[target\]"):
        from_sample(Schema(PLANE.columns), sample(100), "public.csv")


def test_a_population_of_one_class_draws_that_class() -> None:
    population = from_sample(PLANE, sample(200).assign(y="no"), "here")
    assert isinstance(population, Population) and set(population.draw(50, Stream.public("one"))["y"]) == {"no"}
