"""On which terms a vertical regression runs, and whom it holds against."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import TYPE_CHECKING

from comity.errors import StudyError
from comity.federation.consortium import Consortium
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.vertical.budgets import affordable

if TYPE_CHECKING:
    from comity.protocols.vertical.protocol import VerticalRegression


CHARGED = "one person's columns at all parties together; every ledger is charged for this one loss, which is lost once"


def check(method: VerticalRegression, who: Consortium) -> None:
    """Refuse what the proof does not cover, before anything is reserved."""
    # With an alignment a person has one row; without one nobody checks that it has.
    people = who.unit is Unit.PERSON and method.alignment == "none"
    if who.unit is Unit.PARTY or people or who.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"vertical protects a record that may be replaced; found unit = {who.unit}, neighbours = "
            f'{who.neighbours}, alignment = {method.alignment}. Set privacy.unit = "record" ("person" only with an '
            'alignment) and privacy.neighbours = "replace"',
            key="privacy.unit",
        )
    check_parties(method.columns, who)
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


def check_parties(columns: Mapping[str, tuple[str, ...]], who: Consortium) -> None:
    """Every party holds columns that the others don't have: none can be missing, and there are two at least."""
    if who.dropouts:
        raise StudyError(
            f"vertical needs every party to the end, found privacy.dropouts = {who.dropouts}; set it to 0: a run "
            "that lost a party waits for it",
            key="privacy.dropouts",
        )
    if tuple(who.parties) != tuple(columns):
        raise StudyError(
            f"the columns are those of {', '.join(columns)}, the parties are {', '.join(who.parties)}; "
            "give every party its columns, in the same order",
            key="parties",
        )
    if who.size < 2:
        raise StudyError(
            "vertical multiplies columns of different parties, found one party; add another, or learn at home",
            key="parties",
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


def adversary(method: VerticalRegression, who: Consortium) -> str:
    """Whom the noise, the products and the alignment hold against, all at once."""
    if method.products == "dealer" or method.alignment == "keyed":
        # Together with a party, a dealer could read its peers' columns, and a matcher try out ids.
        does = " and ".join(
            word
            for word, holds in (("deals", method.products == "dealer"), ("matches ids", method.alignment == "keyed"))
            if holds
        )
        alone = f"an honest-but-curious coordinator that works with no party (it {does})"
        return alone + (f", and up to {who.colluders} of {who.size} parties together" if who.colluders else "")
    if not who.colluders:
        return "an honest-but-curious coordinator alone, who keeps the model to itself"
    return f"an honest-but-curious coordinator with up to {who.colluders} of {who.size} parties"
