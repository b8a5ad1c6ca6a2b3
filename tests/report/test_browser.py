"""Pages in a real browser at 400 and 1400 points: nothing is cut off, and nothing fails in the console.

The page is put into a frame of that width inside a page of the test, whose script measures it. Skipped where no
Chromium is installed.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from comity.demo import run_demo
from comity.methods import entry_of, load_object
from comity.privacy.loss import GDP, Approx
from comity.report.compare import compare_results, render_comparison
from comity.report.dossier.folder import write_dossier
from comity.report.dossier.subject import Subject
from comity.report.ledger_page import render_ledger
from comity.report.plan_page import render_plan
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.ledgers import create_ledger, reserve
from tests.support.study_folder import write_study

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: apt-get install chromium"),
]

MEASURED = """<!doctype html><meta charset="utf-8"><title>?</title>
<iframe id="page" width="{width}" height="900" style="border:0" srcdoc="{page}"></iframe>
<script>
document.getElementById("page").onload = (event) => {{
  const inner = event.target.contentDocument, found = [];
  if (inner.documentElement.scrollWidth > {width}) found.push("the page is " + inner.documentElement.scrollWidth);
  const texts = inner.createTreeWalker(inner.body, NodeFilter.SHOW_TEXT), range = inner.createRange();
  while (texts.nextNode()) {{
    range.selectNodeContents(texts.currentNode);
    for (const place of range.getClientRects())
      if (place.width && place.right > {width} + 1)
        found.push(Math.round(place.right) + ": " + texts.currentNode.textContent.trim().slice(0, 60));
  }}
  document.title = "MEASURED " + (found.slice(0, 5).join(" | ") || "nothing");
}};
</script>"""


def measure(page: str, width: int, folder: Path) -> tuple[str, str]:
    """What sticks out of a frame of this width, and what the browser logs."""
    file = folder / f"at-{width}.html"
    file.write_text(MEASURED.format(width=width, page=html.escape(page)), encoding="utf-8")
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000", f"--window-size={width + 100},1000"),
        *("--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>MEASURED (.*?)</title>", done.stdout, re.S)
    assert title is not None, done.stderr[-2000:]
    return html.unescape(title[1]), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def plan_page(folder: Path) -> str:
    load_object(entry_of("vertical").starter)(folder)
    return render_plan(Study.load(folder / "study.toml"))


def run_page(folder: Path) -> str:
    result = run_study(Study.load(write_study(folder)), seed=1)
    return result.report(folder / "report.html").read_text("utf-8")


def compared_page(folder: Path) -> str:
    path = write_study(folder)
    found = {f"run-{e}": run_study(Study.load(path, overrides={"privacy.epsilon": e}), seed=1) for e in (1.0, 4.0)}
    return render_comparison(compare_results(found))


def ledger_page(folder: Path) -> str:
    ledger = create_ledger(folder, Approx(3, "1e-6"))
    for run in ("r1", "r2"):
        reserve(ledger, run, GDP("0.2"))
    return render_ledger("north.ledger", ledger.summary(), ledger.history())


def dossier_page(folder: Path) -> str:
    load_object(entry_of("vertical").starter)(folder)
    write_dossier(Subject.of_study(Study.load(folder / "study.toml")), folder / "dossier")
    return (folder / "dossier" / "dossier.html").read_text("utf-8")


def demo_page(folder: Path) -> str:
    starters = {name: load_object(entry_of(name).starter) for name in ("averaging", "synthetic")}
    return Path(run_demo(folder, starters=starters)["report"]).read_text("utf-8")


def synthetic_page(folder: Path) -> str:
    load_object(entry_of("synthetic").starter)(folder)
    return run_study(Study.load(folder / "study.toml")).report(folder / "report.html").read_text("utf-8")


PAGES: dict[str, Callable[[Path], str]] = {
    "plan": plan_page,
    "run": run_page,
    "compared": compared_page,
    "ledger": ledger_page,
    "dossier": dossier_page,
    "synthetic": synthetic_page,
    "demo": demo_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_no_column_is_cut_off_and_the_console_is_empty(name: str, tmp_path: Path) -> None:
    page = PAGES[name](tmp_path)
    # A folded part is measured, too: a reader opens it.
    page = page.replace("<details>", "<details open>")
    for width in (400, 1400):
        sticks_out, logged = measure(page, width, tmp_path)
        assert sticks_out == "nothing", (width, sticks_out)
        assert not logged


def test_a_page_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    wide = '<!doctype html><table><tr><td style="min-width:600px">wide</td></tr></table>'
    assert "the page is" in measure(wide, 400, tmp_path)[0]
