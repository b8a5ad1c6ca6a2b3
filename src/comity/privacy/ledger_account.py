"""The sums of a ledger: what one dataset was granted, has spent and holds in reserve.

A `Balance` has one transition per kind of entry, and both ways through a ledger use them: transactions as
they write, `comity.privacy.ledger_replay` when it derives the sums again. Losses round upwards at sixty
digits (`comity.privacy.loss`), also when they leave the reserve, so a sum is exact or errs towards refusing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation

from comity.errors import Malformed
from comity.privacy.accounting import Spent, fits, remaining
from comity.privacy.loss import LOSSES, ZCDP, Approx, Loss, Pure, parse_loss
from comity.privacy.unit import Neighbours, Unit

Grant = Pure | Approx

_WIDE = Context(prec=120)


@dataclass(frozen=True, slots=True)
class Balance:
    """One dataset's sums; `granted` None is no limit, which only a simulated party has."""

    granted: Grant | None
    spent: Spent
    reserved: Spent

    @classmethod
    def opened(cls, granted: Grant | None) -> Balance:
        return cls(granted, Spent.zero(), Spent.zero())

    @property
    def committed(self) -> Spent:
        """Spent or reserved: both count against the grant, since a reservation may be drawn at any moment."""
        return _plus(self.spent, self.reserved)

    def raised(self, more: Grant) -> Balance:
        if self.granted is None:
            return self
        epsilon = LOSSES.add(self.granted.epsilon, more.epsilon)
        delta = LOSSES.add(delta_of(self.granted), delta_of(more))
        return Balance(Approx(epsilon, delta) if delta else Pure(epsilon), self.spent, self.reserved)

    def reserving(self, loss: Loss) -> Balance:
        return Balance(self.granted, self.spent, self.reserved.add(loss))

    def releasing(self, loss: Loss) -> Balance:
        return Balance(self.granted, self.spent, _minus(self.reserved, loss))

    def drawing(self, loss: Loss) -> Balance:
        return Balance(self.granted, self.spent.add(loss), _minus(self.reserved, loss))

    def writing_off(self, loss: Loss) -> Balance:
        return Balance(self.granted, self.spent.add(loss), self.reserved)

    def covers(self, losses: Sequence[Loss]) -> bool:
        return self.granted is None or fits(self.granted, total(self.committed, losses))

    @property
    def left(self) -> Decimal | None:
        """The pure ε that could still be reserved, rounded down; None without a limit."""
        return None if self.granted is None else remaining(self.granted, self.committed)

    def all_left(self) -> Grant:
        """The loss after which nothing fits any more; δ stays where ρ was spent, since ε(ρ, δ) needs some."""
        if self.granted is None or self.left is None:
            return Pure(0)
        delta = delta_of(self.granted) - self.committed.delta
        return Approx(self.left, delta) if delta > 0 and not self.committed.rho else Pure(self.left)


@dataclass(frozen=True, slots=True)
class Account:
    """One dataset as its owner sees it: ε at the granted δ, spent rounded up, left rounded down."""

    dataset: str
    unit: Unit
    neighbours: Neighbours
    granted: Grant | None
    spent: Spent
    reserved: Spent
    spent_epsilon: Decimal
    reserved_epsilon: Decimal
    left: Decimal | None
    frozen: str = ""

    def __str__(self) -> str:
        who = f"{self.dataset} · {self.unit}, {self.neighbours}    "
        if self.granted is None or self.left is None:
            return f"{who}no limit   spent {spent_shown(self.spent)}"
        spent, reserved = (figure(value, ROUND_CEILING) for value in (self.spent_epsilon, self.reserved_epsilon))
        sums = f"granted {self.granted}   spent {spent}   reserved {reserved}   left {figure(self.left, ROUND_FLOOR)}"
        return who + sums + ("   FROZEN" if self.frozen else "")


def account(dataset: str, unit: Unit, neighbours: Neighbours, balance: Balance, frozen: str) -> Account:
    delta = Decimal(0) if balance.granted is None else delta_of(balance.granted)
    spent, committed = balance.spent.epsilon_at(delta), balance.committed.epsilon_at(delta)
    more = committed - spent if spent.is_finite() else Decimal(0)
    return Account(
        dataset,
        unit,
        neighbours,
        balance.granted,
        balance.spent,
        balance.reserved,
        spent,
        more,
        balance.left,
        frozen,
    )


def total(spent: Spent, losses: Sequence[Loss]) -> Spent:
    for loss in losses:
        spent = spent.add(loss)
    return spent


def delta_of(grant: Grant) -> Decimal:
    return grant.delta if isinstance(grant, Approx) else Decimal(0)


def figure(value: Decimal, rounding: str, decimals: int = 2) -> str:
    """`value` with so many decimals, rounded to the side that the reader should be warned of."""
    if not value.is_finite():
        return "infinite"
    return f"{value.quantize(Decimal(1).scaleb(-decimals), rounding=rounding, context=_WIDE):f}"


def spent_shown(spent: Spent) -> str:
    """The sums by kind, for an account without a δ to convert them at."""
    losses = (Pure(spent.pure), ZCDP(spent.rho), Approx(spent.approx_epsilon, spent.delta))
    return " + ".join(str(loss) for loss in losses if loss not in (Pure(0), ZCDP(0), Approx(0, 0))) or "nothing"


def grant_text(grant: Grant | None) -> str:
    return "" if grant is None else grant.as_text()


def parse_grant(text: str) -> Grant | None:
    """The grant that `grant_text` wrote."""
    if not text:
        return None
    loss = parse_loss(text)
    if not isinstance(loss, Pure | Approx):
        raise Malformed(f"a stored grant is pure or (eps, delta), found {text!r}")
    return loss


def spent_text(spent: Spent) -> str:
    return f"{spent.pure} {spent.rho} {spent.approx_epsilon} {spent.delta}"


def parse_spent(text: str) -> Spent:
    """The sums that `spent_text` wrote."""
    try:
        pure, rho, approx_epsilon, delta = map(Decimal, text.split(" "))
    except (ValueError, InvalidOperation) as error:
        raise Malformed(f"a stored sum has four figures, found {text!r}") from error
    return Spent(pure, rho, approx_epsilon, delta)


def _plus(one: Spent, other: Spent) -> Spent:
    return Spent(
        LOSSES.add(one.pure, other.pure),
        LOSSES.add(one.rho, other.rho),
        LOSSES.add(one.approx_epsilon, other.approx_epsilon),
        LOSSES.add(one.delta, other.delta),
    )


def _minus(spent: Spent, loss: Loss) -> Spent:
    match loss:
        case Pure(epsilon=epsilon):
            return replace(spent, pure=LOSSES.subtract(spent.pure, epsilon))
        case ZCDP(rho=rho):
            return replace(spent, rho=LOSSES.subtract(spent.rho, rho))
        case Approx(epsilon=epsilon, delta=delta):
            return replace(
                spent,
                approx_epsilon=LOSSES.subtract(spent.approx_epsilon, epsilon),
                delta=LOSSES.subtract(spent.delta, delta),
            )
