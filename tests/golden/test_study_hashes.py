"""The hash of a study is what its participants agree on: a refactoring that changes one changes every agreement.

`studies` has one study of each method and its published variant. A method whose version goes up gets another hash here,
in the commit that says so in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comity.study.study import Study

HERE = Path(__file__).parent / "studies"
HASHES: dict[str, str] = json.loads((HERE / "hashes.json").read_text("utf-8"))


@pytest.mark.parametrize("name", HASHES)
def test_a_study_has_the_hash_that_was_agreed_on(name: str) -> None:
    assert Study.load(HERE / name).hash == HASHES[name]
