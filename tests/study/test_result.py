"""What a result shows of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comity.report.result import load_result
from tests.report.small_run import simulated
from tests.support.pages import list_leaves, replace_value, value_at


@pytest.fixture(scope="module")
def result() -> Any:
    return simulated()


def test_names_of_a_result_that_was_handed_over_do_not_reach_a_terminal_raw(result: Any, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "run")
    for name in ("result.json", "released/released.json"):
        page = json.loads((folder / name).read_text())
        for path in list_leaves(page):
            if path[-1] not in ("format", "presented", "array", "kind", "total", "unit"):
                page = replace_value(page, path, "\x1b[2J\u202e\nx") if isinstance(value_at(page, path), str) else page
        (folder / name).write_text(json.dumps(page))
    again = load_result(folder)
    shown = [repr(again), str(again.guarantee), repr(again.released), repr(again.plan), repr(again.views)]
    for text in shown:
        assert "\x1b" not in text and "\u202e" not in text
    assert len(repr(again).splitlines()) == len(repr(result).splitlines()) and "\\u001b[2J" in repr(again)
