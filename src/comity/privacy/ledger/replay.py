"""The sums of a ledger, derived again from its entries alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache

from comity.errors import Refused
from comity.privacy.accounting import Spent
from comity.privacy.composition import ceiling, delta_of
from comity.privacy.currency import Currency
from comity.privacy.ledger.account import Balance, parse_currency, parse_grant
from comity.privacy.ledger.chain import FIELDS, Row
from comity.privacy.loss import GDP, LOSSES, ZCDP, Approx, Loss, Pure, at_least, parse_loss
from comity.privacy.parallel import Parts

ENDED = {"close": "closed", "void": "voided", "forfeit": "written off", "abandon": "abandoned"}
"""The state in which each kind of entry leaves a run."""

_AT = {name: place for place, name in enumerate(FIELDS)}
_SEQ, _KIND, _DATASET, _LOSS, _RUN = (_AT[name] for name in ("seq", "kind", "dataset", "loss", "run"))
_RELEASE, _INDEX, _STUDY, _NOTE = (_AT[name] for name in ("release", "index", "study", "note"))
_UNIT, _NEIGHBOURS, _MECHANISM, _SENSITIVITY = (
    _AT[name] for name in ("unit", "neighbours", "mechanism", "sensitivity")
)

_SLACK = 1 + Decimal(2) ** -40
"""How much a stored ceiling may exceed the one computed here: machines differ in the last bits of their functions."""

_loss = lru_cache(maxsize=4096)(parse_loss)


class Replay:
    """The sums, derived again from the entries in order; refuses an entry that the rules do not allow.

    Among them: each reservation fits what was granted before it, and each ceiling follows from the grant.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.frozen = ""
        self.simulated = False
        self.accounts: dict[str, tuple[str, str, Balance]] = {}
        self.runs: dict[str, tuple[str, str, str]] = {}
        # Part and reserved loss of each draw of an open run, and whether it is drawn.
        self._draws: dict[str, dict[tuple[str, int | None], tuple[str, str, bool]]] = {}
        # Accounts of the first format, counted in concentrated DP too.
        self._beside: dict[str, Balance] = {}

    def take(self, row: Row) -> None:
        kind, dataset, text = row[_KIND], str(row[_DATASET]), str(row[_LOSS])
        match kind:
            case "draw":
                self._draw(row)
            case "reserve" | "open":
                self._reserve(row)
            case "close" | "void" | "forfeit" | "abandon":
                self._end(row)
            case "create" | "dataset":
                self._allow(row, dataset not in self.accounts and (kind == "create") == (row[_SEQ] == 1))
                self._open(row)
            case "grant":
                self._grant(row)
            case "currency":
                self._migrate(row)
            case "write-off":
                self.frozen = ""
                self._write_off(row, _loss(text))
            case "freeze":
                self.frozen = str(row[_NOTE])
            case _:
                self._allow(row, False)

    def open_runs(self) -> list[str]:
        return [run for run, (_, _, state) in self.runs.items() if state == "open"]

    def _open(self, row: Row) -> None:
        grant = parse_grant(str(row[_LOSS]))
        currency, most = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), grant)
        opened = Balance.opened(grant, currency, most)
        self._allow(row, _follows(opened))
        self.accounts[str(row[_DATASET])] = (str(row[_UNIT]), str(row[_NEIGHBOURS]), opened)
        if grant is not None and currency is None:
            self._beside[str(row[_DATASET])] = Balance.opened(None)
        if row[_KIND] == "create":
            self.simulated = row[_AT["step"]] == "simulated"

    def _grant(self, row: Row) -> None:
        more = parse_grant(str(row[_LOSS]))
        self._allow(row, more is not None and row[_DATASET] in self.accounts)
        assert more is not None
        unit, neighbours, balance = self.accounts[str(row[_DATASET])]
        if balance.granted is not None:
            total = balance.total(more)
            currency, most = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), total)
            balance_after = balance.raised(more, currency, most)
            same = currency is balance.currency or (balance.is_untouched and balance.currency is not None)
            self._allow(row, same and _follows(balance_after))
            self.accounts[str(row[_DATASET])] = (unit, neighbours, balance_after)

    def _migrate(self, row: Row) -> None:
        name = str(row[_DATASET])
        self._allow(row, name in self._beside)
        after = self.migrated(name)
        stated = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), after.granted)
        self._allow(row, stated[0] is after.currency and parse_grant(str(row[_LOSS])) == after.granted)
        after = Balance(after.granted, *stated, after.spent, after.reserved)
        self._allow(row, _follows(after))
        del self._beside[name]
        unit, neighbours, _ = self.accounts[name]
        self.accounts[name] = (unit, neighbours, after)

    def migrated(self, name: str) -> Balance:
        """An account of the first format in a currency that its losses enter; spent for good where they enter none."""
        _, _, old = self.accounts[name]
        beside, granted, sums = self._beside[name], old.granted, old.committed
        assert granted is not None
        epsilon, delta = granted.epsilon, delta_of(granted)
        if not delta:
            one = Balance.opened(granted, Currency.PURE)
            if self.enters_nothing(name):
                return one.writing_off(Pure(max(epsilon, sums.pure + sums.approx_epsilon)))
            return Balance(granted, one.currency, one.most, _as_pure(old.spent), _as_pure(old.reserved))
        if not sums.delta:
            one = Balance.opened(granted, Currency.CONCENTRATED)
            return Balance(granted, one.currency, one.most, beside.spent, beside.reserved)
        one = Balance.opened(granted, Currency.APPROX)
        if self.enters_nothing(name):
            return one.writing_off(Approx(epsilon, delta))
        return Balance(granted, one.currency, one.most, _as_approx(old.spent), _as_approx(old.reserved))

    def enters_nothing(self, name: str) -> bool:
        """Whether an account of the first format mixed kinds that no currency takes together."""
        _, _, old = self.accounts[name]
        sums, with_delta = old.committed, old.granted is not None and delta_of(old.granted) > 0
        return name in self._beside and bool(sums.rho and sums.delta if with_delta else sums.rho or sums.delta)

    def _draw(self, row: Row) -> None:
        draws, draw = self._draws.get(str(row[_RUN]), {}), (str(row[_RELEASE]), _index(row))
        part, text, drawn = draws.get(draw, ("", "", True))
        self._allow(row, not drawn and text == row[_LOSS] and not self.frozen)
        before = [one for one in draws.values() if one[2]] if part else []
        draws[draw] = (part, text, True)
        self._change(row, Balance.drawing, [*before, (part, text, False)])

    def _reserve(self, row: Row) -> None:
        name = str(row[_RUN])
        run = (str(row[_DATASET]), str(row[_STUDY]), "open")
        known = row[_DATASET] in self.accounts and not self.frozen
        self._allow(row, known and self.runs.setdefault(name, run) == run)
        draws = self._draws.setdefault(name, {})
        if row[_KIND] == "reserve":
            draw = (str(row[_RELEASE]), _index(row))
            self._allow(row, draw not in draws)
            part, text = str(row[_AT["step"]]), str(row[_LOSS])
            before = [(of, loss, True) for of, loss, _ in draws.values()] if part else []
            draws[draw] = (part, text, False)
            self._change(row, Balance.reserving, [*before, (part, text, False)])
            self._allow(row, self.accounts[str(row[_DATASET])][2].covers(Spent.zero()))

    def _end(self, row: Row) -> None:
        name = str(row[_RUN])
        self._allow(row, name in self._draws and self.runs[name][0] == row[_DATASET])
        end = Balance.drawing if row[_KIND] == "forfeit" else Balance.releasing
        self._change(row, end, list(self._draws.pop(name).values()))
        dataset, study, _ = self.runs[name]
        self.runs[name] = (dataset, study, ENDED[str(row[_KIND])])

    def _change(
        self, row: Row, step: Callable[[Balance, Spent], Balance], draws: Sequence[tuple[str, str, bool]]
    ) -> None:
        """Move an account by what `draws` cost beyond those of them that are marked, which were counted before."""
        name = str(row[_DATASET])
        self._allow(row, name in self.accounts)
        unit, neighbours, balance = self.accounts[name]
        self.accounts[name] = (unit, neighbours, step(balance, _beyond(draws, balance.counted)))
        if name in self._beside:
            self._beside[name] = step(self._beside[name], _beyond(draws, _concentrated))

    def _write_off(self, row: Row, loss: Loss) -> None:
        name = str(row[_DATASET])
        self._allow(row, name in self.accounts)
        unit, neighbours, balance = self.accounts[name]
        self.accounts[name] = (unit, neighbours, balance.writing_off(loss))
        if name in self._beside:
            self._beside[name] = self._beside[name].writing_off(_concentrated(loss))

    def _allow(self, row: Row, holds: bool) -> None:
        if not holds:
            raise Refused(
                f"{self._where}: entry {row[_SEQ]} ({row[_KIND]} {row[_RUN]} {row[_RELEASE]}) does not "
                "follow from the entries before it. The file was changed by something other than Comity; "
                "restore the last good copy",
                code="chain",
            )


def _beyond(draws: Sequence[tuple[str, str, bool]], counted: Callable[[Loss], Loss]) -> Spent:
    """What draws cost beyond those that are marked."""
    known, every = Parts(), Parts()
    for part, text, marked in draws:
        loss = counted(_loss(text))
        every.add(part, loss)
        if marked:
            known.add(part, loss)
    return every.cost.minus(known.cost)


def _index(row: Row) -> int | None:
    index = row[_INDEX]
    return index if isinstance(index, int) else None


def _follows(balance: Balance) -> bool:
    """Whether the stored ceiling is no more than what the grant buys."""
    if balance.granted is None or balance.currency is None or balance.most is None:
        return True
    mine = ceiling(balance.currency, balance.granted)
    match balance.most, mine:
        case GDP(square=stored), GDP(square=computed):
            return stored <= computed * _SLACK
        case ZCDP(rho=stored), ZCDP(rho=computed):
            return stored <= computed * _SLACK
        case stored, computed:
            return stored == computed


def _concentrated(loss: Loss) -> Loss:
    """The ρ that a loss is counted as too: ε²/2 for a pure one; an (ε, δ) has none, and decides the currency
    instead."""
    match loss:
        case Pure(epsilon=epsilon) | Approx(epsilon=epsilon):
            return ZCDP(at_least(LOSSES.divide(LOSSES.multiply(epsilon, epsilon), Decimal(2))))
        case _:
            return loss


def _as_pure(spent: Spent) -> Spent:
    return Spent.zero().add(Pure(LOSSES.add(spent.pure, spent.approx_epsilon)))


def _as_approx(spent: Spent) -> Spent:
    return Spent.zero().add(Approx(LOSSES.add(spent.pure, spent.approx_epsilon), spent.delta))
