"""Frames between the two processes of a site: the one that talks to the relay and the one that answers.

A step may hold the interpreter's lock for longer than anybody waits for a sign of life, so that whoever gives these
signs lives in a process of its own.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

from comity.relay.frames import LONGEST, Frame

_LENGTH = struct.Struct(">I")


def packed(frame: Frame) -> bytes:
    raw = frame.to_bytes()
    return _LENGTH.pack(len(raw)) + raw


def frames(line: socket.socket) -> Iterator[Frame]:
    """What the other end says, until it is gone."""
    with line.makefile("rb", buffering=LONGEST) as file:
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            frame = Frame.of(file.read(_LENGTH.unpack(head)[0]))
            if frame is None:
                return
            yield frame


async def next_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next that the other end says; None when it is gone."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return Frame.of(await reader.readexactly(_LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
