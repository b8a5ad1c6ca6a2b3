"""Figures 3 and 4 of Fioretto and Van Hentenryck (2019) as exhibits, with pictures.

The paper plots them and prints no figures. What its text says about them is a trend, or a line where it has a number;
the last point of Figure 4 is in Table 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from math import log10
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from comity.data import Schema
from comity.entropy import Stream
from comity.methods.synthetic import Synthetic, SyntheticProtocol
from comity.methods.synthetic.published import Budget, Learner, count_levels, round_masses, solve_leaf_masses
from comity.methods.synthetic.published.baselines import (
    DEPTH,
    LEVELS,
    agent_release,
    encode_records,
    fit_and_measure,
)
from comity.privacy import Neighbours, SeededNoise, simulated_permit
from experiments.data.adult import adult, adult_schema
from experiments.papers.exhibit import Exhibit, Line, Measured, Trend, Verdict, judge_between, judge_near, judge_order
from experiments.papers.plot import Curve, Level, Panel, draw
from experiments.papers.synthetic.agents import EPSILON, Agents, Size
from experiments.papers.synthetic.datasets import SOURCES, Source
from experiments.papers.synthetic.fidelity import by_depth, distances
from experiments.papers.synthetic.printed import TASKS, printed
from experiments.papers.synthetic.sharers import KINDS, by_sharers, released
from experiments.papers.synthetic.table2 import released as release_default

FULL = Size(100, 100, (4, 5, 6, 7, 8, 9, 10), (1, 5, 10, 25, 50, 75, 100), 50)
QUICK = Size(100, 16, (4, 5, 6, 7, 8, 9, 10), (5, 10, 25, 50, 75, 100), 10)
METHODS = ("PFDS", "PFDS-", "DiffGen")
_PLOTTED = "Figure 3 is a plot; the paper prints no figure"
Values = dict[str, list[float]]


def collect(pairs: Sequence[tuple[str, float]]) -> Values:
    found: Values = {}
    for case, value in pairs:
        found.setdefault(case, []).append(value)
    return found


# Figure 3.


def figure3(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    size = QUICK if quick else FULL
    with threadpool_limits(1, user_api="blas"):
        agents = Agents.of(adult(), adult_schema(), size.agents)
        values = collect(list(by_depth(agents, size)))
        values |= collect([("share of least squares", one) for one in least_squares_shares(agents, size)])
        values |= collect(list(by_default(agents, adult(), adult_schema(), size)))
    return figure3_exhibits(values, size, out, quick=quick)


def by_default(agents: Agents, frame: pd.DataFrame, schema: Schema, size: Size) -> Iterator[tuple[str, float]]:
    """Figure 3 of the default: one dataset of all agents' records, beside these."""
    held = frame.iloc[agents.trained]
    method = Synthetic(schema, rows=round(len(held), -2)).protocol()
    assert isinstance(method, SyntheticProtocol)
    cells = method.encoding.encode(held).records
    started = process_time()
    made = release_default(method, cells, EPSILON, size.agents).frame
    yield "seconds, default", process_time() - started
    yield "sizes, default", float(abs(len(made) - len(held)))
    real, drawn = (agents.attributes.values(encode_records(schema, one).features) for one in (held, made))
    for distance in distances(agents.attributes, real, drawn, size.partitions):
        yield "wasserstein, default", distance


def least_squares_shares(agents: Agents, size: Size) -> list[float]:
    """How much of an agent's time the counts of the upper levels and the least squares take, at the paper's depth."""
    budget, found = Budget(Decimal(EPSILON), DEPTH, LEVELS, Neighbours.ADD_REMOVE), []
    for place in agents.filled[: size.looked_at]:
        noise, chance = SeededNoise(place), partial(Stream.public, "figure 3c", place)
        made = agent_release(agents.attributes, agents.own[place], budget, noise, chance)
        started = process_time()
        values = agents.attributes.values(agents.own[place].features)
        exact = count_levels(made.tree.shape, made.tree.path(values), LEVELS - 1)
        counts = budget.counts.run(noise, exact, permit=simulated_permit("counts"))
        round_masses(solve_leaf_masses(made.tree, counts, LEVELS - 1), chance("sizes"))
        found.append(min(1.0, (process_time() - started) / max(made.seconds, 1e-9)))
    return found


def figure3_exhibits(values: Values, size: Size, out: Path, *, quick: bool) -> tuple[Exhibit, ...]:
    setting = (
        f"Census (Adult), eps 1, 100 agents by anchors on age, figures of {size.looked_at} agents, depths "
        f"{', '.join(map(str, size.depths))}" + (" (quick: fewer agents)." if quick else ".")
    )
    taxonomy = (
        "The taxonomy of Mohammed et al. (2011) is not printed in the paper; one written from the meaning of Adult's "
        "categories stands in for it."
    )

    def series(panel: str, method: str) -> list[float]:
        return [float(np.mean(values[f"{panel}, {method} h={depth}"])) for depth in size.depths]

    def lines(panel: str, methods: Sequence[str], why: dict[str, str]) -> tuple[Line, ...]:
        return tuple(
            Line(
                case=f"{method}, h_max {depth}",
                source=_PLOTTED,
                published=Measured.of(values[f"{panel}, {method} h={depth}"]),
                why=why[method],
            )
            for method in methods
            for depth in size.depths
        )

    def picture(panel: str, name: str, methods: Sequence[str], y: str, *, logarithm: bool) -> tuple[Path, str]:
        curves = [
            _curve(method, size.depths, values, f"{panel}, {method} h=", style, logarithm)
            for style, method in enumerate(methods)
        ]
        return _draw(out / f"synthetic-{name}", "Census", curves, "depth of trees, or specialisations", y)

    def default(panel: str, why: str) -> Line:
        return Line(
            case="default: one dataset of all agents together, delta 1e-6",
            source="not in the paper",
            default=Measured.of(values[f"{panel}, default"]),
            why=why,
        )

    sizes = {method: series("sizes", method) for method in METHODS}
    orders = {
        method: max(log10(max(one, 1.0) / max(own, 1.0)) for one, own in zip(sizes[method], sizes["PFDS"]))
        for method in METHODS[1:]
    }
    said = {"PFDS-": 1.0, "DiffGen": 3.0}
    apart = {method: series("wasserstein", method) for method in METHODS}
    seconds = {method: series("seconds", method) for method in ("PFDS", "DiffGen")}
    deep = [place for place, depth in enumerate(size.depths) if depth > 4]
    factor = min(seconds["DiffGen"][place] / seconds["PFDS"][place] for place in deep)
    share = Measured.of(values["share of least squares"])
    return (
        Exhibit(
            name="Figure 3a",
            title="Error of the number of records",
            unit="records by which a shared dataset differs in size from the agent's own, lower is better",
            setting=setting,
            lines=(
                *lines(
                    "sizes",
                    METHODS,
                    {
                        "PFDS": "Least squares keep the root's count, which has little noise.",
                        "PFDS-": "Noise of empty leaves that is clipped at zero adds up.",
                        "DiffGen": "The same, for the classes of all leaves.",
                    },
                ),
                *(
                    Line(
                        case=f"largest ratio of the errors of {method} and PFDS, log10",
                        paper=said[method],
                        source="section 4, text about Figure 3a: up to one and three orders of magnitude",
                        published=Measured(orders[method]),
                        why="An error below one record counts as one.",
                    )
                    for method in METHODS[1:]
                ),
                default("sizes", "Records of all agents, whose number is in one noisy total."),
            ),
            trends=(
                *(
                    _trend(
                        f"PFDS makes datasets whose sizes are nearer to the original than those of {method}.",
                        judge_between(max(sizes["PFDS"]), min(sizes[method]), lower_is_better=True),
                        f"PFDS at most {max(sizes['PFDS']):.0f} records off, {method} {min(sizes[method]):.0f} or more",
                        "At small depths a tree has few leaves, and little noise adds up.",
                    )
                    for method in METHODS[1:]
                ),
                *(
                    _trend(
                        f"The improvement is up to 10^{said[method]:.0f} against {method}.",
                        judge_near(orders[method], said[method], tolerance=1.0),
                        f"up to 10^{orders[method]:.1f}",
                        "The number of leaves decides it, which depends on the cap on leaves or on the taxonomy.",
                    )
                    for method in METHODS[1:]
                ),
                _trend(
                    "DiffGen overestimates the size more than PFDS-, by the noise of its partition sizes.",
                    judge_between(sizes["PFDS-"][-1], sizes["DiffGen"][-1], lower_is_better=True),
                    f"at depth {size.depths[-1]} PFDS- is {sizes['PFDS-'][-1]:.0f} records off, DiffGen "
                    f"{sizes['DiffGen'][-1]:.0f}",
                    "A class count of DiffGen has wider noise, 2(d + 2h)/eps against 2h/eps, but h specialisations "
                    "along a taxonomy make far fewer leaves than h levels of a tree.",
                ),
            ),
            missing=(taxonomy,),
            pictures=(
                picture("sizes", "sizes", METHODS, "log10 of the error in the number of records", logarithm=True),
            ),
        ),
        Exhibit(
            name="Figure 3b",
            title="Distance of histograms of random partitions",
            unit="Wasserstein distance as a share of all cells, lower is better",
            setting=f"{setting} {size.partitions} random partitions (the paper: 50).",
            lines=(
                *lines(
                    "wasserstein",
                    METHODS,
                    dict.fromkeys(
                        METHODS, "Cells of a partition are one apart; shared records against the agent's own."
                    ),
                ),
                default("wasserstein", "All shared records against those of all agents."),
            ),
            trends=tuple(
                _trend(
                    f"PFDS is nearer to the original distribution than {method}.",
                    judge_between(
                        float(np.mean(apart["PFDS"])),
                        float(np.mean(apart[method])),
                        lower_is_better=True,
                        tolerance=0.005,
                    ),
                    f"mean over depths: PFDS {np.mean(apart['PFDS']):.3f}, {method} {np.mean(apart[method]):.3f}",
                    "All records are uniform in their boxes, which decides the distance more than the sizes do.",
                )
                for method in METHODS[1:]
            ),
            missing=(taxonomy,),
            pictures=(picture("wasserstein", "wasserstein", METHODS, "Wasserstein distance", logarithm=False),),
        ),
        Exhibit(
            name="Figure 3c",
            title="Time of one agent's release",
            unit="seconds of CPU, lower is better",
            setting=f"{setting} Seeded noise; everything compiled beforehand.",
            lines=(
                *lines(
                    "seconds",
                    ("PFDS", "DiffGen"),
                    {
                        "PFDS": "Trees and least squares are compiled, and the least squares need no iteration.",
                        "DiffGen": "Every specialisation scores all parts of all attributes.",
                    },
                ),
                Line(
                    case="share of PFDS's time that counts and least squares take, h_max 8",
                    source="section 4, text about Figure 3c: the overhead is relatively small",
                    published=share,
                    why="The paper solves the programme with Gurobi, here price messages do.",
                ),
                default("seconds", "The whole release of 100 owners, without masks."),
            ),
            trends=(
                _trend(
                    "PFDS is at least one order of magnitude faster than DiffGen for h_max above 4.",
                    judge_factor(factor, 10.0),
                    f"{factor:.1f} times as fast at least",
                    "Both depend on how they are written, and on the taxonomy.",
                ),
                _trend(
                    "The overhead of the optimisation is relatively small.",
                    judge_between(share.mean, 0.5, lower_is_better=True),
                    f"{share.mean:.0%} of an agent's time",
                    "Growing the tree takes little time once it is compiled.",
                ),
            ),
            pictures=(picture("seconds", "seconds", ("PFDS", "DiffGen"), "log10 of CPU seconds", logarithm=True),),
        ),
    )


# Figure 4.


def figure4_logistic(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    return (_figure4("logistic", quick=quick, out=out),)


def figure4_svm(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    return (_figure4("svm", quick=quick, out=out),)


def figure4_linear(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    return (_figure4("linear", quick=quick, out=out),)


def _figure4(kind: Learner, *, quick: bool, out: Path) -> Exhibit:
    size = QUICK if quick else FULL
    source = next(one for one in SOURCES if one.name == ("News" if kind == "linear" else "Census"))
    with threadpool_limits(1, user_api="blas"):
        agents = Agents.of(source.read(), source.schema, size.agents)
        values = collect(list(by_sharers(agents, kind, size, released(agents))))
        levels = agents.levels(kind)
        values[f"{kind}, default"] = [default_error(agents, source, kind)]
    return figure4_exhibit(kind, values, levels, size, out, quick=quick)


def default_error(agents: Agents, source: Source, kind: Learner) -> float:
    """The error of a model of one dataset of all agents' records, by the default."""
    held = source.read().iloc[agents.trained]
    method, target = Synthetic(source.schema, rows=round(len(held), -2)).protocol(), source.schema.target
    assert isinstance(method, SyntheticProtocol) and target is not None
    made = release_default(method, method.encoding.encode(held).records, EPSILON, len(agents.own)).frame
    rows = encode_records(source.schema, made)
    return fit_and_measure(kind, target, [rows.features], [np.asarray(rows.labels)], agents.test)


_FIGURE_4 = {"logistic": "left", "svm": "centre", "linear": "right"}
_COLUMN = {"PFDS": "PFDS", "PFDS(s)": "PFDS(s)", "DP-Pred": "DP-Pred"}


def figure4_exhibit(
    kind: Learner, values: Values, levels: tuple[float, float], size: Size, out: Path, *, quick: bool
) -> Exhibit:
    constant, pooled = levels
    dataset = "News" if kind == "linear" else "Census"
    whole = size.sharers[-1]

    def mean(method: str, count: int) -> float:
        return float(np.mean(values[f"{kind}, {method} n={count}"]))

    def line(method: str, count: int) -> Line:
        last = count == 100
        return Line(
            case=f"{method}, {count} sharers",
            paper=printed(dataset, kind, 1.0, _COLUMN[method]) if last else None,
            source="Table 2 at eps 1, where all share"
            if last
            else "Figure 4 is a plot; only its last point is printed, in Table 2",
            published=Measured.of(values[f"{kind}, {method} n={count}"]),
            constant=constant,
            non_private=pooled,
            why=_beside(mean(method, count), constant),
        )

    alone = Measured.of(values[f"{kind}, NP-Agt"])
    curves = {method: [mean(method, count) for count in size.sharers] for method in KINDS}
    half = min(range(len(size.sharers)), key=lambda place: abs(size.sharers[place] - whole / 2))
    chance = 0.002 if kind == "linear" else 0.006
    trends = [
        _trend(
            f"{method} errs less than single agents (NP-Agt).",
            judge_between(mean(method, whole), alone.mean, lower_is_better=True, tolerance=chance),
            f"{mean(method, whole):.3f} with {whole} sharers, NP-Agt {alone.mean:.3f}",
            "Agents have some hundred records: a linear model learns more from them than from nearly random labels.",
        )
        for method in KINDS
    ]
    for method in ("DP-Pred", "PFDS"):
        trends.append(
            _trend(
                f"The error of {method} falls with the number of sharers.",
                judge_order(curves[method], expected="falling", tolerance=chance),
                _listed(curves[method], size.sharers),
                "More trees, or predictors, with the same noise vote for the larger class.",
            )
        )
        trends.append(
            _trend(
                f"{method} has no more to gain when about half of the agents share.",
                judge_near(curves[method][half], curves[method][-1], tolerance=2 * chance),
                f"{curves[method][half]:.3f} with {size.sharers[half]} sharers, {curves[method][-1]:.3f} with {whole}",
                "The curve still moves in the second half.",
            )
        )
    for method in ("DP-Pred", "PFDS(s)"):
        trends.append(
            _trend(
                f"PFDS errs less than {method}.",
                judge_between(mean("PFDS", whole), mean(method, whole), lower_is_better=True, tolerance=chance),
                f"PFDS {mean('PFDS', whole):.3f}, {method} {mean(method, whole):.3f} with {whole} sharers",
                "Both lie near a constant's error, and labels by vote lose what single trees know.",
            )
        )
    steps = {method: float(np.abs(np.diff(curve)).sum()) for method, curve in curves.items()}
    trends.append(
        _trend(
            "PFDS(s) has more irregular trends than PFDS.",
            judge_between(steps["PFDS"], steps["PFDS(s)"], lower_is_better=True, tolerance=chance),
            f"sum of steps: PFDS {steps['PFDS']:.3f}, PFDS(s) {steps['PFDS(s)']:.3f}",
            "Both depend on labels with much noise.",
        )
    )
    pictures = [
        _curve(method, size.sharers, values, f"{kind}, {method} n=", style, False) for style, method in enumerate(KINDS)
    ]
    marks = (Level("constant", constant), Level("NP-Pred", pooled), Level("NP-Agt", alone.mean))
    picture = _draw(
        out / f"synthetic-sharers-{kind}",
        "News popularity" if kind == "linear" else "Census",
        pictures,
        "agents that share",
        "mean squared error" if kind == "linear" else "test error",
        marks,
    )
    return Exhibit(
        name=f"Figure 4, {_FIGURE_4[kind]}",
        title=f"Error by the number of sharers, {TASKS[kind]}",
        unit="mean squared error, lower is better" if kind == "linear" else "test error, lower is better",
        setting=f"{'News popularity' if kind == 'linear' else 'Census'}, eps 1, {size.agents} agents by anchors, one "
        f"split; own models of {max(1, size.looked_at // 4)} agents, NP-Agt of {size.looked_at}; DP-Pred with the "
        "noise that section 5 prints. The paper has 95% intervals over ten runs of ten folds; bars here are deviations "
        "over agents.",
        lines=(
            Line(
                case="NP-Agt",
                paper=printed(dataset, kind, 1.0, "NP-Agt"),
                source="Table 2",
                published=alone,
                constant=constant,
                non_private=pooled,
                why="Each agent by itself.",
            ),
            Line(
                case="NP-Pred",
                source="Figure 4 is a plot: a dotted line",
                non_private=pooled,
                constant=constant,
                why="All records in one place, without privacy: the best that can be attained.",
            ),
            *(line(method, count) for method in KINDS for count in size.sharers),
            Line(
                case=f"default, all {size.agents} agents",
                source="not in the paper",
                default=Measured.of(values[f"{kind}, default"]),
                constant=constant,
                non_private=pooled,
                why="One dataset of all agents together, delta 1e-6; a model of the same kind, without own records.",
            ),
        ),
        trends=tuple(trends),
        missing=("A subset of News with shares on a logarithmic scale stands in for the paper's.",)
        if kind == "linear"
        else (),
        pictures=(picture,),
    )


# What both share.


def _trend(claim: str, verdict: Verdict, evidence: str, why: str) -> Trend:
    return Trend(claim, verdict, evidence, "" if verdict == "agrees" else why)


def judge_factor(found: float, claimed: float) -> Verdict:
    """Whether something is this many times as good: "differs" if it is better by less, "reversed" if it is worse."""
    return "agrees" if found >= claimed else "reversed" if found < 1 else "differs"


def _beside(ours: float, constant: float) -> str:
    return f"{abs(ours - constant):.3f} {'above' if ours > constant else 'below'} a constant."


def _listed(curve: Sequence[float], at: Sequence[int]) -> str:
    return ", ".join(f"{value:.3f} ({count})" for value, count in zip(curve, at))


def _curve(label: str, at: Sequence[int], values: Values, stem: str, style: int, logarithm: bool) -> Curve:
    found = [np.asarray(values[f"{stem}{one}"]) for one in at]
    shown = [np.log10(np.maximum(one, 1e-9 if "seconds" in stem else 1.0)) if logarithm else one for one in found]
    y, spread = (tuple(float(function(one)) for one in shown) for function in (np.mean, np.std))
    return Curve(label, tuple(map(float, at)), y, spread, style)


def _draw(
    stem: Path, of: str, curves: Sequence[Curve], x: str, y: str, levels: tuple[Level, ...] = ()
) -> tuple[Path, str]:
    points = [*(value for one in curves for value in one.y), *(level.y for level in levels)]
    room = 0.1 * (max(points) - min(points)) + 1e-3
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = draw(
        stem,
        [Panel(of, tuple(curves), levels)],
        title="Fioretto, Van Hentenryck 2019",
        x=x,
        y=y,
        caption="eps 1, agents by anchors; bars: one standard deviation",
        y_range=(min(points) - room, max(points) + room),
        logarithmic=False,
    )
    return written[0], f"{y} by {x}, on {of}: " + "; ".join(
        f"{one.label} from {one.y[0]:.3g} to {one.y[-1]:.3g}" for one in curves
    )
