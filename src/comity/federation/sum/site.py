"""Secure sum of integer vectors with two kinds of masks (after Bonawitz et al. 2017, Bell et al. 2020).

    set-up, once per circle advertise  each party chooses its holders, by its own coins
                            deal       it seals to each holder a pair seed and Shamir shares of its secrets
                            meet       it opens what was dealt to it and leaves a *will* per sum
                            enlist     it signs the one list of members
    per sum                 mask       against its holders' signatures of that list: vector + self mask ± pair masks
                            agree      every survivor signs the one list of survivors
                            unmask     against enough signatures, shares of self masks, or of wills of the lost

Adversary    a coordinator that looks at everything, with up to `colluders` parties; it may also lie about who dropped
             out and show different lists to different parties (`comity.crypto.share_holders` says why that gains
             nothing).
Learned      coordinator: the sum over the survivors. Parties: who took part.
Assumes      AES as a pseudorandom permutation, HPKE (ML-KEM-768 + X25519) and Ed25519 under the pinned keys; colluders
             that were fixed before the parties chose their holders.

A will is what a lost party leaves behind: its pair seeds of that one sum, locked under a key that is Shamir-shared. For
one party and one sum, a site gives out a share of the self mask or of the will's key, never both; seeds, self masks and
wills of different sums are independent, so the rule need not reach across sums. The threshold is so high that shares of
both can't be collected by showing different lists to different parties. The lists are the answers to `sum.enlist[i]`
and `sum.agree[release/i]`, of which there is one ever; a party goes along with a list only if a quorum of its own
holders stand on it and signed it, so that it never masks for a list that leaves it alone, and never opens one that
does. Seeds and shares are sealed to keys that are deleted with the run, so that pinned keys that are stolen later open
no recorded masks. These are the steps of the sites; the coordinator's side is `federation.sum.coordinator`.

The parties of one source are a *circle*. Each circle of a run has a set-up of its own, in which no other party counts:
neither as a holder nor as one of the survivors whose noise is relied on (`federation.owner.sum_site`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from comity.crypto import masks, shamir
from comity.crypto.sealing import SEALING_BYTES, lock
from comity.crypto.share_holders import draw_holders
from comity.errors import Refused
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public, Sealed
from comity.federation.declare.release import Array, Blob, Each, Fields, Form, Names
from comity.federation.messages import rolls
from comity.federation.messages.codec import encode
from comity.federation.part import Part
from comity.federation.step import step
from comity.federation.sum.terms import degree_of, digest_of, joined, seeded_by, to_words, word

if TYPE_CHECKING:
    from comity.federation.owner.site import Site
    from comity.federation.owner.sum_site import SumSite

_SHARE = Blob(shamir.SHARE_BYTES)
_SHARES = Fields({"seed": Blob(32), "self": Each(_SHARE, "sums"), "will": Each(_SHARE, "sums")}, optional=("seed",))
_SIGNATURE = Blob(64)


class SecureSum(Part):
    name = "sum"

    def declare(self, who: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        key = Fields({"key": Blob(SEALING_BYTES), "signature": _SIGNATURE})
        wills = Each(Blob(64 + 600 * who.size), "sums")
        opening = Fields({"self": Each(_SHARE), "will": Each(_SHARE)})
        return Declaration(
            (
                release("holders", EVERY_PARTY, COORDINATOR, Public("who is to hold its shares"), Names()),
                release("keys", COORDINATOR, EVERY_PARTY, Public("the sealing keys of its holders"), Each(key)),
                release("shares", EVERY_PARTY, EVERY_PARTY, Sealed("a pair seed and one share per secret"), _SHARES),
                release("dealers", COORDINATOR, EVERY_PARTY, Public("who dealt to it"), Names()),
                release(
                    "wills", EVERY_PARTY, COORDINATOR, Public("pair seeds, locked under keys that are shared"), wills
                ),
                release("unserved", EVERY_PARTY, COORDINATOR, Public("dealers whose shares are none"), Names()),
                release("members", COORDINATOR, EVERY_PARTY, Public("who takes part"), Names()),
                release("enlisted", EVERY_PARTY, COORDINATOR, Public("a signature"), _SIGNATURE),
                release("roll", COORDINATOR, EVERY_PARTY, Public("signatures of its holders"), Each(_SIGNATURE)),
                release("masked", EVERY_PARTY, COORDINATOR, Public("uniform until unmasked"), _Words()),
                release("survivors", COORDINATOR, EVERY_PARTY, Public("whose vectors arrived"), Names()),
                release("consent", EVERY_PARTY, COORDINATOR, Public("a signature"), _SIGNATURE),
                release("consents", COORDINATOR, EVERY_PARTY, Public("signatures of its holders"), Each(_SIGNATURE)),
                release(
                    "opening",
                    EVERY_PARTY,
                    COORDINATOR,
                    Public("a share of the self mask of each survivor, of the will of each that was lost"),
                    opening,
                ),
            ),
            adversary=f"a coordinator with up to {who.colluders} of {who.size} parties",
        )

    # Set-up.

    @step(per_circle=True, gives=("holders",))
    def advertise(self, site: Site) -> dict[str, Any]:
        who = site.consortium
        holders = list(draw_holders(who.parties, site.party, degree_of(who).degree, site.secret()))
        site.keep("sum.holders", holders)
        return {"holders": holders}

    @step(per_circle=True)
    def deal(self, site: Site, keys: dict[str, Any]) -> None:
        holders = _holders(site)
        if not set(keys) <= set(holders) - {site.party}:
            raise Refused("keys of strangers", code="sum")
        if len(keys) + 1 < degree_of(site.consortium).quorum:
            raise Refused("too few of the holders that this party chose are there", code="sum")
        opened_by = {party: site.checked_key(party, signed) for party, signed in keys.items()}
        root = site.secret()
        site.keep("sum.root", root)
        points = range(1, len(holders) + 1)
        threshold = degree_of(site.consortium).threshold
        shared = {
            kind: {label: shamir.split(site.seed(root, kind, label), threshold, points) for label in site.sums()}
            for kind in ("self", "will")
        }
        seeded = set(seeded_by(site.consortium, site.party, holders[:-1]))
        for point, party in zip(points, holders):
            value: dict[str, Any] = {
                kind: {label: shares[point] for label, shares in of.items()} for kind, of in shared.items()
            }
            if party == site.party:
                site.keep("sum.own", value)
            elif party in keys:
                if party in seeded:
                    value["seed"] = site.seed(root, "pair", party)
                site.send(party, "shares", value, opened_by[party])
        site.keep("sum.dealt", sorted(keys))

    @step(per_circle=True, gives=("wills", "unserved"))
    def meet(self, site: Site, dealers: list[str]) -> dict[str, Any]:
        """What was dealt is opened and kept; a dealer whose letter is missing or is none of the right form is named."""
        root = site.kept("sum.root")
        if root is None or site.party in dealers:
            raise Refused("a party meets after it dealt, and others", code="sum")
        received = site.take("shares", dealers)
        held = {party: value for party, value in received.items() if _is_due(site, party, value)}
        site.keep("sum.held", {**held, site.party: site.kept("sum.own")})
        holders, dealt = _holders(site)[:-1], set(site.kept("sum.dealt"))
        given = {party: site.seed(root, "pair", party) for party in seeded_by(site.consortium, site.party, holders)}
        seeds = {
            "given": {party: seed for party, seed in given.items() if party in dealt},
            "taken": {party: value["seed"] for party, value in held.items() if "seed" in value},
        }
        site.keep("sum.seeds", seeds)
        wills = {}
        for label in site.sums():
            will = {
                way: {party: site.seed(seed, "mask", label) for party, seed in of.items()} for way, of in seeds.items()
            }
            context = site.context("will", label, site.party)
            wills[label] = lock(site.seed(root, "will", label), encode(will), context)
        return {"wills": wills, "unserved": [party for party in dealers if party not in held]}

    @step(per_circle=True, gives=("enlisted",))
    def enlist(self, site: Site, members: list[str]) -> dict[str, Any]:
        # One that is not of the circle adds no noise: it may not make up the number.
        if not site.consortium.knows_all(members):
            raise Refused("the members of a sum are parties of its source", code="sum")
        if site.kept("sum.seeds") is None or len(members) < site.consortium.survivors:
            raise Refused("the members of a run are enough parties that met", code="sum")
        named = sorted(members)
        company, listed = self._require_company(site, members), digest_of(named)
        site.keep("sum.members", rolls.roll(named))
        # What later steps need of the list, so that they need not read all of it.
        site.keep("sum.enlisted", {"digest": listed, "company": company})
        present, seeds = set(members), site.kept("sum.seeds")
        site.keep("sum.seeds", {way: {p: seed for p, seed in of.items() if p in present} for way, of in seeds.items()})
        return {"enlisted": site.sign("members", site.label, listed)}

    # Per sum.

    @step(per_sum=True, gives=("masked",))
    def mask(self, site: SumSite, roll: dict[str, bytes]) -> dict[str, Any]:
        """`roll` are signatures of the list of members by this party's holders; needed for the first sum alone."""
        label, enlisted, vector = site.label, site.kept("sum.enlisted"), site.kept(f"out:{site.label}")
        if enlisted is None or vector is None:
            raise Refused("the members of a sum are parties that were enlisted, with a contribution each", code="sum")
        if not site.kept("sum.seated", False):
            self._require_signed(site, roll, enlisted["company"], "members", site.circle, enlisted["digest"])
            site.keep("sum.seated", True)
        release, seeds = site.release(label.rpartition("/")[0]), site.kept("sum.seeds")
        total = to_words(vector, word(release, site.consortium))
        masks.add(total, site.seed(site.kept("sum.root"), "self", label))
        for way, apply in (("given", masks.add), ("taken", masks.subtract)):
            for seed in seeds[way].values():
                apply(total, site.seed(seed, "mask", label))
        site.keep(f"sum.masked/{label}", True)
        return {"masked": total}

    @step(per_sum=True, gives=("consent",))
    def agree(self, site: Site, survivors: list[str]) -> dict[str, Any]:
        alive, listed, enlisted = set(survivors), digest_of(sorted(survivors)), site.kept("sum.enlisted")
        # The same digest is the same list: nobody was lost, and there is no need to read it.
        whole = enlisted is not None and enlisted["digest"] == listed
        members = alive if whole else set(site.kept("sum.members", []))
        lost = members - alive
        if (
            not site.kept(f"sum.masked/{site.label}", False)
            or not alive <= members
            or len(survivors) < site.consortium.survivors
        ):
            raise Refused("too few survivors, or some that were no members", code="sum")
        company = self._require_company(site, survivors)
        agreed, held = joined(enlisted["digest"], listed), site.kept("sum.held")
        site.keep(
            f"sum.list/{site.label}",
            {
                "digest": agreed,
                "company": company,
                "self": [party for party in held if party in alive],
                "will": [party for party in held if party in lost],
            },
        )
        return {"consent": site.sign("survivors", site.label, agreed)}

    @step(per_sum=True, gives=("opening",))
    def unmask(self, site: Site, consents: dict[str, bytes]) -> dict[str, Any]:
        label, agreed = site.label, site.kept(f"sum.list/{site.label}")
        if agreed is None:
            raise Refused("a party opens the list that it agreed to", code="sum")
        self._require_signed(site, consents, agreed["company"], "survivors", label, agreed["digest"])
        held = site.kept("sum.held")
        return {"opening": {kind: {p: held[p][kind][label] for p in agreed[kind]} for kind in ("self", "will")}}

    def _require_company(self, site: Site, names: Iterable[str]) -> list[str]:
        """The holders of this party that are on a list. One that it goes along with has itself and a quorum of them on
        it: with fewer, its vector could be covered by its self mask alone, which the others then open."""
        listed = set(names)
        company = [holder for holder in _holders(site) if holder in listed]
        if site.party not in listed or len(company) < degree_of(site.consortium).quorum:
            raise Refused("the list lacks this party or too many of its holders", code="sum")
        return company

    def _require_signed(self, site: Site, signatures: Mapping[str, bytes], company: list[str], *what: Any) -> None:
        """A quorum of this party's holders that are on the list signed the same one as it did."""
        quorum = degree_of(site.consortium).quorum
        if not set(signatures) <= set(company) or len(signatures) < quorum:
            raise Refused("too few of this party's holders signed the list", code="sum")
        for party, signature in signatures.items():
            site.verify(party, signature, *what)


def _holders(site: Site) -> list[str]:
    """Those that hold shares of this party's secrets, itself last: the order of the points of its shares."""
    chosen = site.kept("sum.holders")
    if chosen is None:
        raise Refused("a party chooses its holders first", code="sum")
    return [*chosen, site.party]


def _is_due(site: Site, dealer: str, value: Mapping[str, Any]) -> bool:
    """Whether this is what a dealer owes its holder: a share of each secret of each sum, and where it is due a seed."""
    seeded, labels = bool(seeded_by(site.consortium, dealer, [site.party])), set(site.sums())
    return ("seed" in value) == seeded and set(value["self"]) == set(value["will"]) == labels


class _Words(Array):
    """A masked vector: 32- or 64-bit words, of the shape of the release that the ask's label names."""

    def __init__(self) -> None:
        super().__init__(shape=None)

    def fits(self, value: Any, dims: Any, who: Consortium) -> bool:
        return isinstance(value, np.ndarray) and value.dtype.str in ("<u4", "<u8")
