"""A published variant that a study is given is refused with every change that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from comity.errors import StudyError
from comity.methods.averaging import starter as averaging
from comity.methods.summary import starter as summary
from comity.study.simulation.ledgers import require_grant
from comity.study.study import Study


def test_all_changes_are_told_in_one_sentence(tmp_path: Path) -> None:
    averaging.write(tmp_path)
    wanted = (
        "remove averaging.model and averaging.sizes, and set privacy.delta to 0, privacy.colluders to 0 and "
        "privacy.dropouts to 0, or leave averaging.variant out"
    )
    with pytest.raises(StudyError) as refused:
        Study.load(tmp_path / "study.toml", overrides={"averaging.variant": "published"})
    assert str(refused.value).endswith(wanted)


def test_a_grant_that_no_epsilon_makes_large_enough_is_refused_with_what_to_do(tmp_path: Path) -> None:
    summary.write(tmp_path)
    with pytest.raises(StudyError, match=r"remove simulation\.grant"):
        require_grant(Study.load(tmp_path / "study.toml", overrides={"summary.variant": "published"}))
    require_grant(Study.load(tmp_path / "study.toml"))
