"""`comity doctor`: whether this machine has what Comity needs."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import show

BAD_INPUT = 3
_SYNCS = 20


def doctor(as_json: AsJson = False) -> None:
    """Look at versions, at COMITY_HOME and COMITY_DATA, and at how long a durable write takes here.

    Ends with code 3 when something has to be put right.

    Example: comity doctor
    """
    from comity.cli.figures import machine
    from comity.report.versions import versions

    home, data, sync = _home(), _data(), _durable_write()
    document = {"versions": versions(), "machine": machine(), "home": home, "data": data, "durable_write": sync}
    lines = [f"  {name.ljust(14)}  {version}" for name, version in versions().items()]
    for name, finding in (("COMITY_HOME", home), ("COMITY_DATA", data), ("durable write", sync)):
        lines.append(f"  {name.ljust(14)}  {'' if finding['ok'] else 'TO DO: '}{finding['sentence']}")
    show("\n".join(lines), document, as_json=as_json)
    if not all(finding["ok"] for finding in (home, data, sync)):
        raise typer.Exit(BAD_INPUT)


def _home() -> dict[str, Any]:
    from comity.privacy.ledger_witness import heads_folder

    folder = heads_folder()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    ok = nearest.is_dir() and os.access(nearest, os.W_OK)
    sentence = f"{folder.parent}: the last head of each ledger is kept here"
    return {
        "ok": ok,
        "sentence": sentence if ok else f"{folder.parent} can't be written; set COMITY_HOME to a folder that can",
    }


def _data() -> dict[str, Any]:
    from comity.data import DATASETS

    named = os.environ.get("COMITY_DATA")
    if not named:
        return {"ok": True, "sentence": "not set; only `comity reproduce` needs it"}
    there = [name for name in DATASETS if (Path(named) / f"{name}.parquet").is_file()]
    if not there:
        return {"ok": False, "sentence": f"{named} holds no known dataset; set it to the folder that does"}
    return {"ok": True, "sentence": f"{named}: {len(there)} of {len(DATASETS)} known datasets"}


def _durable_write() -> dict[str, Any]:
    """The median time of an fsync in this folder, where run folders and ledgers would lie."""
    try:
        with tempfile.TemporaryFile(dir=Path.cwd()) as file:
            times = []
            for _ in range(_SYNCS):
                file.write(bytes(4096))
                file.flush()
                start = time.perf_counter()
                os.fsync(file.fileno())
                times.append(time.perf_counter() - start)
    except OSError as error:
        return {"ok": False, "sentence": f"{Path.cwd()} can't be written ({error.strerror}); work in another folder"}
    milliseconds = sorted(times)[_SYNCS // 2] * 1e3
    return {"ok": True, "sentence": f"{milliseconds:.2f} ms in {Path.cwd()}", "milliseconds": milliseconds}
