"""Secure sum of integer vectors with two kinds of masks (after Bonawitz et al. 2017, Bell et al. 2020).

    set-up, once per run    advertise  each party makes a fresh sealing key for this run, signed by its pinned one
                            deal       it seals to each neighbour a pair seed and Shamir shares of its secrets
                            meet       it opens those of its neighbours and leaves a *will* per sum
    per sum                 mask       vector + self mask ± pair masks leave for the coordinator
                            agree      every survivor signs the one list of survivors
                            unmask     against enough signatures, shares of self masks, or of wills of the lost

Adversary    a coordinator that follows the protocol but looks at everything, with up to `colluders` parties.
Learned      coordinator: the sum over the survivors. Parties: who took part.
Assumes      AES as a pseudorandom permutation, HPKE (ML-KEM-768 + X25519) and Ed25519 under the pinned keys; among very
             many parties, colluders and drop-outs that do not depend on the graph of `comity.crypto.neighbours`.

A will is what a lost party leaves behind: its pair seeds of that one sum, locked under a key that is Shamir-shared. For
one party and one sum, a site gives out a share of the self mask or of the will's key, never both; seeds, self masks and
wills of different sums are independent, so the rule need not reach across sums. The threshold is so high that shares of
both can't be collected by showing different lists to different parties. The list of survivors is the answer to
`sum.agree[release/i]`, of which there is one ever. Pair seeds are sealed to keys that are deleted with the run, so
that a pinned key that is stolen later opens no recorded masks.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import prg, shamir
from comity.crypto.neighbours import COMPLETE, Degree, choose, ring
from comity.crypto.sealed import SEALING_BYTES, PublicIdentity, lock, unlock
from comity.entropy import Stream
from comity.errors import Malformed, Refused, SiteLost
from comity.federation.codec import decode, encode
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Blob, Each, Fields, Form, Names
from comity.federation.parties import Parties
from comity.federation.protection import Public, Sealed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site

Masked = NDArray[np.uint32] | NDArray[np.uint64]

_SHARE = Blob(shamir.SHARE_BYTES)
_SEALED_SEED = 32 + 1200


def degree_of(who: Consortium) -> Degree:
    return choose(who.size, who.colluders, who.dropouts)


@lru_cache(maxsize=8)
def _ring(parties: tuple[str, ...], degree: int, study: str, run: str) -> dict[str, tuple[str, ...]]:
    return ring(parties, degree, Stream.public(study, run, "neighbours"))


def neighbours(who: Consortium, study: str, run: str) -> dict[str, tuple[str, ...]]:
    """Each party's neighbours in this run: public, the same to everyone, chosen by nobody."""
    return _ring(tuple(who.parties), degree_of(who).degree, study, run)


def word(release: Release, who: Consortium) -> str:
    """32-bit words where the sum and its noise fit with room to spare: half the bytes and half the masks."""
    return "<u4" if release.ring == 64 and release.reach(who, release.scale(who)) < 2**30 else "<u8"


def _digest(members: list[str], survivors: list[str]) -> bytes:
    """What a consent signs: encoding both lists for every signature would take most of the time of a large sum."""
    return hashlib.sha256(encode([members, survivors])).digest()


def to_words(units: NDArray[np.int64], dtype: str) -> Masked:
    return np.ascontiguousarray(units.view("<u8").astype(dtype))


def to_units(words: Masked) -> NDArray[np.int64]:
    """The signed integer that a word stands for."""
    return words.view("<i4").astype("<i8") if words.dtype.str == "<u4" else words.view("<i8")


class SecureSum(Protocol):
    name = "sum"

    def declare(self, who: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        key = Fields({"key": Blob(SEALING_BYTES), "signature": Blob(64)})
        shares = Fields(
            {"seed": Blob(_SEALED_SEED), "self": Each(_SHARE, "sums"), "will": Each(_SHARE, "sums")}, ("seed",)
        )
        opening = Fields({"self": Each(_SHARE), "will": Each(_SHARE)})
        wills = Each(Blob(64 + 300 * who.size), "sums")
        return Declaration(
            (
                release("key", EVERY_PARTY, COORDINATOR, Public("a fresh sealing key"), key),
                release("keys", COORDINATOR, EVERY_PARTY, Public("the neighbours' sealing keys"), Each(key)),
                release("shares", EVERY_PARTY, EVERY_PARTY, Sealed("a pair seed and one share per secret"), shares),
                release("dealers", COORDINATOR, EVERY_PARTY, Public("which neighbours dealt"), Names()),
                release(
                    "wills", EVERY_PARTY, COORDINATOR, Public("pair seeds, locked under keys that are shared"), wills
                ),
                release("members", COORDINATOR, EVERY_PARTY, Public("who takes part"), Names()),
                release("masked", EVERY_PARTY, COORDINATOR, Public("uniform until unmasked"), _Words()),
                release("survivors", COORDINATOR, EVERY_PARTY, Public("whose vectors arrived"), Names()),
                release("consent", EVERY_PARTY, COORDINATOR, Public("a signature"), Blob(64)),
                release("consents", COORDINATOR, EVERY_PARTY, Public("signatures"), Each(Blob(64))),
                release(
                    "opening",
                    EVERY_PARTY,
                    COORDINATOR,
                    Public("a share of the self mask of each survivor, of the will of each that was lost"),
                    opening,
                ),
            ),
            adversary=f"an honest-but-curious coordinator with up to {who.colluders} of {who.size} parties",
        )

    # Set-up.

    @step(gives=("key",))
    def advertise(self, site: Site) -> dict[str, Any]:
        key = site.run_key().public.sealing()
        return {"key": {"key": key, "signature": site.sign("sealing key", site.party, key)}}

    @step()
    def deal(self, site: Site, keys: dict[str, Any]) -> None:
        who = site.consortium
        near = site.neighbours()
        if not set(keys) <= set(near):
            raise Refused("keys of strangers", code="sum")
        for party, signed in keys.items():
            site.verify(party, signed["signature"], "sealing key", party, signed["key"])
        root = site.secret()
        site.keep("sum.root", root)
        place = {party: number + 1 for number, party in enumerate(who.parties)}
        holders = [*near, site.party]

        def split(kind: str, label: str) -> dict[int, bytes]:
            points = [place[party] for party in holders]
            return shamir.split(site.seed(root, kind, label), degree_of(who).threshold, points)

        secrets = {kind: {label: split(kind, label) for label in site.sums()} for kind in ("self", "will")}
        for party in holders:
            value: dict[str, Any] = {
                kind: {label: shares[place[party]] for label, shares in of.items()} for kind, of in secrets.items()
            }
            if party == site.party:
                site.post("shares", value)
            elif party in keys:
                key = PublicIdentity.from_sealing(keys[party]["key"])
                if site.party < party:
                    seed = site.seed(root, "pair", party)
                    value["seed"] = key.seal(seed, site.context("pair seed", site.party, party))
                site.send(party, "shares", value, key)

    @step(gives=("wills",))
    def meet(self, site: Site, dealers: list[str]) -> dict[str, Any]:
        received = site.received("shares", dealers)
        if not set(dealers) <= set(site.neighbours()) or set(dealers) != set(received):
            raise Refused("not every dealer's shares arrived", code="sum")
        root, own = site.kept("sum.root"), site.run_key()
        if root is None:
            raise Refused("a party meets after it dealt", code="sum")
        seeds = {}
        for party in dealers:
            if site.party < party:
                seeds[party] = site.seed(root, "pair", party)
            else:
                seeds[party] = own.open(received[party]["seed"], site.context("pair seed", party, site.party))
        site.keep("sum.seeds", seeds)
        wills = {}
        for label in site.sums():
            will = {party: site.seed(seed, "mask", label) for party, seed in seeds.items()}
            context = site.context("will", label, site.party)
            wills[label] = lock(site.seed(root, "will", label), encode(will), context)
        return {"wills": wills}

    # Per sum.

    @step(per_sum=True, gives=("masked",))
    def mask(self, site: Site, members: list[str]) -> dict[str, Any]:
        label, seeds = site.label, site.kept("sum.seeds", {})
        vector, present = site.kept(f"out:{label}"), set(members)
        if vector is None or site.party not in present or not present & set(site.neighbours()) <= set(seeds):
            raise Refused("the members of a sum are parties that met, with a contribution each", code="sum")
        if len(members) < site.consortium.survivors:
            raise Refused("too few members", code="sum")
        release = site.release(label.rpartition("/")[0])
        total = to_words(vector, word(release, site.consortium))
        prg.add(total, site.seed(site.kept("sum.root"), "self", label))
        for party, seed in seeds.items():
            if party in present:
                (prg.add if site.party < party else prg.subtract)(total, site.seed(seed, "mask", label))
        site.keep(f"sum.members/{label}", sorted(members))
        return {"masked": total}

    @step(per_sum=True, gives=("consent",))
    def agree(self, site: Site, survivors: list[str]) -> dict[str, Any]:
        members = site.kept(f"sum.members/{site.label}", [])
        if not set(survivors) <= set(members) or len(survivors) < site.consortium.survivors:
            raise Refused("too few survivors, or some that were no members", code="sum")
        site.keep(f"sum.list/{site.label}", sorted(survivors))
        return {"consent": site.sign("survivors", site.label, _digest(members, sorted(survivors)))}

    @step(per_sum=True, gives=("opening",))
    def unmask(self, site: Site, consents: dict[str, bytes]) -> dict[str, Any]:
        label = site.label
        survivors, members = site.kept(f"sum.list/{label}"), site.kept(f"sum.members/{label}")
        holders = [*site.neighbours(), site.party]
        if (
            survivors is None
            or not set(consents) <= set(survivors) & set(holders)
            or len(consents) < degree_of(site.consortium).threshold
        ):
            raise Refused("too few survivors consented to the list", code="sum")
        agreed = _digest(members, survivors)
        for party, signature in consents.items():
            site.verify(party, signature, "survivors", label, agreed)
        alive, known = set(survivors), set(members)
        held = site.received("shares", [party for party in holders if party in known])
        return {
            "opening": {
                "self": {party: held[party]["self"][label] for party in held if party in alive},
                "will": {party: held[party]["will"][label] for party in held if party not in alive},
            }
        }

    # The coordinator's side.

    def open(self, parties: Parties, release: Release, index: int) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """The sum of a contributed release, and over whose contributions."""
        who, label, view = parties.consortium, f"{release.name}/{index}", parties.under("sum")
        near = neighbours(who, parties.study, parties.run)
        threshold = degree_of(who).threshold
        # In the complete graph so many suffice; in a ring every neighbourhood needs its own.
        need = threshold if who.size <= COMPLETE else who.survivors
        wills = self._set_up(parties, view, near)
        members = sorted(party for party in wills if party in set(parties.alive))
        masked = view.ask("mask", members=members, to=members, label=label, need=who.survivors)
        survivors = sorted(masked)
        agreed = view.ask("agree", survivors=survivors, to=survivors, label=label, need=need)
        consents = {party: values["consent"] for party, values in agreed.items()}
        each = {
            party: {"consents": {p: consents[p] for p in (*near[party], party) if p in consents}} for party in consents
        }
        opened = view.ask("unmask", each=each, label=label, need=need)
        place = {party: number + 1 for number, party in enumerate(who.parties)}

        def join(kind: str, party: str) -> bytes:
            givers = [p for p in (*near[party], party) if p in opened][:threshold]
            if len(givers) < threshold:
                raise SiteLost(f"{label}: too few neighbours of {party} are left to open the sum")
            return shamir.join({place[giver]: opened[giver]["opening"][kind][party] for giver in givers})

        dtype = word(release, who)
        total = np.zeros(release.shape, dtype)
        for party, values in masked.items():
            if values["masked"].shape != release.shape or values["masked"].dtype.str != dtype:
                raise Malformed(f"{party} sent a masked vector of another form than {label} declares", code="form")
            total += values["masked"]
        for party in survivors:
            prg.subtract(total, join("self", party))
        alive = set(survivors)
        for lost in sorted(set(members) - alive):
            context = encode([parties.study, parties.run, "will", label, lost])
            seeds = decode(unlock(join("will", lost), wills[lost][label], context))
            for party in near[lost]:
                if party in alive:
                    (prg.subtract if party < lost else prg.add)(total, seeds[party])
        return to_units(total) >> np.int64(64 - release.ring), tuple(survivors)

    def _set_up(self, parties: Parties, view: Parties, near: dict[str, tuple[str, ...]]) -> dict[str, Any]:
        """Once per run, for all of its sums: the wills of the parties that met."""
        if "sum" not in parties.memo:
            least = parties.consortium.survivors
            signed = {party: values["key"] for party, values in view.ask("advertise", need=least).items()}
            keys = {party: {"keys": {p: signed[p] for p in near[party] if p in signed}} for party in signed}
            dealt = view.ask("deal", each=keys, need=least)
            each = {party: {"dealers": [p for p in near[party] if p in dealt]} for party in dealt}
            met = view.ask("meet", each=each, need=least)
            parties.memo["sum"] = {party: values["wills"] for party, values in met.items()}
        wills: dict[str, Any] = parties.memo["sum"]
        return wills


class _Words(Array):
    """A masked vector: 32- or 64-bit words, of the shape of the release that the ask's label names."""

    def __init__(self) -> None:
        super().__init__(shape=None)

    def fits(self, value: Any, dims: Any, who: Consortium) -> bool:
        return isinstance(value, np.ndarray) and value.dtype.str in ("<u4", "<u8")
