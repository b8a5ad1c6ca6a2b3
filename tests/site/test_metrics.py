"""Figures for Prometheus: the text format, and that nothing of records, studies or submitters is in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from comity._version import __version__
from comity.site.metrics import Budget, SiteFigures, collect_figures, render_metrics
from comity.site.site_file import SiteFile
from tests.support.sites import Sites, approve, connect_services, execute

SAMPLE = re.compile(
    r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"(,[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*")*\})?'
    r" (NaN|[+-]Inf|-?\d+(\.\d+)?(e[+-]?\d+)?)$"
)


def figures(**changed: object) -> SiteFigures:
    values = {
        "party": "north",
        "studies": {"waiting": 2, "approved": 1, "refused": 0},
        "runs": {"open": 1, "closed": 3},
        "refusals": {"budget": 4},
        "answered": 17,
        "budgets": [Budget("patients", 0.25, False), Budget("visits", None, True)],
        "free_bytes": 5 << 30,
        "entry_ends": datetime(2027, 1, 1, tzinfo=UTC),
        "newest_backup": None,
    }
    return SiteFigures(**(values | changed))  # type: ignore[arg-type]


def parse(text: str) -> dict[str, str]:
    """Samples by name and labels; every family has its help and type before its samples, and appears once."""
    assert text.endswith("\n")
    samples: dict[str, str] = {}
    family, seen = "", set[str]()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in seen
            seen.add(family)
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {family} gauge"
        else:
            assert SAMPLE.match(line), line
            name, _, value = line.rpartition(" ")
            assert name.partition("{")[0] == family and name not in samples
            samples[name] = value
    return samples


def test_figures_are_in_the_text_format() -> None:
    assert parse(render_metrics(figures())) == {
        f'comity_info{{party="north",version="{__version__}"}}': "1",
        'comity_studies{decision="approved"}': "1",
        'comity_studies{decision="refused"}': "0",
        'comity_studies{decision="waiting"}': "2",
        'comity_runs{state="closed"}': "3",
        'comity_runs{state="open"}': "1",
        'comity_refusals{code="budget"}': "4",
        "comity_asks_answered": "17",
        'comity_budget_left_ratio{dataset="patients"}': "0.25",
        'comity_ledger_frozen{dataset="patients"}': "0",
        'comity_ledger_frozen{dataset="visits"}': "1",
        "comity_disk_free_bytes": str(5 << 30),
        "comity_entry_end_timestamp_seconds": "1798761600",
    }


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    samples = parse(render_metrics(figures(budgets=[Budget(odd, 1e-9, False)])))
    assert samples['comity_budget_left_ratio{dataset="a\\"b\\\\c\\nd"}'] == "1e-09"
    assert samples['comity_ledger_frozen{dataset="a\\"b\\\\c\\nd"}'] == "0"


def test_a_site_is_counted_before_and_after_a_run(sites: Sites) -> None:
    services, study = sites.services(), sites.study()
    site = SiteFile.load(sites.site("north"))
    before = parse(render_metrics(collect_figures(site)))
    assert before['comity_studies{decision="waiting"}'] == "0" and before["comity_asks_answered"] == "0"
    assert before['comity_budget_left_ratio{dataset="patients"}'] == "1"
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    execute(connect_services(study, services, sites.coordinator))
    text = render_metrics(collect_figures(site))
    after = parse(text)
    assert after['comity_studies{decision="approved"}'] == "1" and after['comity_runs{state="closed"}'] == "1"
    assert int(after["comity_asks_answered"]) > 3
    assert 0.5 < float(after['comity_budget_left_ratio{dataset="patients"}']) < 1
    for private in (study.hash[:12], study.name, "coordinator", str(sites.folder)):
        assert private not in text
