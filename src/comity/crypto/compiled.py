"""Functions compiled to machine code when first called, and kept on disk after that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile with floating-point arithmetic kept as written: nothing is reordered or fused."""
    return cast("_Function", _kept(function, inline=False))


def inlined(function: _Function) -> _Function:
    """Compile into every caller, so that sizes written as literals there are known to the vectoriser."""
    return cast("_Function", _kept(function, inline=True))


def _kept(function: Callable[..., Any], *, inline: bool) -> object:
    try:
        return njit(function, cache=True, nogil=True, error_model="numpy", forceinline=inline)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written: compile again in every process.
        return njit(function, nogil=True, error_model="numpy", forceinline=inline)
