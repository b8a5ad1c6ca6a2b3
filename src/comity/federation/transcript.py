"""What crossed the wire: sizes, rounds, hashes. A view of the journal, the same after any number of resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from comity.federation.journal import Journal, digest


@dataclass(frozen=True)
class Line:
    """One direction of one ask. No digest where replies travelled in clear: the hash of a small value is the value."""

    path: str
    direction: str
    parties: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Transcript:
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


def transcript_of(journal: Journal, study: str, run: str, *, entrusted: frozenset[str]) -> Transcript:
    """`entrusted` names the steps whose replies are plaintext to the coordinator."""
    lines = []
    for path, exchanges in journal.traffic(study, run):
        sent = [exchange.message for exchange in exchanges.values()]
        replies = [exchange.reply for exchange in exchanges.values() if exchange.reply is not None]
        shown = path.partition("[")[0] not in entrusted
        lines.append(Line(path, "to parties", len(sent), sum(map(len, sent)), digest(sent)))
        lines.append(
            Line(path, "to coordinator", len(replies), sum(map(len, replies)), digest(replies) if shown else "")
        )
    return Transcript(tuple(lines))
