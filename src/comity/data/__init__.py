"""Records and their public description: schema, encoding with norm bounds, sources, splits, generated visits."""

from __future__ import annotations

from comity.data.check import Finding, explain, explain_size
from comity.data.clinics import clinic_schema, clinics, public_cohort
from comity.data.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target
from comity.data.datasets import DATASETS, dataset
from comity.data.draft import draft
from comity.data.encoding import Encoded, Encoding, Group, NormBounds
from comity.data.nearest import nearest
from comity.data.partition import by_anchors, by_column, by_features, by_sizes, even
from comity.data.records import Records
from comity.data.schema import Schema
from comity.data.sources import Csv, Frame, Parquet, Source, check_table, open_source
from comity.data.sql import Sql
from comity.data.streamed_records import IN_MEMORY, Held, StreamedRecords, fits, open_records
from comity.data.tally import Tally

__all__ = [
    "DATASETS",
    "IN_MEMORY",
    "Bounded",
    "Categorical",
    "Classes",
    "Column",
    "Csv",
    "Date",
    "Encoded",
    "Encoding",
    "Finding",
    "Frame",
    "Group",
    "Held",
    "NormBounds",
    "Numeric",
    "Ordinal",
    "Parquet",
    "Records",
    "Schema",
    "Source",
    "Sql",
    "StreamedRecords",
    "Tally",
    "Target",
    "by_anchors",
    "by_column",
    "by_features",
    "by_sizes",
    "check_table",
    "clinic_schema",
    "clinics",
    "dataset",
    "draft",
    "even",
    "explain",
    "explain_size",
    "fits",
    "nearest",
    "open_records",
    "open_source",
    "public_cohort",
]
