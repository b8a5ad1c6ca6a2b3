"""The form of records that are handed over: so many rows at most, as wide as the study says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comity.federation.declaring.consortium import Consortium


@dataclass(frozen=True)
class Chosen:
    """Rows of `width` finite numbers, `most` of them at most, with a label of type `labels` for each where the study
    has a target, and where they are those of several owners the place of each one's."""

    width: int
    most: int
    labels: str | None
    owners: int = 0

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        names = {"rows", *(("labels",) if self.labels else ()), *(("owners",) if self.owners else ())}
        if type(value) is not dict or set(value) != names:
            return False
        rows = value["rows"]
        if not _is_array(rows, "<f8") or rows.ndim != 2 or rows.shape[1] != self.width or len(rows) > self.most:
            return False
        if self.labels and not (_is_array(value["labels"], self.labels) and value["labels"].shape == (len(rows),)):
            return False
        if not self.owners:
            return True
        owners = value["owners"]
        return bool(
            _is_array(owners, "<i8") and owners.shape == (len(rows),) and ((owners >= 0) & (owners < self.owners)).all()
        )


def _is_array(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.str == dtype and bool(np.isfinite(value).all())
