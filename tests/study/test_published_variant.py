"""A published variant that a study is given is refused with every change that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from comity.data import clinic_schema
from comity.errors import StudyError
from comity.methods.averaging import Averaging
from comity.methods.averaging import starter as averaging
from comity.methods.summary import starter as summary
from comity.privacy.loss import Pure
from comity.study.simulation.ledgers import grants_by_party, require_grant
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


def test_a_simulation_is_granted_the_true_loss_where_that_is_above_the_claimed_one() -> None:
    """Of few parties and many weights the claimed epsilon does not cover what the paper's noise loses."""
    study = Averaging(clinic_schema("readmitted"), variant="published").study(["ash", "birch"], epsilon=1.0)
    lost = study.agreement.declaration["noise"].loss
    assert isinstance(lost, Pure) and lost.epsilon > 1.5
    granted = grants_by_party(study, study.agreement)
    assert isinstance(granted, dict) and set(granted) == {"ash", "birch"}
    for one in granted.values():
        assert isinstance(one, float) and lost.epsilon <= one < 1.01 * float(lost.epsilon)
    default = Averaging(clinic_schema("readmitted"), sizes=10).study(["ash", "birch"], epsilon=1.0, delta=1e-6)
    assert grants_by_party(default, default.agreement) == 1.0
