"""The folder of a run: described before the run starts, so that one that was killed can be found and resumed."""

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
from typing import Any

from comity._version import __version__
from comity.errors import Refused, StudyError
from comity.files import make_folder as make_private_folder
from comity.files import open_private
from comity.untrusted.pages import typed

_FORMAT = "comity-run-2"


@dataclass(frozen=True)
class Begun:
    """What `run.json` says: which run of which study, with what seed and overrides, whether it can be resumed, the
    sentence with which it was refused, if it was, and whether its sites are those of other organisations."""

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
    """A new folder OUT/DATE-N; of two runs that start at once each gets its own.

    Nobody else may look into it: beside the released model it holds the journal and the sites' ledgers and log.
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
        raise StudyError(f"{out}: runs can't be written here ({error.strerror}); choose another --out") from error
    raise AssertionError("numbers do not end")


def begin(folder: Path, begun: Begun, text: str) -> None:
    """Write the study as run, then `run.json`: a folder that has the latter has everything that a resume needs."""
    _write(folder / "study.toml", text)
    describe(folder, begun)


def describe(folder: Path, begun: Begun) -> None:
    page = {"format": _FORMAT, "comity": __version__, "started": datetime.now(UTC).isoformat(timespec="seconds")}
    _write(folder / "run.json", json.dumps({**page, **asdict(begun)}, indent=2, ensure_ascii=False) + "\n")


def read_begun(folder: Path) -> Begun:
    path = folder / "run.json"
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _FORMAT:
            raise ValueError(f"format {page['format']!r}")
        page.setdefault("deployed", False)
        begun: Begun = typed(Begun, {name: page[name] for name in Begun.__dataclass_fields__})
    except FileNotFoundError:
        raise StudyError(
            f"{folder}: expected the folder of a run with its run.json, found none; a run that was stopped before it "
            "wrote one spent nothing: run the study again"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StudyError(f"{path}: can't be read as the description of a run ({error}); run the study again") from error
    return begun


def require_resumable(folder: Path, begun: Begun) -> None:
    """Refuse to resume a run that would be refused again, or whose sites are gone."""
    if begun.refused:
        raise Refused(
            f"{folder}: this run was refused, and would be again: {begun.refused.removeprefix('refused: ')}. Then "
            f"start a new one: comity run {begun.study}",
            code="not-resumable",
        )
    if not begun.resumable:
        raise Refused(
            f"{folder}: this run can't be resumed, because its {begun.parties:,} simulated parties lived in memory and "
            f"ended with it. Run it again: comity run {begun.study}",
            code="not-resumable",
        )


def find_folder(named: Path, out: Path) -> Path:
    """A run by its folder, or by the folder's name under OUT."""
    for folder in (named, out / named):
        if folder.is_dir():
            return folder
    raise StudyError(f"{named}: there is no such run folder, nor {out / named}; name one, as in runs/2026-11-15-1")


class _PrivateLog(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(os.fdopen(open_private(self.baseFilename, os.O_WRONLY | os.O_APPEND), "ab"), "utf-8")


@contextmanager
def site_log(folder: Path) -> Iterator[None]:
    """What the simulated sites log goes to `sites.log`, which is made when there is something to say."""
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
