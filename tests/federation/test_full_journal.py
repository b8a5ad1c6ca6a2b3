"""A disk that takes no more of the journal stops a run with a clear word; with room again, the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.errors import Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import run
from tests.support.rounds import Rounds, set_up_run

from .test_resume import check_ledgers, stored


class Full(Journal):
    """Takes a few pages, and then no more."""

    def __init__(self, path: Any, pages: Any) -> None:
        super().__init__(path)
        (taken,) = self._connection.execute("pragma page_count").fetchone()
        self._connection.execute(f"pragma max_page_count = {taken + pages}")


@pytest.mark.parametrize("pages", [0, 12])
def test_a_coordinator_whose_disk_is_full_goes_on_once_there_is_room(tmp_path: Path, pages: int) -> None:
    protocol = Rounds(rounds=1)
    parties, hosts = set_up_run(protocol, folder=tmp_path)
    parties.journal = Full(tmp_path / "journal", pages)
    with pytest.raises(Stopped, match="free some space") as stopped:
        run(parties)
    assert stopped.value.exit_code == 5 and stopped.value.code == "journal"
    before = stored(hosts)
    parties, hosts = set_up_run(protocol, folder=tmp_path)
    parties.journal = Journal(tmp_path / "journal")
    run(parties)
    after = stored(hosts)
    assert all(after[key] == value for key, value in before.items())
    check_ledgers(hosts, rounds=1)
