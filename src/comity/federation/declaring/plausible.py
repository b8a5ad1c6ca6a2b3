"""What is opened, compared with what public figures allow, before anything is made of it.

Honest contributions lie within the bound of their release, so their sum lies within as many times that bound, up to
noise and rounding (`noise_tail`). A method knows more: the totals of tables, the signs of second moments. A sum outside
is no honest one: some party sent other values than the study lets it send, or masks that do not cancel. The check reads
an opened value and public figures alone, so it costs nothing. It is a check and no defence: a party that lies within
these ranges is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from comity.errors import Implausible
from comity.federation.declaring.consortium import Consortium
from comity.federation.declaring.noise_tail import NoiseTail
from comity.federation.declaring.ranges import Range
from comity.federation.declaring.release import Release

Floats = NDArray[np.float64]

# Figures are computed in doubles: relative to the largest of them, more than the error of a sum of 2^17 terms.
_ARITHMETIC = 1e-9


def require_plausible(release: Release, who: Consortium, total: Floats, parties: int, *, sender: str = "") -> None:
    """Refuse what was opened of so many contributions where the release's bound rules it out. `sender` is the party
    whose own value it is, where it is one party's."""
    require_ranges(release, who, parties, release.bounded.ranges(total, parties), sender=sender)


def require_ranges(
    release: Release, who: Consortium, parties: int, ranges: Iterable[Range], *, sender: str = ""
) -> None:
    """Refuse an opened value one of whose figures lies further outside its range than noise and rounding carry it."""
    tail = NoiseTail(release, who, parties)
    for one in ranges:
        if not one.found.size:
            continue
        moved = tail.of_figures(one.weights, one.found.size)
        if one.moves == "norm":
            moved = tail.of_norm(one.size) * one.weights.l2
        low, high = np.asarray(one.low, np.float64), np.asarray(one.high, np.float64)
        moved = moved + _ARITHMETIC * np.maximum(np.abs(low), np.abs(high))
        # Written so that NaN fails.
        beyond = np.where(one.found > high, one.found - high, low - one.found) - moved
        if not (beyond <= 0).all():
            raise _implausible(release, one, np.broadcast_to(moved, one.found.shape), beyond, sender)


def _implausible(release: Release, one: Range, moved: Floats, beyond: Floats, sender: str) -> Implausible:
    at = np.unravel_index(int(np.argmax(np.nan_to_num(beyond, nan=np.inf))), beyond.shape)
    low, high = (float(np.broadcast_to(side, beyond.shape)[at]) for side in (one.low, one.high))
    allowed = f"exactly {low:g}" if low == high else f"from {low:g} to {high:g}"
    whose = f"what {sender} sent" if sender else "the opened sum"
    advice = (
        "it runs another program than the study says, or another version of it"
        if sender
        else "a party sent other values than the study lets it send. No result was made: let every owner check its "
        "site and version, and begin a new run without the one that can't explain it"
    )
    return Implausible(
        f"{release.name}: {whose} lies outside of what public figures allow: {one.what} is expected {allowed}, give or "
        f"take {float(moved[at]):.4g} for noise and rounding, found {float(one.found[at]):.6g}; {advice}",
        key=release.name,
    )
