"""The documents of a dossier: an annex to a DPIA, a checklist after NIST SP 800-226, a model card, a data card.

They state what plan, ledger and report show, and leave what only the organisation knows blank. About singling out,
linkage and inference they give evidence, with the number that bounds it, and draw no legal conclusion.
"""

from __future__ import annotations

from comity.artefacts.artefact import Artefact
from comity.report.dossier.document import Document, Field, Part
from comity.report.dossier.subject import Subject, describe_exact
from comity.report.overview import describe_loss
from comity.report.sentences import describe_evaluation, describe_quality


def make_documents(subject: Subject) -> tuple[Document, ...]:
    return make_dpia(subject), make_checklist(subject), make_model_card(subject), make_data_card(subject)


def _part(heading: str, *sentences: str, fields: tuple[Field, ...] = ()) -> Part:
    return Part(heading, sentences, fields)


def _stated(subject: Subject, key: str, name: str) -> Field:
    return Field(name, subject.plan.about.given().get(key, ""), by_author=True)


# DPIA annex.


def make_dpia(subject: Subject) -> Document:
    plan, overview, answers = subject.plan, subject.answers.overview, subject.answers
    learned = [f"{who}: {'; '.join(one.words for one in what) or 'nothing'}" for who, what in answers.learns]
    return Document(
        "dpia",
        f"{plan.study}: annex to a data protection impact assessment",
        "It describes the processing as the study file and the program fix it. It is no legal assessment: blank fields "
        "are for the controller and its data protection officer.",
        (
            _part("State of this document", *subject.caveats, f"Study hash {subject.hash}."),
            _part(
                "Description of the processing",
                f"{overview.title}.",
                *(f"What leaves a party: {one}." for one in overview.leaves),
                *(f"Results {one}." for one in overview.results),
                fields=(
                    _stated(subject, "purpose", "Purpose"),
                    _stated(subject, "contact", "Contact"),
                    _stated(subject, "legal_basis", "Legal basis"),
                    Field("Controllers, and any joint-controller agreement"),
                ),
            ),
            _part(
                "Data",
                *(f"{one.party}: {_list_columns(one.columns, one.target, one.identifier)}." for one in plan.reads),
                *(() if plan.reads else overview.reads),
                fields=(Field("Categories of data subjects"), Field("Special categories of data")),
            ),
            _part(
                "Recipients",
                *learned,
                "Anyone else: what these receivers pass on. The protection holds for that too.",
                fields=(Field("Recipients outside the organisations above"), Field("Transfers to third countries")),
            ),
            _part(
                "Retention",
                "Each owner keeps its records where they are. Its ledger keeps what was spent, and no record.",
                fields=(_stated(subject, "retention", "Retention of results"), Field("Retention of logs and backups")),
            ),
            _part(
                "Necessity and proportionality",
                *(f"What the result may be worth: {one}." for one in overview.expect),
                "Only these columns are read, and only what is listed above leaves.",
                "Records stay with their owners."
                if not subject.exact
                else f"These values leave their owners exactly or in clear: {describe_exact(subject.exact)}.",
                fields=(
                    Field("Why the purpose needs these columns"),
                    Field("Why no less intrusive way is enough"),
                    Field("Information and rights of data subjects"),
                ),
            ),
            _part("Risks", *answers.risks),
            *make_evidence(subject),
            _part("Measures", *_measures(subject)),
            _part(
                "Opinion",
                fields=(
                    Field("Residual risk"),
                    Field("Advice of the data protection officer"),
                    Field("Decision, date"),
                ),
            ),
        ),
    )


def _list_columns(columns: tuple[str, ...], target: str, identifier: str) -> str:
    named = [", ".join(columns)] if columns else []
    named += [f"target {target}"] if target else []
    named += [f"identifier {identifier}"] if identifier else []
    return "; ".join(named) or "no column"


def _measures(subject: Subject) -> list[str]:
    plan = subject.plan
    found = [
        f"Differential privacy: protected is {subject.answers.overview.protects}.",
        f"It holds against {plan.adversary}.",
        "Every release is declared before the run with its receiver, bound and cost; a site sends nothing else.",
        "Each owner approves the study by its hash, limits it by a policy, and keeps a ledger that refuses what the "
        "budget does not cover.",
        "Messages are encrypted and signed by pinned keys.",
    ]
    if plan.exposed:
        found.append(f"No measure bounds what these may learn: {plan.exposed}.")
    return found + _budget_sentences(subject)


def _budget_sentences(subject: Subject) -> list[str]:
    costs = [f"Cost: {one}." for one in subject.answers.overview.costs]
    if subject.result is None:
        return costs
    shown = [
        f"Ledger of {one.party} after the run: granted {one.granted}, spent {one.spent}, left {one.left}."
        for one in subject.result.accounts[:_SHOWN_LEDGERS]
    ]
    more = len(subject.result.accounts) - _SHOWN_LEDGERS
    return costs + shown + ([f"{more:,} more ledgers are in result.json."] if more > 0 else [])


_SHOWN_LEDGERS = 10


def make_evidence(subject: Subject) -> tuple[Part, ...]:
    """Evidence about singling out, linkage and inference: what is bounded, by which number, and what is not."""
    plan, sure = subject.plan, subject.best_guess
    unit = plan.unit
    if sure is None:
        bounded = "No number bounds this: the method does not keep its promise, or its epsilon promises nothing."
        single = link = infer = bounded
    else:
        single = (
            f"Someone who knows everything but {unit}, and sees all that is published, guesses right at most {sure} of "
            "the time which of two versions was used, where a coin is right 50 % of the time."
        )
        link = (
            f"The same bound of {sure} holds whatever else this person knows, so records of other sources can be "
            "linked to the result no better than that."
        )
        infer = (
            f"What the result tells about {unit} because it took part is bounded by the same {sure}. What it tells "
            "about everyone alike, as a model or a statistic does, is not bounded, and may concern people outside too."
        )
    exact = describe_exact(subject.exact)
    outside = [f"Outside of this bound, exactly or in clear: {exact}."] if exact else []
    return (
        _part("Evidence about singling out", single, *outside),
        _part("Evidence about linkage", link),
        _part("Evidence about inference", infer),
        _part(
            "How this can be tested",
            "`comity audit study.toml` attacks the study on generated records, and prints the loss that it can prove "
            "beside the declared one. Whether the evidence suffices in law is for the controller to decide.",
        ),
    )


# NIST SP 800-226.


def make_checklist(subject: Subject) -> Document:
    plan, overview = subject.plan, subject.answers.overview
    exact = describe_exact(subject.exact)
    return Document(
        "nist-sp-800-226",
        f"{plan.study}: checklist after NIST SP 800-226",
        "Points of the guidelines for evaluating differential privacy guarantees, answered from the plan. It is no "
        "certificate, and NIST has no part in it.",
        (
            _part("State of this document", *subject.caveats),
            _part(
                "Unit of privacy",
                f"The unit is {plan.unit}; neighbouring data have one {plan.neighbours}.",
                *(note[0].upper() + note[1:] + "." for note in plan.notes if note.startswith("the unit is")),
                fields=(Field("Whether one unit is what a data subject expects to be protected"),),
            ),
            _part(
                "Privacy parameters",
                f"{describe_loss(plan)[0].upper()}{describe_loss(plan)[1:]}; in all {plan.in_all}.",
                *(f"True loss: {loss}." for loss in plan.true_losses),
                fields=(Field("Why this epsilon was chosen"),),
            ),
            _part(
                "Algorithm",
                f"{plan.protocol}. Each mechanism and its sensitivity is derived in the method's proof.md.",
                *(f"{row.release}: {row.protection}, loss {row.cost}." for row in plan.rows if row.loss != "-"),
                f"Without noise: {exact}." if exact else "Nothing leaves without noise or encryption.",
            ),
            _part("Utility", *_utility(subject)),
            _part("Trust model", *(f"{one[0].upper()}{one[1:]}." for one in overview.trusts)),
            _part(
                "Side channels",
                "Released noise is drawn on integers from the operating system's entropy, so floating point weakens no "
                "proof. Arithmetic of losses is decimal and rounds up.",
                "Timing, traffic and an owner's own machine are not covered.",
                fields=(Field("Access controls on the owners' machines"),),
            ),
            _part("Composition", *_composition(subject)),
            _part(
                "Data collection",
                "Comity reads records where their owner keeps them. No guarantee covers how they were collected, and "
                "who else holds copies.",
                fields=(Field("How the records were collected, and who has access to them"),),
            ),
        ),
    )


def _composition(subject: Subject) -> list[str]:
    loss = subject.plan.guarantee
    if loss.startswith(("mu", "rho")):
        how = "Losses of Gaussian noise add as squares, within a run and across runs."
    else:
        how = "Losses add up, within a run and across runs."
    return [
        how,
        "Each owner's ledger is debited before noise is drawn, in the same transaction, and refuses what is not left.",
        "The ledger counts studies on one dataset of one owner, and not what a person loses at several owners.",
        *_budget_sentences(subject),
    ]


def _utility(subject: Subject) -> list[str]:
    result = subject.result
    if result is None:
        return [f"Expected before a run: {subject.plan.expected}."] if subject.plan.expected else ["Not estimated."]
    found = [f"{one[0].upper()}{one[1:]}." for one in describe_evaluation(result)]
    if result.error is not None:
        compared = ", ".join(f"{one.name} {one.error:.3f}" for one in result.baselines)
        interval = result.assessment.interval
        within = "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}, "
        found.append(f"Test error of the simulation: {within}measured {result.error:.3f} ({compared}).")
        found += [describe_quality(result)] if describe_quality(result) else []
        found.append(str(result.not_covered))
    return found or ["Not measured: a score on private records is itself a release, and none was paid for."]


# Cards.


def make_model_card(subject: Subject) -> Document:
    plan, result = subject.plan, subject.result
    presented = None if result is None else result.presented
    card = presented.card() if isinstance(presented, Artefact) else None
    parts = [
        _part("State of this document", *subject.caveats),
        _part(
            "What it is",
            f"{card.what}, {card.made} from the records of {plan.parties:,} parties." if card else f"{plan.makes}.",
            f"Method: {plan.protocol}. Study hash {subject.hash}.",
            *(() if result is None else (f"Run {result.run}, made on {result.made[:10]}.",)),
            fields=(_stated(subject, "purpose", "Intended use"), Field("Uses that are out of scope")),
        ),
        _part("How good it is", *_utility(subject)),
        _part("Privacy", f"It protects {subject.answers.overview.protects}.", f"It holds against {plan.adversary}."),
        _part(
            "Limits",
            "The noise and the bounds of the schema limit how exact it is. Rare groups are hit hardest.",
            fields=(Field("Groups for which it was checked separately"), Field("Who maintains it")),
        ),
    ]
    if card is not None:
        parts += [Part(heading, tuple(text.split("\n"))) for heading, text in card.parts.items() if text.strip()]
    return Document(
        "model-card", f"{plan.study}: card of the result", "What was made, for the people who use it.", tuple(parts)
    )


def make_data_card(subject: Subject) -> Document:
    plan = subject.plan
    parts = (
        _part("State of this document", *subject.caveats),
        _part(
            "Records",
            f"{plan.parties:,} {'party holds' if plan.parties == 1 else 'parties hold'} them.",
            *(f"{one.party}: {_list_columns(one.columns, one.target, one.identifier)}." for one in plan.reads),
            fields=(Field("Period and region"), Field("How they were collected"), Field("Known errors and gaps")),
        ),
        _part(
            "Bounds and categories",
            "They are in the schema, which is public. Comity never measures them on private records.",
            fields=(Field("Where the bounds come from"),),
        ),
        _part("Use", fields=(_stated(subject, "purpose", "Purpose"), _stated(subject, "retention", "Retention"))),
    )
    return Document("data-card", f"{plan.study}: card of the records", "What was read, and from whom.", parts)
