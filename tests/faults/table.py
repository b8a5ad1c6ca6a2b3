"""The table of kills in a page: new rows replace those of the same channel and method."""

from __future__ import annotations

from pathlib import Path

from tests.faults.outcomes import Tally

HEAD = "| channel | method | killed | kills | completed | resumed | ended | violations | seed |"
_RULE = "|---|---|---|---|---|---|---|---|---|"


def lines(channel: str, tally: Tally, seed: int) -> list[str]:
    return [f"| {' | '.join(map(str, (channel, *row, seed)))} |" for row in tally.rows()]


def write(page: Path, found: list[str]) -> None:
    """Put lines into the page's table, and leave everything else in it as it is."""
    text = page.read_text(encoding="utf-8").splitlines()
    start = text.index(HEAD) + 2
    end = next((place for place in range(start, len(text)) if not text[place].startswith("|")), len(text))
    counted = {_whose(line) for line in found}
    kept = [line for line in text[start:end] if _whose(line) not in counted]
    table = sorted([*kept, *found], key=lambda line: [cell.strip() for cell in line.split("|")][1:4])
    page.write_text("\n".join([*text[: start - 2], HEAD, _RULE, *table, *text[end:]]) + "\n", encoding="utf-8")


def _whose(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.split("|"))[1:3]
