"""What is refused about an owner's engine, without one. With a server: tests/deploy/test_spark.py."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from comity import Averaging
from comity.data import Classes, Encoding, Numeric, Schema, open_source
from comity.data.tables.engine_records import EngineRecords
from comity.data.tables.spark import SparkTable
from comity.errors import BadInput, DataError, StudyError
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.site import Site
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.study.records.encoding import load_records

ENCODING = Encoding(Schema((Numeric("x", 0, 1),), Classes("y", ("0", "1"))), rows="scaled")
URL = "sc://127.0.0.1:1"


def given(**engine: Any) -> dict[str, Any]:
    return {"table": "visits", "engine": {"kind": "spark", "url": URL, **engine}}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (given(kind="sparc"), r"engine.kind: unknown engine 'sparc'; did you mean 'spark'"),
        (given(url="https://x"), "expected sc://HOST:PORT"),
        (given(url="sc://host:1/;token=hunter2"), "expected no token in it"),
        (given(url="sc://host:1/;sll=true"), "unknown parameter 'sll'"),
        (given(port="1"), "engine: unknown key 'port'"),
        (given(token_file=3), "engine.token_file: expected text"),
        ({**given(), "engine": "spark"}, "engine: expected {kind"),
        ({**given(), "query": "SELECT 1"}, "found both"),
        ({"engine": given()["engine"]}, "query: expected a value"),
        ({"engine": given()["engine"], "query": "DROP TABLE visits"}, "one statement that reads"),
    ],
)
def test_a_wrong_table_is_one_sentence_and_shows_no_token(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises((StudyError, DataError), match=sentence) as caught:
        open_source(table, "site.toml: data.visits")
    assert "hunter2" not in str(caught.value)


def test_a_study_names_no_engine(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="a study names no engine"):
        open_source(given(), "study.toml", base=tmp_path, confined=True)


def test_a_server_that_does_not_answer_and_a_missing_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"127\.0\.0\.1:1 can't be reached"):
        EngineRecords.scan(open_source(given()), ENCODING)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        for name in [one for one in sys.modules if one.split(".")[0] == "pyspark"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "pyspark", None)
        source = open_source(given(url=f"sc://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(BadInput, match=r"pip install 'comity\[spark\]'"):
            EngineRecords.scan(source, ENCODING)


def test_the_records_themselves_stay_and_a_method_that_needs_them_is_refused_before_anything_is_sent() -> None:
    source = open_source(given())
    assert isinstance(source, SparkTable)
    with pytest.raises(DataError, match="stay on the engine"):
        source.read()
    consortium = Consortium(
        parties=("a", "b", "c"), loss=Approx(1, 1e-6), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    average = Averaging.over_rows(features=1, sizes=10, solver="average", encoding=ENCODING)
    with pytest.raises(DataError, match="needs an owner's records themselves"):
        load_records(average, consortium, source, where="north", party="a", limit=1)
    gradient = Averaging.over_rows(features=1, sizes=10, solver="gradient", encoding=ENCODING)
    # The same method is not refused: it gets as far as the server.
    with pytest.raises(DataError, match="can't be reached"):
        load_records(gradient, consortium, source, where="north", party="a", limit=1)
    records = EngineRecords(source, ENCODING, "north", 3, "d")
    for read in (lambda: records.features, lambda: records.labels, lambda: records.blocks(), lambda: records.ids):
        with pytest.raises(DataError, match="stay there"):
            read()


def test_a_site_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="keys"):
        Site.__reduce__(Site.__new__(Site))
