"""A channel whose sites live in this process."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from time import thread_time

from comity.errors import ComityError
from comity.federation.host import Answer, Host


# Seconds of a step from which on several threads are worth it: shorter ones only wait for each other's interpreter lock.
_WORTH_THREADS = 0.02


class LocalChannel:
    """Calls each party's host. It carries the same bytes as a deployment; it remembers the sentence of a refusal by
    party, since in a simulation the coordinator and the owner are one person."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._workers = min(4, cpu_count() or 1)
        self.refusals: dict[str, ComityError] = {}

    def ask(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        answers: dict[str, Answer] = {}
        waiting = list(messages)
        while waiting:
            started = thread_time()
            party = waiting.pop(0)
            answers[party] = self._answered(party, messages)
            if thread_time() - started > _WORTH_THREADS and len(waiting) > 1:
                with ThreadPoolExecutor(self._workers) as pool:
                    answers.update(zip(waiting, pool.map(lambda one: self._answered(one, messages), waiting)))
                break
        for party, answer in answers.items():
            if answer.refusal is not None:
                self.refusals[party] = answer.refusal
        return {party: answer.reply for party, answer in answers.items()}

    def _answered(self, party: str, messages: Mapping[str, bytes]) -> Answer:
        return self._hosts[party].answered(messages[party])
