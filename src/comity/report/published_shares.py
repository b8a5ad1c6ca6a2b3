"""The published additive shares of a run, one file for each participant; `comity combine` adds them up."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from comity.data import Encoding
from comity.learn import LinearClassifier
from comity.protocols.averaging.published import PublishedAverage
from comity.protocols.averaging.shares import SUFFIX, Share, Terms, save_share
from comity.runtime.outcome import Outcome


def save_shares(outcome: Outcome, folder: Path) -> list[Path]:
    """Write what each participant published; nothing where a method publishes no shares."""
    shares, model = outcome.released.get("shares"), outcome.model
    if outcome.protocol != PublishedAverage.name or shares is None or not isinstance(model, LinearClassifier):
        return []
    grid = outcome.declaration["noise"].grid
    assert grid is not None
    terms = Terms(
        study=outcome.study_hash,
        run=outcome.run,
        participants=tuple(shares),
        parties=outcome.parties,
        grid=grid,
        classes=tuple(map(str, model.classes)),
        encoding=model.encoding if isinstance(model.encoding, Encoding) else None,
    )
    paths = []
    for name, words in shares.items():
        # A participant's name may hold anything; its file's name does not.
        paths.append(folder / f"{quote(name, safe=' ').lstrip('.')}{SUFFIX}")
        save_share(Share(name, words, terms), paths[-1])
    return paths
