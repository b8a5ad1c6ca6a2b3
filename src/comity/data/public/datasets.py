"""Public datasets, for experiments, in the folder that the environment variable COMITY_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from comity.data.tables.parquet_file import Parquet
from comity.errors import DataError, did_you_mean

DATASETS = (
    "adult",
    "bike_hour",
    "cps_taxunits_by_state",
    "credit_default",
    "diabetic_retinopathy",
    "har_smartphone_rederived",
    "heart_disease_4hospitals",
    "kddcup99",
    "mnist",
    "online_news_popularity_subset",
)


def dataset(name: str) -> pd.DataFrame:
    """The named dataset from disk. The package contains none."""
    if name not in DATASETS:
        raise DataError(f"dataset: unknown name {name!r}{did_you_mean(name, DATASETS)}", key=name)
    folder = os.environ.get("COMITY_DATA")
    if not folder:
        raise DataError(
            f"dataset {name!r}: the environment variable COMITY_DATA is not set; set it to the folder that "
            f"holds {name}.parquet.",
            key="COMITY_DATA",
        )
    path = Path(folder) / f"{name}.parquet"
    if not path.is_file():
        raise DataError(
            f"dataset {name!r}: there is no file {path}; put it there, or set COMITY_DATA to the folder that holds it.",
            key="COMITY_DATA",
        )
    return Parquet(path).read()
