"""Arrays in `.npz` files, without pickle: written by name, read from files that come from somewhere else."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.files import make_file

MOST_BYTES: Final = 1 << 28
_KINDS: Final = "biufUS"
"""Of what is released: truth values, numbers that are real, texts."""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """As `np.savez` does, which takes names as keywords and has some of its own."""
    make_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that comes from somewhere else: no code is run, and its size is limited."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MOST_BYTES:
            raise DataError(f"{path}: unpacks to {size} bytes, more than anything that is released; it is not opened")
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        odd = next((name for name, array in found.items() if array.dtype.kind not in _KINDS), None)
        if odd is not None:
            raise ValueError(f"{odd[:80]!r} is of type {found[odd].dtype.name}")
    except DataError:
        raise
    except Exception as error:
        # An archive that somebody else wrote makes its readers raise anything, from a header that asks for more memory
        # than there is to a part that wants a password.
        raise DataError(f"{path}: its arrays can't be read ({error}); fetch the folder again") from error
    return found
