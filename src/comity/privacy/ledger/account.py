"""The sums of a ledger: what one dataset was granted, has spent and holds in reserve, in its currency.

A `Balance` has one transition per kind of entry, and both ways through a ledger use them: transactions as
they write, `comity.privacy.ledger.replay` when it derives the sums again. Losses round upwards at sixty
digits (`comity.privacy.loss`), also when they leave the reserve, so a sum is exact or errs towards refusing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation

from comity.errors import Malformed
from comity.privacy.accounting import Spent
from comity.privacy.composition import Grant, ceiling, delta_of, enters, epsilon_left, left_of, usual, within
from comity.privacy.currency import Currency
from comity.privacy.loss import GDP, LOSSES, ZCDP, Approx, Loss, Pure, loss_of, parse_loss
from comity.privacy.unit import Neighbours, Unit

_WIDE = Context(prec=120)


@dataclass(frozen=True, slots=True)
class Balance:
    """One dataset's sums.

    `granted` None is no limit, which only a simulated party has: it counts by kind, as a plan does. `currency` None
    beside a grant is a grant of the first format, which mixed kinds; it is replayed and never spent from.
    """

    granted: Grant | None
    currency: Currency | None
    most: Loss | None
    spent: Spent
    reserved: Spent

    @classmethod
    def opened(cls, granted: Grant | None, currency: Currency | None = None, most: Loss | None = None) -> Balance:
        if granted is not None and currency is not None and most is None:
            most = ceiling(currency, granted)
        return cls(granted, currency, most, Spent.zero(), Spent.zero())

    @property
    def committed(self) -> Spent:
        """Spent or reserved: both count against the grant, since a reservation may be drawn at any moment."""
        return _plus(self.spent, self.reserved)

    @property
    def is_untouched(self) -> bool:
        return self.committed == Spent.zero()

    def total(self, more: Grant) -> Grant:
        """The grant after `more` is added to it."""
        assert self.granted is not None
        epsilon = LOSSES.add(self.granted.epsilon, more.epsilon)
        delta = LOSSES.add(delta_of(self.granted), delta_of(more))
        return loss_of(epsilon, delta)

    def raised(self, more: Grant, currency: Currency | None = None, most: Loss | None = None) -> Balance:
        if self.granted is None:
            return self
        granted = self.total(more)
        if currency is not None and most is None:
            most = ceiling(currency, granted)
        return Balance(granted, currency, most, self.spent, self.reserved)

    def reserving(self, cost: Spent) -> Balance:
        return self._with(self.spent, self.reserved.plus(cost))

    def releasing(self, cost: Spent) -> Balance:
        return self._with(self.spent, self.reserved.minus(cost))

    def drawing(self, cost: Spent) -> Balance:
        return self._with(self.spent.plus(cost), self.reserved.minus(cost))

    def writing_off(self, loss: Loss) -> Balance:
        return self._with(self.spent.add(self.counted(loss)), self.reserved)

    def _with(self, spent: Spent, reserved: Spent) -> Balance:
        return Balance(self.granted, self.currency, self.most, spent, reserved)

    def counted(self, loss: Loss) -> Loss:
        """A stored loss in the currency. One that can't enter was refused before it was stored."""
        if self.currency is None:
            return loss
        found = enters(self.currency, loss)
        if found is None:
            raise Malformed(f"a stored loss of {loss} can't be counted in {self.currency.spoken}")
        return found

    def covers(self, cost: Spent) -> bool:
        if self.granted is None:
            return True
        wanted = self.committed.plus(cost)
        if self.currency is None:
            return wanted.epsilon_at(delta_of(self.granted)) <= self.granted.epsilon
        assert self.most is not None
        return within(wanted, self.most)

    @property
    def left(self) -> Decimal | None:
        """The ε that a study at the granted δ could still ask for, rounded down; None without a limit."""
        if self.granted is None:
            return None
        if self.most is None:
            return Decimal(0)
        return epsilon_left(self.committed, self.most, self.granted)

    def all_left(self) -> Loss:
        """The loss after which nothing fits any more."""
        return Pure(0) if self.most is None else left_of(self.committed, self.most)

    def epsilon_of(self, spent: Spent) -> Decimal:
        """Sums of this account as an ε at the granted δ, rounded up; without a limit, as a plan's at δ = 0."""
        return spent.epsilon_at(Decimal(0) if self.granted is None else delta_of(self.granted))


@dataclass(frozen=True, slots=True)
class Account:
    """One dataset as its owner sees it: ε at the granted δ, spent rounded up, left rounded down.

    `left` is the ε that a study at the same δ could ask for; outside pure ε the figures do not add up to the grant.
    """

    dataset: str
    unit: Unit
    neighbours: Neighbours
    granted: Grant | None
    currency: Currency | None
    spent: Spent
    reserved: Spent
    spent_epsilon: Decimal
    reserved_epsilon: Decimal
    left: Decimal | None
    frozen: str = ""
    simulated: bool = False

    def __str__(self) -> str:
        who = f"{self.dataset} · {self.unit}, {self.neighbours}    "
        if self.granted is None or self.left is None:
            return f"{who}no limit   spent {spent_shown(self.spent)}"
        spent, reserved = (figure(value, ROUND_CEILING) for value in (self.spent_epsilon, self.reserved_epsilon))
        sums = f"granted {self.granted}   spent {spent}   reserved {reserved}   left {figure(self.left, ROUND_FLOOR)}"
        counted = f"   in {self.currency.spoken}" if self.currency is not None else ""
        marks = ("   simulated" if self.simulated else "") + ("   FROZEN" if self.frozen else "")
        return who + sums + counted + marks


def account(
    dataset: str, unit: Unit, neighbours: Neighbours, balance: Balance, frozen: str, simulated: bool
) -> Account:
    spent, committed = balance.epsilon_of(balance.spent), balance.epsilon_of(balance.committed)
    more = committed - spent if spent.is_finite() else Decimal(0)
    return Account(
        dataset,
        unit,
        neighbours,
        balance.granted,
        balance.currency,
        balance.spent,
        balance.reserved,
        spent,
        more,
        balance.left,
        frozen,
        simulated,
    )


def figure(value: Decimal, rounding: str, decimals: int = 2) -> str:
    """`value` with so many decimals, rounded to the side that the reader should be warned of."""
    if not value.is_finite() or value.adjusted() > 80:
        return "infinite"
    return f"{value.quantize(Decimal(1).scaleb(-decimals), rounding=rounding, context=_WIDE):f}"


def spent_shown(spent: Spent) -> str:
    """The sums by kind, for an account without a δ to convert them at."""
    kinds = (
        (spent.pure, lambda: Pure(spent.pure)),
        (spent.gaussian, lambda: GDP.squared(spent.gaussian)),
        (spent.rho, lambda: ZCDP(spent.rho)),
        (spent.approx_epsilon + spent.delta, lambda: Approx(spent.approx_epsilon, spent.delta)),
    )
    return " + ".join(str(loss()) for some, loss in kinds if some) or "nothing"


def grant_text(grant: Grant | None) -> str:
    return "" if grant is None else grant.as_text()


def parse_grant(text: str) -> Grant | None:
    """The grant that `grant_text` wrote."""
    if not text:
        return None
    loss = parse_loss(text)
    if not isinstance(loss, Pure | Approx):
        raise Malformed(f"a stored grant is pure or (eps, delta), found {text[:80]!r}")
    return loss


def parse_currency(name: str, most: str, grant: Grant | None) -> tuple[Currency | None, Loss | None]:
    """Currency and ceiling as they are stored; neither in the first format, nor without a limit."""
    if not name and not most:
        return None, None
    try:
        currency = Currency(name)
    except ValueError:
        raise Malformed(f"a stored currency is one of {', '.join(Currency)}, found {name[:80]!r}") from None
    limit = parse_loss(most)
    if grant is None or enters(currency, limit) != limit:
        raise Malformed(f"a stored ceiling in {currency} can't be {most[:80]!r}")
    return currency, limit


def currency_for(losses: Sequence[Loss], grant: Grant) -> Currency:
    """The currency in which a grant lets all of these losses enter; that of pure losses where all of them are."""
    pure = all(isinstance(loss, Pure) for loss in losses)
    for currency in (Currency.PURE,) if pure else (usual(grant), Currency.CONCENTRATED, Currency.APPROX):
        if all(enters(currency, loss) is not None for loss in losses):
            return currency
    return usual(grant)


def spent_text(spent: Spent) -> str:
    return f"{spent.pure} {spent.gaussian} {spent.rho} {spent.approx_epsilon} {spent.delta}"


def parse_spent(text: str) -> Spent:
    """The sums that `spent_text` wrote."""
    try:
        figures = [Decimal(part) for part in text.split(" ")]
        if not all(value.is_finite() and value >= 0 for value in figures):
            raise ValueError
        if len(figures) == 4:  # the first format had no Gaussian losses
            figures.insert(1, Decimal(0))
        pure, gaussian, rho, approx_epsilon, delta = figures
    except (AttributeError, ValueError, InvalidOperation) as error:
        raise Malformed(f"a stored sum has five figures from 0, found {str(text)[:80]!r}") from error
    return Spent(pure, gaussian, rho, approx_epsilon, delta)


def _plus(one: Spent, other: Spent) -> Spent:
    return Spent(
        LOSSES.add(one.pure, other.pure),
        LOSSES.add(one.gaussian, other.gaussian),
        LOSSES.add(one.rho, other.rho),
        LOSSES.add(one.approx_epsilon, other.approx_epsilon),
        LOSSES.add(one.delta, other.delta),
    )
