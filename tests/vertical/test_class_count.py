"""Where declared sizes say that noise hides every column, the label's holder counts the classes and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.audit import gdp_lower_bound
from comity.errors import Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.bounds import Counts
from comity.federation.declare.consortium import COORDINATOR, EVERYONE
from comity.methods.vertical import GradientRegression
from comity.methods.vertical.class_count import count_classes, estimate_share
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.noise import NoNoise
from tests.support.vertical import (
    build_gradients,
    build_regression,
    encode_parts,
    host_parties,
    make_consortium,
    make_people,
)

ROWS = 200


def build(parties: int = 2, **options: Any) -> GradientRegression:
    return build_gradients(parties, **{"solver": "auto", "sizes": ROWS, **options})


def low(tried: Any, colluders: int = 1) -> Any:
    return make_consortium(tried, Approx(0.1, 1e-5), colluders=colluders)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("identifier", [False, True])
def test_a_run_opens_the_counts_of_the_common_rows(parties: int, identifier: bool) -> None:
    """By every number of parties, in the same order and aligned by identifiers."""
    alignment = "keyed" if identifier else "none"
    tried = build(parties, identifier=identifier, alignment=alignment)
    consortium, frame = low(tried), make_people(ROWS)
    records = encode_parts(tried, frame)
    if identifier:
        # One party lacks some people: whatever it holds of them, they are not counted.
        last, kept = list(tried.columns)[-1], slice(60, ROWS)
        own = records[last]
        labels = None if own.labels is None else own.labels[kept]
        assert own.ids is not None
        records[last] = replace(own, features=own.features[kept], labels=labels, ids=own.ids[kept])
        frame = frame.iloc[kept]
    server, _ = host_parties(tried, records, consortium, NoNoise())
    begin(server)
    released = run(server)
    share = float((frame["sick"] == "yes").mean())
    coef = np.asarray(released["model"])
    assert np.count_nonzero(coef) == 1
    deviation = tried.class_count(consortium).opened_deviation(consortium)
    counts = np.array([(1 - share) * len(frame), share * len(frame)])
    assert np.allclose(coef, tried.fit_constant(counts, len(frame), consortium))
    assert coef[-1] == pytest.approx(np.log(1 / (1 / estimate_share(counts, deviation, len(frame)) - 1)))


def test_nobody_but_the_labels_holder_gives_or_pays_anything() -> None:
    tried = build(3)
    consortium = low(tried)
    declared = tried.declare(consortium).accept(consortium)
    assert [release.name for release in declared.releases] == ["size", "moments", "model"]
    holder = tried.design.label_at
    assert [party for party in tried.columns if declared.paid_by(party, consortium)] == [holder]
    assert declared["model"].to == EVERYONE
    assert tried.declare(low(tried, colluders=0))["model"].to == COORDINATOR
    server, _ = host_parties(tried, encode_parts(tried, make_people(ROWS)), consortium, NoNoise())
    begin(server)
    with pytest.raises(Refused, match="undeclared"):
        server.ask(tried.contribute, to=[next(party for party in tried.columns if party != holder)])


@pytest.mark.parametrize(
    "options",
    [
        {"sizes": None},
        {"sizes": 100_000},
        {"solver": "gradient"},
        {"intercept": False},
        {"party_epsilon": {"ash": 0.05}},
    ],
)
def test_other_studies_release_moments(options: dict[str, Any]) -> None:
    tried = build(**options)
    assert not tried.counts_classes(low(tried))


def test_a_quadratic_or_a_linear_model_has_moments_whatever_the_sizes() -> None:
    for tried in (build_regression(2, sizes=ROWS), build_regression(2, linear=True, sizes=ROWS, solver="auto")):
        assert tried.declare(low(tried))["moments"].shape != (2,)


@pytest.mark.parametrize("pure", [False, True])
def test_a_replaced_record_moves_the_counts_by_no_more_than_declared(pure: bool) -> None:
    """Every pair of labels, and equality for two of different classes."""
    tried = build(pure=pure)
    release = tried.class_count(make_consortium(tried, Pure(0.1) if pure else Approx(0.1, 1e-5)))
    others = np.array([1.0, -1.0, 1.0])
    moved = [
        np.linalg.norm(count_classes(np.append(others, one)) - count_classes(np.append(others, other)), ord=norm)
        for one in (-1.0, 1.0)
        for other in (-1.0, 1.0)
        for norm in ((1,) if pure else (2,))
    ]
    assert max(moved) == pytest.approx(release.sensitivity)
    assert isinstance(release.bound, Counts)


@pytest.mark.parametrize(("shrink", "within"), [(1.0, True), (0.7, False)])
def test_counts_lose_no_more_than_they_claim_and_less_noise_is_caught(shrink: float, within: bool) -> None:
    tried = build()
    consortium = make_consortium(tried, Approx(1, 1e-5))
    release = tried.class_count(consortium)
    scale, noise = release.scale(consortium), release.noise
    assert noise is not None
    step = np.array([-1.0, 1.0]) / scale.grid
    seen = []
    for place in (0, 1):
        drawn = noise.draw(SeededNoise(place), scale, (40_000, 2), permit=simulated_permit("moments"), part=False)
        seen.append((place * step + shrink * drawn) @ step)
    found = gdp_lower_bound(*seen, delta=1e-5, confidence=1 - 1e-7)
    assert (0.4 < found <= 1) if within else found > 1


@pytest.mark.parametrize("deviation", [0.0, 5.0, 60.0, 1e4])
def test_the_share_is_possible_on_the_right_side_and_grows_with_the_counts(deviation: float) -> None:
    """For any noise: between 0 and 1 without either, one half where nothing is known, the exact share without noise."""
    ends = np.linspace(-3 * ROWS, 3 * ROWS, 41)
    found = [estimate_share(np.array([ROWS / 2 - end / 2, ROWS / 2 + end / 2]), deviation, ROWS) for end in ends]
    assert all(0 < one < 1 for one in found) and all(np.diff(found) >= -1e-9)
    assert all((share - 0.5) * end >= -1e-9 for share, end in zip(found, ends))
    if deviation == 1e4:
        assert np.allclose(found, 0.5, atol=0.02)
    if deviation == 0.0:
        inside = np.abs(ends) < ROWS
        assert np.allclose(np.array(found)[inside], 0.5 + ends[inside] / (2 * ROWS), atol=0.005)


def test_a_constant_of_few_rows_is_the_more_frequent_class() -> None:
    """500 rows at epsilon 0.1, of which 24 % are of the second class: in 200 draws no sign is wrong, where the sum in
    moments has noise of 0.6 of the rows."""
    tried = build(sizes=500)
    consortium = make_consortium(tried, Approx(0.1, 1e-6))
    release = tried.class_count(consortium)
    scale, noise = release.scale(consortium), release.noise
    assert noise is not None and tried.counts_classes(consortium)
    drawn = noise.draw(SeededNoise(3), scale, (200, 2), permit=simulated_permit("moments"), part=False) * scale.grid
    signs = [tried.fit_constant(np.array([380.0, 120.0]) + one, 500, consortium)[-1] > 0 for one in drawn]
    assert sum(signs) == 0
