"""A party's common rows as its steps read them: some at a time, in the order that all parties share.

Records in memory are read where they stand. Records in blocks are put in the common order once, in a file without a
name (`comity.data.tables.row_file`); a site that was started again makes it again from its positions. Either way a row
has the same bits, so sums of integers over rows do not depend on where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords, Records, StreamedRecords
from comity.data.tables.row_file import RowFile
from comity.errors import BadInput, DataError, Refused
from comity.federation.owner.site import Site
from comity.methods.by_columns.alignment import common_positions

_FILE = "common rows"
_ORDER = "common order"


@dataclass(frozen=True, eq=False)
class CommonRows:
    """`count` rows of `records`: those of `file`, or of `order`, or all of them in their order."""

    records: LocalRecords
    count: int
    order: NDArray[np.int64] | None = None
    file: RowFile | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def in_memory(self) -> bool:
        return isinstance(self.records, Records)

    def labels(self, part: slice) -> NDArray[np.int64] | NDArray[np.float64]:
        """The labels of these rows."""
        found = self.read(part).labels if self.file is not None or not self.in_memory else self._labels(part)
        if found is None:
            raise Refused("a step asks for labels, and this party holds none", code="stopped")
        return found

    def _labels(self, part: slice) -> NDArray[np.int64] | NDArray[np.float64] | None:
        labels = self.records.labels
        return None if labels is None else labels[part if self.order is None else self.order[part]]

    def read(self, part: slice) -> Records:
        """These rows, without identifiers."""
        try:
            if self.file is not None:
                return self.file.read(part)
            if isinstance(self.records, StreamedRecords):
                return self.records.rows(part)
            which = part if self.order is None else self.order[part]
            return Records(self.records.features[which], self._labels(part))
        except BadInput as error:
            # Records that can't be read are no failed fit, to be answered neutrally and paid for.
            raise Refused(str(error), code="stopped") from error


def common_rows(site: Site) -> CommonRows:
    """The rows that this party multiplies: those that an alignment found, or all of them where there was none."""
    records, positions = site.records, common_positions(site)
    if positions is None:
        return CommonRows(records, len(records))
    if isinstance(records, StreamedRecords):
        try:
            file = site.built(_FILE, b"", lambda: records.reordered(positions))
        except DataError as error:
            raise Refused(str(error), code="stopped") from error
        return CommonRows(records, len(file), file=file)
    order = site.prepared(_ORDER, b"", lambda: np.concatenate(list(positions)))
    return CommonRows(records, len(order), order)
