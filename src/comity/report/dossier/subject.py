"""What a dossier is about: the plan of a study, or a run with its result."""

from __future__ import annotations

from dataclasses import dataclass

from comity.federation.declare.declaration import DISCLOSING, is_unproven
from comity.federation.plan import Plan, PlanRow
from comity.report.overview import largest_epsilon
from comity.report.plan_page import PlanAnswers, answer_questions
from comity.report.sentences import best_guess_probability, format_percent
from comity.study.forecast.signal import describe_expectation
from comity.study.results.result import Result
from comity.study.results.views import list_views
from comity.study.simulation.ledgers import forecast_budgets
from comity.study.study import Study


@dataclass(frozen=True)
class Subject:
    """`result` is None before a run. `settings` are those that the study or the run has."""

    answers: PlanAnswers
    hash: str
    settings: dict[str, object]
    result: Result | None = None

    @classmethod
    def of_study(cls, study: Study) -> Subject:
        views = list_views(study.agreement.accepted, study.consortium)
        answers = answer_questions(study.plan(), views, forecast_budgets(study), expect=describe_expectation(study))
        return cls(answers, study.hash, study.settings())

    @classmethod
    def of_result(cls, result: Result) -> Subject:
        return cls(answer_questions(result.plan, result.views), result.study_hash, dict(result.settings), result)

    @property
    def plan(self) -> Plan:
        return self.answers.plan

    @property
    def caveats(self) -> tuple[str, ...]:
        """What keeps this from being a private release; the documents begin with it."""
        found = []
        if self.result is None:
            found.append("Drafted from a plan: nothing has run, no record was read.")
        elif self.result.guarantee.seeded:
            found.append("Made from a simulation with a seed. It is NOT a private release, and this is a draft.")
        elif self.result.simulated:
            found.append("Made from a simulation on one machine, which held the records of every party.")
        claim = self.plan.claim if self.result is None else self.result.guarantee.claim
        if is_unproven(claim):
            found.append(f"The method does NOT keep the promise of its authors: {claim}.")
        elif claim == DISCLOSING:
            found.append("Some values leave their owners exactly, outside of every guarantee.")
        return tuple(found)

    @property
    def keeps_promise(self) -> bool:
        claim = self.plan.claim if self.result is None else self.result.guarantee.claim
        return not is_unproven(claim)

    @property
    def exact(self) -> tuple[PlanRow, ...]:
        """Releases without noise: exact ones, and those that a trusted coordinator sees in clear."""
        return tuple(row for row in self.plan.rows if row.kind in ("disclosed", "entrusted", "entrustedrounds"))

    @property
    def best_guess(self) -> str | None:
        """How often the best guess about one unit can be right; None where nothing is promised."""
        epsilon = largest_epsilon(self.plan)
        if not self.keeps_promise or not epsilon.is_finite():
            return None
        return format_percent(best_guess_probability(float(epsilon), self.delta))

    @property
    def delta(self) -> float:
        return float(getattr(self.plan.total, "delta", 0) or 0)


def describe_exact(rows: tuple[PlanRow, ...]) -> str:
    """What leaves without noise, for a sentence."""
    return "; ".join(f"{row.release}: {row.why or row.protection}" for row in rows)
