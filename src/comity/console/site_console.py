"""The console of a site: `comity site console`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comity.console.app import Console, make_app
from comity.console.budget_pages import budget_pages
from comity.console.guard import Address, Application
from comity.console.health_pages import HealthWatch, health_pages
from comity.console.inbox_pages import inbox_pages
from comity.console.metrics_page import metrics_pages
from comity.console.people import People
from comity.console.run_pages import run_pages
from comity.console.sign_in import sign_in_pages
from comity.console.site_view import SiteView
from comity.console.visit import Page

MENU = (("/", "Inbox"), ("/budget", "Budget"), ("/runs", "Runs"), ("/health", "Health"))


def make_site_console(
    site: Path, address: Address, *, people: People | None = None, metrics: str | None = None, **more: Any
) -> tuple[Console, Application]:
    """The console of the site with this file, and its application. A wrong site file raises here. `metrics` is the
    token for the figures; without one they are not served."""
    view = SiteView(site)
    opened = view.current()
    # The whole chain is verified now, so that no page waits for it.
    opened.follower.follow()
    home = opened.site.home
    title = f"{opened.site.party}: site console"
    console = Console(home, address, title, MENU, people or People(home), **more)
    return console, make_app(console, [*site_pages(view), *metrics_pages(view, metrics)])


def site_pages(view: SiteView) -> list[Page]:
    health = health_pages(view, HealthWatch.of(view))
    return [*sign_in_pages(), *inbox_pages(view), *budget_pages(view), *run_pages(view), *health]
