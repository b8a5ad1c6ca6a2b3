"""`comity doctor`: check this machine, a site or a consortium."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.failure import BAD_INPUT
from comity.cli.options import AsJson
from comity.cli.output import show

if TYPE_CHECKING:
    from comity.site.health import Finding

_SYNCS = 20


def doctor(
    site: Annotated[
        Path | None,
        typer.Option(help="Check an owner's site: its site file, or the folder of the file.", show_default=False),
    ] = None,
    consortium: Annotated[
        Path | None, typer.Option(help="Check the folder of a consortium and its relay.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: versions, COMITY_HOME, COMITY_DATA, and the time of a durable write.

    --site checks keys, invitation, clock, disk, ledger and data; --consortium checks members and the relay's
    configuration. Exits with code 3 when something must be fixed. Checking spends nothing.

    Example: comity doctor

    Example: comity doctor --site site.toml

    Example: comity doctor --consortium consortium
    """
    if site is not None or consortium is not None:
        _show_findings(_collect_findings(site, consortium), as_json=as_json)
        return
    from comity.study.results.result import software_versions

    home, data, sync = _check_home(), _check_datasets(), _time_durable_write()
    document: dict[str, Any] = {
        "versions": software_versions(),
        "machine": machine(),
        "home": home,
        "data": data,
        "durable_write": sync,
    }
    lines = [f"  {name.ljust(14)}  {version}" for name, version in software_versions().items()]
    for name, finding in (("COMITY_HOME", home), ("COMITY_DATA", data), ("durable write", sync)):
        lines.append(f"  {name.ljust(14)}  {'' if finding['ok'] else 'TO DO: '}{finding['sentence']}")
    wrong = sum(not finding["ok"] for finding in (home, data, sync))
    document["verdict"] = _verdict(wrong, 0, "this machine can run studies")
    show([*lines, f"  {'verdict'.ljust(14)}  {document['verdict']}"], document, as_json=as_json)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def _verdict(wrong: int, warned: int, well: str) -> str:
    """One sentence for everything that was checked."""
    if wrong:
        return f"NOT READY: {wrong} {'thing has' if wrong == 1 else 'things have'} to be fixed, marked TO DO above"
    return f"ready: {well}" + (f"; {warned} {'warning' if warned == 1 else 'warnings'} above" if warned else "")


def _collect_findings(site: Path | None, consortium: Path | None) -> list[Finding]:
    findings: list[Finding] = []
    if site is not None:
        from comity.site.health import check_site
        from comity.site.site_file import NAME

        findings += check_site(site / NAME if site.is_dir() else site)
    if consortium is not None:
        from comity.relay.consortium_health import check_consortium

        findings += check_consortium(consortium)
    return findings


def _show_findings(findings: list[Finding], *, as_json: bool) -> None:
    from dataclasses import asdict

    words = {"ok": "ok", "warning": "warning", "failure": "TO DO"}
    lines = [f"  {words[one.state]:<8}{one.name:<14}  {one.sentence}" for one in findings]
    failed = sum(one.state == "failure" for one in findings)
    verdict = _verdict(failed, sum(one.state == "warning" for one in findings), "nothing has to be fixed")
    document = {"ok": not failed, "verdict": verdict, "findings": [asdict(one) for one in findings]}
    show([*lines, f"  {'':<8}{'verdict':<14}  {verdict}"], document, as_json=as_json)
    if failed:
        raise typer.Exit(BAD_INPUT)


def _check_home() -> dict[str, Any]:
    from comity.privacy.ledger import heads_folder

    folder = heads_folder()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    ok = nearest.is_dir() and os.access(nearest, os.W_OK)
    sentence = f"{folder.parent}: the last head of each ledger is kept here"
    return {
        "ok": ok,
        "sentence": sentence if ok else f"{folder.parent} can't be written; set COMITY_HOME to a folder that can",
    }


def _check_datasets() -> dict[str, Any]:
    from comity.data import DATASETS

    named = os.environ.get("COMITY_DATA")
    if not named:
        return {"ok": True, "sentence": "not set; only experiments with public datasets use it"}
    there = [name for name in DATASETS if (Path(named) / f"{name}.parquet").is_file()]
    if not there:
        return {"ok": False, "sentence": f"{named} holds no known dataset; set it to the folder that does"}
    return {"ok": True, "sentence": f"{named}: {len(there)} of {len(DATASETS)} known datasets"}


def _time_durable_write() -> dict[str, Any]:
    """The median time of an fsync in this folder, where run folders and ledgers would be."""
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


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system; no host name, no paths."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
