"""Functions that are compiled to machine code when first called, and cached on disk.

The compiler itself is imported with the first call: a plan, which calls no kernel, does not wait for it. It is the
extra `compiler`. Without it a kernel runs only if the module names a function with the same result to the last bit;
every other kernel raises, and `require_compiler` refuses a method that needs one before its run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from importlib.util import find_spec
from threading import RLock
from typing import Any, TypeVar, cast

from comity.errors import BadInput

_Function = TypeVar("_Function", bound=Callable[..., Any])

_compiling = RLock()


def compiled(function: _Function) -> _Function:
    """Compile with floating-point arithmetic kept as written: nothing is reordered or fused."""
    return cast("_Function", _Kernel(function, inline=False))


def compiled_or(otherwise: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """As `compiled`; without the compiler `otherwise` is called, which must return and write the same bits."""

    def decorate(function: _Function) -> _Function:
        return cast("_Function", _Kernel(function, inline=False, otherwise=otherwise))

    return decorate


def compiled_or_interpreted(function: _Function) -> _Function:
    """As `compiled`; without the compiler Python runs the function itself, many times slower. For kernels whose
    arithmetic is the same in Python: no integer may wrap."""
    return cast("_Function", _Kernel(function, inline=False, otherwise=function))


@cache
def has_compiler() -> bool:
    return find_spec("numba") is not None


def require_compiler(what: str) -> None:
    """Refuse `what` where the compiler is not installed."""
    if not has_compiler():
        raise BadInput(
            f"{what} needs the extra compiler (numba is missing); run: pip install 'comity[compiler]'", code="extra"
        )


_reports: list[Callable[[], None]] = []
"""Called whenever a kernel is compiled that no earlier process has left on disk."""


@contextmanager
def report_compiling(report: Callable[[], None]) -> Iterator[None]:
    """Call `report` when a kernel has to be compiled, in any thread. The first run of a method on a machine may spend
    half a minute on that, and people should be told what they wait for."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


@cache
def _listen() -> None:
    """Let the compiler say when it compiles; loading from disk is no such event."""
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            for report in list(_reports):
                report()

        def on_end(self, event: Any) -> None:
            pass

    cast("Callable[..., None]", event.register)("numba:compile", Compiling())


def inlined(function: _Function) -> _Function:
    """Compile into every caller: the vectoriser then knows sizes that are literals there."""
    return cast("_Function", _Kernel(function, inline=True))


def inlined_exact(function: _Function) -> _Function:
    """As `inlined`, for sums in which no order of adding rounds: the compiler may add and fuse as it likes."""
    return cast("_Function", _Kernel(function, inline=True, exact=True))


class _Kernel:
    """Stands for a compiled function until it is called. Functions that a kernel calls must be compiled too: the first
    call compiles all kernels of the module and puts them in their places."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        inline: bool,
        exact: bool = False,
        otherwise: Callable[..., Any] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._inline = inline
        self._exact = exact
        self._otherwise = otherwise
        self._compiled: Callable[..., Any] | None = None
        self._ready = False

    def __call__(self, *values: Any) -> Any:
        return (self._compiled if self._ready and self._compiled is not None else self.compile())(*values)

    def compile(self) -> Callable[..., Any]:
        if not has_compiler():
            if self._otherwise is None:
                require_compiler(self._function.__qualname__)
            return cast("Callable[..., Any]", self._otherwise)
        # No other thread may call a kernel before the kernels that it calls are in their places.
        with _compiling:
            if self._compiled is None:
                self._compiled = _compile(self._function, inline=self._inline, exact=self._exact)
                scope = self._function.__globals__
                for name, value in list(scope.items()):
                    if isinstance(value, _Kernel):
                        scope[name] = value.compile()
                self._ready = True
            return self._compiled


def _compile(function: Callable[..., Any], *, inline: bool, exact: bool) -> Callable[..., Any]:
    from numba import njit

    _listen()
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "forceinline": inline}
    if exact:
        options["fastmath"] = {"reassoc", "contract"}
    try:
        kernel = njit(function, cache=True, **options)
    except RuntimeError:
        # Neither the package's folder nor the user's cache is writable: every process compiles again.
        kernel = njit(function, **options)
    return cast("Callable[..., Any]", kernel)
