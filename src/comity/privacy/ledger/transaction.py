"""What can be written to a ledger: each method appends entries and moves the sums, in one transaction.

Every method checks first and writes afterwards, so a refusal that the caller catches leaves the transaction
as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from comity.errors import BadInput, BudgetExceeded, Malformed, Refused
from comity.privacy.accounting import Spent, convert
from comity.privacy.composition import entered, written_off
from comity.privacy.ledger.account import Balance
from comity.privacy.ledger.chain import Row, is_head
from comity.privacy.ledger.granting import Granting
from comity.privacy.ledger.replay import ENDED
from comity.privacy.ledger.rows import line, number, row
from comity.privacy.ledger.shortfall import shortfall
from comity.privacy.ledger.witness import UNWITNESSED
from comity.privacy.loss import Loss, Pure, parse_loss
from comity.privacy.parallel import WHOLE, Parts
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of noise that a run may make: number `index` of a release, at a loss in the study's unit.

    `part` names the records that it reads, where a unit lies in one of several parts whatever it says: what draws of
    different parts cost together is what the dearest part costs (`comity.privacy.parallel`).
    """

    release: str
    index: int
    loss: Loss
    mechanism: str
    sensitivity: str | float
    part: str = WHOLE


class Transaction(Granting):
    """The open transaction of one ledger: runs, and what somebody saw that the file lacks."""

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

        A loss in another unit, relation or kind is converted where one implies the other, else refused. The list
        of draws is fixed with the first call: the same list again changes nothing, another one under the same
        run is refused. Draws of different parts of the records compose in parallel.
        """
        self.require_thawed()
        name = self._dataset(dataset)
        own_unit, own_neighbours, balance = self._rows.account(name)
        line("study", study)
        line("run", run)
        losses, rows, parts = [], [], Parts()
        for draw in draws:
            loss = convert(draw.loss, unit, neighbours, own_unit, own_neighbours)
            if balance.currency is not None:
                loss = entered(balance.currency, loss, name)
            stated = "" if loss == draw.loss else f"declared {draw.loss.as_text()} for {unit}, {neighbours}"
            losses.append(loss)
            parts.add(draw.part if draw.part == WHOLE else line("part", draw.part), balance.counted(loss))
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
                    step=draw.part,
                    note=stated,
                )
            )
        if len({(draw.release, draw.index) for draw in draws}) < len(draws):
            raise Refused(f"{run}: a reservation names each draw once; one is named twice", code="reserved", key=run)
        if self._rows.run(run) is not None:
            self._require_same(run, name, study, rows)
            return
        if not balance.covers(parts.cost):
            converted = any(loss != draw.loss for loss, draw in zip(losses, draws, strict=True))
            short = shortfall(
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
        balance = balance.reserving(parts.cost)
        if rows:
            self._append("reserve", rows)
            self._rows.settle(name, balance)
        else:
            self._append("open", [row(name, own_unit, own_neighbours, study=study, run=run)])
        self._rows.open_run(run, name, study)

    def draw(self, *, run: str, release: str, index: int, step: str) -> Permit:
        """Debits one reserved draw and permits it. What is debited here is never given back."""
        self.require_thawed()
        self._require_open(run)
        line("step", step)
        kinds = self._rows.draw(run, release, number(index))
        if "reserve" not in kinds:
            raise Refused(f"{run}: {release}[{index}] is not among the draws that were reserved", code="unreserved")
        if "draw" in kinds:
            raise Refused(f"{run}: {release}[{index}] was drawn before; its reply is stored", code="drawn")
        dataset, unit, neighbours, mechanism, sensitivity, loss, study, part = kinds["reserve"]
        balance = self._rows.account(dataset)[2]
        balance = balance.drawing(self._drawn(run, part, balance).add(part, balance.counted(parse_loss(loss))))
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

    def spent_since(self, moment: str, *, now: str, dataset: str | None = None) -> Spent:
        """What was spent of a dataset at this moment (an ISO time in UTC) or later, and what open runs may still spend.

        A run counts whole if any draw of it was made since: never less than what was drawn. It reads all entries, since
        times need not be in order where a clock was set back: what a clock that was behind wrote may have been later
        than it says, and counts. `now` is the time by the clock that asks, which is when a run begins.
        """
        name = self._dataset(dataset)
        balance = self._rows.account(name)[2]
        spent = Spent.zero()
        for run, whole in self._rows.runs_since(name, moment, now).items():
            parts = Parts.of(
                (part, balance.counted(parse_loss(loss)))
                for part, loss, drawn in self._rows.promised(run)
                if drawn or whole
            )
            spent = spent.plus(parts.cost)
        for loss in self._rows.written_off_since(name, moment, now):
            spent = spent.add(balance.counted(parse_loss(loss)))
        return spent

    def void(self, run: str) -> None:
        """Gives back what a run never drew, and ends it: its id can't draw again."""
        self._end("void", run)

    def close(self, run: str) -> None:
        """The end of a run: what it never drew is given back, and its id can't draw again."""
        self._end("close", run)

    def abandon(self, run: str) -> None:
        """As `close`, by the owner of the site, of a run that nobody will end. Ended runs stay as they are."""
        self._end("abandon", run)

    # Roll-backs

    def remember_commit(self, ledger: str, count: int, head: str) -> None:
        """Freezes the ledger when it is the one meant and lacks that commit; heads of others tell it nothing.

        The caller must know that the owner issued the head, for instance by its signature: whoever can show any head
        can freeze the ledger, though never make it spend. A head freezes it once only.
        """
        if not is_head(ledger) or not is_head(head) or isinstance(count, bool) or not isinstance(count, int):
            raise Malformed("a commit is a ledger's id, a number and a head", code="head")
        known = ledger != self._rows.id() or self.knows_commit(count, head) or self._rows.settled(head)
        if not known:
            self._freeze(head, "peer")

    def write_off(self, loss: Loss | Literal["all"], why: str) -> None:
        """Spends what may have been forgotten, of every dataset, and thaws the ledger. May exceed the grant.

        `loss` is in each dataset's unit and relation. A pure ε is counted as a pure loss; an (ε, δ) as the noise that
        it buys (`comity.privacy.composition.written_off`). Runs that are open may have been drawn in the part that is
        missing: they end, and what they had reserved counts as spent.
        """
        if not isinstance(loss, Loss) and loss != "all":
            raise BadInput(f"write off a loss or 'all', found {loss!r}", code="write-off")
        line("why", why, BadInput)
        if self._lost and (self._lost == UNWITNESSED or not self._rows.settled(self._lost)):
            self._freeze(self._lost, "witness")
        for run in self._rows.open_runs():
            self._end("forfeit", run)
        for name in self._rows.datasets():
            unit, neighbours, balance = self._rows.account(name)
            if isinstance(loss, str):
                spent = balance.all_left()
            elif balance.granted is None or balance.currency is None:
                spent = loss
            else:
                spent = written_off(balance.currency, loss, balance.granted)
            self._append("write-off", [row(name, unit, neighbours, loss=spent.as_text(), note=why)])
            self._rows.settle(name, balance.writing_off(spent))
        self._rows.freeze("")
        self._lost, self.thawed = "", True

    # Checks and parts of the above

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
        promised, drawn = Parts(), Parts()
        for part, loss, is_drawn in self._rows.promised(run):
            for parts in (promised, drawn) if is_drawn else (promised,):
                parts.add(part, balance.counted(parse_loss(loss)))
        balance = change(balance, promised.cost.minus(drawn.cost))
        self._append(kind, [row(dataset, unit, neighbours, study=study, run=run)])
        self._rows.settle(dataset, balance)
        self._rows.end_run(run, ENDED[kind])

    def _drawn(self, run: str, part: str, balance: Balance) -> Parts:
        """What a run has drawn of each part so far. A draw that reads all records adds its whole loss, and needs none
        of this."""
        if part == WHOLE:
            return Parts()
        made = ((of, loss) for of, loss, drawn in self._rows.promised(run) if drawn)
        return Parts.of((of, balance.counted(parse_loss(loss))) for of, loss in made)

    def _freeze(self, head: str, who: str) -> None:
        self._append("freeze", [row("", "", "", step=who, note=head)])
        self._rows.freeze(head)
