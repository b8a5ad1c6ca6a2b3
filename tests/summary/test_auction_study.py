"""Both auctions from a study file, with ledgers in files: what each owner grants, pays and is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.errors import StudyError
from comity.methods.summary import AuctionSummary, PublishedSummary
from comity.methods.summary.starter import write
from comity.privacy.loss import Approx
from comity.study.simulation.simulate import run_study
from comity.study.study import Study

SMALL = {"summary.records": 4, "summary.dimensions": 20, "simulation.baselines": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("starter") / "archives"
    made.mkdir()
    write(made)
    lines = (made / "study.toml").read_text().splitlines(keepends=True)
    # Without a grant each simulated owner grants what the study asks; pictures belong to delivered records.
    (made / "study.toml").write_text("".join(line for line in lines if not line.startswith(("grant =", "image ="))))
    return made


def study(folder: Any, **more: Any) -> Study:
    return Study.load(
        folder / "study.toml", overrides={**SMALL, **{f"summary.{key}": one for key, one in more.items()}}
    )


def test_an_auction_runs_from_its_file_and_stays_within_its_grants(folder: Any, tmp_path: Path) -> None:
    loaded = study(folder, selection="auction", ask_share=0.3)
    assert isinstance(loaded.protocol, AuctionSummary) and loaded.protocol.ask_share == 0.3
    outcome = run_study(loaded, seed=1, folder=tmp_path)
    assert len(outcome.presented) == 4
    epsilon = loaded.privacy.epsilon
    assert all(f"eps {epsilon:.2f}" in account.spent for account in outcome.accounts)
    # The same run again draws nothing twice, and is the same.
    again = run_study(loaded, seed=1, folder=tmp_path, run_id=outcome.run)
    assert (again.presented.rows == outcome.presented.rows).all()
    assert [one.spent for one in again.accounts] == [one.spent for one in outcome.accounts]


def test_the_published_method_runs_where_its_loss_is_granted_and_nowhere_else(folder: Any, tmp_path: Path) -> None:
    loaded = study(folder, variant="published")
    assert isinstance(loaded.protocol, PublishedSummary) and len(loaded.protocol.seeds) == 150
    outcome = run_study(loaded, seed=1, folder=tmp_path)
    assert len(outcome.presented) == 4 and outcome.guarantee.epsilon == float("inf")
    assert outcome.guarantee.claim.startswith("not private as claimed")
    loss = loaded.protocol.budget(loaded.consortium).owner
    assert isinstance(loss, Approx) and loss.delta > 0.8
    granting = Study.load(
        folder / "study.toml", overrides={**SMALL, "summary.variant": "published", "simulation.grant": 1e9}
    )
    with pytest.raises(StudyError) as found:
        run_study(granting, seed=1)
    assert found.value.key == "simulation.grant"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"selection": "auction", "deliver": "weights"}, "summary.deliver"),
        ({"variant": "published", "deliver": "weights"}, "summary.deliver"),
        ({"selection": "auction", "deliver": "hashes", "hash_dimensions": 20}, "summary.hash_dimensions"),
        ({"ask_share": 0.2}, "summary.ask_share"),
        ({"variant": "published", "selection": "auction"}, "summary.selection"),
        ({"selection": "auction", "tau": 3}, "summary.tau"),
        ({"selection": "lottery"}, "summary.selection"),
    ],
)
def test_keys_of_the_other_forms_are_refused(folder: Any, more: Any, key: str) -> None:
    with pytest.raises(StudyError) as found:
        study(folder, **more)
    assert found.value.key == key
