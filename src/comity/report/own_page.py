"""The page of an owner's own scores: its records alone, the joint model, and the joint model adapted to its records.

Every figure on it is exact. `comity fetch --site` writes it into a folder that is not the result's, because a result
may be passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity._version import __version__
from comity.federation.evaluation.adaptation import OwnComparison
from comity.report.page import draw_section, render

if TYPE_CHECKING:
    from comity.study.results.result import Result


def render_own(result: Result, party: str, comparison: OwnComparison) -> str:
    return render(
        "own.html.jinja",
        result=result,
        party=party,
        part=draw_section(comparison.section()),
        sentence=comparison.sentence,
        version=__version__,
    )
