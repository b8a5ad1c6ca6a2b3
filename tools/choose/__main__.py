"""`python -m tools.choose METHOD`: choose the constants of a method again. COMITY_DATA names the folder of the tables.

A method is a module here with `choices() -> Iterator[Choice]`. What is printed of a constant: the values that were
tried, the best over all datasets, the best with each left out, and what the one left out loses by that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from threadpoolctl import threadpool_limits

from tools.choose.leaving_out import Choice


def main(arguments: Sequence[str] | None = None) -> int:
    known = sorted(
        path.stem for path in Path(__file__).parent.glob("*.py") if path.stem in ("averaging", "softlabel", "vertical")
    )
    parser = argparse.ArgumentParser(prog="choose", description=__doc__)
    parser.add_argument("method", choices=known)
    parser.add_argument("words", nargs="*", help="only constants whose name contains one of these")
    parser.add_argument("--json", action="store_true", help="one object a constant")
    given = parser.parse_intermixed_args(arguments)
    module = import_module(f"tools.choose.{given.method}")
    offered: Iterator[Choice] = module.choices()
    with threadpool_limits(1, user_api="blas"):
        for choice in offered:
            if given.words and not any(word in choice.constant for word in given.words):
                continue
            found = choice.made()
            print(json.dumps(found.as_json()) if given.json else str(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
