"""How a failed command ends: one sentence on stderr (an object with `--json`), and an exit code.

The sentence is escaped, because it may quote what others wrote. It may name values: the person at this terminal owns
the file or the records. The traceback of a defect goes into a file that only this person can read.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

import typer

from comity.errors import BudgetExceeded, ComityError
from comity.untrusted.text import encode_json, escape_line, escape_lines, shorten

DEFECT, USAGE, BAD_INPUT, REFUSED, STOPPED = 1, 2, 3, 4, 5
"""Exit codes; 4 is also the code when an owner answers no."""


def report_failure(error: BaseException, *, as_json: bool) -> int:
    """Print what went wrong; returns the exit code."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else DEFECT
    details: dict[str, str] = {}
    if isinstance(error, ComityError):
        code, kind, sentence = error.exit_code, error.code, shorten(str(error))
        details = _details(error)
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        code, kind = STOPPED, "stopped"
        sentence = "stopped at your request; continue a run with: comity run --resume RUN"
    elif isinstance(error, BrokenPipeError):
        # The reader of our output closed it; without this, Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    elif hasattr(error, "format_message"):
        code, kind, context = USAGE, "usage", getattr(error, "ctx", None)
        # The words before it say nothing: every message about usage is about what was typed.
        sentence = str(error.format_message()).removeprefix("Invalid value: ")
        command = "comity" if context is None else context.command_path
        if sentence.startswith("Usage:"):
            # Without a command the message is the whole help page.
            if not as_json:
                print(escape_lines(sentence), file=sys.stderr)
                return code
            sentence = "a command is missing."
        sentence = sentence.rstrip()
        sentence += ("" if sentence.endswith((".", ")")) else ".") + f" See: {command} --help"
    else:
        code, kind = DEFECT, "defect"
        log = _log(error)
        sentence = (
            f"a defect of Comity: {type(error).__name__}. Please report it with the log {log}; first check that the "
            "log quotes none of your records"
        )
        details = {"log": log}
    if as_json:
        page = {"error": {"code": kind, "exit_code": code, "sentence": sentence, **details}}
        print(encode_json(page), file=sys.stderr)
    else:
        line = sentence if sentence.startswith("refused:") else f"{_WORDS[code]}: {sentence}"
        print(escape_line(line), file=sys.stderr)
    return code


_WORDS = {DEFECT: "error", USAGE: "usage", BAD_INPUT: "bad input", REFUSED: "refused", STOPPED: "stopped"}


def _details(error: ComityError) -> dict[str, str]:
    """What a program needs beside the sentence."""
    details = {"key": shorten(error.key)} if error.key else {}
    if isinstance(error, BudgetExceeded):
        details |= {"requested": error.requested, "remaining": error.remaining, "difference": error.difference}
    return details


def _log(error: BaseException) -> str:
    descriptor, path = tempfile.mkstemp(prefix="comity-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("".join(traceback.format_exception(error)))
    return path
