"""Expensive packs of a known submitter: the site refuses them before it reads them, and no run waits for them."""

from __future__ import annotations

import io
import resource
import shutil
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comity.data import clinic_schema
from comity.errors import ComityError, DataError, Refused, Stopped, StudyError
from comity.federation.owner.host import Answer
from comity.relay.endpoint import MAX_CONCURRENT_ASKS, Worker
from comity.relay.wire import Frame, Kind, pack_frame, read_frames
from comity.site import inbox, pack, pack_limits
from comity.site import service as service_module
from comity.site.approval import preview_approval
from comity.site.inbox import Inbox
from comity.site.service import SiteService
from tests.support.sites import STUDY, Sites, approve, connect_services, execute, keys_table
from tests.support.sites import TABLE as PARAMETERS

from .test_pack import forged, receive

SOFTLABEL = STUDY.replace("averaging", "softlabel").replace('unit = "record"', 'unit = "party"')
TABLE = 'statistic = "class-sums"\nsizes = 40\nauxiliary = "public.parquet"'


def hostile(sites: Sites, public: bytes, *, more: str = "") -> bytes:
    """A study with a public file of these bytes, packed without a check."""
    keys = [f"[parties.{name}.keys]\n{keys_table(sites.identity(name))}\n" for name in ("north", "south")]
    text = SOFTLABEL.partition("[simulation]")[0].format(epsilon=0.9, table=TABLE)
    text += "\n".join([*keys, f"[coordinator.keys]\n{keys_table(sites.coordinator)}\n", more])
    schema = clinic_schema("readmitted").to_toml().encode()
    return forged(sites, {"study.toml": text.encode(), "schema.toml": schema, "public.parquet": public})


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", store_schema=False, **options)
    return out.getvalue()


def one_value(rows: int, letters: int) -> bytes:
    """So many rows of one long text: the file holds it once, and its footer counts it once."""
    indices = pa.array(np.zeros(rows, np.int32))
    return parquet(pa.table({"ward": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * letters]))}))


def refused(sites: Sites, raw: bytes) -> ComityError:
    """Why; nothing of it is left, and neither this process nor the one that reads grew much."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ComityError) as found:
        receive(sites, raw)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1.5 * 2**20
    assert Inbox(sites.home("north")).arrivals() == [] and not list((sites.home("north") / "studies").glob(".new*"))
    return found.value


@pytest.mark.parametrize("rows", [pack_limits.MAX_ROWS + 1, 20_000_000])
def test_more_rows_than_a_site_reads_are_refused_by_the_footer(sites: Sites, rows: int) -> None:
    public = parquet(pa.table({"age": pa.array(np.zeros(rows))}))
    assert len(public) < 1 << 20
    error = refused(sites, hostile(sites, public))
    assert (error.code, f"{rows:,} rows" in str(error)) == ("size", True)


def test_more_bytes_than_a_site_reads_are_refused_by_the_footer(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sites.folder / "public.parquet"
    path.write_bytes(parquet(pa.table({"age": pa.array(np.arange(1000.0))}), use_dictionary=False))
    pack_limits.check_footers(path.parent)
    monkeypatch.setattr(pack_limits, "MAX_TABLE_BYTES", 7_000)
    with pytest.raises(Refused, match="bytes before compression"):
        pack_limits.check_footers(path.parent)
    monkeypatch.setattr(pack_limits, "MAX_COLUMNS", 0)
    with pytest.raises(Refused, match="1 columns"):
        pack_limits.check_footers(path.parent)


@pytest.mark.parametrize("name", ["public.PARQUET", "Public.Parquet"])
def test_a_footer_is_read_however_the_suffix_is_written(sites: Sites, name: str) -> None:
    (sites.folder / name).write_bytes(parquet(pa.table({"age": pa.array(np.zeros(pack_limits.MAX_ROWS + 1))})))
    with pytest.raises(Refused, match="rows"):
        pack_limits.check_footers(sites.folder)


@pytest.mark.parametrize("name", ["schema.txt", "schema.csv", "schema"])
def test_a_schema_by_any_name_is_bounded_like_toml(sites: Sites, name: str) -> None:
    keys = [f"[parties.{one}.keys]\n{keys_table(sites.identity(one))}\n" for one in ("north", "south")]
    text = STUDY.partition("[simulation]")[0].format(epsilon=0.9, table=PARAMETERS).replace("schema.toml", name)
    text += "\n".join([*keys, f"[coordinator.keys]\n{keys_table(sites.coordinator)}\n"])
    schema = b"x = [" + b"1," * (pack_limits.MAX_TOML_VALUES + 1) + b"]\n"
    error = refused(sites, forged(sites, {"study.toml": text.encode(), name: schema}))
    assert error.code == "size" and "values" in str(error)


def test_a_footer_that_tells_little_of_much_does_not_get_around_it(sites: Sites) -> None:
    """400,000 rows of 20,000 letters are 8 GB, and a few kilobytes by the footer."""
    public = one_value(400_000, 20_000)
    found = pq.read_metadata(io.BytesIO(public))
    assert len(public) < 100_000 and found.row_group(0).total_byte_size < 1 << 20
    refused(sites, hostile(sites, public))


def test_a_reader_that_never_ends_is_ended(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_limits, "WALL_SECONDS", 0.05)
    error = refused(sites, hostile(sites, one_value(10, 10)))
    assert error.code == "size" and "more than" in str(error)


def test_files_are_examined_once_in_a_process_and_others_or_refused_ones_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[bytes] = []

    def examine(study: Path) -> None:
        examined.append((study.parent / "public.parquet").read_bytes())
        pack_limits.check_footers(study.parent)

    monkeypatch.setattr(inbox, "examine", examine)
    first, other = one_value(10, 10), one_value(10, 11)
    for public in (first, first, other, first):
        # What each site decides for itself comes afterwards, each time: here that the public file lacks columns.
        with pytest.raises(ComityError):
            receive(sites, hostile(sites, public))
    assert examined == [first, other]
    many = parquet(pa.table({"age": pa.array(np.zeros(pack_limits.MAX_ROWS + 1))}))
    for _ in range(2):
        assert refused(sites, hostile(sites, many)).code == "size"
    assert examined == [first, other, many, many]


def test_what_is_wrong_with_public_records_is_still_said(sites: Sites) -> None:
    error = refused(sites, hostile(sites, b"no parquet at all"))
    assert isinstance(error, DataError) and "public.parquet" in str(error)


def test_a_public_file_of_an_honest_author_arrives(sites: Sites) -> None:
    from comity.data import public_cohort

    out = io.BytesIO()
    public_cohort(40, "tests").to_parquet(out, index=False)
    assert receive(sites, hostile(sites, out.getvalue())).protocol == "softlabel"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("x = [" + "1," * 4_000_000 + "]", "bytes"),
        ("x = [" + "1," * pack_limits.MAX_TOML_VALUES + "]", "values"),
        ("x = " + "[" * 400 + "]" * 400, "nested"),
        (".".join("a" * 40) + " = 1", "nested"),
        ("[" + ".".join("a" * 40) + "]", "nested"),
    ],
    ids=["long", "many", "deep", "dotted", "header"],
)
def test_toml_that_takes_long_to_read_is_not_read(sites: Sites, more: str, said: str) -> None:
    error = refused(sites, hostile(sites, b"", more=more))
    assert error.code == "size" and said in str(error)


def test_a_pack_above_the_limit_is_neither_made_nor_looked_at(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    study = sites.study()
    raw = sites.pack(study)
    monkeypatch.setattr(pack, "MAX_PACK_BYTES", len(raw))
    receive(sites, sites.pack(study))
    monkeypatch.setattr(pack, "MAX_PACK_BYTES", len(raw) - 1)
    with pytest.raises(StudyError, match="sites take packs of at most"):
        sites.pack(study)
    monkeypatch.setattr(pack, "decode", lambda _: pytest.fail("it is read"))
    with pytest.raises(Refused, match="a site takes at most") as found:
        receive(sites, raw, "south")
    assert found.value.code == "size"


# The inbox.


def test_few_studies_of_one_submitter_wait_for_a_decision(sites: Sites) -> None:
    studies = [sites.study(epsilon=0.1 + 0.01 * number) for number in range(pack_limits.MAX_UNDECIDED + 1)]
    packs = [sites.pack(sites.study(epsilon=0.1 + 0.01 * number)) for number in range(pack_limits.MAX_UNDECIDED + 1)]
    for raw in packs[:-1]:
        receive(sites, raw)
    with pytest.raises(Refused, match="wait for a decision here") as found:
        receive(sites, packs[-1])
    assert found.value.code == "quota" and len(Inbox(sites.home("north")).arrivals()) == pack_limits.MAX_UNDECIDED
    receive(sites, packs[0])  # one that is there is no further one
    Inbox(sites.home("north")).refuse(studies[0].hash, "no")
    receive(sites, packs[-1])


@pytest.mark.parametrize("policy", ["", 'approval = "within-policy"'])
def test_what_waits_has_few_bytes_also_where_the_policy_decides(
    sites: Sites, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.write("north", policy=policy)
    service = SiteService(sites.site("north"))
    first, second = (sites.pack(sites.study(epsilon=epsilon)) for epsilon in (0.1, 0.2))
    monkeypatch.setattr(inbox, "MAX_UNDECIDED_BYTES", int(1.5 * len(first)))
    decision = service.take_in(first).decision
    assert (decision is not None) == bool(policy)
    with pytest.raises(Refused, match="bytes in all"):
        service.take_in(second)


def test_no_study_takes_the_last_of_the_disk(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = sites.pack(sites.study())
    free = SimpleNamespace(free=pack_limits.LEAST_FREE_BYTES + len(raw) - 1, total=1 << 40)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(Stopped, match="almost full"):
        receive(sites, raw)
    free.free += 1
    receive(sites, raw)


def test_a_small_disk_keeps_a_tenth_of_itself(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = sites.pack(sites.study())
    disk = SimpleNamespace(free=400_000 + len(raw) - 1, total=4_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    with pytest.raises(Stopped, match="almost full"):
        receive(sites, raw)
    disk.free += 1
    receive(sites, raw)


# Runs that go on meanwhile.


def test_an_approved_run_goes_on_while_a_pack_is_read(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    study, services = sites.study(), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    reading, done = threading.Event(), threading.Event()
    receives = Inbox.receive

    def slow(self: Inbox, *arguments: Any, **options: Any) -> Any:
        reading.set()
        assert done.wait(60)
        return receives(self, *arguments, **options)

    monkeypatch.setattr(Inbox, "receive", slow)
    other = sites.pack(sites.study(epsilon=0.2))
    thread = threading.Thread(target=services["north"].take_in, args=(other,))
    thread.start()
    running = threading.Thread(
        target=lambda: execute(connect_services(study, services, sites.coordinator)), daemon=True
    )
    try:
        assert reading.wait(20)
        running.start()
        running.join(30)
        assert not running.is_alive(), "the run waits for a pack that nobody has decided about"
    finally:
        done.set()
        thread.join()
        running.join()
    assert len(services["north"].inbox.arrivals()) == 2


def test_no_ask_waits_while_the_policy_decides(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each submitted study makes the policy read all records of the site."""
    pinned = f"\n[pinned.south]\n{keys_table(sites.identity('south'))}\n"
    sites.write("north", policy='approval = "within-policy"')
    sites.site("north").write_text(sites.site("north").read_text() + pinned)
    service = SiteService(sites.site("north"))
    deciding, done = threading.Event(), threading.Event()
    considers, reads, held = preview_approval, Inbox.study, []

    def slow(*arguments: Any, **options: Any) -> Any:
        deciding.set()
        assert done.wait(60)
        return considers(*arguments, **options)

    def study(self: Inbox, name: str) -> Any:
        held.append(service._lock._is_owned())  # type: ignore[attr-defined]
        return reads(self, name)

    monkeypatch.setattr(service_module, "preview_approval", slow)
    monkeypatch.setattr(Inbox, "study", study)
    taking = threading.Thread(target=service.take_in, args=(sites.pack(sites.study()),))
    asking = threading.Thread(target=service.refresh, daemon=True)
    taking.start()
    try:
        assert deciding.wait(20)
        asking.start()
        asking.join(10)
        assert not asking.is_alive(), "an ask waits for a decision of the policy"
    finally:
        done.set()
        taking.join()
    assert len(service.studies) == 1 and held == [False], "the study is read inside the lock"


def test_terms_that_change_while_the_policy_decides_count(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = f"\n[pinned.south]\n{keys_table(sites.identity('south'))}\n"
    sites.write("north", policy='approval = "within-policy"')
    sites.site("north").write_text(sites.site("north").read_text() + pinned)
    service, considers = SiteService(sites.site("north")), preview_approval

    def narrowed(*arguments: Any, **options: Any) -> Any:
        found = considers(*arguments, **options)
        text = sites.site("north").read_text()
        sites.site("north").write_text(text.replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.1"))
        return found

    monkeypatch.setattr(service_module, "preview_approval", narrowed)
    arrival = service.take_in(sites.pack(sites.study()))
    assert arrival.decision is None and not service.studies


def test_packs_take_none_of_the_threads_that_answer() -> None:
    done = threading.Event()

    class Slow:
        party = "north"

        def answer(self, raw: bytes) -> Answer:
            return Answer(b"answered " + raw)

        def receive(self, raw: bytes) -> bytes:
            done.wait(60)
            return b"received"

        def record_refusal(self, error: ComityError) -> None:
            raise error

    ours, its = socket.socketpair()
    with ours, its:
        its.settimeout(30)
        worker = Worker(ours, Slow())
        reading = threading.Thread(target=worker.run, daemon=True)
        reading.start()
        try:
            for number in range(MAX_CONCURRENT_ASKS + 1):
                its.sendall(pack_frame(Frame(Kind.HAVE, bytes([number]) * 16, Kind.STUDY)))
            name = b"a" * 16
            its.sendall(pack_frame(Frame(Kind.PIECE, name, 0, b"ask")) + pack_frame(Frame(Kind.HAVE, name, Kind.ASK)))
            heard = read_frames(its)
            assert next(heard).id == name and bytes(next(heard).body) == b"answered ask"
        finally:
            done.set()
            worker.end()
            its.shutdown(socket.SHUT_WR)
            reading.join()
