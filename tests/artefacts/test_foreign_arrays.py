"""Archives of arrays that somebody else wrote: each that can't be used is one kind of error."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from comity.artefacts.arrays import read_arrays
from comity.errors import DataError


def _archive(member: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("counts.npy", member)
    return out.getvalue()


def _member(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def _huge() -> bytes:
    """A header that asks for more memory than any machine has, and no values behind it."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (1 << 58,)})
    return _archive(out.getvalue())


def _encrypted() -> bytes:
    """A part whose flags say that it wants a password, in both places that say so."""
    raw = bytearray(_archive(_member(np.zeros(3))))
    raw[6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    return bytes(raw)


@pytest.mark.parametrize(
    "content",
    [_huge(), _encrypted(), _archive(_member(np.zeros(3, complex))), _archive(_member(np.zeros(3, "M8[s]"))), b""],
    ids=["huge", "encrypted", "complex", "dates", "empty"],
)
def test_what_can_not_be_used_is_bad_data(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "arrays.npz").write_bytes(content)
    with pytest.raises(DataError, match="can't be read"):
        read_arrays(tmp_path / "arrays.npz")
