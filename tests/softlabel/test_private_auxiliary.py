"""Private auxiliary records: the constant against brute force, the audit, and who sees what in a run."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.data import Records, clinic_schema, clinics, public_cohort
from comity.errors import DataError, Refused, StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.messages.codec import decode
from comity.learn.fits import one_hot
from comity.methods.softlabel import SoftLabel
from comity.methods.softlabel.published.method import TOLERANCE, PublishedSoftLabel, derived_share, make_placeholder
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.study.simulation.simulate import run_study, simulate
from comity.study.study import Study

from .consortia import NAMES, ROOT2, auxiliary, host_parties, labels, make_consortium, ordinary, protocol

SURE = 1 - 1e-7
DELTA = 1e-6
COUNT = 100_000


def private(
    classes: int = 3, method: str = "soft", *, public: Any = None, l2: float = 1e-2, sensitivity: str = "tight"
) -> PublishedSoftLabel:
    made = protocol(classes, method, l2=l2, public=public, sensitivity=sensitivity)
    return replace(made, auxiliary_privacy="private")


def fitted(tried: PublishedSoftLabel, rows: np.ndarray, shares: np.ndarray) -> np.ndarray:
    return replace(tried, auxiliary=rows).fit(shares)


# The constant.


@settings(max_examples=25, deadline=None)
@given(
    classes=st.integers(2, 3),
    method=st.sampled_from(["soft", "vote"]),
    parties=st.integers(1, 4),
    width=st.integers(1, 3),
    records=st.integers(1, 3),
    l2=st.sampled_from([1e-3, 1e-2, 0.1, 1.0, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_party_and_record_together_move_the_minimiser_further_than_claimed(
    classes: int, method: str, parties: int, width: int, records: int, l2: Any, seed: int
) -> None:
    """Every vote of the replaced party, some other places for the last record, and every unanimous vote on it."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(records, width))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    tried = private(classes, method, public=x, l2=l2)
    others = one_hot(generator.integers(0, classes, (parties - 1, records)), classes).sum(axis=0)
    other = generator.normal(size=width)
    places = [x[-1], -x[-1], other / np.linalg.norm(other), np.zeros(width)]
    corners = [one_hot(np.array(chosen), classes) for chosen in product(range(classes), repeat=records)]
    found = []
    for mine in corners[:: max(1, len(corners) // 9)]:
        for place, own in product(places, range(classes)):
            rows, shares = np.concatenate([x[:-1], place[None]]), (others + mine) / parties
            # On another record all models may say something else.
            shares[-1] = np.eye(classes)[own]
            found.append(fitted(tried, rows, shares).ravel())
        found.append(fitted(tried, x, (others + mine) / parties).ravel())
    models = np.stack(found)
    moved = np.sqrt(((models[:, None] - models[None]) ** 2).sum(-1)).max()
    assert moved <= tried.sensitivity(parties)
    if classes == 2:
        assert tried.sensitivity(parties) <= tried.sensitivity(parties, "paper") + 2 * TOLERANCE / l2


@pytest.mark.parametrize(("classes", "constant"), [(2, 1.0), (3, ROOT2)])
@pytest.mark.parametrize(("parties", "records"), [(1, 1), (5, 3), (1000, 40)])
def test_the_claim_is_the_derived_figure(classes: int, constant: Any, parties: int, records: int) -> None:
    tried = private(classes, public=auxiliary(rows=records), l2=10.0)
    expected = constant * (records - 1 + 2 * parties) / (records * parties * 10.0)
    radius = replace(tried, auxiliary_privacy="public", method="vote").radius
    assert tried.sensitivity(parties) == pytest.approx(min(expected, 2 * radius) + 2 * TOLERANCE / 10.0, rel=1e-9)
    printed = 2 * (records + parties - 1) / (records * parties * 10.0)
    assert tried.sensitivity(parties, "paper") == pytest.approx(printed, rel=1e-12)
    vote = replace(tried, method="vote")
    derived = min(constant * (records + 1) / (records * 10.0), 2 * radius)
    assert vote.sensitivity(parties) == pytest.approx(derived + 2 * TOLERANCE / 10.0, rel=1e-9)
    # Section 4.5: a majority needs no more noise than with public records.
    assert vote.sensitivity(parties, "paper") == replace(vote, auxiliary_privacy="public").sensitivity(5, "paper")
    assert vote.sensitivity(parties, "paper") == pytest.approx(2 / 10.0, rel=1e-12)


@pytest.mark.parametrize(
    ("classes", "method", "records", "refused"),
    [
        # A single record: printed and derived are the same, and an inexact minimiser is too much for it.
        (2, "soft", 1, True),
        (2, "soft", 2, False),
        (3, "soft", 10, True),
        (3, "soft", 11, False),
        (3, "vote", 2, True),
        (3, "vote", 3, False),
    ],
)
def test_the_printed_factor_is_refused_where_it_is_less_than_the_model_can_move(
    classes: int, method: str, records: int, refused: bool
) -> None:
    """Printed for two classes. Of three, seven parties and soft labels it is too small for fewer than 11 records."""
    tried = private(classes, method, public=auxiliary(rows=records), l2=10.0, sensitivity="paper")
    if not refused:
        assert tried.declare(make_consortium(7))["model"].sensitivity == tried.sensitivity(7, "paper")
        return
    with pytest.raises(
        StudyError, match=r'prints its factor .* for two classes and exact minimisers; use sensitivity = "tight"'
    ) as caught:
        tried.declare(make_consortium(7))
    assert caught.value.key == "softlabel.sensitivity"


@pytest.mark.parametrize("classes", [2, 3])
def test_a_majority_on_any_number_of_other_records_moves_no_further_than_printed(classes: int) -> None:
    """Section 4.5: with every auxiliary record replaced, and every label with it, a majority still moves by 2/λ at
    most for two classes. Random tries; two opposite tables come within a half of it."""
    generator, l2, rows = np.random.default_rng(4), 10.0, 4
    tried = private(classes, "vote", public=auxiliary(rows=rows, width=2), l2=l2)
    found = []
    for _ in range(150):
        x = generator.normal(size=(rows, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        x = np.tile(x[:1], (rows, 1)) if generator.random() < 0.5 else x
        found.append(fitted(tried, x, one_hot(generator.integers(0, classes, rows), classes)).ravel())
    models = np.stack(found)
    moved = np.sqrt(((models[:, None] - models[None]) ** 2).sum(-1)).max()
    assert 0.4 * tried.sensitivity(3, "paper") < moved
    # The gradient at a fixed model is at most 1 long for two classes and √2 for more, on either table.
    assert moved <= (1.0 if classes == 2 else ROOT2) * tried.sensitivity(3, "paper")


def at_odds(rows: int, side: float) -> tuple[np.ndarray, np.ndarray]:
    """All records but one along e1 and of the second class; the last beside e1, unanimously of the first class."""
    x = np.tile([1.0, 0.0], (rows, 1))
    x[-1] = 0.6, side * 0.8
    shares = np.tile([0.0, 1.0], (rows, 1))
    shares[-1] = 1.0, 0.0
    return x, shares


def test_one_step_for_the_replaced_record_would_be_too_little() -> None:
    """No party is replaced, and there are very many: only the record's own term is left."""
    rows, l2, parties = 2000, 4e-3, 10**9
    tried = private(2, l2=l2, public=at_odds(rows, 1.0)[0])
    first, second = (fitted(tried, *at_odds(rows, side)) for side in (1.0, -1.0))
    moved = np.linalg.norm(first - second)
    assert 1.2 / (rows * l2) < moved <= tried.sensitivity(parties)
    assert tried.sensitivity(parties) == pytest.approx(2 / (rows * l2), rel=1e-4)


@pytest.mark.parametrize(("classes", "constant"), [(2, 1.0), (3, ROOT2)])
def test_the_term_of_the_party_is_reached(classes: int, constant: Any) -> None:
    rows, parties, l2 = 200, 2, 10.0
    tried = private(classes, l2=l2, public=np.tile([1.0, 0.0], (rows, 1)))
    votes = [one_hot(np.full(rows, own), classes) for own in (0, 1)]
    first, second = (tried.fit((votes[0] + mine) / parties) for mine in votes)
    claimed = constant * derived_share(parties, rows) / l2
    assert 0.9 * claimed <= np.linalg.norm(first - second) <= tried.sensitivity(parties)


# The audit.


def both_replaced() -> tuple[PublishedSoftLabel, np.ndarray, np.ndarray, int]:
    """Three records, fifty parties: one party turns round and the last record crosses over with everybody's vote."""
    parties, l2 = 50, 1.0
    x = np.tile([1.0, 0.0], (3, 1))
    tried = private(2, l2=l2, public=x)
    shares = np.full((3, 2), 0.5)
    shares[-1] = 0.0, 1.0
    moved = shares.copy()
    moved[:-1] += np.array([1, -1]) / parties
    moved[-1] = 1.0, 0.0
    return tried, tried.fit(shares), tried.fit(moved), parties


def released(tried: Any, model: Any, loss: Any, parties: int, seed: int, shrink: float = 1.0) -> np.ndarray:
    consortium = replace(make_consortium(7, loss), parties=tuple(f"p{k}" for k in range(parties)), roster={})
    release = tried.declare(consortium)["model"]
    scale, shape = release.scale(consortium), (COUNT, *release.shape)
    source = SeededNoise(seed)
    if isinstance(loss, Pure):
        noise = source._lattice_rows(scale.total * shrink, COUNT, prod(release.shape)).reshape(shape)
    else:
        noise = source.rounded_gaussian(scale.total * shrink, shape, permit=simulated_permit("model"))
    found: np.ndarray = (np.rint(model / scale.grid) + noise) * scale.grid
    return found


def measured(loss: Any, **kwargs: Any) -> float:
    tried, first, second, parties = both_replaced()
    drawn = [released(tried, model, loss, parties, place, **kwargs) for place, model in enumerate((first, second))]
    if isinstance(loss, Pure):

        def far(models: Any, centre: Any) -> Any:
            return np.sqrt(((models - centre) ** 2).sum((1, 2)))

        return epsilon_lower_bound(*(far(m, second) - far(m, first) for m in drawn), confidence=SURE)
    scores = [(models * (first - second)).sum((1, 2)) for models in drawn]
    return gdp_lower_bound(*scores, delta=DELTA, confidence=SURE)


@pytest.mark.parametrize("loss", [Pure(1), Approx(1, DELTA)])
def test_the_noise_hides_a_party_and_a_record(loss: Any) -> None:
    assert 0.1 <= measured(loss) <= 1


@pytest.mark.parametrize("loss", [Pure(1), Approx(1, DELTA)])
def test_the_noise_of_public_records_is_caught(loss: Any) -> None:
    """A share of one party is far too little where every vote on a record may change."""
    tried, _, _, parties = both_replaced()
    public = replace(tried, auxiliary_privacy="public")
    assert measured(loss, shrink=public.sensitivity(parties) / tried.sensitivity(parties)) > 1


# The run.


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["soft", "vote"])
def test_the_coordinator_learns_from_models_what_votes_at_home_would_have_given(classes: int, method: str) -> None:
    records = [*ordinary(classes, parties=4), Records(np.zeros((0, 4)), np.zeros(0, np.int64))]
    out = []
    for tried in (private(classes, method), protocol(classes, method)):
        parties, _, _ = host_parties(tried, records)
        consortium = parties.consortium
        out.append((run(parties)["model"], tried.declare(consortium)["model"].scale(consortium).grid))
    (found, grid), (expected, other) = out
    np.testing.assert_allclose(found, expected, atol=(grid + other) / 2 + 4 * TOLERANCE / 1e-2)
    assert np.abs(found).max() > 0.1


def test_parties_need_no_auxiliary_records_and_get_none() -> None:
    tried, records = private(3), ordinary(3)
    parties, hosts, channel = host_parties(tried, records)
    for host in hosts.values():
        # What a party builds without the file: the same declaration, and nothing else of the records.
        without = replace(tried, auxiliary=make_placeholder(*tried.auxiliary.shape))
        host.agreement = Agreement(host.agreement.study, without, parties.consortium)
    released_here = run(parties)["model"]
    other, _, _ = host_parties(tried, records)
    np.testing.assert_array_equal(released_here, run(other)["model"])
    secret = [row.astype("<f8").tobytes() for row in tried.auxiliary]
    asked = [message for _, message in channel.asked]
    assert len(asked) == 20
    assert not any(row in message for row in secret for message in asked)
    for path, exchanges in parties.journal.traffic(parties.study, "run-1"):
        if path == "train[0]":
            assert all(set(decode(one.reply or b"")["ok"]) == {"models"} for one in exchanges.values())
    assert [line.digest for line in parties.transcript if line.path == "train[0]"][1] == ""


def test_a_party_that_is_asked_for_votes_refuses() -> None:
    tried = private(3)
    parties, _, _ = host_parties(tried, ordinary(3))
    begin(parties)
    with pytest.raises(Refused, match="declared"):
        parties.ask(tried.vote)


def test_with_drop_outs_the_noise_is_for_those_who_may_be_left() -> None:
    tried, records, consortium = private(3, l2=1.0), ordinary(3), make_consortium(5, dropouts=1)
    parties, _, _ = host_parties(tried, records, consortium=consortium, lose=[("elm", "train[0]")])
    found = run(parties)["model"]
    assert parties.declaration["model"].sensitivity == tried.sensitivity(4) > tried.sensitivity(5)
    alone, _, _ = host_parties(tried, records[:4])
    np.testing.assert_allclose(found, run(alone)["model"], atol=1e-3)


def test_a_coordinator_without_the_records_stops_before_anything_is_sent() -> None:
    tried = private(3, public=make_placeholder(20, 4))
    parties, hosts, _ = host_parties(tried, ordinary(3))
    with pytest.raises(Refused, match="not here"):
        run(parties)
    assert not any(entry.kind == "draw" for host in hosts.values() for entry in host.store.ledger.entries())


def test_stacks_of_parties_are_refused() -> None:
    many = {f"p{k}": one for k, one in enumerate(ordinary(2, parties=1, rows=2) * 1001)}
    with pytest.raises(StudyError, match="it asks each party by itself; simulate at most 1000 parties"):
        simulate(private(2), parties=many, epsilon=1.0, seed=1)


def test_other_local_models_have_no_place() -> None:
    with pytest.raises(StudyError, match="takes no local models"):
        simulate(private(3), parties=dict(zip(NAMES, ordinary(3))), epsilon=1.0, seed=1, models=LogisticRegression())


def test_an_average_of_models_has_no_use_for_private_records() -> None:
    with pytest.raises(StudyError, match="does not use auxiliary records") as refused:
        SoftLabel.published_over_rows(
            auxiliary=auxiliary(), classes=labels(3), method="avg", l2=1e-2, auxiliary_privacy="private"
        )
    assert refused.value.key == "softlabel.auxiliary_privacy"


# The study.

TEXT = """
[study]
name = "triage"
protocol = "softlabel"
schema = "schema.toml"

[privacy]
epsilon = 5.0

[softlabel]
variant = "published"
auxiliary = "hidden.csv"
auxiliary_privacy = "private"
auxiliary_records = 30

[parties.north]
[parties.south]
[parties.east]

[simulation]
data = "records.csv"
baselines = false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(clinic_schema().to_toml())
    public_cohort(30).to_csv(tmp_path / "hidden.csv", index=False)
    pd.concat(clinics(3, 40).values()).to_csv(tmp_path / "records.csv", index=False)
    return tmp_path


def load(folder: Any, text: str = TEXT) -> Study:
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


@pytest.mark.parametrize("method", ["soft", "vote"])
def test_a_study_runs_and_its_plan_says_what_is_hidden(folder: Any, method: str) -> None:
    study = load(folder, TEXT.replace('variant = "published"', f'variant = "published"\nmethod = "{method}"'))
    shown = study.plan().as_text()
    assert "private auxiliary records" in shown
    assert "not in the study's hash" in shown
    assert "holds the auxiliary records and sees each party's local model" in shown
    warning = next(one for one in study.plan().warnings if "no ledger counts" in one)
    assert "(eps 1.00, delta 1e-6)" in warning or "eps" in warning
    assert not study.method.files()
    outcome = run_study(study, seed=1)
    assert np.isfinite(outcome.released["model"]).all()


def test_the_content_of_a_private_file_is_no_part_of_the_hash_and_its_absence_neither(folder: Any) -> None:
    first = load(folder)
    public_cohort(30, "another cohort").to_csv(folder / "hidden.csv", index=False)
    second = load(folder)
    assert first.hash == second.hash
    assert (cast(Any, first.protocol).auxiliary != cast(Any, second.protocol).auxiliary).any()
    (folder / "hidden.csv").unlink()
    third = load(folder)
    assert (
        third.hash == first.hash
        and cast(Any, third.protocol).auxiliary.shape == cast(Any, first.protocol).auxiliary.shape
    )
    consortium = first.consortium
    assert (
        third.protocol.declare(consortium)["model"].sensitivity
        == first.protocol.declare(consortium)["model"].sensitivity
    )
    assert load(folder, TEXT.replace("auxiliary_records = 30", "auxiliary_records = 31")).hash != first.hash


def test_a_damaged_private_file_is_no_absent_one(folder: Any) -> None:
    (folder / "hidden.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"hidden\.csv"):
        load(folder)


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ("auxiliary_records = 30", "", "auxiliary_records", "is missing"),
        ("auxiliary_records = 30", "auxiliary_records = 29", "auxiliary_records", "holds 30 records"),
        (
            'auxiliary_privacy = "private"',
            "",
            "auxiliary_records",
            "public records are counted in their file; leave one of them out",
        ),
        (
            'variant = "published"',
            'statistic = "votes"',
            "auxiliary_privacy",
            "vote at home need the auxiliary records",
        ),
        ('variant = "published"', 'variant = "published"\nmethod = "avg"', "auxiliary_privacy", "does not use"),
        (
            'variant = "published"',
            'variant = "published"\nfeature_map = "pca"',
            "feature_map",
            "belongs to softlabel.variant",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_its_key(
    folder: Any, old: str, new: str, key: str, says: str
) -> None:
    with pytest.raises(StudyError, match=says) as refused:
        load(folder, TEXT.replace(old, new))
    assert refused.value.key == f"softlabel.{key}"
