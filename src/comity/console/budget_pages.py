"""The budget in a browser: each dataset's ledger over time, and the two changes that can't be undone."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial

from starlette.responses import Response

from comity.console.people import Role
from comity.console.run_pages import id_of
from comity.console.site_view import OpenedSite, SiteView
from comity.console.visit import Page, Visit
from comity.errors import BadInput
from comity.privacy.ledger import Moment, format_rounded
from comity.privacy.loss import Approx, Pure
from comity.report.ledger_page import DatasetPage, make_dataset_page
from comity.site.status import SiteRun, end_run, list_runs

_SHOWN_RUNS = 50
_SHOWN_MOMENTS = 12
CONFIRM = "for good"
"""What must be typed before something that can't be undone."""


def budget_pages(view: SiteView) -> list[Page]:
    return [
        Page("/budget", partial(show_budget, view), Role.READ, "looked at the budget"),
        Page("/budget/write-off", partial(write_off, view), Role.ADMINISTER, "wrote off budget", "POST"),
        Page("/budget/abandon", partial(abandon, view), Role.ADMINISTER, "abandoned a run", "POST"),
    ]


@dataclass(frozen=True)
class RunCost:
    """A run with what it drew by itself."""

    id: str
    run: SiteRun
    epsilon: str


@dataclass(frozen=True)
class ShownDataset:
    page: DatasetPage
    granted: str
    spent: str
    reserved: str
    left: str
    runs: tuple[RunCost, ...]
    more_runs: int

    @classmethod
    def of(cls, page: DatasetPage, runs: tuple[RunCost, ...], more_runs: int) -> ShownDataset:
        account = page.account
        return cls(
            page,
            "" if account.granted is None else format_rounded(account.granted.epsilon, ROUND_FLOOR),
            format_rounded(account.spent_epsilon, ROUND_CEILING) if account.spent_epsilon.is_finite() else "unlimited",
            format_rounded(account.reserved_epsilon, ROUND_CEILING) if account.reserved_epsilon else "",
            "" if account.left is None else format_rounded(account.left, ROUND_FLOOR),
            runs,
            more_runs,
        )


def show_budget(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    followed = opened.follower.follow()
    runs = list_runs(opened.owner.ledger)
    datasets = []
    for account in opened.owner.ledger.summary():
        moments = [one for one in followed.moments if one.dataset == account.dataset]
        own = [one for one in runs if one.dataset == account.dataset]
        page = view.rendered.get(("dataset", account, len(moments)), partial(_dataset_page, account, moments))
        costs = tuple(RunCost(id_of(one), one, _taken(view, opened, one)) for one in own[:_SHOWN_RUNS])
        datasets.append(ShownDataset.of(page, costs, max(0, len(own) - _SHOWN_RUNS)))
    return visit.render(
        "budget.html.jinja",
        datasets=datasets,
        followed=followed,
        open_runs=[one for one in runs if one.state == "open"],
        confirm=CONFIRM,
        ledger=opened.site.ledger.name,
    )


def _dataset_page(account: object, moments: list[Moment]) -> DatasetPage:
    return make_dataset_page(account, moments, most=_SHOWN_MOMENTS)  # type: ignore[arg-type]


def _taken(view: SiteView, opened: OpenedSite, run: SiteRun) -> str:
    """A run that ended draws no more, so what it took is computed once."""
    make = partial(opened.follower.taken_by, run.key)
    epsilon = make() if run.state == "open" else view.rendered.get(("taken", opened.state, run.key), make)
    return format_rounded(epsilon, ROUND_CEILING)


def write_off(view: SiteView, visit: Visit) -> Response:
    """Count a loss that the ledger does not show, as after a restored backup."""
    opened = view.current()
    _require_confirmed(visit)
    why = visit.text("why", 200)
    if not why:
        raise BadInput("give the reason; it stays in the ledger", key="why")
    epsilon, delta = visit.text("epsilon", 20), visit.text("delta", 20) or "0"
    if visit.form.get("everything") == "yes":
        visit.about = "everything"
        opened.owner.ledger.write_off("all", f"{why} (by {_name(visit)})")
    else:
        if not epsilon:
            raise BadInput("give an epsilon, or choose to write off everything that is left", key="epsilon")
        pair = Approx(epsilon, delta)
        visit.about = f"epsilon {epsilon}, delta {delta}"
        opened.owner.ledger.write_off(pair if pair.delta else Pure(epsilon), f"{why} (by {_name(visit)})")
    return visit.redirect("/budget", "Written off. The ledger keeps the reason.")


def abandon(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    _require_confirmed(visit)
    named = visit.text("run", 200)
    visit.about = named
    ended = end_run(opened.owner.ledger, named)
    return visit.redirect("/budget", f"Run {ended.run} of {ended.title} was abandoned.")


def _name(visit: Visit) -> str:
    return "" if visit.person is None else visit.person.name


def _require_confirmed(visit: Visit) -> None:
    if visit.form.get("confirm", "").strip().lower() != CONFIRM:
        raise BadInput(f'type "{CONFIRM}" to confirm: this can\'t be undone', key="confirm")
