"""`comity plan`: what a study would release, to whom, protected how, at what cost. No data is read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from comity.cli.options import AsJson, Sets, StudyFile, overrides
from comity.cli.output import show


def plan(
    study: StudyFile,
    everything: Annotated[bool, typer.Option("--all", help="Show every default that the study uses, too.")] = False,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Show what a study would do, before anything runs: releases, receivers, protections, loss. Reads no data.

    Example: comity plan study.toml --all
    """
    from comity.study.simulation.grants import require_grant
    from comity.study.study import Study

    loaded = Study.load(study, overrides=overrides(sets))
    planned, defaults = loaded.plan(), loaded.defaults()
    require_grant(loaded)
    document: dict[str, Any] = {**planned.as_json(), "hash": loaded.hash}
    lines = [*planned.as_text().split("\n"), f"  study hash     {loaded.hash}"]
    if everything:
        document["defaults"] = defaults
        width = max(map(len, defaults), default=0)
        lines += ["  defaults used", *(f"    {key.ljust(width)}  {value}" for key, value in defaults.items())]
    show(lines, document, as_json=as_json)
