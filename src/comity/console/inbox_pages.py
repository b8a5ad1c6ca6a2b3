"""The inbox in a browser: what arrived, the plan of each study as this owner sees it, and the decision about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial

from markupsafe import Markup
from starlette.responses import Response

from comity.console.differences import MAX_SHOWN, compare_studies, find_earlier
from comity.console.people import Role
from comity.console.run_pages import id_of
from comity.console.site_view import OpenedSite, ShownStudy, SiteView
from comity.console.visit import Page, Visit
from comity.errors import BadInput
from comity.federation.declare.policy import KnownParties
from comity.privacy.ledger import format_rounded
from comity.report.page import render_block
from comity.report.plan_page import plan_values
from comity.report.plots import Amount, draw_amounts
from comity.site.approval import OwnersView, preview_approval
from comity.site.decisions import MAX_REASON, Changed, approve_study, digest_of_shown, refuse_study
from comity.site.inbox import Arrival
from comity.site.status import list_runs
from comity.study.study import Study

TYPED = 8
"""Characters of the hash that an approval needs."""
_MAX_RUNS = 1000
_PAGE = 25


def inbox_pages(view: SiteView) -> list[Page]:
    return [
        Page("/", partial(show_inbox, view), Role.READ, "looked at the inbox"),
        Page("/studies/{study}", partial(show_study, view), Role.READ, "looked at a study"),
        Page("/studies/{study}/approve", partial(approve, view), Role.APPROVE, "approved a study", "POST"),
        Page("/studies/{study}/refuse", partial(refuse, view), Role.APPROVE, "refused a study", "POST"),
    ]


@dataclass(frozen=True)
class ListedStudy:
    arrival: Arrival
    state: str
    words: str


def describe_state(arrival: Arrival) -> tuple[str, str]:
    """A word for the state of a study, and a sentence."""
    decision = arrival.decision
    if decision is None:
        return "waits", "nobody has decided about it"
    by = f" by {decision.by}" if decision.by else ""
    when = f" on {decision.when[:16].replace('T', ' ')}"
    if decision.decision == "refused":
        return "refused", f"{by}{when}: {decision.why or 'no reason given'}".strip()
    runs = f"{decision.runs} run{'s' * (decision.runs > 1)}"
    why = f" ({decision.why})" if decision.why else ""
    return "approved", f"for {decision.dataset}, {runs}{by}{when}{why}"


def show_inbox(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    listed = [ListedStudy(one, *describe_state(one)) for one in opened.inbox.arrivals()]
    waiting = [one for one in listed if one.state == "waits"]
    decided = [one for one in listed if one.state != "waits"]
    return visit.render("inbox.html.jinja", waiting=waiting, decided=decided, party=opened.site.party)


def show_study(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    arrival = _arrival(opened, visit)
    runs = visit.query("runs", "1")
    number = int(runs) if runs.isascii() and runs.isdecimal() and 1 <= int(runs) <= _MAX_RUNS else 1
    shown = view.show(opened, arrival, visit.query("dataset"), number)
    if visit.may("approve") and not arrival.read:
        opened.inbox.mark_read(arrival.study)
    return _study_page(view, visit, opened, arrival, shown)


def _study_page(
    view: SiteView,
    visit: Visit,
    opened: OpenedSite,
    arrival: Arrival,
    shown: ShownStudy,
    *,
    problem: str = "",
    status: int = 200,
) -> Response:
    study = shown.study
    about, answers = view.rendered.get(("plan", study.hash), lambda: _plan_parts(study))
    earlier = find_earlier(opened.inbox.arrivals(), arrival)
    differences = [] if earlier is None else _differences(view, opened, earlier.study, study.hash)
    runs = [one for one in list_runs(opened.owner.ledger) if one.is_of(study.hash)]
    preview = shown.preview
    return visit.render(
        "study.html.jinja",
        status,
        arrival=arrival,
        state=describe_state(arrival),
        shown=shown,
        view=None if preview is None else preview.view,
        cost="" if preview is None else describe_cost(preview.view.cost),
        warnings=[] if preview is None else _warnings(preview.view, preview.data_warnings),
        picture="" if preview is None else draw_before_and_after(preview.view),
        parties=KnownParties.of(study.consortium, opened.site.party, opened.site.policy.pinned),
        reads=[one for one in study.plan().reads if one.party in (opened.site.party, "each party", "every party")],
        about=about,
        answers=answers,
        earlier=earlier,
        differences=differences[:MAX_SHOWN],
        more_differences=max(0, len(differences) - MAX_SHOWN),
        datasets=list(opened.site.data),
        runs=runs,
        id_of=id_of,
        problem=problem,
        typed=TYPED,
        most_reason=MAX_REASON,
        party=opened.site.party,
    )


def _plan_parts(study: Study) -> tuple[Markup, Markup]:
    """The plan's own words, without the picture of a budget: this owner's is shown instead."""
    values = plan_values(study) | {"typical": "", "budgets": []}
    return tuple(Markup(render_block("plan.html.jinja", name, **values)) for name in ("about", "answers"))  # type: ignore[return-value]


def _differences(view: SiteView, opened: OpenedSite, old: str, new: str) -> list[object]:
    folder = opened.inbox.folder
    found: list[object] = view.rendered.get(
        ("differences", old, new), lambda: compare_studies(folder / old / "study", folder / new / "study")
    )
    return found


def describe_cost(cost: str) -> str:
    """The epsilon in the text of a cost, which also has the loss in the ledger's currency."""
    found = re.search(r"eps ([0-9.]+)(?:, delta ([0-9.e-]+))?", cost)
    if found is None:
        return cost
    return f"epsilon {found[1]}" + (f" at delta {found[2]}" if found[2] else "")


def _warnings(view: OwnersView, about_records: tuple[str, ...]) -> list[str]:
    warnings = [view.unknown_warning()] if view.parties.missing_colluders else []
    return warnings + list(about_records)


def draw_before_and_after(view: OwnersView) -> Markup:
    """What was granted, what is left now, and what would be left."""
    before, after = view.accounts
    if before.granted is None or before.left is None or after.left is None:
        return Markup("")

    def amount(label: str, value: Decimal, rounding: str, *, ours: bool = False) -> Amount:
        return Amount(label, float(value), format_rounded(value, rounding), ours)

    granted = before.granted.epsilon
    amounts = [
        amount("granted", granted, ROUND_FLOOR),
        amount("left now", before.left, ROUND_FLOOR),
        amount("left after this study", after.left, ROUND_FLOOR, ours=True),
    ]
    used = [("spent", before.spent_epsilon), ("reserved", before.reserved_epsilon)]
    amounts[1:1] = [amount(word, value, ROUND_CEILING) for word, value in used if value]
    most = max(one.value for one in amounts)
    return Markup(draw_amounts(f"Budget of {view.dataset} before and after, as epsilon", amounts, most=most))


def approve(view: SiteView, visit: Visit) -> Response:
    """Approve what was shown. If anything changed since, or the records give warnings that were not shown, nothing is
    decided, and the study is shown again."""
    opened = view.current()
    arrival = _arrival(opened, visit)
    dataset, runs = visit.text("dataset", 200), visit.number("runs", 1, _MAX_RUNS)
    visit.about = f"{arrival.study[:12]} for {dataset}, {runs}"
    if visit.form.get("typed", "").strip().lower() != arrival.study[:TYPED]:
        shown = view.show(opened, arrival, dataset, runs)
        problem = f"type the first {TYPED} characters of the hash, {arrival.study[:TYPED]}…, to approve"
        visit.outcome = "hash not typed"
        return _study_page(view, visit, opened, arrival, shown, problem=problem, status=400)
    assert visit.person is not None
    try:
        approve_study(
            opened.site,
            opened.owner,
            arrival.study,
            dataset=dataset,
            runs=runs,
            by=visit.person.name,
            shown=visit.form.get("shown", ""),
        )
    except Changed as error:
        visit.outcome = "changed meanwhile"
        return _show_again(view, visit, arrival.study, dataset, runs, str(error))
    return visit.redirect(f"/studies/{arrival.study}", f"Approved for {dataset}. The record of decisions is signed.")


def _show_again(view: SiteView, visit: Visit, study: str, dataset: str, runs: int, problem: str) -> Response:
    """The study as it is now, with the warnings about the records."""
    opened = view.current()
    arrival = opened.inbox.find(study)
    shown = view.show(opened, arrival, dataset, runs)
    if shown.preview is not None:
        full = preview_approval(opened.site, opened.owner, shown.study, dataset=shown.dataset, runs=runs)
        shown = ShownStudy(shown.study, shown.dataset, runs, full, digest_of_shown(full, arrival), "")
    return _study_page(view, visit, opened, arrival, shown, problem=problem, status=409)


def refuse(view: SiteView, visit: Visit) -> Response:
    opened = view.current()
    arrival = _arrival(opened, visit)
    visit.about = arrival.study[:12]
    why = visit.text("why", MAX_REASON)
    if not why:
        raise BadInput("give the reason: the study's coordinator reads it", key="why")
    assert visit.person is not None
    refuse_study(opened.site, opened.owner, arrival.study, why=why, by=visit.person.name)
    words = "Refused. The coordinator reads the reason when it submits the study again."
    return visit.redirect(f"/studies/{arrival.study}", words)


def _arrival(opened: OpenedSite, visit: Visit) -> Arrival:
    """The study in the address, by its whole hash."""
    study = visit.part("study")
    if len(study) != 64:
        raise BadInput("a study is named by its whole hash; choose it in the inbox", key="study")
    visit.about = study[:12]
    return opened.inbox.find(study)
