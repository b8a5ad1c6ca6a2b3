"""Records and their public description: schema, encoding with norm bounds, sources, splits, generated visits.

Names that need pandas are imported on first use: importing pandas takes longer than making a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.data.records import Records
from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target
from comity.data.schemas.conforming import Tally
from comity.data.schemas.impossible import Impossible
from comity.data.schemas.schema import Schema
from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.data.cells import CellEncoding as CellEncoding
    from comity.data.cells import Cells as Cells
    from comity.data.encoding import Encoded as Encoded
    from comity.data.encoding import Encoding as Encoding
    from comity.data.encoding import Group as Group
    from comity.data.encoding import NormBounds as NormBounds
    from comity.data.partition import split_by_anchors as split_by_anchors
    from comity.data.partition import split_by_column as split_by_column
    from comity.data.partition import split_by_sizes as split_by_sizes
    from comity.data.partition import split_columns as split_columns
    from comity.data.partition import split_evenly as split_evenly
    from comity.data.public.datasets import DATASETS as DATASETS
    from comity.data.public.datasets import dataset as dataset
    from comity.data.public.visits import clinic_schema as clinic_schema
    from comity.data.public.visits import clinics as clinics
    from comity.data.public.visits import public_cohort as public_cohort
    from comity.data.schemas.check import Finding as Finding
    from comity.data.schemas.check import explain as explain
    from comity.data.schemas.check import explain_size as explain_size
    from comity.data.schemas.check import explain_source as explain_source
    from comity.data.schemas.drafting import draft as draft
    from comity.data.tables.csv_file import Csv as Csv
    from comity.data.tables.parquet_file import Parquet as Parquet
    from comity.data.tables.source import Frame as Frame
    from comity.data.tables.source import Source as Source
    from comity.data.tables.sources import check_table as check_table
    from comity.data.tables.sources import open_source as open_source
    from comity.data.tables.sql import Sql as Sql
    from comity.data.tables.streamed_records import MAX_BYTES_IN_MEMORY as MAX_BYTES_IN_MEMORY
    from comity.data.tables.streamed_records import LocalRecords as LocalRecords
    from comity.data.tables.streamed_records import StreamedRecords as StreamedRecords
    from comity.data.tables.streamed_records import digest_records as digest_records
    from comity.data.tables.streamed_records import fits_in_memory as fits_in_memory

__all__ = [
    "DATASETS",
    "MAX_BYTES_IN_MEMORY",
    "Bounded",
    "Categorical",
    "CellEncoding",
    "Cells",
    "Classes",
    "Column",
    "Csv",
    "Date",
    "Encoded",
    "Encoding",
    "Finding",
    "Frame",
    "Group",
    "Impossible",
    "LocalRecords",
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
    "check_table",
    "clinic_schema",
    "clinics",
    "dataset",
    "digest_records",
    "draft",
    "explain",
    "explain_size",
    "explain_source",
    "fits_in_memory",
    "open_source",
    "public_cohort",
    "split_by_anchors",
    "split_by_column",
    "split_by_sizes",
    "split_columns",
    "split_evenly",
]

_HOMES = {
    "CellEncoding": "comity.data.cells",
    "Cells": "comity.data.cells",
    "Csv": "comity.data.tables.csv_file",
    "DATASETS": "comity.data.public.datasets",
    "Encoded": "comity.data.encoding",
    "Encoding": "comity.data.encoding",
    "Finding": "comity.data.schemas.check",
    "Frame": "comity.data.tables.source",
    "Group": "comity.data.encoding",
    "LocalRecords": "comity.data.tables.streamed_records",
    "MAX_BYTES_IN_MEMORY": "comity.data.tables.streamed_records",
    "NormBounds": "comity.data.encoding",
    "Parquet": "comity.data.tables.parquet_file",
    "Source": "comity.data.tables.source",
    "Sql": "comity.data.tables.sql",
    "StreamedRecords": "comity.data.tables.streamed_records",
    "split_by_anchors": "comity.data.partition",
    "split_by_column": "comity.data.partition",
    "split_columns": "comity.data.partition",
    "split_by_sizes": "comity.data.partition",
    "check_table": "comity.data.tables.sources",
    "clinic_schema": "comity.data.public.visits",
    "clinics": "comity.data.public.visits",
    "dataset": "comity.data.public.datasets",
    "digest_records": "comity.data.tables.streamed_records",
    "draft": "comity.data.schemas.drafting",
    "split_evenly": "comity.data.partition",
    "explain": "comity.data.schemas.check",
    "explain_size": "comity.data.schemas.check",
    "explain_source": "comity.data.schemas.check",
    "fits_in_memory": "comity.data.tables.streamed_records",
    "open_source": "comity.data.tables.sources",
    "public_cohort": "comity.data.public.visits",
}


__getattr__, __dir__ = export_lazily(globals(), _HOMES)
