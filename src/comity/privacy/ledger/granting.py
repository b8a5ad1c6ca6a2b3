"""Datasets of a ledger and what their owner grants for them."""

from __future__ import annotations

from comity.errors import BadInput
from comity.privacy.composition import Grant, check_currency, usual
from comity.privacy.currency import Currency
from comity.privacy.ledger.account import Balance, grant_text
from comity.privacy.ledger.open_commit import OpenCommit
from comity.privacy.ledger.rows import grant_marks, line, row
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit


class Granting(OpenCommit):
    def found(
        self,
        *,
        nonce: str,
        dataset: str,
        grant: Grant | None,
        unit: Unit,
        neighbours: Neighbours,
        currency: Currency | None = None,
        simulated: bool = False,
    ) -> None:
        """The first entry of a new ledger."""
        self._rows.found(nonce, simulated=simulated)
        step = "simulated" if simulated else ""
        self._open_account("create", dataset, grant, currency, unit, neighbours, note=nonce, step=step)

    @property
    def is_founded(self) -> bool:
        return self._rows.is_founded()

    def add_dataset(
        self, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours, currency: Currency | None = None
    ) -> None:
        """A further dataset with a budget of its own; the losses of people who are in both add up unseen."""
        if dataset in self._rows.datasets():
            raise BadInput(f"{self._where}: there is a dataset {dataset} already: grant more instead", code="exists")
        self._open_account("dataset", dataset, grant, currency, unit, neighbours, note="")

    def grant_more(self, loss: Grant, why: str, *, dataset: str | None = None) -> None:
        """Raises a dataset's ceiling; the total granted is what its owner promises.

        The currency stays, except that a pure grant of which nothing was used may still take a δ, as a new grant would.
        """
        self._require_grant(loss)
        name = self._dataset(dataset)
        unit, neighbours, balance = self._rows.account(name)
        line("why", why, BadInput)
        if balance.granted is not None:
            total, currency = balance.total(loss), balance.currency
            if balance.is_untouched and currency is Currency.PURE:
                currency = usual(total)
            assert currency is not None
            check_currency(currency, total, f"{self._where}: {name}")
            balance = balance.raised(loss, currency)
        mechanism, sensitivity = grant_marks(balance)
        entry = row(name, unit, neighbours, mechanism=mechanism, sensitivity=sensitivity, loss=loss.as_text(), note=why)
        self._append("grant", [entry])
        self._rows.settle(name, balance)

    def _open_account(
        self,
        kind: str,
        dataset: str,
        grant: Grant | None,
        currency: Currency | None,
        unit: Unit,
        neighbours: Neighbours,
        *,
        note: str,
        step: str = "",
    ) -> None:
        line("dataset", dataset, BadInput)
        if grant is None:
            balance = Balance.opened(None)
        else:
            self._require_grant(grant)
            chosen = usual(grant) if currency is None else Currency(currency)
            check_currency(chosen, grant, f"{self._where}: {dataset}")
            balance = Balance.opened(grant, chosen)
        mechanism, sensitivity = grant_marks(balance)
        entry = row(
            dataset,
            Unit(unit),
            Neighbours(neighbours),
            mechanism=mechanism,
            sensitivity=sensitivity,
            loss=grant_text(grant),
            step=step,
            note=note,
        )
        self._append(kind, [entry])
        self._rows.open_account(dataset, unit, neighbours, balance)

    def _require_grant(self, grant: Grant) -> None:
        if not isinstance(grant, Pure | Approx):
            raise BadInput(
                f"{self._where}: a grant is an epsilon, with a delta or without; found {grant}", code="grant"
            )

    def _dataset(self, dataset: str | None) -> str:
        """The dataset that is meant; the only one when none is named."""
        if dataset is not None:
            return dataset
        names = self._rows.datasets()
        if len(names) != 1:
            raise BadInput(f"{self._where} holds the datasets {', '.join(names)}: name one of them", code="dataset")
        return names[0]
