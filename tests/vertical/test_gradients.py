"""Gradient rounds: the curve, secure equal to plain to the last unit, lost replies, terms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.crypto import masked_lookup
from comity.errors import ComityError, SiteLost, Stopped, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.messages.codec import encode
from comity.federation.owner.site import Site
from comity.methods.method import Setting
from comity.methods.vertical import VerticalRegression, dealer_rounds
from comity.methods.vertical.centralised import CentralRounds, run_rounds
from comity.methods.vertical.curves import CURVES, ERROR, TABLE_PLACES, WIDEST, Response, shortest_curve
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.descent import Descent, FeatureDistribution, FreeDirections, weigh_priors
from comity.methods.vertical.method import SWITCH, GradientRegression, Vertical
from comity.methods.vertical.rlwe_rounds import RlweRounds
from comity.methods.vertical.rounds import LARGEST_RESIDUAL, constant_units, emphasise_score
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.randomness import ReleasedNoise, SeededNoise
from comity.study.simulation.simulate import Terms, simulate
from tests.support.channels import Stumbling
from tests.support.noise import NoNoise
from tests.support.vertical import (
    HELD,
    build_gradients,
    build_regression,
    encode_parts,
    host_parties,
    make_columns,
    make_consortium,
    make_people,
    make_schema,
)

ROWS = 700

MODELS = {"dealer": 0.3, "rlwe": 0.05}
"""How far coefficients from so many rows may be beside those of one place: with a dealer, responses are rounded at
random."""


def secure_run(tried: Any, frame: Any, noise: Any = None, consortium: Any = None) -> Any:
    """Released values, where every round started, and what the secure sums opened."""
    consortium = consortium or make_consortium(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), consortium, noise or NoNoise())
    before, opened, inner = [], [], Descent.step

    def watched(self: Any, values: Any) -> Descent:
        before.append(self)
        opened.append(values)
        return inner(self, values)

    try:
        cast(Any, Descent).step = watched
        released = run(parties)
    finally:
        cast(Any, Descent).step = inner
    return released, before, opened, parties, hosts


def sums_of(tried: Any, columns: Any, descent: Any) -> np.ndarray:
    return CentralRounds(tried.secure_rounds, columns, descent.whitening).sums(
        descent.weights, descent.intervals, CURVES[descent.curve]
    )


# The curve.


@pytest.mark.parametrize("curve", CURVES)
def test_the_waves_are_as_close_as_they_say_and_no_larger_on_the_whole_circle(curve: Response) -> None:
    step = curve.period / 4096
    z = step * np.arange(np.ceil(-curve.reach / step), curve.reach / step)
    off = np.abs(1 / (1 + np.exp(-z)) - 0.5 - curve.at(curve.to_angles(z)))
    assert 0.94 * ERROR < off.max() <= ERROR
    every = curve.at(np.arange(4096).astype(np.uint16))
    assert np.abs(every).max() + 0.5 <= LARGEST_RESIDUAL < 1.001
    assert np.abs(curve.table.values).max() / 2**TABLE_PLACES + 0.5 <= LARGEST_RESIDUAL


def test_wider_curves_have_more_harmonics_and_none_as_many_as_another() -> None:
    """Parties that were told different curves multiply messages of different lengths, which they refuse."""
    counts = [len(curve.harmonics) for curve in CURVES]
    reaches = [curve.reach for curve in CURVES]
    assert counts == sorted(set(counts)) and reaches == sorted(set(reaches))
    assert [shortest_curve(reach) for reach in reaches] == list(range(len(CURVES)))
    assert shortest_curve(1e9) == len(CURVES) - 1


@pytest.mark.parametrize("curve", CURVES)
def test_every_number_has_a_place_on_the_circle(curve: Response) -> None:
    near = curve.period / 32
    z = np.array([0.0, near, curve.period + near, near - curve.period, 1e300, -1e300, np.inf, -np.inf, np.nan])
    found = curve.to_angles(z)
    assert found.max() < 4096
    assert found[1] == found[2] == found[3] == 128


def test_partial_scores_stay_in_their_interval_whatever_the_weights() -> None:
    tried = build_gradients(3)
    columns, rounds = make_columns(tried, make_people(50)), tried.secure_rounds
    for size in (0.0, 1.0, 1e6, 1e308):
        for party, own in columns.items():
            weights = size * np.resize([1.0, -1.0], rounds.size)
            found = rounds.scores(rounds.features(own, party), party, weights, np.array([0.5, 2.0]))
            scores = ((found.astype(np.int64) + 2048) % 4096 - 2048) * WIDEST.period / 4096
            assert scores.min() >= -1.5 - 1e-9 and scores.max() <= 2.5 + 1e-9


def test_sums_of_a_dealer_have_room_with_a_bit_for_the_sign_and_one_to_spare() -> None:
    for parties, rows, bits in ((2, 1 << 20, 48), (4, 1 << 22, 64), (4, 1 << 24, 64)):
        rounds = cast(DealerRounds, build_gradients(parties, max_rows=rows).secure_rounds)
        assert rounds.bits == bits
        assert parties * rows * LARGEST_RESIDUAL / rounds.grid < 2.0 ** (bits - 2)


def spread(rows: int) -> float:
    """What random rounding to entries may add to a sum: five deviations, each row's instrument up to ½."""
    return 5 * 0.06 * sqrt(rows) / 2


# Secure and plain.


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
@pytest.mark.parametrize("parties", [2, 3, 4])
def test_a_secure_round_opens_the_sums_of_one_place(parties: int, products: str) -> None:
    tried, frame = build_gradients(parties, rounds=2, products=products), make_people(ROWS)
    released, before, opened, *_ = secure_run(tried, frame)
    columns = make_columns(tried, frame)
    assert len(opened) == 2
    for descent, found in zip(before, opened):
        exact = sums_of(tried, columns, descent)
        assert np.abs(exact).max() > 1
        np.testing.assert_allclose(found, exact, atol=spread(ROWS) if products == "dealer" else ROWS * 4e-4, rtol=0)
    plain = run_rounds(tried, columns, make_consortium(tried), NoNoise())[0]
    np.testing.assert_allclose(released["model"], plain, atol=MODELS[products])


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_a_round_with_a_dealer_opens_the_sums_of_what_was_looked_up_to_the_last_unit(
    parties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without masks of angles, the places that the coordinator rounds to say which entries those are."""
    places: list[Any] = []
    rounding = masked_lookup.round_to_entries

    def watching(angles: Any, table: Any, seed: Any) -> Any:
        places.append((rounding(angles, table, seed), table))
        return places[-1][0]

    monkeypatch.setattr(masked_lookup, "draw_angles", lambda seed, rows: np.zeros(rows, np.uint16))
    monkeypatch.setattr(masked_lookup, "round_to_entries", watching)
    tried, frame = build_gradients(parties, rounds=2), make_people(ROWS)
    _, before, opened, *_ = secure_run(tried, frame)
    columns = make_columns(tried, frame)
    for descent, found, (chosen, table) in zip(before, opened, places, strict=True):
        held = CentralRounds(tried.secure_rounds, columns, descent.whitening)
        holder = tried.design.label_at
        label = columns[holder][:, tried.design.label.start - tried.design.places(holder).start]
        responses = np.ldexp(table.values[chosen * table.step].astype(np.float64), -TABLE_PLACES) - np.sign(label) / 2
        exact = [np.ldexp(own.T @ responses, -12) for own in held.instruments.values()]
        exact.append([np.ldexp(constant_units(tried.secure_rounds.size), -12) * responses.sum()])
        np.testing.assert_array_equal(found, np.concatenate(exact))


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
def test_a_holder_of_the_label_alone_takes_part(products: Any) -> None:
    held = {"ash": ("sick",), "birch": ("age", "place", "dose", "sex")}
    tried = Vertical.over_columns(
        schema=make_schema(), columns=held, products=products, max_rows=1 << 14, solver="gradient", rounds=2
    )
    assert isinstance(tried, GradientRegression)
    frame = make_people(ROWS)
    released, *_ = secure_run(tried, frame)
    plain = run_rounds(tried, make_columns(tried, frame), make_consortium(tried), NoNoise())[0]
    np.testing.assert_allclose(released["model"], plain, atol=MODELS[products])


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
def test_without_an_intercept_there_is_no_constant_anywhere(products: str) -> None:
    tried, frame = build_gradients(2, intercept=False, products=products, rounds=3), make_people(ROWS)
    released, before, *_ = secure_run(tried, frame)
    assert all(len(descent.weights) == sum(tried.secure_rounds.widths.values()) for descent in before)
    plain = run_rounds(tried, make_columns(tried, frame), make_consortium(tried), NoNoise())[0]
    np.testing.assert_allclose(released["model"], plain, atol=MODELS[products])


def skewed(rows: Any) -> Any:
    """People of whom few are sick, by a logistic model on a skewed feature: where a tangent is a poor curve."""
    frame, generator = make_people(rows), np.random.default_rng(8)
    age = 100 * generator.beta(1, 5, rows)
    score = -3.0 + 0.06 * age - 1.2 * frame["dose"] + (frame["place"] == "farm")
    sick = generator.uniform(size=rows) < 1 / (1 + np.exp(-score))
    return frame.assign(age=age, sick=np.where(sick, "yes", "no"))


def test_rounds_come_closer_to_the_logistic_fit_than_the_quadratic() -> None:
    from comity.learn.fits import fit_logistic

    tried, frame = build_gradients(2, rounds=6), skewed(12_000)
    consortium = make_consortium(tried, Approx(1000, 1e-5))
    encoded = tried.encoding.encode(frame).records
    wanted = fit_logistic(encoded.features, cast(Any, encoded.labels).astype(np.float64), 1e-6, tol=1e-6).weights
    columns = make_columns(tried, frame)
    start = tried.start(tried.entries.exact(np.hstack(list(columns.values()))), len(frame), consortium)

    def off(coef: Any) -> float:
        return float(np.abs(encoded.features @ (coef - wanted)).mean())

    found = off(run_rounds(tried, columns, consortium, NoNoise())[0])
    assert found < 0.03 and found < 0.15 * off(start.coefficients)


@pytest.mark.parametrize("colluders", [0, 1])
def test_noise_of_hosts_has_the_declared_size_for_whoever_reads_the_weights(colluders: int) -> None:
    tried, frame = build_gradients(2, rounds=4), make_people(100)
    consortium, columns, off = make_consortium(tried, colluders=colluders), make_columns(tried, make_people(100)), []
    for seed in range(3):
        _, before, opened, *_ = secure_run(tried, frame, SeededNoise(seed), consortium)
        off += [found - sums_of(tried, columns, descent) for descent, found in zip(before, opened)]
    assert np.concatenate(off).std() == pytest.approx(tried.round_deviation(consortium), rel=0.3)
    release = tried.declare(consortium)["gradient"]
    # Of two parties one reads: what the other added alone is the whole of the declared noise.
    assert release.parts(consortium) == 1 and tried.declare(consortium)["moments"].parts(consortium) == 1
    assert release.noise is not None
    alone = release.noise.scale(sensitivity=release.sensitivity, shape=release.shape, parts=1, grid=release.grid)
    assert release.scale(consortium) == alone


def test_rounds_follow_an_alignment() -> None:
    frame = make_people(80)
    tried = build_gradients(2, identifier=True, alignment="keyed", max_rows=1 << 10, rounds=2)
    records = {
        "ash": encode_parts(tried, frame.iloc[5:])["ash"],
        "birch": encode_parts(tried, frame.iloc[:70].sample(frac=1, random_state=3))["birch"],
    }
    consortium = make_consortium(tried)
    model = run(host_parties(tried, records, consortium, NoNoise())[0])["model"]
    plain = run_rounds(tried, make_columns(tried, frame.iloc[5:70]), consortium, NoNoise())[0]
    np.testing.assert_allclose(model, plain, atol=4 * MODELS["dealer"])


# The life of a run.


@pytest.mark.parametrize(
    ("step", "products"),
    [
        ("rounds.blind[0]", "dealer"),
        ("rounds.mask[0]", "dealer"),
        ("rounds.weigh[1]", "dealer"),
        ("rounds.respond[0]", "dealer"),
        ("rounds.settle[1]", "dealer"),
        ("descend[1]", "dealer"),
        ("rounds.encrypt[1]", "rlwe"),
        ("rounds.evaluate[0]", "rlwe"),
    ],
)
def test_a_lost_reply_is_asked_for_again(step: str, products: str) -> None:
    tried, frame = build_gradients(2, products=products, rounds=2), make_people(200)
    consortium, records = make_consortium(tried), encode_parts(tried, frame)
    whole, _ = host_parties(tried, records, consortium, NoNoise())
    stumbling, hosts = host_parties(tried, records, consortium, NoNoise())
    stumbling.channel = Stumbling(hosts, "birch", step)
    with pytest.raises(SiteLost):
        run(stumbling)
    again, _ = host_parties(tried, records, consortium, NoNoise())
    again.channel, again.journal = stumbling.channel, stumbling.journal
    np.testing.assert_allclose(run(again)["model"], run(whole)["model"], atol=2 * MODELS[products])


def test_a_run_pays_its_budget_once_and_resumes_to_the_same_model() -> None:
    tried, frame = build_gradients(2), make_people(200)
    consortium, records = make_consortium(tried), encode_parts(tried, frame)
    first, hosts = host_parties(tried, records, consortium, ReleasedNoise())
    model = run(first)["model"]
    again, _ = host_parties(tried, records, consortium, ReleasedNoise())
    again.channel, again.journal = first.channel, first.journal
    np.testing.assert_array_equal(run(again)["model"], model)
    spent = hosts["ash"].store.ledger.summary()[0].spent.gaussian
    gradient = tried.gradient(consortium.loss)
    assert (
        spent
        == cast(GDP, tried.moment_terms(consortium).loss).square + gradient.times * cast(GDP, gradient.loss).square
    )


def test_a_simulated_study_stays_within_its_budget_and_says_what_it_does() -> None:
    tried, frame = build_gradients(2), make_people(400)
    found = simulate(
        tried,
        parties=encode_parts(tried, frame),
        epsilon=1,
        delta=1e-5,
        unit="record",
        terms=Terms(colluders=1, schema=tried.design.schema),
    )
    assert 0.9 < found.guarantee.epsilon <= 1
    text = found.plan.as_text()
    assert "6 rounds" in text and "off by 0.008" in text and "2 times the variance" in text


def test_a_plan_without_a_dealer_says_what_a_round_sends() -> None:
    for parties in (2, 3):
        tried, frame = build_gradients(parties, rounds=1, products="rlwe"), make_people(300)
        consortium = make_consortium(tried)
        rounds = cast(RlweRounds, tried.secure_rounds)
        assert "without a dealer the parties send each other up to" in tried.expectation(consortium)
        running, _ = host_parties(tried, encode_parts(tried, frame), consortium, NoNoise())
        letters: list[Any]
        letters, inner = [], Site.send

        def sending(
            site: Any, to: Any, name: Any, value: Any, key: Any = None, letters: Any = letters, inner: Any = inner
        ) -> Any:
            if name.startswith(("wave", "score")):
                letters.append(len(encode(value)))
            return inner(site, to, name, value, key)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Site, "send", sending)
            run(running)
        # The plan names the widest curve's; the run took a shorter one.
        sent = [rounds.bytes_per_round(300, curve) for curve in CURVES]
        assert any(one <= sum(letters) < 1.02 * one + 4000 for one in sent[:-1])
        assert sum(letters) < rounds.bytes_per_round(300) == sent[-1]


# Terms.


def test_auto_decides_by_public_things() -> None:
    tried = build_gradients(2, solver="auto")
    assert tried.makes_rounds(make_consortium(tried, Approx(SWITCH, 1e-5)))
    assert not tried.makes_rounds(make_consortium(tried, Approx(0.9 * SWITCH, 1e-5)))
    assert tried.makes_rounds(make_consortium(tried, Approx(1, 1e-5), colluders=0))
    assert build_gradients(2, solver="auto", products="rlwe").makes_rounds(make_consortium(tried, Approx(1, 1e-5)))
    three = build_gradients(3, solver="auto", products="rlwe")
    assert three.makes_rounds(make_consortium(three, Approx(1, 1e-5)))
    assert not three.makes_rounds(make_consortium(three, Approx(1, 1e-5), colluders=2))
    four = build_gradients(4, solver="auto")
    assert four.makes_rounds(make_consortium(four, Approx(1, 1e-5)))
    linear = build_gradients(2, solver="auto", linear=True)
    assert not linear.makes_rounds(make_consortium(linear, Approx(1, 1e-5)))
    low = make_consortium(tried, Approx(0.9 * SWITCH, 1e-5))
    assert {release.name for release in tried.declare(low).releases} >= {"model", "errors"}
    assert tried.declare(low)["moments"].loss == tried.moments(low.loss).loss


def auto(parties: int = 2, **options: Any) -> GradientRegression:
    return build_gradients(parties, solver="auto", **options)


def test_auto_says_what_rounds_would_need_where_there_is_something_to_choose() -> None:
    consortium = partial(make_consortium, loss=Approx(1, 1e-5))
    needs: dict[str, tuple[GradientRegression, dict[str, Any]]] = {
        "a delta, and epsilon": (auto(), {"loss": Approx(0.1, 1e-5)}),
        "Gaussian noise": (auto(pure=True), {"loss": Pure(1)}),
        "party_epsilon": (auto(party_epsilon={"ash": 9.0}), {}),
        "one colluder at most": (auto(3, products="rlwe"), {"colluders": 2}),
    }
    for said, (tried, terms) in needs.items():
        under = consortium(tried, **terms)
        assert not tried.makes_rounds(under) and said in tried.notes(under)[-1]
        plain = Vertical.over_columns(
            schema=tried.schema,
            columns=tried.columns,
            pure=tried.pure,
            products=tried.products,
            party_epsilon=tried.party_epsilon,
            max_rows=tried.max_rows,
            solver="quadratic",
        )
        assert tried.declare(under).releases == plain.declare(under).releases
        assert tried.expectation(under) == plain.expectation(under)
    linear, plain = auto(linear=True), build_regression(2, products="dealer", linear=True)
    assert linear.notes(consortium(linear)) == plain.notes(consortium(plain)) and linear.title == plain.title
    assert "two classes" in auto(linear=True, rounds=4).notes(consortium(linear))[-1]
    assert auto().notes(consortium(auto())) == build_regression(2).notes(consortium(auto()))


def test_auto_below_the_switch_is_the_quadratic_to_the_last_bit() -> None:
    frame, plain = make_people(300), build_regression(2, products="dealer")
    tried = build_gradients(2, solver="auto")
    consortium = make_consortium(tried, Approx(0.9 * SWITCH, 1e-5))
    models = [
        run(host_parties(one, encode_parts(one, frame), consortium, NoNoise())[0])["model"] for one in (tried, plain)
    ]
    np.testing.assert_array_equal(*models)


def test_a_study_names_its_solver() -> None:
    unread: Any = None
    setting = Setting(schema=make_schema(), where="study.toml", read=unread, columns=HELD[2])

    def built(**keys: Any) -> Any:
        return Vertical(**keys).build(setting)

    assert type(built(solver="quadratic")) is VerticalRegression
    assert built().solver == "auto" and isinstance(built().secure_rounds, RlweRounds)
    found = built(products="dealer", rounds=3)
    assert isinstance(found, GradientRegression) and found.rounds == 3 and "where they help" in found.title
    assert isinstance(built(solver="gradient").secure_rounds, RlweRounds)


def test_records_that_change_during_a_run_are_refused() -> None:
    """A mask serves one matrix."""
    tried, frame = build_gradients(2), make_people(60)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
    inner = tried.secure_rounds.coordinate_round

    def changed(*arguments: Any) -> None:
        object.__setattr__(hosts["ash"], "records", encode_parts(tried, make_people(60, seed=9))["ash"])
        inner(*arguments)

    object.__setattr__(tried.secure_rounds, "coordinate_round", changed)
    with pytest.raises(Stopped):
        run(parties)


def test_wrong_terms_are_found_before_anything_runs() -> None:
    three = build_gradients(3, products="rlwe")
    with pytest.raises(StudyError, match="one party of three"):
        three.declare(make_consortium(three, colluders=2))
    with pytest.raises(StudyError, match="two classes"):
        build_gradients(2, linear=True)
    with pytest.raises(StudyError, match="delta"):
        build_gradients(2, pure=True)
    with pytest.raises(StudyError, match="rounds"):
        build_gradients(2, rounds=0)
    with pytest.raises(StudyError, match="solver"):
        build_gradients(2, solver="newton")
    with pytest.raises(StudyError, match="party_epsilon"):
        build_gradients(2, party_epsilon={"ash": 1.0})
    tried = build_gradients(2)
    with pytest.raises(StudyError, match="delta"):
        tried.declare(make_consortium(tried, Pure(1)))


# What the coordinator makes of it.


def free(columns: Any, precision: float = 0.0, expected: float = 1.0) -> FreeDirections:
    count = columns.shape[1]
    return FreeDirections(columns, np.full(count, expected), np.full(count, precision))


def test_weights_that_stand_out_of_the_noise_are_found_and_others_are_not() -> None:
    generator, values, alike = np.random.default_rng(1), np.full(400, 50.0), np.ones(400)
    nothing, noise, spread = np.zeros((400, 1)), 30 * generator.normal(size=400), np.full(400, 900.0)
    for true in (1.0, 20.0):
        weights = np.sqrt(true) * generator.normal(size=400)
        found = weigh_priors(values * weights + noise, free(nothing), values, spread, alike)
        # The best that is possible: noise of 0.6 beside weights of this size.
        assert np.mean((found - weights) ** 2) == pytest.approx(1 / (1 / true + 1 / 0.36), rel=0.2)
    assert np.abs(weigh_priors(noise, free(nothing), values, spread, alike)).max() < 0.4


def test_multiples_are_found_and_what_was_expected_counts_as_much_as_it_is_known() -> None:
    generator, values, alike = np.random.default_rng(1), np.full(400, 50.0), np.ones(400)
    parts, spread = values[:, None] * generator.normal(size=(400, 2)), np.full(400, 900.0)
    look = 2 * parts[:, 0] - parts[:, 1] + 30 * generator.normal(size=400)
    for precision, wanted in ((0.0, [2, -1]), (1e9, [1, 1])):
        found = weigh_priors(look, free(parts, precision), values, spread, alike)
        if precision == 0.0:
            assert np.linalg.lstsq(parts / 50, found, rcond=None)[0] == pytest.approx(wanted, rel=0.1)
            continue
        # Held at what was expected, the multiples are made up for by single weights, shrunk.
        assert np.linalg.lstsq(parts / 50, found, rcond=None)[0][1] > -0.9


def test_a_direction_that_varies_more_beforehand_keeps_more_of_a_look() -> None:
    values, sizes = np.full(40, 50.0), np.where(np.arange(40) < 4, 8.0, 0.08)
    look = values * np.sqrt(sizes) * np.random.default_rng(3).normal(size=40)
    found = weigh_priors(look, free(np.zeros((40, 1))), values, np.full(40, 2500.0), sizes)
    kept = found / (look / values)
    assert kept[:4].min() > 0.75 and kept[4:].max() < 0.3


def test_instruments_that_lean_on_the_score_are_as_long_and_say_more_of_it() -> None:
    generator = np.random.default_rng(4)
    x = generator.normal(size=(20_000, 12)) @ generator.normal(size=(12, 12))
    whitened = np.linalg.inv(np.linalg.cholesky(np.cov(x.T)))
    weights = generator.normal(size=12)
    for noise, share in ((0.0, 1 / 12), (0.4, 0.2), (9.0, 0.25)):
        u = x @ emphasise_score(whitened, weights, noise).T
        assert (u**2).sum(axis=1).mean() == pytest.approx(12, rel=0.02)
        # What is left of the instruments once the score is taken out, which all of them explain together.
        score = x @ weights / np.std(x @ weights)
        assert ((u.T @ score / len(x)) ** 2).sum() == pytest.approx(12 * share, rel=0.02)
    assert emphasise_score(whitened, np.zeros(12), 1.0) is whitened
    assert emphasise_score(np.eye(1), np.ones(1), 1.0) == np.eye(1)


def test_whitened_rows_are_as_long_as_the_noise_is_laid_out_for_however_loud_the_moments() -> None:
    """Eigenvalues that are raised to the noise's size add up to far more than these rows have."""
    generator, rows, size = np.random.default_rng(2), 4000, 80
    x = generator.normal(size=(rows, size)) * np.geomspace(0.3, 0.03, size)
    x = np.column_stack([x, np.ones(rows)])
    noise = np.triu(10 * generator.normal(size=(size + 1, size + 1)))
    noise[-1, -1] = 0
    gram = x.T @ x + noise + np.triu(noise, 1).T
    distribution = FeatureDistribution.of(gram, np.full(gram.shape, 100.0), rows, 1.0)
    places = {"ash": slice(0, 30), "birch": slice(30, size)}
    for party, matrix in distribution.whitening(places).items():
        own = places[party]
        squares = (((x[:, own] - distribution.mean[own]) @ matrix) ** 2).sum(axis=1)
        assert squares.mean() == pytest.approx(own.stop - own.start, rel=0.2)
    raised = replace(distribution, seen=distribution.spread).whitening(places)["birch"]
    assert (((x[:, 30:size] - distribution.mean[30:size]) @ raised) ** 2).sum(axis=1).mean() < 0.5 * (size - 30)


def test_a_simulation_says_what_share_of_the_rows_is_cut() -> None:
    tried, frame = build_gradients(2), make_people(ROWS)
    columns, consortium = make_columns(tried, frame), make_consortium(tried, Approx(3, 1e-5))
    _, cut = run_rounds(tried, columns, consortium, SeededNoise(1))
    assert 0.2 < cut["instruments clipped"] < 0.8 and 0 <= cut["scores clipped"] < 0.05
    start = tried.start(tried.entries.exact(np.hstack(list(columns.values()))), ROWS, consortium)
    held = CentralRounds(tried.secure_rounds, columns, start.whitening)
    narrow = start.intervals * [1.0, 1e-3]
    assert held.clipped_fractions(start.weights, narrow)["scores clipped"] > 0.9


def test_noise_alone_leaves_scores_near_zero_whatever_the_rounds_open() -> None:
    """Labels that have nothing to do with the features, noise far above what 200 records could tell."""
    tried, frame = build_gradients(2), make_people(200)
    frame = frame.assign(sick=np.where(np.arange(200) % 2, "yes", "no"))
    consortium = make_consortium(tried, Approx(0.01, 1e-5))
    encoded = tried.encoding.encode(frame).records.features
    sizes = [
        np.abs(encoded @ run_rounds(tried, make_columns(tried, frame), consortium, SeededNoise(seed))[0]).mean()
        for seed in range(6)
    ]
    assert np.median(sizes) < 8


# Stretches of rows.


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
def test_rounds_in_several_stretches_are_the_same_rounds(products: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comity.methods.vertical.dealer_rounds._LARGEST_STRETCH", 1500)
    monkeypatch.setattr("comity.methods.vertical.rlwe_rounds._STRETCH_CHUNKS", 1)
    rows = 4096 + 900
    tried, frame = build_gradients(3, rounds=2, products=products), make_people(rows)
    _, before, opened, parties, _ = secure_run(tried, frame)
    last = {"dealer": "rounds.settle[7]", "rlwe": "rounds.evaluate[3]"}[products]
    assert last in [path for path, *_ in parties.journal.traces(parties.study, parties.run)]
    columns = make_columns(tried, frame)
    for descent, found in zip(before, opened, strict=True):
        exact = sums_of(tried, columns, descent)
        np.testing.assert_allclose(found, exact, atol=spread(rows) if products == "dealer" else rows * 4e-4, rtol=0)


def test_no_two_stretches_parties_or_rounds_have_one_mask_and_one_that_they_shared_would_show_their_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the coordinator reads are masked scores. Two under one mask differ by the scores' difference."""
    monkeypatch.setattr(dealer_rounds, "_LARGEST_STRETCH", 350)

    found: list[np.ndarray] = []
    mask = masked_lookup.subtract_angles

    def masking(angles: Any, masks: Any) -> Any:
        shown = mask(angles, masks)
        found.append((shown.astype(np.int64) - angles) % 4096)
        return shown

    monkeypatch.setattr(masked_lookup, "subtract_angles", masking)
    secure_run(build_gradients(2, rounds=2), make_people(ROWS))
    assert len(found) == 8 and len({one.tobytes() for one in found}) == 8
    found.clear()
    monkeypatch.setattr(DealerRounds, "_round_seed", lambda self, site, number, stretch: self._seed(site))
    secure_run(build_gradients(2, rounds=2), make_people(ROWS))
    assert len({one.tobytes() for one in found}) == 2, "the attack: all stretches of a party under one mask"


def test_every_word_that_leaves_a_site_has_a_mask_that_no_other_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealer_rounds, "_LARGEST_STRETCH", 350)
    drawn: dict[bytes, set[str]] = {}
    words = masked_lookup.draw_words

    def drawing(seed: bytes, rows: int) -> Any:
        made = words(seed, rows)
        drawn.setdefault(seed, set()).add(made[:4].tobytes().hex())
        return made

    monkeypatch.setattr(masked_lookup, "draw_words", drawing)
    secure_run(build_gradients(3, rounds=2), make_people(ROWS))
    firsts = [one for found in drawn.values() for one in found]
    # Instruments of three parties and labels in two stretches; responses, two shares of zero and two parts of responses
    # in two stretches of two rounds; two parts of the sums of two rounds.
    assert len(firsts) == len(set(firsts)) == 2 * 4 + 4 * 5 + 2 * 2


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
def test_a_curve_that_does_not_exist_is_refused(products: str) -> None:
    tried = build_gradients(2, products=products, rounds=1)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())

    coordinate = type(tried.secure_rounds).coordinate_round

    def beyond(self: Any, parties: Any, number: int, weights: Any, intervals: Any, curve: int, held: Any) -> None:
        coordinate(self, parties, number, weights, intervals, len(CURVES))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(tried.secure_rounds), "coordinate_round", beyond)
        with pytest.raises(ComityError, match="curve"):
            run(parties)


def test_partners_that_were_told_different_curves_do_not_multiply() -> None:
    """What they would add up to is no curve at all, so no bound would hold."""
    tried = build_gradients(2, products="rlwe", rounds=1)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
    ask = type(parties).ask

    def asking(self: Any, step: Any, **values: Any) -> Any:
        if step == "weigh":
            shown = values.pop("curve")
            for number, one in enumerate(values["each"].values()):
                one["curve"] = np.array([(int(shown[0]) + number) % len(CURVES)], np.uint8)
        return ask(self, step, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(parties), "ask", asking)
        with pytest.raises(ComityError, match="form"):
            run(parties)
