"""What a site logs: lines with run ids for a collector, and no value of a record after any failure."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pandas as pd
import pytest

from comity.cli import main
from comity.errors import ComityError
from comity.federation.owner.site import Site
from comity.site.logs import Form, JsonLines, TextLines, current_form, log_to_stderr
from comity.untrusted.text import is_hidden
from tests.support.sites import NAMES, Sites, approve, connect_services, execute

SECRET = "Winifred-Ottoline-7391"


@pytest.fixture
def collected() -> Iterator[tuple[StringIO, StringIO]]:
    """What is logged, as lines of objects and as text."""
    streams = StringIO(), StringIO()
    handlers = [logging.StreamHandler(stream) for stream in streams]
    handlers[0].setFormatter(JsonLines())
    logger = logging.getLogger("comity")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    for one in handlers:
        logger.addHandler(one)
    yield streams
    logger.setLevel(before)
    for one in handlers:
        logger.removeHandler(one)


def values_of(sites: Sites) -> set[str]:
    """Values of records that could not stand in a log by chance: numbers with decimals, and identifiers."""
    found: set[str] = set()
    for name in NAMES:
        frame = pd.read_csv(sites.home(name) / "patients.csv", dtype=str)
        found |= {value for column in frame for value in frame[column].dropna() if len(value) >= 6}
    return found


def run(sites: Sites) -> tuple[dict[str, Any], dict[str, Any]]:
    study, services = sites.study(), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    return execute(connect_services(study, services, sites.coordinator, run="run-7391"))


def test_a_runs_log_has_a_line_for_each_ask_and_no_value(sites: Sites, collected: Any) -> None:
    values = values_of(sites)
    assert len(values) > 20
    run(sites)
    lines, text = (stream.getvalue() for stream in collected)
    pages = [json.loads(line) for line in lines.splitlines()]
    answered = [page for page in pages if page.get("run") == "run-7391"]
    assert {page["party"] for page in answered} == set(NAMES)
    assert {"run.begin[0]", "run.end[0]"} <= {page["step"] for page in answered}
    assert all(len(page["study"]) == 12 and page["milliseconds"] >= 0 for page in answered)
    for told in (lines, text):
        assert not [value for value in values if value in told]


def test_what_a_library_says_of_a_value_is_not_in_it(
    sites: Sites, collected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries quote what they choke on. The text for the owner's own terminal has it, the lines do not."""

    def choking(*_: Any, **__: Any) -> Any:
        raise ValueError(f"could not convert string to float: {SECRET!r}")

    monkeypatch.setattr(Site, "total", choking)
    with pytest.raises(ComityError):
        run(sites)
    lines, text = (stream.getvalue() for stream in collected)
    assert SECRET in text and SECRET not in lines
    failed = [page for page in map(json.loads, lines.splitlines()) if "exception" in page]
    assert failed and all(page["exception"] == "ValueError" for page in failed)
    assert any("choking" in place for page in failed for place in page["at"])


SPOILT = {"age": "7391 years", "arrival": "Ottoline", "readmitted": "perhaps-7391"}


@pytest.mark.parametrize("column", SPOILT)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_value_that_does_not_fit_is_told_by_its_kind_column_and_row(
    sites: Sites, collected: Any, column: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reader's error reaches the log and the list of refusals; its owner sees the value in `schema check`."""
    home, value = sites.home("north"), SPOILT[column]
    study, services = sites.study(), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    frame = pd.read_csv(home / "patients.csv", dtype=object)
    frame.loc[[6, 9], column] = value
    if kind == "csv":
        frame.to_csv(home / "patients.csv", index=False)
    else:
        frame.astype(str).to_parquet(home / "patients.parquet")
        text = sites.site("north").read_text().replace('"csv"', '"parquet"').replace("patients.csv", "patients.parquet")
        sites.site("north").write_text(text)
    with pytest.raises(ComityError):
        execute(connect_services(study, sites.services(), sites.coordinator, run="run-7391"))
    lines, text = (stream.getvalue() for stream in collected)
    refusals = (home / "refusals.jsonl").read_text() if (home / "refusals.jsonl").exists() else ""
    for told in (lines, text, refusals):
        assert value not in told and not [word for word in value.split() if len(word) > 4 and word in told]
    assert column in lines and "record 7" in lines and "2 " not in lines.partition("record 7")[2][:12]
    words = ["schema", "check", str(study.folder / "schema.toml"), str(home / f"patients.{kind}")]
    assert main(words) == 3 and value in capsys.readouterr().out


EVIL = "evil\x1b[2J\x9b31m\x7f\u202elive\u200b\r\nERROR forged"


@pytest.mark.parametrize("formatter", [TextLines("%(levelname)s %(message)s"), JsonLines()])
def test_a_message_is_short_whatever_it_quotes(formatter: logging.Formatter) -> None:
    """A packed study whose protocol has four million letters is refused with a sentence that quotes them."""
    record = logging.LogRecord(
        "comity.site", logging.WARNING, "", 0, "refused: %s; rename it", ("x" * 4_000_000,), None
    )
    line = formatter.format(record)
    assert len(line) < 2_500 and "refused: xx" in line and "xx; rename it" in line and "characters" in line


def test_text_of_others_begins_no_line_of_a_log() -> None:
    """Neither in a message, nor in what a library says of it; the traceback is indented."""
    text, lines = StringIO(), StringIO()
    logger = logging.Logger("hostile")
    for stream, formatter in ((text, TextLines("%(levelname)s %(message)s")), (lines, JsonLines())):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logger.exception("%s failed", EVIL)
    first, *rest = text.getvalue().rstrip("\n").split("\n")
    assert first.startswith("ERROR evil\\u001b[2J") and rest and all(line.startswith("  ") for line in rest)
    for stream in (text, lines):
        assert not [one for one in stream.getvalue() if one != "\n" and is_hidden(one)]
    assert lines.getvalue().count("\n") == 1 and json.loads(lines.getvalue())["message"] == f"{EVIL} failed"


def test_the_form_is_that_of_the_processes_which_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    for form in Form:
        log_to_stderr(form)
        assert current_form() is form
