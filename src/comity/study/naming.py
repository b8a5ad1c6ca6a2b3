"""Errors that name the file they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from comity.errors import BudgetExceeded, ComityError


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Errors from within begin with the file that they are about, once, and keep their kind, code and key."""
    try:
        yield
    except BudgetExceeded:
        raise
    except ComityError as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}", code=error.code, key=error.key) from error
