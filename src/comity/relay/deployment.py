"""A study between organisations, seen from its coordinator: deliver it to the sites, run it, resume it.

The coordinator keeps the journal and the outcome; the relay keeps nothing. A second call with the same run id and
journal resumes the run after any process was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from comity.errors import Malformed, Refused, Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties, Progress
from comity.federation.coordinator.replies import plain
from comity.federation.messages.ask import ABANDON, END
from comity.federation.messages.channel import NO_TIMEOUT, Channel, Lost, Replied, Timeouts
from comity.federation.messages.codec import decode
from comity.federation.messages.sealed_channel import SealedChannel, seal_messages
from comity.federation.messages.signatures import verify_reply
from comity.federation.messages.wire_format import OTHER_RELEASE, SAME_RELEASE
from comity.privacy.randomness import ReleasedNoise
from comity.site.decisions import MAX_REASON
from comity.site.pack import pack
from comity.site.service import DECLINED
from comity.study.results.result import Result
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    from comity.crypto.sealing import Identity
    from comity.federation.coordinator.exchange import Watch
    from comity.federation.coordinator.journal import Journal
    from comity.relay.channel import NatsChannel
    from comity.study.study import Study


def connect_parties(
    study: Study,
    *,
    run: str,
    channel: Channel,
    journal: Journal,
    keys: Identity,
    progress: Progress | None = None,
    timeouts: Timeouts = NO_TIMEOUT,
    watch: Watch | None = None,
) -> Parties:
    """The parties of one run, over any channel, for `execute`. Asks are sealed to the sites and replies to this
    process. The same journal and run id resume a run."""
    agreed = study.agreement
    return Parties(
        agreed,
        run=run,
        channel=SealedChannel(channel, agreed.consortium.roster),
        journal=journal,
        keys=keys,
        noise=ReleasedNoise(),
        progress=progress,
        timeouts=timeouts,
        watch=watch,
    )


ARRIVED = "arrived"
"""The words for a study that is in a party's inbox and was not refused."""
SILENT_SECONDS = 10.0
"""A party that shows no sign of life for this long is lost."""
RUN_TIMEOUTS = Timeouts(silent=SILENT_SECONDS)
DELIVERY_TIMEOUTS = Timeouts(silent=SILENT_SECONDS, deadline=300.0)


def deliver_study(
    study: Study,
    *,
    keys: Identity,
    channel: NatsChannel,
    timeouts: Timeouts = DELIVERY_TIMEOUTS,
    report: Callable[[dict[str, str]], None] | None = None,
) -> None:
    """Deliver the packed study to each party's inbox, sealed to the key that the study pins. Delivering it twice is
    harmless. Only the party's signature counts as proof that it arrived or was refused. `report` gets, for each party,
    how it went in words."""
    deliveries = _deliver(study, keys, channel, timeouts)
    if report is not None:
        report(deliveries.in_words())
    deliveries.require_arrived(study.hash[:12])
    if deliveries.missing and not channel.is_connected:
        raise Stopped(
            f"the relay is not reached ({plain(channel.last_errors) or 'no reason given'}); submit the study again"
        )
    if missing := deliveries.missing:
        named = ", ".join(f"{party} ({why})" for party, why in missing.items())
        raise Stopped(f"study {study.hash[:12]} has not reached {named}; submit it again when their sites serve")


def _deliver(study: Study, keys: Identity, channel: NatsChannel, timeouts: Timeouts) -> _Deliveries:
    packed, roster = pack(study, keys), study.consortium.roster
    messages: dict[str, Callable[[], bytes]] = dict.fromkeys(study.consortium.parties, lambda: packed)
    boxes = seal_messages(messages, roster, "study")
    refused: dict[str, tuple[str, str]] = {}
    missing: dict[str, str] = {}
    with channel.submit(boxes.messages, timeouts=timeouts) as pending:
        pending.open_with(boxes.open_reply)
        for event in pending:
            if isinstance(event, Lost):
                missing[event.party] = event.why
            elif isinstance(event, Replied):
                try:
                    code, why = _read_refusal(verify_reply(roster[event.party], event.party, packed, event.reply))
                except Malformed:
                    missing[event.party] = "its reply is not signed with its key"
                    continue
                if code == "stopped":
                    # Not the owner's decision: the site's disk is full, or its site file can't be used.
                    missing[event.party] = "its site is stopped; its log says why"
                elif code:
                    refused[event.party] = code, why
    return _Deliveries(study.consortium.parties, refused, missing)


@dataclass(frozen=True)
class _Deliveries:
    """How the delivery of a study went: who refused it with which code and reason, and who was not reached and why."""

    parties: Sequence[str]
    refused: Mapping[str, tuple[str, str]]
    missing: Mapping[str, str]

    def require_arrived(self, short: str) -> None:
        """Raise the first refusal."""
        for party, (code, why) in self.refused.items():
            if code == DECLINED:
                sentence = f"{party} refused study {short}: {why or 'its owner gave no reason'}"
            elif code in (OTHER_RELEASE, "form"):
                # An earlier release calls any pack that it can't read malformed.
                sentence = (
                    f"{party} can't read study {short} ({code}): its site may run another release of Comity; "
                    f"{SAME_RELEASE}"
                )
            else:
                sentence = (
                    f"{party} does not take study {short} into its inbox ({code}); its owner sees why: comity site "
                    "status"
                )
            raise Refused(sentence, code=code, party=party)

    def in_words(self) -> dict[str, str]:
        return {party: self._words(party) for party in self.parties}

    def _words(self, party: str) -> str:
        if party in self.missing:
            return f"not reached: {self.missing[party]}"
        if party not in self.refused:
            return ARRIVED
        code, why = self.refused[party]
        return f"refused by its owner: {why or 'no reason given'}" if code == DECLINED else f"refused ({code})"


def _read_refusal(reply: bytes) -> tuple[str, str]:
    """The code with which a site refused a study, and its owner's reason, made safe to show; empty if it took it."""
    match decode(reply):
        case {"ok": True}:
            return "", ""
        case {"refused": str(code), "why": str(why)}:
            return plain(code) or "refused", escape_line(why[:MAX_REASON])
        case {"refused": str(code)}:
            return plain(code) or "refused", ""
        case _:
            raise Malformed("the reply to a study must say that it arrived, or why not", code="form")


def unnotified_parties(journal: Path, run: str) -> list[str]:
    """The parties that have not heard that a run ended and still have it open; resuming the run tells them."""
    unheard = Journal(journal).unheard(run, (str(END), str(ABANDON)))
    return sorted({party for parties in unheard.values() for party in parties})


def run_deployed(
    study: Study,
    *,
    run: str,
    keys: Identity,
    channel: NatsChannel,
    journal: Path,
    timeouts: Timeouts = RUN_TIMEOUTS,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run a study with its sites, or resume a run. The outcome has no budget accounts, which only the sites know, and
    no assessment, which would need their records."""
    started = time.perf_counter()
    parties = connect_parties(
        study,
        run=run,
        channel=channel,
        journal=Journal(journal),
        keys=keys,
        progress=progress,
        timeouts=timeouts,
        watch=watch,
    )
    released, kept = execute(parties)
    outcome = Result.of(study.agreement, released, parties.transcript, run=run, kept=kept)
    return replace(outcome, seconds=time.perf_counter() - started, simulated=False)
