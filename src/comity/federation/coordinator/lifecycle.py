"""A run from beginning to end, at its coordinator: ask whether the parties are ready, begin, run the method, and tell
the parties the end. Running again with the same run id resumes the run where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comity.crypto.sealing import PublicIdentity
from comity.errors import Implausible, Refused
from comity.federation.coordinator.delivery import Sent, sign_for_parties, split_by_receiver
from comity.federation.coordinator.journal import ABANDONED, BEGUN, RELEASED
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.released import check_released
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages import heads
from comity.federation.messages.ask import ABANDON, BEGIN, END, READY
from comity.federation.messages.codec import encode
from comity.federation.messages.letters import Head, seal_value
from comity.federation.messages.received import SIGNATURES, YOURS
from comity.federation.messages.signatures import Signatures
from comity.federation.messages.wire_format import WIRE_FORMAT
from comity.federation.part import EVALUATION, RUN


def run(parties: Parties) -> dict[str, Any]:
    """Execute a run; what its method releases at the end."""
    return execute(parties)[0]


def execute(parties: Parties) -> tuple[dict[str, Any], dict[str, Any]]:
    """Execute a run; what its method releases at the end, and what was released before.

    Calling it again with the same run id resumes the run, or returns the same values, and tells the end to parties that
    have not heard it. No party begins before all have said that they are ready: if one refuses, no ledger changes and
    the run may be tried again. A later refusal abandons the run for all parties, which frees what they never drew; so
    does an opened sum that honest parties could not have made.
    """
    journal, name = parties.journal, parties.run
    refused = journal.recall(name, ABANDONED)
    if refused is not None:
        _abandon_run(parties)
        raise Refused(f"run {name} was abandoned: {refused['why']}; begin a new run", code=refused["code"])
    released = journal.recall(name, RELEASED)
    if released is None:
        if journal.is_closed(name, str(READY)) or not journal.is_closed(name, str(BEGIN)):
            ready(parties)
        begun = False
        try:
            begin(parties)
            begun = True
            released = journal.once(name, RELEASED, lambda: _run_method(parties))
        except Refused as refusal:
            if begun and not refusal.party and not isinstance(refusal, Implausible):
                # The fault is the coordinator's, not a party's refusal: it may be mended, and the run resumed.
                raise
            said = {"why": str(refusal), "code": refusal.code}
            journal.once(name, ABANDONED, lambda: said)
            _abandon_run(parties)
            raise
    values, kept, keys, signed, alone = released
    _end(parties, values, kept, keys, signed, alone)
    return values, kept


def _run_method(parties: Parties) -> list[dict[str, Any]]:
    """Run the method and, where the study has one, its evaluation.

    The result is one record of the journal, so that a killed run finds all of it or nothing: the values released at the
    end, the values released before, the run keys of parties that receive something alone, and each party's signatures,
    of what all receive and of what it receives alone.
    """
    values = release_values(parties)
    kept = parties.kept
    common, single = split_by_receiver(parties.agreement, values, kept)
    keys = {party: signed["key"] for party, signed in parties.run_keys.items() if party in single}
    last = [Sent(name, str(END), value) for name, value in common.items()]
    boxed = [
        Sent(name, str(END), own={party: mine[name] for party, mine in single.items() if name in mine})
        for name in dict.fromkeys(name for mine in single.values() for name in mine)
    ]
    signed, alone = (
        sign_for_parties(parties.agreement, parties.keys, parties.run, sent) for sent in ([*parties.sent, *last], boxed)
    )
    return [values, kept, keys, signed, alone]


def release_values(parties: Parties) -> dict[str, Any]:
    """What the method releases at the end of a run that has begun, and what its evaluation measures of that."""
    values = check_released(parties.protocol.coordinate(parties), parties.declaration, parties.consortium, parties.dims)
    if parties.agreement.model_evaluation is None:
        return values
    found = parties.agreement.model_evaluation.measure(parties.under(EVALUATION), values)
    return {**values, **check_released(found, parties.declaration, parties.consortium, parties.dims)}


def ready(parties: Parties) -> None:
    """Ask every party whether it could begin. It binds no party; the error names all that refuse, and why."""
    consortium = parties.consortium
    quorums = parties.declaration.quorums(consortium)
    parties.under(RUN).ask("ready", need=consortium.survivors, quorums=quorums, unanimous=True, wire_format=WIRE_FORMAT)


def begin(parties: Parties) -> None:
    """Let every party reserve or refuse, and give the parties the keys of those that they may write to."""
    view, consortium = parties.under(RUN), parties.consortium
    key = parties.run_key.public.sealing()

    def has_key(party: str, values: Mapping[str, Any]) -> None:
        # Otherwise the parties that write to it would fail, and be lost in its place.
        signed = values["run_key"]
        text = encode([parties.study, parties.run, "run key", party, signed["key"]])
        consortium.roster[party].verify(signed["signature"], text)
        PublicIdentity.from_sealing(signed["key"]).seal(b"", b"")

    # A party that no other can replace is not lost here: without it a later ask would wait for ever.
    quorums = parties.declaration.quorums(consortium)
    begun = view.ask(
        "begin", need=consortium.survivors, quorums=quorums, unanimous=True, valid=has_key, coordinator_key=key
    )
    keys = {party: values["run_key"] for party, values in begun.items()}
    parties.meet(keys)
    parties.remember(heads.collect_heads(consortium, (values["remembered"] for values in begun.values())))
    writers = parties.agreement.writers()
    if writers:
        need = len(writers) - consortium.dropouts
        quorums = tuple((members, least) for members, least in quorums if members <= writers.keys())
        addressees = {party: {*to, party} for party, to in writers.items()}
        common = next(iter(addressees.values()))
        if all(other == common for other in addressees.values()):
            # All write to all: the keys are the same for every party and are stored once.
            view.ask(
                "meet",
                to=list(writers),
                need=need,
                quorums=quorums,
                run_keys={p: keys[p] for p in sorted(common) if p in keys},
            )
        else:
            each = {party: {"run_keys": {p: keys[p] for p in sorted(to) if p in keys}} for party, to in writers.items()}
            view.ask("meet", each=each, need=need, quorums=quorums)


def _end(
    parties: Parties,
    values: Mapping[str, Any],
    kept: Mapping[str, Any],
    keys: Mapping[str, bytes],
    signed: Mapping[str, Signatures],
    alone: Mapping[str, Signatures],
) -> None:
    """Tell the end, with what was released to it, to each party that began, lost ones included. Tell the others that
    the run is over."""
    journal, consortium, name = parties.journal, parties.consortium, parties.run
    begun = journal.once(name, BEGUN, lambda: journal.answered(name, str(BEGIN)))
    journal.settle(parties.study, name, keeping=[str(END), str(ABANDON)])
    common, single = split_by_receiver(parties.agreement, values, kept)
    each: dict[str, dict[str, Any]] = {}
    for party in consortium.parties:
        if party in begun:
            seen = {peer: parties.seen(peer) for peer in heads.watched_parties(consortium, party)}
            box = b""
            if party in single:
                head = Head(parties.study, name, str(END), COORDINATOR, party, YOURS)
                mine = {**single[party], SIGNATURES: alone[party]}
                box = seal_value(mine, PublicIdentity.from_sealing(keys[party]), head)
            watched = {peer: of for peer, of in seen.items() if of}
            each[party] = {"heads": watched, YOURS: box, "signed": signed[party]}
    view = parties.under(RUN)
    heard = view.tell("end", list(each), each, released=common)
    absent = [party for party in consortium.parties if party not in each]
    if absent:
        heard = _tell_abandoned(parties, absent) and heard
    if heard:
        journal.settle(parties.study, name)


def _abandon_run(parties: Parties) -> None:
    """Tell all parties that the run is over, which frees what they never drew, and delete its messages and secrets."""
    journal, name = parties.journal, parties.run
    journal.settle(parties.study, name, keeping=[str(ABANDON)])
    if _tell_abandoned(parties, parties.consortium.parties):
        journal.settle(parties.study, name)


def _tell_abandoned(parties: Parties, to: Iterable[str]) -> bool:
    return parties.under(RUN).tell("abandon", to)
