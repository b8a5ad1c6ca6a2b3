"""The published method as a run: what is debited, who receives what, what stays, and what the plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.artefact import load_artefact, save_artefact
from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from comity.errors import StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.codec import decode
from comity.federation.plan import plan
from comity.methods.method import Only, Setting
from comity.methods.synthetic.method import Synthetic
from comity.methods.synthetic.published.method import SHARED_ALONE, SPREAD, PublishedSynthetic
from comity.methods.synthetic.published.predictor import measure_error
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.stacks import require_stacks
from comity.study.results.result import Result
from comity.study.simulation.simulate import Terms, simulate
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import STUDY, make_consortium
from tests.support.protocols import simulate_with
from tests.support.rounds import host_party, set_up_run

from .consortia import build_published

SCHEMA = Schema(
    (Numeric("age", 0, 100, integer=True), Numeric("dose", 0, 1), Categorical("sex", ("f", "m"))),
    Classes("ill", ("no", "yes")),
)
AMOUNT = replace(SCHEMA, target=Bounded("cost", 0, 1000))
TOY = Schema((Numeric("x", 0, 1), Categorical("y", ("only",))), Classes("z", ("0", "1")))


def frame(seed: Any, count: int = 150, schema: Any = SCHEMA) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    age = chance.integers(0, 101, count)
    made = {"age": age, "dose": chance.random(count), "sex": chance.choice(["f", "m"], count)}
    if schema is AMOUNT:
        return pd.DataFrame({**made, "cost": 10.0 * age})
    return pd.DataFrame({**made, "ill": np.where(age > 50, "yes", "no")})


def small(schema: Any = SCHEMA, **more: Any) -> PublishedSynthetic:
    return build_published(schema, **{"depth": 4, "levels": 3, "leaves": 60, **more})


def run_simulation(protocol: Any, count: int = 3, **more: Any) -> Result:
    schema = protocol.schema
    parties = {f"site-{k}": frame(k, schema=schema) for k in range(count)}
    options = {"epsilon": 1.0, "unit": "record", "neighbours": "add-remove", "seed": 1, "schema": schema, **more}
    return simulate_with(protocol, parties=parties, **options)


def terms(**more: Any) -> Consortium:
    options = {"loss": Pure(1), "neighbours": Neighbours.ADD_REMOVE, "dropouts": 0, **more}
    return replace(make_consortium(), **options)


# A whole run.


def test_sharers_release_datasets_and_every_owner_learns_and_keeps_a_model() -> None:
    found = run_simulation(small(), test=frame(99))
    assert set(found.presented.frame.columns) == {"age", "dose", "sex", "ill"}
    # The number of records is that of the noisy counts.
    assert 250 < len(found.presented) < 700
    for party, got in found.received.items():
        assert got.own["model"].shape == (1, 5), party
        assert set(got.releases) == {"trees", "datasets"}
    assert {one.name for one in found.assessment.baselines} == {"constant", "own data", "pooled"}
    test = small().encoding.encode(frame(99)).records
    errors = [
        measure_error(small().target, got.own["model"], test.features, np.asarray(test.labels))
        for got in found.received.values()
    ]
    # The headline is what the paper reports: the agents' own models.
    assert found.error == pytest.approx(np.mean(errors), abs=1e-12) and "mean over 3 owners" in found.assessment.measure
    figures = {one.name: one.value for one in found.assessment.figures}
    assert figures[SPREAD] == pytest.approx(np.std(errors)) and 0 <= figures[SHARED_ALONE] <= 1
    assert found.guarantee.epsilon == pytest.approx(0.5 + 1 / 8 + 3 / 16, abs=1e-9)


def test_the_dataset_is_saved_and_loads_like_the_owners_own_records(tmp_path: Path) -> None:
    found = run_simulation(small(), count=2)
    save_artefact(found.presented, tmp_path / "data")
    loaded = load_artefact(tmp_path / "data")
    encoding = small().encoding
    first, second = (encoding.encode(cast(Any, one).frame).records for one in (found.presented, loaded))
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.labels, second.labels)


def test_much_budget_and_many_records_give_records_to_work_with() -> None:
    """At an ε that protects nobody the shared records carry what the owners' do: the method itself works."""
    parties = {f"site-{k}": frame(k, count=2000) for k in range(3)}
    found = simulate(
        small(candidates=20),
        parties=parties,
        epsilon=500,
        unit="record",
        seed=2,
        test=frame(99, count=1000),
        terms=Terms(neighbours="add-remove", schema=SCHEMA),
    )
    constant = next(one.error for one in found.assessment.baselines if one.name == "constant")
    assert cast(Any, found.error) < constant / 2
    assert abs(len(found.presented) - 6000) < 10


def test_numbers_are_labelled_inside_their_bucket() -> None:
    found = run_simulation(small(AMOUNT), test=frame(99, schema=AMOUNT))
    costs = found.presented.frame["cost"]
    assert costs.between(0, 1000).all() and costs.nunique() > 50 and found.error is not None


def test_only_sharers_pay_and_everybody_receives() -> None:
    found = run_simulation(small(), roles={"sharer": ["site-0", "site-2"]})
    spent = {account.party: account.spent for account in found.accounts}
    assert set(found.released["datasets"]) == {"site-0", "site-2"} == set(found.released["trees"])
    for party in ("site-0", "site-2"):
        # A level where the public shape splits no number chooses nothing, and costs nothing.
        chosen = sum(count > 0 for count in small().shape(party).choices)
        assert spent[party] == f"eps {0.5 + 1 / 8 + chosen / 16}"
    assert spent["site-1"] == "eps 0.00"
    outside = found.received["site-1"]
    assert set(outside.releases) == {"datasets"} and outside.own["model"].shape == (1, 5)


def test_own_labels_and_sizes_without_least_squares_are_the_published_comparisons() -> None:
    same: dict[str, Any] = {"hash": "5" * 64, "run_id": "run-1"}
    by_vote, by_own = run_simulation(small(), **same), run_simulation(small(labelling="own"), **same)
    features = ["age", "dose", "sex"]
    pd.testing.assert_frame_equal(by_vote.presented.frame[features], by_own.presented.frame[features])
    assert (by_vote.presented.frame["ill"] != by_own.presented.frame["ill"]).any()
    uneven = run_simulation(small(consistency=False, depth=6), epsilon=0.2)
    assert len(uneven.presented) > 2 * len(run_simulation(small(depth=6), epsilon=0.2).presented)
    # Counts that nobody uses are not paid for.
    assert "counts" not in {release.name for release in uneven.declaration.releases}
    assert uneven.guarantee.epsilon == pytest.approx(0.2 * (1 / 12 + 5 / 24))


def test_shapes_are_public_chance_and_another_seed_gives_others() -> None:
    first, again, other = small(), small(), small(seed=1)
    same = [one.attribute.tolist() for one in first.shape("ash").levels]
    assert same == [one.attribute.tolist() for one in again.shape("ash").levels]
    assert any(
        same != [one.attribute.tolist() for one in protocol.shape(party).levels]
        for protocol, party in ((other, "ash"), (first, "birch"))
    )


# At a site.


def draws(one: Any) -> list[Any]:
    return [entry.release for entry in one.store.ledger.entries() if entry.kind == "draw"]


def test_each_level_is_debited_once_whatever_its_number_of_nodes() -> None:
    protocol, consortium = small(TOY), terms()
    parties, hosts = set_up_run(protocol, consortium)
    run(parties)
    for party, one in hosts.items():
        chosen = [f"split_{k + 1}" for k, count in enumerate(protocol.shape(party).choices) if count]
        assert draws(one) == [*chosen, "leaves", "counts"]


def test_an_owners_model_is_on_no_wire_and_neither_are_its_choices_and_counts() -> None:
    parties, hosts = set_up_run(small(TOY), terms())
    released = run(parties)
    exchanges = [one for _, of in parties.journal.traffic(STUDY, "run-1") for one in dict(of).values()]
    wire = b"".join(exchange.message + (exchange.reply or b"") for exchange in exchanges)
    assert released["datasets"]["ash"].tobytes() in wire, "what is shared is seen: the search works"
    for one in hosts.values():
        model = one.received("run-1").own["model"]
        assert model.any() and model.tobytes() not in wire
    replies = [decode(exchange.reply)["ok"] for exchange in exchanges if exchange.reply]
    given = {name for reply in replies for name in reply}
    assert not given & {"leaves", "counts", "split_1"} and {"tree", "dataset"} <= given


def test_the_same_ask_again_has_the_same_tree_and_another_is_refused(tmp_path: Path) -> None:
    protocol, consortium = small(TOY), terms()
    one = host_party(protocol, consortium, "ash", tmp_path)
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]")))
    first = answer_ask(one, write_ask("grow[0]"))
    again = host_party(protocol, consortium, "ash", tmp_path)
    assert answer_ask(again, write_ask("grow[0]")) == first
    before = draws(again)
    tree = decode(first)["ok"]["tree"]
    assert "ok" in decode(answer_ask(again, write_ask("share[0]", trees={"ash": tree})))
    assert draws(again) == [*before, "counts"]
    assert decode(answer_ask(again, write_ask("share[0]", trees={}))).get("refused")
    assert draws(again) == [*before, "counts"]


def test_a_tree_that_is_not_of_its_owners_shape_is_refused_before_anything_is_drawn() -> None:
    protocol, consortium = small(TOY), terms()
    one = host_party(protocol, consortium, "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    tree = decode(answer_ask(one, write_ask("grow[0]")))["ok"]["tree"]
    before = draws(one)
    sizes = {party: protocol.shape(party).leaves for party in consortium.parties}
    assert len(set(sizes.values())) > 1
    other = next(party for party, size in sizes.items() if size != sizes["ash"])
    reply = decode(answer_ask(one, write_ask("share[0]", trees={other: tree})))
    assert "ok" not in reply and draws(one) == before


def test_without_a_tree_nothing_is_shared() -> None:
    one = host_party(small(TOY), terms(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    assert decode(answer_ask(one, write_ask("share[0]", trees={})))["refused"] == "missing" and draws(one) == []


# What the plan says.


def test_the_true_loss_is_declared_and_a_replaced_record_loses_more_than_is_claimed() -> None:
    protocol = small(TOY, depth=8, levels=4)
    coming = plan("study", protocol, terms())
    assert coming.claim == "private" and coming.payers[0].loss == "eps 0.7813"
    replaced = plan("study", protocol, terms(neighbours=Neighbours.REPLACE))
    assert replaced.payers[0].loss == "eps 1.23"
    assert (
        replaced.claim.startswith("not private as claimed")
        and "eps 1.00" in replaced.claim
        and "eps 1.2" in replaced.claim
    )


def test_the_plan_says_that_the_method_learns_what_a_constant_knows() -> None:
    shown = plan("study", small(TOY), terms())
    assert any("as good as a constant" in warning for warning in shown.warnings)
    assert "leaves" in shown.expected and any("as printed" in note for note in shown.notes)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"unit": Unit.PARTY}, "privacy.unit"),
        ({"loss": make_consortium().loss}, "privacy.delta"),
    ],
)
def test_terms_that_it_has_no_proof_for_are_refused(more: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        small(TOY).declare(terms(**more))
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"depth": 2}, "synthetic.depth"),
        ({"candidates": 0}, "synthetic.candidates"),
        ({"levels": 5}, "synthetic.levels"),
        ({"leaves": 0}, "synthetic.leaves"),
        ({"labelling": "coin"}, "synthetic.labelling"),
        ({"learner": "linear"}, "synthetic.learner"),
        ({"l2": 0.0}, "synthetic.l2"),
        ({"schema": Schema((Numeric("x", 0, 1),))}, "target"),
    ],
)
def test_settings_that_mean_nothing_are_refused(more: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        small(**more)
    assert refused.value.key == key


def test_trees_are_grown_at_one_site_at_a_time() -> None:
    with pytest.raises(StudyError):
        require_stacks(small(TOY), small(TOY).declare(terms()), terms())


def setting() -> Setting:
    return Setting(schema=SCHEMA, where="study.toml", read=lambda name, key: pd.DataFrame())


def test_every_key_of_the_table_reaches_the_method() -> None:
    given: dict[str, Any] = {
        "depth": 5,
        "candidates": 3,
        "levels": 3,
        "leaves": 99,
        "labelling": "own",
        "consistency": False,
        "choice": "permute-and-flip",
        "learner": "svm",
        "losses": "smooth",
        "l2": 0.5,
        "seed": 7,
    }
    built = Synthetic(variant="published", **given).build(setting())
    assert {key: getattr(built, key) for key in given} == given
    marks = {key: field.metadata for key, field in Synthetic.model_fields.items()}
    assert set(given) == {
        key
        for key, ones in marks.items()
        if any(isinstance(one, Only) and one.needs["variant"] == ("published",) for one in ones)
    }
    plain = Synthetic(variant="published").build(setting())
    expected = build_published(SCHEMA)
    assert all(getattr(plain, key) == getattr(expected, key) for key in given)


def test_keys_of_the_variant_are_refused_elsewhere() -> None:
    with pytest.raises(StudyError, match=r'synthetic\.depth belongs to synthetic\.variant = "published"'):
        Synthetic(variant="default", depth=5).build(setting())


# What an owner finds of the dataset on its own records.


@pytest.mark.parametrize("schema", [SCHEMA, AMOUNT])
def test_an_owner_finds_that_the_dataset_misleads(schema: Any) -> None:
    method = small(schema)
    made = run_simulation(method, epsilon=50.0).presented
    own = method.encoding.encode(frame(7, 400, schema)).records
    honest = method.score_own(made, own, "site-0")
    assert honest is not None and honest.records == 400 and honest.error < 0.8 * honest.constant
    target = schema.target.name
    turned = made.frame[target].map({"no": "yes", "yes": "no"}) if schema is SCHEMA else 1000 - made.frame[target]
    spoiled = method.score_own(SimpleNamespace(frame=made.frame.assign(**{target: turned})), own, "site-0")
    assert spoiled is not None and spoiled.is_worse and "WORSE THAN A CONSTANT" in spoiled.sentence


def test_an_owner_without_records_has_nothing_to_score_by() -> None:
    method = small()
    none = method.encoding.encode(frame(7).iloc[:0]).records
    assert method.score_own(run_simulation(method).presented, none, "site-0") is None
