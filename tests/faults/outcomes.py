"""The outcomes of kills, counted by method and by the role that was killed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

COMPLETED, RESUMED, ENDED = "completed", "resumed", "ended"


@dataclass
class Tally:
    """`completed`: the run continued by itself; `resumed`: with the same run id; `ended`: with a clear status."""

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    violations: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.outcomes.total()

    def number(self, outcome: str) -> int:
        return sum(count for (*_, of), count in self.outcomes.items() if of == outcome)

    def add(self, method: str, role: str, outcome: str) -> None:
        self.outcomes[method, role, outcome] += 1

    def violated(self, method: str, role: str, sentence: str) -> None:
        self.violations.append((method, role, sentence))

    def rows(self) -> list[tuple[str, str, int, int, int, int, int]]:
        """Method, role, kills, completed, resumed, ended, violations."""
        found: list[tuple[str, str, int, int, int, int, int]] = []
        for method, role in dict.fromkeys((method, role) for method, role, _ in self.outcomes):
            completed, resumed, ended = (
                self.outcomes[method, role, outcome] for outcome in (COMPLETED, RESUMED, ENDED)
            )
            wrong = sum((method, role) == (of, by) for of, by, _ in self.violations)
            found.append((method, role, completed + resumed + ended, completed, resumed, ended, wrong))
        return sorted(found)
