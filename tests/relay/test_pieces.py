"""Frames, and messages that are put together from pieces whatever became of them on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from comity.relay.wire import LONGEST, PIECE, WINDOW, Frame, Kind, Pulling, id_of, piece_of

MESSAGE = random.Random(5).randbytes(9 * PIECE + 7)


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = Frame.of(Frame(Kind.PIECE, bytes(range(16)), 2**40, b"body").to_bytes())
    assert frame is not None
    assert (frame.kind, frame.id, frame.number, bytes(frame.body)) == (Kind.PIECE, bytes(range(16)), 2**40, b"body")
    assert len(Frame(Kind.REPLY, bytes(16), 0, bytes(PIECE + 16)).to_bytes()) <= LONGEST


@pytest.mark.parametrize("raw", [b"", b"\x01", bytes(24), bytes(25), b"\xff" * 40, b"INFO {}\r\n"])
def test_what_is_no_frame_is_none(raw: Any) -> None:
    assert Frame.of(raw) is None


@pytest.mark.parametrize("seed", range(4))
def test_pieces_that_are_lost_repeated_and_swapped_give_the_message(seed: int) -> None:
    chance, pulling, got, beats = random.Random(seed), Pulling(id_of(MESSAGE), len(MESSAGE)), b"", 0
    while not pulling.is_whole:
        numbers = [number for number in pulling.wanted() for _ in range(chance.choice((0, 1, 1, 1, 2)))]
        chance.shuffle(numbers)
        for number in numbers:
            if pulling.takes(number, piece_of(MESSAGE, number)):
                got += piece_of(MESSAGE, number)
        pulling.again()
        beats += 1
        assert beats < 200
    assert pulling.is_true and got == MESSAGE


def test_no_more_than_a_window_is_asked_for_at_once() -> None:
    pulling = Pulling(id_of(MESSAGE), len(MESSAGE))
    assert list(pulling.wanted(room=1)) == [0] and list(pulling.wanted()) == list(range(1, WINDOW))
    assert list(pulling.wanted()) == [] and pulling.under_way == WINDOW
    assert pulling.takes(0, piece_of(MESSAGE, 0)) and list(pulling.wanted()) == [WINDOW]


def test_a_message_of_mixed_pieces_is_not_what_its_name_says() -> None:
    pulling = Pulling(id_of(MESSAGE), len(MESSAGE))
    for number in range(10):
        assert pulling.takes(
            number, bytes(len(piece_of(MESSAGE, number))) if number == 3 else piece_of(MESSAGE, number)
        )
    assert pulling.is_whole and not pulling.is_true


@pytest.mark.parametrize("body", [b"", b"short", bytes(PIECE - 1), bytes(PIECE + 1)])
def test_a_piece_of_another_length_does_not_count(body: Any) -> None:
    assert not Pulling(id_of(MESSAGE), len(MESSAGE)).takes(0, body)
