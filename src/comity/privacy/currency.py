"""What a grant is counted in: one kind of loss, fixed when the grant is made.

An owner spends a ledger study by study and chooses each study after seeing earlier results. Losses of different kinds
can't be mixed under such choices, so each grant adds up one kind:

    pure          Σε against the ε granted.
    gaussian      Σμ² against the largest μ whose exact curve passes below the (ε, δ) granted.
    concentrated  Σρ against the largest ρ that implies the (ε, δ) granted.
    approx        Σε and Σδ against the ε and δ granted.

In each of them the sum holds for every adaptive choice (proof.md, 1 to 4). A loss converts as follows, rounded up:

    loss          pure     gaussian             concentrated     approx
    ε             ε        μ² of ε (proof, 3)   ε²/2             (ε, 0)
    μ             -        μ²                   μ²/2 + a hair    -
    ρ             -        -                    ρ                -
    (ε, δ)        -        -                    -                (ε, δ)

Ceilings are rounded down.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import StrEnum

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
from comity.privacy.loss import GDP, LOSSES, MIN_FIGURE, ZCDP, Approx, Loss, Pure, at_least

Grant = Pure | Approx

_ABOVE = Context(prec=40, rounding=ROUND_CEILING)
_DOWN = Context(prec=60, rounding=ROUND_FLOOR)


class Currency(StrEnum):
    PURE = "pure"
    GAUSSIAN = "gaussian"
    CONCENTRATED = "concentrated"
    APPROX = "approx"

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def adds_squares(self) -> bool:
        """Whether losses add as squares: two losses of ε cost less than one of 2ε."""
        return self in (Currency.GAUSSIAN, Currency.CONCENTRATED)


_LABELS = {
    Currency.PURE: "pure eps",
    Currency.GAUSSIAN: "Gaussian DP (mu)",
    Currency.CONCENTRATED: "concentrated DP (rho)",
    Currency.APPROX: "(eps, delta)",
}


def default_currency(grant: Grant) -> Currency:
    """The currency of a grant that names none."""
    return Currency.GAUSSIAN if delta_of(grant) else Currency.PURE


def delta_of(grant: Grant) -> Decimal:
    return grant.delta if isinstance(grant, Approx) else Decimal(0)


def check_currency(currency: Currency, grant: Grant, where: str) -> None:
    """Refuses a pure grant with a δ, and a Gaussian or concentrated one without."""
    if (currency is Currency.PURE) == bool(delta_of(grant)) and currency is not Currency.APPROX:
        needed = "no delta" if currency is Currency.PURE else "a delta above 0"
        raise BadInput(
            f"{where}: a grant counted in {currency.label} has {needed}, found {grant}: "
            "change --delta, or choose another --currency",
            code="currency",
            key="currency",
        )


def ceiling_of(currency: Currency, grant: Grant) -> Loss:
    """The most that may be spent of a grant, in its currency, rounded down. A δ without an ε buys nothing."""
    match currency:
        case Currency.PURE:
            return Pure(grant.epsilon)
        case Currency.APPROX:
            return Approx(grant.epsilon, delta_of(grant))
        case Currency.GAUSSIAN:
            return gaussian_budget(grant) if grant.epsilon else GDP(0)
        case Currency.CONCENTRATED:
            return budget_to_rho(grant) if grant.epsilon else ZCDP(0)


def convert_to(currency: Currency, loss: Loss) -> Loss | None:
    """A release's loss in this currency, rounded up; None where the loss implies nothing in it."""
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


def require_convertible(currency: Currency, loss: Loss, dataset: str) -> Loss:
    """`convert_to`, with a refusal that names the remedy."""
    converted = convert_to(currency, loss)
    if converted is None:
        remedy, currency_of_loss = _REMEDIES[type(loss)]
        raise Refused(
            f"refused: {dataset} is counted in {currency.label}, and a loss of {loss} can't be converted to it. "
            f"{remedy}, or grant a separate budget: comity ledger init NEW --dataset {dataset} "
            f"--currency {currency_of_loss} ...",
            code="currency",
            key="privacy",
        )
    return converted


_REMEDIES: dict[type, tuple[str, Currency]] = {
    GDP: ("Choose noise with a pure loss (privacy.delta = 0)", Currency.GAUSSIAN),
    ZCDP: ("Choose Gaussian noise, or noise with a pure loss", Currency.CONCENTRATED),
    Approx: ("Choose noise with a pure or a Gaussian loss", Currency.APPROX),
}


def is_within(spent: Spent, ceiling: Loss) -> bool:
    """Whether sums of converted losses stay within the ceiling of their currency."""
    return all(used <= limit for used, limit in zip(_figures(spent), _figures(Spent.zero().add(ceiling)), strict=True))


def remaining_loss(spent: Spent, ceiling: Loss) -> Loss:
    """What may still be spent under a ceiling, in its currency."""
    match ceiling:
        case Pure(epsilon=epsilon):
            return Pure(_subtract(epsilon, spent.pure))
        case GDP(square=square):
            return GDP.squared(_subtract(square, spent.gaussian))
        case ZCDP(rho=rho):
            return ZCDP(_subtract(rho, spent.rho))
        case Approx(epsilon=epsilon, delta=delta):
            return Approx(_subtract(epsilon, spent.approx_epsilon), _subtract(delta, spent.delta))


def remaining_epsilon(spent: Spent, ceiling: Loss, grant: Grant) -> Decimal:
    """The ε that a study at the granted δ could still ask for, rounded down: the whole grant while nothing is spent."""
    left = remaining_loss(spent, ceiling)
    if left == ceiling:
        return grant.epsilon
    match left:
        case Pure(epsilon=epsilon) | Approx(epsilon=epsilon):
            return epsilon
        case GDP(square=square):
            return _round_down(gdp_epsilon(float(square), float(delta_of(grant))), grant) if square else Decimal(0)
        case ZCDP(rho=rho):
            return _round_down(zcdp_epsilon(float(rho), float(delta_of(grant))), grant) if rho else Decimal(0)


def loss_to_write_off(currency: Currency, loss: Loss, grant: Grant) -> Loss:
    """What an owner writes off, in the currency, rounded up.

    A pure ε counts as a pure loss: that is the most that a release of ε can cost, whatever noise it had. An (ε, δ) with
    δ > 0 implies nothing in Gaussian or concentrated DP. There it means noise of that kind that was calibrated to
    (ε, δ), and costs what that noise costs. A δ below the granted one counts as the granted one, at which ε buys more:
    an owner who underestimates the δ of the missing runs errs upwards. A loss that does not convert counts as the
    whole grant, or as its ε where that is larger, so a later grant does not make room for it.
    """
    calibrated = currency in (Currency.GAUSSIAN, Currency.CONCENTRATED)
    if isinstance(loss, Approx) and calibrated and loss.delta and loss.epsilon:
        at = Approx(loss.epsilon, max(loss.delta, delta_of(grant)))
        # The ceiling is rounded down; a loss must be no less than what was bought.
        return _enlarge(ceiling_of(currency, at))
    converted = convert_to(currency, loss)
    if converted is not None:
        return converted
    if isinstance(loss, Approx) and currency is Currency.PURE:
        return Pure(max(loss.epsilon, grant.epsilon))
    return ceiling_of(currency, grant)


def _enlarge(loss: Loss) -> Loss:
    more = Decimal(1) + Decimal(2) ** -30
    match loss:
        case GDP(square=square):
            return GDP.squared(at_least(_ABOVE.multiply(square, more)))
        case ZCDP(rho=rho):
            return ZCDP(at_least(_ABOVE.multiply(rho, more)))
        case _:
            return loss


def _round_down(epsilon: float, grant: Grant) -> Decimal:
    # Conversions round up by less than this, and an ε that is said to be left must fit.
    return min(grant.epsilon, Decimal(epsilon * (1 - 2.0**-28)))


def _subtract(ceiling: Decimal, spent: Decimal) -> Decimal:
    difference = _DOWN.subtract(ceiling, spent)
    return difference if difference >= MIN_FIGURE else Decimal(0)


def _figures(spent: Spent) -> tuple[Decimal, ...]:
    return spent.pure, spent.gaussian, spent.rho, spent.approx_epsilon, spent.delta
