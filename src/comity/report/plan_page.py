"""The page of a plan: who would learn what from which columns, how people are protected, what it costs, what remains.

It is for the people who decide about a study and know neither Comity nor the method. It is one file without scripts
that loads nothing; names of releases and losses of mechanisms are folded away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from markupsafe import Markup

from comity._version import __version__
from comity.federation.declare.declaration import is_unproven
from comity.federation.plan import Plan
from comity.privacy.ledger import format_rounded
from comity.privacy.loss import format_up
from comity.privacy.unit import Unit
from comity.report.overview import (
    Learned,
    Overview,
    describe_coordinator,
    describe_plan,
    describe_view,
    largest_epsilon,
    list_receivers,
)
from comity.report.page import render
from comity.report.plots import Amount, draw_amounts
from comity.report.sentences import best_guess_probability, format_percent
from comity.study.forecast.signal import describe_expectation
from comity.study.results.views import View, list_views
from comity.study.simulation.ledgers import BudgetForecast, forecast_budgets
from comity.study.study import Study

_TYPICAL = (Decimal("0.1"), Decimal("1"), Decimal("10"))
_SHOWN_PARTIES = 12


@dataclass(frozen=True)
class PlanAnswers:
    """What the page says. A dossier says the same of a run."""

    plan: Plan
    overview: Overview
    learns: tuple[tuple[str, tuple[Learned, ...]], ...]
    risks: tuple[str, ...]
    trust: tuple[tuple[str, str], ...]


def answer_questions(
    plan: Plan, views: Sequence[View], forecasts: Sequence[BudgetForecast] = (), *, expect: tuple[str, ...] = ()
) -> PlanAnswers:
    overview = describe_plan(plan, forecasts, expect=expect)
    learns = tuple((view.participant, tuple(describe_view(view, plan))) for view in views)
    return PlanAnswers(plan, overview, learns, tuple(list_risks(plan)), tuple(list_trust(plan)))


def list_risks(plan: Plan) -> list[str]:
    """What could go wrong, the study's own warnings first."""
    risks = [*plan.claim_warnings, *plan.warnings]
    risks += [note[0].upper() + note[1:] for note in plan.notes if note.startswith(("the unit is", "prediction:"))]
    risks += [
        "The promise is about one unit at a time. A result that says what is true of many people also says something "
        "about each of them, whether or not their own records took part.",
        "Every further study about the same people costs more of the budget. Each owner's ledger adds up the costs of "
        "studies on its own records; nobody adds up what the same person loses at several owners.",
        "A party that lies about its own records changes the result. A total that no records could have ends the run; "
        "smaller lies are not noticed. The records of the other parties stay as protected as this page says."
        + (_FALSE_IDENTIFIERS if _aligns(plan) else ""),
        f"The promise holds against this adversary: {plan.adversary}. It does not cover a participant that runs a "
        "modified program, or an intruder on an owner's machine.",
        "Bounds and categories in the schema must come from public knowledge. If somebody looked them up in the "
        "records, they reveal something that no budget counts.",
        "The network sees how long a run takes, when messages are sent, and how large they are.",
    ]
    return risks


_FALSE_IDENTIFIERS = (
    " A party that lists identifiers of people whom it does not have learns which of them the other parties have, "
    "because matches leave exactly."
)


def _aligns(plan: Plan) -> bool:
    """Whether parties learn exactly which people they share."""
    return any(one.identifier for one in plan.reads) and any(row.kind == "disclosed" for row in plan.rows)


def list_trust(plan: Plan) -> list[tuple[str, str]]:
    """Who is trusted with what."""
    coordinator = describe_coordinator(plan)
    return [
        ("the coordinator", coordinator[0].upper() + coordinator[1:] + ". It is trusted to follow the agreed steps."),
        (
            "each party",
            "Keeps its records on its own machine. It is trusted to follow the agreed steps and to bring true records. "
            "It refuses what its owner did not approve, and what its budget does not cover.",
        ),
        ("the network", "Carries encrypted and signed messages. It learns who takes part, when, and how much is sent."),
        (
            "the study's author",
            "Wrote purpose, legal basis and schema, which Comity does not check. A changed study has another hash and "
            "needs another approval.",
        ),
        (
            "receivers of the result",
            "May use it for anything. The promise also holds for all that they compute from it.",
        ),
    ]


def render_plan(study: Study, *, expect: tuple[str, ...] = ()) -> str:
    """The page. `expect` are the sentences of a forecast of the result, and without one what public figures tell."""
    return render("plan.html.jinja", **plan_values(study, expect=expect))


def plan_values(study: Study, *, expect: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the template of the page shows."""
    plan = study.plan()
    forecasts = forecast_budgets(study)
    views = list_views(study.agreement.accepted, study.consortium)
    answers = answer_questions(plan, views, forecasts, expect=expect or describe_expectation(study))
    names = [] if isinstance(study.parties, int) else list(study.parties)
    return {
        "title": study.name,
        "answers": answers,
        "plan": plan,
        "overview": answers.overview,
        "about": plan.about,
        "notices": study.notices,
        "parties": names[:_SHOWN_PARTIES],
        "more_parties": max(0, len(names) - _SHOWN_PARTIES),
        "receivers": list_receivers(plan.rows),
        "records": None if study.privacy.unit is Unit.PARTY else study.protocol.declared_units(study.consortium),
        "guess": draw_guess(plan),
        "budgets": [(one.owners, draw_forecast(one)) for one in forecasts],
        "typical": draw_typical(plan) if not forecasts else "",
        "hash": study.hash,
        "defaults": study.defaults(),
        "version": __version__,
    }


def draw_guess(plan: Plan) -> Markup:
    """How often a guess about one unit is right: before, after, and without any protection."""
    epsilon = largest_epsilon(plan)
    if is_unproven(plan.claim) or not epsilon.is_finite():
        return Markup("")
    delta = float(getattr(plan.total, "delta", 0) or 0)
    after = best_guess_probability(float(epsilon), delta)
    shown = format_percent(after)
    if shown is None:
        return Markup("")
    amounts = [
        Amount("nothing published", 0.5, "50 %"),
        Amount("after this study", after, f"at most {shown}", ours=True),
        Amount("records published", 1.0, "100 %"),
    ]
    return Markup(draw_amounts("How often a guess about one unit is right", amounts, most=1.0))


def draw_forecast(one: BudgetForecast) -> Markup:
    """What an owner granted, what the run takes, what would be left."""
    amounts = [
        Amount("granted", float(one.granted), format_rounded(one.granted, ROUND_FLOOR)),
        Amount("this study", float(one.spent), format_up(one.spent, decimals=2), ours=True),
    ]
    if one.left is not None:
        amounts.append(Amount("left after it", float(one.left), format_rounded(one.left, ROUND_FLOOR)))
    most = max(amount.value for amount in amounts)
    return Markup(draw_amounts(f"Budget of {one.owners}, as epsilon", amounts, most=most))


def draw_typical(plan: Plan) -> Markup:
    """The cost beside common values, where no budget is known."""
    epsilon = largest_epsilon(plan)
    if not epsilon.is_finite():
        return Markup("")
    amounts: list[Any] = [Amount(f"epsilon {one}", float(one), _words(one)) for one in _TYPICAL]
    amounts.append(Amount("this study", float(epsilon), format_up(epsilon, decimals=2), ours=True))
    amounts.sort(key=lambda amount: amount.value)
    return Markup(draw_amounts("Epsilon of this study among others", amounts, most=max(a.value for a in amounts)))


def _words(epsilon: Decimal) -> str:
    sure = format_percent(best_guess_probability(float(epsilon), 0.0))
    return f"a guess is right at most {sure} of the time"
