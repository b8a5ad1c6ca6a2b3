"""The secure sum: exact under drop-outs, and nobody sees more than the declaration says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from comity.crypto import masks
from comity.crypto.share_holders import choose_degree
from comity.entropy import derive
from comity.errors import ComityError, Refused, SiteLost
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.bounds import EntrySum
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.protection import Summed
from comity.federation.messages.codec import decode, encode
from comity.federation.sum.terms import degree_of, to_units, to_words, word_type
from comity.privacy.loss import ZCDP, Pure
from comity.privacy.mechanisms import Gaussian, Laplace, Spherical
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Unit
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import NAMES, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


def outbox(hosts: Any, label: Any) -> dict[Any, Any]:
    found = {name: host.store.state("run-1", f"out:{label}") for name, host in hosts.items()}
    return {name: decode(raw) for name, raw in found.items() if raw is not None}


SETUP = ["sum.deal[0]", "sum.meet[0]", "sum.enlist[0]", "sum.seat[0]"]


@pytest.mark.parametrize("lose", ["", *SETUP, "average[0]", "sum.unmask[mean/0]"])
def test_the_sum_is_exact_whoever_drops_out_wherever(lose: Any) -> None:
    parties, hosts = set_up_run(noise=NoNoise(), lose=[("cedar", lose)] if lose else [])
    begin(parties)
    total = parties.sum(Rounds().average)
    units = outbox(hosts, "mean/0")
    # Lost before its masked vector arrived: not in the sum. Lost later: in it.
    counted = [p for p in units if p != "cedar" or lose in ("", "sum.unmask[mean/0]")]
    grid = parties.declaration["mean"].scale(parties.consortium).grid
    assert total.parties == len(counted) == (5 if lose in ("", "sum.unmask[mean/0]") else 4)
    np.testing.assert_array_equal(np.rint(total.value / grid).astype(int), sum(units[p] for p in counted))


def test_a_whole_run_with_a_drop_out_in_the_second_sum_equals_the_plain_computation() -> None:
    parties, hosts = set_up_run(noise=NoNoise(), lose=[("cedar", "lean[0]")])
    released = run(parties)["result"]
    features = {name: host.records.features for name, host in hosts.items()}
    centre = np.mean([x.mean(0) for x in features.values()], axis=0)
    for names in (("ash", "birch", "doum", "elm"),) * 2:
        slope = np.mean([np.sign(features[n] - centre).mean(0) for n in names], axis=0)
        centre = centre + 0.1 * slope
    np.testing.assert_allclose(released, centre, atol=0.02)
    assert "cedar" not in parties.alive


def test_too_many_lost_stops_the_run_and_it_goes_on_later(tmp_path: Path) -> None:
    lose = [("cedar", "average[0]"), ("doum", "average[0]")]
    parties, hosts = set_up_run(folder=tmp_path, lose=lose)
    with pytest.raises(SiteLost, match=r"cedar, doum \(no answer\)"):
        run(parties)
    parties, hosts = set_up_run(folder=tmp_path)
    assert run(parties)["result"].shape == (3,)
    for host in hosts.values():
        assert [e.kind for e in host.store.ledger.entries()].count("draw") == 3


def test_masked_vectors_look_uniform_and_differ_from_the_contribution() -> None:
    parties, hosts = set_up_run(noise=NoNoise())
    run(parties)
    units = outbox(hosts, "mean/0")
    assert not units  # the state of a closed run is deleted
    seen = [
        value
        for path, exchanges in parties.journal.traffic(parties.study, parties.run)
        if path.startswith(("average", "lean"))
        for exchange in exchanges.values()
        for value in decode(exchange.reply or b"")["ok"].values()
    ]
    words = np.concatenate(seen)
    assert len(words) == 5 * 3 * 3
    # Contributions are below 2^12 units; uniform words are spread over the whole range.
    assert stats.kstest(words / 2.0 ** (8 * words.itemsize), "uniform").pvalue > 1e-6


def test_pair_masks_alone_would_show_a_late_vector() -> None:
    """Positive control for the self mask: the coordinator can remove the pair masks of a lost party, and then only the
    self mask stands between it and the vector that arrives late."""
    parties, hosts = set_up_run(noise=NoNoise())
    begin(parties)
    parties.sum(Rounds().average)
    cedar = hosts["cedar"].store
    vector = outbox(hosts, "mean/0")["cedar"]
    masked = decode(
        next(
            exchanges["cedar"].reply
            for path, exchanges in parties.journal.traffic(parties.study, parties.run)
            if path == "average[0]"
        )
        or b""
    )["ok"]["mean"]
    without_pairs = masked.copy()
    seeds = decode(cedar.state("run-1", "sum.seeds") or b"")
    assert set(seeds["given"]) | set(seeds["taken"]) == set(parties.consortium.parties) - {"cedar"}
    for way, undo in (("given", masks.subtract), ("taken", masks.add)):
        for seed in seeds[way].values():
            undo(without_pairs, derive(seed, parties.study, "run-1", "mask", "mean/0"))
    assert not np.array_equal(to_units(without_pairs), vector)
    root = decode(cedar.state("run-1", "sum.root") or b"")
    masks.subtract(without_pairs, derive(root, parties.study, "run-1", "self", "mean/0"))
    np.testing.assert_array_equal(to_units(without_pairs), vector)


def test_a_site_gives_a_share_of_the_self_mask_or_of_the_will_never_both() -> None:
    parties, _ = set_up_run(lose=[("cedar", "lean[0]")])
    run(parties)
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        if not path.startswith("sum.unmask"):
            continue
        gave_self, gave_recovery = set(), set()
        for exchange in exchanges.values():
            if exchange.reply is not None:
                opening = decode(exchange.reply)["ok"]["opening"]
                gave_self |= set(opening["self"])
                gave_recovery |= set(opening["recovery"])
        assert gave_self and not gave_self & gave_recovery
        # The list of members is that of the run: a party that was lost leaves a will for every later sum.
        assert gave_recovery == (set() if path == "sum.unmask[mean/0]" else {"cedar"})


def replay(parties: Any, host: Any, path: Any, change: Any) -> Any:
    """Ask a site again for a journalled step, with other values."""
    exchanges = dict(parties.journal.traffic(parties.study, parties.run))[path]
    study, run_id, path, shared, *rest = decode(exchanges[host.party].message)
    shared = encode({**decode(shared), **change})
    return decode(answer_ask(host, encode([study, run_id, path, shared, *rest])))


def test_a_second_survivor_list_is_refused() -> None:
    parties, hosts = set_up_run(lose=[("elm", "average[0]")])
    begin(parties)
    parties.sum(Rounds().average)
    reply = replay(parties, hosts["ash"], "sum.agree[mean/0]", {"survivors": list(NAMES)})
    assert reply == {"refused": "asked-before", "key": ""}


def asked(parties: Any, hosts: Any, name: Any, step: Any, label: Any, mail: Any = (), **values: Any) -> Any:
    nonce = parties.journal.nonce(parties.run)
    message = write_ask(f"{step}[{label}]", run=parties.run, nonce=nonce, mail=mail, **values)
    return decode(answer_ask(hosts[name], message))


def until_met(**changes: Any) -> Any:
    parties, hosts = set_up_run(**changes)
    begin(parties)
    view = parties.under("sum")
    holders = dealt(parties, view)
    view.ask("meet", each={q: {"dealers": [p for p in holders if q in holders[p]]} for q in parties.alive})
    return parties, hosts


def until_masked(**changes: Any) -> Any:
    parties, hosts = until_met(**changes)
    view = parties.under("sum")
    roll = {p: r["enlisted"] for p, r in view.ask("enlist", members=parties.alive).items()}
    view.ask("seat", roll=roll)
    parties.ask(Rounds().average, label=0)
    return parties, hosts, parties.alive


def dealt(parties: Any, view: Any) -> dict[Any, Any]:
    keys = parties.run_keys
    holders = {p: [q for q in parties.alive if q != p] for p in parties.alive}
    view.ask("deal", each={p: {"keys": {q: keys[q] for q in holders[p]}} for p in parties.alive})
    return holders


def test_unmasking_needs_consents_of_enough_survivors_to_the_same_list() -> None:
    parties, hosts, members = until_masked()
    view = parties.under("sum")
    consents = {p: r["consent"] for p, r in view.ask("agree", survivors=members, label="mean/0").items()}
    few = dict(list(consents.items())[: degree_of(parties.consortium).threshold - 1])
    assert asked(parties, hosts, "ash", "sum.unmask", "mean/0", consents=few)["refused"] == "sum"
    forged = {**consents, "birch": consents["ash"]}
    assert asked(parties, hosts, "ash", "sum.unmask", "mean/0", consents=forged)["refused"] == "signature"
    assert "ok" in asked(parties, hosts, "ash", "sum.unmask", "mean/0", consents=consents)


@pytest.mark.parametrize(
    "survivors", [["ash", "birch", "cedar"], ["ash", "birch", "cedar", "nobody"], ["ash", "ash", "birch", "cedar"]]
)
def test_lists_that_are_too_short_or_name_strangers_are_refused(survivors: Any) -> None:
    parties, hosts, _ = until_masked()
    assert "refused" in asked(parties, hosts, "ash", "sum.agree", "mean/0", survivors=survivors)


def test_unmasking_without_a_vector_of_its_own_is_refused() -> None:
    parties, hosts = until_met()
    view = parties.under("sum")
    roll = {p: r["enlisted"] for p, r in view.ask("enlist", members=parties.alive).items()}
    view.ask("seat", roll=roll)
    assert asked(parties, hosts, "ash", "sum.unmask", "mean/0", consents={})["refused"] == "sum"


def test_a_sum_that_is_not_declared_has_no_masks() -> None:
    parties, hosts, members = until_masked()
    assert members
    assert asked(parties, hosts, "ash", "sum.unmask", "slope/9", consents={})["refused"] == "too-often"


def test_too_many_drop_outs_for_the_colluders_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(Refused, match="lower it to 1"):
        choose_degree(5, 1, 2)


def letters_to_ash() -> Any:
    parties, hosts = set_up_run()
    begin(parties)
    dealt(parties, parties.under("sum"))
    return parties, hosts, parties._memory.mail["ash"]


def flipped(letter: Any) -> dict[Any, Any]:
    return {**letter, "box": letter["box"][:-1] + bytes([letter["box"][-1] ^ 1])}


def truncated(letter: Any) -> dict[Any, Any]:
    return {**letter, "box": letter["box"][:-1]}


def of_another(letter: Any) -> dict[Any, Any]:
    *rest, sender, to, name = decode(letter["head"])
    return {**letter, "head": encode([*rest, "cedar" if sender != "cedar" else "doum", to, name])}


def of_another_step(letter: Any) -> dict[Any, Any]:
    study, run_id, _, *rest = decode(letter["head"])
    return {**letter, "head": encode([study, run_id, "sum.meet[0]", *rest])}


@pytest.mark.parametrize("change", [flipped, truncated, of_another, of_another_step])
def test_a_letter_that_was_altered_is_as_good_as_none(change: Any) -> None:
    """Its sender is named, and whoever it was written to goes on."""
    parties, hosts, mail = letters_to_ash()
    others = [p for p in parties.alive if p != "ash"]
    letter = next(one for one in mail if decode(one["head"])[3] == "birch")
    rest = [one for one in mail if one is not letter]
    reply = asked(parties, hosts, "ash", "sum.meet", 0, mail=[*rest, change(letter)], dealers=others)
    assert reply["ok"]["unserved"] == ["birch"]


def test_letters_of_somebody_else_are_refused_and_those_of_its_own_are_taken() -> None:
    parties, hosts, mail = letters_to_ash()
    others = [p for p in parties.alive if p != "ash"]

    def meet(name: Any, letters: Any) -> Any:
        return asked(parties, hosts, name, "sum.meet", 0, mail=letters, dealers=others)

    study, run_id, path, _, to, name = decode(mail[0]["head"])
    stranger = {**mail[0], "head": encode([study, run_id, path, "mallory", to, name])}
    for receiver, letter, code in [
        ("birch", mail[0], "sealed"),
        ("cedar", mail[0], "sealed"),
        ("ash", stranger, "stranger"),
        ("ash", {**mail[0], "head": b"x"}, "malformed"),
    ]:
        assert meet(receiver, [letter])["refused"] == code
    assert meet("ash", mail)["ok"]["unserved"] == []


def test_a_letter_that_was_withheld_names_its_sender() -> None:
    parties, hosts, mail = letters_to_ash()
    others = [p for p in parties.alive if p != "ash"]
    missing = decode(mail[0]["head"])[3]
    assert asked(parties, hosts, "ash", "sum.meet", 0, mail=mail[1:], dealers=others)["ok"]["unserved"] == [missing]


def test_a_party_that_reads_the_result_counts_as_a_colluder() -> None:
    """Two parties, one of them the reader: without t it subtracts its own part, and half of the noise is left."""
    with pytest.raises(Refused, match="colluders to 1"):
        set_up_run(consortium=make_consortium(5, dropouts=0, colluders=0))
    honest, naive = (
        Rounds().declare(w)["mean"].scale(w) for w in (make_consortium(2, dropouts=0, colluders=1), _naive(2))
    )
    left_over = {"honest": honest.part, "naive": naive.part}  # what remains when the reader removes its own part
    assert left_over["honest"] >= honest.total and left_over["naive"] < 0.75 * naive.total
    # What methods lay their rules out for is what the release itself counts.
    for consortium in (make_consortium(2, dropouts=0, colluders=1), make_consortium(5, dropouts=1, colluders=2)):
        assert (
            Rounds().declare(consortium)["mean"].parts(consortium)
            == consortium.honest_parts
            == consortium.size - consortium.dropouts - consortium.colluders
        )


def _naive(size: Any) -> Consortium:
    return make_consortium(size, dropouts=0, colluders=0)


def test_an_advertised_key_that_is_not_signed_by_its_party_is_refused() -> None:
    parties, hosts = set_up_run()
    begin(parties)
    keys = parties.run_keys
    others = {p: keys[p] for p in keys if p != "ash"}
    swapped = {**others, "birch": keys["cedar"], "cedar": keys["birch"]}  # a coordinator in the middle
    assert asked(parties, hosts, "ash", "sum.deal", 0, keys=swapped)["refused"] == "signature"
    assert asked(parties, hosts, "ash", "sum.deal", 0, keys=keys)["refused"] == "sum"  # its own among them
    few = dict(list(others.items())[: degree_of(parties.consortium).quorum - 2])
    assert asked(parties, hosts, "ash", "sum.deal", 0, keys=few)["refused"] == "sum"
    assert "ok" in asked(parties, hosts, "ash", "sum.deal", 0, keys=others)


def test_words_are_as_wide_as_the_sum_needs() -> None:
    consortium = make_consortium()
    release = Rounds().declare(consortium)["mean"]
    assert word_type(release, consortium) == "<u4"
    wide = replace(release, grid=2.0**-40)
    assert word_type(wide, consortium) == "<u8"
    for dtype in ("<u4", "<u8"):
        units = np.array([-(2**30), -1, 0, 7, 2**30 - 1])
        np.testing.assert_array_equal(to_units(to_words(units, dtype)), units)


def test_a_sum_over_a_sparse_graph_is_exact() -> None:
    lost, size = 9, 104
    names = tuple(f"p{k:03}" for k in range(size))
    consortium = Consortium(
        parties=names,
        loss=ZCDP(0.15),
        unit=Unit.RECORD,
        colluders=2,
        dropouts=10,
        roster={name: make_identity(name).public for name in ("coordinator", *names)},
    )
    assert degree_of(consortium).degree < size - 1
    gone = [(name, "average[0]") for name in names[5 : 5 + lost]]
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise(), lose=gone)
    begin(parties)
    total = parties.sum(Rounds().average)
    units = outbox(hosts, "mean/0")
    grid = parties.declaration["mean"].scale(consortium).grid
    counted = [units[p] for p in names if (p, "average[0]") not in gone]
    np.testing.assert_array_equal(np.rint(total.value / grid).astype(int), sum(counted))
    assert total.parties == size - lost


def test_a_third_of_the_parties_may_drop_out_after_masking() -> None:
    names = tuple(f"p{k:02}" for k in range(12))
    consortium = Consortium(
        parties=names,
        loss=ZCDP(0.15),
        unit=Unit.RECORD,
        colluders=1,
        dropouts=4,
        roster={name: make_identity(name).public for name in ("coordinator", *names)},
    )
    gone = [(name, "sum.unmask[mean/0]") for name in names[1:5]]
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise(), lose=gone)
    begin(parties)
    total = parties.sum(Rounds().average)
    grid = parties.declaration["mean"].scale(consortium).grid
    assert total.parties == 12  # their vectors had arrived
    np.testing.assert_array_equal(np.rint(total.value / grid).astype(int), sum(outbox(hosts, "mean/0").values()))


@pytest.mark.parametrize("noise", [Spherical(Pure(1)), Laplace(Pure(1)), Gaussian(ZCDP(0.05))], ids=type)
def test_every_shared_noise_runs_through_a_secure_sum(noise: Any) -> None:
    """What a coalition of one sees, the opened sum without its own part, spreads as much as the whole noise should."""

    @dataclass(frozen=True)
    class Once(Rounds):
        def declare(self, consortium: Any) -> Any:
            declaration = super().declare(consortium)
            (mean, *rest) = declaration.releases
            bound = EntrySum(1.0, 2.0, 1.0) if noise.norm == "l1" else mean.bound
            return replace(declaration, releases=(replace(mean, protection=Summed(noise), bound=bound), *rest))

    consortium = make_consortium(3, dropouts=0)
    parties, hosts = set_up_run(Once(rounds=0), consortium, noise=SeededNoise(5))
    begin(parties)
    total = parties.sum(Rounds().average)
    exact = sum(host.records.features.mean(0) for host in hosts.values())
    scale = parties.declaration["mean"].scale(consortium)
    spread = parties.declaration["mean"].deviation(scale) * scale.grid * np.sqrt(3 / 2)
    assert total.value.shape == (3,) and (np.abs(total.value - exact) < 12 * spread).all()
    assert (total.value != exact).any()


def test_a_release_without_headroom_is_refused_before_anything_is_reserved() -> None:
    @dataclass(frozen=True)
    class TooFine(Rounds):
        def declare(self, consortium: Any) -> Any:
            declaration = super().declare(consortium)
            fine = tuple(replace(r, grid=2.0**-58) if r.name == "mean" else r for r in declaration.releases)
            return replace(declaration, releases=fine)

    with pytest.raises(ComityError):
        set_up_run(TooFine())


def test_a_letter_of_one_run_is_none_in_another() -> None:
    parties, hosts, mail = letters_to_ash()
    decode(answer_ask(hosts["ash"], write_ask("run.begin[0]", run="run-2")))
    message = write_ask("sum.meet[0]", run="run-2", mail=mail[:1], dealers=["birch"])
    assert decode(answer_ask(hosts["ash"], message))["refused"] == "sealed"
    assert parties.run == "run-1"
