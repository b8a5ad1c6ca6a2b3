"""No coalition of so many parties as a study counts with, and the coordinator, reads anything of an honest party."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from comity.data import Records
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.owner.host import Host
from tests.averaging import default_consortium as averaging
from tests.softlabel import default_consortia as softlabel
from tests.support import vertical
from tests.support.noise import NoNoise

from .coalition import Heard, coalitions, total, uniform_part

# A p value that 10,000 honest comparisons would not fall below.
UNLIKELY = 1e-7


def alike(count: Any, seed: Any) -> list[Any]:
    """Parties with equally many records, so that two of them can change places and the sums stay the same."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-0.5, 0.5, (count, 20, 4))
    return [Records(x, (x.sum(axis=1) > 0).astype(np.int64)) for x in rows]


def averaged(solver: Any) -> Any:
    def made(records: Any, colluders: Any) -> tuple[Parties, dict[str, Host]]:
        consortium = replace(averaging.make_consortium(), colluders=colluders)
        options = {"rounds": 2} if solver == "gradient" else {"l2": 0.1}
        method = averaging.protocol(records=dict(zip(consortium.parties, records)), solver=solver, **options)
        return averaging.parties(method, dict(zip(consortium.parties, records)), consortium)

    return made


def voted(statistic: Any) -> Any:
    def made(records: Any, colluders: Any) -> tuple[Parties, dict[str, Host]]:
        return softlabel.host_parties(
            softlabel.soft(statistic, classes=2), records, consortium=softlabel.make_consortium(5, colluders=colluders)
        )

    return made


METHODS = {
    "averaging, gradients": averaged("gradient"),
    "averaging, models": averaged("average"),
    "soft labels, votes": voted("votes"),
    "soft labels, histograms": voted("histograms"),
    "soft labels, class sums": voted("class-sums"),
}


def heard_in(made: Any, records: Any, colluders: Any, late: Any = ()) -> Heard:
    parties, hosts = made(records, colluders)
    channel = Heard(hosts, frozenset(late))
    parties.channel = channel
    run(parties)
    return channel


def vertical_run(products: Any, parties: Any, colluders: Any, seed: Any) -> Heard:
    method = vertical.build_regression(parties, products=products)
    consortium = vertical.make_consortium(method, colluders=colluders)
    frame = vertical.make_people(50, seed=seed)
    coordinator, hosts = vertical.host_parties(method, vertical.encode_parts(method, frame), consortium, NoNoise())
    channel = Heard(hosts)
    coordinator.channel = channel
    run(coordinator)
    return channel


def check(heard: Any, colluders: Any) -> dict[Any, Any]:
    """Every coalition and sum: what is left is uniform word by word, and adds up to the honest sum alone."""
    left: dict[Any, Any] = {}
    for coalition in coalitions(heard.hosts, colluders):
        for label, vectors in heard.vectors.items():
            honest = [party for party in vectors if party not in coalition and party not in heard.lost]
            rest = {party: heard.stripped(label, party, coalition) for party in honest}
            # The attack is carried out right: what no coalition can help but learn comes out exactly.
            np.testing.assert_array_equal(total(rest.values()), total(vectors[party] for party in honest))
            for party in honest:
                assert not np.array_equal(rest[party], vectors[party]), (coalition, label, party)
            # All but one: the last is fixed by the sum.
            left.setdefault(coalition, []).extend(rest[party] for party in honest[:-1])
    for coalition, words in left.items():
        if words:
            found = stats.kstest(uniform_part(words), "uniform").pvalue
            assert found > UNLIKELY, (coalition, found)
    return left


def attacked(made: Any, runs: Any, colluders: int = 2) -> None:
    """Runs in which two honest parties have changed places, beside runs in which they have not."""
    seen: dict[Any, Any] = {"as they are": {}, "changed places": {}}
    for number in range(runs):
        records = alike(5, number)
        for case, given in (("as they are", records), ("changed places", [records[1], records[0], *records[2:]])):
            heard = heard_in(made, given, colluders)
            names = list(heard.hosts)
            for coalition, words in check(heard, colluders).items():
                if not set(coalition) & set(names[:2]):
                    seen[case].setdefault(coalition, []).extend(words)
    assert seen["as they are"]
    for coalition, words in seen["as they are"].items():
        there = uniform_part(seen["changed places"][coalition])
        found = stats.ks_2samp(uniform_part(words), there).pvalue
        assert found > UNLIKELY, (coalition, found)


def test_no_coalition_reads_a_partys_gradient() -> None:
    attacked(METHODS["averaging, gradients"], runs=1)


def test_all_parties_but_one_read_the_last_one() -> None:
    """Positive control: a coalition larger than any study can count with strips every mask."""
    heard = heard_in(METHODS["averaging, gradients"], alike(5, 0), colluders=2)
    names = list(heard.hosts)
    for label, vectors in heard.vectors.items():
        np.testing.assert_array_equal(heard.stripped(label, names[0], names[1:]), vectors[names[0]])


def test_a_vector_that_comes_too_late_stays_hidden() -> None:
    """Its will is opened and with it every pair mask; the self mask is left, and with it nothing can be read."""

    def made(records: Any, colluders: Any) -> tuple[Parties, dict[str, Host]]:
        consortium = replace(averaging.make_consortium(dropouts=1), colluders=colluders)
        method = averaging.protocol(records=dict(zip(consortium.parties, records)), solver="average", l2=0.1)
        return averaging.parties(method, dict(zip(consortium.parties, records)), consortium)

    words = []
    for number in range(6):
        records = alike(5, number)
        heard = heard_in(made, records, 1, late=[("cedar", "train[0]")])
        assert heard.lost == {"cedar"}
        left = heard.stripped("models/0", "cedar", ("ash",))
        assert not np.array_equal(left, heard.vectors["models/0"]["cedar"])
        words.append(left)
    assert len(np.unique(np.concatenate(words))) == 6 * words[0].size
    assert stats.kstest(uniform_part(words), "uniform").pvalue > UNLIKELY


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_no_coalition_of_two_reads_anything_in_any_method(name: Any) -> None:
    attacked(METHODS[name], runs=20)


@pytest.mark.long
@pytest.mark.parametrize(("products", "parties"), [("rlwe", 3), ("dealer", 3), ("dealer", 4)])
def test_no_coalition_reads_the_shares_of_a_vertical_party(products: str, parties: int) -> None:
    """With a dealer the coordinator works with no party: then it is in the coalition alone, or the parties are without
    it; what they hear of a sum is the same or less."""
    for seed in range(6):
        check(vertical_run(products, parties, parties - 2, seed), parties - 2)
