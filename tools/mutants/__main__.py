"""`python -m tools.mutants`: try every mutant of the catalogue, or those whose file or rule contains a given word."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tools.mutants.catalogue import CATALOGUE, Mutant, read
from tools.mutants.trial import KILLED, Verdict, copied, reaches, tested, tried

# Longer than any of the named files takes on a busy machine.
_LONGEST = 600.0
# A mutant may make its tests slower than they are; one that hangs is no kill.
_SLOWER, _AT_LEAST = 6.0, 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="try only mutants whose file or rule contains one of these")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the tree; it is copied, never edited")
    parser.add_argument("--catalogue", type=Path, default=CATALOGUE)
    given = parser.parse_args(arguments)
    mutants = [
        mutant
        for mutant in read(given.catalogue)
        if not given.words or any(word in f"{mutant.file} {mutant.rule}" for word in given.words)
    ]
    if not mutants:
        print("no mutant has these words in its file or its rule", file=sys.stderr)
        return 2
    return attack(given.root, mutants, given.jobs)


def attack(root: Path, mutants: Sequence[Mutant], jobs: int) -> int:
    """0 if every mutant is killed by tests that pass without it; 1 otherwise."""
    started = time.perf_counter()
    # What the tests compile when they pass is there for every mutant.
    with copied(root) as warm, ThreadPoolExecutor(jobs) as pool:
        if not reaches(warm, mutants[0], _LONGEST):
            print(f"the tests do not import {mutants[0].file} of the copied tree: nothing here would mean anything")
            return 1
        paths = sorted({path for mutant in mutants for path in mutant.tests})
        plain = dict(zip(paths, pool.map(lambda path: tested(warm, [path], _LONGEST), paths)))
        failing = {path: ran for path, ran in plain.items() if ran.code != 0}
        for path, ran in failing.items():
            print(f"without any mutant {path} does not pass, so that a kill by it means nothing:\n{ran.output[-600:]}")
        if failing:
            return 1
        print(f"{len(paths)} files of tests pass unmutated ({time.perf_counter() - started:.0f} s)", flush=True)
        verdicts = []
        futures = [
            pool.submit(partial(tried, warm, mutant, _AT_LEAST + _SLOWER * sum(plain[p].seconds for p in mutant.tests)))
            for mutant in mutants
        ]
        for future in as_completed(futures):
            verdicts.append(future.result())
            print(verdicts[-1], flush=True)
    return summed(verdicts, time.perf_counter() - started)


def summed(verdicts: Sequence[Verdict], seconds: float) -> int:
    counts = Counter(verdict.outcome for verdict in verdicts)
    print(f"{len(verdicts)} mutants in {seconds:.0f} s: {', '.join(f'{n} {what}' for what, n in counts.most_common())}")
    spared = [verdict for verdict in verdicts if verdict.outcome != KILLED]
    for verdict in spared:
        print(f"NOT KILLED {verdict}")
    return 1 if spared else 0


if __name__ == "__main__":
    sys.exit(main())
