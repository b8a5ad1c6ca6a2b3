"""The public files that a study names: in its own folder, and nowhere else.

Somebody else may have written the study: reading it opens nothing of its reader's outside this folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from comity.data import Schema
from comity.errors import BadInput, DataError, SchemaError, StudyError
from comity.methods.method import ABSENT
from comity.untrusted.file_names import has_control_characters, is_inside

if TYPE_CHECKING:
    import pandas as pd


def confine(folder: Path, name: str, key: str, where: str) -> Path:
    """The path of a file of the study. One outside its folder, also behind a link, is not even looked at: a plan or an
    error would already tell the study's author something about the file."""
    path = folder / name
    if Path(name).is_absolute() or has_control_characters(name) or not is_inside(folder, path):
        raise StudyError(
            f"{where}: {key} = {name!r} leads out of the study's folder; copy the file beside the study and name it "
            "by its relative path",
            key=key,
        )
    return path


def load_schema(folder: Path, name: str, where: str) -> Schema:
    key = "study.schema"
    path = confine(folder, name, key, where)
    if not path.is_file():
        raise SchemaError(f"{where}: {key}: there is no file {path}; put it there, or correct the key", key=key)
    try:
        return Schema.load(path)
    except SchemaError as error:
        raise SchemaError(f"{where}: {key}: {error}", code=error.code, key=error.key) from error


def read_public_records(folder: Path, name: str, key: str, where: str) -> pd.DataFrame:
    """The records of a file that a key of the study names."""
    path = confine(folder, name, key, where)
    if not path.is_file():
        raise DataError(
            f"{where}: {key}: there is no file {path}; put it there, or correct the key", code=ABSENT, key=key
        )
    from comity.data.tables.sources import open_source

    try:
        return open_source(name, where=f"{where}: {key}", base=folder).read()
    except BadInput as error:
        sentence = str(error)
        raise type(error)(sentence if sentence.startswith(where) else f"{where}: {key}: {sentence}", key=key) from error


def digest_file(folder: Path, name: str, key: str, where: str) -> str:
    try:
        with confine(folder, name, key, where).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StudyError(f"{where}: {key}: {name} can't be read ({error.strerror}); put it there", key=key) from error
