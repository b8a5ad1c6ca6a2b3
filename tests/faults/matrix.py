"""Count the outcomes of kills for each method, and print them as a table: `make faults`.

python -m tests.faults.matrix --write docs/reliability.md
python -m tests.faults.matrix --kills 20 --seed 7 --method auction
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import deployed_kills, local_kills, table
from tests.faults.consortia import METHODS, make
from tests.faults.outcomes import Tally

LOCAL, DEPLOYED = "processes", "relay"
SEED = 1
_MEMORY = Path("/dev/shm")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.matrix", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each method over the local channel")
    parser.add_argument("--deployed", type=int, default=10, help="kills of each method and role over a relay")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--method", action="append", choices=METHODS, help="may stand several times; all if left out")
    parser.add_argument("--write", type=Path, help="the page whose table takes the rows")
    chosen = parser.parse_args(words)
    wrong = 0
    for method in chosen.method or METHODS:
        for channel, count in ((LOCAL, chosen.kills), (DEPLOYED, chosen.deployed)):
            if count:
                began = time.monotonic()
                tally = counted(channel, method, count, chosen.seed)
                wrong += _told(channel, tally, chosen.seed, chosen.write, time.monotonic() - began)
    return int(wrong > 0)


def counted(channel: str, method: str, kills: int, seed: int) -> Tally:
    """So many kills of a method over the local channel, or so many of each role over a relay."""
    # In memory where there is such a folder: a killed process loses nothing that it gave to the system, on any disk.
    with tempfile.TemporaryDirectory(
        prefix="comity-faults-", dir=_MEMORY if _MEMORY.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        there = Path(folder)
        if channel == LOCAL:
            return local_kills.kills(make(there / "pristine", method), there, kills, seed)
        # Some more than there are kills: undisturbed runs are measured too.
        pristine = make(there / "pristine", method, runs=3 * kills + 10, deployed=True)
        return deployed_kills.kills(pristine, there, kills, seed)


def _told(channel: str, tally: Tally, seed: int, page: Path | None, seconds: float) -> int:
    found = table.lines(channel, tally, seed)
    print("\n".join(found), f"{seconds:.0f} s", *(sentence for *_, sentence in tally.violations), sep="\n", flush=True)
    if page is not None:
        table.write(page, found)
    return len(tally.violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
