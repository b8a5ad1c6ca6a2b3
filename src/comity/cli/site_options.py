"""Options and questions that the commands of a site share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.untrusted.text import one_line

SiteOption = Annotated[Path, typer.Option("--site", help="The site file.")]
Yes = Annotated[bool, typer.Option("--yes", help="Answer yes to the question.")]
SITE = Path("site.toml")
DECLINED = 4
"""The exit code when the owner answers no."""


def agreed(question: str, *, yes: bool, as_json: bool) -> bool:
    import sys

    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} There is no terminal to ask at: give --yes.")
    return typer.confirm(one_line(question))
