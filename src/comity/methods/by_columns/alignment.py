"""Alignment: each party learns which of its rows belong to people whom all parties hold, in one common order.

    keyed   prepare      the party first by name seals a fresh key to the others; each says how long its list is
            pseudonyms   (for each bucket) keyed pseudonyms leave for the coordinator, in a secret order
    ecdh    blind        each party's blinded points go to the next party, sealed, in a secret order
            relay        (K − 2 times) each blinds the list that it holds and passes it on, sealed
            deliver      the last blinding; points that all parties have blinded leave for the coordinator
    both    place        (for each bucket) the coordinator tells each party where the common rows stand in its list

Adversary    keyed: a coordinator that follows the protocol but looks at everything, and colludes with no party.
             ecdh: the same with all parties but one.
Learned      coordinator: the size of each party's list and of every overlap. Each party: which of its own people all
             parties hold; with ecdh also the sizes of the lists that it relays. All of it is exact and outside the
             differential privacy of the study. The coordinator sends positions, never pseudonyms. Lists leave sealed
             to the coordinator: a party could read a recorded one with the key, or by the order of its own list.
Assumes      `crypto.psi_keyed`, whose key a coordinator with one party could use to try every possible id; or
             `crypto.psi_ecdh`, where it can't.

A protocol mounts it as a part, lists its releases in its own declaration (plans show them, policies are asked), and
calls `coordinate_alignment` first. Then the dimension `rows` is bound, and a step reads its party's common rows with
`comity.methods.by_columns.common_rows`. Without one party the common rows would differ: the run waits for it.

Long lists of keyed pseudonyms go bucket by bucket (`token_list`): neither a site nor the coordinator has a whole one in
memory. The common order is that of the pseudonyms as numbers, with any number of buckets. A list of blinded points goes
around in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import psi_ecdh, psi_keyed
from comity.data import StreamedRecords
from comity.entropy import Stream
from comity.errors import DataError, Malformed, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Disclosed, Public, Sealed
from comity.federation.declare.release import Array, Blob, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.part import Part, step
from comity.methods.by_columns.token_list import (
    KEY,
    TokenList,
    canonicalise_ids,
    count_buckets,
    id_blocks,
    require_distinct,
)

ROWS = "align.rows"
"""Where a party keeps the positions of its common rows, by bucket: `align.rows/0`."""
MAX_ROWS = 1 << 24
MAX_BUCKETS = 1 << 10
MAX_PARTIES = 1000
METHODS = ("keyed", "ecdh")
_POLICY = "sizes_may_leave"
_PLACED = "align.placed"
_TOKENS = "align.tokens"


@dataclass(frozen=True)
class Alignment(Part):
    """Private set intersection of the ids of all parties: `keyed` pseudonyms, or `ecdh` without their trust."""

    name = "align"
    method: str

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise StudyError(f"an alignment is {' or '.join(METHODS)}, found {self.method!r}", key="alignment")

    @property
    def width(self) -> int:
        """Bytes per row of a list that the coordinator matches."""
        return psi_keyed.PSEUDONYM_BYTES if self.method == "keyed" else psi_ecdh.POINT_BYTES

    def declare(self, consortium: Consortium) -> Declaration:
        if not 2 <= consortium.size <= MAX_PARTIES:
            raise StudyError(f"an alignment has 2 to {MAX_PARTIES} parties, found {consortium.size}", key="parties")
        tokens = Blob(self.width * MAX_ROWS)
        each, shared = "how many people each party has", "how many people any of the parties share"
        between: tuple[Release, ...]
        if self.method == "keyed":
            between = (
                Release(
                    name="alignment_key",
                    source=min(consortium.parties),
                    to=EVERY_PARTY,
                    protection=Sealed("the key of this run's pseudonyms"),
                    form=Blob(psi_keyed.KEY_BYTES),
                ),
                Release(
                    name="listed",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Disclosed(each, _POLICY),
                    form=Count(MAX_ROWS),
                ),
                Release(
                    name="buckets",
                    source=COORDINATOR,
                    to=EVERY_PARTY,
                    protection=Public("in how many messages lists are sent"),
                    form=Count(MAX_BUCKETS),
                ),
            )
            adversary = "an honest-but-curious coordinator that colludes with no party"
        else:
            between = (
                Release(
                    name="blinded_points",
                    source=EVERY_PARTY,
                    to=EVERY_PARTY,
                    protection=Sealed("blinded points, and hence the size of a list"),
                    form=Fields({"hop": Count(consortium.size), "points": tokens}),
                ),
            )
            adversary = (
                f"an honest-but-curious coordinator with up to {consortium.size - 1} of {consortium.size} parties"
            )
        return Declaration(
            (
                *between,
                Release(
                    name="tokens",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Disclosed(
                        shared if self.method == "keyed" else f"{each}, and {shared}", _POLICY, sealed=True
                    ),
                    form=tokens,
                ),
                Release(
                    name="rows",
                    source=COORDINATOR,
                    to=EVERY_PARTY,
                    protection=Disclosed("how many people all parties share", _POLICY),
                    form=Count(MAX_ROWS),
                ),
                Release(
                    name="positions",
                    source=COORDINATOR,
                    to=EVERY_PARTY,
                    protection=Disclosed("which of its own people all parties share", _POLICY),
                    form=Array(None, "<i8"),
                ),
            ),
            adversary=adversary,
        )

    # Keyed pseudonyms.

    @step(gives=("listed",))
    def prepare(self, site: Site) -> dict[str, Any]:
        self._only("keyed")
        count = _count(site)
        if site.party == min(site.consortium.parties):
            key = site.secret()
            site.keep("align.key", key)
            for party in site.consortium.parties:
                if party != site.party:
                    site.send(party, "alignment_key", key)
        return {"listed": count}

    @step(gives=("tokens",), times=MAX_BUCKETS)
    def pseudonyms(self, site: Site, buckets: int) -> dict[str, Any]:
        self._only("keyed")
        number = int(site.label)
        if number >= buckets:
            raise Refused("a list has as many buckets as were agreed on", code="too-often")
        tokens, _ = self._token_list(site).bucket(number)
        return {"tokens": _shuffle(site, number, tokens, self.width)}

    def _token_list(self, site: Site) -> TokenList:
        """This party's list, made again where the site was started again."""
        dealer, buckets = min(site.consortium.parties), site.dims["buckets"]
        key = site.kept("align.key") if site.party == dealer else site.received("alignment_key").get(dealer)
        if key is None:
            raise Refused("the key of this run did not arrive", code="align")
        seed = site.seed(key, "pseudonyms")

        def make() -> TokenList:
            return TokenList.make(seed, id_blocks(site.records), TokenList.empty(buckets, site.open_file()))

        # One key and one number of buckets a run: the run alone names the list.
        return site.built(_TOKENS, b"", make)

    # Blinded points. A list goes once around the ring of parties and ends with the one before its owner.

    @step()
    def blind(self, site: Site) -> None:
        self._only("ecdh")
        _count(site)
        ids = canonicalise_ids(site.records.ids)
        site.keep("align.secret", psi_ecdh.fresh_secret())
        points = require_distinct(psi_ecdh.hash_to_points(ids), width=self.width)
        self._pass_on(site, 1, _shuffle(site, 0, points, self.width))

    @step(times=MAX_PARTIES)
    def relay(self, site: Site) -> None:
        hop = int(site.label) + 1
        if hop > site.consortium.size - 2:
            raise Refused("a list goes around the ring once", code="too-often")
        self._pass_on(site, hop + 1, self._arrived(site, hop))

    @step(gives=("tokens",))
    def deliver(self, site: Site) -> dict[str, Any]:
        arrived = self._arrived(site, site.consortium.size - 1)
        return {"tokens": psi_ecdh.blind(_secret(site), arrived)}

    def _pass_on(self, site: Site, hop: int, points: bytes) -> None:
        blinded = psi_ecdh.blind(_secret(site), points)
        site.send(_beside(site.consortium, site.party, 1), "blinded_points", {"hop": hop, "points": blinded})

    def _arrived(self, site: Site, hop: int) -> bytes:
        self._only("ecdh")
        letter = site.take("blinded_points").get(_beside(site.consortium, site.party, -1))
        if letter is None or letter["hop"] != hop:
            raise Refused("the list of this turn did not arrive", code="align")
        return bytes(letter["points"])

    def _only(self, method: str) -> None:
        if self.method != method:
            raise Refused(f"this alignment is {self.method}", code="no-step")

    # The common order.

    @step(times=MAX_BUCKETS)
    def place(self, site: Site, rows: int, positions: NDArray[np.int64]) -> None:
        number, buckets = int(site.label), 1 if self.method == "ecdh" else site.dims["buckets"]
        seed, held = site.kept(f"align.order/{number}", (None, 0))
        placed, before = site.kept(_PLACED, (0, 0))
        if seed is None or rows < 1 or number != placed:
            raise Refused("common rows come after their list was sent, in order; there is at least one", code="align")
        distinct = np.unique(positions)
        inside = not len(distinct) or (distinct[0] >= 0 and distinct[-1] < held)
        if not inside or positions.ndim != 1 or len(distinct) != len(positions):
            raise Malformed("positions are distinct rows of this party's list", code="form", key="positions")
        count, last = before + len(positions), number == buckets - 1
        if count > rows or (last and count != rows):
            raise Malformed("all buckets together have as many positions as common rows", code="form", key="positions")
        found = _order(seed, held)[positions]
        if self.method == "keyed":
            _, of_list = self._token_list(site).bucket(number)
            found = of_list[found]
        site.keep(f"{ROWS}/{number}", found)
        site.keep(_PLACED, [placed + 1, count])
        if last:
            # Nothing looks it up after this step, unless the step has to be run again.
            site.drop_built(_TOKENS, b"")

    # The coordinator's side.

    def coordinate_alignment(self, parties: Parties, mount: str = "align") -> int:
        """Align the rows of all parties of a run; how many they share. None shared ends the study."""
        for release in self.declare(parties.consortium).releases:
            if parties.declaration[release.name] != release:
                raise Refused(f"{release.name} is declared otherwise than its alignment does", code="undeclared")
        view, names = parties.under(mount), list(parties.consortium.parties)
        buckets = self._bucket_lists(view, names)
        rows = 0
        for number in range(buckets):
            # Positions lie in the journal meanwhile: all of them may be many megabytes.
            matched = self._matched(view, number, self._tokens(view, names, number, buckets))
            rows += len(matched[names[0]])
        if rows == 0:
            raise DataError(
                "the parties share nobody: no id is held by all of them; check that the "
                "identifier column means the same at every site",
                code="empty-intersection",
                key=KEY,
            )
        for number in range(buckets):
            positions = self._matched(view, number)
            each = {name: {"positions": positions[name]} for name in names}
            view.ask("place", label=number, rows=rows, each=each, need=len(names))
        return rows

    def _bucket_lists(self, view: Parties, names: list[str]) -> int:
        """Ask for what comes before the first list; in how many buckets lists come."""
        if self.method == "keyed":
            sizes = [int(reply["listed"]) for reply in view.ask("prepare", need=len(names)).values()]
            return count_buckets(max(sizes))
        view.ask("blind", need=len(names))
        for turn in range(len(names) - 2):
            view.ask("relay", label=turn, need=len(names))
        return 1

    def _tokens(self, view: Parties, names: list[str], number: int, buckets: int) -> dict[str, bytes]:
        """A bucket of each party's list."""
        if self.method == "keyed":
            asked = view.ask("pseudonyms", label=number, need=len(names), buckets=buckets)
            return {name: reply["tokens"] for name, reply in asked.items()}
        delivered = view.ask("deliver", need=len(names))
        return {name: delivered[_beside(view.consortium, name, -1)]["tokens"] for name in names}

    def _matched(
        self, view: Parties, number: int, tokens: dict[str, bytes] | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """The positions of the rows that all parties have in a bucket, matched once."""

        def match() -> dict[str, NDArray[np.int64]]:
            assert tokens is not None
            return {name: found.astype("<i8") for name, found in psi_keyed.match_lists(tokens, self.width).items()}

        found: dict[str, NDArray[np.int64]] = view.once(f"matched/{number}", match)
        return found


def common_positions(site: Site) -> Iterator[NDArray[np.int64]] | None:
    """Where this party has the common rows, in their order, bucket by bucket; None without an alignment."""
    placed, _ = site.kept(_PLACED, (0, 0))
    return (site.kept(f"{ROWS}/{number}") for number in range(placed)) if placed else None


def _count(site: Site) -> int:
    """How many ids this party has."""
    records = site.records
    named = records.encoding.schema.identifier if isinstance(records, StreamedRecords) else records.ids
    if named is None:
        raise DataError(f"{site.party} has no ids to align by; name their column in the schema", key=KEY)
    if len(records) > MAX_ROWS:
        raise DataError(f"an alignment has up to {MAX_ROWS} rows per party, {site.party} has {len(records)}", key=KEY)
    return len(records)


def _shuffle(site: Site, number: int, tokens: bytes, width: int) -> bytes:
    """The list of a bucket in a secret order, which the site keeps as its seed."""
    table = np.frombuffer(tokens, np.uint8).reshape(-1, width)
    seed = site.secret()
    site.keep(f"align.order/{number}", [seed, len(table)])
    return table.take(_order(seed, len(table)), axis=0).tobytes()


def _order(seed: bytes, count: int) -> NDArray[np.int64]:
    return np.argsort(Stream(seed).words(count))


def _secret(site: Site) -> bytes:
    secret = site.kept("align.secret")
    if secret is None:
        raise Refused("a party blinds its own list first", code="align")
    return bytes(secret)


def _beside(consortium: Consortium, party: str, by: int) -> str:
    names = list(consortium.parties)
    return names[(names.index(party) + by) % len(names)]
