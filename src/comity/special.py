"""Functions of `scipy.special`, imported when one of them is first called. The process that talks to the relay for a
site calls none: with the import it would take 16 MB more, and half as long again to start."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def _import_at_call(name: str) -> Callable[..., Any]:
    def call(*values: Any, **options: Any) -> Any:
        return getattr(import_module("scipy.special"), name)(*values, **options)

    call.__name__ = call.__qualname__ = name
    return call


expit = _import_at_call("expit")
gammaln = _import_at_call("gammaln")
lambertw = _import_at_call("lambertw")
log_ndtr = _import_at_call("log_ndtr")
logit = _import_at_call("logit")
logsumexp = _import_at_call("logsumexp")
ndtr = _import_at_call("ndtr")
ndtri = _import_at_call("ndtri")
softmax = _import_at_call("softmax")
