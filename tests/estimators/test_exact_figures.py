"""Figures that were read off the records stay with the process that fitted: nothing that is handed on has them."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from comity.estimators import (
    AveragedClassifier,
    AveragedRegressor,
    SoftLabelClassifier,
    VerticalClassifier,
    VerticalRegressor,
)
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from tests.support.ledgers import RECORD

NAMES = ("clipped_", "shares_clipped_", "targets_clipped_")
# Shares that no noise and no setting comes to.
ROWS, OUTSIDE, OUTSIDE_TARGETS = 300, 43, 23


def fitted(kind: str, folder: Path) -> Any:
    """A fit that was charged to a ledger file, of rows of which 37 of 300 are beyond the bound."""
    generator = np.random.default_rng(3)
    X = generator.uniform(-0.4, 0.4, (ROWS, 4))
    X[:OUTSIDE] *= 40
    labels, numbers = (X[:, 0] > 0).astype(int), np.clip(X[:, 0], -0.4, 0.4)
    numbers[:OUTSIDE_TARGETS] = 9.0
    ledger: Any = None
    if kind != "softlabel":
        ledger = Ledger.create(folder / "a.ledger", dataset="rows", grant=Approx(50, "1e-5"), **RECORD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "averaged":
            return AveragedClassifier(bound=1.0, parties=3, ledger=ledger).fit(X, labels)
        if kind == "averaged numbers":
            return AveragedRegressor(bound=1.0, low=-1.0, high=1.0, parties=3, ledger=ledger).fit(X, numbers)
        if kind == "vertical":
            return VerticalClassifier(bounds=(-1, 1), ledger=ledger).fit(X, labels)
        if kind == "vertical numbers":
            return VerticalRegressor(bounds=(-1, 1), low=-1.0, high=1.0, ledger=ledger).fit(X, numbers)
        return SoftLabelClassifier(X[-50:], bound=1.0, parties=6).fit(X, labels)


def copies(found: Any) -> dict[str, Any]:
    stored = io.BytesIO()
    joblib.dump(found, stored)
    stored.seek(0)
    return {
        "pickle": pickle.loads(pickle.dumps(found)),
        "joblib": joblib.load(stored),
        "deepcopy": copy.deepcopy(found),
        "copy": copy.copy(found),
        "clone": clone(found),
    }


def shows_figure(found: Any) -> bool:
    """Whether four digits of the exact figure stand in what is shown or stored of an estimator."""
    texts = (repr(found), str(vars(found)), found._repr_html_(), repr(found.result_), str(pickle.dumps(found)))
    return any(f"{OUTSIDE / ROWS:.4f}"[:6] in text for text in texts)


@pytest.mark.parametrize("kind", ["averaged", "averaged numbers", "vertical", "vertical numbers", "softlabel"])
def test_what_is_handed_on_has_no_exact_figure(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    found = fitted(kind, tmp_path)
    own = [name for name in NAMES if hasattr(found, name)]
    assert {"clipped_", "shares_clipped_"} <= set(own) and found.clipped_ == pytest.approx(OUTSIDE / ROWS)
    for way, copied in copies(found).items():
        for name in own:
            with pytest.raises(AttributeError, match=rf"{name} is an exact figure about the fitted records"):
                getattr(copied, name)
        if way != "clone":
            assert np.array_equal(copied.coef_, found.coef_)
            assert copied.result_.findings == () and copied.result_.kept == {}
    texts = [repr(found), str(vars(found)), found._repr_html_(), repr(found.result_), repr(found.result_)]
    for text in (*texts, str(pickle.dumps(found))):
        assert not any(name in text for name in own)
    (tmp_path / "again").mkdir()
    # Four digits of a noisy weight may be the same by chance, but not in two fits.
    assert not (shows_figure(found) and shows_figure(fitted(kind, tmp_path / "again")))
