"""What a site spends on a packed study before its owner has decided about it, and how it enforces that.

A file can lie about its size, and a few bytes of Parquet can expand to gigabytes. So a pack with more than a small
study and a schema is first read in a separate process with little memory and time. What does not fit ends that process,
not the one that answers asks.

    python -m comity.site.pack_limits STUDY_FILE
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from comity import errors
from comity.errors import ComityError, Refused
from comity.untrusted.file_names import read_inside
from comity.untrusted.toml import read_tables

MAX_PACK_BYTES = 16 << 20
"""Of a pack, and thus of all its files together."""
SEAL_BYTES = 1 << 16
"""An upper bound on how much sealing enlarges a pack."""
MAX_TOML_BYTES = 4 << 20
"""Of one TOML file: about 1,500 parties with their keys."""
MAX_TOML_VALUES = 100_000
MAX_TOML_DEPTH = 32
"""Of nested brackets, and of the parts of a dotted key."""
MAX_ROWS = 500_000
MAX_COLUMNS = 10_000
MAX_TABLE_BYTES = 256 << 20
"""Of a Parquet file of public records, according to its footer: rows, columns, uncompressed bytes."""
MEMORY_BYTES = 1 << 30
CPU_SECONDS = 15
WALL_SECONDS = 120.0
"""Of the process that first reads a pack with public records, including its imports."""
MAX_UNDECIDED = 8
MAX_UNDECIDED_BYTES = 64 << 20
"""Of one submitter: how many studies may wait for the owner's decision, and the bytes of these and of the studies that
the policy approved by itself."""
LEAST_FREE_BYTES = 100 << 20
LEAST_FREE_SHARE = 0.1
"""No study is taken in if less of the disk, the smaller of the two, would stay free: running studies need it for their
commits."""


_SMALL_BYTES, _SMALL_VALUES = 64 << 10, 4096
"""TOML up to this size is read in the site's process: it takes milliseconds."""
_VALUES = (b",", b"=", b"[", b"{")
_BRACKETS = re.compile(rb"[\[\]{}]")
_UNREADABLE = 3


def check_texts(files: Mapping[str, bytes]) -> None:
    """Refuse TOML that would take long to parse, without parsing it. The counts are upper bounds on what a parser
    makes."""
    for name, content in files.items():
        if name.endswith(".toml"):
            _check_text(name, content)


def check_schema(study: Path) -> None:
    """Refuse a schema that would take long to parse, even under another file suffix. The study was checked before."""
    try:
        name = read_tables(study.read_text(encoding="utf-8"))["study"]["schema"]
        content = read_inside(study.parent, name)
    except (OSError, ValueError, LookupError, TypeError):
        return  # loading the study reports what is wrong
    _check_text(name, content)


def _check_text(name: str, content: bytes) -> None:
    if len(content) > MAX_TOML_BYTES:
        raise _too_much(name, f"has {len(content):,} bytes", f"{MAX_TOML_BYTES:,}")
    if (values := _values(content)) > MAX_TOML_VALUES:
        raise _too_much(name, f"has about {values:,} values", f"{MAX_TOML_VALUES:,}")
    if (depth := _depth(content)) > MAX_TOML_DEPTH:
        raise _too_much(name, f"is nested {depth} deep", str(MAX_TOML_DEPTH))


def is_small(files: Mapping[str, bytes]) -> bool:
    """Whether the site's process may read these files itself: short TOML and nothing else."""
    size = sum(map(len, files.values()))
    return (
        all(name.endswith(".toml") for name in files)
        and size <= _SMALL_BYTES
        and sum(map(_values, files.values())) <= _SMALL_VALUES
    )


def examine(study: Path) -> None:
    """Read a study file and what it names in a separate process. It refuses what exceeds the limits above, and raises
    what reading the study raises."""
    allowed = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **allowed, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", __name__, str(study)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _exhausted() from None
    if ended.returncode == _UNREADABLE:
        raise _reported_error(ended.stdout)
    if ended.returncode:
        raise _exhausted()


def check_footers(folder: Path) -> None:
    """Refuse Parquet files whose footer states more than a site reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(folder.rglob("*")):
        # The reader recognises a suffix in upper and lower case.
        if path.suffix.lower() != ".parquet" or not path.is_file():
            continue
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            continue  # reading it reports what is wrong
        size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
        for what, value, limit in (
            ("rows", footer.num_rows, MAX_ROWS),
            ("columns", footer.num_columns, MAX_COLUMNS),
            ("bytes before compression", size, MAX_TABLE_BYTES),
        ):
            if not 0 <= value <= limit:
                raise _too_much(path.name, f"has {value:,} {what}", f"{limit:,}")


def _values(content: bytes) -> int:
    return sum(content.count(mark) for mark in _VALUES)


def _depth(content: bytes) -> int:
    deepest = depth = 0
    for bracket in _BRACKETS.finditer(content):
        depth = depth + 1 if bracket[0] in (b"[", b"{") else max(0, depth - 1)
        deepest = max(deepest, depth)
    keys = (line.partition(b"=")[0] for line in content.splitlines() if not line.lstrip().startswith(b"#"))
    return max(deepest, max((key.count(b".") + 1 for key in keys), default=0))


def _too_much(name: str, measured: str, limit: str) -> Refused:
    return Refused(
        f"refused: {name[:80]!r} of a packed study {measured}, and a site reads at most {limit} before its owner "
        "decides; its author must shorten it",
        code="size",
        key="files",
    )


def _exhausted() -> Refused:
    return Refused(
        f"refused: reading a packed study takes more than {CPU_SECONDS} s or {MEMORY_BYTES >> 20} MB, the limit "
        "before its owner decides; its author must shorten the public files",
        code="size",
        key="files",
    )


def _reported_error(output: bytes) -> ComityError:
    """The error that the other process raised."""
    try:
        page = json.loads(output)
        kind = getattr(errors, page["kind"])
        error = kind(page["sentence"], code=page["code"], key=page["key"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return _exhausted()
    return error if isinstance(error, ComityError) else _exhausted()


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(path: str) -> int:
    _limit()
    from comity.study.study import Study

    study = Path(path)
    try:
        check_footers(study.parent)
        check_schema(study)
        Study.load(study)
    except ComityError as error:
        page = {"kind": type(error).__name__, "sentence": str(error), "code": error.code, "key": error.key}
        sys.stdout.write(json.dumps(page))
        return _UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
