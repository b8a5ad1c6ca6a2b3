"""Parties with models of different kinds in one study: each votes with its own; mistakes are found before any cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from comity.data import Records, clinic_schema, clinics, public_cohort
from comity.errors import BadInput, DataError, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.released import Total
from comity.learn import from_estimator
from comity.learn.local_models import as_local_model, harden, local_votes
from comity.methods.softlabel import PublishedSoftLabel
from comity.methods.softlabel.method import SoftLabel
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study, simulate
from comity.study.study import Study

NAMES = ("north", "south", "east", "west", "centre")


def public(rows: int = 40) -> Any:
    x = np.random.default_rng(9).normal(size=(rows, 4))
    return x / np.linalg.norm(x, axis=1).max()


def protocol(classes: int = 3, method: Any = "soft", rows: int = 40) -> PublishedSoftLabel:
    return SoftLabel.published_over_rows(
        auxiliary=public(rows), classes=tuple(f"kind {k}" for k in range(classes)), method=method, l2=1e-2
    )


def parties(classes: int = 3, names: Any = NAMES, rows: int = 60) -> Any:
    centres = np.random.default_rng(4).normal(size=(classes, 4))
    out = {}
    for seed, name in enumerate(names):
        generator = np.random.default_rng(seed)
        labels = generator.integers(0, classes, rows)
        out[name] = Records((centres[labels] + 0.5 * generator.normal(size=(rows, 4))) / 8, labels)
    return out


def boosted() -> Any:
    return HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3)


def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


def nearest_centre(features: Any, labels: Any, auxiliary: Any, classes: Any) -> Any:
    centres = np.stack([features[labels == k].mean(axis=0) for k in range(classes)])
    return ((auxiliary[:, None] - centres) ** 2).sum(-1).argmin(1)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the trusted coordinator of the published method adds up."""
    seen = []
    original = Parties.sum

    def listening(self: Any, *arguments: Any, **values: Any) -> Total:
        total = original(self, *arguments, **values)
        seen.append(total)
        return total

    monkeypatch.setattr(Parties, "sum", listening)
    return seen


@pytest.mark.parametrize("classes", [2, 3])
def test_each_party_votes_with_a_model_of_its_own_kind(classes: int, summed: Any) -> None:
    method, data = protocol(classes), parties(classes)
    file = pd.DataFrame({"label": [f"kind {k % classes}" for k in range(40)]})
    models = {"north": boosted(), "south": pipeline(), "east": nearest_centre, "west": file}
    outcome = simulate(method, parties=data, epsilon=1.0, seed=1, models=models)
    apart = [
        local_votes(from_estimator(boosted()), data["north"].features, data["north"].labels, public(), classes),
        local_votes(from_estimator(pipeline()), data["south"].features, data["south"].labels, public(), classes),
        np.eye(classes)[nearest_centre(data["east"].features, data["east"].labels, public(), classes)],
        np.eye(classes)[np.arange(40) % classes],
    ]
    built_in = simulate(method, parties={"centre": data["centre"]}, epsilon=1.0, seed=1)
    assert summed[0].parties == 5 and built_in.parties == 1
    np.testing.assert_allclose(summed[0].value, sum(apart) + summed[1].value, atol=1e-9)
    kinds = [votes.argmax(1).tolist() for votes in apart]
    assert all(kinds[a] != kinds[b] for a in range(4) for b in range(a)), "models that agree would prove nothing"
    assert outcome.accounts[0].spent == built_in.accounts[0].spent


def test_soft_models_are_hardened_for_the_published_grid(summed: Any) -> None:
    """Probabilities rounded to a grid of 1/C would leave the simplex, along a direction that carries no noise."""
    data = parties()
    simulate(protocol(), parties=data, epsilon=1.0, seed=1, models=from_estimator(pipeline(), soft=True))
    expected = sum(
        harden(local_votes(from_estimator(pipeline(), soft=True), one.features, one.labels, public(), 3))
        for one in data.values()
    )
    np.testing.assert_allclose(summed[0].value, expected, atol=1e-9)
    np.testing.assert_allclose(summed[0].value.sum(axis=1), 5, atol=1e-9)


def test_a_model_that_fails_shows_nowhere(summed: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(features: Any, labels: Any, auxiliary: Any, classes: Any) -> None:
        raise ValueError(f"record {features[0, 0]}")

    simulate(protocol(), parties=parties(), epsilon=1.0, seed=1, models={"default": pipeline(), "east": broken})
    assert summed[0].parties == 5
    assert np.allclose(summed[0].value - np.floor(summed[0].value + 1e-9), 1 / 3, atol=1e-9)
    assert "votes evenly" in caplog.text


@pytest.mark.parametrize("classes", [2, 3])
def test_no_model_moves_the_global_one_further_than_its_noise_allows_for(classes: int, summed: Any) -> None:
    """One party's model replaced by hostile ones: the votes of a row move by √2, the minimiser by the sensitivity."""
    method, data = protocol(classes), parties(classes)
    generator = np.random.default_rng(0)
    scores = public() @ generator.normal(size=4)
    hostile = [
        lambda x, y, z, c: np.zeros(len(z), int),
        lambda x, y, z, c: np.full(len(z), c - 1),
        lambda x, y, z, c: np.where(scores > 0, 0, c - 1),
        lambda x, y, z, c: np.where(scores > 0, c - 1, 0),
        lambda x, y, z, c: np.full((len(z), c), 1e300),
        lambda x, y, z, c: -np.eye(c)[np.zeros(len(z), int)],
        lambda x, y, z, c: generator.dirichlet(np.full(c, 0.1), len(z)),
    ]
    for one in hostile:
        simulate(method, parties=data, epsilon=1.0, seed=1, models={"default": pipeline(), "east": one})
    shares = [total.value / total.parties for total in summed]
    models = [method.fit(one) for one in shares]
    pairs = [(a, b) for a in range(len(hostile)) for b in range(a)]
    apart = max(float(np.linalg.norm(shares[a] - shares[b], axis=1).max()) for a, b in pairs)
    moved = max(float(np.linalg.norm(models[a] - models[b])) for a, b in pairs)
    assert apart == pytest.approx(np.sqrt(2) / 5)
    assert 0.025 * method.sensitivity(5) < moved <= method.sensitivity(5)


def test_more_parties_than_hosts_share_one_model() -> None:
    names = [f"p{k}" for k in range(1001)]
    data = parties(2, names, rows=6)
    calls = []

    def first_feature(features: Any, labels: Any, auxiliary: Any, classes: Any) -> Any:
        calls.append(len(features))
        return (auxiliary[:, 0] > features[:, 0].mean()).astype(int)

    method = protocol(2, rows=5)
    outcome = simulate(method, parties=data, epsilon=50.0, seed=1, models=first_feature)
    assert calls == [6] * 1001
    shares = np.mean([public(5)[:, 0] > one.features[:, 0].mean() for one in data.values()], axis=0)
    exact = method.fit(np.column_stack([1 - shares, shares]))
    assert np.linalg.norm(outcome.released["model"] - exact) < 0.2 * np.linalg.norm(exact)
    for models in ({"p7": first_feature}, {"default": first_feature, "p7": pipeline()}):
        with pytest.raises(StudyError, match="one local model for all"):
            simulate(method, parties=data, epsilon=1.0, seed=1, models=models)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"nroth": boosted()}, "'nroth' is no party.*did you mean 'north'"),
        ({"north": LogisticRegression}, r"models\['north'\].*estimator object"),
        ({"north": 7}, "callable"),
        ({"north": pd.DataFrame({"label": ["kind 0"] * 39})}, "40 auxiliary records"),
        ({"north": "gone.csv"}, "gone.csv"),
    ],
)
def test_models_that_do_not_fit_are_refused_before_anything_is_spent(
    models: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comity.study.local.consortium.Host", lambda *_, **__: pytest.fail("a host was made"))
    with pytest.raises(BadInput, match=words):
        simulate(protocol(), parties=parties(), epsilon=1.0, seed=1, models=models)


def test_a_method_that_votes_on_nothing_takes_no_models() -> None:
    with pytest.raises(StudyError, match="takes no local models"):
        simulate(protocol(method="avg"), parties=parties(), epsilon=1.0, seed=1, models=boosted())


def test_the_default_sums_probabilities_of_models_of_any_kind() -> None:
    """At a loss that leaves little noise, the opened histograms are the mean of what the models said."""
    data = parties()
    models = {"default": from_estimator(pipeline(), soft=True), "north": boosted(), "east": nearest_centre}
    default = SoftLabel.over_rows(auxiliary=public(), classes=protocol().classes, statistic="histograms")
    outcome = simulate(default, parties=data, epsilon=1e6, delta=1e-6, seed=1, models=models)
    assert outcome.masks
    expected = np.mean(
        [
            local_votes(as_local_model(models.get(name, models["default"])), one.features, one.labels, public(), 3)
            for name, one in data.items()
        ],
        axis=0,
    )
    np.testing.assert_allclose(outcome.released["soft_labels"], expected, atol=0.03)
    plain = simulate(default, parties=data, epsilon=1e6, delta=1e-6, seed=1)
    assert np.abs(plain.released["soft_labels"] - expected).max() > 0.2


def test_a_rule_that_chooses_sums_of_records_refuses_models_instead_of_ignoring_them() -> None:
    default = SoftLabel.over_rows(auxiliary=public(), classes=protocol().classes, statistic="auto", sizes=6)
    with pytest.raises(StudyError, match="takes no local models here"):
        simulate(default, parties=parties(), epsilon=1.0, delta=1e-6, seed=1, models=boosted())


def test_what_a_run_is_compared_with_says_that_it_has_the_built_in_classifier() -> None:
    data = parties()
    test = data["north"]
    outcome = simulate(protocol(), parties=data, epsilon=1.0, seed=1, models=boosted(), test=test)
    notes = {one.name: one.note for one in outcome.baselines}
    assert "built-in" in notes["own data"] and "built-in" in notes["without noise"]
    assert "built-in" not in notes["constant"]
    plain = simulate(protocol(), parties=data, epsilon=1.0, seed=1, test=test)
    assert not any("built-in" in one.note for one in plain.baselines)


# The study file.

TEXT = """
[study]
name = "triage"
protocol = "softlabel"
schema = "schema.toml"

[privacy]
epsilon = 5.0

[softlabel]
auxiliary = "public.csv"
variant = "published"

[parties.north]
[parties.south]
[parties.east]
[parties.west]

[simulation]
data = "records.csv"
baselines = false

[simulation.models]
default = "sklearn.naive_bayes.GaussianNB"
north = {model = "sklearn.ensemble.HistGradientBoostingClassifier", max_depth = 3, max_iter = 4, soft = true}
south = {predictions = "south_votes.csv"}
east = {model = ["sklearn.preprocessing.StandardScaler", "sklearn.svm.SVC"], svc__C = 2.0}
"""
SOUTH = 'south = {predictions = "south_votes.csv"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    schema = clinic_schema()
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    public_cohort(30).to_csv(tmp_path / "public.csv", index=False)
    pd.concat(clinics(4, 40).values()).to_csv(tmp_path / "records.csv", index=False)
    classes = cast(Any, schema.target).values
    pd.DataFrame({"label": [classes[k % len(classes)] for k in range(30)]}).to_csv(
        tmp_path / "south_votes.csv", index=False
    )
    return tmp_path


def load(folder: Path, old: str = "", new: str = "") -> Study:
    text = TEXT.replace(old, new, 1) if old else TEXT
    assert text != TEXT or not old
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


def test_a_study_names_the_models_of_its_simulation(
    folder: Path, summed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    study = load(folder)
    party_data = load_party_data(study)
    models: Any = party_data.models
    assert models["north"].estimator.max_depth == 3 and models["north"].soft
    assert models["east"].estimator.get_params()["svc__C"] == 2.0
    assert type(models["west"].estimator).__name__ == "GaussianNB"
    run_study(study, seed=1, data=party_data)
    assert "votes evenly" not in caplog.text
    ballot = cast(Any, study.protocol).ballot(study.consortium)
    parties: Any = party_data.parties
    expected = sum(
        np.asarray(harden(local_votes(models[name], one.features, one.labels, ballot.auxiliary, len(ballot.classes))))
        for name, one in parties.items()
    )
    np.testing.assert_allclose(summed[0].value, expected, atol=1e-9)


def test_python_models_stand_in_for_those_of_the_file(folder: Path, summed: Any) -> None:
    run_study(load(folder), seed=1, models={"default": lambda x, y, z, c: np.zeros(len(z), int)})
    assert (summed[0].value[:, 0] == 4).all()


def test_models_are_no_part_of_what_is_agreed(folder: Path) -> None:
    assert load(folder).hash == load(folder, TEXT[TEXT.index("[simulation.models]") :], "").hash


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("north = {", "nroth = {", ["'nroth' is no party", "did you mean 'north'"]),
        ("HistGradientBoostingClassifier", "HistGradientBosting", ["simulation.models.north", "did you mean"]),
        ("max_depth = 3", "max_deth = 3", ["simulation.models.north", "max_deth", "did you mean 'max_depth'"]),
        ("sklearn.naive_bayes.GaussianNB", "os.path.join", ["simulation.models.default", "importing runs code"]),
        ("sklearn.naive_bayes.GaussianNB", "sklearn.linear_model.Lasso", ["simulation.models.default", "classifier"]),
        (SOUTH, 'south = {predictions = "souht_votes.csv"}', ["souht_votes.csv", "south_votes.csv"]),
        (SOUTH, 'south = {predictions = "south_votes.csv", soft = true}', ["simulation.models.south", "remove it"]),
        (SOUTH, 'south = {predictions = "a.csv", model = "b.C"}', ["simulation.models.south", "either model"]),
        (SOUTH, "south = {max_depth = 3}", ["simulation.models.south", "either model"]),
        (SOUTH, "south = 3", ["simulation.models.south"]),
        ("[softlabel]", '[softlabel]\nmethod = "avg"', ["simulation.models", "takes no local models"]),
    ],
)
def test_what_is_wrong_in_the_file_is_said_before_the_run(folder: Path, old: Any, new: str, words: Any) -> None:
    with pytest.raises(BadInput) as caught:
        load_party_data(load(folder, old, new))
    sentence = str(caught.value)
    assert "study.toml" in sentence and "\n" not in sentence
    for word in words:
        assert word in sentence, sentence


def test_a_file_of_predictions_is_checked_row_by_row(folder: Path) -> None:
    frame = pd.read_csv(folder / "south_votes.csv", dtype=str)
    frame.loc[4, "label"] = "unheard of"
    frame.to_csv(folder / "south_votes.csv", index=False)
    with pytest.raises(
        DataError,
        match=r"simulation\.models\.south.*south_votes\.csv: row 5.*is no class of",
    ):
        load_party_data(load(folder))
