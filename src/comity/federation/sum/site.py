"""What a site does in a secure sum: the steps, from picking share holders to giving out shares, and the masks on what
it contributes. The package's docstring has the protocol, `proof.md` its security argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import masks, shamir
from comity.crypto.sealing import SEALING_BYTES, lock
from comity.crypto.share_holders import draw_holders
from comity.errors import Refused
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public, Sealed
from comity.federation.declare.release import Blob, Each, Fields, Form, Names
from comity.federation.messages.codec import encode, encode_names
from comity.federation.part import Part, step
from comity.federation.sum.terms import (
    Masked,
    degree_of,
    digest_of,
    is_complete_graph,
    join_digests,
    seeded_by,
    to_words,
    word_type,
)

if TYPE_CHECKING:
    from comity.federation.owner.site import Site

_SHARE = Blob(shamir.SHARE_BYTES)
_SHARES = Fields(
    {"seed": Blob(32), "self": Each(_SHARE, "sums"), "recovery": Each(_SHARE, "sums")},
    optional=("seed", "self", "recovery"),
)
_SIGNATURE = Blob(64)


class SecureSum(Part):
    name = "sum"

    def declare(self, consortium: Consortium) -> Declaration:
        def release(name: str, source: str, to: str, protection: Public | Sealed, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        key = Fields({"key": Blob(SEALING_BYTES), "signature": _SIGNATURE})
        recovery_seeds = Each(Blob(64 + 600 * consortium.size), "sums")
        opening = Fields({"self": Each(_SHARE), "recovery": Each(_SHARE)})
        return Declaration(
            (
                release("holders", EVERY_PARTY, COORDINATOR, Public("who is to hold its shares"), Names()),
                release("keys", COORDINATOR, EVERY_PARTY, Public("the sealing keys of its holders"), Each(key)),
                release("shares", EVERY_PARTY, EVERY_PARTY, Sealed("a pair seed and one share per secret"), _SHARES),
                release("dealers", COORDINATOR, EVERY_PARTY, Public("who dealt to it"), Names()),
                release(
                    "recovery_seeds",
                    EVERY_PARTY,
                    COORDINATOR,
                    Public("pair seeds, locked under keys that are shared"),
                    recovery_seeds,
                ),
                release("unserved", EVERY_PARTY, COORDINATOR, Public("dealers whose shares are none"), Names()),
                release("members", COORDINATOR, EVERY_PARTY, Public("who takes part"), Names()),
                release("enlisted", EVERY_PARTY, COORDINATOR, Public("a signature"), _SIGNATURE),
                release("roll", COORDINATOR, EVERY_PARTY, Public("signatures of its holders"), Each(_SIGNATURE)),
                release("survivors", COORDINATOR, EVERY_PARTY, Public("whose vectors arrived"), Names()),
                release("consent", EVERY_PARTY, COORDINATOR, Public("a signature"), _SIGNATURE),
                release("consents", COORDINATOR, EVERY_PARTY, Public("signatures of its holders"), Each(_SIGNATURE)),
                release(
                    "opening",
                    EVERY_PARTY,
                    COORDINATOR,
                    Public("a share of the self mask of each survivor, of the recovery key of each that was lost"),
                    opening,
                ),
            ),
            adversary=f"a coordinator with up to {consortium.colluders} of {consortium.size} parties",
        )

    # Set-up, once per group.

    @step(per_sum_group=True, gives=("holders",))
    def advertise(self, site: Site) -> dict[str, Any]:
        consortium = site.consortium
        if is_complete_graph(consortium):
            raise Refused("all parties of this sum hold shares of all: there is nothing to pick", code="sum")
        holders = list(draw_holders(consortium.parties, site.party, degree_of(consortium).degree, site.secret()))
        site.keep("sum.holders", holders)
        return {"holders": holders}

    @step(per_sum_group=True)
    def deal(self, site: Site, keys: dict[str, Any]) -> None:
        consortium, holders = site.consortium, _holders(site)
        if not set(keys) <= set(holders) - {site.party}:
            raise Refused("a party deals to the share holders that it picked", code="sum")
        # Where no party may be missing, each of its pair masks must be there.
        least = degree_of(consortium).quorum if consortium.dropouts else len(holders)
        if len(keys) + 1 < least:
            raise Refused("too few of the share holders that this party picked are there", code="sum")
        opened_by = {party: site.mailbox.check_key(party, signed) for party, signed in keys.items()}
        root = site.secret()
        site.keep("sum.root", root)
        seeded = set(seeded_by(consortium, site.party, holders[:-1]))
        letters = self._split_secrets(site, root, holders) if consortium.dropouts else {party: {} for party in seeded}
        for party, shares in letters.items():
            value = {**shares, "seed": site.seed(root, "pair", party)} if party in seeded else shares
            if party == site.party:
                site.keep("sum.own", value)
            elif party in keys:
                site.send(party, "shares", value, opened_by[party])
        site.keep("sum.dealt", sorted(keys))

    def _split_secrets(self, site: Site, root: bytes, holders: list[str]) -> dict[str, dict[str, Any]]:
        """By holder, its share of each secret of each sum."""
        points, threshold = range(1, len(holders) + 1), degree_of(site.consortium).threshold
        shared = {
            kind: {
                label: shamir.split(site.seed(root, kind, label), threshold, points) for label in site.sum_group.sums
            }
            for kind in ("self", "recovery")
        }
        return {
            party: {kind: {label: shares[point] for label, shares in of.items()} for kind, of in shared.items()}
            for point, party in zip(points, holders)
        }

    @step(per_sum_group=True, gives=("recovery_seeds", "unserved"))
    def meet(self, site: Site, dealers: list[str]) -> dict[str, Any]:
        """Open and keep what was dealt to this party. It names the dealers whose letter is missing or malformed."""
        root, consortium = site.kept("sum.root"), site.consortium
        if root is None or site.party in dealers:
            raise Refused("a party opens shares after it dealt, and not its own", code="sum")
        # Of each pair the first by name deals the seed.
        before = {party for party in consortium.parties if party < site.party}
        if not consortium.dropouts and is_complete_graph(consortium) and set(dealers) != before:
            raise Refused("each party of this sum deals to each other, and none may be missing", code="sum")
        received = site.take("shares", dealers)
        held = {party: value for party, value in received.items() if _is_complete(site, party, value)}
        holders, dealt = _holders(site)[:-1], set(site.kept("sum.dealt"))
        given = {party: site.seed(root, "pair", party) for party in seeded_by(consortium, site.party, holders)}
        seeds = {
            "given": {party: seed for party, seed in given.items() if party in dealt},
            "taken": {party: value["seed"] for party, value in held.items() if "seed" in value},
        }
        unserved = [party for party in dealers if party not in held]
        if not consortium.dropouts:
            if not unserved:
                # All parties of the group are members of each of its sums: there is no list to sign.
                site.keep("sum.seeds", seeds)
                site.keep("sum.seated", True)
            return {"recovery_seeds": {}, "unserved": unserved}
        site.keep("sum.held", {**held, site.party: site.kept("sum.own")})
        site.keep("sum.seeds", seeds)
        recovery_seeds = {}
        for label in site.sum_group.sums:
            pair_seeds = {
                way: {party: site.seed(seed, "mask", label) for party, seed in of.items()} for way, of in seeds.items()
            }
            context = site.context("recovery", label, site.party)
            recovery_seeds[label] = lock(site.seed(root, "recovery", label), encode(pair_seeds), context)
        return {"recovery_seeds": recovery_seeds, "unserved": unserved}

    # What follows is for sums that tolerate drop-outs.

    @step(per_sum_group=True, gives=("enlisted",))
    def enlist(self, site: Site, members: list[str]) -> dict[str, Any]:
        _require_dropouts(site)
        # A party outside of the group adds no noise: it must not make up the number of survivors.
        if not site.consortium.knows_all(members):
            raise Refused("the members of a sum are parties of its source", code="sum")
        if site.kept("sum.seeds") is None or len(members) < site.consortium.survivors:
            raise Refused("the list of members is too short, or this party holds no shares yet", code="sum")
        seeds, named = site.kept("sum.seeds"), sorted(members)
        present = set(members)
        if is_complete_graph(site.consortium) and not present <= {site.party, *seeds["given"], *seeds["taken"]}:
            # Without a pair mask with each of them, the others could be opened without the noise of some members.
            raise Refused("the list of members names a party that has no pair mask with this one", code="sum")
        present_holders, listed = self._require_holders(site, members), digest_of(named)
        site.keep("sum.members", encode_names(named))
        # What later steps need of the list, without reading all of it.
        site.keep("sum.enlisted", {"digest": listed, "company": present_holders})
        site.keep("sum.seeds", {way: {p: seed for p, seed in of.items() if p in present} for way, of in seeds.items()})
        return {"enlisted": site.sign("members", site.label, listed)}

    @step(per_sum_group=True)
    def seat(self, site: Site, roll: dict[str, bytes]) -> None:
        """Check its holders' signatures on the list of members. From now on this party masks what it contributes."""
        enlisted = site.kept("sum.enlisted")
        if enlisted is None:
            raise Refused("a party masks after it signed the list of members", code="sum")
        self._require_signed(site, roll, enlisted["company"], "members", site.label, enlisted["digest"])
        site.keep("sum.seated", True)

    # For each sum.

    @step(per_sum=True, gives=("consent",))
    def agree(self, site: Site, survivors: list[str]) -> dict[str, Any]:
        alive, listed, enlisted = set(survivors), digest_of(sorted(survivors)), site.kept("sum.enlisted")
        # The same digest means the same list: no party was lost, and the list need not be read.
        whole = enlisted is not None and enlisted["digest"] == listed
        members = alive if whole else set(site.kept("sum.members", []))
        lost = members - alive
        if site.kept(f"sum.list/{site.label}") is not None:
            raise Refused("this party has opened the sum of all members", code="sum")
        if (
            not site.kept(f"sum.masked/{site.label}", False)
            or not alive <= members
            or len(survivors) < site.consortium.survivors
        ):
            raise Refused("there are too few survivors, or some that are no members", code="sum")
        present_holders = self._require_holders(site, survivors)
        agreed, held = join_digests(enlisted["digest"], listed), site.kept("sum.held")
        site.keep(
            f"sum.list/{site.label}",
            {
                "digest": agreed,
                "company": present_holders,
                "self": [party for party in held if party in alive],
                "recovery": [party for party in held if party in lost],
            },
        )
        return {"consent": site.sign("survivors", site.label, agreed)}

    @step(per_sum=True, gives=("opening",))
    def unmask(self, site: Site, consents: dict[str, bytes]) -> dict[str, Any]:
        """Give out shares: for the list of survivors that this party and a quorum of its holders signed, or, without
        signatures, for all members."""
        label, agreed = site.label, site.kept(f"sum.list/{site.label}")
        if agreed is None:
            agreed = self._list_all_members(site, consents)
        else:
            self._require_signed(site, consents, agreed["company"], "survivors", label, agreed["digest"])
        held = site.kept("sum.held")
        return {"opening": {kind: {p: held[p][kind][label] for p in agreed[kind]} for kind in ("self", "recovery")}}

    def _list_all_members(self, site: Site, consents: dict[str, bytes]) -> dict[str, Any]:
        """The list of survivors where no member was lost. It is this party's only list of this sum: it signs no other
        one afterwards. Only where all hold shares of all is that enough (proof.md, 4)."""
        masked, enlisted = site.kept(f"sum.masked/{site.label}", False), site.kept("sum.enlisted")
        if consents or not masked or enlisted is None or not is_complete_graph(site.consortium):
            raise Refused("a party opens only for a list of survivors that it signed", code="sum")
        members = set(site.kept("sum.members"))
        held = [party for party in site.kept("sum.held") if party in members]
        listed = {"digest": enlisted["digest"], "company": [], "self": held, "recovery": []}
        site.keep(f"sum.list/{site.label}", listed)
        return listed

    def _require_holders(self, site: Site, names: Iterable[str]) -> list[str]:
        """This party's holders on a list. Refuses a list without this party, or without a quorum of its holders: with
        fewer, its self mask alone could cover its vector, and the others would open it."""
        listed, served = set(names), {site.party, *site.kept("sum.dealt", [])}
        present = [holder for holder in _holders(site) if holder in listed and holder in served]
        if site.party not in listed or len(present) < degree_of(site.consortium).quorum:
            raise Refused("the list lacks this party or too many of its share holders", code="sum")
        return present

    def _require_signed(self, site: Site, signatures: Mapping[str, bytes], holders: list[str], *what: Any) -> None:
        """Refuse unless a quorum of this party's `holders` on a list signed the same list as this party did."""
        quorum = degree_of(site.consortium).quorum
        if not set(signatures) <= set(holders) or len(signatures) < quorum:
            raise Refused("too few of this party's share holders signed the list", code="sum")
        for party, signature in signatures.items():
            site.verify(party, signature, *what)


def mask_contribution(
    units: NDArray[np.int64],
    release: Release,
    label: str,
    consortium: Consortium,
    kept: Callable[[str], Any],
    seed: Callable[..., bytes],
) -> Masked:
    """A contribution with its masks of one sum, of the parties of `consortium`. `kept` reads what the set-up of their
    group left here."""
    total, seeds = to_words(units, word_type(release, consortium)), kept("sum.seeds")
    if consortium.dropouts:
        masks.add(total, seed(kept("sum.root"), "self", label))
    for way, apply in (("given", masks.add), ("taken", masks.subtract)):
        for one in seeds[way].values():
            apply(total, seed(one, "mask", label))
    return total


def _require_dropouts(site: Site) -> None:
    if not site.consortium.dropouts:
        raise Refused("this sum is of all its parties: there is no list to sign", code="sum")


def _holders(site: Site) -> list[str]:
    """The share holders of this party, itself last: in the order of the points of its shares."""
    if is_complete_graph(site.consortium):
        return [*(party for party in site.consortium.parties if party != site.party), site.party]
    chosen = site.kept("sum.holders")
    if chosen is None:
        raise Refused("a party picks its share holders first", code="sum")
    return [*chosen, site.party]


def _is_complete(site: Site, dealer: str, value: Mapping[str, Any]) -> bool:
    """Whether a dealer's letter holds what its holder needs: a pair seed where the two make a pair mask and, where
    parties may drop out, a share of each secret of each sum."""
    seeded = bool(seeded_by(site.consortium, dealer, [site.party]))
    labels = set(site.sum_group.sums) if site.consortium.dropouts else set()
    return ("seed" in value) == seeded and set(value.get("self", ())) == set(value.get("recovery", ())) == labels
