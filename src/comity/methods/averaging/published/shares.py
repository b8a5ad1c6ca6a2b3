"""Stage 3: additive shares of the noisy sum of models, published one per participant; anybody adds them up.

Any K of the K + 1 shares are uniform and independent of the model, against any computing power; all together show the
noisy sum and nothing else of the summands. A file holds one share and the public terms of its run, so shares of
different runs, or the same share twice, are noticed before they are added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.artefact import Card, read_document
from comity.artefacts.section import Grid, Section
from comity.crypto.products.fixed_point import join_shares
from comity.data import Encoding
from comity.errors import DataError
from comity.files import write_file
from comity.learn.released_model import encoding_as_page, read_encoding, read_value
from comity.representation import short_repr

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

Words = NDArray[np.uint64]

SUFFIX: Final = ".share.json"
_FORMAT: Final = "comity-share"
_VERSION: Final = 1
_MAX_BYTES: Final = 1 << 28


@dataclass(frozen=True)
class Terms:
    """What all shares of a run have in common. The sum of `parties` models is in units of `grid`."""

    study: str
    run: str
    participants: tuple[str, ...]
    parties: int
    grid: float
    classes: tuple[str, ...]
    encoding: Encoding | None = None


@dataclass(frozen=True, eq=False)
class Share:
    __repr__ = short_repr

    participant: str
    words: Words
    terms: Terms


@dataclass(frozen=True, eq=False)
class PublishedShares:
    """The shares of a run, one file for each participant; `comity combine` adds them up."""

    __repr__ = short_repr

    kind: ClassVar[str] = "shares"
    place: ClassVar[str] = "shares"

    shares: tuple[Share, ...]

    def save(self, folder: Path) -> None:
        for share in self.shares:
            save_share(share, folder / _file_name(share.participant))

    @classmethod
    def load(cls, folder: Path) -> Self:
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        if not paths:
            raise DataError(f"{folder}: no file *{SUFFIX} is in this folder; give the shares that were published")
        shares = [load_share(path) for path in paths]
        order = shares[0].terms.participants
        shares.sort(key=lambda share: order.index(share.participant) if share.participant in order else len(order))
        return cls(tuple(shares))

    def card(self) -> Card:
        return Card(
            "published shares",
            f"Additive shares of {len(self.shares)} participants, which show a model only all together",
            parts={
                "Files": f"`*{SUFFIX}`, one for each participant; no code is run by opening them. Use: `comity combine "
                "FOLDER --to model`."
            },
        )

    def section(self, noise: float | None = None) -> Section:
        rows = tuple((share.participant, len(share.words)) for share in self.shares)
        return Section("Published shares", tables=(Grid(("participant", "words"), rows),))


def _file_name(participant: str) -> str:
    """A participant's name may hold any character; file names are safe, and different for different participants."""
    safe = quote(participant, safe=" ")
    return f"{'%2E' + safe[1:] if safe.startswith('.') else safe}{SUFFIX}"


def average_shares(shares: Mapping[str, Words], parties: int, grid: float) -> NDArray[np.float64]:
    """The model: the shares added up modulo 2^64, in the units of a weight, over the number of parties."""
    return np.asarray(join_shares(list(shares.values())) * grid / parties, np.float64)


def combine_shares(shares: Sequence[Share]) -> LinearClassifier:
    """The model that all shares of one run add up to."""
    from comity.learn.classifiers import LinearClassifier

    if not shares:
        raise DataError("at least one share was expected, found none; give the files of all participants")
    terms, found = shares[0].terms, [share.participant for share in shares]
    for share in shares:
        if _comparable(share.terms) != _comparable(terms):
            raise DataError(
                f"the shares of {share.participant} and {shares[0].participant} are of different runs; give one run's"
            )
    missing = [name for name in terms.participants if name not in found]
    if missing or len(set(found)) != len(found):
        wrong = f"{', '.join(missing)} missing" if missing else "one is there twice"
        raise DataError(
            f"run {terms.run} has {len(terms.participants)} shares, found {len(found)} ({wrong}); give each once"
        )
    coef = average_shares({share.participant: share.words for share in shares}, terms.parties, terms.grid)
    return LinearClassifier(coef[None, :], classes=terms.classes, encoding=terms.encoding)


def _comparable(terms: Terms) -> tuple[Terms, dict[str, Any] | None]:
    return replace(terms, encoding=None), encoding_as_page(terms.encoding)


def save_share(share: Share, path: Path) -> None:
    terms = share.terms
    page = {
        "format": _FORMAT,
        "version": _VERSION,
        "participant": share.participant,
        "study": terms.study,
        "run": terms.run,
        "participants": list(terms.participants),
        "parties": terms.parties,
        "grid": terms.grid,
        "classes": list(terms.classes),
        "encoding": encoding_as_page(terms.encoding),
        "words": [f"{word:016x}" for word in share.words.tolist()],
    }
    write_file(path, json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load_share(path: Path) -> Share:
    """A share from an untrusted file: it is checked before use, and no code is run."""
    remedy = "give a file that a participant published"
    page = read_document(path, "share", remedy, form=_FORMAT, version=_VERSION, max_bytes=_MAX_BYTES)
    grid = _get(page, "grid", float, path)
    parties = _get(page, "parties", int, path)
    if not 0 < grid < float("inf") or not 2 <= parties < 1 << 20:
        raise DataError(f"{path}: a grid above 0 and 2 parties or more were expected, found {grid} and {parties}")
    terms = Terms(
        study=_get(page, "study", str, path),
        run=_get(page, "run", str, path),
        participants=tuple(_get_texts(page, "participants", path)),
        parties=parties,
        grid=grid,
        classes=tuple(_get_texts(page, "classes", path)),
        encoding=read_encoding(page, path, "share"),
    )
    words = _parse_words(_get_texts(page, "words", path), path)
    if len(set(terms.classes)) != 2 or (terms.encoding is not None and terms.encoding.width != words.size):
        raise DataError(f"{path}: its classes, its schema and its {words.size} numbers are not of one model")
    return Share(_get(page, "participant", str, path), words, terms)


def _parse_words(texts: list[str], path: Path) -> Words:
    try:
        if not texts or any(len(text) != 16 for text in texts):
            raise ValueError("16 hexadecimal digits were expected in each")
        return np.array([int.from_bytes(bytes.fromhex(text), "big") for text in texts], "<u8")
    except ValueError as error:
        raise DataError(f"{path}: words can't be read ({error}); fetch the share again") from error


def _get_texts(page: dict[str, Any], key: str, path: Path) -> list[str]:
    values: list[str] = _get(page, key, list, path)
    if any(not isinstance(value, str) for value in values):
        raise DataError(f"{path}: {key} must be texts; fetch the share again")
    return values


def _get(page: dict[str, Any], key: str, kind: type, path: Path) -> Any:
    return read_value(page, key, kind, path, "share")
