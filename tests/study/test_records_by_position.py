"""Records beyond memory that a method reads by position: room on disk is needed, at a run and at an approval alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from comity.data import Parquet, Records, StreamedRecords
from comity.data.tables.encoded_cache import CachePlace
from comity.errors import DataError
from comity.site.approval import check_records
from comity.study.records.encoding import load_records
from comity.study.study import Study
from tests.support.vertical import make_people, make_schema

LIMIT = 20_000
TEXT = """
[study]
name = "sickness"
protocol = "vertical"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
colluders = 1
[parties.north]
columns = ["a*", "sick"]
[parties.south]
columns = ["place", "dose", "sex"]
"""


@pytest.fixture
def agreed(tmp_path: Path) -> Study:
    (tmp_path / "schema.toml").write_text(make_schema(identifier=True).to_toml())
    make_people(2000).to_parquet(tmp_path / "south.parquet")
    return Study.parse(TEXT, folder=tmp_path, where="study.toml")


@pytest.fixture
def load(agreed: Study, tmp_path: Path) -> Callable[..., Any]:
    def loading(cache: CachePlace | None, limit: int = LIMIT, **terms: Any) -> Any:
        source = Parquet(tmp_path / "south.parquet")
        given = {"where": "data.south", "party": "south", "limit": limit, "cache": cache, **terms}
        return load_records(agreed.protocol, agreed.consortium, source, **given)[0]

    return loading


def test_an_owner_that_keeps_its_disk_free_of_records_is_told_so(tmp_path: Path, load: Callable[..., Any]) -> None:
    for cache in (None, CachePlace(tmp_path, 0)):
        for only_check in (False, True):
            with pytest.raises(DataError, match="takes room on disk; set cache, or raise memory"):
                load(cache, only_check=only_check)
    assert isinstance(load(CachePlace(tmp_path, 0), limit=1 << 30), Records)


def test_four_files_share_what_an_owner_allows(tmp_path: Path, load: Callable[..., Any]) -> None:
    size = 2000 * 8 * 6
    with pytest.raises(DataError, match="raise cache"):
        load(CachePlace(tmp_path, 4 * size - 4))
    records = load(CachePlace(tmp_path, 4 * size))
    assert isinstance(records, StreamedRecords) and records.by_position is not None
    assert records.by_position.place.limit == size


def test_an_approval_refuses_what_a_run_would_refuse(tmp_path: Path, agreed: Study) -> None:
    def check(cache: float) -> Any:
        site = SimpleNamespace(
            where="site.toml",
            party="south",
            home=tmp_path,
            memory=LIMIT / 2**30,
            cache=cache,
            source=lambda dataset: Parquet(tmp_path / "south.parquet"),
        )
        return check_records(cast(Any, site), agreed, "own")

    assert check(1.0) == ()
    for cache in (0.0, 1e-5):
        with pytest.raises(DataError, match="raise memory"):
            check(cache)
