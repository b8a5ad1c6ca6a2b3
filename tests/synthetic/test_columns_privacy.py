"""How far one replaced record moves counts that are opened from shares, and what a coalition then sees of it."""

from __future__ import annotations

from itertools import combinations, product
from math import isclose, sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.audit.bound import mu_lower_bound
from comity.data import Categorical, Numeric, Schema
from comity.federation.declare.bounds import OpenedValue
from comity.methods.synthetic import SyntheticColumnsProtocol
from comity.methods.synthetic.columns import PLACES, ColumnPartition, sensitivity
from comity.methods.synthetic.counts import LAPLACE, Layout
from comity.privacy.loss import Approx, Pure
from tests.support.audits import SURE, claimed_mu

from .by_columns import build_columns, make_consortium_of
from .consortia import CLASSES, build_as
from .test_audit import views

COUNT = 20_000
UNIT = 4.0**-PLACES
TINY = Schema((Numeric("x", 0.0, 1.0, bins=2), Categorical("y", ("a", "b", "c"))), CLASSES)
OWNERS = [
    {"ash": ("x", "ill"), "birch": ("y",)},
    {"ash": ("y",), "birch": ("ill", "x")},
    {"ash": ("ill",), "birch": ("x",), "cedar": ("y",)},
]


def tiny(held: Any = OWNERS[0], **options: Any) -> SyntheticColumnsProtocol:
    return build_as(SyntheticColumnsProtocol, schema=TINY, columns=held, max_rows=1 << 10, **options)


def one_hots(partition: ColumnPartition, codes: Any) -> dict[Any, Any]:
    return {party: partition.one_hot(codes[:, list(places)], party) for party, places in partition.places.items()}


def products(partition: ColumnPartition, codes: Any) -> dict[Any, Any]:
    """Exact products across owners, in their units."""
    columns = one_hots(partition, codes)
    return {
        (one, other): (columns[one].T @ columns[other]).astype(np.int64) << (2 * PLACES)
        for one, other in combinations(partition.columns, 2)
    }


def shared(partition: ColumnPartition, layout: Layout, codes: Any, off: Any = None) -> np.ndarray:
    """The opened counts of these records, by the parties' own shares: products in clear, split by chance, each entry
    across owners `off` by so many units."""
    chance, columns = np.random.default_rng(0), one_hots(partition, codes)
    shares: Any = {party: {} for party in partition.columns}
    for (one, other), whole in products(partition, codes).items():
        whole = whole if off is None else whole + off[one, other]
        mine = chance.integers(0, 2**63, whole.shape, np.uint64)
        shares[one][one, other], shares[other][one, other] = mine, whole.view(np.uint64) - mine
    total = np.zeros(layout.counts, np.uint64)
    for party, own in columns.items():
        total += partition.share(layout, party, own.T @ own, shares[party])
    return total.view(np.int64) * UNIT


@pytest.mark.parametrize("held", OWNERS, ids=str)
@pytest.mark.parametrize("form", [{}, {"emphasis": LAPLACE}, {"sparse": True}, {"follows": {1: 0}}], ids=str)
def test_no_replaced_record_moves_the_counts_further_than_the_bound_and_one_moves_them_as_far(
    held: Any, form: Any
) -> None:
    """Brute force over every pair of records, through the parties' shares."""
    partition, layout = tiny(held).partition, Layout((2, 3, 2), 2, **form)
    every = np.array(list(product(*map(range, layout.sizes))))
    others = every[:2]
    found = [shared(partition, layout, np.vstack([others, row])) for row in every]
    assert all((one == layout.count(np.vstack([others, row]))).all() for one, row in zip(found, every)), (
        "shares add up to the counts by rows"
    )
    exact = sensitivity(layout, partition, 0.0)
    apart = [one - other for one in found for other in found]
    assert isclose(max(np.abs(one).sum() for one in apart), exact.l1)
    assert isclose(max(np.linalg.norm(one) for one in apart), exact.l2)


@pytest.mark.parametrize("held", OWNERS, ids=str)
def test_the_carry_of_products_is_within_the_bound_and_reaches_it(held: Any) -> None:
    """Every entry across owners a unit off, away from that of the neighbour, as a ring product allows."""
    partition, layout = tiny(held).partition, Layout((2, 3, 2), 2)
    every = np.array(list(product(*map(range, layout.sizes))))
    bound, without = sensitivity(layout, partition, UNIT), sensitivity(layout, partition, 0.0)
    l1, l2 = [], []
    for one, other in product(every, every):
        first, second = products(partition, one[None]), products(partition, other[None])
        away = {pair: np.where(first[pair] >= second[pair], 1, -1) for pair in first}
        back = {pair: -signs for pair, signs in away.items()}
        apart = shared(partition, layout, one[None], away) - shared(partition, layout, other[None], back)
        l1.append(np.abs(apart).sum())
        l2.append(np.linalg.norm(apart))
    assert max(l1) <= bound.l1 and max(l2) <= bound.l2
    assert isclose(max(l1), bound.l1)
    # In L2 the two terms are not parallel, so their sum is a bound; what is added to the first one is of its size.
    assert max(l2) - without.l2 > 0.4 * (bound.l2 - without.l2)


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_the_noise_of_a_study_is_scaled_for_replaced_records_and_the_carry(products: str) -> None:
    tried = build_columns(3, products=products)
    for loss in (Approx(1.0, 1e-6), Pure(1.0)):
        consortium = make_consortium_of(tried, loss)
        release, layout = tried.declare(consortium)["counts"], tried.counting(consortium).layout
        weights = np.array(layout.weights)
        least = 2 * weights.sum() if isinstance(loss, Pure) else sqrt(2 * (weights**2).sum())
        carry = 2 * UNIT * sum(block.weight * block.cells for block in tried.partition.across(layout))
        assert isinstance(release.bound, OpenedValue) and release.grid == tried.product.unit == UNIT
        if products == "dealer":
            assert release.sensitivity == pytest.approx(least, rel=1e-15)
        else:
            assert least < release.sensitivity <= least + 1.001 * carry
            assert not isinstance(loss, Pure) or release.sensitivity >= least + carry
    assert PLACES >= 6


def pair(tried: Any, consortium: Any, replaced: bool = True) -> Any:
    """Opened counts of two neighbours, furthest apart."""
    layout = tried.counting(consortium).layout
    others = np.array([[0, 0, 0], [1, 1, 1]])
    last = np.vstack([others, [1, 1, 1]]) if replaced else others
    return shared(tried.partition, layout, np.vstack([others, [0, 0, 0]])), shared(tried.partition, layout, last)


def estimate_loss(tried: Any, consortium: Any, *, parts: Any = None, stretched: float = 1.0) -> float:
    release = tried.declare(consortium)["counts"]
    first, second = pair(tried, consortium)
    apart = stretched * (first - second)
    seen = [views(release, consortium, second + side * apart, 5 + side, parts=parts, count=COUNT) for side in (1, 0)]
    if isinstance(consortium.loss, Pure):
        scores = [np.abs(view - second).sum(1) - np.abs(view - second - apart).sum(1) for view in seen]
        return epsilon_lower_bound(*scores, confidence=SURE)
    return mu_lower_bound(*(view @ apart for view in seen), confidence=SURE)


@pytest.mark.parametrize("colluders", [0, 1])
def test_counts_lose_no_more_than_is_debited_for_them(colluders: int) -> None:
    tried = tiny(OWNERS[2])
    consortium = make_consortium_of(tried, Approx(6.0, 1e-6), colluders=colluders)
    claimed = claimed_mu(tried.declare(consortium)["counts"])
    assert 0.7 * claimed < estimate_loss(tried, consortium) <= claimed
    # Controls: a record that is counted twice, and noise that counts on parts which the readers know.
    assert estimate_loss(tried, consortium, stretched=2.0) > claimed
    assert estimate_loss(tried, consortium, parts=1) > claimed


def test_pure_counts_keep_their_epsilon() -> None:
    tried = tiny(OWNERS[0], model="mixture")
    consortium = make_consortium_of(tried, Pure(2.0))
    # Laplace noise on many coordinates hides more than its worst case says.
    assert 0.3 * 2.0 < estimate_loss(tried, consortium) <= 2.0
    assert estimate_loss(tried, consortium, stretched=4.0) > 2.0


def test_noise_for_a_removal_is_caught_where_records_are_replaced() -> None:
    """Positive control: what by rows a record may cost that comes or goes is too little for one that is replaced."""
    tried = tiny(OWNERS[0])
    consortium = make_consortium_of(tried, Approx(6.0, 1e-6))
    claimed = claimed_mu(tried.declare(consortium)["counts"])
    assert estimate_loss(tried, consortium, stretched=sqrt(2)) > claimed
