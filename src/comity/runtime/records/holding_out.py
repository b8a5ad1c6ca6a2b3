"""Records that are set aside to test on, by public chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Held, Records, StreamedRecords
from comity.entropy import Stream

Rows = NDArray[np.int64]


def held_out(parties: Mapping[str, Held], *, share: float, name: str) -> tuple[dict[str, Held], Records | None]:
    """The same share of each party's records is set aside; a fraction of a record is decided by public chance under
    this name. Of records that are read in blocks none is."""
    stream = Stream.public(name, "holdout")
    kept: dict[str, Held] = {}
    tested = []
    for party, records in parties.items():
        if isinstance(records, StreamedRecords):
            kept[party] = records
            continue
        count = int(len(records) * share + stream.uniform(1)[0])
        order = stream.permutation(len(records))
        tested.append(rows_of(records, np.sort(order[:count])))
        kept[party] = rows_of(records, np.sort(order[count:]))
    if not sum(map(len, tested)):
        return kept, None
    features = np.concatenate([records.features for records in tested])
    labels: Any = [records.labels for records in tested if records.labels is not None]
    return kept, Records(features, np.concatenate(labels) if labels else None)


def rows_of(records: Records, rows: Rows) -> Records:
    return Records(
        records.features[rows],
        None if records.labels is None else records.labels[rows],
        None if records.ids is None else records.ids[rows],
    )
