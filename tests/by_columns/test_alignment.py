"""Alignment: one order of the common rows at every party, and nobody learns more than the declaration says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from comity.crypto import psi_keyed
from comity.crypto.psi_ecdh import on_curve
from comity.crypto.psi_keyed import Packed
from comity.data import Records
from comity.entropy import derive
from comity.errors import DataError, Malformed, Refused, SiteLost, Stopped, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Sealed
from comity.federation.declare.release import Array
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import decode
from comity.federation.messages.letters import Head, open_values
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.methods.by_columns import alignment, token_list
from comity.methods.by_columns.alignment import ROWS, Alignment
from comity.methods.by_columns.common_rows import common_rows
from comity.methods.by_columns.token_list import canonicalise_ids, require_distinct
from tests.support.asks import answer_ask, write_ask
from tests.support.channels import record_channel
from tests.support.consortia import NAMES, STUDY, make_consortium
from tests.support.rounds import host_party, set_up_run
from tests.support.uniformity import uniform_bytes_pvalue

METHODS = ("keyed", "ecdh")


@dataclass(frozen=True)
class Aligned(Protocol):
    """Aligns, then the parties show each other one column of the common rows."""

    name = "aligned"
    method: str = "keyed"
    declares: bool = True

    @property
    def align(self) -> Alignment:
        return Alignment(self.method)

    @property
    def parts(self) -> dict[str, Part]:
        return {"align": self.align}

    def declare(self, consortium: Consortium) -> Declaration:
        form, told = Array(("rows",)), Sealed("a column")
        column = Release(name="column", source=EVERY_PARTY, to=EVERY_PARTY, protection=told, form=form)
        part = self.align.declare(consortium)
        return Declaration((*(part.releases if self.declares else ()), column), adversary=part.adversary)

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        self.align.coordinate_alignment(parties)
        return {}

    @step(times=2)
    def tell(self, site: Site) -> None:
        column = shared_column(site)
        for party in site.consortium.parties:
            if party != site.party:
                site.send(party, "column", column if site.label == "0" else column[:-1])

    @step()
    def hear(self, site: Site) -> None:
        site.keep("heard", [*site.received("column").values(), shared_column(site)])


def shared_column(site: Site) -> Any:
    rows = common_rows(site)
    return np.ascontiguousarray(rows.read(slice(0, len(rows))).features[:, 0])


def held(ids: Any) -> Records:
    """Records whose first feature says whose they are."""
    array = np.empty(len(ids), object)
    array[:] = ids
    return Records(np.array([[hash(one) % 10_007] for one in ids], float).reshape(-1, 1), None, array)


def started(lists: list[Any], method: str = "keyed", folder: Any = None, **options: Any) -> Any:
    consortium = make_consortium(len(lists), dropouts=0, colluders=min(1, len(lists) - 1))
    parties, hosts = set_up_run(Aligned(method), consortium, folder, **options)
    for name, ids in zip(NAMES, lists):
        hosts[name].__dict__["records"] = held(ids) if ids is not None else Records(np.zeros((3, 1)))
    begin(parties)
    return parties, hosts


def aligned(lists: list[Any], hosts: Any) -> list[list[str]]:
    kept = []
    for name in NAMES[: len(lists)]:
        placed, count = decode(hosts[name].store.state("run-1", "align.placed"))
        parts = [decode(hosts[name].store.state("run-1", f"{ROWS}/{number}")) for number in range(placed)]
        assert all(rows.dtype == np.int64 for rows in parts) and sum(map(len, parts)) == count
        kept.append(np.concatenate(parts))
    return [[ids[row] for row in rows] for ids, rows in zip(lists, kept)]


def random_lists(size: int, seed: int = 0, count: int = 40) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [[f"person {i}" for i in generator.permutation(60)[: count + place]] for place in range(size)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_party_gets_the_common_people_in_one_order(method: Any, size: int) -> None:
    lists = random_lists(size)
    parties, hosts = started(lists, method)
    rows = Aligned(method).align.coordinate_alignment(parties)
    orders = aligned(lists, hosts)
    assert all(order == orders[0] for order in orders)
    assert set(orders[0]) == set.intersection(*map(set, lists)) and len(orders[0]) == rows > 0
    assert orders[0] != sorted(orders[0])


@pytest.mark.parametrize("method", METHODS)
def test_the_rows_of_a_run_are_a_dimension_of_its_later_releases(method: Any) -> None:
    lists = random_lists(3)
    parties, hosts = started(lists, method)
    rows = Aligned(method).align.coordinate_alignment(parties)
    assert all(decode(hosts[name].store.state("run-1", "dim:rows")) == rows for name in parties.alive)
    parties.ask(Aligned.tell)
    parties.ask(Aligned.hear)
    for name in parties.alive:
        columns = decode(hosts[name].store.state("run-1", "heard"))
        assert len(columns) == 3 and columns[0].shape == (rows,)
        for column in columns[1:]:
            np.testing.assert_array_equal(column, columns[0])
    with pytest.raises(Refused, match="form"):
        parties.ask(Aligned.tell, label=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_whole_run_leaves_no_key_order_or_rows_behind(method: Any) -> None:
    lists = random_lists(3)
    parties, hosts = started(lists, method)
    run(parties)
    for name in parties.alive:
        for state in (f"{ROWS}/0", "align.placed", "align.key", "align.secret", "align.order/0", "dim:rows"):
            assert hosts[name].store.state("run-1", state) is None


def test_ids_are_compared_in_their_canonical_form() -> None:
    lists = [["Ame\u0301lie", " padded ", "plain"], ["Am\u00e9lie", "padded", "plain"]]
    parties, hosts = started(lists)
    assert Aligned().align.coordinate_alignment(parties) == 3
    first, second = aligned(lists, hosts)
    assert [lists[1][lists[0].index(one)] for one in first] == second


@pytest.mark.parametrize(
    "texts", [["a", "bc", "def"], ["a b", "c"], [" a", "b "], ["é", "b"], ["one"], ["x\ty", "z\n"], ["\x1fa", "b"], []]
)
def test_the_quick_and_the_thorough_way_to_canonical_bytes_agree(texts: Any) -> None:
    assert list(canonicalise_ids(texts)) == [one.strip().encode() for one in texts]


# What is wrong with a party's ids is its own business.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", "b", "c", "b"], "rows 2 and 4 have the same"),
        (["a", "b ", "b"], "rows 2 and 3 have the same"),
        (["a", "", "c"], "row 2 has an empty one"),
        (["a", "c", "  "], "row 3 has an empty one"),
        (["a", 17, "c"], "row 2 has a int"),
        (["a", "b", None], "row 3 has a NoneType"),
        (["a", float("nan"), "c"], "row 2 has a float"),
        (["a", "\ud800"], "no valid Unicode"),
        (None, "birch has no ids"),
    ],
)
def test_bad_ids_are_an_error_at_their_owner_and_a_stop_for_the_others(method: Any, ids: Any, says: str) -> None:
    parties, hosts = started([["a", "b", "c"], ids], method)
    with pytest.raises(Stopped) as stopped:
        Aligned(method).align.coordinate_alignment(parties)
    assert isinstance(parties.channel.refusals["birch"], DataError) and says in str(parties.channel.refusals["birch"])
    assert says not in str(stopped.value)
    replies = [hosts["birch"].answer(message).reply for name, message in parties.channel.asked if name == "birch"]
    assert decode(replies[-1][:-SIGNATURE_BYTES]) == {"refused": "stopped", "key": ""}


def test_errors_show_no_id() -> None:
    for ids in (["secret-name", "secret-name"], ["secret-name", 3], ["secret-name", ""]):
        with pytest.raises(DataError) as error:
            require_distinct(b"".join(hashlib.md5(one).digest() for one in canonicalise_ids(ids)), width=16)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lists", [[["a", "b"], ["c"]], [["a", "b"], []], [["a", "b"], ["b", "c"], ["c", "a"]]])
def test_an_empty_intersection_ends_the_study(method: Any, lists: Any) -> None:
    parties, hosts = started(lists, method)
    with pytest.raises(DataError, match="share nobody") as error:
        Aligned(method).align.coordinate_alignment(parties)
    assert error.value.code == "empty-intersection" and not any(letter.isdigit() for letter in str(error.value))
    assert all(hosts[name].store.state("run-1", f"{ROWS}/0") is None for name in parties.alive)


# Who must agree, and to what.


@pytest.mark.parametrize("method", METHODS)
def test_a_site_whose_policy_keeps_sizes_at_home_takes_no_part(method: Any) -> None:
    def begin(allowed: Any) -> Any:
        one = host_party(
            Aligned(method),
            make_consortium(3, dropouts=0),
            "ash",
            policy=Policy(disclosures=frozenset(allowed), approved={STUDY: 1}),
        )
        return decode(answer_ask(one, write_ask("run.begin[0]")))

    assert begin({"records_may_leave"}) == {"refused": "policy", "key": "sizes_may_leave"}
    assert "ok" in begin({"sizes_may_leave"})


def test_a_protocol_that_does_not_declare_its_alignment_can_not_run_it() -> None:
    parties, _ = set_up_run(Aligned(declares=False), make_consortium(3, dropouts=0))
    with pytest.raises(Malformed, match="not declared"):
        Alignment("keyed").coordinate_alignment(parties)
    parties, _ = set_up_run(Aligned("ecdh"), make_consortium(3, dropouts=0))
    with pytest.raises(Refused):
        Alignment("keyed").coordinate_alignment(parties)


def test_the_declaration_says_what_is_exact() -> None:
    for method in METHODS:
        part = Alignment(method).declare(make_consortium(3, dropouts=0))
        texts = {release.name: release.protection.text for release in part.releases}
        assert all(texts[name].startswith("EXACT") for name in ("tokens", "rows", "positions"))
        assert "colludes with no party" in part.adversary or method == "ecdh"
    with pytest.raises(StudyError, match="keyed or ecdh"):
        Alignment("plain")
    with pytest.raises(StudyError, match="2 to"):
        Alignment("keyed").declare(make_consortium(1, dropouts=0, colluders=0))


# Lost parties, resumed runs.

STEPS = {
    "keyed": ("align.prepare[0]", "align.pseudonyms[0]", "align.place[0]"),
    "ecdh": ("align.blind[0]", "align.relay[0]", "align.deliver[0]", "align.place[0]"),
}


@pytest.mark.parametrize(("method", "path"), [(method, path) for method in METHODS for path in STEPS[method]])
def test_a_run_waits_for_every_party_and_goes_on_where_it_was(method: Any, path: Any, tmp_path: Path) -> None:
    lists = random_lists(3)
    parties, _ = started(lists, method, tmp_path, lose=[("ash", path)])
    with pytest.raises(SiteLost, match="ash"):
        Aligned(method).align.coordinate_alignment(parties)
    parties, hosts = started(lists, method, tmp_path)
    rows = Aligned(method).align.coordinate_alignment(parties)
    orders = aligned(lists, hosts)
    assert rows == len(set.intersection(*map(set, lists)))
    assert all(order == orders[0] for order in orders)


# Long lists, bucket by bucket.


def test_lists_in_buckets_give_the_rows_and_the_order_of_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, orders = random_lists(3), {}
    monkeypatch.setattr(Site, "secret", lambda site: bytes(range(32)))
    for rows in (1 << 19, 7, 1):
        monkeypatch.setattr(token_list, "BUCKET_ROWS", rows)
        parties, hosts = started(lists)
        shared = Aligned().align.coordinate_alignment(parties)
        orders[rows] = aligned(lists, hosts)
        assert len(orders[rows][0]) == shared and all(order == orders[rows][0] for order in orders[rows])
        asked = [path for path, _ in parties.journal.traffic(parties.study, parties.run) if "pseudonyms" in path]
        assert len(asked) == -(-42 // rows)
    assert orders[1 << 19] == orders[7] == orders[1]


def test_a_run_in_buckets_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where the site that is asked again was started again, and has its positions and no list."""
    monkeypatch.setattr(token_list, "BUCKET_ROWS", 10)
    lists = random_lists(3)
    for path in ("align.pseudonyms[2]", "align.place[1]", "align.place[4]"):
        folder = tmp_path / path
        folder.mkdir()
        parties, _ = started(lists, "keyed", folder, lose=[("ash", path)])
        with pytest.raises(SiteLost, match="ash"):
            Aligned().align.coordinate_alignment(parties)
        parties, hosts = started(lists, "keyed", folder)
        rows = Aligned().align.coordinate_alignment(parties)
        orders = aligned(lists, hosts)
        assert rows == len(set.intersection(*map(set, lists))) and all(order == orders[0] for order in orders)


def test_an_id_twice_is_found_before_a_list_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_list, "BUCKET_ROWS", 3)
    ids = [f"person {i}" for i in range(20)]
    parties, _ = started([ids, [*ids, "person 7"]])
    with pytest.raises(Stopped):
        Aligned().align.coordinate_alignment(parties)
    assert "rows 8 and 21 have the same" in str(parties.channel.refusals["birch"])
    paths = [path for path, _ in parties.journal.traffic(parties.study, parties.run) if "pseudonyms" in path]
    assert paths == ["align.pseudonyms[0]"], "and it was refused with the first bucket"


def test_buckets_are_placed_in_order_and_add_up_to_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_list, "BUCKET_ROWS", 21)
    parties, hosts = started(random_lists(2))
    view = parties.under("align")
    view.ask("prepare")
    for number in range(2):
        view.ask("pseudonyms", label=number, buckets=2)
    assert ask(parties, hosts, "ash", "align.pseudonyms[2]", buckets=2)["refused"] == "too-often"
    assert ask(parties, hosts, "ash", "align.pseudonyms[2]", buckets=3)["refused"] == "form", "agreed on once"

    def place(number: int, array: list[int]) -> Any:
        own = {"positions": np.array(array, "<i8")}
        return ask(parties, hosts, "ash", f"align.place[{number}]", rows=3, own=own)

    assert place(1, [0])["refused"] == "align", "not before the first"
    assert place(0, [0, 1, 2, 3])["refused"] == "form", "more than there are"
    assert "ok" in place(0, [0, 2])
    assert place(1, [0, 1])["refused"] == "form", "too many in all"
    assert place(1, [])["refused"] == "form", "too few in all"
    assert "ok" in place(1, [3])


# Steps out of turn, withheld or altered messages.


def ask(parties: Any, hosts: Any, name: Any, path: Any, mail: Any = (), **values: Any) -> Any:
    nonce = parties.journal.nonce(parties.run)
    return decode(answer_ask(hosts[name], write_ask(path, run=parties.run, nonce=nonce, mail=mail, **values)))


def test_a_key_comes_from_the_first_party_alone_and_nothing_leaves_without_it() -> None:
    parties, hosts = started(random_lists(3))
    none = ask(parties, hosts, "birch", "align.prepare[0]")
    assert none["mail"] == [] and hosts["birch"].store.state(parties.run, "align.key") is None
    assert ask(parties, hosts, "birch", "align.pseudonyms[0]", buckets=1)["refused"] == "align"
    dealt = ask(parties, hosts, "ash", "align.prepare[0]")
    assert none["ok"] == {"listed": 41} and dealt["ok"] == {"listed": 40}
    letters = {letter["to"]: letter for letter in dealt["mail"]}
    assert set(letters) == {"birch", "cedar"}
    bad = dict(letters["birch"], box=letters["birch"]["box"][:-1] + b"!")
    assert ask(parties, hosts, "birch", "align.pseudonyms[0]", [bad], buckets=1)["refused"] == "align", (
        "as if it never came"
    )
    assert ask(parties, hosts, "birch", "align.pseudonyms[0]", [letters["cedar"]], buckets=1)["refused"] == "sealed"
    assert "ok" in ask(parties, hosts, "birch", "align.pseudonyms[0]", [letters["birch"]], buckets=1)
    assert ask(parties, hosts, "birch", "align.blind[0]")["refused"] == "no-step"


def test_lists_go_around_the_ring_once_and_in_turn() -> None:
    parties, hosts = started(random_lists(4), "ecdh")
    assert ask(parties, hosts, "ash", "align.relay[0]")["refused"] == "align"
    view = parties.under("align")
    view.ask("blind")
    first = list(parties._memory.mail["ash"])
    assert decode(first[0]["head"])[3] == "doum"
    assert ask(parties, hosts, "ash", "align.deliver[0]", first)["refused"] == "align"
    assert ask(parties, hosts, "ash", "align.relay[1]", first)["refused"] == "align"
    view.ask("relay", label=0)
    # The same letter a second time would have its list blinded twice by one party.
    assert ask(parties, hosts, "ash", "align.relay[1]", first)["refused"] == "align"
    view.ask("relay", label=1)
    second = list(parties._memory.mail["ash"])
    assert ask(parties, hosts, "ash", "align.relay[2]", second)["refused"] == "too-often"
    assert "ok" in ask(parties, hosts, "ash", "align.deliver[0]", second)
    assert ask(parties, hosts, "ash", "align.prepare[0]")["refused"] == "no-step"


@pytest.mark.parametrize(
    "positions", [[0, 0], [0, 99], [-1, 0], [0, 1, 2], np.array([0.0, 1.0]), np.array([[0], [1]], "<i8")]
)
def test_positions_are_distinct_rows_of_the_list(positions: Any) -> None:
    parties, hosts = started(random_lists(2))
    view = parties.under("align")
    view.ask("prepare")
    array = positions if isinstance(positions, np.ndarray) else np.array(positions, "<i8")
    view.ask("pseudonyms", buckets=1)

    def place(array: Any) -> Any:
        return ask(parties, hosts, "ash", "align.place[0]", rows=2, own={"positions": array})

    assert place(array)["refused"] == "form"
    assert "ok" in place(np.array([5, 1], "<i8"))


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw[:-16] + raw[:16]])
def test_a_list_that_is_cut_or_repeats_a_token_is_refused_by_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    honest = alignment._shuffle

    def lying(site: Any, number: Any, tokens: Any, width: Any) -> Any:
        sent = honest(site, number, tokens, width)
        return change(sent) if site.party == "birch" else sent

    monkeypatch.setattr(alignment, "_shuffle", lying)
    parties, _ = started(random_lists(2))
    with pytest.raises(Malformed, match="token"):
        Aligned().align.coordinate_alignment(parties)


# What the coordinator and the parties see.


def views(parties: Any) -> Any:
    """Tokens per owner as the coordinator opens them, and all bytes that passed it."""
    tokens, everything, declared = {}, b"", parties.protocol.align.declare(parties.consortium)
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for party, exchange in exchanges.items():
            everything += exchange.message + exchange.reply
            if path.startswith("align."):
                heads = partial(Head, parties.study, parties.run, path, party, COORDINATOR)
                found = open_values(decode(exchange.reply)["ok"], declared, parties.run_key, heads)
                if "tokens" in found:
                    tokens[party] = found["tokens"]
    everything += b"".join(tokens.values())
    return tokens, everything


@pytest.mark.parametrize("method", METHODS)
def test_no_id_key_or_secret_passes_the_coordinator(method: Any) -> None:
    lists = [[f"person-{place}-{i}" for i in range(20)] + ["somebody-whom-all-hold"] for place in range(3)]
    parties, hosts = started(lists, method)
    Aligned(method).align.coordinate_alignment(parties)
    tokens, everything = views(parties)
    assert len(tokens) == 3
    for ids in lists:
        assert all(one.encode() not in everything for one in ids)
        for make in (hashlib.sha256, hashlib.blake2b, lambda raw: hashlib.blake2b(raw, digest_size=16)):
            assert all(make(one.encode()).digest()[:16] not in everything for one in ids)
    for name in parties.alive:
        for state in ("align.key", "align.secret"):
            secret = hosts[name].store.state("run-1", state)
            assert secret is None or decode(secret) not in everything


@pytest.mark.parametrize("method", METHODS)
def test_parties_are_told_positions_and_never_tokens(method: Any) -> None:
    parties, _ = started(random_lists(3), method)
    Aligned(method).align.coordinate_alignment(parties)
    tokens, _ = views(parties)
    width = Alignment(method).width
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for party, exchange in exchanges.items():
            sent = decode(exchange.message)
            if path.startswith("align.place"):
                assert set(decode(sent[3])) == {"rows"} and set(decode(sent[4])) == {"positions"}
            for raw in tokens.values():
                assert all(raw[at : at + width] not in exchange.message for at in range(0, len(raw), width)), party


def places(lists: Any, method: Any, times: Any) -> Any:
    """Where in each list the coordinator sees the rows that two parties share, as a fraction of its length."""
    found, tokens = [], []
    for _ in range(times):
        parties, _ = started(lists, method)
        Aligned(method).align.coordinate_alignment(parties)
        seen, _ = views(parties)
        positions = psi_keyed.match_lists(seen, Alignment(method).width)
        found.append(np.array(list(positions.values())) / 30)
        # A token that two parties share counts once, or the bytes would not be independent.
        listed = np.frombuffer(b"".join(seen.values()), np.uint8).reshape(-1, Alignment(method).width)
        tokens.append(np.unique(listed, axis=0))
    return np.concatenate(found, axis=1), np.concatenate(tokens)


# Two worlds with the same sizes and overlap: who the people are differs, and where in the files they stand.
NEAR = [[f"a{i}" for i in range(30)], [f"a{i}" for i in range(10)] + [f"b{i}" for i in range(20)]]
FAR = [[f"{i * 977}@x" for i in range(30)], [f"y{i}" for i in range(20)] + [f"{i * 977}@x" for i in range(20, 30)]]


@pytest.mark.parametrize("method", METHODS)
def test_the_view_of_the_coordinator_is_the_same_for_any_people_with_the_same_overlaps(method: Any) -> None:
    worlds = [places(lists, method, 25) for lists in (NEAR, FAR)]
    for owner in (0, 1):
        assert stats.ks_2samp(worlds[0][0][owner], worlds[1][0][owner]).pvalue > 1e-5
    for found, tokens in worlds:
        # A row's place at one party tells nothing of its place at the other.
        assert abs(stats.spearmanr(found[0], found[1]).statistic) < 0.25
        assert uniform_bytes_pvalue(tokens[:, :15]) > 1e-6
        assert method == "keyed" or all(on_curve(row.tobytes()) for row in tokens)
    firsts = [tokens[:, :8].copy().view("<u8").ravel() / 2.0**64 for _, tokens in worlds]
    assert stats.ks_2samp(*firsts).pvalue > 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_unshuffled_lists_would_tell_the_two_worlds_apart(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: without the secret order, the place of a row says where in the file somebody stands."""
    monkeypatch.setattr(alignment, "_order", lambda seed, count: np.arange(count))
    worlds = [places(lists, method, 3) for lists in (NEAR, FAR)]
    assert stats.ks_2samp(worlds[0][0][0], worlds[1][0][0]).pvalue < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_two_runs_over_the_same_people_have_no_token_in_common(method: Any) -> None:
    seen = []
    for _ in range(2):
        parties, _ = started(NEAR, method)
        Aligned(method).align.coordinate_alignment(parties)
        width = Alignment(method).width
        raw = b"".join(views(parties)[0].values())
        seen.append({raw[at : at + width] for at in range(0, len(raw), width)})
    assert not seen[0] & seen[1]


# What a party reads that records the wire: no list of pseudonyms.

LISTS = [["both 1", "both 2", "ash alone"], ["both 1", "both 2", "birch alone"]]


def tokens_that_crossed(method: Any) -> Any:
    """The tokens of ash as they crossed, and those of the ids of `LISTS` and of a guess, as birch could make them."""
    parties, hosts = started(LISTS, method)
    line = record_channel(parties)
    assert Aligned(method).align.coordinate_alignment(parties) == 2
    (crossed,) = line.replied("ash", "tokens")
    return parties, hosts, crossed


def test_a_party_that_has_the_key_reads_no_peers_list_off_the_wire() -> None:
    parties, hosts, crossed = tokens_that_crossed("keyed")
    key = decode(hosts["birch"].store.state("run-1", "in:alignment_key:ash"))
    seed = derive(key, parties.study, parties.run, "pseudonyms")
    guessed = psi_keyed.make_pseudonyms(seed, Packed.of([b"ash alone"])).tobytes()
    assert guessed not in crossed
    # Control: what the coordinator opens holds the guess, so that a dictionary would find everybody.
    opened = parties._read(StepPath("align", "pseudonyms", "0"))
    assert guessed in opened["ash"]["tokens"]


def test_blinded_lists_of_two_parties_can_not_be_compared_on_the_wire() -> None:
    """Their overlaps are for the coordinator: a party is to learn whom all hold, and of nobody else who holds them."""
    parties, _ = started([*LISTS, ["both 1", "both 2", "cedar"]], "ecdh")
    line = record_channel(parties)
    Aligned("ecdh").align.coordinate_alignment(parties)
    lists = []
    for name in parties.consortium.parties:
        (raw,) = line.replied(name, "tokens")
        lists.append({raw[at : at + 32] for at in range(len(raw) - 31)})
    assert not (lists[0] & lists[1]) | (lists[1] & lists[2])
