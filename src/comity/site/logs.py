"""The log of a site's processes, for people or for a log collector.

Promise    In the form "json" each line is one object with `time`, `level`, `logger`, `message` and, for an ask,
           `party`, `study`, `run`, `step`. An exception is logged as its type and its places in the code, without its
           text: libraries quote their input, which may be a value of a record, a path or a password. Comity's own
           messages quote no value of a record; they name its kind, column and row. In both forms text that may come
           from others is escaped: a message is one line of at most about 2,000 characters.
Not        in the form "text", which is for the owner's terminal and shows exceptions in full.
"""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from comity.untrusted.text import encode_json, escape_line, shorten

FIELDS = ("party", "study", "run", "step", "code", "milliseconds")
"""Fields that a log record may have beside its message."""


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        page: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shorten(record.getMessage()),
        }
        page |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info is not None and record.exc_info[0] is not None:
            kind, _, where = record.exc_info
            page["exception"] = kind.__qualname__
            page["at"] = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(where)]
        return encode_json(page, default=lambda value: type(value).__name__)


class TextLines(logging.Formatter):
    """One line a message; a traceback follows, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_line(shorten(super().formatMessage(record)))

    def formatException(self, info: Any) -> str:
        return "\n".join(f"  {escape_line(line)}" for line in super().formatException(info).split("\n"))


def log_to_stderr(form: Form) -> None:
    """Log this process to stderr from now on."""
    handler = logging.StreamHandler()
    text = TextLines("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form is Form.JSON else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def current_form() -> Form:
    """The form of this process's log, to pass on to the processes that it starts."""
    handlers = logging.getLogger().handlers
    return Form.JSON if any(isinstance(one.formatter, JsonLines) for one in handlers) else Form.TEXT
