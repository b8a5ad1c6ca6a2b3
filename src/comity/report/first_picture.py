"""The first picture of a result's page, as a figure for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.artefacts.artefact import Artefact
from comity.artefacts.section import Bar, Bars, Plot
from comity.errors import BadInput, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from comity.study.results.result import Result


def plot_result(result: Result) -> Figure:
    """What the page shows first; where it has no such picture, the error beside its baselines."""
    plot = find_first_plot(result)
    if plot is None:
        raise DataError(
            f"a run of {result.protocol} presents nothing that has a picture, and no error was measured; see .released"
        )
    try:
        from comity.report.matplotlib_plots import make_figure
    except ImportError as error:
        raise BadInput(
            f"result.plot() needs matplotlib, which can't be imported ({error}); install it with: pip install "
            "'comity[plots]', or write the page with result.report(PATH), which draws its pictures without it"
        ) from error
    return make_figure(plot)


def find_first_plot(result: Result) -> Plot | None:
    presented, assessment = result.presented, result.assessment
    if isinstance(presented, Artefact):
        plots = presented.section(result.model_noise).plots
        if plots:
            return plots[0]
    if assessment.error is None:
        return None
    bars = [Bar(one.name, one.error, one.spread) for one in assessment.baselines]
    bars.append(Bar("this result", assessment.error, ours=True))
    bars.sort(key=lambda bar: (bar.value, not bar.ours))
    return Bars("Error of the result and of its baselines", assessment.measure, tuple(bars))
