"""The published average between hosts: what is opened is what one computer would have computed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.products.fixed_point import join_shares
from comity.data import Records
from comity.errors import Refused, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Selected
from comity.methods.averaging import Averaging
from comity.methods.averaging.published.method import PublishedAveraging
from comity.methods.averaging.published.noise import PublishedNoise
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.study.results.result import Result
from tests.support.protocols import simulate_with
from tests.support.published import build_published

from .published_consortium import STUDY, Meeting, QuickKeys, make_consortium, records

WIDTH = 12


def protocol(**changes: object) -> QuickKeys:
    settings: dict[str, object] = {"width": WIDTH, "l2": 0.1, "noise": "spherical"}
    return build_published(QuickKeys, **{**settings, **changes})


def drawn_by(meeting: Meeting, name: str) -> np.ndarray:
    (only,) = meeting.noises[name].drawn
    return only


@pytest.mark.parametrize(
    ("noise", "sizes"),
    [
        ("spherical", (30, 50)),
        ("spherical", (50, 30)),
        ("spherical", (40, 25, 60)),
        ("spherical", (70, 60, 50, 20, 40)),
        ("literal", (40, 60, 25)),
    ],
)
def test_the_shares_add_up_to_the_models_and_the_noise_of_the_smallest(noise: str, sizes: Any) -> None:
    meeting = Meeting(protocol(noise=noise), sizes)
    released = run(meeting.parties())
    smallest = meeting.consortium.parties[int(np.argmin(sizes))]
    expected = meeting.exact() + drawn_by(meeting, smallest)
    np.testing.assert_array_equal(join_shares(list(released["shares"].values())), expected)
    model = meeting.protocol.present(released, meeting.consortium)
    grid = meeting.protocol.noise_for(meeting.consortium).grid
    np.testing.assert_allclose(model.coef_[0], expected * grid / len(sizes), rtol=1e-14)


def test_every_participant_publishes_a_share_and_none_can_be_left_out() -> None:
    meeting = Meeting(protocol(), (30, 20, 40))
    shares = run(meeting.parties())["shares"]
    assert set(shares) == {*meeting.consortium.parties, "curator"}
    whole = join_shares(list(shares.values()))
    for name in shares:
        rest = join_shares([words for other, words in shares.items() if other != name])
        # Without it what is left is spread over the whole ring, 2^20 times further than the model.
        assert np.median(np.abs(rest.astype(float))) > 2.0**20 * np.median(np.abs(whole.astype(float)))


def test_of_equal_sizes_one_noise_is_taken_and_the_model_is_that_of_all() -> None:
    meeting = Meeting(protocol(), (25, 25, 60))
    added = join_shares(list(run(meeting.parties())["shares"].values())) - meeting.exact()
    matching = [name for name in meeting.consortium.parties if np.array_equal(added, drawn_by(meeting, name))]
    assert len(matching) == 1 and matching[0] in meeting.consortium.parties[:2]


def test_everyone_draws_once_and_is_charged_whoever_the_smallest_is() -> None:
    meeting = Meeting(protocol(), (30, 20, 40), epsilon=0.5)
    run(meeting.parties())
    assert {name: meeting.spent(name) for name in meeting.consortium.parties} == dict.fromkeys(
        meeting.consortium.parties, 0.5
    )
    assert all(len(noise.drawn) == 1 for noise in meeting.noises.values())


def test_noise_is_scaled_for_the_own_records_as_published() -> None:
    meeting = Meeting(protocol(), (30, 20, 40))
    run(meeting.parties())
    terms = meeting.protocol.noise_for(meeting.consortium)
    for name, size in zip(meeting.consortium.parties, meeting.sizes):
        published = 3 * 2 / (size * 1.0 * 0.1) / terms.grid
        assert meeting.noises[name].scales[0] == pytest.approx(published, rel=2e-3)
        assert meeting.noises[name].scales[0] >= published


def test_a_party_without_records_or_with_too_many_takes_part() -> None:
    empty = Meeting(protocol(), (30, 0, 40))
    added = join_shares(list(run(empty.parties())["shares"].values()))
    np.testing.assert_array_equal(added, _sum_without(empty, "birch") + drawn_by(empty, "birch"))
    many = Meeting(protocol(most=25), (40, 30))
    run(many.parties())
    # Neither counts for more than 25 records, so that both have the same noise, more than they need.
    assert many.noises["ash"].scales == many.noises["birch"].scales


def _sum_without(meeting: Meeting, left_out: str) -> np.ndarray:
    grid = meeting.protocol.noise_for(meeting.consortium).grid
    models = [
        meeting.protocol._fit(host.records.features, cast(Any, host.records.labels))
        for name, host in meeting.hosts.items()
        if name != left_out
    ]
    found: np.ndarray = np.sum([np.rint(model / grid).astype(np.int64) for model in models], axis=0)
    return found


def test_records_outside_the_unit_ball_are_brought_inside() -> None:
    far = {name: Records(100 * data.features, data.labels) for name, data in _two_parties().items()}
    near = {name: Records(_projected(data.features), data.labels) for name, data in far.items()}
    models = [_simulated(protocol(), parties).model.coef_ for parties in (far, near)]
    np.testing.assert_allclose(models[0], models[1], atol=1e-6)


def _projected(features: np.ndarray) -> np.ndarray:
    found: np.ndarray = features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    return found


def _two_parties() -> dict[str, Records]:
    return {"ash": records(30, WIDTH, 1), "birch": records(40, WIDTH, 2)}


def _simulated(method: PublishedAveraging, parties: dict[str, Records], **changes: object) -> Result:
    settings: dict[str, object] = {"epsilon": 1.0, "unit": "record", "colluders": 0, "seed": 3, "hash": "b" * 64}
    return simulate_with(method, parties=parties, **{**settings, **changes})


def test_a_simulation_learns_and_compares() -> None:
    parties = {name: records(4000, 3, place) for place, name in enumerate(("ash", "birch", "cedar"))}
    outcome = _simulated(protocol(width=3), parties, epsilon=5.0, test=records(2000, 3, 9))
    constant, without = outcome.baseline("constant"), outcome.baseline("without noise")
    assert constant is not None and without is not None and outcome.error is not None
    assert without.error - 0.01 <= outcome.error < constant.error / 2
    assert outcome.guarantee.epsilon == 5.0
    assert "smallest party needs" in outcome.plan.expected


def test_the_claim_excepts_the_smallest_party_and_literal_noise_is_worse() -> None:
    consortium = make_consortium(2)
    spherical, literal = (
        protocol(noise=noise, width=123, l2=1.0).declare(consortium) for noise in ("spherical", "literal")
    )
    assert not spherical.private and "against the party with the fewest records" in spherical.claim
    assert "as claimed" not in spherical.claim and isinstance(spherical["noise"].protection, Selected)
    assert not literal.private and "not private as claimed" in literal.claim and "2.826" in literal.claim
    charged = literal["noise"].loss
    assert charged is not None and float(cast(Pure, charged).epsilon) == pytest.approx(2.826, abs=1e-3)


@pytest.mark.parametrize("noise", ["spherical", "literal"])
def test_a_site_refuses_what_is_not_private_before_anything_is_drawn(noise: str) -> None:
    meeting = Meeting(protocol(noise=noise), (30, 20), policy=Policy(approved={STUDY: 1}))
    with pytest.raises(Refused, match="policy"):
        run(meeting.parties())
    assert not any(noise.drawn for noise in meeting.noises.values())


def test_literal_noise_is_charged_what_it_costs() -> None:
    meeting = Meeting(protocol(noise="literal", width=60), (30, 20))
    run(meeting.parties())
    terms = PublishedNoise("literal", 2, 60, 0.1, 1.0, 1 << 20)
    assert meeting.spent("ash") == pytest.approx(terms.true_epsilon) and terms.true_epsilon > 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": Unit.PARTY}, "privacy.unit"),
        ({"neighbours": Neighbours.ADD_REMOVE}, "secret sizes"),
        ({"colluders": 1}, "no collusion"),
        ({"dropouts": 1}, "privacy.dropouts"),
        ({"loss": Approx(1, 1e-6)}, "privacy.delta"),
    ],
)
def test_terms_that_the_proof_does_not_cover_are_refused(changes: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        protocol().declare(make_consortium(3, **changes))


def test_one_party_has_nobody_to_hide_among() -> None:
    with pytest.raises(StudyError, match="2 to 1000 parties"):
        protocol().declare(make_consortium(1))


@pytest.mark.parametrize(
    "changes", [{"classes": ("a", "b", "c")}, {"noise": "gaussian"}, {"l2": 0.0}, {"key_bits": 512}, {"most": 0}]
)
def test_parameters_are_checked_when_a_study_is_read(changes: Any) -> None:
    with pytest.raises(StudyError):
        protocol(**changes)


@pytest.mark.long
@pytest.mark.parametrize(("size", "width", "bar"), [(5, 124, 20.0), (50, 20, 60.0)])
def test_a_run_ends_in_time(size: int, width: int, bar: float) -> None:
    parties = {f"party-{place}": records(200 + 10 * place, width, place) for place in range(size)}
    method = Averaging.published_over_rows(width=width, l2=0.1)
    assert _simulated(method, parties, seed=None).seconds < bar
