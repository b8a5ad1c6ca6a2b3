"""The path of a run through the packages: the order in which its functions are first called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import comity

_ROOT = str(Path(comity.__file__).parent) + "/"


def trace_packages(act: Callable[[], Any]) -> list[str]:
    """The package of each function of Comity that `act` calls, in the order of first calls."""
    visited: dict[tuple[str, str], None] = {}

    def on_call(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOT) and not code.co_name.startswith("<"):
            visited.setdefault((code.co_filename, code.co_qualname))

    threading.setprofile(on_call)
    sys.setprofile(on_call)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [Path(file.removeprefix(_ROOT)).parts[0].removesuffix(".py") for file, _ in visited]
