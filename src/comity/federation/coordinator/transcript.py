"""The transcript of a run: sizes, rounds and hashes of its messages, read from the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal, Trace
from comity.federation.declare.protection import Entrusted, EntrustedRounds
from comity.federation.part import steps_of
from comity.representation import html_frame, short_repr

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Line:
    """One direction of one ask. Replies in clear have no digest: the hash of a small value reveals the value."""

    path: str
    direction: str
    parties: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Transcript:
    __repr__ = short_repr

    lines: tuple[Line, ...]

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def rounds(self) -> int:
        return sum(line.direction == "to parties" for line in self.lines)

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.lines)

    def as_rows(self) -> list[dict[str, object]]:
        return [asdict(line) for line in self.lines]

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each message and direction."""
        import pandas as pd

        return pd.DataFrame(self.as_rows())

    def _repr_html_(self) -> str:
        return html_frame(repr(self), self.frame)


def entrusted_steps(agreement: Agreement) -> frozenset[str]:
    """The steps whose replies the coordinator reads in clear."""
    in_clear = {
        one.name for one in agreement.declaration.releases if isinstance(one.protection, Entrusted | EntrustedRounds)
    }
    specs = steps_of(agreement.protocol, agreement.consortium)
    return frozenset(spec.name for spec in specs if spec.sends in in_clear)


def transcript_of(journal: Journal, study: str, run: str, *, entrusted: frozenset[str]) -> Transcript:
    """The transcript of a run. `entrusted` names the steps whose replies the coordinator reads in clear."""
    lines = []
    for path, asks, replies in journal.traces(study, run):
        shown = path.partition("[")[0] not in entrusted
        lines.append(_line(path, "to parties", asks, shown=True))
        lines.append(_line(path, "to coordinator", replies, shown=shown))
    return Transcript(tuple(lines))


def _line(path: str, direction: str, traces: Sequence[Trace], *, shown: bool) -> Line:
    """The digest is over the digests of the messages, in the order of the parties."""
    digest = hashlib.sha256(b"".join(trace.digest for trace in traces)).hexdigest() if shown else ""
    return Line(path, direction, len(traces), sum(trace.size for trace in traces), digest)
