"""What the simulated owners of a study grant."""

from __future__ import annotations

from decimal import Decimal
from math import isinf

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.payers import delta_of, payer_groups
from comity.privacy.loss import LOSSES, Approx, Pure, float_above, loss_of, shown
from comity.study.study import Study


def grant_of(study: Study) -> Pure | Approx:
    """What each owner grants: `simulation.grant`, or just what the study asks."""
    return loss_of(study.simulation.grant or study.privacy.epsilon, study.privacy.delta)


def require_grant(study: Study) -> None:
    """Refuse a `simulation.grant` that no epsilon could make large enough: a published method may lose what the study's
    delta does not cover."""
    if study.simulation.grant is None:
        return
    consortium = study.consortium
    for group in payer_groups(study.protocol.accepted(consortium), consortium):
        if isinf(float(group.spent.epsilon_at(delta_of(consortium)))):
            raise StudyError(
                f"{study.where}: simulation.grant = {study.simulation.grant:g} is an epsilon at delta "
                f"{study.privacy.delta:g}, and at that delta no epsilon covers what "
                f"{study.protocol.title_in(consortium)} loses; remove simulation.grant, and each "
                "simulated ledger is granted what the study asks",
                key="simulation.grant",
            )


def grants_of(study: Study, consortium: Consortium) -> float | dict[str, float | Approx]:
    """`grant_of`, for every party. Where the file sets no grant, a role that pays more than the study's epsilon is
    granted what it pays. A published method that does not keep its claim may lose what no epsilon covers at the
    study's delta: that is granted with a delta of its own."""
    usual = float(grant_of(study).epsilon)
    if study.simulation.grant is not None or not consortium.roles:
        return usual
    grants: dict[str, float | Approx] = {}
    for group in payer_groups(study.protocol.accepted(consortium), consortium):
        asked = float_above(group.spent.epsilon_at(delta_of(consortium)))
        if isinf(asked):
            whole = LOSSES.add(group.spent.approx_epsilon, group.spent.pure)
            grants.update(dict.fromkeys(group.parties, Approx(whole, group.spent.delta)))
            continue
        # A little up: what a loss converts to and back again is rounded both ways.
        own = usual if asked <= usual else float(shown(Decimal(repr(asked * (1 + 1e-6))), decimals=2))
        grants.update(dict.fromkeys(group.parties, own))
    return grants
