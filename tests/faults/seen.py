"""Everything that any process saw of a run, recorded by that process, even if it is killed later.

A site's process records what it was asked and what it answers before the answer leaves; the coordinator's process
records what it opens, draws and releases as it learns it. So the record holds at least what left.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from comity.federation.coordinator.parties import Parties
from comity.federation.messages.ask import READY
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.owner.host import Answer, Host
from comity.federation.part import spec_of

ASKED, ANSWERED, OPENED = "asked", "answered", "opened"
RELEASED = "released at the end"


@dataclass(frozen=True)
class Sight:
    """Who saw what: `name` is the path of an ask, or a release with its number."""

    kind: str
    by: str
    run: str
    name: str
    digest: str


class Record:
    """A file to which several processes append, a line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, sight: Sight) -> None:
        line = json.dumps([sight.kind, sight.by, sight.run, sight.name, sight.digest]) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def sights(self, run: str) -> list[Sight]:
        """Those of one run."""
        if not self.path.exists():
            return []
        found = [Sight(*json.loads(line)) for line in self.path.read_text().splitlines()]
        return [sight for sight in found if sight.run == run]


def at_a_site(record: Record) -> None:
    """Record from now on what the hosts of this process are asked and answer."""
    answered = Host.answer

    def watched(self: Host, raw: bytes, digests: Any = None) -> Answer:
        answer = answered(self, raw, digests)
        if answer.path is None or answer.path == READY:
            # Whether a party would begin is looked at anew each time, and says nothing of its records.
            return answer
        path, reply = str(answer.path), answer.reply[:-SIGNATURE_BYTES]
        record.add(Sight(ASKED, self.party, answer.run, path, _digest(raw[:-SIGNATURE_BYTES])))
        if "refused" not in decode(reply):
            record.add(Sight(ANSWERED, self.party, answer.run, path, _digest(reply)))
        return answer

    Host.answer = watched  # type: ignore[method-assign]


def at_the_coordinator(record: Record) -> None:
    """Record from now on what the runs of this process open and draw."""
    sums, perturb, compute = Parties.sum, Parties.perturb, Parties.compute

    def noted(parties: Parties, name: Any, value: Any) -> None:
        number = parties._memory.counts[name]
        record.add(Sight(OPENED, "coordinator", parties.run, f"{name}[{number}]", _digest(encode(value))))

    def summed(self: Parties, step: Callable[..., Any], **values: Any) -> Any:
        total = sums(self, step, **values)
        noted(self, spec_of(step, self.consortium).sends, [total.value, list(cast(Any, total.names))])
        return total

    def perturbed(self: Parties, name: str, value: Any) -> Any:
        noisy = perturb(self, name, value)
        noted(self, name, noisy)
        return noisy

    def computed(self: Parties, name: str, values: Any) -> Any:
        found = compute(self, name, values)
        noted(self, name, found)
        return found

    Parties.sum, Parties.perturb, Parties.compute = summed, perturbed, computed  # type: ignore[method-assign]


def released(record: Record, run: str, values: Any) -> None:
    record.add(Sight(OPENED, "coordinator", run, RELEASED, _digest(encode(values))))


def twice(sights: Iterable[Sight]) -> list[str]:
    """Names that have two contents: two noises, or two asks."""
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for sight in sights:
        found.setdefault((sight.kind, sight.by, sight.run, sight.name), set()).add(sight.digest)
    return [f"{by} {kind} {name} in {len(of)} ways" for (kind, by, _, name), of in found.items() if len(of) > 1]


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
