"""A real browser for consoles: Debian's Chromium through Playwright, and axe-core where npm can fetch it."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="needs Chromium (apt-get install chromium) and playwright (pip install playwright)",
)
WIDTHS = (400, 1400)
PASSWORD = "a long enough password"


@dataclass
class Visitor:
    """A page of a browser that notes what must not happen: errors, requests to elsewhere, a page wider than it."""

    page: Any
    base: str
    axe: str | None
    shots: Path | None = None
    faults: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._note(message.type == "error", f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self._note(True, f"page error: {error}"))
        self.page.on("request", lambda request: self._note(not request.url.startswith(self.base), request.url))

    def _note(self, is_fault: bool, words: str) -> None:
        if is_fault:
            self.faults.append(f"{self.page.url}: {words}")

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)

    def check(self, name: str) -> None:
        """Check the page that is open: its width at both sizes, and its accessibility."""
        self.seen.append(name)
        # A click returns when the next page begins to load.
        self.page.wait_for_load_state()
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            self._note(wide > width, f"{name} is {wide} px wide at {width} px")
            if self.shots is not None:
                self.page.screenshot(path=str(self.shots / f"{name}-{width}.png"), full_page=True)
            if self.axe is not None:
                self._check_with_axe(name, width)

    def _check_with_axe(self, name: str, width: int) -> None:
        # Through the debugger, which the page's policy does not stop.
        self.page.evaluate(self.axe)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        for one in found["violations"]:
            nodes = [node["html"][:120] for node in one["nodes"][:3]]
            self._note(
                one["impact"] in ("serious", "critical"), f"{name} at {width}: {one['id']} {one['help']} {nodes}"
            )

    def use_link(self, link: str, name: str) -> None:
        self.page.goto(link)
        self.check("link")
        self.page.fill("#name", name)
        self.page.fill("#password", PASSWORD)
        self.page.fill("#again", PASSWORD)
        self.page.click("main button")


@contextmanager
def visiting(base: str, axe: str | None, shots: Path | None = None) -> Iterator[Visitor]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Visitor(browser.new_page(), base, axe, shots)
        finally:
            browser.close()


@contextmanager
def console_process(*words: str) -> Iterator[dict[str, str]]:
    """A console in a process; what it printed when its port was open."""
    command = [sys.executable, "-m", "comity", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            text, until = "", time.monotonic() + 60
            while not text.rstrip().endswith("}") and time.monotonic() < until:
                line = process.stdout.readline()
                assert line, f"the console ended with code {process.poll()}"
                text += line
            yield json.loads(text)
        finally:
            process.terminate()
            process.wait(20)


def fetch_axe(folder: Path) -> str | None:
    """The text of axe-core, or None where npm is missing or reaches no registry."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    try:
        subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, check=True, capture_output=True, timeout=90)
    except (subprocess.SubprocessError, OSError):
        return None
    packed = next(folder.glob("axe-core-*.tgz"), None)
    if packed is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
        member = archive.extractfile("package/axe.min.js")
        return None if member is None else member.read().decode()
