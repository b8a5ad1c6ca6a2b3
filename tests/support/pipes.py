"""Sites as forked processes behind pipes: a channel whose parties can be killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .channels import Whole
from .children import fork

PIDS = "pids"


class PipeChannel(Whole):
    """`answering` makes a party's answer to an ask, in that party's process. A site that died is lost. The numbers of
    the processes stand in `folder`, by party."""

    def __init__(
        self, folder: Path, names: Iterable[str], answering: Callable[[str], Callable[[bytes], bytes]]
    ) -> None:
        self.sites: dict[str, Any] = {}
        for name in names:
            to_site, to_us = os.pipe(), os.pipe()
            child = fork()
            if child == 0:
                os.close(to_site[1])
                os.close(to_us[0])
                for other in self.sites.values():
                    os.close(other[1])
                    os.close(other[2])
                _serve(answering, name, to_site[0], to_us[1])
            os.close(to_site[0])
            os.close(to_us[1])
            self.sites[name] = (child, to_site[1], to_us[0])
        (folder / "pids.new").write_text(" ".join(str(pid) for pid, *_ in self.sites.values()))
        (folder / "pids.new").rename(folder / PIDS)  # whoever kills finds all of them, or no file

    def carry(self, messages: Any) -> Any:
        for name, message in messages.items():
            with contextlib.suppress(BrokenPipeError):
                send(self.sites[name][1], message)
        replies = {name: receive(self.sites[name][2]) for name in messages}
        return {name: reply for name, reply in replies.items() if reply is not None}


def send(descriptor: int, message: bytes) -> None:
    rest = memoryview(len(message).to_bytes(8, "big") + message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> bytes | None:
    def exactly(count: Any) -> Any:
        out = b""
        while len(out) < count:
            piece = os.read(descriptor, count - len(out))
            if not piece:
                return None
            out += piece
        return out

    head = exactly(8)
    return None if head is None else exactly(int.from_bytes(head, "big"))


def _serve(answering: Any, name: str, inward: int, outward: int) -> None:
    try:
        answer = answering(name)
        while (ask := receive(inward)) is not None:
            send(outward, answer(ask))
    finally:
        os._exit(0)
