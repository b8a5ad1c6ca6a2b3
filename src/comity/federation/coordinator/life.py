"""The life of a run at its coordinator: it asks who would begin, begins, lets the method run, and tells the end.

Running again with the same run id resumes it, wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comity.crypto.sealing.sealed import PublicIdentity
from comity.errors import Implausible, Refused
from comity.federation.coordinator.delivery import at_the_end, by_party
from comity.federation.coordinator.journal import ABANDONED, BEGUN, RELEASED
from comity.federation.coordinator.kept import Sent
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.released import checked
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages import heads
from comity.federation.messages.codec import encode
from comity.federation.messages.delivered import SIGNATURES, YOURS
from comity.federation.messages.letters import Head
from comity.federation.messages.paths import ABANDON, BEGIN, END, READY
from comity.federation.messages.sealed_values import sealed_value
from comity.federation.messages.vouched import Signatures
from comity.federation.part import EVALUATION, RUN


def run(parties: Parties) -> dict[str, Any]:
    """The whole life of a run: what its method releases at the end."""
    return whole_run(parties)[0]


def whole_run(parties: Parties) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole life of a run: what its method releases at the end, and what was released on the way.

    Calling it again with the same run id resumes it, or gives the same values again, and tells the end to whoever has
    not heard it. Nobody begins before all have said that they would: where one says no, nothing is written anywhere and
    the run may be tried again. A refusal later on ends the run for all of them, and frees what they never drew; so does
    an opened sum that no honest parties could have made.
    """
    journal, name = parties.journal, parties.run
    refused = journal.made(name, ABANDONED)
    if refused is not None:
        _abandoned(parties)
        raise Refused(f"run {name} was abandoned: {refused['why']}; begin a new run", code=refused["code"])
    released = journal.made(name, RELEASED)
    if released is None:
        if journal.is_closed(name, str(READY)) or not journal.is_closed(name, str(BEGIN)):
            ready(parties)
        begun = False
        try:
            begin(parties)
            begun = True
            released = journal.once(name, RELEASED, lambda: _released(parties))
        except Refused as refusal:
            if begun and not refusal.party and not isinstance(refusal, Implausible):
                # Not a party's word, but something about this coordinator: it may be put right.
                raise
            said = {"why": str(refusal), "code": refusal.code}
            journal.once(name, ABANDONED, lambda: said)
            _abandoned(parties)
            raise
    values, kept, keys, signed, alone = released
    _end(parties, values, kept, keys, signed, alone)
    return values, kept


def _released(parties: Parties) -> list[dict[str, Any]]:
    """What the run leaves: the released values, what was released on the way, the run keys of parties that receive
    something alone, and the signatures for each party, of what all receive and of what it receives alone. One record,
    so that a run that is killed before its end finds all of it."""
    values = checked(parties.protocol.coordinate(parties), parties.declaration, parties.consortium, parties.dims)
    if parties.agreed.measuring is not None:
        found = parties.agreed.measuring.measure(parties.under(EVALUATION), values)
        values = {**values, **checked(found, parties.declaration, parties.consortium, parties.dims)}
    kept = parties.kept
    common, single = at_the_end(parties.agreed, values, kept)
    keys = {party: signed["key"] for party, signed in parties.run_keys.items() if party in single}
    last = [Sent(name, str(END), value) for name, value in common.items()]
    boxed = [
        Sent(name, str(END), own={party: mine[name] for party, mine in single.items() if name in mine})
        for name in dict.fromkeys(name for mine in single.values() for name in mine)
    ]
    signed, alone = (
        by_party(parties.agreed, parties.keys, parties.run, sent) for sent in ([*parties.sent, *last], boxed)
    )
    return [values, kept, keys, signed, alone]


def ready(parties: Parties) -> None:
    """Ask every party whether it would begin, which binds nobody: whoever is not ready says why, and all are named."""
    who = parties.consortium
    needed = parties.declaration.needed(who)
    parties.under(RUN).ask("ready", need=who.survivors, needed=needed, unanimous=True)


def begin(parties: Parties) -> None:
    """Let every party reserve, or refuse, and bring the parties the keys of those that they may write to."""
    view, who = parties.under(RUN), parties.consortium
    key = parties.run_key.public.sealing()

    def has_key(party: str, values: Mapping[str, Any]) -> None:
        # Else those that are to write to it would find out, and be lost for it.
        signed = values["run_key"]
        text = encode([parties.study, parties.run, "run key", party, signed["key"]])
        who.roster[party].verify(signed["signature"], text)
        PublicIdentity.from_sealing(signed["key"]).seal(b"", b"")

    # Whom nobody could stand in for is not lost here: without it a later ask would wait for ever.
    needed = parties.declaration.needed(who)
    begun = view.ask("begin", need=who.survivors, needed=needed, unanimous=True, valid=has_key, coordinator_key=key)
    keys = {party: values["run_key"] for party, values in begun.items()}
    parties.meet(keys)
    parties.remember(heads.handed_back(who, (values["remembered"] for values in begun.values())))
    writers = parties.agreed.writers()
    if writers:
        need = len(writers) - who.dropouts
        needed = tuple((members, least) for members, least in needed if members <= writers.keys())
        circles = {party: {*to, party} for party, to in writers.items()}
        circle = next(iter(circles.values()))
        if all(other == circle for other in circles.values()):
            # All write to all: the same keys for everybody, which are written down once.
            view.ask(
                "meet",
                to=list(writers),
                need=need,
                needed=needed,
                run_keys={p: keys[p] for p in sorted(circle) if p in keys},
            )
        else:
            each = {party: {"run_keys": {p: keys[p] for p in sorted(to) if p in keys}} for party, to in writers.items()}
            view.ask("meet", each=each, need=need, needed=needed)


def _end(
    parties: Parties,
    values: Mapping[str, Any],
    kept: Mapping[str, Any],
    keys: Mapping[str, bytes],
    signed: Mapping[str, Signatures],
    alone: Mapping[str, Signatures],
) -> None:
    """Tell the end to all that began, lost ones included, with what was released to each, and to the others that the
    run is over without them."""
    journal, who, name = parties.journal, parties.consortium, parties.run
    begun = journal.once(name, BEGUN, lambda: journal.answered(name, str(BEGIN)))
    journal.settle(parties.study, name, keeping=[str(END), str(ABANDON)])
    common, single = at_the_end(parties.agreed, values, kept)
    each: dict[str, dict[str, Any]] = {}
    for party in who.parties:
        if party in begun:
            seen = {peer: parties.seen(peer) for peer in heads.watched(who, party)}
            box = b""
            if party in single:
                head = Head(parties.study, name, str(END), COORDINATOR, party, YOURS)
                mine = {**single[party], SIGNATURES: alone[party]}
                box = sealed_value(mine, PublicIdentity.from_sealing(keys[party]), head)
            watched = {peer: of for peer, of in seen.items() if of}
            each[party] = {"heads": watched, YOURS: box, "signed": signed[party]}
    view = parties.under(RUN)
    heard = view.tell("end", list(each), each, released=common)
    absent = [party for party in who.parties if party not in each]
    if absent:
        heard = _abandon(parties, absent) and heard
    if heard:
        journal.settle(parties.study, name)


def _abandoned(parties: Parties) -> None:
    """Tell all parties that the run is over, which frees what they never drew, and keep nothing that it was made of."""
    journal, name = parties.journal, parties.run
    journal.settle(parties.study, name, keeping=[str(ABANDON)])
    if _abandon(parties, parties.consortium.parties):
        journal.settle(parties.study, name)


def _abandon(parties: Parties, those: Iterable[str]) -> bool:
    return parties.under(RUN).tell("abandon", those)
