"""The steps that every run has: ask who would, reserve, meet where parties write to each other, close at the end.

    ready     policy and reservation as `begin` would find them, by the same code, and nothing is written: one that says
              no leaves every ledger as it was. Asked again it is answered as things stand then. It looks at policy and
              ledger alone: whether records could be read is a fact about them
    begin     policy and reservation; a fresh key for this run, signed by the pinned one; what this site remembers of
              the heads of others' ledgers (`federation.messages.heads`)
    meet      the keys of the others, where the method has letters between parties
    end       brings what was released to this party (`federation.messages.delivered`), with the coordinator's
              signatures that stay (`federation.messages.vouched`), and closes the run; the newest heads of others'
              ledgers are remembered
    abandon   in place of the end, for a run that can't go on or that never began here: it frees and forgets, no more

Adversary    any coordinator. It learns that a party reserved, would or refused, the heads of its ledger and which heads
             of others it remembers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import SEALING_BYTES
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public
from comity.federation.declare.release import Blob, Each, Fields, Form
from comity.federation.messages.delivered import Named
from comity.federation.messages.heads import Heads
from comity.federation.messages.vouched import SignaturesForm
from comity.federation.part import Part
from comity.federation.step import step

if TYPE_CHECKING:
    from comity.federation.owner.life_site import LifeSite

MOST_YOURS = 1 << 30
"""Bytes of a box; it is empty where nothing is for its receiver alone."""
SIGNED_KEY = Fields({"key": Blob(SEALING_BYTES), "signature": Blob(64)})


class Life(Part):
    name = "run"

    def declare(self, who: Consortium) -> Declaration:
        def public(name: str, source: str, to: str, why: str, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=Public(why), form=form)

        return Declaration(
            (
                public(
                    "coordinator_key",
                    COORDINATOR,
                    EVERY_PARTY,
                    "the coordinator's fresh sealing key",
                    Blob(SEALING_BYTES),
                ),
                public("run_key", EVERY_PARTY, COORDINATOR, "a fresh sealing key", SIGNED_KEY),
                public("run_keys", COORDINATOR, EVERY_PARTY, "the others' fresh sealing keys", Each(SIGNED_KEY)),
                public(
                    "remembered",
                    EVERY_PARTY,
                    COORDINATOR,
                    "hashes that let others notice a ledger that was put back",
                    Each(Heads()),
                ),
                public("heads", COORDINATOR, EVERY_PARTY, "the same hashes, to be remembered", Each(Heads())),
                public("released", COORDINATOR, EVERY_PARTY, "what all parties receive, as declared", Named()),
                public("yours", COORDINATOR, EVERY_PARTY, "a box of what is for the receiver alone", Blob(MOST_YOURS)),
                public(
                    "signed",
                    COORDINATOR,
                    EVERY_PARTY,
                    "the coordinator's signatures on what the receiver was released",
                    SignaturesForm(),
                ),
            ),
            adversary="any coordinator",
        )

    @step()
    def ready(self, site: LifeSite) -> None:
        site.look_ahead()

    @step(gives=("run_key", "remembered"))
    def begin(self, site: LifeSite, coordinator_key: bytes) -> dict[str, Any]:
        # The policy first: a stranger to it may not make the site write anything.
        site.reserve()
        return {"run_key": site.new_run_key(coordinator_key), "remembered": site.remembered()}

    @step()
    def meet(self, site: LifeSite, run_keys: dict[str, Any]) -> None:
        site.keep_keys(run_keys)

    @step()
    def end(
        self, site: LifeSite, heads: dict[str, Any], released: dict[str, Any], yours: bytes, signed: dict[str, Any]
    ) -> None:
        site.receive(released, yours, signed)
        site.remember(heads)
        site.close()

    @step()
    def abandon(self, site: LifeSite) -> None:
        site.abandon()
