"""Count what becomes of kills, method by method, and print it as a table: `make faults`.

python -m tests.faults.matrix --write docs/reliability.md
python -m tests.faults.matrix --kills 20 --seed 7 --method auction
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import local_kills, table
from tests.faults.consortia import METHODS, make
from tests.faults.outcomes import Tally

LOCAL = "processes"
SEED = 1
_MEMORY = Path("/dev/shm")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.matrix", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each method over the local channel")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--method", action="append", choices=METHODS, help="may stand several times; all if left out")
    parser.add_argument("--write", type=Path, help="the page whose table takes the rows")
    chosen = parser.parse_args(words)
    wrong = 0
    for method in chosen.method or METHODS:
        began = time.monotonic()
        tally = counted(method, chosen.kills, chosen.seed)
        wrong += _told(LOCAL, tally, chosen.seed, chosen.write, time.monotonic() - began)
    return int(wrong > 0)


def counted(method: str, kills: int, seed: int) -> Tally:
    # In memory where there is such a folder: a killed process loses nothing that it gave to the system, on any disk.
    with tempfile.TemporaryDirectory(
        prefix="comity-faults-", dir=_MEMORY if _MEMORY.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        there = Path(folder)
        return local_kills.kills(make(there / "pristine", method), there, kills, seed)


def _told(channel: str, tally: Tally, seed: int, page: Path | None, seconds: float) -> int:
    found = table.lines(channel, tally, seed)
    print("\n".join(found), f"{seconds:.0f} s", *(sentence for *_, sentence in tally.violations), sep="\n", flush=True)
    if page is not None:
        table.write(page, found)
    return len(tally.violations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
