"""What a party of the published average reads that records the wire: no size, and no peer's model."""

from __future__ import annotations

from typing import Any

import numpy as np

from comity.crypto.paillier.cryptosystem import PrivateKey
from comity.federation.coordinator.lifecycle import begin
from comity.federation.messages.codec import decode
from comity.methods.averaging.published import selection
from tests.support.channels import record_channel
from tests.support.published import build_published

from .published_consortium import Meeting, QuickKeys

WIDTH = 4


def held(sizes: Any) -> Any:
    meeting = Meeting(build_published(QuickKeys, width=WIDTH, l2=0.1), sizes)
    parties = meeting.parties()
    line = record_channel(parties)
    begin(parties)
    released = meeting.protocol.coordinate(parties)
    return meeting, parties, line, released


def kept(meeting: Any, party: Any, name: Any) -> Any:
    return decode(meeting.hosts[party].store.state("run-1", name))


def sizes_from(private: Any, crossed: Any) -> Any:
    """What the keyholder reads of the pairs that the mixer handed to the curator."""
    if not isinstance(crossed, dict):
        return None
    opened = selection.unmask(private, crossed["encrypted"], len(crossed["shares"]))
    return sorted((crossed["shares"] + opened).tolist())


def test_the_keyholder_reads_no_sizes_off_the_wire() -> None:
    meeting, parties, line, _ = held((30, 20, 40))
    mixer, keyholder = meeting.consortium.parties[0], meeting.consortium.parties[-1]
    private = PrivateKey.from_bytes(kept(meeting, keyholder, "averaging.private"))
    (crossed,) = line.replied(mixer, "shuffled")
    assert sizes_from(private, crossed) is None
    # Control: what the curator opens is all that the keyholder lacks.
    opened = parties.ask(meeting.protocol.shuffle, to=[mixer])[mixer]["shuffled"]
    assert sizes_from(private, opened) == [20, 30, 40]


def model_from(own: Any, share: Any, of_curator: Any, for_curator: Any) -> Any:
    """Of two parties: the other's model from its published share, the curator's pieces and one's own to and from it."""
    sent, received = own
    left = share - of_curator - sent
    return (left + received + for_curator).view("<i8")


def test_of_two_parties_the_mixer_reads_no_model_off_the_wire() -> None:
    meeting, parties, line, released = held((30, 20))
    mixer, peer = meeting.consortium.parties
    (for_curator,), (of_curator,) = line.replied(peer, "piece_for_curator"), line.asked(peer, "piece_of_curator")
    assert isinstance(for_curator, bytes) and isinstance(of_curator, bytes)
    # Control: with the two pieces of the curator, the mixer has all of its peer's model.
    told = parties.ask(meeting.protocol.divide)[peer]["piece_for_curator"]
    given = parties.once("curator pieces", dict)[1]
    own = kept(meeting, peer, f"in:piece:{mixer}"), kept(meeting, mixer, f"in:piece:{peer}")
    found = model_from(own, released["shares"][peer], given, told)
    np.testing.assert_array_equal(found, kept(meeting, peer, "averaging.weights"))
    assert not line.holds(told.tobytes()[:16]) and not line.holds(given.tobytes()[:16])
