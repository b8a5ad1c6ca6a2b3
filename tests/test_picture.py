"""The pictures of docs/architecture.md are those of the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

from tools.picture.__main__ import ROOMS, ROOT, WAY
from tools.picture.drawn import rooms_and_imports, way
from tools.picture.rooms import House, Room, house
from tools.picture.walk import walked

from comity.errors import BadInput

DOCS = ROOT / "docs"


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    assert (DOCS / ROOMS).read_text() == rooms_and_imports(house(ROOT)), "draw it again: make picture"


def test_the_page_tells_of_every_room_and_shows_both_pictures() -> None:
    page = (DOCS / "architecture.md").read_text()
    told = set(re.findall(r"`([a-z]+)`", "".join(line.split("|")[1] for line in page.splitlines() if "| `" in line)))
    assert told == set(house(ROOT).rooms)
    assert f"]({ROOMS})" in page and f"]({WAY})" in page


def test_the_way_of_a_run_passes_the_rooms_it_must() -> None:
    shown = set(re.findall(r">([a-z]+)</text>", (DOCS / WAY).read_text()))
    assert {"cli", "study", "methods", "federation", "privacy", "report"} <= shown <= set(house(ROOT).rooms)


def test_an_import_that_is_added_changes_the_picture(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name, text in (("cli/__init__.py", ""), ("privacy/a.py", ""), ("data/b.py", "x = 1\n")):
        path = tmp_path / "src" / "comity" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    before = house(tmp_path)
    assert not before.imports
    (tmp_path / "src/comity/cli/__init__.py").write_text(
        "import comity.privacy.a\ndef late():\n    from comity import data\n"
    )
    after = house(tmp_path)
    assert after.imports == {("cli", "privacy"): 1, ("cli", "data"): 1}
    assert rooms_and_imports(after) != rooms_and_imports(before)


def test_a_walk_has_the_rooms_in_the_order_of_first_calls() -> None:
    def act() -> None:
        str(BadInput("no", code="x"))

    assert set(walked(act)) == {"errors"}
    drawn = way(House((("a",), ("b",)), {n: Room(n, 1, 1) for n in "ab"}, {}), ["a", "b", "b", "a"], "it")
    assert "4 functions, 2 changes of room" in drawn
