"""The command line. Exit codes: 0 done, 1 a defect of ours, 2 wrong usage, 3 bad input, 4 refused, 5 stopped.

Commands import what they need when they run: `comity --help` answers at once.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from typer.main import get_command

from comity.cli.app import COMMANDS, make_app
from comity.cli.failure import report_failure

__all__ = ["main"]

# What Typer makes of an interrupt before we see it.
_INTERRUPTED = 130
_GC_THRESHOLD = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a failure prints one sentence on stderr."""
    # Imported modules stay to the end; collecting them again and again takes a sixth of a plan's time.
    gc.set_threshold(_GC_THRESHOLD)
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Without a handler Python would print the sites' logs on stderr.
    logging.getLogger("comity").addHandler(logging.NullHandler())
    try:
        only = words[0] if words and words[0] in COMMANDS else None
        code = _command_tree(only)(words, prog_name="comity", standalone_mode=False)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
    except BaseException as error:
        return report_failure(error, as_json="--json" in words)
    return code if isinstance(code, int) else 0


@cache
def _command_tree(only: str | None) -> Any:
    """Made from the signatures of the commands, which takes longer for all of them than most of them take to run."""
    return get_command(make_app(only))
