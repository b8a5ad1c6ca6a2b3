"""Owners of different columns: the counts of whole records, opened with noise, for every partition of columns."""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.crypto.products import dealer_product, rlwe_product
from comity.data import Records
from comity.errors import ComityError, DataError, SiteLost, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.protection import Summed
from comity.methods.by_columns import products as product
from comity.methods.synthetic import SyntheticColumnsProtocol
from comity.methods.synthetic.artefact import SyntheticDataset
from comity.methods.synthetic.columns import PLACES
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation.simulate import Terms, simulate
from tests.support.channels import Stumbling
from tests.support.noise import NoNoise
from tests.support.vertical import encode_parts, host_parties

from .by_columns import HELD, build_columns, count_exactly, make_consortium_of, make_people, run_hosts
from .consortia import NUMBER, build_as, make_schema

ROWS = 300
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "seed": 1}


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("products", ["rlwe", "dealer"])
@pytest.mark.parametrize("loss", ["delta", "pure"])
def test_what_is_opened_are_the_counts_of_whole_records(parties: int, products: str, loss: str) -> None:
    tried = build_columns(parties, products=products)
    consortium = make_consortium_of(tried, Pure(1.0) if loss == "pure" else None)
    found, wanted = run_hosts(tried, consortium, make_people(ROWS)), count_exactly(tried, consortium, make_people(ROWS))
    assert found["rows"] == ROWS
    # With rlwe a count across owners may be one unit beside, times its weight.
    heaviest = max(tried.counting(consortium).layout.weights)
    allowed = 1.01 * heaviest * 4.0**-PLACES if products == "rlwe" else 0.0
    np.testing.assert_allclose(found["counts"], wanted, rtol=0, atol=allowed)


@pytest.mark.parametrize("target", [NUMBER, None], ids=["number", "none"])
@pytest.mark.parametrize("model", ["mixture", "naive-bayes"])
def test_with_a_number_as_target_or_none_and_with_fewer_pairs_the_counts_are_the_same(target: Any, model: str) -> None:
    tried = build_columns(3, target=target, products="dealer", model=model)
    consortium, given = make_consortium_of(tried), make_people(ROWS, target=target)
    np.testing.assert_array_equal(
        run_hosts(tried, consortium, given)["counts"], count_exactly(tried, consortium, given)
    )


@pytest.mark.parametrize(("products", "step"), [("rlwe", "product.evaluate"), ("dealer", "product.mask")])
def test_rows_in_several_stretches_are_counted_once(products: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlwe_product, "STRETCH_ENTRIES", 1)
    monkeypatch.setattr(product, "STRETCH", 1)
    monkeypatch.setattr(dealer_product, "_BLOCK_WORDS", 512)
    tried, given = build_columns(2, products=products), make_people(9000)
    consortium = make_consortium_of(tried)
    parties, _ = host_parties(tried, encode_parts(tried, given), consortium, NoNoise())
    begin(parties)
    found = tried.coordinate(parties)["tables"]
    asked = [path for path, _ in parties.journal.traffic(parties.study, parties.run) if path.startswith(step)]
    assert len(asked) >= 2
    np.testing.assert_allclose(
        found["counts"], count_exactly(tried, consortium, given), rtol=0, atol=4.01 * 4.0**-PLACES
    )


@pytest.mark.parametrize("method", ["keyed", "ecdh"])
def test_rows_are_matched_by_identifier_before_they_are_counted(method: str) -> None:
    tried, given = build_columns(2, identifier=True, alignment=method, products="dealer"), make_people(60)
    consortium = make_consortium_of(tried)
    turned = {
        "ash": encode_parts(tried, given.iloc[5:])["ash"],
        "birch": encode_parts(tried, given.iloc[:50].sample(frac=1, random_state=3))["birch"],
    }
    found = run_hosts(tried, consortium, turned)
    assert found["rows"] == 45
    np.testing.assert_array_equal(found["counts"], count_exactly(tried, consortium, given.iloc[5:50]))
    # The same people, in a simulation that compares.
    joined = tried.partition.join_records(list(turned.values()))
    assert (tried.counting(consortium).layout.count(joined.features) == found["counts"]).all()


@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize("loss", [Approx(1.0, 1e-6), Pure(1.0)], ids=["delta", "pure"])
def test_the_deviation_that_the_release_states_is_that_of_its_noise(loss: Any, colluders: int) -> None:
    tried = build_columns(3, products="dealer", model="mixture")
    consortium, given = make_consortium_of(tried, loss, colluders=colluders), make_people(100)
    found = tried.present({"tables": run_hosts(tried, consortium, given, SeededNoise(3))}, consortium).counts
    gap = found.values - count_exactly(tried, consortium, given)
    assert np.std(gap) == pytest.approx(found.deviation, rel=0.15)
    assert abs(gap.mean()) < 5 * found.deviation / sqrt(len(gap))


def test_the_number_of_records_is_that_of_the_common_rows() -> None:
    found = simulate(
        build_columns(3, products="dealer"), parties=encode_parts(build_columns(3), make_people(700)), **SMALL
    ).presented
    assert isinstance(found, SyntheticDataset)
    assert found.counts.total == 700 and len(found) == 700 and found.counts.consistent.total == 700


def test_rows_load_as_the_records_did_and_know_what_they_knew() -> None:
    given = make_people(4000)
    out = simulate(
        build_columns(3, products="dealer"), parties=encode_parts(build_columns(3), given), **{**SMALL, "epsilon": 4.0}
    )
    found = out.presented.frame
    assert list(found.columns) == [*make_schema().names, "ill"]
    assert found["age"].dtype == given["age"].dtype and found["seen"].dtype.kind == "M"
    # Age is at one owner, the label at another, and region follows a town that a third one holds.
    shares = [one.groupby(one["age"] >= 54)["ill"].apply(lambda ill: (ill == "yes").mean()) for one in (given, found)]
    assert np.abs(shares[0] - shares[1]).max() < 0.06
    north = found[found["town"].isin(["A", "B"])]["region"]
    assert (north == "north").mean() > 0.95
    for one in out.presented_to.values():
        pd.testing.assert_frame_equal(one.frame, found)


def test_every_owner_pays_once_and_the_plan_says_how_much_wider_the_noise_is() -> None:
    tried = build_columns(3)
    out = simulate(tried, parties=encode_parts(tried, make_people(200)), epsilon=0.5, delta=1e-6, unit="record")
    assert out.guarantee.private and out.guarantee.epsilon <= 0.5
    assert len({account.spent for account in out.accounts}) == 1
    text = out.plan.as_text()
    assert "1.73 times as wide" in text and "1.41 because records are replaced, times 1.22 because 1 of 3" in text
    layout, held = tried.counting(out.consortium).layout, tried.partition.holders
    across = sum(1 for key in layout.keys if len({held[place] for place in key}) == 2)
    assert across == 13 and f"13 of {len(layout.blocks)} tables are across parties" in text
    assert "every ledger is charged for this one loss" in text


@pytest.mark.parametrize(
    ("parties", "colluders", "loss", "wider"),
    [
        (2, 1, Approx(1.0, 1e-6), 2.0),
        (3, 1, Approx(1.0, 1e-6), sqrt(3)),
        (3, 0, Approx(1.0, 1e-6), sqrt(2)),
        (3, 1, Pure(1.0), sqrt(6)),
    ],
)
def test_noise_is_wider_than_by_rows_by_replacement_and_by_colluders(
    parties: int, colluders: int, loss: Any, wider: Any
) -> None:
    for products in ("rlwe", "dealer"):
        tried = build_columns(parties, products=products, model="mixture")
        assert tried.relative_noise(make_consortium_of(tried, loss, colluders=colluders)) == pytest.approx(
            wider, rel=2e-3
        )


def test_at_no_colluders_no_party_reads_the_counts() -> None:
    tried = build_columns(2)
    nobody, one = make_consortium_of(tried, colluders=0), make_consortium_of(tried, colluders=1)
    declared = tried.accepted(nobody)
    assert isinstance(declared["counts"].protection, Summed)
    assert declared["tables"].to == "coordinator" and "keeps the dataset to itself" in declared.adversary
    assert tried.accepted(one)["tables"].to == "everyone"
    out = simulate(tried, parties=encode_parts(tried, make_people(60)), terms=Terms(colluders=0), **SMALL)
    assert len(out.presented) == 60 and all(found is None for found in out.presented_to.values())


def terms(tried: Any, **changed: Any) -> Consortium:
    from dataclasses import replace

    return replace(make_consortium_of(tried), **changed)


@pytest.mark.parametrize(
    ("changed", "key", "said"),
    [
        ({"neighbours": Neighbours.ADD_REMOVE}, "privacy.neighbours", "how many records there are and whose they are"),
        ({"unit": Unit.PARTY}, "privacy.unit", "protects a record"),
        ({"unit": Unit.PERSON}, "privacy.unit", "only with an alignment"),
        ({"dropouts": 1, "colluders": 0}, "privacy.dropouts", "needs every party"),
        ({"parties": ("birch", "ash")}, "parties", "in the same order"),
    ],
)
def test_terms_that_the_proof_does_not_cover_are_refused_before_anything_runs(
    changed: Any, key: str, said: str
) -> None:
    tried = build_columns(2)
    with pytest.raises(StudyError, match=said) as refused:
        tried.accepted(terms(tried, **changed))
    assert refused.value.key == key


def test_a_person_is_protected_where_rows_are_matched() -> None:
    tried = build_columns(2, identifier=True, alignment="keyed")
    assert tried.accepted(terms(tried, unit=Unit.PERSON)).private
    # What matching tells stands in the plan, outside the guarantee.
    assert any("whether somebody takes part is not hidden" in one for one in tried.warnings(make_consortium_of(tried)))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"products": "trust"}, "synthetic.products"),
        ({"alignment": "keyed"}, "synthetic.alignment"),
        ({"alignment": "names"}, "synthetic.alignment"),
        ({"max_rows": 1}, "synthetic.max_rows"),
        ({"model": "tree"}, "synthetic.model"),
        ({"columns": {"ash": (*make_schema().names, "ill")}}, "parties"),
        ({"columns": {**HELD[2], "cedar": ()}}, "parties.cedar.columns"),
        ({"columns": {**HELD[2], "cedar": ("age",)}}, "parties.cedar.columns"),
    ],
)
def test_a_wrong_value_names_its_key(options: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        build_as(SyntheticColumnsProtocol, **{"schema": make_schema(), "columns": HELD[2], **options})
    assert refused.value.key == key


def test_different_numbers_of_rows_end_the_study_before_anything_is_spent() -> None:
    tried = build_columns(2)
    records = {**encode_parts(tried, make_people(40)), "ash": encode_parts(tried, make_people(30))["ash"]}
    parties, hosts = host_parties(tried, records, make_consortium_of(tried), NoNoise())
    with pytest.raises(DataError, match="identifier"):
        run(parties)
    assert hosts["ash"].store.ledger.summary()[0].spent.gaussian == 0


def test_more_rows_than_are_laid_out_for_end_the_study() -> None:
    tried = build_columns(2, max_rows=20)
    parties, hosts = host_parties(tried, encode_parts(tried, make_people(40)), make_consortium_of(tried), NoNoise())
    with pytest.raises(ComityError):
        run(parties)
    assert hosts["ash"].store.ledger.summary()[0].spent.gaussian == 0


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_records_that_are_no_cells_stop_the_run_before_anything_is_drawn(products: str) -> None:
    """A row with a one in no cell, or in two, would move the counts further than one record may."""
    tried = build_columns(2, products=products)
    for wrong in (100.0, -1.0):
        records = encode_parts(tried, make_people(40))
        spoilt = records["birch"].features.copy()
        spoilt[3, 0] = wrong
        records["birch"] = Records(spoilt, records["birch"].labels)
        parties, hosts = host_parties(tried, records, make_consortium_of(tried), NoNoise())
        with pytest.raises(ComityError):
            run(parties)
        assert all(host.store.ledger.summary()[0].spent.gaussian == 0 for host in hosts.values())


@pytest.mark.parametrize(
    ("products", "step"), [("rlwe", "product.evaluate[0]"), ("dealer", "product.mask[0]"), ("dealer", "contribute[0]")]
)
def test_a_lost_owner_is_waited_for_and_nothing_is_drawn_twice(products: str, step: str) -> None:
    tried, given = build_columns(2, products=products), make_people(100)
    consortium = make_consortium_of(tried)
    stumbling, hosts = host_parties(tried, encode_parts(tried, given), consortium, SeededNoise(5))
    stumbling.channel = Stumbling(hosts, "birch", step)
    with pytest.raises(SiteLost):
        run(stumbling)
    again, _ = host_parties(tried, encode_parts(tried, given), consortium, SeededNoise(5))
    again.channel, again.journal = stumbling.channel, stumbling.journal
    assert run(again)["tables"]["rows"] == 100
    spent = {
        float(host.store.ledger.summary()[0].spent.epsilon_at(cast(Approx, consortium.loss).delta))
        for host in hosts.values()
    }
    assert len(spent) == 1 and 0 < spent.pop() <= 1.0
