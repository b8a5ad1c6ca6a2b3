"""Starter files of generated hospitals: visits by hospital, a test table, schema and study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from comity.data import clinic_schema, clinics

TESTED = 2000
_UNUSED = ["disposition", "patient"]


def write_hospitals(folder: Path, sizes: Mapping[str, int], study: str) -> None:
    """`study` is the text of the study file."""
    tables = []
    for name, size in sizes.items():
        visits = pd.concat(clinics(size // 100, 100, f"comity new, {name}").values(), ignore_index=True)
        tables.append(visits.assign(hospital=name))
    tested = pd.concat(clinics(TESTED // 100, 100, "comity new, test").values(), ignore_index=True)
    pd.concat(tables, ignore_index=True).drop(columns=_UNUSED).to_parquet(folder / "records.parquet", index=False)
    tested.drop(columns=_UNUSED).to_parquet(folder / "test.parquet", index=False)
    schema = replace(clinic_schema("readmitted"), identifier=None)
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(study, encoding="utf-8")
