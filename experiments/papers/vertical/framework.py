"""Figure 1 of Xu, Yuan and Wu (2019), the framework in four steps: what runs compute, draw and send, counted."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Bounded, Numeric, Schema
from comity.entropy import Stream
from comity.methods.vertical import (
    Vertical,
)
from experiments.papers.exhibit import Exhibit, Line, Measured, judge_near
from experiments.papers.vertical.comparisons import (
    judge_all,
    make_trend,
    numbers,
)

WIDTHS = (8, 16, 32)
PARTIES = (2, 4, 8)
_FIGURE = "Figure 1 is a drawing without figures; the text of section General Model Framework has this one"


def figure_1(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    """The framework: what a run of each size computes, draws and sends, and whether the number of parties matters."""
    return (framework(rows=400 if quick else 4000, seeds=6 if quick else 20),)


def framework(*, rows: int, seeds: int) -> Exhibit:
    lines, products = [], []
    for width in WIDTHS:
        protocol: Any = _published(width, 2).study(["p0", "p1"], epsilon=1.0).protocol
        counted = sum(protocol.coefficient_counts.values())
        products.append(protocol.inner_products)
        lines.append(
            Line(
                f"coefficients of squared loss, d = {width}",
                1 + width + width**2,
                "section Dissecting objective function: 1 + d + d²",
                published=Measured(counted),
                why="sent once each, with one draw of noise",
            )
        )
        lines.append(
            Line(
                f"secure inner products, d = {width}, K = 2",
                None,
                "section Secure vector multiplication has O(dJK), section Discussion at most d²",
                published=Measured(products[-1]),
                why="products of the two parties' columns, the label among them",
            )
        )
    errors, spread, drawn = {}, {}, {}
    for parties in PARTIES:
        measured = Measured.of([_run(8, parties, rows, seed) for seed in range(seeds)])
        errors[parties], spread[parties] = measured.mean, measured.spread
        study = _published(8, parties).study([f"p{number}" for number in range(parties)], epsilon=1.0)
        declared = study.protocol.declare(study.consortium)
        drawn[parties] = sum(release.times for release in declared.releases if release.noise is not None)
        lines.append(
            Line(
                f"mean squared error of whole runs, d = 8, K = {parties}",
                None,
                "Claim 1 says that it does not change with K, and gives no figure",
                published=measured,
                why="generated records at eps 50, through sealed products between the parties",
            )
        )
        lines.append(
            Line(
                f"draws of noise by a party, K = {parties}",
                1,
                _FIGURE,
                published=Measured(drawn[parties]),
                why="declared draws of one run; a site draws no more than it declared",
            )
        )
    error = max(spread.values()) * 2 / np.sqrt(seeds)
    return Exhibit(
        "Figure 1",
        "the framework in four steps, counted in runs",
        "counts, and mean squared errors where lower is better",
        f"{rows} generated records of 8 features at K parties, {seeds} runs each; counts are those of the protocol.",
        tuple(lines),
        (
            make_trend(
                "one round of noise addition",
                judge_all(judge_near(count, 1, tolerance=0) for count in drawn.values()),
                f"{numbers(drawn.values())} draws by a party for K = 2, 4, 8",
                "a party drew more than once",
            ),
            make_trend(
                "Claim 1: the utility does not change with the number of parties",
                judge_all(judge_near(errors[k], errors[2], tolerance=float(error)) for k in PARTIES),
                f"errors {numbers(errors.values())} for K = 2, 4, 8, means of {seeds} runs with deviations up to "
                f"{max(spread.values()):.3g}",
                "the means of the runs differ by more than two of their deviations",
            ),
            make_trend(
                "the number of secure products is O(dJK): twice the features, twice the products",
                judge_all(judge_near(b / a, 2.0, tolerance=0.5) for a, b in pairwise(products)),
                f"{numbers(products)} products for d = {numbers(WIDTHS)}",
                "every pair of features at different parties is a product: about d²(1 − 1/K)/2 of them",
            ),
        ),
    )


def _published(width: int, parties: int) -> Vertical:
    names = [f"x{place}" for place in range(width)]
    schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Bounded("y", -1, 1))
    held = {f"p{number}": names[number::parties] for number in range(parties)}
    held["p0"] = [*held["p0"], "y"]
    return Vertical(schema, columns=held, variant="published", max_rows=1 << 14)


def _run(width: int, parties: int, rows: int, seed: int) -> float:
    """The test error of one whole run."""
    stream = Stream.public("reproduce vertical", "framework", seed)
    features = 2 * stream.uniform((2 * rows, width)) - 1
    labels = np.clip(features @ (np.arange(width) % 3 - 1) / width + 0.1 * stream.normal(2 * rows), -1, 1)
    method = _published(width, parties)
    frame = pd.DataFrame(features, columns=[f"x{place}" for place in range(width)]).assign(y=labels)
    frames = {party: frame.iloc[:rows][list(columns)] for party, columns in method.given_columns.items()}
    # The result is compared with nothing here: other seeds draw the noise anew for each number of parties.
    result = method.simulate(frames, epsilon=50.0, seed=100 * parties + seed, test=frame.iloc[rows:])
    assert result.error is not None
    return float(result.error)
