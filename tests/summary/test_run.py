"""A summary from study to records: who pays, who gets what, what is refused before anything is spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.artefacts.artefact import load_artefact, save_artefact
from comity.data import Encoding, Records
from comity.data.public.digits import digit_pictures, digit_schema
from comity.errors import DataError, Refused, Stopped, StudyError
from comity.federation.declare.declaration import DISCLOSING, PRIVATE
from comity.federation.declare.policy import SIMULATION, Policy
from comity.methods.summary.artefact import Bought, BoughtRecords, RatioWeights
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.report.result import load_result
from comity.study.simulation.simulate import Terms, simulate
from tests.support.protocols import simulate_with

from .consortia import CONSUMER, OWNERS, ROLES, build_one_shot, make_cloud, make_consortium, make_records


def run(records: Any = None, *, epsilon: float = 8.0, seed: int = 1, **more: Any) -> Any:
    records = records or make_records(2)
    built = more.pop("built", None) or build_one_shot(records, **more.pop("protocol", {}))
    options = {"delta": 1e-5, "unit": "record", "roles": ROLES, **more}
    return simulate_with(built, parties=records, epsilon=epsilon, seed=seed, **options)


@pytest.fixture(scope="module")
def bought() -> Any:
    return run(test=make_cloud(200, 0.25, 9, 0))


def test_owners_and_consumer_pay_the_study_each_and_no_more() -> None:
    outcome = run(epsilon=1.0)
    assert [account.spent for account in outcome.accounts] == ["eps 1.00, delta 1e-5"] * 4
    assert outcome.guarantee.epsilon == pytest.approx(1.0, abs=1e-6)
    paid = {release.name: release.source for release in outcome.declaration.releases if release.loss is not None}
    assert paid == {"moments": "owner", "mass": "owner", "wish": "consumer"}


def test_a_summary_is_of_real_records_and_comes_close_to_the_consumers(bought: Any) -> None:
    found, records = bought.presented, make_records(2)
    assert isinstance(found, BoughtRecords) and len(found) == 20
    for row, label, seller in zip(found.rows, cast(Any, found.labels), found.sellers):
        own = records[OWNERS[seller]]
        at = np.flatnonzero((own.features == row).all(axis=1))
        assert len(at) and label in cast(Any, own.labels)[at]
    known = {baseline.name: baseline.error for baseline in bought.baselines}
    assert bought.error < 0.1 * known["uniform"] and known["greedy"] <= bought.error
    assert set(known) == {"uniform", "largest owner", "greedy", "greedy, features", "classifier weights"}


def test_each_owner_hands_over_exactly_its_quota(bought: Any) -> None:
    quotas = bought.presented.bought.quotas
    assert sum(quotas) == 20
    assert np.bincount(bought.presented.sellers, minlength=3).tolist() == list(quotas)
    assert bought.presented.bought.parsimony == 1.0


def test_the_records_go_to_curator_and_consumer_and_to_nobody_else(bought: Any) -> None:
    assert isinstance(bought.presented_to[CONSUMER], BoughtRecords)
    assert np.array_equal(bought.presented_to[CONSUMER].rows, bought.presented.rows)
    for owner in OWNERS:
        assert bought.presented_to[owner] is None
        received = bought.received[owner].releases
        assert set(received) == {"spectrum", "ratio", "attribution", "quota"}
    assert set(bought.received[CONSUMER].releases) == {"spectrum", "ratio", "attribution", "summary"}


def test_the_declaration_says_plainly_what_is_not_private(bought: Any) -> None:
    text = bought.plan.as_text()
    assert bought.declaration.claim == DISCLOSING and not bought.guarantee.private
    assert "no differential privacy towards curator and consumer" in text
    assert "Towards curator and consumer there is no differential privacy for the records" in text
    assert "needs policy.records_may_leave" in text


@pytest.mark.parametrize("deliver", ["records", "hashes"])
def test_a_site_whose_policy_keeps_records_at_home_refuses_before_anything_is_spent(
    deliver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(SIMULATION, disclosures=frozenset({"sizes_may_leave"}))
    monkeypatch.setattr("comity.study.local.consortium.SIMULATION", own)
    terms: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE, "grant": Approx(3.0, 1e-5)}
    ledgers = {party: Ledger.in_memory(dataset=party, **terms) for party in (*OWNERS, CONSUMER)}
    with pytest.raises(Refused, match=r"policy\.records_may_leave does not allow it") as refused:
        run(epsilon=1.0, protocol={"deliver": deliver}, ledgers=ledgers)
    assert refused.value.code == "policy"
    for ledger in ledgers.values():
        (line,) = ledger.summary()
        assert line.spent.gaussian == 0 and line.left == pytest.approx(3, abs=1e-3)
    # Weights need no such leave.
    assert isinstance(run(protocol={"deliver": "weights"}).presented, RatioWeights)


def test_a_policy_that_says_nothing_lets_no_record_leave() -> None:
    consortium = make_consortium()
    declared = build_one_shot().declare(consortium).accept(consortium)
    for owner in OWNERS:
        with pytest.raises(Refused, match="records_may_leave"):
            Policy(approved=None).check_disclosures(declared, owner, consortium)
    # The consumer hands nothing over.
    Policy(approved=None).check_disclosures(declared, CONSUMER, consortium)


def test_weights_keep_every_record_at_home() -> None:
    outcome = run(protocol={"deliver": "weights"}, test=make_cloud(50, 0.25, 9, 0))
    found, records = outcome.presented, make_records(2)
    assert outcome.declaration.claim == PRIVATE
    assert not {"chosen", "summary", "quota"} & {release.name for release in outcome.declaration.releases}
    for owner in OWNERS:
        own = outcome.received[owner].own["weights"]
        assert own == pytest.approx(found.weights(records[owner].features))
    # Weighted, the owners' records look like the consumer's.
    assert outcome.error < 0.1 * outcome.baseline("unweighted").error
    assert found.bought.parsimony == 0


def test_an_owner_with_fewer_records_than_declared_stops_before_a_draw() -> None:
    records = make_records(2)
    short = {**records, "ash": Records(records["ash"].features[:15], cast(Any, records["ash"].labels)[:15])}
    built = build_one_shot(records)
    with pytest.raises(Refused, match=r"summary\.sizes says") as refused:
        run(short, built=built)
    assert refused.value.code == "stopped"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"unit": Unit.PARTY}, "privacy.unit"),
        ({"neighbours": Neighbours.ADD_REMOVE}, "privacy.neighbours"),
        ({"loss": Pure(1.0)}, "privacy.delta"),
        ({"roles": {"owner": OWNERS}}, "parties"),
        ({"roles": {"owner": OWNERS[:2], "consumer": (CONSUMER,)}}, "parties"),
        ({"roles": {"owner": (*OWNERS, CONSUMER), "consumer": (CONSUMER,)}}, "parties"),
        ({"roles": {"owner": OWNERS[:2], "consumer": (OWNERS[2], CONSUMER)}}, "parties"),
    ],
)
def test_what_public_figures_rule_out_is_refused_by_the_plan(change: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        build_one_shot().accepted(make_consortium(**change))
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"records": 0}, "summary.records"),
        ({"records": 10_000}, "summary.records"),
        ({"gamma": -1.0}, "summary.gamma"),
        ({"dimensions": 7}, "summary.dimensions"),
        ({"hash_dimensions": 1}, "summary.hash_dimensions"),
        ({"payment": -1.0}, "summary.payment"),
        ({"deliver": "all"}, "summary.deliver"),
        ({"image": (3, 3)}, "summary.image"),
        ({"sizes": {}}, "summary.sizes"),
        ({"sizes": {"ash": 1, "birch": 2, "cedar": 3}}, "summary.sizes"),
        ({"sizes": {"ash": 1, "birch": 2, "cedar": 3, "elm": 4, "fir": 5}}, "summary.sizes"),
        ({"sizes": {"ash": 0, "birch": 2, "cedar": 3, "elm": 4}}, "summary.sizes.ash"),
    ],
)
def test_a_wrong_key_is_named(change: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        build_one_shot(**change).accepted(make_consortium())
    assert refused.value.key == key


def test_noise_that_covers_everything_leaves_a_summary_all_the_same() -> None:
    outcome = run(epsilon=0.01)
    assert len(outcome.presented) == 20
    assert outcome.presented.bought.before >= outcome.presented.bought.after >= 0


def test_an_owner_that_vanishes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quota is dealt before any record is read, and not dealt again."""
    from comity.methods.summary.method import OneShotSummary

    choose = OneShotSummary.choose

    def vanishing(self: Any, site: Any, quota: Any) -> dict[str, Any]:
        if site.party == "ash":
            raise Refused("gone", code="stopped")
        return choose(self, site, quota)

    vanishing.__dict__["spec"] = cast(Any, choose).spec
    monkeypatch.setattr(OneShotSummary, "choose", vanishing)
    records = {**make_records(2), "dogwood": make_records(2)["cedar"], "fir": make_records(2)["ash"]}
    roles = {"owner": (*OWNERS, "dogwood", "fir"), "consumer": (CONSUMER,)}
    found = run(records, roles=roles, dropouts=1, colluders=1, epsilon=0.5).presented
    assert found.bought.quotas[0] > 0 and len(found) == 20 - found.bought.quotas[0] and 0 not in found.sellers


def test_an_owner_that_sends_another_number_than_its_quota_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from comity.methods.summary.method import OneShotSummary

    choose = OneShotSummary.choose

    def short(self: Any, site: Any, quota: Any) -> dict[Any, Any]:
        given = choose(self, site, quota)["chosen"]
        return {"chosen": {name: values[: max(0, quota - 1)] for name, values in given.items()}}

    short.__dict__["spec"] = cast(Any, choose).spec
    monkeypatch.setattr(OneShotSummary, "choose", short)
    with pytest.raises(Stopped):
        run()


def test_artefacts_are_read_back_as_they_were(bought: Any, tmp_path: Path) -> None:
    weights = run(protocol={"deliver": "weights"}).presented
    hashes = run(protocol={"deliver": "hashes"}).presented
    rows = make_records()["ash"].features
    for place, one in enumerate((bought.presented, weights, hashes)):
        folder = tmp_path / str(place)
        save_artefact(one, folder)
        again = load_artefact(folder)
        assert type(again) is type(one) and cast(Any, again).bought == cast(Any, one).bought
        assert again.section().tables == one.section().tables and again.card() == one.card()
        if isinstance(one, RatioWeights):
            assert np.array_equal(cast(Any, again).weights(rows), cast(Any, one).weights(rows))
        else:
            assert np.array_equal(cast(Any, again).rows, cast(Any, one).rows) and np.array_equal(
                cast(Any, again).labels, cast(Any, one).labels
            )
        (folder / "bought.json").write_text("{}")
        with pytest.raises(DataError):
            load_artefact(folder)


def test_payouts_are_whole_and_by_share() -> None:
    found = Bought(("a", "b", "c"), (3, 3, 4), (1 / 3, 1 / 3, 1 / 3), 0.5, 0.1, 100.0, 10, 10)
    assert sum(found.payouts()) == pytest.approx(100.0) and sorted(found.payouts()) == [33.33, 33.33, 34.0 - 0.66]
    assert found.value == pytest.approx(0.4)
    values: list[Any] = [row[3] for row in found.grid().rows]
    assert sum(values) == pytest.approx(found.value)


def test_a_page_shows_what_was_bought_from_whom_and_pictures_where_records_are_some(tmp_path: Path) -> None:
    encoding = Encoding(digit_schema(), scaling="unit")
    parties = {name: digit_pictures(60, f"page {name}") for name in (*OWNERS, CONSUMER)}
    built = build_one_shot(
        columns=64,
        gamma=0.2,
        sizes=dict.fromkeys(parties, 60),
        records=6,
        encoding=encoding,
        image=(8, 8),
    )
    outcome = simulate(
        built,
        parties=parties,
        epsilon=5,
        delta=1e-5,
        unit="record",
        seed=2,
        test=digit_pictures(30, "page test", tested=True),
        terms=Terms(roles=ROLES),
    )
    result = outcome
    result.save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    for words in ("What was bought from whom", "payout", "6 pictures", "Exact values leave their owners", "uniform"):
        assert words in page
    again = load_result(tmp_path / "run")
    assert again.presented.frame.equals(result.presented.frame)
    assert again.assessment == result.assessment
    read = encoding.encode(again.presented.frame, where="summary").records
    assert np.allclose(read.features, outcome.presented.rows)
    assert (tmp_path / "run" / "parties" / CONSUMER / "data" / "summary.parquet").is_file()


def test_loss_goes_by_the_study_even_with_one_owner() -> None:
    records = {name: make_records(2)[name] for name in ("ash", CONSUMER)}
    roles = {"owner": ("ash",), "consumer": (CONSUMER,)}
    outcome = run(records, epsilon=1.0, roles=roles, colluders=0)
    assert [account.spent for account in outcome.accounts] == ["eps 1.00, delta 1e-5"] * 2
    assert Approx(1.0, 1e-5) == outcome.consortium.loss
