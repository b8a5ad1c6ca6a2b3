"""What a declaration costs one party: its draws as a ledger reserves them, and their sum.

Where a study has an evaluation and a unit lies in one part of the records, the method's draws are of the part that is
trained on, the evaluation's of the part that was set aside, and the two compose in parallel.
"""

from __future__ import annotations

from collections.abc import Callable

from comity.federation.consortium import Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.evaluation.terms import ASIDE, TRAINING
from comity.privacy.accounting import Spent
from comity.privacy.ledger_transaction import Draw
from comity.privacy.loss import Loss
from comity.privacy.parallel import WHOLE, Parts


def part_of(release: Release, declaration: Declaration, who: Consortium) -> str:
    """The part of the records that a release is made from, as far as that makes it cheaper."""
    if who.evaluation is None or not who.evaluation.parallel:
        return WHOLE
    return ASIDE if release.name in declaration.aside else TRAINING


def draws_of(declaration: Declaration, party: str, who: Consortium) -> list[Draw]:
    return [
        Draw(
            release.name,
            index,
            release.loss,
            type(release.noise).__name__,
            release.sensitivity,
            part_of(release, declaration, who),
        )
        for release in declaration.paid_by(party, who)
        if release.loss is not None
        for index in range(release.times)
    ]


def spent_by(
    declaration: Declaration, party: str, who: Consortium, *, of: Callable[[Loss], Loss] = lambda loss: loss
) -> Spent:
    """What a whole run costs one party: losses that are fixed before it begins, so that they add up by kind. `of` is
    what each loss counts as."""
    parts = Parts()
    for release in declaration.paid_by(party, who):
        assert release.loss is not None
        parts.add(part_of(release, declaration, who), of(release.loss), release.times)
    return parts.cost
