"""Digests of records, by which a run that goes on after a restart knows those that it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from comity.data.records import Records
from comity.data.tables.streamed_records import StreamedRecords


def digest_of(value: Any) -> str:
    """SHA-256 of records, arrays, or tables of them: the same for the same content, however it was stored. It tells of
    private records, and stays with whoever holds them."""
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, Records):
        value = vars(value)
    elif isinstance(value, StreamedRecords):
        # Taken while every record was checked, before the run.
        value = value.digest
    if isinstance(value, Mapping):
        for name, one in value.items():
            state.update(f"{name}:".encode())
            _feed(state, one)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"{value.dtype.str}{value.shape}".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        state.update(json.dumps([str(one) for one in value]).encode())
    else:
        state.update(repr(value).encode())
