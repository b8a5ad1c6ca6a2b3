"""Frames, and messages assembled from pieces that may be lost, repeated or reordered."""

from __future__ import annotations

import random
from typing import Any

import pytest

from comity.relay.wire import (
    MAX_FRAME_BYTES,
    MAX_PUSHED_PIECES,
    MAX_WINDOW_PIECES,
    PIECE_BYTES,
    WINDOW_PIECES,
    Frame,
    Kind,
    PulledMessage,
    get_piece,
    message_id,
)

MESSAGE = random.Random(5).randbytes(9 * PIECE_BYTES + 7)


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = Frame.of(Frame(Kind.PIECE, bytes(range(16)), 2**40, b"body").to_bytes())
    assert frame is not None
    assert (frame.kind, frame.id, frame.number, bytes(frame.body)) == (Kind.PIECE, bytes(range(16)), 2**40, b"body")
    assert len(Frame(Kind.REPLY, bytes(16), 0, bytes(PIECE_BYTES + 16)).to_bytes()) <= MAX_FRAME_BYTES


@pytest.mark.parametrize("raw", [b"", b"\x01", bytes(24), bytes(25), b"\xff" * 40, b"INFO {}\r\n"])
def test_what_is_no_frame_is_none(raw: Any) -> None:
    assert Frame.of(raw) is None


@pytest.mark.parametrize("seed", range(4))
def test_pieces_that_are_lost_repeated_and_swapped_give_the_message(seed: int) -> None:
    chance, pulling, got, beats = random.Random(seed), PulledMessage(message_id(MESSAGE), len(MESSAGE)), b"", 0
    while not pulling.is_whole:
        numbers = [number for number in pulling.next_pieces() for _ in range(chance.choice((0, 1, 1, 1, 2)))]
        chance.shuffle(numbers)
        for number in numbers:
            if pulling.accept(number, get_piece(MESSAGE, number)):
                got += get_piece(MESSAGE, number)
        pulling.retry()
        beats += 1
        assert beats < 200
    assert pulling.is_intact and got == MESSAGE


def test_no_more_than_a_window_is_asked_for_at_once() -> None:
    pulling = PulledMessage(message_id(MESSAGE), len(MESSAGE))
    assert list(pulling.next_pieces(room=1)) == [0] and list(pulling.next_pieces()) == list(range(1, WINDOW_PIECES))
    assert list(pulling.next_pieces()) == [] and pulling.in_flight == WINDOW_PIECES
    assert pulling.accept(0, get_piece(MESSAGE, 0)) and list(pulling.next_pieces()) == [
        WINDOW_PIECES,
        WINDOW_PIECES + 1,
    ]


def test_a_message_of_mixed_pieces_is_not_what_its_name_says() -> None:
    pulling = PulledMessage(message_id(MESSAGE), len(MESSAGE))
    for number in range(10):
        assert pulling.accept(
            number, bytes(len(get_piece(MESSAGE, number))) if number == 3 else get_piece(MESSAGE, number)
        )
    assert pulling.is_whole and not pulling.is_intact


@pytest.mark.parametrize("body", [b"", b"short", bytes(PIECE_BYTES - 1), bytes(PIECE_BYTES + 1)])
def test_a_piece_of_another_length_does_not_count(body: Any) -> None:
    assert not PulledMessage(message_id(MESSAGE), len(MESSAGE)).accept(0, body)


def test_the_window_doubles_while_pieces_arrive_and_shrinks_after_a_loss() -> None:
    size = 100 * PIECE_BYTES
    pulling, windows = PulledMessage(bytes(16), size), []
    for _ in range(6):
        asked = list(pulling.next_pieces())
        windows.append(len(asked))
        assert all(pulling.accept(number, bytes(PIECE_BYTES)) for number in asked)
    assert windows == [4, 8, 16, 32, 40, 0] and MAX_WINDOW_PIECES >= 40
    lossy = PulledMessage(bytes(16), size, pushed=8)
    assert list(lossy.next_pieces()) == [] and lossy.in_flight == 8
    lossy.retry()
    lossy.retry()
    assert list(lossy.next_pieces()) == [0, 1, 2, 3], "what was pushed did not arrive"


def test_a_sender_that_says_it_pushes_more_than_there_is_is_not_believed() -> None:
    assert PulledMessage(bytes(16), PIECE_BYTES + 1, pushed=255).in_flight == 2
    assert PulledMessage(bytes(16), 500 * PIECE_BYTES, pushed=255).in_flight == MAX_PUSHED_PIECES
