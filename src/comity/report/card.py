"""The card of an artefact: what it is, what its release cost, against whom that holds, and how good it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.artefacts.artefact import Artefact
from comity.report.sentences import describe_evaluation, format_baseline

if TYPE_CHECKING:
    from comity.study.results.result import Result


def write_card(result: Result, artefact: Artefact) -> str:
    guarantee, card = result.guarantee, artefact.card()
    sections = {
        "Guarantee": "\n".join(
            [
                *(f"- Loss of {payer}: {loss}" for payer, loss in guarantee.losses.items()),
                *(f"- True loss: {loss}" for loss in result.plan.true_losses),
                f"- Unit: {guarantee.unit}, {guarantee.neighbours}",
                f"- Holds against: {guarantee.adversary}",
                f"- Claim: {'none: simulated with a seed' if guarantee.seeded else guarantee.claim}",
                f"- Noise: {_describe_noise(result)}",
            ]
        ),
        "How good it is": _describe_quality(result),
        **card.parts,
    }
    released = (
        "Beside this folder `released/` holds every value that was paid for, by its declared name; "
        "`comity.load_result(folder of the run).released` reads them."
    )
    sections["Files"] = f"{sections.get('Files', '')} {released}".strip()
    parts = [
        f"# {result.study}: {card.title}",
        describe_artefact(result, artefact),
        f"Made on {result.made} by run `{result.run}` of study `{result.study}` ({result.plan.protocol}), hash "
        f"`{result.study_hash}`.",
    ]
    for heading, text in sections.items():
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


def describe_presented(result: Result) -> str:
    """What the run presented, in one sentence. The page begins with it."""
    if isinstance(result.presented, Artefact):
        return describe_artefact(result, result.presented)
    return f"Released values ({', '.join(result.released)}), made from the records of {_count_parties(result)}."


def describe_artefact(result: Result, artefact: Artefact) -> str:
    card = artefact.card()
    return f"{card.what}, {card.made} from the records of {_count_parties(result)}."


def _count_parties(result: Result) -> str:
    return f"{result.parties:,} {'party' if result.parties == 1 else 'parties'}"


def _describe_noise(result: Result) -> str:
    if result.guarantee.seeded:
        return f"from seed {result.seed}: anyone who knows the seed can remove it. Not a private release"
    spread = "" if result.model_noise is None else f", standard deviation {result.model_noise:.4g} in each number"
    return f"drawn as for a release, without a seed{spread}"


def _describe_quality(result: Result) -> str:
    private = describe_evaluation(result)
    exact = _describe_exact_quality(result)
    if not private:
        return exact
    heading, *figures = private
    listed = [f"{heading[:1].upper()}{heading[1:]}:", *(f"- {figure}" for figure in figures)]
    return "\n".join([*listed, "", exact] if result.assessment.measured else listed)


def _describe_exact_quality(result: Result) -> str:
    assessment = result.assessment
    if not assessment.measured:
        return "Not measured. A score on private records is itself a release, and none was paid for."
    lines = []
    if assessment.error is not None:
        compared = " For comparison:" if assessment.baselines else ""
        lines.append(f"Error {assessment.error:.3f} on test records of the simulation.{compared}")
    lines += [f"- {format_baseline(baseline)} ({baseline.note})" for baseline in assessment.baselines]
    if assessment.figures:
        listed = [f"- {figure.name}: {figure.value:.3f} ({figure.about})" for figure in assessment.figures]
        lines += ["", "Further figures:", *listed] if lines else ["Figures on test records of the simulation:", *listed]
    if assessment.repeats is not None:
        lines += ["", f"With fresh simulated noise: {assessment.repeats.sentence()}."]
    return "\n".join([*lines, "", result.not_covered or ""])
