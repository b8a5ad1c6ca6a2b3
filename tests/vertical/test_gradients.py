"""Gradient rounds: the curve, secure equal to plain to the last unit, lost replies, terms."""

from __future__ import annotations

import numpy as np
import pytest

from comity.errors import SiteLost, Stopped, StudyError
from comity.federation.parties import run
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import ReleasedNoise, SeededNoise
from comity.protocols.parameters import Setting
from comity.protocols.vertical import VerticalRegression
from comity.protocols.vertical.columns import PLACES
from comity.protocols.vertical.gradients import GradientRegression
from comity.protocols.vertical.gradients_in_one_place import descended, exact_sums
from comity.protocols.vertical.parameters import VerticalParameters
from comity.protocols.vertical.response import (
    ERROR,
    LARGEST,
    REACH,
    SLOPE,
    limits,
    partial_scores,
    response_places,
    responses,
    score_places,
)
from comity.runtime.simulate import simulate

from .consortia import HELD, NoNoise, consortium, hosted, parts, people, schema
from .test_resume import Stumbling

ROWS = 700


def protocol(parties=2, **options):
    settings = {"most": 1 << 14, "products": "dealer", **options}
    return GradientRegression(schema=schema(linear=settings.pop("linear", False)), columns=HELD[parties], **settings)


def columns_of(tried, frame):
    return {party: tried.layout.matrix(own, party) for party, own in parts(tried, frame).items()}


def secure_run(tried, frame, noise=None, who=None):
    """Released values, the weights of every round, and what the secure sums opened."""
    who = who or consortium(tried)
    parties, hosts = hosted(tried, parts(tried, frame), who, noise or NoNoise())
    weights, opened, inner = [], [], type(tried.start(np.zeros(tried.dissection.size), 10, who)).step

    def watched(self, values):
        weights.append(self.weights)
        opened.append(values)
        return inner(self, values)

    kind = type(tried.start(np.zeros(tried.dissection.size), 10, who))
    try:
        kind.step = watched
        released = run(parties)
    finally:
        kind.step = inner
    return released, weights, opened, parties, hosts


# The curve.


def test_the_cubic_is_as_close_and_as_large_as_it_says():
    z = np.linspace(-REACH, REACH, 200_001)
    s = z - z**3 / 32
    off = np.abs(1 / (1 + np.exp(-z)) - 0.5 - SLOPE * s)
    assert 0.99 * ERROR < off.max() <= ERROR
    assert 0.9999 * LARGEST < np.abs(s).max() <= LARGEST


def test_integer_responses_are_those_of_the_curve_and_stay_below_the_bound():
    places = 6
    z = np.arange(-REACH << places, (REACH << places) + 1)
    found = responses(z, places) * 2.0 ** -response_places(places)
    real = z / 2**places
    np.testing.assert_allclose(found, real - real**3 / 32, atol=1e-12)
    assert np.abs(found).max() <= LARGEST


def test_scores_can_not_leave_the_interval_whatever_the_weights():
    tried = protocol(3)
    columns, rounds = columns_of(tried, people(50)), tried.descent
    part = limits(tried.layout, rounds.places)
    assert sum(part.values()) <= REACH << rounds.places
    for size in (0.0, 1.0, 1e6, 1e308):
        for party, own in columns.items():
            weights = size * np.resize([1.0, -1.0], rounds.widths[party])
            found = partial_scores(rounds.features(own, party), weights, size, part[party], rounds.places)
            assert np.abs(found).max() <= part[party]


def test_room_in_64_bits_is_found_before_anything_is_sent():
    for rows, parties in ((1 << 14, 2), (1 << 20, 2), (1 << 24, 8)):
        places = score_places(rows, parties)
        assert parties * rows * LARGEST * 2.0 ** (response_places(places) + PLACES) < 2.0**62
    assert score_places(1 << 14, 2) > score_places(1 << 24, 2)
    with pytest.raises(StudyError, match="64 bits"):
        score_places(1 << 24, 1 << 10)


# Secure and plain.


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_a_secure_round_opens_the_very_integers_of_one_place(parties):
    tried, frame = protocol(parties, rounds=2), people(ROWS)
    released, weights, opened, *_ = secure_run(tried, frame)
    columns = columns_of(tried, frame)
    grid = tried.gradient(consortium(tried).loss).grid
    assert len(opened) == 2
    for w, found in zip(weights, opened):
        exact = exact_sums(tried.descent, columns, w)
        assert np.abs(exact).max() > 1 << 40
        np.testing.assert_array_equal(np.rint(found / grid), exact.astype(np.float64))
    plain = descended(tried, columns, consortium(tried), NoNoise())
    np.testing.assert_allclose(released["model"], plain, atol=1e-9)


def test_without_an_intercept_the_constant_stays_zero():
    tried, frame = protocol(2, intercept=False), people(ROWS)
    released, weights, *_ = secure_run(tried, frame)
    assert all(w[-1] == 0 for w in weights)
    plain = descended(tried, columns_of(tried, frame), consortium(tried), NoNoise())
    np.testing.assert_allclose(released["model"], plain, atol=1e-9)


def skewed(rows):
    """People of whom few are sick, by a logistic model on a skewed feature: where a tangent is a poor curve."""
    frame, generator = people(rows), np.random.default_rng(8)
    age = 100 * generator.beta(1, 5, rows)
    score = -3.0 + 0.06 * age - 1.2 * frame["dose"] + (frame["place"] == "farm")
    sick = generator.uniform(size=rows) < 1 / (1 + np.exp(-score))
    return frame.assign(age=age, sick=np.where(sick, "yes", "no"))


def test_rounds_come_closer_to_the_logistic_fit_than_the_quadratic():
    from comity.learn.logistic import logistic

    tried, frame = protocol(2, rounds=6), skewed(12_000)
    who = consortium(tried, Approx(1000, 1e-5))
    encoded = tried.encoding.encode(frame).records
    wanted = logistic(encoded.features, encoded.labels.astype(np.float64), 1e-6, tol=1e-6).weights
    columns = columns_of(tried, frame)
    start = tried.start(tried.dissection.exact(np.hstack(list(columns.values()))), len(frame), who)

    def off(coef):
        return float(np.abs(encoded.features @ (coef - wanted)).mean())

    assert off(descended(tried, columns, who, NoNoise())) < 0.5 * off(tried.coefficients(start))


def test_noise_of_hosts_and_of_one_place_has_the_declared_size():
    tried, frame = protocol(2, rounds=4), people(100)
    who = consortium(tried)
    columns = columns_of(tried, frame)
    grid, off = tried.gradient(who.loss).grid, []
    for seed in range(3):
        _, weights, opened, *_ = secure_run(tried, frame, SeededNoise(seed))
        off += [found - grid * exact_sums(tried.descent, columns, w) for w, found in zip(weights, opened)]
    assert np.concatenate(off).std() == pytest.approx(tried.round_deviation(who), rel=0.3)


def test_rounds_follow_an_alignment():
    frame = people(80)
    tried = GradientRegression(
        schema=schema(identifier=True), columns=HELD[2], products="dealer", alignment="keyed", most=1 << 10, rounds=2
    )
    records = {
        "ash": parts(tried, frame.iloc[5:])["ash"],
        "birch": parts(tried, frame.iloc[:70].sample(frac=1, random_state=3))["birch"],
    }
    who = consortium(tried)
    model = run(hosted(tried, records, who, NoNoise())[0])["model"]
    plain = descended(tried, columns_of(tried, frame.iloc[5:70]), who, NoNoise())
    np.testing.assert_allclose(model, plain, atol=1e-9)


# The life of a run.


@pytest.mark.parametrize("step", ["rounds.blind[0]", "rounds.weigh[1]", "rounds.respond[0]", "descend[1]"])
def test_a_lost_reply_is_asked_for_again(step):
    tried, frame = protocol(2), people(200)
    who, records = consortium(tried), parts(tried, frame)
    whole, _ = hosted(tried, records, who, NoNoise())
    stumbling, hosts = hosted(tried, records, who, NoNoise())
    stumbling.channel = Stumbling(hosts, "birch", step)
    with pytest.raises(SiteLost):
        run(stumbling)
    again, _ = hosted(tried, records, who, NoNoise())
    again.channel, again.journal = stumbling.channel, stumbling.journal
    np.testing.assert_allclose(run(again)["model"], run(whole)["model"], atol=1e-9)


def test_a_run_pays_its_budget_once_and_resumes_to_the_same_model():
    tried, frame = protocol(2), people(200)
    who, records = consortium(tried), parts(tried, frame)
    first, hosts = hosted(tried, records, who, ReleasedNoise())
    model = run(first)["model"]
    again, _ = hosted(tried, records, who, ReleasedNoise())
    again.channel, again.journal = first.channel, first.journal
    np.testing.assert_array_equal(run(again)["model"], model)
    spent = hosts["ash"].store.ledger.summary()[0].spent.gaussian
    gradient = tried.gradient(who.loss)
    assert spent == tried.for_moments(who).loss.square + gradient.times * gradient.loss.square


def test_a_simulated_study_stays_within_its_budget_and_says_what_it_does():
    tried, frame = protocol(2), people(400)
    found = simulate(
        tried, parties=parts(tried, frame), epsilon=1, delta=1e-5, unit="record", colluders=1, schema=tried.schema
    )
    assert 0.9 < found.guarantee.epsilon <= 1
    text = found.plan.as_text()
    assert "6 gradients" in text and "off by 0.0446" in text and "2 times the variance" in text


# Terms.


def test_auto_decides_by_public_things():
    tried = protocol(2, solver="auto")
    assert tried.descends(consortium(tried, Approx(0.5, 1e-5)))
    assert not tried.descends(consortium(tried, Approx(0.4, 1e-5)))
    assert not tried.descends(consortium(tried, Approx(1, 1e-5), colluders=0))
    assert not protocol(2, solver="auto", products="rlwe").descends(consortium(tried, Approx(1, 1e-5)))
    three = protocol(3, solver="auto")
    assert not three.descends(consortium(three, Approx(1, 1e-5)))
    linear = protocol(2, solver="auto", linear=True)
    assert not linear.descends(consortium(linear, Approx(1, 1e-5)))
    low = consortium(tried, Approx(0.4, 1e-5))
    assert {release.name for release in tried.declare(low).releases} >= {"model", "errors"}
    assert tried.declare(low)["moments"].loss == tried.moments(low.loss).loss


def test_auto_below_the_switch_is_the_quadratic_to_the_last_bit():
    from .consortia import protocol as quadratic

    frame, plain = people(300), quadratic(2, products="dealer")
    tried = protocol(2, solver="auto")
    who = consortium(tried, Approx(0.4, 1e-5))
    models = [run(hosted(one, parts(one, frame), who, NoNoise())[0])["model"] for one in (tried, plain)]
    np.testing.assert_array_equal(*models)


def test_a_study_names_its_solver():
    setting = Setting(schema=schema(), where="study.toml", read=lambda name: None, columns=HELD[2])

    def built(**keys):
        return VerticalParameters(**keys).build(setting)

    assert type(built()) is type(built(solver="quadratic")) is VerticalRegression
    found = built(solver="auto", products="dealer", rounds=3)
    assert isinstance(found, GradientRegression) and found.rounds == 3 and "where they help" in found.title
    with pytest.raises(StudyError, match="rlwe"):
        built(solver="gradient")


def test_records_that_change_during_a_run_are_refused():
    """A mask serves one matrix."""
    tried, frame = protocol(2), people(60)
    parties, hosts = hosted(tried, parts(tried, frame), consortium(tried), NoNoise())
    inner = tried.descent.coordinate_round

    def changed(*arguments):
        object.__setattr__(hosts["ash"], "records", parts(tried, people(60, seed=9))["ash"])
        inner(*arguments)

    object.__setattr__(tried.descent, "coordinate_round", changed)
    with pytest.raises(Stopped):
        run(parties)


def test_wrong_terms_are_found_before_anything_runs():
    with pytest.raises(StudyError, match="rlwe"):
        protocol(2, products="rlwe")
    with pytest.raises(StudyError, match="two classes"):
        protocol(2, linear=True)
    with pytest.raises(StudyError, match="delta"):
        protocol(2, pure=True)
    with pytest.raises(StudyError, match="rounds"):
        protocol(2, rounds=0)
    with pytest.raises(StudyError, match="solver"):
        protocol(2, solver="newton")
    with pytest.raises(StudyError, match="party_epsilon"):
        protocol(2, party_epsilon={"ash": 1.0})
    tried = protocol(2)
    with pytest.raises(StudyError, match="colluders"):
        tried.declare(consortium(tried, colluders=0))
    with pytest.raises(StudyError, match="delta"):
        tried.declare(consortium(tried, Pure(1)))
