"""Variants of a protocol for tests, with the options of the public class."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from comity.federation.protocol import Protocol
from comity.methods.averaging import Averaging
from comity.methods.averaging.published.method import PublishedAveraging

Kind = TypeVar("Kind", bound=Protocol)
Average = TypeVar("Average", bound=PublishedAveraging)


def rebuild_as(kind: type[Kind], protocol: Any, **more: Any) -> Kind:
    """A subclass of a protocol, with the same fields and some more."""
    return kind(**{field.name: getattr(protocol, field.name) for field in fields(protocol)}, **more)


def build_published(kind: type[Average], **options: Any) -> Average:
    """A subclass of published averaging, with the defaults of `comity.Averaging`."""
    return rebuild_as(kind, Averaging.published_over_rows(**options))
