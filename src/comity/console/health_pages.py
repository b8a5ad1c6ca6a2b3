"""The health of a site in a browser: what `comity doctor --site` finds, the terms in words, and the record of
decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from time import time
from typing import Any

from starlette.responses import Response

from comity.console.people import Role
from comity.console.site_view import SiteView
from comity.console.visit import Page, Visit
from comity.errors import ComityError
from comity.site.decisions import RecordedDecision, read_decisions
from comity.site.health import Finding, check_site
from comity.untrusted.toml import parse_toml

CHECK_SECONDS = 60.0
"""A check that is older is made again when somebody looks."""
_SHOWN_DECISIONS = 20
_MEANINGS = {
    "protocols": "methods that may run",
    "variants": "their variants",
    "epsilon_per_study": "the most that all runs of one study may cost",
    "delta_per_study": "the delta at which that is counted",
    "epsilon_per_period": "the most that all studies of a period may cost",
    "delta_per_period": "the delta at which that is counted",
    "period_days": "the period's days",
    "submitters": "who may submit studies",
    "sizes_may_leave": "exact numbers of rows and of matches may leave",
    "records_may_leave": "records themselves may leave",
    "joint_predictions": "exact scores of new records that a run may make",
    "unproven": "methods may run that are not private as claimed",
    "approval": "who approves: a person (by-hand), or these terms (within-policy)",
}


def health_pages(view: SiteView, watch: HealthWatch) -> list[Page]:
    return [Page("/health", partial(show_health, view, watch), Role.READ, "looked at the health")]


@dataclass(frozen=True)
class Check:
    """The findings of one check, and when it ended."""

    when: float
    findings: tuple[Finding, ...]


class HealthWatch:
    """Checks a site in a thread of its own: a check reads every record and waits for the relay, a page does not."""

    def __init__(self, check: Callable[[], tuple[Finding, ...]], clock: Callable[[], float] = time) -> None:
        self._check, self._clock = check, clock
        self._lock = Lock()
        self._last: Check | None = None
        self._running: Thread | None = None

    @classmethod
    def of(cls, view: SiteView) -> HealthWatch:
        return cls(lambda: tuple(check_site(view.path)))

    def look(self) -> Check | None:
        """The last check, None before the first has ended. Starts another one where it is old."""
        with self._lock:
            is_old = self._last is None or self._clock() - self._last.when > CHECK_SECONDS
            if is_old and (self._running is None or not self._running.is_alive()):
                self._running = Thread(target=self._run, daemon=True)
                self._running.start()
            return self._last

    def wait(self) -> None:
        """Wait for the check that runs."""
        running = self._running
        if running is not None:
            running.join()

    def _run(self) -> None:
        try:
            findings = self._check()
        except ComityError as error:
            findings = (Finding("check", "failure", str(error)),)
        except Exception as error:
            # No text: a library's message may quote a value.
            findings = (Finding("check", "failure", f"stopped with {type(error).__name__}; run: comity doctor --site"),)
        with self._lock:
            self._last = Check(self._clock(), findings)


def show_health(view: SiteView, watch: HealthWatch, visit: Visit) -> Response:
    check = watch.look()
    decisions: list[RecordedDecision] = []
    problem = ""
    policy: list[tuple[str, str, str]] = []
    try:
        opened = view.current()
        decisions = read_decisions(opened.site.home, opened.owner.keys.public)
        policy = describe_policy(parse_toml(view.path.read_text(encoding="utf-8"), str(view.path)))
    except ComityError as error:
        problem = str(error)
    return visit.render(
        "health.html.jinja",
        check=check,
        age=0 if check is None else max(0, round(time() - check.when)),
        failures=0 if check is None else sum(one.state == "failure" for one in check.findings),
        warnings=0 if check is None else sum(one.state == "warning" for one in check.findings),
        policy=policy,
        decisions=list(reversed(decisions))[:_SHOWN_DECISIONS],
        all_decisions=len(decisions),
        problem=problem,
    )


def describe_policy(tables: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Key, value and meaning of each of the terms; of the site file nothing else is shown."""
    policy = tables.get("policy", {})
    listed = [(key, json.dumps(value, ensure_ascii=False)) for key, value in policy.items()]
    return [(key, value, _MEANINGS.get(key, "")) for key, value in listed]
