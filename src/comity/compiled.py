"""Functions compiled to machine code when first called, and kept on disk after that.

The compiler itself is loaded with the first call too: whoever only declares what a study would release, as a plan
does, does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

_making = RLock()


def compiled(function: _Function) -> _Function:
    """Compile with floating-point arithmetic kept as written: nothing is reordered or fused."""
    return cast("_Function", _Kernel(function, inline=False))


def inlined(function: _Function) -> _Function:
    """Compile into every caller, so that sizes written as literals there are known to the vectoriser."""
    return cast("_Function", _Kernel(function, inline=True))


class _Kernel:
    """Stands for a compiled function until it is called. What the compiler then meets in the function's module must be
    compiled functions too, so that all kernels in sight take their places with the first of them."""

    def __init__(self, function: Callable[..., Any], *, inline: bool) -> None:
        update_wrapper(self, function)
        self._function = function
        self._inline = inline
        self._made: Callable[..., Any] | None = None
        self._ready = False

    def __call__(self, *values: Any) -> Any:
        return (self._made if self._ready and self._made is not None else self.made())(*values)

    def made(self) -> Callable[..., Any]:
        # No other thread may call a kernel before those that it calls have taken their places.
        with _making:
            if self._made is None:
                self._made = _kept(self._function, inline=self._inline)
                scope = self._function.__globals__
                for name, value in list(scope.items()):
                    if isinstance(value, _Kernel):
                        scope[name] = value.made()
                self._ready = True
            return self._made


def _kept(function: Callable[..., Any], *, inline: bool) -> Callable[..., Any]:
    from numba import njit

    try:
        made = njit(function, cache=True, nogil=True, error_model="numpy", forceinline=inline)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written: compile again in every process.
        made = njit(function, nogil=True, error_model="numpy", forceinline=inline)
    return cast("Callable[..., Any]", made)
