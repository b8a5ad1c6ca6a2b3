"""On which terms a vertical regression runs."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.methods.by_columns.terms import check_parties, protects
from comity.methods.vertical.budgets import affordable
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.unit import Neighbours

if TYPE_CHECKING:
    from comity.methods.vertical.protocol import VerticalRegression


def check(method: VerticalRegression, who: Consortium) -> None:
    """Refuse what the proof does not cover, before anything is reserved."""
    if not protects(method.alignment, who.unit) or who.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"vertical protects a record that may be replaced; found unit = {who.unit}, neighbours = "
            f'{who.neighbours}, alignment = {method.alignment}. Set privacy.unit = "record" ("person" only with an '
            'alignment) and privacy.neighbours = "replace"',
            key="privacy.unit",
        )
    check_parties(method.name, method.columns, who)
    if isinstance(who.loss, Pure) != method.pure:
        found = "0" if isinstance(who.loss, Pure) else "above 0"
        needed = "Laplace noise needs privacy.delta = 0" if method.pure else "Gaussian noise needs privacy.delta > 0"
        raise StudyError(f"vertical: {needed}, found delta {found}", key="privacy.delta")
    if method.party_epsilon:
        _check_wishes(method, who.loss)
    if method.blocks is not None:
        assert isinstance(who.loss, Pure)
        total = method.blocks.loss(method.dissection)
        if total.epsilon > who.loss.epsilon:
            raise StudyError(
                f"vertical.block_epsilon comes to eps {total.epsilon} about whole records, found privacy.epsilon = "
                f"{who.loss.epsilon}; raise that, or lower the blocks",
                key="vertical.block_epsilon",
            )


def _check_wishes(method: VerticalRegression, loss: Loss) -> None:
    """No party's own columns may lose more than it asked for."""
    if method.blocks is not None:
        raise StudyError(
            "vertical.party_epsilon is a ceiling from the top, vertical.block_epsilon a budget from the bottom; "
            "leave one of them out",
            key="vertical.party_epsilon",
        )
    assert isinstance(loss, Pure | Approx)
    delta = float(loss.delta) if isinstance(loss, Approx) else 0.0
    most = affordable(method.layout, method.party_epsilon, delta, method.carried)
    if float(loss.epsilon) > most:
        raise StudyError(
            f"vertical.party_epsilon allows privacy.epsilon up to {floor(1e4 * most) / 1e4:g}, found "
            f"{loss.epsilon}; lower it, or raise the wish that is exceeded",
            key="vertical.party_epsilon",
        )
