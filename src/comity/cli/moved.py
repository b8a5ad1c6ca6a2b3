"""Commands that left the package: one sentence says where to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from comity.errors import ComityError

TO_EXPERIMENTS: Final = {"bench": "bench", "reproduce": "papers"}
"""Commands that are experiments now, by the name that they have there."""
# Whatever the command once took, the answer is the same sentence.
ANY_ARGUMENTS: Final[dict[str, Any]] = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}


class Moved(ComityError):
    exit_code = 2
    code = "moved"


def command(name: str, place: str) -> Callable[[typer.Context], None]:
    def moved(context: typer.Context) -> None:
        words = " ".join(context.args) if context.args else "list"
        raise Moved(
            f"`comity {name}` moved out of the package, to the experiments in Comity's source. In a checkout, run: "
            f"python -m experiments {place} {words}"
        )

    return moved
