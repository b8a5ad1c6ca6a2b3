"""Diagrams of the documents: how each method works, who is trusted with what, and the life of a study.

`python -m tools.diagrams` writes them into docs/. A diagram is 480 wide, so its words can be read on a telephone, and
white behind, so they can be read on a dark page. Its words are in this file; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

_WIDE, _GAP, _LINE = 480, 12, 18
_INK, _BLUE, _PALE, _WARN = "#222222", "#17415f", "#eef3f6", "#fdf1dc"


@dataclass(frozen=True)
class Box:
    """Who holds, sees or gets something: a title and short lines. `plain` marks values that no noise covers."""

    title: str
    lines: tuple[str, ...]
    plain: bool = False


@dataclass(frozen=True)
class Flow:
    """Holders at the top, what travels below them, who opens it, and what comes out."""

    label: str
    holders: tuple[Box, ...]
    travels: tuple[str, ...]
    opens: Box
    released: tuple[str, ...]
    result: Box
    between: str = ""
    back: str = ""


@dataclass(frozen=True)
class Stage:
    """A step of a study's life: who acts, and what happens."""

    actor: str
    lines: tuple[str, ...]


FLOWS = {
    "method-averaging.svg": Flow(
        "Averaging: hospitals send masked sums of gradients, and the coordinator opens totals with noise",
        (
            Box("Hospital A", ("its records", "all columns")),
            Box("Hospital B", ("its records", "all columns")),
            Box("Hospital C", ("its records", "all columns")),
        ),
        ("each round: a sum of bounded", "gradients, with noise, masked"),
        Box("Coordinator", ("opens: the total of all hospitals, with noise", "takes a step with it")),
        ("after the last round",),
        Box("Everyone", ("one linear model",)),
        back="weights",
    ),
    "method-softlabel.svg": Flow(
        "Soft labels: many parties send one masked statistic each, and the coordinator opens the total with noise",
        (
            Box("Party 1", ("few records", "public ones")),
            Box("Party 2", ("few records", "public ones")),
            Box("… party 300", ("few records", "public ones")),
        ),
        ("once: votes on the public records,", "or sums by class, with noise, masked"),
        Box("Coordinator", ("opens: the total of all parties, with noise", "fits a model on the public records")),
        ("one model",),
        Box("Everyone", ("a classifier; one whole party is hidden",)),
    ),
    "method-vertical.svg": Flow(
        "Vertical regression: owners of different columns compute products on secret shares, and the coordinator opens "
        "sums with noise",
        (
            Box("Hospital", ("age, ward, …", "and the outcome")),
            Box("Laboratory", ("lactate, creatinine, …", "of the same people")),
        ),
        ("pseudonyms, then shares of sums", "of products, with noise, masked"),
        Box("Coordinator", ("learns exactly: how many people match", "opens: sums of products, with noise")),
        ("one model",),
        Box("Everyone", ("a regression over all columns",)),
        between="sealed messages",
    ),
    "method-synthetic.svg": Flow(
        "Synthetic data: owners send masked tables of counts, and the coordinator opens totals with noise",
        (
            Box("Hospital A", ("its records", "all columns")),
            Box("Hospital B", ("its records", "all columns")),
            Box("Hospital C", ("its records", "all columns")),
        ),
        ("once: counts of every pair of", "columns, with noise, masked"),
        Box("Coordinator", ("opens: the total counts, with noise", "and releases them")),
        ("costs nothing more",),
        Box("Everyone", ("the noisy counts, and what they make of them:", "rows in any number, tables, regressions")),
    ),
    "method-summary.svg": Flow(
        "Summaries: owners send masked sums, the consumer its mean with noise, and chosen records leave in clear",
        (
            Box("Owner A", ("many records",)),
            Box("Owner B", ("many records",)),
            Box("Consumer", ("few records",)),
        ),
        ("owners: masked sums, with noise", "consumer: its mean, with noise"),
        Box("Coordinator", ("opens: totals and mean, with noise", "computes weights and each owner's quota")),
        ("weights and quotas go to the owners,", "who choose their quota of records"),
        Box("Curator and consumer", ("real records, in clear: no noise covers them",), plain=True),
    ),
    "threat-model.svg": Flow(
        "Owners' sites send sealed messages through a relay to the coordinator, who opens totals with noise",
        (
            Box("Owner: north", ("records, keys,", "ledger, policy", "trusts itself")),
            Box("Owner: south", ("the same; may tell", "the coordinator", "what it saw")),
            Box("Owner: east", ("the same;", "may vanish", "(drop-out)")),
        ),
        ("through a relay, which sees sizes", "and times of sealed messages"),
        Box(
            "Coordinator: follows the protocol, may be curious",
            (
                "sees: totals with noise, masked values, who takes",
                "part, and what a plan marks EXACT",
                "does not see: records, one owner's contribution,",
                "or the noise by itself",
            ),
        ),
        ("model, dataset or summary",),
        Box(
            "Everyone who gets the result", ("sees the result; one record, person or party", "is hidden up to epsilon")
        ),
    ),
}

LIFE = (
    Stage("author", ("writes study.toml and schema.toml, and simulates", "the study on generated or public records")),
    Stage("author", ("plan: what would leave, to whom, at what cost", "no private record is read")),
    Stage("coordinator", ("packs, signs and submits the study", "it arrives in every owner's inbox")),
    Stage("each owner", ("reads the plan and approves the study's hash,", "for one dataset and a number of runs")),
    Stage("every site", ("says whether it would begin; one refusal", "costs nothing. Then ledgers reserve the cost")),
    Stage(
        "every site",
        ("computes a step with its part of the noise; debit,", "state and reply are one commit of its ledger"),
    ),
    Stage("coordinator", ("opens totals and makes the result;", "a run that was killed is resumed, with one charge")),
    Stage("coordinator", ("signs the result and delivers it;", "the keys of the run are deleted")),
    Stage("everyone", ("reads the report; owners see the model's score", "on their own records, and what is left")),
)


def draw_flow(flow: Flow) -> str:
    """Who holds what, what travels, who opens what, and who gets what."""
    parts: list[str] = []
    count = len(flow.holders)
    gap = 96 if flow.between else _GAP
    width = (_WIDE - 2 * _GAP - gap * (count - 1)) / count
    tall = 34 + _LINE * max(len(box.lines) for box in flow.holders)
    middles = []
    for number, box in enumerate(flow.holders):
        x = _GAP + (width + gap) * number
        parts += _box(x, _GAP, width, tall, box)
        middles.append(x + width / 2)
    if flow.between:
        left, right, at = _GAP + width + 4, _GAP + width + gap - 4, _GAP + tall / 2
        parts.append(_arrow(left, at, right, at, both=True))
        parts += [_text(240, at - 22 + 16 * place, word, "middle") for place, word in enumerate(flow.between.split())]
    upper = _GAP + tall
    lower = upper + 34 + _LINE * len(flow.travels)
    for middle in middles:
        if count == 3 and middle == 240:
            parts.append(f'<path d="M240 {upper + 3:.0f} V{upper + 10:.0f}" {_STROKE}/>')
            parts.append(_arrow(240, lower - 16, 240, lower - 3))
        else:
            parts.append(_arrow(middle, upper + 3, middle, lower - 3))
    parts += [_text(240, upper + 26 + _LINE * row, words, "middle") for row, words in enumerate(flow.travels)]
    deep = 34 + _LINE * len(flow.opens.lines)
    parts += _box(40, lower, _WIDE - 80, deep, flow.opens)
    if flow.back:
        edge = _WIDE - 18
        corner = lower + deep / 2
        parts.append(
            f'<path d="M{_WIDE - 40:.0f} {corner:.0f} H{edge:.0f} V{upper + 4:.0f}" {_STROKE} marker-end="url(#head)"/>'
        )
        parts.append(_text(edge - 6, upper + 22, flow.back, "end"))
    after = lower + deep
    under = after + 30 + _LINE * len(flow.released)
    parts.append(_arrow(240, after + 3, 240, after + 12))
    parts += [_text(240, after + 28 + _LINE * row, words, "middle") for row, words in enumerate(flow.released)]
    bottom = 34 + _LINE * len(flow.result.lines)
    parts += _box(40, under, _WIDE - 80, bottom, flow.result)
    return _drawing(under + bottom + _GAP, flow.label, parts)


def draw_life(stages: Sequence[Stage] = LIFE) -> str:
    """The steps of a study, one below the other, with who acts."""
    parts = []
    for number, stage in enumerate(stages):
        y = _GAP + 66 * number
        fill = "#ffffff" if stage.actor in ("author", "coordinator") else _PALE
        parts.append(f'<rect x="110" y="{y}" width="358" height="52" rx="4" fill="{fill}" stroke="{_BLUE}"/>')
        parts.append(_text(100, y + 24, stage.actor, "end", bold=True))
        parts.append(_text(100, y + 42, str(number + 1), "end"))
        parts += [_text(120, y + 21 + _LINE * row, words) for row, words in enumerate(stage.lines)]
        if number + 1 < len(stages):
            parts.append(_arrow(289, y + 53, 289, y + 65))
    label = "The life of a study, from the draft to the result, with who acts in each step"
    return _drawing(_GAP * 2 + 66 * len(stages) - 14, label, parts)


_STROKE = f'fill="none" stroke="{_BLUE}" stroke-width="1.5"'


def _box(x: float, y: float, width: float, tall: float, box: Box) -> Iterator[str]:
    fill, dashes = (_WARN, ' stroke-dasharray="6 3"') if box.plain else (_PALE, "")
    yield (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{tall:.0f}" rx="4" fill="{fill}" '
        f'stroke="{_BLUE}" stroke-width="1.5"{dashes}/>'
    )
    yield _text(x + 10, y + 22, box.title, bold=True)
    yield from (_text(x + 10, y + 22 + _LINE * row, words) for row, words in enumerate(box.lines, start=1))


def _text(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def _arrow(x: float, y: float, to_x: float, to_y: float, *, both: bool = False) -> str:
    start = ' marker-start="url(#head)"' if both else ""
    return f'<path d="M{x:.0f} {y:.0f} L{to_x:.0f} {to_y:.0f}" {_STROKE} marker-end="url(#head)"{start}/>'


def _drawing(height: float, label: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" viewBox="0 0 {_WIDE} {height:.0f}" role="img" '
            f'aria-label="{escape(label)}" font-family="system-ui, \'DejaVu Sans\', Arial, sans-serif" font-size="13" '
            f'fill="{_INK}">',
            f'<defs><marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{_BLUE}"/></marker></defs>',
            f'<rect width="{_WIDE}" height="{height:.0f}" rx="6" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


DIAGRAMS: dict[str, Callable[[], str]] = {
    **{name: partial(draw_flow, flow) for name, flow in FLOWS.items()},
    "life-of-a-study.svg": draw_life,
}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        (DOCS / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
