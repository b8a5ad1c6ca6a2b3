"""A site as the steps of a run's lifecycle see it (`federation.lifecycle`). No step of a method can do any of this."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import PublicIdentity
from comity.errors import Malformed, Refused
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages import heads as ledger_heads
from comity.federation.messages.codec import encode
from comity.federation.messages.letters import open_value
from comity.federation.messages.received import OWN, SIGNATURES, YOURS, NamedValues, check_received
from comity.federation.messages.signatures import Signatures, SignaturesForm, check_signed_value
from comity.federation.owner.mailbox import COORDINATOR_KEY, KEY_OF, SECRET
from comity.federation.owner.site import HOLDOUT_KEY, Site

if TYPE_CHECKING:
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")


class LifecycleSite:
    def __init__(self, host: Host, site: Site) -> None:
        self._host = host
        self._site = site
        self._consortium = site.consortium
        self._effects = site.effects

    # The beginning.

    def dry_run(self) -> None:
        """Refuse if this run could not begin here. It reserves and promises nothing."""
        self._host.permit_run(self._site.run)
        self._effects.dry_run = True

    def reserve(self) -> None:
        self._host.permit_run(self._site.run)
        self._effects.reserve = True
        if self._consortium.evaluation is not None and self._site.kept(HOLDOUT_KEY) is None:
            # Kept with the run: a resumed run has the same held-out records, the next run has others.
            self._site.keep(HOLDOUT_KEY, self._host.holdout_key())

    def new_run_key(self, coordinator_key: bytes) -> dict[str, bytes]:
        """Make a key for this run, signed by the pinned one."""
        PublicIdentity.from_sealing(coordinator_key)
        site = self._site
        site.keep(SECRET, site.secret())
        site.keep(COORDINATOR_KEY, coordinator_key)
        key = site.mailbox.run_key().public.sealing()
        return {"key": key, "signature": site.sign("run key", site.party, key)}

    def keep_keys(self, keys: Mapping[str, Mapping[str, bytes]]) -> None:
        for party, signed in keys.items():
            self._site.keep(f"{KEY_OF}{party}", signed)

    def remembered(self) -> dict[str, list[ledger_heads.Head]]:
        """The heads that this site keeps of the ledgers of the parties that it watches."""
        roster, known = self._consortium.roster, self._host.store.all_remembered()
        watched = ledger_heads.watched_parties(self._consortium, self._site.party)
        pinned = ((party, roster[party].sign) for party in watched if party in roster)
        return {party: known[party, key] for party, key in pinned if (party, key) in known}

    def remember(self, shown: Mapping[str, list[ledger_heads.Head]]) -> None:
        """Keep the heads of parties that this site watches, if these signed them."""
        watched = set(ledger_heads.watched_parties(self._consortium, self._site.party))
        for party, found in shown.items():
            if party in watched:
                identity = self._host.identity_of(party)
                self._effects.heads[party, identity.sign] = ledger_heads.filter_authentic(identity, party, found)

    # The end.

    def receive(self, released: Mapping[str, Any], box: bytes, signed: Signatures) -> None:
        """Keep what the end of a run brings. Each value must be declared to this party, have its declared form, and be
        signed by the coordinator, so that the owner can prove it to others. Valid signatures on values that came
        earlier are kept too."""
        site, consortium = self._site, self._consortium
        alone = open_value(box, site.mailbox.run_key(), site.mailbox.heads(COORDINATOR)(YOURS)) if box else {}
        if not NamedValues().fits(alone, site.dims, consortium) or set(alone) & set(released):
            raise Malformed("the values that a run releases to a party have names, each once", code="form")
        own = alone.pop(SIGNATURES, {})
        if not SignaturesForm().fits(own, site.dims, consortium):
            raise Malformed("signatures on what a run releases are listed by name and ask", code="form")
        for name, value in {**released, **alone}.items():
            release = self._host.agreement.declaration[name]
            check_received(release, value, site.party, consortium, site.dims)
            raw = encode(value)
            before = self._host.store.delivered(site.run, name).get(name, {})
            if release.times == 1 and any(earlier != raw for earlier in before.values()):
                raise Refused(f"{name} was released with another value before", code="delivered", key=name)
            self._effects.delivered[name, str(site.path)] = raw
        self._keep_signatures({**signed, **own})

    def _keep_signatures(self, signed: Signatures) -> None:
        site = self._site
        now = {(name, path): raw for (name, path), raw in self._effects.delivered.items() if path != OWN}
        before = self._host.store.delivered(site.run)
        earlier = {(name, path): raw for name, by in before.items() for path, raw in by.items() if path != OWN}
        coordinator, valid = self._host.identity_of(COORDINATOR), dict[str, dict[str, bytes]]()
        for (name, path), raw in {**earlier, **now}.items():
            signature = signed.get(name, {}).get(path, b"")
            try:
                check_signed_value(coordinator, signature, self._host.agreement.study, site.run, name, path, raw)
            except Malformed:
                if (name, path) in now:
                    raise Malformed(
                        f"the coordinator did not sign {name} as released by this run", code="signature", key=name
                    ) from None
                # Steps have used the value: it stays, without proof for others.
                log.warning("%s: %s of %s came without a valid signature", site.party, name, path)
                continue
            valid.setdefault(name, {})[path] = signature
        self._effects.delivered[SIGNATURES, str(site.path)] = encode(valid)

    def close(self) -> None:
        self._effects.close = True

    def abandon(self) -> None:
        self._effects.abandon = True
