"""What can be written to a ledger: each method appends entries and moves the sums, in one transaction.

Every method checks first and writes afterwards, so a refusal that the caller catches leaves the transaction
as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from comity.errors import BadInput, BudgetExceeded, Malformed, Refused
from comity.privacy.accounting import convert
from comity.privacy.chain import Row, is_head
from comity.privacy.ledger_account import Balance, Grant, grant_text
from comity.privacy.ledger_replay import ENDED
from comity.privacy.ledger_rows import Rows, line, number, row
from comity.privacy.ledger_shortfall import shortfall
from comity.privacy.loss import Approx, Loss, Pure, parse_loss
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of noise that a run may make: number `index` of a release, at a loss in the study's unit."""

    release: str
    index: int
    loss: Loss
    mechanism: str
    sensitivity: str | float


class Transaction:
    """The open transaction of one ledger. `connection` is for tables of others that must commit with it.

    Rows of other tables in the same file belong to `owner`, since simulated ledgers share a database.
    """

    def __init__(self, connection: sqlite3.Connection, *, owner: int, where: str, lost: str) -> None:
        self.connection = connection
        self.owner = str(owner)
        self.thawed = False
        self._rows = Rows(connection, owner, where)
        self._where = where
        self._lost = lost
        self._permits: list[Permit] = []
        self._over = False

    # Datasets and grants

    def found(self, *, nonce: str, dataset: str, grant: Grant | None, unit: Unit, neighbours: Neighbours) -> None:
        """The first entry of a new ledger."""
        self._rows.found(nonce)
        self._open_account("create", dataset, grant, unit, neighbours, note=nonce)

    @property
    def is_founded(self) -> bool:
        return self._rows.is_founded()

    def add_dataset(self, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours) -> None:
        """A further dataset with a budget of its own; the losses of people who are in both add up unseen."""
        if dataset in self._rows.datasets():
            raise BadInput(f"{self._where}: there is a dataset {dataset} already: grant more instead", code="exists")
        self._open_account("dataset", dataset, grant, unit, neighbours, note="")

    def grant_more(self, loss: Grant, why: str, *, dataset: str | None = None) -> None:
        """Raises a dataset's ceiling; the total granted is what its owner promises."""
        self._require_grant(loss)
        name = self._dataset(dataset)
        unit, neighbours, balance = self._rows.account(name)
        raised = balance.raised(loss)
        self._append("grant", [row(name, unit, neighbours, loss=loss.as_text(), note=line("why", why, BadInput))])
        self._rows.settle(name, raised)

    # Runs

    def reserve(
        self,
        *,
        study: str,
        run: str,
        draws: Sequence[Draw],
        unit: Unit,
        neighbours: Neighbours,
        dataset: str | None = None,
    ) -> None:
        """Promises the budget of a run's draws: all of them, or none and `BudgetExceeded`.

        A loss in another unit or relation is converted where one implies the other, else refused. The list of
        draws is fixed with the first call: the same list again changes nothing, another one under the same
        run is refused.
        """
        self._require_thawed()
        name = self._dataset(dataset)
        own_unit, own_neighbours, balance = self._rows.account(name)
        line("study", study)
        line("run", run)
        losses, rows = [], []
        for draw in draws:
            loss = convert(draw.loss, unit, neighbours, own_unit, own_neighbours)
            stated = "" if loss == draw.loss else f"declared {draw.loss.as_text()} for {unit}, {neighbours}"
            losses.append(loss)
            rows.append(
                row(
                    name,
                    own_unit,
                    own_neighbours,
                    mechanism=line("mechanism", draw.mechanism),
                    sensitivity=line("sensitivity", str(draw.sensitivity)),
                    loss=loss.as_text(),
                    study=study,
                    run=run,
                    release=line("release", draw.release),
                    index=number(draw.index),
                    note=stated,
                )
            )
        if len({(draw.release, draw.index) for draw in draws}) < len(draws):
            raise Refused(f"{run}: a reservation names each draw once; one is named twice", code="reserved", key=run)
        if self._rows.run(run) is not None:
            self._require_same(run, name, study, rows)
            return
        if not balance.covers(losses):
            converted = any(loss != draw.loss for loss, draw in zip(losses, draws, strict=True))
            short = shortfall(
                study=study,
                dataset=name,
                where=self._where,
                balance=balance,
                losses=losses,
                converted=converted,
            )
            raise BudgetExceeded(
                short.sentence,
                requested=short.requested,
                remaining=short.remaining,
                difference=short.difference,
                key="privacy.epsilon",
            )
        for loss in losses:
            balance = balance.reserving(loss)
        if rows:
            self._append("reserve", rows)
            self._rows.settle(name, balance)
        else:
            self._append("open", [row(name, own_unit, own_neighbours, study=study, run=run)])
        self._rows.open_run(run, name, study)

    def draw(self, *, run: str, release: str, index: int, step: str) -> Permit:
        """Debits one reserved draw and permits it. What is debited here is never given back."""
        self._require_thawed()
        self._require_open(run)
        line("step", step)
        kinds = self._rows.draw(run, release, number(index))
        if "reserve" not in kinds:
            raise Refused(f"{run}: {release}[{index}] is not among the draws that were reserved", code="unreserved")
        if "draw" in kinds:
            raise Refused(f"{run}: {release}[{index}] was drawn before; its reply is stored", code="drawn")
        dataset, unit, neighbours, mechanism, sensitivity, loss, study = kinds["reserve"]
        balance = self._rows.account(dataset)[2].drawing(parse_loss(loss))
        debit = row(
            dataset,
            unit,
            neighbours,
            mechanism=mechanism,
            sensitivity=sensitivity,
            loss=loss,
            study=study,
            run=run,
            release=release,
            index=index,
            step=step,
        )
        self._append("draw", [debit])
        self._rows.settle(dataset, balance)
        permit = Permit(release, index)
        self._permits.append(permit)
        return permit

    def void(self, run: str) -> None:
        """Gives back what a run never drew, and ends it: its id can't draw again."""
        self._end("void", run)

    def close(self, run: str) -> None:
        """The end of a run: what it never drew is given back, and its id can't draw again."""
        self._end("close", run)

    # Roll-backs

    @property
    def frozen(self) -> str:
        """The head that somebody saw and the chain lacks; empty when the ledger may be used."""
        return self._rows.frozen() or self._lost

    def remember(self, head: str) -> None:
        """Freezes the ledger when its chain lacks `head`, which a peer saw as this ledger's before.

        The caller must know that the owner issued `head`, for instance by its signature: whoever can show any
        head can freeze the ledger, though never make it spend.
        """
        if not is_head(head):
            raise Malformed(f"a head is 64 hexadecimal digits, found {str(head)[:80]!r}", code="head")
        if not self._rows.knows(head):
            self._freeze(head, "peer")

    def write_off(self, loss: Loss | Literal["all"], why: str) -> None:
        """Spends what may have been forgotten, of every dataset, and thaws the ledger. May exceed the grant.

        `loss` is in each dataset's unit and relation. Runs that are open may have been drawn in the part that
        is missing: they end, and what they had reserved counts as spent.
        """
        if not isinstance(loss, Loss) and loss != "all":
            raise BadInput(f"write off a loss or 'all', found {loss!r}", code="write-off")
        line("why", why, BadInput)
        if self._lost and not self._rows.knows(self._lost):
            self._freeze(self._lost, "witness")
        for run in self._rows.open_runs():
            self._end("forfeit", run)
        for name in self._rows.datasets():
            unit, neighbours, balance = self._rows.account(name)
            spent = balance.all_left() if isinstance(loss, str) else loss
            self._append("write-off", [row(name, unit, neighbours, loss=spent.as_text(), note=why)])
            self._rows.settle(name, balance.writing_off(spent))
        self._rows.freeze("")
        self._lost, self.thawed = "", True

    def last(self) -> tuple[int, str]:
        """Number and head of the newest entry."""
        return self._rows.last()

    @property
    def appended(self) -> bool:
        return self._rows.appended

    # The end of the transaction

    def committed(self) -> None:
        self._over = True

    def rolled_back(self) -> None:
        """The debits did not happen, so permits that were not used yet must not draw."""
        self._over = True
        for permit in self._permits:
            with suppress(Refused):
                permit.use()

    # Checks and parts of the above

    def _open_account(
        self, kind: str, dataset: str, grant: Grant | None, unit: Unit, neighbours: Neighbours, note: str
    ) -> None:
        if grant is not None:
            self._require_grant(grant)
        entry = row(line("dataset", dataset), Unit(unit), Neighbours(neighbours), loss=grant_text(grant), note=note)
        self._append(kind, [entry])
        self._rows.open_account(dataset, unit, neighbours, grant)

    def _append(self, kind: str, rows: Sequence[Row]) -> None:
        if self._over:
            raise Refused(f"{self._where}: the transaction is over; begin another", code="ledger")
        self._rows.append(kind, rows)

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

    def _require_open(self, run: str) -> tuple[str, str]:
        found = self._rows.run(line("run", run))
        if found is None:
            raise Refused(f"{self._where}: nothing is reserved for run {run}", code="unreserved", key="run")
        if found[2] != "open":
            raise Refused(f"{self._where}: run {run} is {found[2]}; its id can't draw again", code="closed", key="run")
        return found[0], found[1]

    def _require_same(self, run: str, dataset: str, study: str, rows: list[Row]) -> None:
        if self._require_open(run) != (dataset, study) or self._rows.reserved(run) != rows:
            raise Refused(
                f"{self._where}: run {run} has reserved another list of draws before. A list is fixed when a "
                "run begins: begin a new run",
                code="reserved",
                key="run",
            )

    def _end(self, kind: str, run: str) -> None:
        found = self._rows.run(line("run", run))
        if found is not None and found[2] != "open":
            return
        dataset, study = self._require_open(run)
        unit, neighbours, balance = self._rows.account(dataset)
        change = Balance.drawing if kind == "forfeit" else Balance.releasing
        for loss in self._rows.undrawn(run):
            balance = change(balance, parse_loss(loss))
        self._append(kind, [row(dataset, unit, neighbours, study=study, run=run)])
        self._rows.settle(dataset, balance)
        self._rows.end_run(run, ENDED[kind])

    def _freeze(self, head: str, who: str) -> None:
        self._append("freeze", [row("", "", "", step=who, note=head)])
        self._rows.freeze(head)

    def _require_thawed(self) -> None:
        head = self.frozen
        if head:
            raise Refused(
                f"{self._where} is frozen: head {head[:12]}… was seen of this ledger before, and it is not "
                "in the file, which was rolled back or restored from a backup and may have forgotten "
                "expenses. Put the newest copy back, or write off what may be missing: comity ledger "
                f"write-off {self._where} --all",
                code="frozen",
            )
