"""The sums of a ledger, derived again from its entries alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from comity.errors import Refused
from comity.privacy.chain import Entry
from comity.privacy.ledger_account import Balance, parse_grant
from comity.privacy.loss import parse_loss

ENDED = {"close": "closed", "void": "voided", "forfeit": "written off"}
"""The state in which each kind of entry leaves a run."""


class Replay:
    """The sums, derived again from the entries in order; refuses an entry that the rules do not allow."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.frozen = ""
        self.accounts: dict[str, tuple[str, str, Balance]] = {}
        self.runs: dict[str, tuple[str, str, str]] = {}
        # The reserved loss of each draw of a run; None once it is drawn.
        self._draws: dict[str, dict[tuple[str, int | None], str | None]] = {}

    def take(self, entry: Entry) -> None:
        match entry.kind:
            case "create" | "dataset":
                self._allow(entry, entry.dataset not in self.accounts)
                opened = Balance.opened(parse_grant(entry.loss))
                self.accounts[entry.dataset] = (entry.unit, entry.neighbours, opened)
            case "grant":
                more = parse_grant(entry.loss)
                self._allow(entry, more is not None)
                self._change(entry, lambda balance: balance.raised(more) if more else balance)
            case "write-off":
                self.frozen = ""
                self._change(entry, lambda balance: balance.writing_off(parse_loss(entry.loss)))
            case "freeze":
                self.frozen = entry.note
            case "open" | "reserve":
                self._reserve(entry)
            case "draw":
                draws, draw = self._draws.get(entry.run, {}), (entry.release, entry.index)
                self._allow(entry, self._is_open(entry.run) and draws.get(draw) == entry.loss)
                draws[draw] = None
                self._change(entry, lambda balance: balance.drawing(parse_loss(entry.loss)))
            case "close" | "void" | "forfeit":
                self._end(entry)
            case _:
                self._allow(entry, False)

    def _reserve(self, entry: Entry) -> None:
        run = (entry.dataset, entry.study, "open")
        self._allow(entry, self.runs.setdefault(entry.run, run) == run)
        draws = self._draws.setdefault(entry.run, {})
        if entry.kind == "reserve":
            self._allow(entry, (entry.release, entry.index) not in draws)
            draws[entry.release, entry.index] = entry.loss
            self._change(entry, lambda balance: balance.reserving(parse_loss(entry.loss)))

    def _end(self, entry: Entry) -> None:
        self._allow(entry, self._is_open(entry.run))
        end = Balance.drawing if entry.kind == "forfeit" else Balance.releasing
        for text in filter(None, self._draws.pop(entry.run, {}).values()):
            self._change(entry, partial(end, loss=parse_loss(text)))
        dataset, study, _ = self.runs[entry.run]
        self.runs[entry.run] = (dataset, study, ENDED[entry.kind])

    def _is_open(self, run: str) -> bool:
        return run in self.runs and self.runs[run][2] == "open"

    def _change(self, entry: Entry, step: Callable[[Balance], Balance]) -> None:
        self._allow(entry, entry.dataset in self.accounts)
        unit, neighbours, balance = self.accounts[entry.dataset]
        self.accounts[entry.dataset] = (unit, neighbours, step(balance))

    def _allow(self, entry: Entry, holds: bool) -> None:
        if not holds:
            raise Refused(
                f"{self._where}: entry {entry.seq} ({entry.kind} {entry.run} {entry.release}) does not "
                "follow from the entries before it. The file was changed by something other than Comity; "
                "restore the last good copy",
                code="chain",
            )
