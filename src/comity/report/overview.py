"""A plan in words: what is made, whom it protects, which columns it reads, what leaves, whom it trusts, what it costs.

The same sentences are the first screen of `comity plan`, the page of a plan and the dossier. They are made from the
plan alone, so a plan that was loaded from the folder of a run gives the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from comity.federation.declare.declaration import DISCLOSING, is_unproven
from comity.federation.plan import Plan, PlanRow, Reads
from comity.privacy.ledger import format_rounded
from comity.privacy.loss import Approx, format_small, format_up
from comity.report.sentences import best_guess_probability, format_percent
from comity.study.results.views import View
from comity.study.simulation.ledgers import BudgetForecast
from comity.untrusted.text import escape_line

SQUARES = "losses add as squares, so what is left is more than the difference"
_NAMED_COLUMNS, _NAMED_PARTIES = 4, 6
_COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Overview:
    """The answers, each a few sentences. `expect` is what the result may be worth, where somebody estimated it."""

    title: str
    purpose: str
    protects: str
    reads: tuple[str, ...]
    leaves: tuple[str, ...]
    results: tuple[str, ...]
    trusts: tuple[str, ...]
    costs: tuple[str, ...]
    warnings: tuple[str, ...]
    true_losses: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()

    def as_lines(self) -> list[tuple[str, str]]:
        """Each answer with its keyword; further sentences of an answer have an empty one."""
        answers: list[tuple[str, Iterable[str]]] = [
            ("purpose", [self.purpose] if self.purpose else []),
            ("protects", [self.protects]),
            ("reads", self.reads),
            ("leaves", self.leaves),
            ("results", self.results),
            ("trusts", self.trusts),
            ("expect", self.expect),
            ("costs", self.costs),
            ("true loss", self.true_losses),
            ("WARNING", self.warnings),
        ]
        return [
            ("" if place and word not in ("WARNING", "true loss") else word, sentence)
            for word, sentences in answers
            for place, sentence in enumerate(sentences)
        ]

    def as_text(self) -> str:
        """The first screen of a plan."""
        lines = [self.title, *(f"  {word:<10} {sentence}" for word, sentence in self.as_lines())]
        return "\n".join(map(escape_line, lines))


def describe_plan(plan: Plan, forecasts: Sequence[BudgetForecast] = (), *, expect: tuple[str, ...] = ()) -> Overview:
    """The plan in words. `forecasts` are the budgets of simulated owners; `expect` is an estimate of the result."""
    return Overview(
        title=f"{plan.study}: {plan.makes or 'a result'} from {count_parties(plan.parties)} ({method_name(plan)})",
        purpose=plan.about.purpose,
        protects=describe_protection(plan),
        reads=tuple(describe_reads(plan.reads)),
        leaves=tuple(describe_leaving(plan.rows)),
        results=tuple(describe_results(plan.rows)),
        trusts=tuple(describe_trust(plan)),
        costs=tuple(describe_costs(plan, forecasts)),
        warnings=(*plan.claim_warnings, *plan.warnings),
        true_losses=tuple(map(str, plan.true_losses)),
        expect=expect,
    )


def method_name(plan: Plan) -> str:
    """The method without its settings."""
    return plan.protocol.partition(" (")[0]


def count_parties(parties: int) -> str:
    return f"the records of {parties:,} {'party' if parties == 1 else 'parties'}"


# Whom it protects.


def describe_protection(plan: Plan) -> str:
    """Unit, relation and loss: how well the best guess about one unit can do."""
    unit = {"a record": "one record", "a person": "one person", "a whole party": "one whole party"}[plan.unit]
    what = "it was replaced by another" if plan.neighbours == "replaced" else "it took part"
    if is_unproven(plan.claim):
        return f"{unit}, but NOT as the method's authors claim: see the warnings"
    sure = _best_guess(plan)
    if sure is None:
        return f"nobody: so large an epsilon promises nothing ({describe_loss(plan)})"
    but = "; this promise does not cover the values that leave exactly" if plan.claim == DISCLOSING else ""
    return (
        f"{unit}: a guess whether {what} is right at most {sure} of the time, instead of 50 % "
        f"({describe_loss(plan)}){but}"
    )


def _best_guess(plan: Plan) -> str | None:
    epsilon, delta = largest_epsilon(plan), _delta(plan)
    return format_percent(best_guess_probability(float(epsilon), float(delta))) if epsilon.is_finite() else None


def largest_epsilon(plan: Plan) -> Decimal:
    """The largest cost of a run to a party, as epsilon at the study's delta. Plans of earlier releases state it in a
    sentence only."""
    found = [payer.epsilon for payer in plan.payers if payer.epsilon] or re.findall(r"eps ([0-9.]+)", plan.guarantee)
    try:
        return max((Decimal(one) for one in found), default=Decimal("Infinity"))
    except ArithmeticError:
        return Decimal("Infinity")


def _delta(plan: Plan) -> Decimal:
    return plan.total.delta if isinstance(plan.total, Approx) else Decimal(0)


def describe_loss(plan: Plan) -> str:
    epsilon, delta = largest_epsilon(plan), _delta(plan)
    shown = format_up(epsilon, decimals=2) if epsilon.is_finite() else "unbounded"
    return f"epsilon {shown}" + (f", delta {format_small(delta)}" if delta else "")


# What goes in and out.


def describe_reads(reads: Sequence[Reads]) -> list[str]:
    """The columns, a few by name."""
    if not reads:
        return ["values that the program passes; no schema names their columns"]
    several = len(reads) > 1
    shown = [f"{one.party}: {_columns(one)}" if several else _columns(one) for one in reads[:_NAMED_PARTIES]]
    return shown + (
        [f"and columns of {len(reads) - _NAMED_PARTIES} more parties"] if len(reads) > _NAMED_PARTIES else []
    )


def _columns(one: Reads) -> str:
    names, more = one.columns[:_NAMED_COLUMNS], len(one.columns) - _NAMED_COLUMNS
    listed = ", ".join(names) + (f" and {more:,} more {'column' if more == 1 else 'columns'}" if more > 0 else "")
    parts = [listed] if listed else []
    parts += [f"target {one.target}"] if one.target else []
    parts += [f"identifier {one.identifier}"] if one.identifier else []
    return "; ".join(parts) or "no column"


# What leaves a party under each protection: one of them, and several.
_LEAVING = {
    "summed": (
        "encrypted sum with noise, opened only as the total of all parties that send it",
        "encrypted sums with noise, opened only as totals of all parties that send them",
    ),
    "noised": (
        "value to which the party adds noise before it leaves",
        "values to which the party adds noise before they leave",
    ),
    "selected": ("value in encrypted shares, with the noise of one party", "values in encrypted shares, with noise"),
    "computed": ("value that the party computes with noise inside", "values that the party computes with noise inside"),
    "entrusted": (
        "value IN CLEAR to the coordinator, which is trusted to add noise",
        "values IN CLEAR to the coordinator, which is trusted to add noise",
    ),
    "entrustedrounds": (
        "value IN CLEAR to the coordinator, which is trusted to release only noisy results",
        "values IN CLEAR to the coordinator, which is trusted to release only noisy results",
    ),
    "public": ("public value", "public values"),
}


def describe_leaving(rows: Sequence[PlanRow]) -> list[str]:
    """What parties send, by protection; exact values by name."""
    own = [row for row in rows if row.source != _COORDINATOR]
    found = []
    for kind, (one, several) in _LEAVING.items():
        times = sum(row.times for row in own if row.kind == kind)
        if times:
            found.append(f"{times:,} {one if times == 1 else several}")
    found += [f"EXACTLY, with no privacy: {row.why or row.release}" for row in own if row.kind == "disclosed"]
    # Plans of earlier releases do not name kinds.
    found += [f"{row.release}: {row.protection}" for row in own if not row.kind]
    if any(row.kind == "sealed" for row in own):
        found.append("encrypted messages that only the receiving party can open: keys, random numbers, masked values")
    return found or ["nothing of any record"]


def describe_results(rows: Sequence[PlanRow]) -> list[str]:
    """What the coordinator gives to others, by receiver, what everyone gets first. What leaves exactly is described in
    words; beside a result for everyone, what every party gets is a step towards it."""
    receivers: dict[str, list[PlanRow]] = {"everyone": []}
    for row in rows:
        if row.source == _COORDINATOR and row.to != _COORDINATOR:
            receivers.setdefault(row.to, []).append(row)
    found = [
        f"to {to}: {'; '.join(_results_to(own, steps=to == 'every party' and bool(receivers['everyone'])))}"
        for to, own in receivers.items()
        if own
    ]
    return found or ["none leaves the coordinator"]


def _results_to(rows: Sequence[PlanRow], *, steps: bool) -> list[str]:
    exact = [row for row in rows if row.kind == "disclosed"]
    names = [row.release.partition(" x")[0] for row in rows if row not in exact]
    told = ", ".join(names)
    if steps and told:
        told = f"intermediate values, computed only from values with noise ({told})"
    return [*([told] if told else []), *(f"EXACTLY, {row.why or row.release}" for row in exact)]


def list_receivers(rows: Sequence[PlanRow]) -> list[str]:
    """Who gets results from the coordinator, without the names of releases."""
    to = dict.fromkeys(row.to for row in rows if row.source == _COORDINATOR and row.to != _COORDINATOR)
    return [*(["everyone"] if "everyone" in to else []), *(one for one in to if one != "everyone")]


# Whom it trusts, and what it costs.


def describe_trust(plan: Plan) -> list[str]:
    """Who has to behave, and against whom the guarantee holds."""
    found = [f"{describe_trusted(plan)}; {describe_coordinator(plan)}", f"protected from {plan.adversary}"]
    if plan.exposed:
        found.append(f"NOT protected from {plan.exposed}")
    return found


def describe_trusted(plan: Plan) -> str:
    exact = any(row.kind == "disclosed" for row in plan.rows)
    return "every participant to run the agreed program" + (
        ", and the receivers of exact values to pass none on" if exact else ""
    )


def describe_coordinator(plan: Plan) -> str:
    """What the coordinator sees of single parties."""
    kinds = {row.kind for row in plan.rows if row.source != _COORDINATOR and _COORDINATOR in row.to}
    kinds |= {row.kind for row in plan.rows if row.source != _COORDINATOR and row.to == "everyone"}
    if kinds & {"entrusted", "entrustedrounds"}:
        return "the coordinator sees exact values of each party, and is trusted with them"
    if "disclosed" in kinds:
        return "the coordinator sees the exact values that are marked, and what else it sees has noise"
    if kinds & {"noised", "computed", "selected"}:
        return "the coordinator sees values of a single party only with noise"
    if plan.tells_parties_apart:
        return (
            "everyone who sees the totals sees figures of each party, by name, under the noise that all of them share"
        )
    return "the coordinator sees totals of all parties with noise, and no party's own values"


def describe_costs(plan: Plan, forecasts: Sequence[BudgetForecast]) -> list[str]:
    """What a run takes from each owner's budget."""
    if not forecasts:
        return [
            f"{describe_payment(payer.loss, payer.epsilon)} of the budget of {payer.name}" for payer in plan.payers
        ] or [f"{plan.guarantee} of each party's budget"]
    return [describe_forecast(one) for one in forecasts]


def describe_payment(loss: str, epsilon: str) -> str:
    return f"epsilon {epsilon}" if epsilon else loss


def describe_forecast(one: BudgetForecast) -> str:
    spent, granted = format_up(one.spent, decimals=2), format_rounded(one.granted, ROUND_FLOOR)
    whose = f"of the {granted} in the simulated budget of {one.owners}"
    if one.left is None:
        return f"epsilon {spent}, which is more than is left {whose}: a run would be refused"
    why = f" ({SQUARES})" if one.squares and one.left else ""
    return f"epsilon {spent} {whose}; {format_rounded(one.left, ROUND_FLOOR)} would be left{why}"


# Who learns what.


@dataclass(frozen=True)
class Learned:
    """What one kind of participant would learn, in words; `exact` marks what has no privacy. `names` are technical."""

    words: str
    exact: bool
    names: tuple[str, ...]


_RECEIVED = {
    "summed": "{times} added up over all parties, with noise; no party's own value",
    "summed apart": "{times} added up over all parties, with noise; figures of each party, by name, are among them",
    "noised": "{times} of single parties, with noise",
    "selected": "{times} in shares, with noise",
    "computed": "{times} that single parties computed with noise inside",
    "perturbed": "results with noise that the coordinator added",
    "curated": "results that the coordinator computed with noise inside",
    "derived": "results, computed only from values with noise",
    "sealed": "encrypted messages: keys, random numbers and masked values, which tell nothing by themselves",
    "public": "what is public anyway",
}


def describe_view(view: View, plan: Plan) -> list[Learned]:
    """What a participant would learn, grouped by protection."""
    known = {row.release: row for row in plan.rows}
    found: dict[str, list[PlanRow]] = {}
    exact: list[Learned] = []
    for seen in view.seen:
        row = known.get(seen.release)
        if row is None or seen.unprotected:
            told = "" if row is None else row.why
            what = f"exactly, or made from exact values: {seen.release}"
            if told:
                what = told if told.startswith("exactly") else f"exactly: {told}"
            exact.append(Learned(what, True, (seen.release,)))
        else:
            found.setdefault(row.kind, []).append(row)
    learned = [
        Learned(_received(kind, own, plan), False, tuple(row.release for row in own)) for kind, own in found.items()
    ]
    return exact + learned


def _received(kind: str, rows: Sequence[PlanRow], plan: Plan) -> str:
    to_everyone = [row for row in rows if row.to == "everyone"]
    if kind == "derived" and to_everyone:
        steps = " and intermediate values" if len(to_everyone) < len(rows) else ""
        return f"the result{steps}, computed only from values with noise"
    if kind == "summed" and plan.tells_parties_apart:
        kind = "summed apart"
    times = sum(row.times for row in rows)
    return _RECEIVED.get(kind, "values").format(times=f"{times:,} {'value' if times == 1 else 'values'}")
