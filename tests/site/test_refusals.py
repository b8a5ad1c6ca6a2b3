"""What a site's status shows of what it refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from comity.errors import Refused
from comity.site.inbox import Arrival, Decision
from comity.site.status import Refusals, open_refusals

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_what_is_written_down_of_a_refusal_is_short(tmp_path: Path) -> None:
    """A key or a value that it quotes may have megabytes."""
    Refusals(tmp_path).record(Refused("refused: " + "x" * 4_000_000, key="k" * 4_000_000))
    (one,) = Refusals(tmp_path).last(1)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4_000 and one.sentence.startswith("refused: xx")


def test_a_refusal_before_the_approval_of_its_study_is_settled(tmp_path: Path) -> None:
    for seconds, study in ((-60, "a" * 64), (-50, "f" * 64), (60, "a" * 64)):
        noted = Refusals(tmp_path, clock=partial(NOW.__add__, timedelta(seconds=seconds)))
        noted.record(Refused("refused: it waits", code="approval"), study=study, run=str(seconds))
    decision = Decision("approved", NOW.isoformat(timespec="seconds"), "patients", 1)
    arrivals = [Arrival("a" * 64, "small", "averaging", "coordinator", "", read=True, decision=decision)]
    noted = Refusals(tmp_path)
    assert [one.run for one in open_refusals(noted, arrivals, 9)] == ["-50", "60"]
    assert [one.run for one in open_refusals(noted, arrivals, 1)] == ["60"] and open_refusals(noted, arrivals, 0) == []
    assert len(noted.last(9)) == 3
