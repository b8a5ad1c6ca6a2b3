"""The card of an artefact: what it is, what its release cost, against whom that holds, and what is not known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.artefacts.artefact import Artefact
from comity.report.quality import figures_of, measured_privately, not_covered

if TYPE_CHECKING:
    from comity.report.result import Result


def card_text(result: Result, artefact: Artefact) -> str:
    guarantee, card = result.guarantee, artefact.card()
    sections = {
        "Guarantee": "\n".join(
            [
                *(f"- Loss of {payer}: {loss}" for payer, loss in guarantee.losses.items()),
                *(f"- True loss: {loss}" for loss in result.plan.true_losses),
                f"- Unit: {guarantee.unit}, {guarantee.neighbours}",
                f"- Holds against: {guarantee.adversary}",
                f"- Claim: {'none: simulated with a seed' if guarantee.seeded else guarantee.claim}",
                f"- Noise: {_noise(result)}",
            ]
        ),
        "How good it is": _quality(result),
        **card.parts,
    }
    beside = (
        "Beside this folder `released/` holds every value that was paid for, by its declared name; "
        "`comity.load_result(folder of the run).released` reads them."
    )
    sections["Files"] = f"{sections.get('Files', '')} {beside}".strip()
    parts = [
        f"# {result.study}: {card.title}",
        sentence(result, artefact),
        f"Made on {result.made} by run `{result.run}` of study `{result.study}` ({result.plan.protocol}), hash "
        f"`{result.study_hash}`.",
    ]
    for heading, text in sections.items():
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


def what_it_is(result: Result) -> str:
    """One sentence of what was presented; the page begins with it."""
    if isinstance(result.presented, Artefact):
        return sentence(result, result.presented)
    return f"Released values ({', '.join(result.released)}), made from the records of {_parties(result)}."


def sentence(result: Result, artefact: Artefact) -> str:
    card = artefact.card()
    return f"{card.what}, {card.made} from the records of {_parties(result)}."


def _parties(result: Result) -> str:
    return f"{result.parties:,} {'party' if result.parties == 1 else 'parties'}"


def _noise(result: Result) -> str:
    if result.guarantee.seeded:
        return f"from seed {result.seed}, so whoever knows it can take the noise off. Not a private release"
    spread = "" if result.model_noise is None else f", standard deviation {result.model_noise:.4g} in each number"
    return f"drawn as for a release, without a seed{spread}"


def _quality(result: Result) -> str:
    private = measured_privately(result)
    exact = _exact_quality(result)
    if not private:
        return exact
    heading, *figures = private
    listed = [f"{heading[:1].upper()}{heading[1:]}:", *(f"- {figure}" for figure in figures)]
    return "\n".join([*listed, "", exact] if result.assessment.measured else listed)


def _exact_quality(result: Result) -> str:
    found = result.assessment
    if not found.measured:
        return "Not measured. A score on private records is itself a release, and none was paid for."
    lines = []
    if found.error is not None:
        compared = " For comparison:" if found.baselines else ""
        lines.append(f"Error {found.error:.3f} on test records of the simulation.{compared}")
    lines += [f"- {figures_of(baseline)} ({baseline.note})" for baseline in found.baselines]
    if found.figures:
        listed = [f"- {figure.name}: {figure.value:.3f} ({figure.about})" for figure in found.figures]
        lines += ["", "Further figures:", *listed] if lines else ["Figures on test records of the simulation:", *listed]
    if found.repeats is not None:
        lines += ["", f"With fresh simulated noise: {found.repeats.sentence()}."]
    return "\n".join([*lines, "", not_covered(result) or ""])
