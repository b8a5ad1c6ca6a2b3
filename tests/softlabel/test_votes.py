"""What a party sends: votes whose rows sum to one, whatever it holds; and why that matters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import DataError, Refused, Stopped, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.learn.fits import contrasts, fit_softmax
from comity.methods.softlabel import PublishedSoftLabel
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit
from tests.support.published import rebuild_as

from .consortia import all_alike, auxiliary, host_parties, make_cohort, make_consortium, ordinary, protocol

EMPTY = Records(np.zeros((0, 4)), np.zeros(0, np.int64))


def contribution(method: Any, records: Records) -> np.ndarray:
    total = make_cohort(method, [records]).sum(method.train if method.method == "avg" else method.vote)
    return total.value


@pytest.mark.parametrize("classes", [2, 3, 6, 11])
def test_contrast_rows_are_orthonormal_and_sum_to_zero(classes: int) -> None:
    basis = contrasts(classes)
    np.testing.assert_allclose(basis @ basis.T, np.eye(classes - 1), atol=1e-14)
    np.testing.assert_allclose(basis.sum(1), 0, atol=1e-14)


@pytest.mark.parametrize("classes", [3, 6])
def test_released_coordinates_lose_nothing_of_a_minimiser(classes: int) -> None:
    soft = protocol(classes, l2=1e-3)
    shares = np.random.default_rng(0).dirichlet(np.ones(classes), len(soft.auxiliary))
    weights = fit_softmax(soft.auxiliary, shares, soft.l2).weights
    np.testing.assert_allclose(weights.sum(0), 0, atol=1e-9)
    coordinates = soft.fit(shares)
    assert coordinates.shape == (classes - 1, 4)
    np.testing.assert_allclose(soft.coefficients(coordinates), weights, atol=1e-9)
    assert np.linalg.norm(coordinates) == pytest.approx(np.linalg.norm(weights), abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_party_without_records_votes_evenly_and_takes_part(classes: int) -> None:
    soft = protocol(classes)
    np.testing.assert_array_equal(contribution(soft, EMPTY), np.full((20, classes), 1 / classes))
    records = [*ordinary(classes, parties=3), EMPTY]
    parties, _, _ = host_parties(soft, records)
    begin(parties)
    total = parties.sum(soft.vote)
    assert total.parties == 4
    filled = sum(contribution(soft, own) for own in records[:3])
    np.testing.assert_allclose(total.value - filled, 1 / classes, atol=1e-12)


def test_a_party_without_records_averages_a_zero_model() -> None:
    avg = protocol(3, "avg")
    np.testing.assert_array_equal(contribution(avg, EMPTY), np.zeros(avg.shape))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("label", [0, 1])
def test_a_party_with_one_class_votes_for_it_where_its_records_are(classes: int, label: int) -> None:
    one_sided = all_alike(0.9, label, rows=5, width=4)
    votes = contribution(protocol(classes), one_sided)
    near = auxiliary()[:, 0] > 1e-9
    assert near.any() and (votes[near].argmax(1) == label).all()
    np.testing.assert_array_equal(votes.sum(1), 1)


def test_votes_are_whole_units_of_one_over_the_number_of_classes() -> None:
    soft = protocol(3)
    release = soft.declare(make_consortium(5))["votes"]
    for records in (*ordinary(3), EMPTY):
        units = contribution(soft, records) / release.grid
        np.testing.assert_allclose(units, np.rint(units), atol=1e-12)
        assert set(np.rint(units).astype(int).ravel()) <= {0, 1, 3}


@dataclass(frozen=True, kw_only=True, eq=False)
class Abstaining(PublishedSoftLabel):
    """Sends one row that is no distribution."""

    row: tuple[float, ...] = (0.0, 0.0, 0.0)

    @step(sends="votes", stacked=True)
    def vote(self, site: Site) -> None:
        rows = np.full((*site.features.shape[:-2], *self.declare(site.consortium)["votes"].shape), 1 / 3)
        rows[..., 0, :] = self.row
        site.contribute(rows)


@pytest.mark.parametrize("row", [(0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (2.0, -1.0, 0.0), (np.nan, 0.5, 0.5)])
def test_a_row_outside_the_simplex_never_leaves_and_costs_nothing(row: Any) -> None:
    method = rebuild_as(Abstaining, protocol(), row=row)
    parties, hosts, _ = host_parties(method, ordinary(3))
    with pytest.raises((Refused, Stopped)):
        run(parties)
    for host in hosts.values():
        assert "draw" not in [entry.kind for entry in host.store.ledger.entries()]
        assert host.store.ledger.summary()[0].spent.pure == 0
    with pytest.raises(Refused):
        make_cohort(method, ordinary(3)).sum(method.vote)


def test_the_global_fit_refuses_shares_that_do_not_sum_to_one() -> None:
    """Summed over classes, the gradient of the mean loss is Σ (1 − Σ_c a_ic) x_i / N: it would carry no noise."""
    shares = np.full((20, 3), 1 / 3)
    shares[0] = 0.0
    with pytest.raises(DataError, match="simplex"):
        protocol(3).fit(shares)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "median"},
        {"sensitivity_bound": "loose"},
        {"l2": 0.0},
        {"l2": float("nan")},
        {"classes": ("only",)},
        {"auxiliary": np.zeros((0, 4))},
        {"auxiliary": np.full((2, 4), 0.6)},
    ],
)
def test_settings_that_void_the_claim_are_refused(changed: Any) -> None:
    with pytest.raises(StudyError):
        replace(protocol(3), **changed)


@pytest.mark.parametrize(
    ("unit", "neighbours"), [(Unit.RECORD, Neighbours.REPLACE), (Unit.PARTY, Neighbours.ADD_REMOVE)]
)
def test_other_units_and_relations_are_refused(unit: Any, neighbours: Any) -> None:
    consortium = replace(make_consortium(3, Pure(1)), unit=unit, neighbours=neighbours)
    with pytest.raises(StudyError, match="whole party"):
        protocol(3).declare(consortium)
