"""The sums of one dataset: granted, spent and reserved, in its currency, and the refusal when they do not suffice.

A `Balance` has one transition per kind of entry. Transactions use it when they write, and
`comity.privacy.ledger.verification` uses it when it derives the sums again. Losses round upwards at sixty digits
(`comity.privacy.loss`), also when they leave the reserve, so a sum is exact or errs towards refusing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation

from comity.errors import Malformed
from comity.privacy.accounting import Spent
from comity.privacy.currency import (
    Currency,
    Grant,
    ceiling_of,
    convert_to,
    default_currency,
    delta_of,
    is_within,
    remaining_epsilon,
    remaining_loss,
)
from comity.privacy.loss import GDP, LOSSES, ZCDP, Approx, Loss, Pure, format_small, loss_of, parse_loss
from comity.privacy.unit import Neighbours, Unit

_WIDE = Context(prec=120)


@dataclass(frozen=True, slots=True)
class Balance:
    """One dataset's sums.

    `granted` is None for a simulated party without a limit: it counts each kind of loss separately, as a plan does. A
    grant without a `currency` is of the first format, which mixed kinds of loss; it is replayed and never spent from.
    """

    granted: Grant | None
    currency: Currency | None
    ceiling: Loss | None
    spent: Spent
    reserved: Spent

    @classmethod
    def open(cls, granted: Grant | None, currency: Currency | None = None, ceiling: Loss | None = None) -> Balance:
        if granted is not None and currency is not None and ceiling is None:
            ceiling = ceiling_of(currency, granted)
        return cls(granted, currency, ceiling, Spent.zero(), Spent.zero())

    @property
    def committed(self) -> Spent:
        """Spent plus reserved. Both count against the grant, since a reservation may be drawn at any moment."""
        return _add_up(self.spent, self.reserved)

    @property
    def is_untouched(self) -> bool:
        return self.committed == Spent.zero()

    def total_with(self, more: Grant) -> Grant:
        """The grant after `more` is added."""
        assert self.granted is not None
        epsilon = LOSSES.add(self.granted.epsilon, more.epsilon)
        delta = LOSSES.add(delta_of(self.granted), delta_of(more))
        return loss_of(epsilon, delta)

    def grant_more(self, more: Grant, currency: Currency | None = None, ceiling: Loss | None = None) -> Balance:
        if self.granted is None:
            return self
        granted = self.total_with(more)
        if currency is not None and ceiling is None:
            ceiling = ceiling_of(currency, granted)
        return Balance(granted, currency, ceiling, self.spent, self.reserved)

    # Each transition returns the new balance.

    def reserve(self, cost: Spent) -> Balance:
        return self._with(self.spent, self.reserved.plus(cost))

    def release(self, cost: Spent) -> Balance:
        return self._with(self.spent, self.reserved.minus(cost))

    def draw(self, cost: Spent) -> Balance:
        return self._with(self.spent.plus(cost), self.reserved.minus(cost))

    def write_off(self, loss: Loss) -> Balance:
        return self._with(self.spent.add(self.in_currency(loss)), self.reserved)

    def _with(self, spent: Spent, reserved: Spent) -> Balance:
        return Balance(self.granted, self.currency, self.ceiling, spent, reserved)

    def in_currency(self, loss: Loss) -> Loss:
        """A stored loss in the currency. Losses that the currency can't express were refused before."""
        if self.currency is None:
            return loss
        found = convert_to(self.currency, loss)
        if found is None:
            raise Malformed(f"a stored loss of {loss} can't be counted in {self.currency.label}")
        return found

    def covers(self, cost: Spent) -> bool:
        if self.granted is None:
            return True
        wanted = self.committed.plus(cost)
        if self.currency is None:
            return wanted.epsilon_at(delta_of(self.granted)) <= self.granted.epsilon
        assert self.ceiling is not None
        return is_within(wanted, self.ceiling)

    @property
    def left(self) -> Decimal | None:
        """The ε that a study at the granted δ could still ask for, rounded down; None without a limit."""
        if self.granted is None:
            return None
        if self.ceiling is None:
            return Decimal(0)
        return remaining_epsilon(self.committed, self.ceiling, self.granted)

    def remainder(self) -> Loss:
        """The largest loss that still fits."""
        return Pure(0) if self.ceiling is None else remaining_loss(self.committed, self.ceiling)

    def epsilon_of(self, spent: Spent) -> Decimal:
        """`spent` as an ε at the granted δ, rounded up; at δ = 0 without a limit."""
        return spent.epsilon_at(Decimal(0) if self.granted is None else delta_of(self.granted))


@dataclass(frozen=True, slots=True)
class Account:
    """One dataset as its owner sees it: ε at the granted δ, `spent_epsilon` rounded up, `left` rounded down.

    `left` is the ε that a study at the same δ could ask for. Only pure losses add up to the grant.
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

    @classmethod
    def of(
        cls, dataset: str, unit: Unit, neighbours: Neighbours, balance: Balance, *, frozen: str, simulated: bool
    ) -> Account:
        spent, committed = balance.epsilon_of(balance.spent), balance.epsilon_of(balance.committed)
        return cls(
            dataset,
            unit,
            neighbours,
            granted=balance.granted,
            currency=balance.currency,
            spent=balance.spent,
            reserved=balance.reserved,
            spent_epsilon=spent,
            reserved_epsilon=committed - spent if spent.is_finite() else Decimal(0),
            left=balance.left,
            frozen=frozen,
            simulated=simulated,
        )

    def __str__(self) -> str:
        name = f"{self.dataset} · {self.unit}, {self.neighbours}    "
        if self.granted is None or self.left is None:
            return f"{name}no limit   spent {describe_spent(self.spent)}"
        spent = format_rounded(self.spent_epsilon, ROUND_CEILING)
        reserved = format_rounded(self.reserved_epsilon, ROUND_CEILING)
        left = format_rounded(self.left, ROUND_FLOOR)
        sums = f"granted {self.granted}, spent {spent}, reserved {reserved}, left {left}"
        counted = f", counted in {self.currency.label}" if self.currency is not None else ""
        marks = (", simulated" if self.simulated else "") + (", FROZEN" if self.frozen else "")
        return name + sums + self.arithmetic + counted + marks

    @property
    def arithmetic(self) -> str:
        """A remark for people where `left` is not the grant less what is spent and reserved; else empty."""
        if self.currency is None or not self.currency.adds_squares or not self.left:
            return ""
        if not self.spent_epsilon + self.reserved_epsilon:
            return ""
        return " (losses add as squares, so what is left is more than the difference)"


def format_rounded(value: Decimal, rounding: str, decimals: int = 2) -> str:
    """`value` with this many decimals, rounded in the stated direction."""
    if not value.is_finite() or value.adjusted() > 80:
        return "infinite"
    return f"{value.quantize(Decimal(1).scaleb(-decimals), rounding=rounding, context=_WIDE):f}"


def describe_spent(spent: Spent) -> str:
    """The sums by kind, for an account that has no δ at which to convert them."""
    kinds = (
        (spent.pure, lambda: Pure(spent.pure)),
        (spent.gaussian, lambda: GDP.squared(spent.gaussian)),
        (spent.rho, lambda: ZCDP(spent.rho)),
        (spent.approx_epsilon + spent.delta, lambda: Approx(spent.approx_epsilon, spent.delta)),
    )
    return " + ".join(str(loss()) for some, loss in kinds if some) or "nothing"


# What the refusal says when the budget does not suffice


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a refusal for lack of budget says. `requested` is rounded up and `remaining` down, so a grant of
    `difference` always suffices."""

    requested: str
    remaining: str
    difference: str
    sentence: str


def describe_shortfall(
    *, study: str, dataset: str, where: str, balance: Balance, wanted: Spent, converted: bool, pure: bool
) -> Shortfall:
    """Why a run that costs `wanted` does not fit, and what the owner can do.

    `converted` means that the study states its losses in another relation or kind; `pure` that all of them are pure.
    """
    granted, held = balance.granted, balance.committed
    assert granted is not None and balance.left is not None
    needed = held.plus(wanted)
    delta = delta_of(granted)
    grant = f'comity ledger grant {where} --dataset {dataset} --why "..."'
    over = needed.delta - delta
    if over > 0:
        asked, left = _round_small(wanted.delta, ROUND_CEILING), _round_small(delta - held.delta, ROUND_FLOOR)
        short = _round_small(over, ROUND_CEILING)
        advice = "Grant more" if left == "0" else "Lower privacy.delta, or grant more"
        return _compose_shortfall(study, dataset, "delta", asked, left, short, f"{advice}: {grant} --delta {short}")
    more, remaining = balance.epsilon_of(wanted), balance.left
    missing = balance.epsilon_of(needed) - granted.epsilon
    if not missing.is_finite():
        sentence = (
            f"refused: {study} asks more of {dataset} than any grant holds. Raise the noise: lower privacy.epsilon"
        )
        return Shortfall("infinite", format_rounded(remaining, ROUND_FLOOR), "infinite", sentence)
    decimals = min(6, max(2, *(1 - value.adjusted() for value in (remaining, more, missing) if value > 0)))
    asked, left = format_rounded(more, ROUND_CEILING, decimals), format_rounded(remaining, ROUND_FLOOR, decimals)
    additive = balance.currency in (Currency.PURE, Currency.APPROX)
    short = str(Decimal(asked) - Decimal(left)) if additive else format_rounded(missing, ROUND_CEILING, decimals)
    if not Decimal(left):
        advice = "Grant more"
    elif not converted:
        advice = f"Lower privacy.epsilon to {left}, or grant more"
    elif balance.currency is Currency.PURE:
        advice = f"Lower privacy.epsilon to {Decimal(left) / 2}, or grant more"
    else:
        # No figure is better than one that would be refused again.
        advice = "Lower privacy.epsilon, or grant more"
    if pure and balance.currency in (Currency.GAUSSIAN, Currency.CONCENTRATED):
        advice = f"Pure losses are dear in {balance.currency.label}: keep a ledger without a delta for them. {advice}"
    at = "" if balance.currency is Currency.PURE else f" at delta {_round_small(delta, ROUND_FLOOR)}"
    return _compose_shortfall(study, dataset, "eps", asked, left, short, f"{advice}: {grant} --epsilon {short}", at)


def _compose_shortfall(
    study: str, dataset: str, what: str, asked: str, left: str, short: str, remedy: str, at: str = ""
) -> Shortfall:
    sentence = f"refused: {study} asks {what} {asked}{at} of {dataset}, {left} is left ({short} short). {remedy}"
    return Shortfall(asked, left, short, sentence)


def _round_small(value: Decimal, rounding: str) -> str:
    return format_small(value, digits=2, rounding=rounding)


# How sums are stored


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


def parse_currency(name: str, ceiling: str, grant: Grant | None) -> tuple[Currency | None, Loss | None]:
    """The stored currency and ceiling; the first format and accounts without a limit have neither."""
    if not name and not ceiling:
        return None, None
    try:
        currency = Currency(name)
    except ValueError:
        raise Malformed(f"a stored currency is one of {', '.join(Currency)}, found {name[:80]!r}") from None
    limit = parse_loss(ceiling)
    if grant is None or convert_to(currency, limit) != limit:
        raise Malformed(f"a stored ceiling in {currency} can't be {ceiling[:80]!r}")
    return currency, limit


def currency_for(losses: Sequence[Loss], grant: Grant) -> Currency:
    """The currency of a grant that can express all of these losses: pure where all of them are pure."""
    pure = all(isinstance(loss, Pure) for loss in losses)
    for currency in (Currency.PURE,) if pure else (default_currency(grant), Currency.CONCENTRATED, Currency.APPROX):
        if all(convert_to(currency, loss) is not None for loss in losses):
            return currency
    return default_currency(grant)


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


def _add_up(one: Spent, other: Spent) -> Spent:
    return Spent(
        LOSSES.add(one.pure, other.pure),
        LOSSES.add(one.gaussian, other.gaussian),
        LOSSES.add(one.rho, other.rho),
        LOSSES.add(one.approx_epsilon, other.approx_epsilon),
        LOSSES.add(one.delta, other.delta),
    )
