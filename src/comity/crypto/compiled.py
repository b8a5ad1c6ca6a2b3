"""Functions compiled to machine code when first called, and kept on disk after that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile with floating-point arithmetic kept as written: nothing is reordered or fused."""
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: _Function) -> _Function:
    """Compile into every caller, so that sizes written as literals there are known to the vectoriser."""
    return cast("_Function", njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))
