"""Whole runs of the default protocol: the secure sum gives what plain adding gives, whoever drops out or is empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import prod, sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from comity import load_result
from comity.data import Records
from comity.errors import BadInput, SiteLost, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.plan import plan
from comity.learn.feature_map import fit_pca
from comity.learn.local_models import as_local_model
from comity.methods.softlabel import SoftLabel
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms.spherical import Spherical
from comity.study.simulation.simulate import Terms, simulate

from .consortia import labels
from .default_consortia import (
    NAMES,
    RUN,
    STATISTICS,
    clusters,
    contribution,
    coordinator,
    empty,
    filled,
    host_parties,
    make_cohort,
    make_consortium,
    quantise,
    soft,
    sum_plainly,
)


def named(records: Any) -> dict[Any, Any]:
    return dict(zip(NAMES, records))


def same(found: Any, expected: Any) -> None:
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_secure_sum_releases_what_adding_the_integers_in_one_place_gives(statistic: Any, classes: int) -> None:
    protocol, records, consortium = soft(statistic, classes), filled(classes), make_consortium()
    parties, _ = host_parties(protocol, records, consortium=consortium)
    released = run(parties)
    same(released, sum_plainly(protocol, consortium, records))
    assert np.abs(released["model"]).max() > 0.1


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_grid_moves_no_coordinate_of_the_mean_by_more_than_half_a_unit(statistic: Any, classes: int) -> None:
    protocol, records, consortium = soft(statistic, classes), filled(classes), make_consortium()
    release = protocol.declare(consortium)[statistic]
    own = np.stack([contribution(protocol, consortium, one) for one in records])
    exact = release.bounded.enforce(own, release.shape).mean(axis=0)
    units = np.stack([quantise(protocol, consortium, one) for one in own])
    assert np.abs(units.mean(axis=0) * release.spacing(consortium) - exact).max() <= release.spacing(consortium) / 2
    # A thousandth of the sensitivity, spread over all coordinates, is what rounding may add.
    assert release.spacing(consortium) * sqrt(exact.size) <= release.sensitivity / 1000


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("classes", [2, 3])
def test_hosts_and_stacks_of_parties_open_the_same_sum(statistic: Any, classes: int) -> None:
    """Parties of different sizes, one of them without records."""
    protocol, records = soft(statistic, classes), [*filled(classes), empty()]
    consortium = make_consortium(6)
    stacked = make_cohort(protocol, records, consortium=consortium)
    step = protocol.contribute
    single = sum(quantise(protocol, consortium, contribution(protocol, consortium, one)) for one in records)
    grid = protocol.declare(consortium)[statistic].spacing(consortium)
    # Minimisers are exact to 1e-6 in the gradient only, and rows of stacks are added in another order.
    loose = 1e-4 if statistic == "models" else len(records) * grid
    np.testing.assert_allclose(stacked.sum(step).value, single * grid, atol=loose)
    parties, _ = host_parties(protocol, records, consortium=consortium)
    released = run(parties)
    for name, value in make_cohort(protocol, records, consortium=consortium).execute().items():
        np.testing.assert_allclose(released[name], value, atol=1e-3)


def test_pure_noise_goes_the_same_way() -> None:
    protocol, records, consortium = soft("votes"), filled(3), make_consortium(5, Pure(60))
    parties, _ = host_parties(protocol, records, consortium=consortium)
    same(run(parties), sum_plainly(protocol, consortium, records))


# Parties that vanish.


@pytest.mark.parametrize("statistic", ["votes", "histograms", "cells"])
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_party_may_vanish_before_during_or_after_masking(statistic: str, when: str) -> None:
    protocol, records, consortium = soft(statistic), filled(3), make_consortium(5, dropouts=1)
    label = f"{statistic}/0"
    path = {
        "before": "sum.meet[0]",
        "during": "contribute[0]",
        "after": f"sum.unmask[{label}]",
    }[when]
    parties, _ = host_parties(protocol, records, consortium=consortium, lose=[("elm", path)])
    left = [name for name in consortium.parties if name != "elm"]
    counted = consortium.parties if when == "after" else left
    same(run(parties), sum_plainly(protocol, consortium, records, names=counted))


@pytest.mark.parametrize("path", ["sum.meet[0]", "contribute[0]"])
def test_too_many_lost_parties_stop_a_run_that_goes_on_when_they_are_back(path: str) -> None:
    protocol, records, consortium = soft("votes"), filled(3), make_consortium(5, dropouts=1)
    parties, hosts = host_parties(
        protocol, records, consortium=consortium, lose=[("elm", path), ("oak", path), ("gum", path)]
    )
    with pytest.raises(SiteLost):
        run(parties)
    before = {name: len(host.store.ledger.entries()) for name, host in hosts.items()}
    again = coordinator(protocol, consortium, hosts, parties.journal)
    same(run(again), sum_plainly(protocol, consortium, records))
    # Nobody drew twice: at most the draw that was missing came on top.
    for name, host in hosts.items():
        drawn = [entry for entry in host.store.ledger.entries() if entry.kind == "draw"]
        assert [entry.release for entry in drawn] == ["votes"]
        assert before[name] <= len(host.store.ledger.entries())


# Parties with little or nothing to say.


def failing(features: Any, labels_: Any, auxiliary: Any, classes: Any) -> None:
    raise ValueError("this fit failed")


@cache
def usual_sizes(statistic: Any) -> Any:
    parties, _ = host_parties(soft(statistic), filled(3), consortium=make_consortium())
    run(parties)
    return sizes(parties)


def sizes(parties: Any) -> dict[Any, Any]:
    """How many bytes each reply has, by path and party."""
    traffic = parties.journal.traffic(parties.study, RUN)
    return {(path, party): len(one.reply) for path, exchanges in traffic for party, one in exchanges.items()}


ODD: dict[str, Callable[[], Records]] = {
    "one class only": lambda: Records(clusters(3, 24, 0).features[::3], np.zeros(8, np.int64)),
    "one record": lambda: clusters(3, 1, 0),
    "no records": empty,
    "a failed fit": lambda: clusters(3, 24, 0),
}


@pytest.mark.parametrize(
    ("statistic", "kind"),
    [
        (statistic, kind)
        for statistic in STATISTICS
        for kind in ODD
        # No local model has a place where records are summed themselves.
        if kind != "a failed fit" or statistic in ("votes", "histograms")
    ],
)
def test_an_odd_party_takes_part_with_messages_of_the_same_size(statistic: Any, kind: Any) -> None:
    protocol, consortium = soft(statistic), make_consortium()
    records = [*filled(3, parties=4), ODD[kind]()]
    models = {"gum": as_local_model(failing)} if kind == "a failed fit" else {}
    parties, hosts = host_parties(protocol, records, consortium=consortium, models=models)
    released = run(parties)
    assert sizes(parties) == usual_sizes(statistic)
    assert np.isfinite(released["model"]).all()
    same(released, sum_plainly(protocol, consortium, records, models))
    spent = {name: host.store.ledger.summary()[0].spent for name, host in hosts.items()}
    assert len(set(map(str, spent.values()))) == 1
    if kind in ("no records", "a failed fit"):
        silent = contribution(protocol, consortium, records[-1], models.get("gum"))
        neutral = protocol.declare(consortium)[statistic].bounded.neutral(silent.shape)
        np.testing.assert_allclose(silent, neutral, atol=1e-12)


def test_a_fit_that_fails_at_the_site_contributes_what_no_records_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a local model but the statistic itself: the host answers for it."""
    protocol, records, consortium = soft("models"), filled(3), make_consortium()
    expected = sum_plainly(protocol, consortium, [*records[:4], empty()])
    kind, asked = type(protocol.choice(consortium).statistic), []
    contribute = kind.contribution

    def breaking(self: Any, features: Any, *rest: Any) -> np.ndarray:
        asked.append(len(features))
        if len(features) == len(records[4]):
            raise ArithmeticError("singular")
        return contribute(self, features, *rest)

    monkeypatch.setattr(kind, "contribution", breaking)
    parties, _ = host_parties(protocol, records, consortium=consortium)
    same(run(parties), expected)
    assert asked == [len(one) for one in records]


@pytest.mark.parametrize("statistic", ["votes", "histograms"])
def test_votes_outside_the_simplex_count_as_even_ones(statistic: str) -> None:
    wrong = [[2.0, 0.0, 0.0], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5], [np.inf, 0.0, 0.0], [0.0, 0.0, 0.0]]

    def half_wrong(features: Any, labels_: Any, auxiliary: Any, classes: Any) -> np.ndarray:
        out = np.tile([1.0, 0.0, 0.0], (len(auxiliary), 1))
        out[::2] = np.resize(wrong, (len(auxiliary) // 2, 3))
        return out

    def evened(features: Any, labels_: Any, auxiliary: Any, classes: Any) -> np.ndarray:
        out = np.tile([1.0, 0.0, 0.0], (len(auxiliary), 1))
        out[::2] = 1 / 3
        return out

    protocol, records, consortium = soft(statistic), filled(3), make_consortium()
    both = []
    for model in (half_wrong, evened):
        parties, _ = host_parties(protocol, records, consortium=consortium, models={"fir": as_local_model(model)})
        both.append(run(parties))
    same(*both)
    parties, _ = host_parties(protocol, records, consortium=consortium)
    assert (run(parties)["model"] != both[0]["model"]).any()


# Local models of several kinds.


def by_first_feature(features: Any, labels_: Any, auxiliary: Any, classes: Any) -> Any:
    """A callable may send class indices."""
    cut = np.quantile(features[:, 0], [1 / 3, 2 / 3])
    return np.searchsorted(cut, auxiliary[:, 0])


@pytest.mark.parametrize("statistic", ["votes", "histograms"])
def test_a_file_a_pipeline_boosted_trees_and_a_callable_vote_in_one_run(statistic: str, tmp_path: Path) -> None:
    protocol, records = soft(statistic), filled(3, parties=6)
    file = tmp_path / "predictions.csv"
    pd.DataFrame({"label": [labels(3)[k % 3] for k in range(60)]}).to_csv(file, index=False)
    models = {
        "ash": file,
        "bay": make_pipeline(StandardScaler(), LogisticRegression()),
        "elm": GradientBoostingClassifier(n_estimators=3, random_state=0),
        "fir": by_first_feature,
        "gum": pd.DataFrame(np.tile([0.5, 0.3, 0.2], (60, 1)), columns=labels(3)),
    }
    test = clusters(3, 90, seed=7)
    outcome = simulate(
        protocol,
        parties=named(records),
        epsilon=300.0,
        delta=1e-6,
        seed=4,
        test=test,
        models=models,
        terms=Terms(colluders=1),
    )
    assert outcome.error is not None and outcome.error < 0.5
    without = simulate(protocol, parties=named(records), epsilon=300.0, delta=1e-6, seed=4)
    assert (outcome.released["model"] != without.released["model"]).any()


@pytest.mark.parametrize("statistic", ["class-sums", "cells", "models"])
def test_local_models_are_refused_where_records_are_read(statistic: str) -> None:
    with pytest.raises(StudyError, match="takes no local models"):
        simulate(
            soft(statistic), parties=named(filled(3)), epsilon=1.0, delta=1e-6, seed=1, models=LogisticRegression()
        )


# What is refused before anything is spent.


def test_pure_epsilon_is_refused_for_histograms() -> None:
    with pytest.raises(StudyError, match=r"privacy\.delta") as refused:
        soft("histograms").declare(make_consortium(5, Pure(1)))
    assert refused.value.key == "softlabel.statistic"


def test_automatic_choice_asks_for_the_declared_number_of_records() -> None:
    protocol = soft("auto", sizes=None)
    with pytest.raises(StudyError, match="nobody counts private records") as refused:
        protocol.declare(make_consortium(5, Approx(1, 1e-6)))
    assert refused.value.key == "softlabel.sizes"
    # Pure epsilon decides by itself.
    assert protocol.choice(make_consortium(5, Pure(1))).statistic.name == "votes"


@pytest.mark.parametrize("given", [fit_pca(filled(3)[0].features, 2), StandardScaler(), "autoencoder"])
def test_maps_that_were_fitted_elsewhere_are_refused(given: Any) -> None:
    with pytest.raises(StudyError, match="fitted on the public auxiliary records") as refused:
        replace(soft("votes"), feature_map=given)
    assert refused.value.key == "softlabel.feature_map"


def test_a_statistic_with_a_map_of_its_own_takes_no_other() -> None:
    with pytest.raises(StudyError, match="leave feature_map out"):
        soft("class-sums", feature_map="pca", dimensions=2).declare(make_consortium())


# The model.


@pytest.mark.parametrize("statistic", ["votes", "histograms"])
@pytest.mark.parametrize(
    "settings", [{"feature_map": "pca", "dimensions": 3}, {"feature_map": "scaling"}, {"feature_map": "random"}]
)
def test_a_model_behind_a_feature_map_predicts_encoded_records(statistic: str, settings: Any) -> None:
    protocol, test = soft(statistic, **settings), clusters(3, 90, seed=7)
    outcome = simulate(protocol, parties=named(filled(3)), epsilon=300.0, delta=1e-6, seed=2, test=test)
    predicted = outcome.model.predict(test.features)
    assert set(predicted) <= set(labels(3))
    assert outcome.error == np.mean(predicted != np.array(labels(3))[test.labels])
    assert outcome.error is not None and outcome.error < 0.4


def test_any_classifier_is_trained_on_released_soft_labels() -> None:
    protocol, test = soft("histograms"), clusters(3, 90, seed=7)
    outcome = simulate(protocol, parties=named(filled(3)), epsilon=600.0, delta=1e-6, seed=2)
    shares = outcome.released["soft_labels"]
    assert shares.shape == (60, 3) and (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-9)
    forest = protocol.train_on_soft_labels(RandomForestClassifier(20, random_state=0), outcome.released)
    assert np.mean(forest.predict(test.features) == np.array(labels(3))[test.labels]) > 0.6
    votes = simulate(soft("votes"), parties=named(filled(3)), epsilon=60.0, delta=1e-6, seed=2)
    with pytest.raises(StudyError, match="histograms"):
        soft("votes").train_on_soft_labels(RandomForestClassifier(), votes.released)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_saved_result_predicts_the_same(statistic: Any, tmp_path: Path) -> None:
    outcome = simulate(soft(statistic), parties=named(filled(3)), epsilon=60.0, delta=1e-6, seed=2)
    outcome.save(tmp_path / "run")
    loaded = load_result(tmp_path / "run").model
    test = clusters(3, 90, seed=7).features
    np.testing.assert_array_equal(loaded.predict(test), outcome.model.predict(test))
    np.testing.assert_array_equal(loaded.decision_function(test), outcome.model.decision_function(test))
    assert len(set(loaded.predict(test))) > 1


# The plan.


def unread() -> Records:
    raise AssertionError("the plan read a private record")


@pytest.mark.parametrize(
    ("loss", "records", "name", "reason"),
    [
        (Pure(1), 24, "votes", "pure epsilon"),
        (Approx(300, 1e-6), 24, "class-sums", "allows 4 directions for sums, class frequencies beside them"),
        (Approx(1, 1e-6), 24, "cells", "too few for 3 classes"),
        (Approx(0.1, 1e-6), 24, "class-sums", "each party's most frequent class: expect a constant"),
    ],
)
def test_the_plan_says_what_was_chosen_and_why_without_a_look_at_records(
    loss: Any, records: int, name: str, reason: str
) -> None:
    protocol, consortium = soft("auto", sizes=records), make_consortium(8, loss)
    parties, hosts = host_parties(protocol, [unread] * 8, consortium=consortium)
    shown = plan("study", protocol, consortium)
    assert f"{name}: " in shown.expected and reason in shown.expected
    assert shown.rows[0].release == name
    assert shown.rows[0].protection == "secure sum + shared noise"
    assert "Noise is " in shown.expected and "% of the signal at 8 parties" in shown.expected
    assert parties.declaration == protocol.declare(consortium) and set(hosts) == set(consortium.parties)
    with pytest.raises(BadInput, match="can't be read") as read:
        _ = hosts["ash"].records
    assert "private record" in str(read.value.__context__)


def test_the_noise_to_signal_line_is_the_declared_noise_over_the_largest_signal() -> None:
    """Two classes: the mean vote is half a unit long at most, and five numbers carry noise."""
    protocol, consortium = soft("votes", 2), make_consortium(8, Approx(60, 1e-6))
    release = protocol.declare(consortium)["votes"]
    scale = release.scale(consortium)
    # Seven honest parts are accounted for, and eight parties add one each.
    of_one = scale.total * (sqrt(prod(release.shape) + 1) if isinstance(release.noise, Spherical) else 1.0)
    deviation = of_one * sqrt(8 / 7) * scale.grid / 8
    ratio = deviation * sqrt(5) / 0.5
    assert f"Noise is {ratio:.0%} of the signal" in protocol.expectation(consortium)


@pytest.mark.parametrize("statistic", ["votes", "class-sums", "cells", "models"])
@pytest.mark.parametrize("bad", ["feature", "label"])
def test_records_that_can_not_be_used_do_not_stop_the_others(statistic: Any, bad: str) -> None:
    """Whether a run stops would tell something about one party's records."""
    generator = np.random.default_rng(3)
    public = generator.normal(size=(60, 4)) / 4
    parties = {}
    for place in range(4):
        rows = generator.normal(size=(8, 4)) / 4
        parties[f"p{place}"] = Records(rows, (rows[:, 0] > 0).astype(np.int64))
    broken = parties["p2"]
    if bad == "feature":
        broken.features[0, 0] = np.nan
    else:
        cast(Any, broken.labels)[0] = 7
    method = SoftLabel.over_rows(auxiliary=public, statistic=statistic, sizes=8)
    outcome = simulate(method, parties=parties, epsilon=50.0, delta=1e-6, seed=1)
    assert np.isfinite(outcome.released["model"]).all()
