"""The lifecycle of a run: the steps that every run has at its sites.

    ready     a dry run of `begin`: policy and reservation are checked by the same code, and nothing is written. If one
              party refuses, every ledger stays as it was. Asked again, it checks again. It refuses messages of another
              release (`federation.messages.wire_format`). It does not read the records: whether they can be read is a
              fact about them
    begin     check the policy and reserve; make a fresh key for this run, signed by the pinned one; show the heads of
              others' ledgers that this site remembers (`federation.messages.heads`)
    meet      keep the keys of the others, where the method has letters between parties
    end       keep what was released to this party (`federation.messages.received`), with the coordinator's lasting
              signatures (`federation.messages.signatures`), remember the newest heads of others' ledgers, close the run
    abandon   in place of `end`, for a run that can't continue or never began here: free what was never drawn

Adversary    Any coordinator. It learns whether a party is ready, reserved or refused, the heads of its ledger, and
             which heads of others it remembers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import SEALING_BYTES
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public
from comity.federation.declare.release import Blob, Each, Fields, Form
from comity.federation.messages.heads import Heads
from comity.federation.messages.received import NamedValues
from comity.federation.messages.signatures import SignaturesForm
from comity.federation.messages.wire_format import WireFormat, require_wire_format
from comity.federation.part import Part, step

if TYPE_CHECKING:
    from comity.federation.owner.lifecycle import LifecycleSite

MAX_BOX_BYTES = 1 << 30
"""The largest box with values for one receiver alone; it is empty without such values."""
SIGNED_KEY = Fields({"key": Blob(SEALING_BYTES), "signature": Blob(64)})


class Lifecycle(Part):
    name = "run"

    def declare(self, consortium: Consortium) -> Declaration:
        def public(name: str, source: str, to: str, why: str, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=Public(why), form=form)

        return Declaration(
            (
                public(
                    "wire_format",
                    COORDINATOR,
                    EVERY_PARTY,
                    "the number of the messages' format",
                    WireFormat(),
                ),
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
                public("released", COORDINATOR, EVERY_PARTY, "what all parties receive, as declared", NamedValues()),
                public(
                    "yours", COORDINATOR, EVERY_PARTY, "a box of what is for the receiver alone", Blob(MAX_BOX_BYTES)
                ),
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
    def ready(self, site: LifecycleSite, wire_format: int) -> None:
        require_wire_format(wire_format, "the coordinator")
        site.dry_run()

    @step(gives=("run_key", "remembered"))
    def begin(self, site: LifecycleSite, coordinator_key: bytes) -> dict[str, Any]:
        # The policy comes first: what it refuses must not make the site write anything.
        site.reserve()
        return {"run_key": site.new_run_key(coordinator_key), "remembered": site.remembered()}

    @step()
    def meet(self, site: LifecycleSite, run_keys: dict[str, Any]) -> None:
        site.keep_keys(run_keys)

    @step()
    def end(
        self, site: LifecycleSite, heads: dict[str, Any], released: dict[str, Any], yours: bytes, signed: dict[str, Any]
    ) -> None:
        site.receive(released, yours, signed)
        site.remember(heads)
        site.close()

    @step()
    def abandon(self, site: LifecycleSite) -> None:
        site.abandon()
