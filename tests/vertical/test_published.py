"""The published functional mechanism: who opens what to whom, who adds the noise, and what it truly loses."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.products.fixed_point import lower_from_word, raise_to_word
from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from comity.errors import Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import Policy
from comity.federation.messages.codec import decode
from comity.federation.plan import plan
from comity.methods.vertical.published.polynomial import coefficients, minimise_polynomial
from comity.methods.vertical.published.protocol import PublishedVertical
from comity.methods.vertical.published.sensitivities import (
    printed_sensitivity,
    printed_share,
    true_record_share,
    true_share,
)
from comity.privacy.loss import Pure
from comity.privacy.randomness import SeededNoise
from comity.study.results.views import list_views
from tests.support.arrays import find_arrays
from tests.support.noise import NoNoise
from tests.support.vertical import (
    HELD,
    build_published,
    encode_parts,
    host_parties,
    make_consortium,
    make_people,
    make_schema,
)

UNIT = 2.0**-28


def method(parties: int = 2, *, linear: bool = False, **options: Any) -> PublishedVertical:
    """With a constant feature, at the label's holder."""
    options = {"intercept": True, **options}
    return build_published(make_schema(linear=linear), HELD[parties], max_rows=1 << 12, **options)


def whole_rows(tried: PublishedVertical, frame: Any) -> tuple[np.ndarray, np.ndarray]:
    """Encoded rows and the label that is multiplied with them, on the grid of the products."""
    encoded = tried.encoding.encode(frame).records
    labels = cast(Any, encoded.labels)
    label = labels - 0.5 if tried.logistic else labels / 5 - 1
    return tuple(np.rint(values * 2**14) / 2**14 for values in (encoded.features, label))  # type: ignore[return-value]


def read_by_coordinator(parties: Any) -> Iterator[np.ndarray]:
    """Every array in the replies that reach the coordinator."""
    for _, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            yield from find_arrays(decode(exchange.reply or b"").get("ok"))


def coordinated(parties: Any) -> None:
    """A run up to its end, which would delete what the sites hold of it."""
    begin(parties)
    parties.protocol.coordinate(parties)


def opened_by(hosts: Any, party: str, peer: str) -> np.ndarray:
    """The sums that a party reads of its columns with those of a peer: what the peer sent, and its own share."""
    theirs = decode(hosts[party].store.state("run-1", f"in:sums:{peer}"))
    mine = decode(hosts[peer].store.state("run-1", f"in:sums:{party}"))
    bits = method(2).product.bits
    return np.asarray(lower_from_word(raise_to_word(theirs + mine, bits), bits) * UNIT)


# Algorithm 1, line by line.


@pytest.mark.parametrize("linear", [False, True])
def test_the_coordinator_reads_noisy_coefficients_and_no_exact_sum(linear: bool) -> None:
    tried, frame = method(3, linear=linear), make_people(200, linear=linear)
    features, label = whole_rows(tried, frame)
    z = np.column_stack([features, label])
    exact = np.rint(z.T @ z / UNIT).reshape(-1)
    forbidden = np.unique(np.abs(exact[np.abs(exact) > 1]))
    leaked = []
    for noise in (SeededNoise(3), NoNoise()):
        parties, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), noise)
        run(parties)
        read = np.concatenate([np.abs(one.astype(np.float64)).reshape(-1) for one in read_by_coordinator(parties)])
        # Whatever a coefficient's factor is on its grid.
        leaked.append(sum(int(np.isin(forbidden * factor, read).sum()) for factor in (1, 2, 8)))
    # Control: with a source that draws nothing nearly all of them are there.
    assert leaked[0] == 0 and leaked[1] >= 0.8 * len(forbidden)
    declared = tried.declare(parties.consortium)
    assert {one.name for one in declared.seen_by(COORDINATOR, parties.consortium)} == {
        "size",
        "masked_columns",
        "coefficients",
        "model",
    }


def test_noise_is_drawn_by_each_party_and_none_by_the_coordinator() -> None:
    tried, frame = method(3), make_people(60)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), SeededNoise(3))
    parties.noise = cast(Any, None)
    run(parties)
    for host in hosts.values():
        drawn = [entry for entry in host.store.ledger.entries() if entry.kind == "draw"]
        assert [(one.release, one.mechanism) for one in drawn] == [("coefficients", "Laplace")]
    scale = tried.declare(parties.consortium)["coefficients"].scale(parties.consortium)
    printed = float(printed_sensitivity(tried.encoding.width, logistic=True))
    assert scale.total * scale.grid == pytest.approx(printed, rel=1e-6)


@pytest.mark.parametrize("linear", [False, True])
def test_each_pair_of_parties_reads_the_exact_sums_of_its_products_and_nobody_else_does(linear: bool) -> None:
    tried, frame = method(3, linear=linear), make_people(120, linear=linear)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), SeededNoise(5))
    coordinated(parties)
    features, label = whole_rows(tried, frame)
    # Columns of ash: age and three places; of birch: two of sex, the constant, the label; of cedar: dose.
    held = {"ash": features[:, :4], "birch": np.column_stack([features[:, 5:], label]), "cedar": features[:, 4:5]}
    for one, other in (("ash", "birch"), ("ash", "cedar"), ("birch", "cedar")):
        np.testing.assert_allclose(opened_by(hosts, one, other), held[one].T @ held[other], atol=1e-6)
    # A third party has its own two letters and no other.
    assert decode(hosts["cedar"].store.state("run-1", "in:sums:ash") or b"").shape == (4, 1)
    assert hosts["cedar"].store.state("run-1", "in:sums:cedar") is None
    seen = {
        view.participant: {one.release: one for one in view.seen}
        for view in list_views(tried.declare(parties.consortium), parties.consortium)
    }
    assert seen["each party"]["sums"].unprotected and "EXACT" in seen["each party"]["sums"].protection
    assert "sums" not in seen[COORDINATOR]


def test_one_replaced_record_is_told_by_the_other_party_with_all_noise_in_place() -> None:
    """The noise that parties add afterwards hides nothing from them: sums of two neighbours are never equal."""
    tried, first = method(2), make_people(40)
    second: Any = first.copy()
    second.loc[0, "dose"] = 1.0 if cast(Any, first.loc[0, "dose"]) < 0 else -1.0
    read = []
    for seed, frame in enumerate([first, first, second, second]):
        parties, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried), SeededNoise(seed))
        coordinated(parties)
        read.append(opened_by(hosts, "ash", "birch"))
    assert (read[0] == read[1]).all() and (read[2] == read[3]).all() and (read[0] != read[2]).any()


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_without_noise_the_model_is_that_of_all_columns_in_one_place(linear: bool, count: int) -> None:
    tried, frame = method(count, linear=linear, repair="floor"), make_people(300, linear=linear)
    parties, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried, Pure(1000)), NoNoise())
    coef = run(parties)["model"]
    features, label = whole_rows(tried, frame)
    release = tried.declare(parties.consortium)["coefficients"]
    scale = release.scale(parties.consortium)
    plain = coefficients(features.T @ features, features.T @ label, logistic=not linear)
    np.testing.assert_allclose(
        coef, minimise_polynomial(plain, len(coef), release.deviation(scale) * scale.grid, "floor"), atol=1e-9
    )


def test_all_coefficients_of_the_objective_are_allocated_once() -> None:
    """1 + d + d² of them for squared loss, d + d² for logistic loss: one for each ordered pair."""
    for linear in (False, True):
        tried, (features, label) = (
            method(3, linear=linear),
            whole_rows(method(3, linear=linear), make_people(50, linear=linear)),
        )
        order, at = tried._order
        z = np.zeros((50, sum(tried.widths.values())))
        z[:, order], z[:, at] = features, label
        gram = z.T @ z
        sent = {party: tried.allocate_coefficients(party, gram[own]) for party, own in tried._places.items()}
        assert sum(tried.coefficient_counts.values()) == features.shape[1] * (features.shape[1] + 1) + linear
        wanted = coefficients(features.T @ features, features.T @ label, logistic=not linear).tolist()
        wanted += [float(label @ label)] if linear else []
        got = [value for party, values in sent.items() for value in values[: tried.coefficient_counts[party]]]
        np.testing.assert_allclose(sorted(got), sorted(wanted), atol=1e-9)
        assert all((values[tried.coefficient_counts[party] :] == 0).all() for party, values in sent.items())


# What it loses.


def polynomials(rows: np.ndarray, *, logistic: bool) -> np.ndarray:
    """The coefficients of each record (x, y), written down from the paper's equations 2 and 4."""
    x, y = rows[:, :-1], rows[:, -1:]
    second = np.einsum("na,nb->nab", x, x).reshape(len(rows), -1)
    if logistic:
        return np.column_stack([second / 8, (0.5 - y) * x])
    return np.column_stack([second, -2 * y * x, y**2])


def furthest(features: int, changing: tuple[int, ...], *, logistic: bool, fixed: tuple[int, ...] = ()) -> float:
    """By trying all pairs of records that differ in the coordinates of `changing` alone; those in `fixed` are 1."""
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0) if features < 3 else (-1.0, 0.0, 1.0)
    values = [(1.0,) if at in fixed else steps for at in range(features)]
    rows = np.array(list(product(*values, (0.0, 1.0) if logistic else steps)))
    made = polynomials(rows, logistic=logistic)
    same = [at for at in range(features + 1) if at not in changing]
    groups: dict[tuple[float, ...], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(tuple(row[same]), []).append(place)
    return max(float(np.abs(made[own][:, None] - made[own][None]).sum(-1).max()) for own in groups.values())


CASES = [(d, own, label) for d in (1, 2, 3, 4) for own in range(d + 1) for label in (False, True) if own or label]


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize(("features", "own", "label"), CASES)
def test_the_true_loss_about_a_partys_columns_is_that_of_an_exhaustive_search(
    features: int, own: int, label: bool, logistic: bool
) -> None:
    changing = (*range(own), *((features,) if label else ()))
    share = furthest(features, changing, logistic=logistic) / float(printed_sensitivity(features, logistic=logistic))
    assert float(true_share(own, features, logistic=logistic, label=label)) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("features", [2, 3, 4])
def test_the_true_loss_about_a_record_is_attained_beside_a_constant_feature(features: int, logistic: bool) -> None:
    changing = tuple(range(1, features + 1))
    share = furthest(features, changing, logistic=logistic, fixed=(0,))
    share /= float(printed_sensitivity(features, logistic=logistic))
    assert float(true_record_share(features, logistic=logistic)) == pytest.approx(share, abs=1e-12)
    if not logistic:
        assert true_record_share(features, logistic=False) == Fraction(1, 2)


def test_figures_of_the_paper_and_the_truth_at_four_features() -> None:
    """Linear, one feature of four: .24 is printed and .32 is lost; the other way round for logistic loss."""
    assert printed_share(1, 4, logistic=False, label=False) == Fraction(24, 100)
    assert true_share(1, 4, logistic=False, label=False) == Fraction(32, 100)
    assert printed_share(1, 4, logistic=True, label=False) == Fraction(11, 32)
    assert true_share(1, 4, logistic=True, label=False) == Fraction(10, 32)
    assert printed_share(4, 4, logistic=False, label=True) == printed_share(4, 4, logistic=True, label=True) == 1


@pytest.mark.parametrize("linear", [False, True])
def test_what_the_run_sends_moves_as_far_as_the_plan_says(linear: bool) -> None:
    """Two numbers, a constant and a label at two parties: all records of whole and half steps, through the method."""
    target = Bounded("y", -1, 1) if linear else Classes("y", ("0", "1"))
    columns = {"ash": ("a", "y"), "birch": ("b",)}
    tried = build_published(
        Schema((Numeric("a", -1, 1), Numeric("b", -1, 1)), target), columns, max_rows=64, intercept=True
    )
    order, at = tried._order
    steps = (-1.0, 0.0, 1.0)
    sent, rows = [], []
    for a, b, y in product(steps, steps, steps if linear else (-0.5, 0.5)):
        z = np.zeros(sum(tried.widths.values()))
        z[order], z[at] = (a, b, 1.0), y
        gram = np.outer(z, z)
        sent.append(
            np.concatenate([tried.allocate_coefficients(party, gram[own]) for party, own in tried._places.items()])
        )
        rows.append((a, b, y))
    vectors, consortium = np.array(sent), make_consortium(tried, Pure(1))
    printed = float(printed_sensitivity(3, logistic=not linear))
    moved = np.abs(vectors[:, None] - vectors[None]).sum(-1) / printed
    found = {loss.about: loss for loss in tried.true_losses(consortium) if loss.to != "each other party"}
    assert found["a record"].true == str(Pure(Decimal(repr(round(float(moved.max()), 12)))))
    table = np.array(rows)
    for party, own in (("ash", (0, 2)), ("birch", (1,))):
        fixed = [place for place in range(3) if place not in own]
        alike = (table[:, None, fixed] == table[None, :, fixed]).all(-1)
        assert found[f"the columns of {party}"].true == str(
            Pure(Decimal(repr(round(float((moved * alike).max()), 12))))
        )


# What is said of it.


def test_the_plan_says_what_is_claimed_and_what_is_lost_to_whom() -> None:
    tried = method(2, linear=True)
    consortium = make_consortium(tried, Pure(1))
    planned = plan("s", tried, consortium)
    text = planned.as_text()
    assert (
        "a record, to everyone who sees the coefficients or the model: at most eps 0.50; the paper claims eps 1.00"
        in text
    )
    assert "a record, to each other party: infinite: no epsilon holds; the paper claims eps 1.00" in text
    assert "WARNING        not private as claimed: each pair of parties opens the exact sums" in text
    # No party's columns lose more than a record does: nothing is rounded above the total.
    own = [loss for loss in planned.true_losses if loss.about.startswith("the columns")]
    assert len(own) == 2 and all(float(loss.true.removeprefix("at most eps ")) <= 0.5 for loss in own)
    assert planned.as_json()["true_losses"][0]["true"] == "at most eps 0.50"


def test_a_site_refuses_it() -> None:
    tried = method(2)
    consortium = make_consortium(tried, Pure(1))
    declared = tried.declare(consortium).accept(consortium)
    assert not declared.private
    policy = Policy(approved=None, disclosures=frozenset({"sizes_may_leave", "records_may_leave"}))
    terms: dict[str, Any] = {"study": "0", "runs": 0, "protocol": "vertical", "party": "ash", "consortium": consortium}
    with pytest.raises(Refused, match="not private as claimed"):
        policy.check(declaration=declared, **terms)
    # Even an owner that runs unproven methods has to let exact values leave.
    with pytest.raises(Refused, match=r"policy\.records_may_leave"):
        Policy(approved=None, unproven=True).check(declaration=declared, **terms)


def test_categories_lose_less_than_numbers() -> None:
    """The plan's figure is for numbers: no table of one-hot columns exceeds it."""
    tried = build_published(
        Schema((Categorical("a", ("x", "y", "z")), Numeric("b", -1, 1)), Classes("y", ("0", "1"))),
        {"ash": ("a", "y"), "birch": ("b",)},
        max_rows=64,
        intercept=True,
    )
    rows = np.array([(*one, b, 1.0, y) for one in np.eye(3) for b in (-1.0, 0.0, 1.0) for y in (0.0, 1.0)])
    made = polynomials(rows, logistic=True)
    share = np.abs(made[:, None] - made[None]).sum(-1).max() / float(printed_sensitivity(5, logistic=True))
    assert tried.encoding.width == 5 and share < float(true_record_share(5, logistic=True))
