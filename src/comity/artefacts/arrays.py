"""Arrays in `.npz` files, without pickle: written by name, and read from files that another party wrote."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.files import make_file

MAX_BYTES: Final = 1 << 28
_KINDS: Final = "biufUS"
"""Types that are released: truth values, real numbers, texts."""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """As `np.savez`, which can't take every name: names are keywords there."""
    make_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that another party wrote: no code is run, and its size is limited."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise DataError(f"{path}: unpacks to {size} bytes, more than anything that is released; it is not opened")
        with np.load(path, allow_pickle=False) as arrays:
            loaded = {name: arrays[name] for name in arrays.files}
        unreleasable = next((name for name, array in loaded.items() if array.dtype.kind not in _KINDS), None)
        if unreleasable is not None:
            raise ValueError(f"{unreleasable[:80]!r} is of type {loaded[unreleasable].dtype.name}")
    except DataError:
        raise
    except Exception as error:
        # An archive of another party may make its reader raise anything: its header asks for more memory than there
        # is, or a part wants a password.
        raise DataError(f"{path}: its arrays can't be read ({error}); fetch the folder again") from error
    return loaded
