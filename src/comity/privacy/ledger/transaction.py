"""What can be written to a ledger: each method appends entries and moves the sums, in one transaction.

Every method checks first and writes afterwards, so a refusal that the caller catches leaves the transaction unchanged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from comity.errors import BadInput, BudgetExceeded, Malformed, Refused
from comity.privacy.accounting import Spent, convert
from comity.privacy.currency import (
    Currency,
    Grant,
    check_currency,
    default_currency,
    loss_to_write_off,
    require_convertible,
)
from comity.privacy.ledger.balance import Balance, describe_shortfall, grant_text
from comity.privacy.ledger.chain import Commit, CommitHead, Row, commit_head, is_head, notes_digest
from comity.privacy.ledger.draw import Draw
from comity.privacy.ledger.tables import (
    Rows,
    append_commit,
    currency_texts,
    find_commit,
    make_row,
    require_index,
    require_line,
    state_digest_of,
)
from comity.privacy.ledger.verification import RUN_ENDS
from comity.privacy.ledger.witness import UNWITNESSED, describe_freeze
from comity.privacy.loss import Approx, Loss, Pure, parse_loss
from comity.privacy.parallel import WHOLE, Parts
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit


class Transaction:
    """The open transaction of one ledger.

    `connection` serves callers whose tables must commit together with the ledger. They mark their rows with `owner`,
    since simulated ledgers share a database.
    """

    def __init__(self, connection: sqlite3.Connection, *, owner: int, where: str, missing: str) -> None:
        self.connection = connection
        self.owner = str(owner)
        self.unfrozen = False
        self._rows = Rows(connection, owner, where)
        self._commit = _PendingCommit(connection, owner, where, self._rows)
        self._where = where
        self._missing = missing
        self._permits: list[Permit] = []
        self._is_over = False

    # Datasets and grants

    def create(
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
        self._rows.create(nonce, simulated=simulated)
        step = "simulated" if simulated else ""
        self._open_account("create", dataset, grant, currency, unit, neighbours, note=nonce, step=step)

    @property
    def is_created(self) -> bool:
        return self._rows.is_created()

    def add_dataset(
        self, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours, currency: Currency | None = None
    ) -> None:
        """Adds a dataset with a separate budget. Nothing adds up the losses of people who are in several datasets."""
        if dataset in self._rows.datasets():
            raise BadInput(f"{self._where}: there is a dataset {dataset} already: grant more instead", code="exists")
        self._open_account("dataset", dataset, grant, currency, unit, neighbours, note="")

    def grant_more(self, loss: Grant, why: str, *, dataset: str | None = None) -> None:
        """Raises a dataset's ceiling; the total granted is what its owner promises.

        The currency stays, except that an unused pure grant may still take a δ, as a new grant could.
        """
        self._require_grant(loss)
        name = self._dataset(dataset)
        unit, neighbours, balance = self._rows.account(name)
        require_line("why", why, BadInput)
        if balance.granted is not None:
            total, currency = balance.total_with(loss), balance.currency
            if balance.is_untouched and currency is Currency.PURE:
                currency = default_currency(total)
            assert currency is not None
            check_currency(currency, total, f"{self._where}: {name}")
            balance = balance.grant_more(loss, currency)
        currency_text, ceiling = currency_texts(balance)
        entry = make_row(
            name, unit, neighbours, mechanism=currency_text, sensitivity=ceiling, loss=loss.as_text(), note=why
        )
        self._append("grant", [entry])
        self._rows.update_account(name, balance)

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
        """Reserves the budget of a run's draws: all of them, or none and `BudgetExceeded`.

        A loss in another unit, relation or kind is converted where one implies the other, else refused. The first call
        fixes the list of draws: the same list again changes nothing, another list under the same run is refused. Draws
        of different parts of the records compose in parallel.
        """
        self.require_unfrozen()
        name = self._dataset(dataset)
        own_unit, own_neighbours, balance = self._rows.account(name)
        require_line("study", study)
        require_line("run", run)
        losses, rows, parts = [], [], Parts()
        for draw in draws:
            loss = convert(draw.loss, unit, neighbours, own_unit, own_neighbours)
            if balance.currency is not None:
                loss = require_convertible(balance.currency, loss, name)
            declared = "" if loss == draw.loss else f"declared {draw.loss.as_text()} for {unit}, {neighbours}"
            losses.append(loss)
            parts.add(draw.part if draw.part == WHOLE else require_line("part", draw.part), balance.in_currency(loss))
            rows.append(
                make_row(
                    name,
                    own_unit,
                    own_neighbours,
                    mechanism=require_line("mechanism", draw.mechanism),
                    sensitivity=require_line("sensitivity", str(draw.sensitivity)),
                    loss=loss.as_text(),
                    study=study,
                    run=run,
                    release=require_line("release", draw.release),
                    index=require_index(draw.index),
                    step=draw.part,
                    note=declared,
                )
            )
        if len({(draw.release, draw.index) for draw in draws}) < len(draws):
            raise Refused(f"{run}: a reservation names each draw once; one is named twice", code="reserved", key=run)
        if self._rows.run(run) is not None:
            self._require_same(run, name, study, rows)
            return
        if not balance.covers(parts.cost):
            converted = any(loss != draw.loss for loss, draw in zip(losses, draws, strict=True))
            short = describe_shortfall(
                study=study,
                dataset=name,
                where=self._where,
                balance=balance,
                wanted=parts.cost,
                converted=converted,
                pure=all(isinstance(draw.loss, Pure) for draw in draws),
            )
            raise BudgetExceeded(
                short.sentence,
                requested=short.requested,
                remaining=short.remaining,
                difference=short.difference,
                key="privacy.epsilon",
            )
        balance = balance.reserve(parts.cost)
        if rows:
            self._append("reserve", rows)
            self._rows.update_account(name, balance)
        else:
            self._append("open", [make_row(name, own_unit, own_neighbours, study=study, run=run)])
        self._rows.open_run(run, name, study)

    def draw(self, *, run: str, release: str, index: int, step: str) -> Permit:
        """Debits one reserved draw and permits it. A debit is never given back."""
        self.require_unfrozen()
        self._require_open(run)
        require_line("step", step)
        kinds = self._rows.entries_of_draw(run, release, require_index(index))
        if "reserve" not in kinds:
            raise Refused(f"{run}: {release}[{index}] is not among the draws that were reserved", code="unreserved")
        if "draw" in kinds:
            raise Refused(f"{run}: {release}[{index}] was drawn before; its reply is stored", code="drawn")
        dataset, unit, neighbours, mechanism, sensitivity, loss, study, part = kinds["reserve"]
        balance = self._rows.account(dataset)[2]
        balance = balance.draw(self._drawn_parts(run, part, balance).add(part, balance.in_currency(parse_loss(loss))))
        debit = make_row(
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
        self._rows.update_account(dataset, balance)
        permit = Permit(release, index)
        self._permits.append(permit)
        return permit

    def spent_since(self, moment: str, *, now: str, dataset: str | None = None) -> Spent:
        """What was spent of a dataset at this moment (an ISO time in UTC) or later, and what open runs may still spend.

        All draws of a run count if any of them was made since: never less than what was drawn. Entries that a clock
        wrote while it was behind may be later than they say, and count; so this reads all entries, whose times need not
        be in order. `now` is the time by the clock that asks.
        """
        name = self._dataset(dataset)
        balance = self._rows.account(name)[2]
        spent = Spent.zero()
        for run, whole in self._rows.runs_since(name, moment, now).items():
            parts = Parts.of(
                (part, balance.in_currency(parse_loss(loss)))
                for part, loss, drawn in self._rows.reserved_draws(run)
                if drawn or whole
            )
            spent = spent.plus(parts.cost)
        for loss in self._rows.write_offs_since(name, moment, now):
            spent = spent.add(balance.in_currency(parse_loss(loss)))
        return spent

    def void(self, run: str) -> None:
        """As `close`, recorded as void."""
        self._end("void", run)

    def close(self, run: str) -> None:
        """Ends a run: gives back what it never drew; its id can't draw again."""
        self._end("close", run)

    def abandon(self, run: str) -> None:
        """Ends a run that its coordinator never ended, for the site's owner. Runs that have ended stay as they are."""
        self._end("abandon", run)

    # Roll-backs

    @property
    def frozen(self) -> str:
        """The head that was seen outside and is missing from the file; empty when the ledger may be used."""
        return self._rows.frozen() or self._missing

    def require_unfrozen(self) -> None:
        """Refuses to reserve, draw or answer while a head is missing."""
        missing = self.frozen
        if missing:
            raise Refused(describe_freeze(self._where, missing), code="frozen")

    def remember_commit(self, ledger: str, count: int, head: str) -> None:
        """Freezes the ledger if it has the id `ledger` and lacks that commit; commits of other ledgers change nothing.

        The caller must know that the owner issued the head, for instance by its signature: anyone who can show any head
        can freeze the ledger, though never make it spend. Each head freezes it only once.
        """
        if not is_head(ledger) or not is_head(head) or isinstance(count, bool) or not isinstance(count, int):
            raise Malformed("a commit is a ledger's id, a number and a head", code="head")
        known = ledger != self._rows.id() or self.knows_commit(count, head) or self._rows.has_frozen(head)
        if not known:
            self._freeze(head, "peer")

    def knows_commit(self, count: int, head: str) -> bool:
        return find_commit(self.connection, int(self.owner), count) == head

    def write_off(self, loss: Loss | Literal["all"], why: str) -> None:
        """Spends what may have been forgotten, of every dataset, and unfreezes the ledger. May exceed the grant.

        `loss` is in each dataset's unit and relation. A pure ε is counted as a pure loss; an (ε, δ) as the noise that
        it buys (`comity.privacy.currency.loss_to_write_off`). Open runs may have drawn in the missing part: they end,
        and what they had reserved counts as spent.
        """
        if not isinstance(loss, Loss) and loss != "all":
            raise BadInput(f"write off a loss or 'all', found {loss!r}", code="write-off")
        require_line("why", why, BadInput)
        if self._missing and (self._missing == UNWITNESSED or not self._rows.has_frozen(self._missing)):
            self._freeze(self._missing, "witness")
        for run in self._rows.open_runs():
            self._end("forfeit", run)
        for name in self._rows.datasets():
            unit, neighbours, balance = self._rows.account(name)
            if isinstance(loss, str):
                spent = balance.remainder()
            elif balance.granted is None or balance.currency is None:
                spent = loss
            else:
                spent = loss_to_write_off(balance.currency, loss, balance.granted)
            self._append("write-off", [make_row(name, unit, neighbours, loss=spent.as_text(), note=why)])
            self._rows.update_account(name, balance.write_off(spent))
        self._rows.freeze("")
        self._missing, self.unfrozen = "", True

    # The commit

    def note(self, digest: bytes) -> None:
        """Makes the head of this commit cover what the caller wrote to its tables."""
        if not isinstance(digest, bytes) or not 0 < len(digest) <= 64:
            raise Malformed("a note is a digest of 1 to 64 bytes", code="ledger")
        self._commit.note(digest)

    def commit_head(self) -> CommitHead:
        """The head that this commit will have. Afterwards nothing can be noted or appended in this transaction.

        A transaction that asked for its head commits under it, even if nothing else changed.
        """
        return self._commit.head()

    def finish(self) -> CommitHead | None:
        """Writes the row of this commit if anything changed. The last call before the database commits."""
        return None if self._is_over else self._commit.write()

    def mark_committed(self) -> None:
        self._is_over = True

    def mark_rolled_back(self) -> None:
        """The debits did not happen, so permits that are still unused must not draw."""
        self._is_over = True
        for permit in self._permits:
            with suppress(Refused):
                permit.use()

    # Helpers

    def _append(self, kind: str, rows: Sequence[Row]) -> None:
        if self._is_over:
            raise Refused(f"{self._where}: the transaction is over; begin another", code="ledger")
        self._commit.require_open()
        self._rows.append(kind, rows)

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
        require_line("dataset", dataset, BadInput)
        if grant is None:
            balance = Balance.open(None)
        else:
            self._require_grant(grant)
            chosen = default_currency(grant) if currency is None else Currency(currency)
            check_currency(chosen, grant, f"{self._where}: {dataset}")
            balance = Balance.open(grant, chosen)
        currency_text, ceiling = currency_texts(balance)
        entry = make_row(
            dataset,
            Unit(unit),
            Neighbours(neighbours),
            mechanism=currency_text,
            sensitivity=ceiling,
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
        """The named dataset, or the only one."""
        if dataset is not None:
            return dataset
        names = self._rows.datasets()
        if len(names) != 1:
            raise BadInput(f"{self._where} holds the datasets {', '.join(names)}: name one of them", code="dataset")
        return names[0]

    def _require_open(self, run: str) -> tuple[str, str]:
        found = self._rows.run(require_line("run", run))
        if found is None:
            raise Refused(f"{self._where}: nothing is reserved for run {run}", code="unreserved", key="run")
        if found[2] != "open":
            raise Refused(f"{self._where}: run {run} is {found[2]}; its id can't draw again", code="closed", key="run")
        return found[0], found[1]

    def _require_same(self, run: str, dataset: str, study: str, rows: list[Row]) -> None:
        if self._require_open(run) != (dataset, study) or self._rows.reservation(run) != rows:
            raise Refused(
                f"{self._where}: run {run} has reserved another list of draws before. A list is fixed when a "
                "run begins: begin a new run",
                code="reserved",
                key="run",
            )

    def _end(self, kind: str, run: str) -> None:
        found = self._rows.run(require_line("run", run))
        if found is not None and found[2] != "open":
            return
        dataset, study = self._require_open(run)
        unit, neighbours, balance = self._rows.account(dataset)
        change = Balance.draw if kind == "forfeit" else Balance.release
        reserved, drawn = Parts(), Parts()
        for part, loss, is_drawn in self._rows.reserved_draws(run):
            for parts in (reserved, drawn) if is_drawn else (reserved,):
                parts.add(part, balance.in_currency(parse_loss(loss)))
        balance = change(balance, reserved.cost.minus(drawn.cost))
        self._append(kind, [make_row(dataset, unit, neighbours, study=study, run=run)])
        self._rows.update_account(dataset, balance)
        self._rows.end_run(run, RUN_ENDS[kind])

    def _drawn_parts(self, run: str, part: str, balance: Balance) -> Parts:
        """What a run has drawn of each part so far; not needed for a draw that reads all records, which adds its whole
        loss."""
        if part == WHOLE:
            return Parts()
        drawn = ((of, loss) for of, loss, is_drawn in self._rows.reserved_draws(run) if is_drawn)
        return Parts.of((of, balance.in_currency(parse_loss(loss))) for of, loss in drawn)

    def _freeze(self, head: str, seen_by: str) -> None:
        self._append("freeze", [make_row("", "", "", step=seen_by, note=head)])
        self._rows.freeze(head)


class _PendingCommit:
    """The commit of an open transaction: notes are added, its head is asked for, then its row is written."""

    def __init__(self, connection: sqlite3.Connection, owner: int, where: str, rows: Rows) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self._rows = rows
        self._changes = connection.total_changes
        self._notes: list[bytes] = []
        self._sealed: Commit | None = None

    def note(self, digest: bytes) -> None:
        self.require_open()
        self._notes.append(digest)

    def require_open(self) -> None:
        if self._sealed is not None:
            raise Refused(
                f"{self._where}: the head of this commit was given out, so nothing can be added to it: "
                "ask for the head last",
                code="ledger",
            )

    def head(self) -> CommitHead:
        sealed = self._seal()
        return CommitHead(self._rows.id(), sealed.count, sealed.head.hex())

    def write(self) -> CommitHead | None:
        if self._connection.total_changes == self._changes and not self._notes and self._sealed is None:
            return None
        head = self.head()
        append_commit(self._connection, self._owner, self._seal())
        return head

    def _seal(self) -> Commit:
        if self._sealed is None:
            (count, before), (seq, entry_head) = self._rows.last_commit_and_entry()
            state = state_digest_of(self._connection, self._owner, self._rows.ledger())
            notes = notes_digest(self._notes)
            head = commit_head(before, count + 1, entry_head, state, notes)
            self._sealed = Commit(count + 1, seq, state, notes, head)
        return self._sealed
