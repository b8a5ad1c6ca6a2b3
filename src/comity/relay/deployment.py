"""A study between organisations, seen from its coordinator: deliver it to the sites, run it, resume it.

The coordinator keeps the journal and the outcome; the relay keeps nothing. A second call with the same run id and
journal resumes, whichever process was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comity.errors import Malformed, Refused, Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties, Progress
from comity.federation.coordinator.replies import plain
from comity.federation.messages.asking import Lost, Replied
from comity.federation.messages.channel import FOR_EVER, Channel, Patience
from comity.federation.messages.codec import decode
from comity.federation.messages.envelope import verify_reply
from comity.federation.messages.paths import ABANDON, END
from comity.federation.messages.sealed_channel import SealedChannel, sealed
from comity.privacy.randomness import ReleasedNoise
from comity.relay.channel import SILENT, NatsChannel
from comity.site.pack import pack
from comity.study.results.outcome import Outcome

if TYPE_CHECKING:
    from comity.crypto.sealing import Identity
    from comity.federation.coordinator.exchange import Watch
    from comity.federation.coordinator.journal import Journal
    from comity.study.study import Study


def coordinator(
    study: Study,
    *,
    run: str,
    channel: Channel,
    journal: Journal,
    keys: Identity,
    progress: Progress | None = None,
    patience: Patience = FOR_EVER,
    watch: Watch | None = None,
) -> Parties:
    """The coordinator's side of one run, for `execute`. What the channel carries is sealed to the sites, and what
    they reply to this process. Running again with the same journal and run id resumes."""
    agreed = study.agreed
    return Parties(
        agreed,
        run=run,
        channel=SealedChannel(channel, agreed.consortium.roster),
        journal=journal,
        keys=keys,
        noise=ReleasedNoise(),
        progress=progress,
        patience=patience,
        watch=watch,
    )


PATIENCE = Patience(silent=SILENT)
_HANDED_OVER = Patience(silent=SILENT, deadline=300.0)


def hand_over(study: Study, *, keys: Identity, channel: NatsChannel, patience: Patience = _HANDED_OVER) -> None:
    """Bring the packed study to the inbox of each party, sealed to the key that the study pins. A party that has it
    already is told again. Only a party's own signature counts as word that it arrived or was refused."""
    packed, roster = pack(study, keys), study.consortium.roster
    messages: dict[str, Callable[[], bytes]] = dict.fromkeys(study.consortium.parties, lambda: packed)
    boxes = sealed(messages, roster, "study")
    refused: dict[str, str] = {}
    missing: dict[str, str] = {}
    with channel.submit(boxes.messages, patience=patience) as asking:
        asking.open_with(boxes.opened)
        for event in asking:
            if isinstance(event, Lost):
                missing[event.party] = event.why
            elif isinstance(event, Replied):
                try:
                    said = _said(verify_reply(roster[event.party], event.party, packed, event.reply))
                except Malformed:
                    missing[event.party] = "what came back is not signed by it"
                    continue
                if said == "stopped":
                    # No decision of its owner's: its disk is full, or its site file is being mended.
                    missing[event.party] = "stopped; its own log says why"
                elif said:
                    refused[event.party] = said
    for party, code in refused.items():
        raise Refused(
            f"{party} does not take study {study.hash[:12]} into its inbox ({code}); its owner sees why: "
            "comity site status",
            code=code,
            party=party,
        )
    if missing and not channel.is_up:
        raise Stopped(f"the relay is not reached ({plain(channel.trouble) or 'no word of it'}); submit the study again")
    if missing:
        named = ", ".join(f"{party} ({why})" for party, why in missing.items())
        raise Stopped(f"study {study.hash[:12]} has not reached {named}; submit it again when they serve")


def _said(reply: bytes) -> str:
    """The code of a site's refusal of a study, or nothing."""
    match decode(reply):
        case {"ok": True}:
            return ""
        case {"refused": str(code)}:
            return plain(code) or "refused"
        case _:
            raise Malformed("the reply to a study says that it arrived, or why not", code="form")


def not_told(journal: Path, run: str) -> list[str]:
    """The parties that have not heard the end of a run, for which it is still open: running it again tells them."""
    unheard = Journal(journal).unheard(run, (str(END), str(ABANDON)))
    return sorted({party for parties in unheard.values() for party in parties})


def run_deployed(
    study: Study,
    *,
    run: str,
    keys: Identity,
    channel: NatsChannel,
    journal: Path,
    patience: Patience = PATIENCE,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Run a study with its sites, or go on with a run. The outcome has neither the sites' accounts, which are theirs to
    know, nor an assessment, which would need their records."""
    started = time.perf_counter()
    parties = coordinator(
        study,
        run=run,
        channel=channel,
        journal=Journal(journal),
        keys=keys,
        progress=progress,
        patience=patience,
        watch=watch,
    )
    released, kept = execute(parties)
    outcome = Outcome.of(study.agreed, released, parties.transcript, run=run, kept=kept)
    return replace(outcome, seconds=time.perf_counter() - started, simulated=False)
