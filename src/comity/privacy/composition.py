"""Grants and losses in their currencies (`comity.privacy.currency`): ceilings rounded down, losses up."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from comity.errors import BadInput, Refused
from comity.privacy.accounting import (
    RHO_PER_SQUARE,
    Spent,
    budget_to_rho,
    gaussian_budget,
    gdp_epsilon,
    pure_square,
    zcdp_epsilon,
)
from comity.privacy.currency import Currency
from comity.privacy.loss import GDP, LEAST, LOSSES, ZCDP, Approx, Loss, Pure, at_least

Grant = Pure | Approx

_ABOVE = Context(prec=40, rounding=ROUND_CEILING)
_DOWN = Context(prec=60, rounding=ROUND_FLOOR)


def usual(grant: Grant) -> Currency:
    """The currency of a grant that names none."""
    return Currency.GAUSSIAN if delta_of(grant) else Currency.PURE


def delta_of(grant: Grant) -> Decimal:
    return grant.delta if isinstance(grant, Approx) else Decimal(0)


def check_currency(currency: Currency, grant: Grant, where: str) -> None:
    """Refuses a grant that can't be counted so: noise with a tail needs a δ, and a pure ε has no use for one."""
    if (currency is Currency.PURE) == bool(delta_of(grant)) and currency is not Currency.APPROX:
        needed = "no delta" if currency is Currency.PURE else "a delta above 0"
        raise BadInput(
            f"{where}: a grant counted in {currency.spoken} has {needed}, found {grant}: "
            "change --delta, or choose another --currency",
            code="currency",
            key="currency",
        )


def ceiling(currency: Currency, grant: Grant) -> Loss:
    """The most that may be spent of a grant, in its currency, rounded down. Without an ε a tail buys nothing."""
    match currency:
        case Currency.PURE:
            return Pure(grant.epsilon)
        case Currency.APPROX:
            return Approx(grant.epsilon, delta_of(grant))
        case Currency.GAUSSIAN:
            return gaussian_budget(grant) if grant.epsilon else GDP(0)
        case Currency.CONCENTRATED:
            return budget_to_rho(grant) if grant.epsilon else ZCDP(0)


def enters(currency: Currency, loss: Loss) -> Loss | None:
    """A release's loss in this currency, rounded up; None where it implies nothing there."""
    if isinstance(loss, Approx) and loss.delta == 0:
        loss = Pure(loss.epsilon)
    match currency, loss:
        case (Currency.PURE, Pure()) | (Currency.GAUSSIAN, GDP()) | (Currency.CONCENTRATED, ZCDP()):
            return loss
        case Currency.APPROX, Pure(epsilon=epsilon):
            return Approx(epsilon, 0)
        case Currency.APPROX, Approx():
            return loss
        case Currency.GAUSSIAN, Pure(epsilon=epsilon):
            return GDP.squared(pure_square(epsilon))
        case Currency.CONCENTRATED, Pure(epsilon=epsilon):
            return ZCDP(at_least(LOSSES.divide(LOSSES.multiply(epsilon, epsilon), Decimal(2))))
        case Currency.CONCENTRATED, GDP(square=square):
            return ZCDP(at_least(LOSSES.multiply(square, RHO_PER_SQUARE)))
        case _:
            return None


def entered(currency: Currency, loss: Loss, dataset: str) -> Loss:
    """As `enters`, with a refusal that says what to do."""
    found = enters(currency, loss)
    if found is None:
        raise Refused(
            f"refused: {dataset} is counted in {currency.spoken}, which a loss of {loss} can't enter. "
            f"{_REMEDY[type(loss)]}, or grant a budget of its own: comity ledger init NEW --dataset {dataset} "
            f"--currency {_HOME[type(loss)]} ...",
            code="currency",
            key="privacy",
        )
    return found


_REMEDY: dict[type, str] = {
    GDP: "Choose noise with a pure loss (privacy.delta = 0)",
    ZCDP: "Choose Gaussian noise, or noise with a pure loss",
    Approx: "Choose noise with a pure or a Gaussian loss",
}
_HOME: dict[type, Currency] = {
    GDP: Currency.GAUSSIAN,
    ZCDP: Currency.CONCENTRATED,
    Approx: Currency.APPROX,
}


def within(spent: Spent, most: Loss) -> bool:
    """Whether sums of losses that entered a currency stay within its ceiling."""
    return all(mine <= limit for mine, limit in zip(_figures(spent), _figures(Spent.zero().add(most)), strict=True))


def left_of(spent: Spent, most: Loss) -> Loss:
    """What could still be spent under a ceiling, in its currency."""
    match most:
        case Pure(epsilon=epsilon):
            return Pure(_less(epsilon, spent.pure))
        case GDP(square=square):
            return GDP.squared(_less(square, spent.gaussian))
        case ZCDP(rho=rho):
            return ZCDP(_less(rho, spent.rho))
        case Approx(epsilon=epsilon, delta=delta):
            return Approx(_less(epsilon, spent.approx_epsilon), _less(delta, spent.delta))


def epsilon_left(spent: Spent, most: Loss, grant: Grant) -> Decimal:
    """The ε that a study at the granted δ could still ask for, rounded down: the whole grant while nothing is spent."""
    left = left_of(spent, most)
    if left == most:
        return grant.epsilon
    match left:
        case Pure(epsilon=epsilon) | Approx(epsilon=epsilon):
            return epsilon
        case GDP(square=square):
            return _below(gdp_epsilon(float(square), float(delta_of(grant))), grant) if square else Decimal(0)
        case ZCDP(rho=rho):
            return _below(zcdp_epsilon(float(rho), float(delta_of(grant))), grant) if rho else Decimal(0)


def written_off(currency: Currency, loss: Loss, grant: Grant) -> Loss:
    """What an owner writes off, in the currency, rounded up. Where the loss can't enter: the whole grant, or its ε
    where that is larger, which a later grant must not make room for.

    A pure ε enters as a pure loss: that is the most that a release of ε can cost, whatever noise it had. An (ε, δ) with
    δ > 0 implies nothing in Gaussian or concentrated DP. There it stands for noise of that kind which was calibrated to
    (ε, δ), and costs what that noise costs. A δ below the granted one counts as the granted one, at which ε buys more:
    whoever takes the δ of the missing runs for smaller than it was errs upwards.
    """
    calibrated = currency in (Currency.GAUSSIAN, Currency.CONCENTRATED)
    if isinstance(loss, Approx) and calibrated and loss.delta and loss.epsilon:
        at = Approx(loss.epsilon, max(loss.delta, delta_of(grant)))
        # Rounded down as a budget; as a loss it must be no less than what was bought.
        return _grown(ceiling(currency, at))
    found = enters(currency, loss)
    if found is not None:
        return found
    if isinstance(loss, Approx) and currency is Currency.PURE:
        return Pure(max(loss.epsilon, grant.epsilon))
    return ceiling(currency, grant)


def _grown(loss: Loss) -> Loss:
    more = Decimal(1) + Decimal(2) ** -30
    match loss:
        case GDP(square=square):
            return GDP.squared(at_least(_ABOVE.multiply(square, more)))
        case ZCDP(rho=rho):
            return ZCDP(at_least(_ABOVE.multiply(rho, more)))
        case _:
            return loss


def _below(epsilon: float, grant: Grant) -> Decimal:
    # Conversions are rounded up by less than this; what is said to be left must fit.
    return min(grant.epsilon, Decimal(epsilon * (1 - 2.0**-28)))


def _less(most: Decimal, spent: Decimal) -> Decimal:
    difference = _DOWN.subtract(most, spent)
    return difference if difference >= LEAST else Decimal(0)


def _figures(spent: Spent) -> tuple[Decimal, ...]:
    return spent.pure, spent.gaussian, spent.rho, spent.approx_epsilon, spent.delta
