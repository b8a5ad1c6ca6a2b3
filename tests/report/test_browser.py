"""Every page that the product writes, in a real browser at 400 and 1400 points: nothing is cut off or overlaps, nothing
fails in the console, and nothing is asked of the network.

Each page is put into a frame of that width inside a page of the test, whose script measures it. Skipped where no
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

import comity
from comity.audit.claim import Effort
from comity.audit.page import write_page
from comity.audit.study import audit_study
from comity.data import Categorical, Classes, Numeric, Schema
from comity.demo import run_demo
from comity.methods import PROTOCOLS, entry_of, load_object
from comity.privacy.loss import GDP, Approx
from comity.report.compare import compare_results, render_comparison
from comity.report.dossier.folder import write_dossier
from comity.report.dossier.subject import Subject
from comity.report.ledger_page import render_ledger
from comity.report.plan_page import render_plan
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from experiments.papers.all_papers import Chapter, Computed
from experiments.papers.exhibit import Exhibit, Line, Measured, Trend
from experiments.papers.exhibit_page import write_html
from experiments.papers.publications import Publication
from tests.support.ledgers import create_ledger, reserve
from tests.support.study_folder import STUDY, write_study

from .small_studies import small_study

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: apt-get install chromium"),
]
WIDTHS = (400, 1400)
DOCUMENTS = Path(__file__).parents[2] / "docs"

FRAME = '<iframe width="{width}" height="900" style="border:0" srcdoc="{page}"></iframe>'
MEASURED = """<!doctype html><meta charset="utf-8"><title>?</title>
{frames}
<script>
const found = [];
function measure(frame) {{
  const inner = frame.contentDocument, width = +frame.width, at = width + ": ";
  if (inner.documentElement.scrollWidth > width) found.push(at + "the page is " + inner.documentElement.scrollWidth);
  for (const asked of frame.contentWindow.performance.getEntriesByType("resource"))
    if (!asked.name.startsWith("data:")) found.push(at + "asks for " + asked.name);
  const texts = inner.createTreeWalker(inner.body, NodeFilter.SHOW_TEXT), range = inner.createRange();
  while (texts.nextNode()) {{
    range.selectNodeContents(texts.currentNode);
    for (const place of range.getClientRects())
      if (place.width && (place.right > width + 1 || place.left < -1))
        found.push(at + Math.round(place.right) + " " + texts.currentNode.textContent.trim().slice(0, 60));
  }}
  for (const picture of inner.querySelectorAll("svg")) {{
    const whole = picture.getBoundingClientRect(), words = [...picture.querySelectorAll("text")];
    if (!whole.width) continue;
    const boxes = words.map((one) => [one.textContent.trim(), one.getBoundingClientRect()]);
    boxes.forEach(([text, box], place) => {{
      if (box.right > whole.right + 1.5 || box.left < whole.left - 1.5 || box.bottom > whole.bottom + 1.5)
        found.push(at + "cut in a picture: " + text);
      for (const [other, second] of boxes.slice(place + 1)) {{
        const across = Math.min(box.right, second.right) - Math.max(box.left, second.left);
        const down = Math.min(box.bottom, second.bottom) - Math.max(box.top, second.top);
        // A box has room above and below its letters; that of a turned text is larger than the text.
        const low = 0.45 * Math.min(box.height, second.height), turned = picture.querySelector("[transform*=rotate]");
        if (across > 2 && down > low && !turned)
          found.push(at + "overlap in a picture: " + text + " / " + other);
      }}
    }});
  }}
}}
onload = () => {{
  document.querySelectorAll("iframe").forEach(measure);
  document.title = "MEASURED " + (found.slice(0, 8).join(" | ") || "nothing");
}};
</script>"""


def measure(page: str, folder: Path, widths: tuple[int, ...] = WIDTHS) -> tuple[str, str]:
    """What is wrong with a page in frames of these widths, and what the browser logs."""
    file = folder / "measured.html"
    frames = "\n".join(FRAME.format(width=width, page=html.escape(page)) for width in widths)
    file.write_text(MEASURED.format(frames=frames), encoding="utf-8")
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"),
        # A page that asked the network for something would fail here, and be named by its log.
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"),
        *("--virtual-time-budget=4000", f"--window-size={max(widths) + 100},1000", "--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>MEASURED (.*?)</title>", done.stdout, re.S)
    assert title is not None, done.stderr[-2000:]
    return html.unescape(title[1]), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


# The pages.


def report_of(case: str) -> Callable[[Path], str]:
    def page(folder: Path) -> str:
        return run_study(small_study(case, folder), seed=1).report(folder / "report.html").read_text("utf-8")

    return page


def starter_plan(name: str) -> Callable[[Path], str]:
    def page(folder: Path) -> str:
        load_object(entry_of(name).starter)(folder)
        return render_plan(Study.load(folder / "study.toml"))

    return page


def published_plan(case: str) -> Callable[[Path], str]:
    return lambda folder: render_plan(small_study(case, folder))


def run_page(folder: Path) -> str:
    text = STUDY.replace('test = "test.csv"\n', 'evaluate_by = ["party", "sex", "age"]\nholdout = 0.5\n')
    result = run_study(Study.load(write_study(folder, text=text, records=60)), seed=1)
    return result.report(folder / "report.html").read_text("utf-8")


def synthetic_page(folder: Path) -> str:
    load_object(entry_of("synthetic").starter)(folder)
    return run_study(Study.load(folder / "study.toml")).report(folder / "report.html").read_text("utf-8")


def compared_page(folder: Path) -> str:
    path = write_study(folder)
    found = {f"run-{e}": run_study(Study.load(path, overrides={"privacy.epsilon": e}), seed=1) for e in (0.3, 1.0, 4.0)}
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


def run_dossier_page(folder: Path) -> str:
    result = run_study(small_study("averaging default delta=1e-6", folder), seed=1)
    write_dossier(Subject.of_result(result), folder / "dossier")
    return (folder / "dossier" / "dossier.html").read_text("utf-8")


def audit_page(folder: Path) -> str:
    schema = Schema((Numeric("x", -1, 1), Categorical("place", ("town", "farm"))), Classes("sick", ("no", "yes")))
    study = comity.Synthetic(schema).study(("ash", "birch", "cedar"), epsilon=1.0, delta=1e-6)
    effort = Effort(draws=20_000, pure_draws=100_000, spherical_draws=2_000, corners=8)
    return write_page(audit_study(study, effort=effort), folder / "audit.html").read_text("utf-8")


def demo_page(folder: Path) -> str:
    starters = {name: load_object(entry_of(name).starter) for name in ("averaging", "synthetic")}
    return Path(run_demo(folder, starters=starters)["report"]).read_text("utf-8")


def papers_page(folder: Path) -> str:
    """Lines, verdicts and pictures as long as the real ones, without computing them."""
    pictures = tuple((path, "Errors over parties") for path in sorted(DOCUMENTS.glob("papers/*.svg")))
    why = (
        "the paper's figure is not reached by anything that was tried, by naive Bayes with the same noise least of all"
    )
    lines = (
        Line("diabetes, 1,151 rows, epsilon 1", 0.279, "Table 2", published=Measured.of([0.4, 0.5]), why=why),
        Line("malicious URLs", None, "plotted only", default=Measured(0.16), constant=0.24, non_private=0.15, why=why),
    )
    trends = (Trend("errors fall with the number of sharing agents", "reversed", "0.25 against 0.24", why),)
    shown = Exhibit("Table 2", "errors", "test error", "Two agents.", lines, trends, ("IPUMS: " + why,), pictures)
    publication = Publication("synthetic", "A. Author, A Long Title of a Paper, 2010", "x")
    chapter = Chapter(publication, (Computed("x", (shown,), 1.0),))
    write_html(folder / "papers.html", [chapter], quick=True)
    return (folder / "papers.html").read_text("utf-8")


RUNS = [
    "averaging default delta=1e-6",
    "averaging default model=linear",
    "averaging published delta=0",
    "softlabel default statistic=histograms",
    "softlabel published delta=0",
    "summary default delta=1e-6",
    "summary published delta=1e-6",
    "synthetic published delta=0",
    "vertical default model=linear",
    "vertical published delta=0",
]
PUBLISHED = [case for case in RUNS if "published" in case]
PAGES: dict[str, Callable[[Path], str]] = {
    **{f"run of {case}": report_of(case) for case in RUNS},
    "run of the synthetic starter": synthetic_page,
    "run with subgroups": run_page,
    **{f"plan of {name}": starter_plan(name) for name in PROTOCOLS},
    **{f"plan of {case}": published_plan(case) for case in PUBLISHED},
    "compared runs": compared_page,
    "ledger": ledger_page,
    "dossier of a study": dossier_page,
    "dossier of a run": run_dossier_page,
    "audit": audit_page,
    "demo": demo_page,
    "papers": papers_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_or_overlaps_and_the_console_is_empty(name: str, tmp_path: Path) -> None:
    page = PAGES[name](tmp_path)
    # A folded part is measured, too: a reader opens it.
    wrong, logged = measure(page.replace("<details>", "<details open>"), tmp_path)
    assert wrong == "nothing" and not logged


WRONG = {
    "the page is": '<table><tr><td style="min-width:600px">wide</td></tr></table>',
    "asks for": '<img src="https://example.org/a.png" alt="">',
    "cut in a picture": '<svg viewBox="0 0 100 20" width="100"><text x="90" y="10">cut</text></svg>',
    "overlap in a picture": '<svg viewBox="0 0 99 20"><text x="1" y="15">one</text><text x="4" y="15">two</text></svg>',
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_of_a_page_is_noticed(fault: str, tmp_path: Path) -> None:
    assert fault in measure(f"<!doctype html><body>{WRONG[fault]}</body>", tmp_path, (400,))[0]


def test_an_error_in_the_console_is_noticed(tmp_path: Path) -> None:
    assert "boom" in measure('<!doctype html><script>console.error("boom")</script>', tmp_path)[1]
