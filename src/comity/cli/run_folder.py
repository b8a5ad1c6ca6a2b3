"""The folder of a run. Its manifest is written before the run starts, so a killed run can be found and resumed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity._version import __version__
from comity.errors import Refused, StudyError
from comity.files import make_folder as make_private_folder
from comity.files import open_private
from comity.untrusted.pages import validate

if TYPE_CHECKING:
    from comity.study.study import Study

_FORMAT = "comity-run-2"


@dataclass(frozen=True)
class RunManifest:
    """What `run.json` says of a run.

    `refused` is the sentence of a final refusal, or empty. `deployed` runs have the sites of other organisations.
    """

    run: str
    study: str
    study_folder: str
    study_hash: str
    seed: int | None
    overrides: Mapping[str, Any]
    parties: int
    resumable: bool
    refused: str = ""
    deployed: bool = False


def make_folder(out: Path) -> Path:
    """Create OUT/DATE-N, readable by its owner alone: it holds ledgers, journal and log beside the released model.

    Two runs that start at once get two folders.
    """
    try:
        make_private_folder(out)
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        for number in count(1):
            try:
                folder = out / f"{day}-{number}"
                make_private_folder(folder, exist_ok=False)
                return folder
            except FileExistsError:
                continue
    except OSError as error:
        raise StudyError(f"{out}: can't hold run folders ({error.strerror}); choose another --out") from error
    raise AssertionError("unreachable")


def begin_run(folder: Path, manifest: RunManifest, text: str) -> None:
    """Write the study as run, then `run.json`: a folder with `run.json` can be resumed."""
    _write(folder / "study.toml", text)
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    page = {"format": _FORMAT, "comity": __version__, "started": datetime.now(UTC).isoformat(timespec="seconds")}
    _write(folder / "run.json", json.dumps({**page, **asdict(manifest)}, indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> RunManifest:
    path = folder / "run.json"
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _FORMAT:
            raise ValueError(f"format {page['format']!r}")
        page.setdefault("deployed", False)
        manifest: RunManifest = validate(RunManifest, {name: page[name] for name in RunManifest.__dataclass_fields__})
    except FileNotFoundError:
        raise StudyError(
            f"{folder}: has no run.json, so it is no run folder. A run that stopped before it wrote one spent nothing: "
            "run the study again"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StudyError(f"{path}: no description of a run can be read here ({error}); run the study again") from error
    return manifest


def require_resumable(folder: Path, manifest: RunManifest) -> None:
    """Refuse to resume a run that would be refused again, or whose sites are gone."""
    if manifest.refused:
        raise Refused(
            f"{folder}: this run was refused and would be refused again: {manifest.refused.removeprefix('refused: ')}. "
            f"Then start a new run: comity run {manifest.study}",
            code="not-resumable",
        )
    if not manifest.resumable:
        raise Refused(
            f"{folder}: this run can't be resumed, because its {manifest.parties:,} parties were simulated in memory. "
            f"Run it again: comity run {manifest.study}",
            code="not-resumable",
        )


def load_study(folder: Path, manifest: RunManifest) -> Study:
    """The study as run; refused where the schema or a public file has changed since."""
    from comity.study.study import Study

    path = folder / "study.toml"
    study = Study.parse(path.read_text(encoding="utf-8"), folder=Path(manifest.study_folder), where=str(path))
    if study.hash != manifest.study_hash:
        raise Refused(
            f"{folder}: the schema or a public file in {manifest.study_folder} has changed since this run started, so "
            "it is another study. Restore the file, or start a new run",
            code="study",
        )
    return study


def find_folder(named: Path, out: Path) -> Path:
    """A run by its folder, or by the folder's name under OUT."""
    for folder in (named, out / named):
        if folder.is_dir():
            return folder
    raise StudyError(f"{named}: there is no such run folder, nor {out / named}; give one, as in runs/2026-11-15-1")


class _PrivateLog(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(os.fdopen(open_private(self.baseFilename, os.O_WRONLY | os.O_APPEND), "ab"), "utf-8")


@contextmanager
def site_log(folder: Path) -> Iterator[None]:
    """Write what the simulated sites log to `sites.log`; nothing logged, no file."""
    from comity.site.logs import TextLines

    handler = _PrivateLog(folder / "sites.log", encoding="utf-8", delay=True)
    handler.setFormatter(TextLines("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("comity")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(path.suffix + ".new")
    with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
