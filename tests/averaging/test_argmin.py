"""The federated argmin: exact, resumable, and nothing but the index reaches the curator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from comity.crypto.comparisons.exchange import Side, to_bits, unpack
from comity.crypto.comparisons.triples import Triples, deal, read_triples
from comity.errors import Malformed, Refused, SiteLost, StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.replies import PartyValues
from comity.federation.declare.consortium import COORDINATOR, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Disclosed, Public
from comity.federation.declare.release import Array
from comity.federation.messages.ask import StepPath
from comity.federation.owner.host import Host
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.methods.averaging.published.argmin import Argmin
from comity.study.local.channel import LocalChannel
from tests.support.asks import path_of
from tests.support.channels import WholeLocal, record_channel
from tests.support.consortia import STUDY, make_consortium, make_identity
from tests.support.rounds import host_party, set_up_run

SIDE, DEALER = "ash", "cedar"
PERMUTED = Public("the order is secret")
METHODS = (None, DEALER)
RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Smallest(Protocol):
    """Lays down the parties' shares, as a mounting protocol would after steps of its own, and finds the index."""

    name = "smallest"
    argmin: Argmin
    curator: tuple[tuple[int, ...], ...] = ()
    parties_: tuple[tuple[int, ...], ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        return {"argmin": self.argmin}

    def declare(self, consortium: Any) -> Declaration:
        part = self.argmin.declare(consortium)
        held = Release(
            name="shares",
            source=COORDINATOR,
            to=self.argmin.representative,
            protection=Public("a test"),
            form=Array((self.argmin.count,), "<u8"),
            times=self.argmin.uses,
        )
        found = Release(
            name="found",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Public("a test"),
            form=Array((self.argmin.uses,), "<i8"),
        )
        return Declaration((*part.releases, held, found), adversary=part.adversary)

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        found = []
        for use, (own, theirs) in enumerate(zip(self.curator, self.parties_)):
            parties.ask(self.lay, to=[self.argmin.representative], label=use, shares=np.array(theirs, np.uint64))
            found.append(self.argmin.coordinate_argmin(parties, np.array(own, np.uint64), use))
        return {"found": np.array(found, "<i8")}

    @step(times=1 << 10)
    def lay(self, site: Site, shares: np.ndarray) -> None:
        self.argmin.hold(site, shares, int(site.label))


def split(values: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    one = RNG.integers(0, 2**64, len(values), dtype=np.uint64)
    other = np.array([int(value) % 2**64 for value in values], np.uint64) - one
    return tuple(one.tolist()), tuple(other.tolist())


def smallest(cases: list[Any], dealer: str | None = None, kind: type[Argmin] = Argmin, **sizes: Any) -> Smallest:
    part = kind(
        count=len(cases[0]), representative=SIDE, dealer=dealer, uses=len(cases), **{"index": PERMUTED, **sizes}
    )
    pairs = [split(values) for values in cases]
    return Smallest(part, tuple(own for own, _ in pairs), tuple(theirs for _, theirs in pairs))


def wired(protocol: Protocol, folder: Any = None, hosts: Any = None) -> tuple[Parties, dict[str, Host]]:
    """Real hosts behind the channel of the embedded runtime."""
    parties, hosts = set_up_run(protocol, make_consortium(3, dropouts=0), folder, hosts=hosts)
    parties.channel = LocalChannel(hosts)
    return parties, hosts


def begun(protocol: Protocol) -> tuple[Parties, dict[str, Host]]:
    parties, hosts = wired(protocol)
    begin(parties)
    return parties, hosts


def oracle(cases: list[Any]) -> list[int]:
    return [int(np.argmin(np.array(values, np.int64))) for values in cases]


# The result.


def cases_of(count: int) -> list[Any]:
    return [
        RNG.integers(-(2**62), 2**62, count),
        RNG.integers(-3, 3, count),
        [-(2**62)] * count,
        [2**62 - 1] * (count - 1) + [-(2**62)],
        -np.arange(count),
    ]


@pytest.mark.parametrize("dealer", METHODS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_index_is_that_of_the_plain_values(count: int, dealer: Any) -> None:
    cases = cases_of(count)
    parties, _ = wired(smallest(cases, dealer))
    assert run(parties)["found"].tolist() == oracle(cases)


@pytest.mark.parametrize("dealer", METHODS)
def test_fifty_candidates(dealer: Any) -> None:
    cases = [RNG.integers(-(2**40), 2**40, 50)]
    parties, _ = wired(smallest(cases, dealer))
    assert run(parties)["found"].tolist() == oracle(cases)
    asked = sum(line.path.startswith("argmin.") for line in parties.transcript) // 2
    assert asked == cast(Any, parties.protocol).argmin.tournament.rounds + (2 if dealer is None else 1)


def test_one_candidate_needs_no_message() -> None:
    parties, _ = wired(smallest([[5]]))
    assert run(parties)["found"].tolist() == [0]
    assert not any(line.path.startswith("argmin.") for line in parties.transcript)


# What the curator sees.


def seen_by_coordinator(monkeypatch: pytest.MonkeyPatch, protocol: Smallest) -> dict[str, list[bytes]]:
    """Everything that the representative told the coordinator in a run, by release, in order."""
    seen: dict[str, list[bytes]] = defaultdict(list)
    ask = Parties.ask

    def listening(self: Any, *args: Any, **values: Any) -> dict[str, PartyValues]:
        answers = ask(self, *args, **values)
        for name, value in answers.get(SIDE, {}).items():
            seen[name].append(value)
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(Parties, "ask", listening)
        parties, _ = wired(protocol)
        found = run(parties)["found"]
    assert len(set(found.tolist())) == 1
    return seen


def views(seen: dict[str, list[bytes]], part: Argmin) -> np.ndarray:
    """The bits of all masked messages, one row per use."""
    rows = []
    for use in range(part.uses):
        sent = seen["masked_by_parties"][use * part.rounds : (use + 1) * part.rounds]
        rows.append(np.concatenate([unpack(m, 2 * g) for m, g in zip(sent, part.tournament.gates)]))
    return np.array(rows)


def bits_differ(one: np.ndarray, two: np.ndarray | None = None) -> bool:
    """Whether frequencies of bits differ between two samples of views, or from one half (both tails of chi-square)."""
    expected, variance = (0.5, 0.25 / len(one)) if two is None else (two.mean(0), 0.5 / len(one))
    statistic = ((one.mean(0) - expected) ** 2 / variance).sum()
    return not 1e-6 < chi2.sf(statistic, one.shape[1]) < 1 - 1e-6


def bytes_differ(one: list[bytes], two: list[bytes]) -> bool:
    counts = [np.bincount(np.frombuffer(b"".join(sent), np.uint8), minlength=256) for sent in (one, two)]
    table = np.array(counts)[:, np.sum(counts, axis=0) > 0]
    return bool(chi2_contingency(table).pvalue < 1e-6)


# Equal argmin, and shares of the curator that are equal in all uses: only the parties' side differs.
FIRST, SECOND, REPEATS = [9, 3, 8, 14, 5], [12, 1, 2, 15, 6], 30


def repeated(values: list[int], kind: type[Argmin] = Argmin, times: int = REPEATS) -> Smallest:
    protocol = smallest([values] * times, DEALER, kind, bits=5, fan_in=3)
    curator = np.arange(1, len(values) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    theirs = np.array(values, np.uint64) - curator
    shares: dict[str, Any] = {
        "curator": (tuple(curator.tolist()),) * times,
        "parties_": (tuple(theirs.tolist()),) * times,
    }
    return replace(protocol, **shares)


@dataclass(frozen=True, kw_only=True)
class Reusing(Argmin):
    """Broken: the dealer gives the same triples in every use."""

    @step(times=1 << 10)
    def deal(self, site: Site, triple_seed: bytes) -> None:
        site.send(self.representative, "triples", {"use": int(site.label), "triples": fixed_triples(self)[1]})

    def _curator_triples(self, view: Parties, use: int) -> Triples:
        seed = fixed_triples(self)[0]
        self._ask(view, "deal", use, triple_seed=seed)
        return read_triples(Side.CURATOR, seed, self.tournament.triples)


_FIXED: dict[int, tuple[bytes, bytes]] = {}


def fixed_triples(part: Argmin) -> tuple[bytes, bytes]:
    count = part.tournament.triples
    return _FIXED.setdefault(count, deal(count, dealer=DEALER, sides=(COORDINATOR, SIDE)))


@dataclass(frozen=True, kw_only=True)
class Bare(Argmin):
    """Broken: triples of zeros, which mask nothing."""

    def _triples(self, site: Site, use: int) -> Triples:
        return Triples(*np.zeros((3, self.tournament.triples), np.uint8))

    def _curator_triples(self, view: Parties, use: int) -> Triples:
        return Triples(*np.zeros((3, self.tournament.triples), np.uint8))


def test_what_the_curator_is_told_does_not_depend_on_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [seen_by_coordinator(monkeypatch, repeated(values)) for values in (FIRST, SECOND)]
    part = repeated(FIRST).argmin
    one, two = (views(told, part) for told in seen)
    assert one.shape == (REPEATS, 2 * part.tournament.triples)
    assert not bits_differ(one) and not bits_differ(two) and not bits_differ(one, two)
    for name in ("masked_by_parties", "index_share"):
        assert not bytes_differ(seen[0][name], seen[1][name])
    # Neighbouring bits are independent too.
    assert not bits_differ(one[:, 1:] ^ one[:, :-1])
    assert set(seen[0]) == {"run_key", "remembered", "masked_by_parties", "index_share"}


def test_columns_of_transfers_do_not_depend_on_the_values_either(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [[9, 3, 80], [120, 1, 2]]
    seen = [seen_by_coordinator(monkeypatch, smallest([values] * 4)) for values in cases]
    assert set(seen[0]) == {
        "run_key",
        "remembered",
        "masked_by_parties",
        "index_share",
        "transfer_offer",
        "transfer_columns",
    }
    for name in ("masked_by_parties", "transfer_columns"):
        assert not bytes_differ(seen[0][name], seen[1][name])


def test_control_without_masks_bytes_and_bits_tell_the_values_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [seen_by_coordinator(monkeypatch, repeated(values, Bare, 6)) for values in (FIRST, SECOND)]
    one, two = (views(told, repeated(FIRST, Bare, 6).argmin) for told in seen)
    assert bits_differ(one) and bits_differ(one, two)
    assert bytes_differ(seen[0]["masked_by_parties"], seen[1]["masked_by_parties"])


@pytest.mark.parametrize("kind", [Argmin, Reusing])
def test_control_a_triple_that_serves_twice_shows_how_the_values_differ(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """The curator adds up the first messages of two uses: with the same masks the parties' bits are left over."""
    protocol = smallest([[7, 1], [40, -3]], DEALER, kind)
    seen = seen_by_coordinator(monkeypatch, protocol)
    gates = protocol.argmin.tournament.gates[0]
    first, second = (unpack(seen["masked_by_parties"][use * protocol.argmin.rounds], 2 * gates) for use in (0, 1))
    own = [np.array([theirs[1] - theirs[0]], object) % 2**64 for theirs in protocol.parties_]
    true = to_bits(own[0].astype(np.uint64), 63) ^ to_bits(own[1].astype(np.uint64), 63)
    assert np.array_equal((first ^ second)[gates:], true.ravel()) == (kind is Reusing)


@pytest.mark.parametrize("kind", [Argmin, Reusing])
def test_control_a_dealer_in_league_with_the_curator_reads_the_values(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    values = [1_000, 77]
    protocol = smallest([values], DEALER, kind)
    seen = seen_by_coordinator(monkeypatch, protocol)
    part = protocol.argmin
    gates, count = part.tournament.gates[0], part.tournament.triples
    # What a dealer remembers of the triples of the broken kind; of the true ones it keeps nothing.
    _, mask, _ = read_triples(Side.PARTIES, fixed_triples(part)[1], count).take(gates)
    bits = unpack(seen["masked_by_parties"][0], 2 * gates)[gates:] ^ mask
    stolen = sum(int(bit) << place for place, bit in enumerate(bits))
    own = protocol.curator[0][1] - protocol.curator[0][0]
    assert ((stolen + own - (77 - 1_000)) % 2**63 == 0) == (kind is Reusing)


# Kills.


class Killed(BaseException):
    """Stands for SIGKILL inside this process."""


class Fragile(WholeLocal):
    """Dies at one ask, before it is sent or before its reply is journalled, and remembers all that crossed."""

    def __init__(self, hosts: Any, crossed: Any, at: Any = None, moment: str = "before") -> None:
        super().__init__(hosts)
        self.crossed, self.at, self.moment, self.calibrations = crossed, at, moment, 0

    def carry(self, messages: Any) -> Any:
        self.calibrations += 1
        if self.calibrations == self.at and self.moment == "before":
            raise Killed
        replies = super().carry(messages)
        self.crossed.extend((party, messages[party], replies[party]) for party in replies)
        if self.calibrations == self.at and self.moment == "after":
            raise Killed
        return replies


def coordinator(protocol: Any, channel: Any, journal: Any) -> Parties:
    consortium = make_consortium(3, dropouts=0)
    keys = make_identity(COORDINATOR)
    return Parties(Agreement(STUDY, protocol, consortium), run="run-1", channel=channel, journal=journal, keys=keys)


def sites(protocol: Any, folder: Any) -> dict[Any, Any]:
    consortium = make_consortium(3, dropouts=0)
    return {name: host_party(protocol, consortium, name, folder) for name in consortium.parties}


def play(protocol: Any, folder: Any, crossed: Any, at: Any = None, moment: str = "before") -> Any:
    """One life of the coordinator and of the sites, each from its files."""
    journal = Journal(folder / "journal")
    channel = Fragile(sites(protocol, folder), crossed, at, moment)
    try:
        return run(coordinator(protocol, channel, journal))["found"].tolist()
    finally:
        journal.close()


def said_once(crossed: Any) -> Any:
    """Per round of each site one ask and one reply ever, so that no triple masked two inputs."""
    said = defaultdict(set)
    for party, message, reply in crossed:
        said[party, path_of(message)].add((message, reply))
    assert {len(one) for one in said.values()} == {1}
    return said


@pytest.mark.parametrize("dealer", METHODS)
def test_killed_at_every_ask_a_run_ends_with_the_same_index_and_says_nothing_twice(tmp_path: Path, dealer: Any) -> None:
    # Base transfers take their time, and two uses are of interest to the mail of a dealer.
    cases = [[3, -2], [1, 2]][: 2 if dealer else 1]
    protocol = smallest(cases, dealer, bits=3)
    crossed: list[Any] = []
    lives = 0
    while True:
        try:
            # Of two lives one dies before it sends anything new, the other with an answer that it did not journal.
            found = play(protocol, tmp_path, crossed, 1 + lives % 2, ("before", "after")[lives % 2])
            break
        except Killed:
            lives += 1
            assert lives < 200
    assert found == oracle(cases)
    said = said_once(crossed)
    part = protocol.argmin
    assert len([1 for party, _ in said if party == SIDE]) == 3 + part.uses * (part.rounds + 2 + (dealer is None) * 2)
    assert len(crossed) > 1.5 * len(said), "answers were lost and given again"


@pytest.mark.parametrize("moment", ["before commit", "after commit"])
@pytest.mark.parametrize("dealer", METHODS)
def test_a_site_killed_around_its_commit_answers_a_round_with_one_mask(
    tmp_path: Path, dealer: Any, moment: str
) -> None:
    protocol = smallest([[5, -2, 4]], dealer, bits=9)
    crossed: list[Any]
    hosts, crossed = sites(protocol, tmp_path), []
    commit = hosts[SIDE].store.commit

    def dying(study: Any, run_id: Any, path: Any, *rest: Any, **more: Any) -> Any:
        if str(path) == "argmin.multiply[2]" and moment == "before commit":
            raise Killed
        body = commit(study, run_id, path, *rest, **more)
        if str(path) == "argmin.multiply[2]":
            raise Killed
        return body

    hosts[SIDE].store.commit = dying
    journal = Journal(tmp_path / "journal")
    with pytest.raises(Killed):
        run(coordinator(protocol, Fragile(hosts, crossed), journal))
    journal.close()
    assert play(protocol, tmp_path, crossed) == [1]
    said_once(crossed)


@pytest.mark.parametrize("forgets", [False, True])
def test_control_a_curator_that_forgets_its_seed_has_triples_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Why the seed is journalled: a new one makes other choices than those that the site has answered."""
    _, view, protocol, hosts = at_first_round(None)
    if forgets:
        monkeypatch.setattr(view.journal, "once", lambda run_id, name, make: make())
    part = protocol.argmin
    again = part._curator_triples(view, 0)
    site = Site(hosts[SIDE], "run-1", StepPath("argmin", "multiply", "0"), None)
    (a, b, c), (d, e, f) = again.take(again.left), part._triples(site, 0).take(part.tournament.triples)
    assert bool((((a ^ d) & (b ^ e)) == (c ^ f)).all()) is not forgets


def test_other_shares_in_a_resumed_run_are_refused() -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    parties, _ = begun(protocol)
    assert protocol.coordinate(parties)["found"].tolist() == [1]
    with pytest.raises(Refused, match="not those that this run began"):
        protocol.argmin.coordinate_argmin(parties, np.zeros(3, np.uint64))


# What is refused.


def at_first_round(dealer: str | None, values: Any = (5, -2, 4)) -> tuple[Parties, Parties, Smallest, dict[str, Host]]:
    """A run whose triples are there and whose first round was not asked."""
    protocol = smallest([list(values)], dealer)
    parties, hosts = begun(protocol)
    parties.ask(protocol.lay, to=[SIDE], shares=np.array(protocol.parties_[0], np.uint64))
    view = parties.under("argmin")
    protocol.argmin._curator_triples(view, 0)
    return parties, view, protocol, hosts


@pytest.mark.parametrize("dealer", METHODS)
@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: b"", lambda m: m + bytes(1), lambda m: m + bytes(9999)])
def test_a_message_of_another_size_is_refused_and_leaves_no_trace(dealer: Any, change: Any) -> None:
    view, protocol, hosts = at_first_round(dealer)[1:]
    proper = bytes(-(-2 * protocol.argmin.tournament.gates[0] // 8))
    with pytest.raises(Malformed if len(change(proper)) > 9000 else Refused):
        view.ask("multiply", to=[SIDE], masked_by_curator=change(proper))
    assert hosts[SIDE].store.state("run-1", "argmin.heard/0/0") is None
    assert "argmin.multiply[0]" not in hosts[SIDE].store.replies("run-1")


def test_unused_bits_that_are_set_are_refused() -> None:
    view, protocol, _ = at_first_round(DEALER, (5, -2))[1:]
    gates = protocol.argmin.tournament.gates[0]
    assert 2 * gates % 8
    with pytest.raises(Refused, match="malformed"):
        view.ask("multiply", to=[SIDE], masked_by_curator=b"\xff" * -(-2 * gates // 8))


def test_another_message_for_an_answered_round_is_refused() -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    parties, hosts = begun(protocol)
    protocol.coordinate(parties)
    # A coordinator that lost its journal and makes up another message for the same round.
    fresh = coordinator(protocol, LocalChannel(hosts), Journal(None))
    with pytest.raises(Refused, match="journal"):
        size = -(-2 * protocol.argmin.tournament.gates[0] // 8)
        fresh.under("argmin").ask("multiply", to=[SIDE], masked_by_curator=bytes(size))


@pytest.mark.parametrize("name", ["masked_by_parties", "index_share", "transfer_offer", "transfer_columns"])
@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + bytes(9999)])
def test_the_curator_refuses_a_reply_of_another_size(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    protocol = smallest([[5, -2, 4]])
    parties, _ = begun(protocol)
    ask = Parties._read

    def changed(self: Any, path: Any) -> dict[str, PartyValues]:
        answers = ask(self, path)
        for values in answers.values():
            if name in values:
                values[name] = change(values[name])
        return answers

    monkeypatch.setattr(Parties, "_read", changed)
    with pytest.raises(Malformed):
        protocol.coordinate(parties)


def test_a_reply_beyond_its_declared_size_does_not_leave_the_site() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Loud(Argmin):
        @step(times=1 << 10, gives=("masked_by_parties",))
        def multiply(self, site: Site, masked_by_curator: bytes) -> dict[str, Any]:
            return {"masked_by_parties": bytes(1 << 16)}

    parties, _ = begun(smallest([[5, -2, 4]], DEALER, Loud))
    with pytest.raises(Refused, match="form"):
        parties.protocol.coordinate(parties)


@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m[:-1] + bytes([m[-1] ^ 1])])
def test_altered_triples_are_refused(change: Any) -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    parties, _ = begun(protocol)
    parties.ask(protocol.lay, to=[SIDE], shares=np.array(protocol.parties_[0], np.uint64))
    protocol.argmin._curator_triples(parties.under("argmin"), 0)
    (letter,) = parties._memory.mail[SIDE]
    letter["box"] = change(letter["box"])
    with pytest.raises(Refused):
        message = bytes(-(-2 * protocol.argmin.tournament.gates[0] // 8))
        parties.under("argmin").ask("multiply", to=[SIDE], masked_by_curator=message)


@pytest.mark.parametrize("direction", ["ask", "reply"])
def test_a_bit_that_is_altered_on_the_way_is_refused_and_the_run_goes_on_without_it(
    tmp_path: Path, direction: str
) -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    hosts, journal = sites(protocol, tmp_path), Journal(tmp_path / "journal")

    class Altering(WholeLocal):
        def carry(self, messages: Any) -> Any:
            here = any(path_of(message) == "argmin.multiply[3]" for message in messages.values())
            if here and direction == "ask":
                messages = {party: flipped(message) for party, message in messages.items()}
            replies = super().carry(messages)
            return {p: flipped(m) for p, m in replies.items()} if here and direction == "reply" else replies

    with pytest.raises((Refused, SiteLost), match=r"altered|signature"):
        run(coordinator(protocol, Altering(hosts), journal))
    assert run(coordinator(protocol, LocalChannel(hosts), journal))["found"].tolist() == [1]


def flipped(message: bytes) -> bytes:
    middle = len(message) // 2
    return message[:middle] + bytes([message[middle] ^ 4]) + message[middle + 1 :]


def test_without_the_representative_the_run_waits_for_it(tmp_path: Path) -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    parties, hosts = set_up_run(protocol, make_consortium(3, dropouts=0), tmp_path, lose=[(SIDE, "argmin.multiply[4]")])
    with pytest.raises(SiteLost):
        run(parties)
    resumed = coordinator(protocol, LocalChannel(hosts), parties.journal)
    assert run(resumed)["found"].tolist() == [1]
    resumed._memory.alive.remove(SIDE)
    with pytest.raises(SiteLost, match="lost before"):
        protocol.argmin._ask(resumed.under("argmin"), "open", 1)


def test_triples_of_one_use_do_not_serve_another() -> None:
    protocol = smallest([[5, -2], [3, 1]], DEALER)
    parties, _ = begun(protocol)
    for use in (0, 1):
        parties.ask(protocol.lay, to=[SIDE], label=use, shares=np.array(protocol.parties_[use], np.uint64))
    view, part = parties.under("argmin"), protocol.argmin
    part._curator_triples(view, 0)
    message = bytes(-(-2 * part.tournament.gates[0] // 8))
    with pytest.raises(Refused, match="argmin"):
        view.ask("multiply", to=[SIDE], label=part.rounds, masked_by_curator=message)


def test_rounds_come_in_order_and_not_more_often_than_declared() -> None:
    parties, view, protocol, _ = at_first_round(DEALER)
    part = protocol.argmin
    for label, code in ((1, "argmin"), (part.rounds, "too-often")):
        with pytest.raises(Refused, match=code):
            view.ask("multiply", to=[SIDE], label=label, masked_by_curator=bytes(4))
    with pytest.raises(Refused, match="argmin"):
        view.ask("open", to=[SIDE])
    with pytest.raises(Refused, match="too-often"):
        view.ask("deal", to=[DEALER], label=1, triple_seed=bytes(32))
    with pytest.raises(Refused, match="used for the number 1"):
        part.coordinate_argmin(parties, np.zeros(3, np.uint64), use=1)


def test_only_the_representative_and_the_dealer_have_parts() -> None:
    parties, _ = begun(smallest([[5, -2, 4]], DEALER))
    view = parties.under("argmin")
    for name, party in (("open", DEALER), ("offer", SIDE), ("offer", DEALER)):
        with pytest.raises(Refused, match="no-step"):
            view.ask(name, to=[party])
    for party in (SIDE, "birch"):
        with pytest.raises(Malformed, match="not declared from coordinator to"):
            view.ask("deal", to=[party], triple_seed=bytes(32))


@pytest.mark.parametrize("dealer", [SIDE, COORDINATOR])
def test_a_dealer_that_is_a_side_is_refused(dealer: Any) -> None:
    with pytest.raises(StudyError, match="outside both sides"):
        smallest([[1, 2]], dealer)


@pytest.mark.parametrize("names", [{"representative": "nobody"}, {"dealer": "nobody"}])
def test_strangers_are_refused_before_anything_begins(names: Any) -> None:
    protocol = smallest([[1, 2]], DEALER)
    with pytest.raises(StudyError, match="nobody"):
        wired(replace(protocol, argmin=replace(protocol.argmin, **names)))


@pytest.mark.parametrize("sizes", [{"uses": 0}, {"count": 0}, {"bits": 64}, {"fan_in": 1}])
def test_sizes_that_can_not_work_are_refused(sizes: Any) -> None:
    with pytest.raises(StudyError):
        replace(smallest([[1, 2]]).argmin, **sizes)


def test_shares_are_laid_down_once_and_before_the_first_round() -> None:
    protocol = smallest([[5, -2, 4]], DEALER)
    parties, hosts = begun(protocol)
    with pytest.raises(Refused, match="argmin"):
        protocol.argmin.coordinate_argmin(parties, np.array(protocol.curator[0], np.uint64))
    site = Site(hosts[SIDE], "run-1", StepPath("", "lay", "0"), None)
    protocol.argmin.hold(site, np.arange(3, dtype=np.uint64))
    with pytest.raises(Refused, match="other shares"):
        protocol.argmin.hold(site, np.zeros(3, np.uint64))
    with pytest.raises(Malformed):
        protocol.argmin.hold(site, np.zeros(4, np.uint64))


def test_the_releases_of_the_part_belong_into_the_declaration() -> None:
    protocol = smallest([[5, -2]], DEALER)
    parties, _ = begun(protocol)
    other = replace(protocol.argmin, index=Public("something else"))
    with pytest.raises(Refused, match="index_share is declared otherwise"):
        other.coordinate_argmin(parties, np.zeros(2, np.uint64))


def test_an_exact_index_is_a_disclosure_that_every_party_must_allow() -> None:
    protocol = smallest([[5, -2]], DEALER, index=Disclosed("who is smallest", "sizes_may_leave"))
    consortium = make_consortium(3, dropouts=0)
    strict = Policy(disclosures=frozenset(), approved={STUDY: 1})
    hosts = {name: host_party(protocol, consortium, name, policy=strict) for name in ("birch",)}
    hosts |= {name: host_party(protocol, consortium, name) for name in (SIDE, DEALER)}
    parties, _ = wired(protocol, hosts=hosts)
    with pytest.raises(Refused, match=r"birch refused run.ready.*sizes_may_leave"):
        run(parties)


def test_the_declaration_names_the_adversary() -> None:
    consortium = make_consortium(3)
    assert "never both" in smallest([[1, 2]]).declare(consortium).adversary
    assert f"except the dealer {DEALER}" in smallest([[1, 2]], DEALER).declare(consortium).adversary


# What a party reads that records the wire: no triple.


def test_no_byte_of_a_triple_seed_crosses_in_clear() -> None:
    parties, _ = begun(smallest([[4, 2, 9]], DEALER))
    line = record_channel(parties)
    assert parties.protocol.coordinate(parties)["found"].tolist() == [1]
    seed = parties.under("argmin").once("triple_seed/0", dict)
    assert len(seed) == 32
    assert not line.holds(seed)
    (crossed,) = line.asked(DEALER, "triple_seed")
    assert isinstance(crossed, bytes) and len(crossed) > 1000


def test_the_curators_seed_would_show_the_representative_its_inputs() -> None:
    """Control: masked inputs of the curator's gates, less what its seed expands to, are the same in every run."""
    protocol = smallest([[4, 2, 9]], DEALER)
    gates, triples = protocol.argmin.tournament.gates[0], protocol.argmin.tournament.triples
    crossed, inputs = [], []
    for _ in range(2):
        parties, _ = begun(protocol)
        line = record_channel(parties)
        protocol.coordinate(parties)
        crossed.append(unpack(next(line.asked(SIDE, "masked_by_curator")), 2 * gates))
        seed = parties.under("argmin").once("triple_seed/0", dict)
        a, b, _ = read_triples(Side.CURATOR, seed, triples).take(gates)
        inputs.append(crossed[-1] ^ np.concatenate([a, b]))
    np.testing.assert_array_equal(*inputs)
    assert not np.array_equal(crossed[0], crossed[1])
