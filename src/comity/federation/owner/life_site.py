"""A site as the steps of a run's life see it (`federation.lifecycle`). No step of a method may do any of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from comity.crypto.sealing import PublicIdentity
from comity.errors import Malformed, Refused
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages import heads as ledger_heads
from comity.federation.messages.codec import encode
from comity.federation.messages.delivered import OWN, SIGNATURES, YOURS, Named, check_received
from comity.federation.messages.sealed_values import opened_value
from comity.federation.messages.vouched import Signatures, SignaturesForm, check_vouched
from comity.federation.owner.mailbox import COORDINATOR_KEY, KEY_OF, SECRET
from comity.federation.owner.site import PARTS, Site

log = logging.getLogger("comity.site")


class LifeSite(Site):
    # Beginning.

    def look_ahead(self) -> None:
        """Whether this run could begin here, which promises nothing."""
        self._host.permit_run(self._run)
        self.effects.look_ahead = True

    def reserve(self) -> None:
        self._host.permit_run(self._run)
        self.effects.reserve = True
        if self.consortium.evaluation is not None and self.kept(PARTS) is None:
            # Kept with the run: resumed, it has the same parts, and the next one has others.
            self.keep(PARTS, self._host.chance())

    def new_run_key(self, coordinator_key: bytes) -> dict[str, bytes]:
        """A fresh key for this run, signed by the pinned one."""
        PublicIdentity.from_sealing(coordinator_key)
        self.keep(SECRET, self.secret())
        self.keep(COORDINATOR_KEY, coordinator_key)
        key = self.run_key().public.sealing()
        return {"key": key, "signature": self.sign("run key", self.party, key)}

    def keep_keys(self, keys: Mapping[str, Mapping[str, bytes]]) -> None:
        for party, signed in keys.items():
            self.keep(f"{KEY_OF}{party}", signed)

    def remembered(self) -> dict[str, list[ledger_heads.Head]]:
        """The heads that this site keeps of the parties it watches."""
        roster, known = self.consortium.roster, self._host.store.all_remembered()
        watched = ((p, roster[p].sign) for p in ledger_heads.watched(self.consortium, self.party) if p in roster)
        return {party: known[party, key] for party, key in watched if (party, key) in known}

    def remember(self, shown: Mapping[str, list[ledger_heads.Head]]) -> None:
        """Keep the heads of parties that this site watches; those that they did not sign are left out."""
        watched = set(ledger_heads.watched(self.consortium, self.party))
        for party, found in shown.items():
            if party in watched:
                identity = self._host.identity_of(party)
                self.effects.heads[party, identity.sign] = ledger_heads.authentic(identity, party, found)

    # The end.

    def receive(self, released: Mapping[str, Any], box: bytes, signed: Signatures) -> None:
        """Keep what the end of a run brings, if each value was declared to this party, is of its form, and is signed by
        the coordinator so that others can be shown it. Of values that came before, good signatures are kept too."""
        alone = opened_value(box, self.run_key(), self.heads(COORDINATOR)(YOURS)) if box else {}
        if not Named().fits(alone, self.dims, self.consortium) or set(alone) & set(released):
            raise Malformed("what a run releases to a party has names, each once", code="form")
        own = alone.pop(SIGNATURES, {})
        if not SignaturesForm().fits(own, self.dims, self.consortium):
            raise Malformed("signatures on what a run releases stand by name and ask", code="form")
        for name, value in {**released, **alone}.items():
            release = self._host.agreed.declaration[name]
            check_received(release, value, self.party, self.consortium, self.dims)
            raw = encode(value)
            if release.times == 1 and any(before != raw for before in self._delivered(name).values()):
                raise Refused(f"{name} was released with another value before", code="delivered", key=name)
            self.effects.delivered[name, str(self._path)] = raw
        self._keep_signatures({**signed, **own})

    def _keep_signatures(self, signed: Signatures) -> None:
        now = {(name, path): raw for (name, path), raw in self.effects.delivered.items() if path != OWN}
        before = self._host.store.delivered(self._run)
        earlier = {(name, path): raw for name, by in before.items() for path, raw in by.items() if path != OWN}
        coordinator, good = self._host.identity_of(COORDINATOR), dict[str, dict[str, bytes]]()
        for (name, path), raw in {**earlier, **now}.items():
            signature = signed.get(name, {}).get(path, b"")
            try:
                check_vouched(coordinator, signature, self._study, self._run, name, path, raw)
            except Malformed:
                if (name, path) in now:
                    raise Malformed(
                        f"{name} is not signed by the coordinator as what the run released", code="signature", key=name
                    ) from None
                # It was used as it came, and stays: what it lacks is proof for others.
                log.warning("%s: %s of %s came without a signature that lasts", self.party, name, path)
                continue
            good.setdefault(name, {})[path] = signature
        self.effects.delivered[SIGNATURES, str(self._path)] = encode(good)

    def close(self) -> None:
        self.effects.close = True

    def abandon(self) -> None:
        self.effects.abandon = True
