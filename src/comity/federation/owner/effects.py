"""What a step wants to happen. Nothing has happened until the store commits it, together with the reply."""

from __future__ import annotations

from dataclasses import dataclass, field

from comity.federation.messages.heads import Head
from comity.privacy.permit import Permit


@dataclass
class Effects:
    reserve: bool = False
    # Only looked at: what reserving would raise is raised, and nothing of the step is written.
    look_ahead: bool = False
    close: bool = False
    abandon: bool = False
    draws: list[tuple[str, int]] = field(default_factory=list)
    # None forgets what an earlier step kept.
    state: dict[str, bytes | None] = field(default_factory=dict)
    mail: list[dict[str, object]] = field(default_factory=list)
    # What letters to several receivers share.
    boxes: list[bytes] = field(default_factory=list)
    # What this owner receives and keeps beyond the run, by name and path of the ask that brought it.
    delivered: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # Heads of other parties' ledgers to remember after the run, by party and pinned key.
    heads: dict[tuple[str, bytes], list[Head]] = field(default_factory=dict)

    def draw(self, release: str, index: int) -> Permit:
        """Note the debit before the noise exists. If the commit does not come through, the noise is never sent."""
        self.draws.append((release, index))
        return Permit(release, index)

    def forget_all_but_draws(self) -> None:
        """What was drawn is spent; nothing else of a step that failed after it happens."""
        self.mail.clear()
        self.boxes.clear()
        self.state.clear()
        self.delivered.clear()
