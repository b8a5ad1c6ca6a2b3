"""Secure sum of integer vectors with two kinds of masks (after Bonawitz et al. 2017).

    set-up, once per run    deal     each party seals to each other one a pair seed and Shamir shares of its secrets
                            meet     each party opens them and leaves a *will* per sum
    per sum                 mask     vector + self mask ± pair masks leave for the coordinator
                            agree    every survivor signs the one list of survivors
                            unmask   against enough signatures, shares of self masks, or of wills of the lost

Adversary    a coordinator that follows the protocol but looks at everything, with up to `colluders` parties.
Learned      coordinator: the sum over the survivors. Parties: who took part.
Assumes      AES-CTR as a generator, HPKE and Ed25519 under the pinned keys; more than half of the parties plus the
             colluders consent to each list.

A will is what a lost party leaves behind: its pair seeds of that one sum, locked under a key that is Shamir-shared. For
one party and one sum, a site gives out a share of the self mask or of the will's key, never both; seeds, self masks and
wills of different sums are independent, so the rule need not reach across sums, and a party that was lost in one may
come back in the next. The list of survivors is the answer to `sum.agree[release/i]`, of which there is one ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import prg, shamir
from comity.crypto.sealed import lock, unlock
from comity.errors import Refused
from comity.federation.codec import decode, encode
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Blob, Each, Fields, Names
from comity.federation.parties import Parties
from comity.federation.protection import Public, Sealed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site

_SHARE = Blob(shamir.SHARE_BYTES)


def threshold(who: Consortium) -> int:
    """How many must consent to a list and give shares: two lists would need an honest party to consent twice."""
    needed = (who.size + who.colluders) // 2 + 1
    if needed > who.survivors:
        raise Refused(
            f"a secure sum of {who.size} parties with {who.colluders} colluders needs {needed} to finish, "
            f"privacy.dropouts = {who.dropouts} leaves {who.survivors}; lower it to {who.size - needed} at most"
        )
    return needed


def points(who: Consortium) -> dict[str, int]:
    return {party: place + 1 for place, party in enumerate(who.parties)}


class SecureSum(Protocol):
    name = "sum"

    def declare(self, who: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Any) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        shares = Fields({"seed": Blob(32), "self": Each(_SHARE, "sums"), "will": Each(_SHARE, "sums")}, ("seed",))
        opening = Fields({"self": Each(_SHARE), "will": Each(_SHARE)})
        return Declaration(
            (
                release("shares", EVERY_PARTY, EVERY_PARTY, Sealed("a pair seed and one share per secret"), shares),
                release("dealers", COORDINATOR, EVERY_PARTY, Public("who dealt"), Names()),
                release(
                    "wills",
                    EVERY_PARTY,
                    COORDINATOR,
                    Public("pair seeds, locked under keys that are shared"),
                    Each(Blob(64 + 300 * who.size), "sums"),
                ),
                release("members", COORDINATOR, EVERY_PARTY, Public("who takes part"), Names()),
                release("masked", EVERY_PARTY, COORDINATOR, Public("uniform until unmasked"), Array(None, "<u8")),
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

    @step()
    def deal(self, site: Site) -> None:
        who, place = site.consortium, points(site.consortium)
        root = site.secret()
        site.keep("sum.root", root)
        needed, sums = threshold(who), site.sums()

        def split(kind: str, label: str) -> dict[int, bytes]:
            return shamir.split(site.seed(root, kind, label), needed, place.values())

        selfs = {label: split("self", label) for label in sums}
        wills = {label: split("will", label) for label in sums}
        for party in who.parties:
            x = place[party]
            value: dict[str, Any] = {
                "self": {label: selfs[label][x] for label in sums},
                "will": {label: wills[label][x] for label in sums},
            }
            if site.party < party:
                value["seed"] = site.seed(root, "pair", party)
            if party == site.party:
                site.keep(f"in:shares/{party}", value)
            else:
                site.send(party, "shares", value)

    @step()
    def meet(self, site: Site, dealers: list[str]) -> dict[str, Any]:
        received = site.received("shares")
        if site.party not in dealers or not set(dealers) <= set(received):
            raise Refused("not every dealer's shares arrived", code="sum")
        root = site.kept("sum.root")
        seeds = {
            party: site.seed(root, "pair", party) if site.party < party else received[party]["seed"]
            for party in dealers
            if party != site.party
        }
        site.keep("sum.seeds", seeds)
        wills = {}
        for label in site.sums():
            will = {party: site.seed(seed, "mask", label) for party, seed in seeds.items()}
            wills[label] = lock(site.seed(root, "will", label), encode(will), site.context("will", label, site.party))
        return {"wills": wills}

    # Per sum.

    @step()
    def mask(self, site: Site, members: list[str]) -> dict[str, Any]:
        label, seeds = site.label, site.kept("sum.seeds", {})
        vector = site.kept(f"out:{label}")
        if vector is None or site.party not in members or not set(members) <= {*seeds, site.party}:
            raise Refused("the members of a sum are parties that met, with a contribution each", code="sum")
        if len(members) < site.consortium.survivors:
            raise Refused("too few members", code="sum")
        total = vector.view("<u8") + prg.expand(site.seed(site.kept("sum.root"), "self", label), vector.shape)
        for party in members:
            if party != site.party:
                pair = prg.expand(site.seed(seeds[party], "mask", label), vector.shape)
                total = total + pair if site.party < party else total - pair
        site.keep(f"sum.members/{label}", sorted(members))
        return {"masked": total}

    @step()
    def agree(self, site: Site, survivors: list[str]) -> dict[str, Any]:
        members = site.kept(f"sum.members/{site.label}", [])
        if not set(survivors) <= set(members) or len(survivors) < site.consortium.survivors:
            raise Refused("too few survivors, or some that were no members", code="sum")
        site.keep(f"sum.list/{site.label}", sorted(survivors))
        return {"consent": site.sign("survivors", site.label, members, sorted(survivors))}

    @step()
    def unmask(self, site: Site, consents: dict[str, bytes]) -> dict[str, Any]:
        label = site.label
        survivors, members = site.kept(f"sum.list/{label}"), site.kept(f"sum.members/{label}")
        if survivors is None or not set(consents) <= set(survivors) or len(consents) < threshold(site.consortium):
            raise Refused("too few survivors consented to the list", code="sum")
        for party, signature in consents.items():
            site.verify(party, signature, "survivors", label, members, survivors)
        held = site.received("shares")
        lost = [party for party in members if party not in survivors]
        return {
            "opening": {
                "self": {party: held[party]["self"][label] for party in survivors},
                "will": {party: held[party]["will"][label] for party in lost},
            }
        }

    # The coordinator's side.

    def open(self, parties: Parties, release: Release, index: int) -> tuple[NDArray[np.int64], int]:
        """The sum of a contributed release, and over how many parties."""
        who, label, view = parties.consortium, f"{release.name}/{index}", parties.under("sum")
        needed, place = threshold(who), points(who)
        if "sum" not in parties.memo:
            dealers = sorted(view.ask("deal", need=who.survivors))
            met = view.ask("meet", dealers=dealers, to=dealers, need=who.survivors)
            parties.memo["sum"] = {party: values["wills"] for party, values in met.items()}
        wills = parties.memo["sum"]
        members = sorted(party for party in wills if party in parties.alive)
        masked = view.ask("mask", members=members, to=members, label=label, need=who.survivors)
        survivors = sorted(masked)
        agreed = view.ask("agree", survivors=survivors, to=survivors, label=label, need=needed)
        consents = {party: values["consent"] for party, values in agreed.items()}
        opened = view.ask("unmask", consents=consents, to=list(consents), label=label, need=needed)
        givers = list(opened)[:needed]

        def join(kind: str, party: str) -> bytes:
            return shamir.join({place[giver]: opened[giver]["opening"][kind][party] for giver in givers})

        total = np.zeros(release.shape, "<u8")
        for values in masked.values():
            if values["masked"].shape != release.shape:
                raise Refused(f"{label}: a masked vector of another shape than declared", code="form")
            total = total + values["masked"]
        for party in survivors:
            total = total - prg.expand(join("self", party), release.shape)
        for lost in sorted(set(members) - set(survivors)):
            context = encode([parties.study, parties.run, "will", label, lost])
            seeds = decode(unlock(join("will", lost), wills[lost][label], context))
            for party in survivors:
                pair = prg.expand(seeds[party], release.shape)
                total = total - pair if party < lost else total + pair
        return total.view("<i8"), len(survivors)
