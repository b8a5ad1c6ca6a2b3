"""A channel whose sites live in this process."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from comity.errors import ComityError
from comity.federation.host import Host


class LocalChannel:
    """Calls each party's host. It carries the same bytes as a deployment; it remembers the sentence of a refusal by
    party, since in a simulation the coordinator and the owner are one person."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._workers = min(4, cpu_count() or 1)
        self.refusals: dict[str, ComityError] = {}

    def ask(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        if len(messages) < 2:
            answers = [self._hosts[party].answered(message) for party, message in messages.items()]
        else:
            with ThreadPoolExecutor(self._workers) as pool:
                answers = list(pool.map(lambda party: self._hosts[party].answered(messages[party]), messages))
        for party, answer in zip(messages, answers):
            if answer.refusal is not None:
                self.refusals[party] = answer.refusal
        return {party: answer.reply for party, answer in zip(messages, answers)}
