"""A site's figures for Prometheus, in the text format 0.0.4.

Promise    The figures are counts of studies, runs, refusals and answered asks, the part of each budget that is left,
           free disk space and dates. None is computed from records, and no label names a study, a run or a submitter:
           labels have the party, its datasets, and fixed words.
Against    Someone who reads the figures beside the owner's operators. What is left of a budget, and when it falls,
           shows when this owner takes part in studies: serve the figures on loopback, or to the owner's own network.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from comity._version import __version__

if TYPE_CHECKING:
    from comity.site.site_file import SiteFile

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DECISIONS: Final = ("waiting", "approved", "refused")


@dataclass(frozen=True)
class Budget:
    """`left` is the part of the granted epsilon that a study could still ask for; None where nothing limits it."""

    dataset: str
    left: float | None
    is_frozen: bool


@dataclass(frozen=True)
class SiteFigures:
    """What a site tells about itself at one moment."""

    party: str
    studies: Mapping[str, int]
    runs: Mapping[str, int]
    refusals: Mapping[str, int]
    """By code, of those that are kept: the file of refusals is bounded."""
    answered: int
    """Asks whose answers are stored, of all runs in the ledger."""
    budgets: Sequence[Budget]
    free_bytes: int
    entry_ends: datetime | None
    newest_backup: datetime | None


def collect_figures(site: SiteFile) -> SiteFigures:
    """Read a site's figures from its files. It opens no record, and neither waits for nor delays an ask."""
    from comity.federation.owner.store import count_answers
    from comity.privacy.ledger import Ledger
    from comity.site.backups import newest_copy
    from comity.site.entry_end import entry_end
    from comity.site.inbox import Inbox
    from comity.site.notices import left_fraction
    from comity.site.status import Refusals, list_runs

    ledger = Ledger(site.ledger)
    decisions = Counter(
        "waiting" if one.decision is None else one.decision.decision for one in Inbox(site.home).arrivals()
    )
    return SiteFigures(
        party=site.party,
        studies={name: decisions[name] for name in DECISIONS},
        runs=Counter(one.state for one in list_runs(ledger)),
        refusals=Counter(one.code for one in Refusals(site.home).last(_ALL)),
        answered=count_answers(ledger),
        budgets=[Budget(one.dataset, left_fraction(one), bool(one.frozen)) for one in ledger.summary()],
        free_bytes=shutil.disk_usage(site.home).free,
        entry_ends=entry_end(site),
        newest_backup=newest_copy(site),
    )


_ALL = 1 << 30


def render_metrics(figures: SiteFigures) -> str:
    """The figures in the text format. Every value has a help line and a type; the order is fixed."""
    party = {"party": figures.party}
    lines = [
        *_metric("comity_info", "The version that the site runs.", [({**party, "version": __version__}, 1)]),
        *_metric(
            "comity_studies", "Studies that arrived, by the owner's decision.", _labelled("decision", figures.studies)
        ),
        *_metric("comity_runs", "Runs in the ledger, by state.", _labelled("state", figures.runs)),
        *_metric("comity_refusals", "Refusals that the site keeps, by code.", _labelled("code", figures.refusals)),
        *_metric("comity_asks_answered", "Asks of all runs whose answers are stored.", [({}, figures.answered)]),
        *_metric(
            "comity_budget_left_ratio",
            "The part of the granted epsilon that is left, from 0 to 1.",
            [({"dataset": one.dataset}, one.left) for one in figures.budgets if one.left is not None],
        ),
        *_metric(
            "comity_ledger_frozen",
            "Whether the ledger is frozen, so that the site answers nothing.",
            [({"dataset": one.dataset}, int(one.is_frozen)) for one in figures.budgets],
        ),
        *_metric("comity_disk_free_bytes", "Free space of the site's folder.", [({}, figures.free_bytes)]),
        *_metric(
            "comity_entry_end_timestamp_seconds", "When the site's membership ends.", _moments([figures.entry_ends])
        ),
        *_metric(
            "comity_backup_timestamp_seconds", "When the newest backup was made.", _moments([figures.newest_backup])
        ),
    ]
    return "\n".join(lines) + "\n"


def _labelled(label: str, counts: Mapping[str, int]) -> list[tuple[dict[str, str], float]]:
    return [({label: name}, counts[name]) for name in sorted(counts)]


def _moments(moments: Iterable[datetime | None]) -> list[tuple[dict[str, str], float]]:
    return [({}, round(one.timestamp(), 3)) for one in moments if one is not None]


def _metric(name: str, help_: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    """A gauge with its samples; without samples it is left out."""
    lines = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return [f"# HELP {name} {help_}", f"# TYPE {name} gauge", *lines] if lines else []


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
