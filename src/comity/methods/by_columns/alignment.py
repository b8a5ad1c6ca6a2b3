"""Alignment: each party learns which of its rows belong to people whom all parties hold, in one common order.

    keyed   deal_key     the party first by name seals a fresh key to the others
            pseudonyms   each party's keyed pseudonyms leave for the coordinator, in a secret order
    ecdh    blind        each party's blinded points go to the next party, sealed, in a secret order
            relay        (K − 2 times) each blinds the list that it holds and passes it on, sealed
            deliver      the last blinding; points that all parties have blinded leave for the coordinator
    both    place        the coordinator tells each party the positions of the common rows in its own list

Adversary    keyed: a coordinator that follows the protocol but looks at everything, and colludes with no party.
             ecdh: the same with all parties but one.
Learned      coordinator: the size of each party's list and of every overlap. Each party: which of its own people all
             parties hold; with ecdh also the sizes of the lists that it relays. All of it is exact and outside the
             differential privacy of the study. The coordinator sends positions, never pseudonyms. Lists leave sealed
             to the coordinator: a party could read a recorded one with the key, or by the order of its own list.
Assumes      `crypto.psi_keyed`, whose key a coordinator with one party could use to try every possible id; or
             `crypto.psi_ecdh`, where it can't.

A protocol mounts it as a part, lists its releases in its own declaration (plans show them, policies are asked), and
calls `coordinate_alignment` first. Then the dimension `rows` is bound, and a step finds the int64 positions of its
party's common rows under `site.kept(ROWS)`. Without one party the common rows would differ: the run waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import psi_ecdh, psi_keyed
from comity.crypto.psi_keyed import Packed, find_repeated
from comity.data.schemas.reading import canonical_id
from comity.entropy import Stream
from comity.errors import DataError, Malformed, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Disclosed, Sealed
from comity.federation.declare.release import Array, Blob, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.part import Part, step

ROWS = "align.rows"
MAX_ROWS = 1 << 24
MAX_PARTIES = 1000
METHODS = ("keyed", "ecdh")
_POLICY = "sizes_may_leave"
_KEY = "identifier.name"


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
        if self.method == "keyed":
            between = Release(
                name="alignment_key",
                source=min(consortium.parties),
                to=EVERY_PARTY,
                protection=Sealed("the key of this run's pseudonyms"),
                form=Blob(psi_keyed.KEY_BYTES),
            )
            adversary = "an honest-but-curious coordinator that colludes with no party"
        else:
            between = Release(
                name="blinded_points",
                source=EVERY_PARTY,
                to=EVERY_PARTY,
                protection=Sealed("blinded points, and hence the size of a list"),
                form=Fields({"hop": Count(consortium.size), "points": tokens}),
            )
            adversary = (
                f"an honest-but-curious coordinator with up to {consortium.size - 1} of {consortium.size} parties"
            )
        return Declaration(
            (
                between,
                Release(
                    name="tokens",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Disclosed(
                        "how many people each party has and how many any of them share", _POLICY, sealed=True
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
                    form=Array(("rows",), "<i8"),
                ),
            ),
            adversary=adversary,
        )

    # Keyed pseudonyms.

    @step()
    def deal_key(self, site: Site) -> None:
        self._only("keyed")
        if site.party != min(site.consortium.parties):
            raise Refused("the first party by name deals the key", code="align")
        key = site.secret()
        site.keep("align.key", key)
        for party in site.consortium.parties:
            if party != site.party:
                site.send(party, "alignment_key", key)

    @step(gives=("tokens",))
    def pseudonyms(self, site: Site) -> dict[str, Any]:
        self._only("keyed")
        dealer = min(site.consortium.parties)
        key = site.kept("align.key") if site.party == dealer else site.received("alignment_key").get(dealer)
        if key is None:
            raise Refused("the key of this run did not arrive", code="align")
        ids = canonicalise_ids(_ids(site))
        made = psi_keyed.make_pseudonyms(site.seed(key, "pseudonyms"), ids).tobytes()
        return {"tokens": _shuffle(site, require_distinct(made, self.width), self.width)}

    # Blinded points. A list goes once around the ring of parties and ends with the one before its owner.

    @step()
    def blind(self, site: Site) -> None:
        self._only("ecdh")
        ids = canonicalise_ids(_ids(site))
        site.keep("align.secret", psi_ecdh.fresh_secret())
        self._pass_on(site, 1, _shuffle(site, require_distinct(psi_ecdh.hash_to_points(ids), self.width), self.width))

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

    @step()
    def place(self, site: Site, rows: int, positions: NDArray[np.int64]) -> None:
        seed, held = site.kept("align.order", (None, 0))
        if seed is None or rows < 1:
            raise Refused("common rows come after the list was sent, and there is at least one", code="align")
        distinct = np.unique(positions)
        if distinct[0] < 0 or distinct[-1] >= held or len(distinct) != len(positions):
            raise Malformed("positions are distinct rows of this party's list", code="form", key="positions")
        site.keep(ROWS, _order(seed, held)[positions])

    # The coordinator's side.

    def coordinate_alignment(self, parties: Parties, mount: str = "align") -> int:
        """Align the rows of all parties of a run; how many they share. None shared ends the study."""
        for release in self.declare(parties.consortium).releases:
            if parties.declaration[release.name] != release:
                raise Refused(f"{release.name} is declared otherwise than its alignment does", code="undeclared")
        view, names = parties.under(mount), list(parties.consortium.parties)
        if self.method == "keyed":
            view.ask("deal_key", to=[min(names)], need=1)
            tokens = {name: reply["tokens"] for name, reply in view.ask("pseudonyms", need=len(names)).items()}
        else:
            view.ask("blind", need=len(names))
            for turn in range(len(names) - 2):
                view.ask("relay", label=turn, need=len(names))
            delivered = view.ask("deliver", need=len(names))
            tokens = {name: delivered[_beside(parties.consortium, name, -1)]["tokens"] for name in names}
        positions = psi_keyed.match_lists(tokens, self.width)
        rows = len(positions[names[0]])
        if rows == 0:
            raise DataError(
                "the parties share nobody: no id is held by all of them; check that the "
                "identifier column means the same at every site",
                code="empty-intersection",
                key=_KEY,
            )
        view.ask("place", rows=rows, each={name: {"positions": positions[name]} for name in names}, need=len(names))
        return rows


def canonicalise_ids(ids: Sequence[Any] | NDArray[np.object_]) -> Packed:
    """The bytes that are compared: UTF-8 of the composed form (NFC), without surrounding blanks, which databases add.

    An id that is no text, or empty, is the owner's DataError. It counts rows from 1 and shows no id: ids enter no log.
    """
    texts = list(ids)
    try:
        together = "\n".join(texts)
    except TypeError:
        row, kind = next((row, type(one).__name__) for row, one in enumerate(texts) if not isinstance(one, str))
        raise DataError(
            f"every row needs a text as its id, row {row + 1} has a {kind}; read the identifier column as text and "
            "drop the rows without one",
            key=_KEY,
        ) from None
    try:
        packed = _plain(together, len(texts)) or Packed.of([canonical_id(one).encode() for one in texts])
    except UnicodeEncodeError as error:
        raise DataError(
            "an id is no valid Unicode text; read the identifier column again as UTF-8", key=_KEY
        ) from error
    empty = np.flatnonzero(packed.sizes == 0)
    if len(empty):
        raise DataError(
            f"every row needs an id, row {empty[0] + 1} has an empty one; fill it or drop the row", key=_KEY
        )
    return packed


def _plain(together: str, count: int) -> Packed | None:
    """Ids joined by line breaks, if they are ASCII without blanks and so need no normalising; None otherwise."""
    if not count or not together.isascii():
        return None
    letters = np.frombuffer(together.encode(), np.uint8)
    visible = letters > 32
    breaks = np.flatnonzero(~visible)
    if len(breaks) != count - 1:
        return None
    ends = np.append(breaks, len(letters)) - np.arange(count)
    return Packed(letters[visible].tobytes(), ends)


def require_distinct(tokens: bytes, width: int) -> bytes:
    """Refuse equal tokens with the owner's DataError: they are a person with two rows."""
    pair = find_repeated(tokens, width)
    if pair is not None:
        first, second = sorted(pair)
        raise DataError(
            f"an id stands for one row, rows {first + 1} and {second + 1} have the same; keep one row per person",
            key=_KEY,
        )
    return tokens


def _ids(site: Site) -> NDArray[np.object_]:
    ids = site.records.ids
    if ids is None:
        raise DataError(f"{site.party} has no ids to align by; name their column in the schema", key=_KEY)
    if len(ids) > MAX_ROWS:
        raise DataError(f"an alignment has up to {MAX_ROWS} rows per party, {site.party} has {len(ids)}", key=_KEY)
    return ids


def _shuffle(site: Site, tokens: bytes, width: int) -> bytes:
    """The list in a secret order, which the site keeps as its seed."""
    table = np.frombuffer(tokens, np.uint8).reshape(-1, width)
    seed = site.secret()
    site.keep("align.order", [seed, len(table)])
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
