"""What a step changes, and what the steps of a run keep for each other. The store commits all of it with the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from comity.federation.declare.declaration import SumGroup
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.heads import Head
from comity.privacy.permit import Permit

_OF_SUMS = "sum."


@dataclass
class Effects:
    """What a step wants to happen. Nothing has happened until the store commits it, together with the reply."""

    reserve: bool = False
    # Only a dry run: it raises what reserving would raise, and nothing of the step is written.
    dry_run: bool = False
    close: bool = False
    abandon: bool = False
    draws: list[tuple[str, int]] = field(default_factory=list)
    # None deletes what an earlier step kept.
    state: dict[str, bytes | None] = field(default_factory=dict)
    mail: list[dict[str, object]] = field(default_factory=list)
    # What letters with large values, or to several receivers, name by its SHA-256.
    boxes: dict[bytes, bytes] = field(default_factory=dict)
    # What this owner receives and keeps after the run, by name and path of the ask that brought it.
    delivered: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # Heads of other parties' ledgers to remember after the run, by party and pinned key.
    heads: dict[tuple[str, bytes], list[Head]] = field(default_factory=dict)

    def draw(self, release: str, index: int) -> Permit:
        """Note the debit before the noise is drawn. If the commit fails, the noise is never sent."""
        self.draws.append((release, index))
        return Permit(release, index)

    def forget_all_but_draws(self) -> None:
        """Leave only the debits of a step that failed after a draw."""
        self.mail.clear()
        self.boxes.clear()
        self.state.clear()
        self.delivered.clear()


class RunState:
    """What the steps of a run keep for each other at one site.

    Steps that see held-out records and steps that see the others do not see what the other kind keeps. Nor do the
    groups of the secure sum: each has its own masks, shares, lists and thresholds. `stored_before` reads what earlier
    steps committed.
    """

    def __init__(
        self,
        effects: Effects,
        stored_before: Callable[[str], bytes | None],
        *,
        holdout: bool,
        sum_group: SumGroup | None = None,
    ) -> None:
        self.effects = effects
        self.holdout = holdout
        self._stored_before = stored_before
        self._sum_group = sum_group

    @property
    def dims(self) -> Mapping[str, int]:
        """The public sizes that the run has bound. It is made here each time: a cycle would keep a step's letters in
        memory until the collector of cycles finds them."""
        return _Dimensions(self)

    def of_sums(self, group: SumGroup) -> RunState:
        """The same run, as steps of the secure sum of this group see it."""
        return RunState(self.effects, self._stored_before, holdout=False, sum_group=group)

    def keep(self, name: str, value: Any) -> None:
        self.effects.state[self._place(name)] = encode(value)

    def forget(self, name: str) -> None:
        self.effects.state[self._place(name)] = None

    def kept(self, name: str, default: Any = None) -> Any:
        raw = self.stored(self._place(name))
        return default if raw is None else decode(raw)

    def stored(self, place: str) -> bytes | None:
        """The bytes at a place, whichever part of the records or sum group it belongs to."""
        state = self.effects.state
        return state[place] if place in state else self._stored_before(place)

    def _place(self, name: str) -> str:
        if self._sum_group is not None and self._sum_group.place and name.startswith(_OF_SUMS):
            name = f"{name}@{self._sum_group.place}"
        return place_of(name, holdout=self.holdout)


def place_of(name: str, *, holdout: bool) -> str:
    """Where steps that see held-out records, or the others, keep a value. Values of the run have one place for both."""
    return f"aside:{name}" if holdout and not name.startswith("run:") else name


class _Dimensions(Mapping[str, int]):
    """The public sizes that a run has bound. Each is read when a step needs it, because most steps need none."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> int:
        value = self._state.kept(f"dim:{name}")
        if value is None:
            raise KeyError(name)
        return int(value)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the dimensions of a run are looked up by name")

    def __len__(self) -> int:
        raise TypeError("the dimensions of a run are looked up by name")
