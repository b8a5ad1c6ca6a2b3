"""The index of the smallest of K integers shared between the coordinator and the parties, as a sub-protocol.

    transfer   offer      the parties' representative opens oblivious transfers with the curator, who is the coordinator
               extend     it answers the curator's choices; both sides then hold their shares of fresh triples
    dealer     deal       a party outside both sides takes the curator's seed and seals the other half of the triples
    both       multiply   (once per round) the inputs of a round's gates, masked by triples, in both directions
               open       the representative's share of the index leaves for the curator

Adversary    curator and representative, each alone: both follow the protocol and look at everything, and they do not
             collude. Any other party may help one of them, except a dealer, who would show it what the other holds.
Learned      curator: the index of the smallest value, the lowest one of equal values. Representative: nothing. Dealer:
             that an argmin of this size is computed. Everybody: the public sizes.
Assumes      nothing but triples that neither side knows whole: from a dealer, or by oblivious transfer
             (`crypto.comparisons.ot_extension`, of which the base transfers are classical).

The index is exact. It is private only as far as the values carry noise or stand in an order that the curator does not
know; the mounting protocol says in `index` why the curator may have it. Values lie in −2^(bits−1) … 2^(bits−1) − 1;
outside of that range the index may be wrong, and nothing else happens.

One triple, one mask: the curator's seed and shares are journalled before the first ask, the representative's secret is
committed with the reply that first depends on it, and a round is answered once. A killed run resumes by replaying the
same exchange on either side, and a different message under the same round is refused.

A protocol mounts it as a part, once, lists its releases in its own declaration, calls `hold` in a step of the
representative to store that side's shares, and then `coordinate_argmin` with the curator's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.crypto.comparisons.argmin import BITS, FAN_IN, Tournament, argmin
from comity.crypto.comparisons.exchange import Exchange, Side, pack, unpack
from comity.crypto.comparisons.oblivious_transfer import BASE, ELEMENT_BYTES, MULTIPLE
from comity.crypto.comparisons.triples import SEED_BYTES, Triples, deal, read_triples, transfer_triples
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused, SiteLost, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Public, Sealed
from comity.federation.declare.release import Blob, Count, Fields, Form
from comity.federation.messages.codec import encode
from comity.federation.owner.site import Site
from comity.federation.part import Part, step

Result = TypeVar("Result")
Words = NDArray[np.uint64]
Protected = Public | Derived | Disclosed | Sealed

MAX_USES = 1 << 16
MAX_ROUNDS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Argmin(Part):
    """`uses` computations of one size in a run, each with separate triples.

    `representative` is the party that holds the parties' shares, `dealer` the party that deals triples, or None for
    triples by oblivious transfer. `index` says why the curator may know the index.
    """

    name = "argmin"
    count: int
    representative: str
    index: Public | Derived | Disclosed
    dealer: str | None = None
    uses: int = 1
    bits: int = BITS
    fan_in: int = FAN_IN

    def __post_init__(self) -> None:
        if self.dealer in (self.representative, COORDINATOR):
            raise StudyError(
                f"triples are dealt by a party outside both sides, found {self.dealer!r}; name another one, or none "
                "for triples by oblivious transfer",
                key="dealer",
            )
        if not 1 <= self.uses <= MAX_USES:
            raise StudyError(f"an argmin is used 1 to {MAX_USES} times in a run, found {self.uses}", key="uses")
        try:
            Tournament(self.count, self.bits, self.fan_in)
        except ValueError as error:
            raise StudyError(f"an argmin: {error}", key="count") from error

    @property
    def tournament(self) -> Tournament:
        return Tournament(self.count, self.bits, self.fan_in)

    @property
    def rounds(self) -> int:
        """How often `multiply` is asked per use."""
        return len(self.tournament.gates)

    def declare(self, consortium: Consortium) -> Declaration:
        for key, party in (("representative", self.representative), ("dealer", self.dealer)):
            if party is not None and not consortium.knows(party):
                raise StudyError(f"the {key} of an argmin is a party of the study, found {party!r}", key=key)

        def release(name: str, source: str, to: str, protection: Protected, form: Form, times: int) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form, times=times)

        side, uses, triples = self.representative, self.uses, self.tournament.triples
        if self.dealer is None:
            random = Public("a random element, independent of all records")
            hidden = Public("random choices, hidden by transfers")
            columns = Blob(BASE * 2 * _pad(triples) // 8)
            transfers: tuple[Release, ...] = (
                release("transfer_offer", side, COORDINATOR, random, Blob(ELEMENT_BYTES), uses),
                release("transfer_choices", COORDINATOR, side, hidden, Blob(BASE * ELEMENT_BYTES), uses),
                release("transfer_columns", side, COORDINATOR, hidden, columns, uses),
            )
            others = "any other parties"
        else:
            seed = Sealed("the curator's half of random triples")
            rest = Fields({"use": Count(uses - 1), "triples": Blob(SEED_BYTES + _bytes(triples))})
            transfers = (
                release("triple_seed", COORDINATOR, self.dealer, seed, Blob(SEED_BYTES), uses),
                release("triples", self.dealer, side, Sealed("random triples, independent of all records"), rest, uses),
            )
            others = f"any other parties except the dealer {self.dealer}"
        masked = Blob(max((_bytes(2 * gates) for gates in self.tournament.gates), default=0))
        uniform = Public("uniform bits: inputs of gates, each masked by a separate triple")
        return Declaration(
            (
                *transfers,
                release("masked_by_curator", COORDINATOR, side, uniform, masked, uses * self.rounds),
                release("masked_by_parties", side, COORDINATOR, uniform, masked, uses * self.rounds),
                # The index depends on every party's value, so the policy of every party is asked, not only that of the
                # representative, whose share alone opens it.
                release(
                    "index_share", EVERY_PARTY, COORDINATOR, self.index, Blob(_bytes(self.tournament.index_bits)), uses
                ),
            ),
            adversary=f"honest but curious: the coordinator or {side}, never both, with {others}",
        )

    # Triples by oblivious transfer, at the representative.

    @step(times=MAX_USES, gives=("transfer_offer",))
    def offer(self, site: Site) -> dict[str, Any]:
        use = self._check_use(site, int(site.label), self.representative)
        if self.dealer is not None:
            raise Refused("the triples of this argmin are dealt", code="no-step")
        site.keep(f"argmin.seed/{use}", site.secret())
        return {"transfer_offer": next(self._transfers(site, use))}

    @step(times=MAX_USES, gives=("transfer_columns",))
    def extend(self, site: Site, transfer_choices: bytes) -> dict[str, Any]:
        use = self._check_use(site, int(site.label), self.representative)
        transfers = self._transfers(site, use)
        # The curator is silent in the first and the third round of the transfers.
        columns = _replay(transfers, [b"", transfer_choices])
        self._keep_triples(site, use, _finish(transfers, b""))
        return {"transfer_columns": columns}

    def _transfers(self, site: Site, use: int) -> Exchange[Triples]:
        seed = site.kept(f"argmin.seed/{use}")
        if seed is None:
            raise Refused("transfers are extended after they were offered", code="argmin")
        session = site.context("argmin", use)
        return transfer_triples(Side.PARTIES, self.tournament.triples, session=session, seed=seed)

    # Triples from a dealer.

    @step(times=MAX_USES)
    def deal(self, site: Site, triple_seed: bytes) -> None:
        use = self._check_use(site, int(site.label), self.dealer)
        sides = (COORDINATOR, self.representative)
        _, rest = deal(self.tournament.triples, dealer=site.party, sides=sides, curator=triple_seed)
        site.send(self.representative, "triples", {"use": use, "triples": rest})

    # The computation, at the representative.

    def hold(self, site: Site, shares: Words, use: int = 0) -> None:
        """Store the parties' shares of one use, in a step of the mounting protocol; different ones are refused."""
        self._check_use(site, use, self.representative)
        shares, earlier = self._check_shares(shares), site.kept(_shares_key(use))
        if earlier is not None and not np.array_equal(earlier, shares):
            raise Refused("other shares were held for this argmin in this run", code="argmin")
        site.keep(_shares_key(use), shares)

    @step(times=MAX_ROUNDS, gives=("masked_by_parties",))
    def multiply(self, site: Site, masked_by_curator: bytes) -> dict[str, Any]:
        # A single candidate has no rounds at all.
        use, turn = divmod(int(site.label), self.rounds) if self.rounds else (self.uses, 0)
        side = self._resume(site, use)
        own = _replay(side, self._read_rounds(site, use, turn))
        # One round beyond what is sent: that refuses a malformed message before it is stored.
        side.send(masked_by_curator)
        site.keep(f"argmin.heard/{use}/{turn}", masked_by_curator)
        return {"masked_by_parties": own}

    @step(times=MAX_USES, gives=("index_share",))
    def open(self, site: Site) -> dict[str, Any]:
        use = int(site.label)
        side = self._resume(site, use)
        return {"index_share": _replay(side, self._read_rounds(site, use, self.rounds))}

    def _resume(self, site: Site, use: int) -> Exchange[int | None]:
        """The parties' half from its beginning: the same triples and shares in every step."""
        self._check_use(site, use, self.representative)
        shares = site.kept(_shares_key(use))
        if shares is None:
            raise Refused("the shares of this argmin were not stored", code="argmin")
        return argmin(Side.PARTIES, self._check_shares(shares), self._triples(site, use), self.tournament)

    def _triples(self, site: Site, use: int) -> Triples:
        count, kept = self.tournament.triples, site.kept(f"argmin.triples/{use}")
        if kept is not None:
            a, b, c = (unpack(share, count) for share in kept)
            return Triples(a, b, c)
        letter = None if self.dealer is None else site.take("triples", [self.dealer]).get(self.dealer)
        if letter is None or letter["use"] != use:
            raise Refused("the triples of this argmin did not arrive", code="argmin")
        self._keep_triples(site, use, read_triples(Side.PARTIES, letter["triples"], count))
        return self._triples(site, use)

    def _keep_triples(self, site: Site, use: int, triples: Triples) -> None:
        site.keep(f"argmin.triples/{use}", [pack(share) for share in triples.take(triples.left)])

    def _read_rounds(self, site: Site, use: int, turns: int) -> list[bytes]:
        heard = [site.kept(f"argmin.heard/{use}/{turn}") for turn in range(turns)]
        if None in heard:
            raise Refused("the rounds of an argmin come one after the other", code="argmin")
        return heard

    def _check_use(self, site: Site, use: int, party: str | None) -> int:
        if site.party != party:
            raise Refused("this party has no such part in the argmin", code="no-step")
        if not 0 <= use < self.uses:
            raise Refused(f"an argmin of {self.uses} uses was asked for more often", code="too-often")
        return use

    def _check_shares(self, shares: Words) -> Words:
        if shares.shape != (self.count,) or shares.dtype != np.uint64:
            raise Malformed(
                f"{self.count} uint64 shares were expected, found {shares.shape} of {shares.dtype}", code="form"
            )
        return shares

    # The curator's side.

    def coordinate_argmin(self, parties: Parties, shares: Words, use: int = 0, mount: str = "argmin") -> int:
        """The index of the smallest value, from the curator's shares and those that the representative holds."""
        for release in self.declare(parties.consortium).releases:
            if parties.declaration[release.name] != release:
                raise Refused(f"{release.name} is declared otherwise than its argmin does", code="undeclared")
        if not 0 <= use < self.uses:
            raise Refused(f"an argmin of {self.uses} uses was used for the number {use}", code="too-often")
        self._check_shares(shares)
        if not self.rounds:
            return 0
        view = parties.under(mount)
        # With other shares the same triples would mask other inputs.
        if not np.array_equal(view.once(f"shares/{use}", lambda: shares), shares):
            raise Refused("the curator's shares are not those that this run began the argmin with", code="argmin")
        side = argmin(Side.CURATOR, shares, self._curator_triples(view, use), self.tournament)
        message = next(side)
        for turn in range(self.rounds):
            label = use * self.rounds + turn
            message = side.send(self._ask(view, "multiply", label, masked_by_curator=message)["masked_by_parties"])
        index = _finish(side, self._ask(view, "open", use)["index_share"])
        assert index is not None
        return index

    def _curator_triples(self, view: Parties, use: int) -> Triples:
        count = self.tournament.triples
        if self.dealer is not None:
            seed = view.once(f"triple_seed/{use}", fresh_seed)
            self._ask(view, "deal", use, triple_seed=seed)
            return read_triples(Side.CURATOR, seed, count)
        # The session that `Site.context` names at the other side.
        session, seed = encode([view.study, view.run, "argmin", use]), view.once(f"seed/{use}", fresh_seed)
        transfers = transfer_triples(Side.CURATOR, count, session=session, seed=seed)
        choices = _replay(transfers, [self._ask(view, "offer", use)["transfer_offer"]])
        columns = self._ask(view, "extend", use, transfer_choices=choices)["transfer_columns"]
        # The representative is silent while the curator sends its choices.
        transfers.send(b"")
        return _finish(transfers, columns)

    def _ask(self, view: Parties, name: str, label: int, **values: Any) -> dict[str, Any]:
        party = self.dealer if name == "deal" else self.representative
        assert party is not None
        answers = view.ask(name, to=[party], label=label, **values)
        if party not in answers:
            raise SiteLost(f"the argmin can't go on without {party}, who was lost earlier in this run")
        return answers[party]


def _shares_key(use: int) -> str:
    return f"argmin.shares/{use}"


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _pad(triples: int) -> int:
    return -(-triples // MULTIPLE) * MULTIPLE


def _replay(side: Exchange[Any], received: Iterable[bytes]) -> bytes:
    """A side's next message after it received these from the beginning."""
    sent = next(side)
    for message in received:
        sent = side.send(message)
    return sent


def _finish(side: Exchange[Result], last: bytes) -> Result:
    """A side's result after its last message."""
    try:
        side.send(last)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise Malformed("an exchange was expected to end with this message", code="form")
