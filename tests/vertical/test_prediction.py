"""Joint prediction: the scores of the whole model, partial scores masked, and a policy that must allow it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.errors import Refused, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.policy import Policy
from comity.federation.plan import plan
from comity.methods.vertical.prediction import JointPrediction
from tests.support.noise import NoNoise
from tests.support.vertical import HELD, encode_parts, host_parties, make_consortium, make_people, make_schema


def prediction(parties: int = 2, **options: Any) -> JointPrediction:
    given = {
        "coef": np.array([1.0, 0.2, -0.3, 0.1, -2.0, 0.4, -0.4, 0.05]),
        "intercept": True,
        "bins": False,
        "alignment": "none",
        "max_rows": 1 << 20,
        **options,
    }
    return JointPrediction(schema=make_schema(identifier=given["alignment"] != "none"), columns=HELD[parties], **given)


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_scores_are_those_of_the_whole_model(parties: int) -> None:
    tried, frame = prediction(parties), make_people(200).drop(columns="sick")
    coordinator, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
    wanted = tried.encoding.encode_features(frame) @ tried.coef
    np.testing.assert_allclose(run(coordinator)["scores"], wanted, atol=1e-6)


def test_new_records_are_aligned() -> None:
    tried, frame = prediction(2, alignment="keyed"), make_people(50).drop(columns="sick")
    records = {
        "ash": encode_parts(tried, frame.iloc[10:])["ash"],
        "birch": encode_parts(tried, frame.iloc[::-1])["birch"],
    }
    coordinator, _ = host_parties(tried, records, make_consortium(tried), NoNoise())
    found = np.sort(run(coordinator)["scores"])
    np.testing.assert_allclose(found, np.sort(tried.encoding.encode_features(frame.iloc[10:]) @ tried.coef), atol=1e-6)


def test_single_partial_scores_are_uniform_to_the_coordinator() -> None:
    tried, frame = prediction(3), make_people(2000).drop(columns="sick")
    coordinator, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
    begin(coordinator)
    tried.coordinate(coordinator)
    told = coordinator.ask(tried.partial, rows=2000)
    assert len(told) == 3
    for party, values in told.items():
        words = values["masked"]
        shares = words / 2.0**64
        assert abs(shares.mean() - 0.5) < 0.04, party
        # Without masks the scores of a party with few columns would be few different numbers near zero.
        assert len(np.unique(words)) == len(words) and np.abs(words.view(np.int64)).min() < 2**60


def test_a_site_whose_policy_does_not_allow_it_refuses() -> None:
    tried, frame = prediction(2), make_people(20).drop(columns="sick")
    coordinator, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
    hosts["birch"].policy = Policy(approved=None)
    with pytest.raises(Refused, match="joint_predictions"):
        run(coordinator)


def test_it_is_declared_as_exact_and_at_two_parties_as_telling_the_others_part() -> None:
    two, three = (prediction(k) for k in (2, 3))
    said = two.declare(make_consortium(two))["masked"].protection.text
    assert "EXACT" in said and "partial score to the other" in said
    assert "partial score to the other" not in three.declare(make_consortium(three))["masked"].protection.text


def test_weights_of_another_schema_are_refused() -> None:
    with pytest.raises(StudyError, match="encodes 8 features"):
        prediction(2, coef=np.zeros(5))


def test_its_plan_warns_that_it_is_not_private() -> None:
    for parties in (2, 3):
        tried = prediction(parties)
        planned = plan("scores", tried, make_consortium(tried))
        assert planned.claim.startswith("not private") and "WARNING" in planned.as_text()


def test_there_is_none_where_the_coordinator_keeps_the_model() -> None:
    tried = prediction(2)
    with pytest.raises(Refused, match="colluders"):
        tried.declare(make_consortium(tried, colluders=0))


def test_the_policy_counts_records_and_not_only_consents() -> None:
    frame = make_people(20).drop(columns="sick")
    for most, allowed in ((20, True), (21, False)):
        tried = prediction(2, max_rows=most)
        coordinator, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
        hosts["birch"].policy = Policy(approved=None, joint_predictions=20)
        if allowed:
            assert len(run(coordinator)["scores"]) == 20
        else:
            with pytest.raises(Refused, match="joint_predictions"):
                run(coordinator)


def test_more_records_than_agreed_on_are_not_scored() -> None:
    tried, frame = prediction(2, max_rows=10), make_people(20).drop(columns="sick")
    coordinator, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), NoNoise())
    with pytest.raises(Refused):
        run(coordinator)
