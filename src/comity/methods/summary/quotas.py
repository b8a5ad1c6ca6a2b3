"""How many records each owner hands over: shares of noisy masses, capped by public sizes, before a record is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from comity.errors import StudyError


def quotas(masses: Mapping[str, float], sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """`count` places dealt to owners in proportion to their masses, no owner more than its public size.

    A noisy mass may be negative: it counts as none. What a cap leaves over goes to the others, by their masses, and by
    their room where none of them has any. Largest remainders get the last places, ties in the order of the study.
    """
    room = dict(sizes)
    if not 0 <= count <= sum(room.values()):
        raise StudyError(
            f"summary.records = {count} asks for more than the owners have, {sum(room.values())} by summary.sizes; "
            "lower it",
            key="summary.records",
        )
    dealt = dict.fromkeys(room, 0)
    left = count
    while left:
        open_ = [owner for owner in room if dealt[owner] < room[owner]]
        weights = np.array([max(0.0, masses[owner]) for owner in open_])
        if not weights.sum() > 0:
            weights = np.array([float(room[owner] - dealt[owner]) for owner in open_])
        ideal = left * weights / weights.sum()
        if all(dealt[owner] + wanted <= room[owner] for owner, wanted in zip(open_, ideal)):
            whole = np.floor(ideal).astype(int)
            order = np.argsort(-(ideal - whole), kind="stable")
            whole[order[: left - int(whole.sum())]] += 1
        else:
            whole = np.floor(ideal).astype(int)
        for owner, wanted in zip(open_, whole):
            dealt[owner] += int(min(wanted, room[owner] - dealt[owner]))
        spread = count - sum(dealt.values())
        if spread == left:
            # Less than one place for each of them: the largest share first.
            best = open_[int(np.argmax(weights))]
            dealt[best] += 1
            spread -= 1
        left = spread
    return dealt
