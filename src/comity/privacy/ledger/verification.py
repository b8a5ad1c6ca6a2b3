"""Whether a ledger follows its rules: its sums derived again from its entries, for a file, an export and a migration.

A file      is checked in full when it is opened; of a long one, the last `FULL_CHECK_ENTRIES` entries are. Every
            transaction also compares the sums with the state that the last commit recorded, so edited sums are found
            before they are spent from.
An export   is one JSON document that anyone can check without the ledger. Unsigned, it shows only that its entries fit
            together: anyone who can write a file can leave entries out, change a grant and compute new heads. Signed,
            it shows that these were all entries at the stated time, as the holder of the key says: none was removed,
            changed or cut off at the end. It does not show later entries, and an owner who rewrites the whole ledger
            signs the new one.
Migration   A grant of the first format was spent on losses of several kinds, and no sum of these holds. Each account
            gets a currency, by an entry after the old ones. A pure grant stays as it is. A grant with a δ is counted
            in concentrated DP: what was spent there is Σρ + Σε²/2, which holds for every adaptive choice. An account
            that spent (ε, δ) losses is counted in those; one that mixed them with ρ has nothing left, and its open
            runs end. The new currency never counts less than what was spent, so an account may have nothing left.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TextIO

from comity.errors import BadInput, Malformed, Refused
from comity.privacy.accounting import Spent
from comity.privacy.currency import Currency, ceiling_of, delta_of
from comity.privacy.ledger.balance import Balance, grant_text, parse_currency, parse_grant
from comity.privacy.ledger.chain import FIELDS, Commit, CommitHead, Row, commit_head, follow_entries, parse_entry
from comity.privacy.ledger.tables import (
    Rows,
    append_commit,
    commits_after,
    currency_texts,
    damaged,
    entry_rows,
    find_commit,
    last_commits,
    make_row,
    state_digest,
    stored_accounts,
    translate_sqlite_errors,
    upgrade_tables,
)
from comity.privacy.loss import GDP, LOSSES, ZCDP, Approx, Loss, Pure, at_least, parse_loss
from comity.privacy.parallel import Parts
from comity.privacy.unit import Neighbours, Unit

FULL_CHECK_ENTRIES = 20_000

_EXPORT_FORMATS = ("comity-ledger-1", "comity-ledger-2")
_MIGRATION_NOTE = "format 2: one currency per grant"

RUN_ENDS = {"close": "closed", "void": "voided", "forfeit": "written off", "abandon": "abandoned"}
"""The state of a run after each kind of entry that ends it."""

_AT = {name: place for place, name in enumerate(FIELDS)}
_SEQ, _KIND, _DATASET, _LOSS, _RUN = (_AT[name] for name in ("seq", "kind", "dataset", "loss", "run"))
_RELEASE, _INDEX, _STUDY, _NOTE = (_AT[name] for name in ("release", "index", "study", "note"))
_UNIT, _NEIGHBOURS, _MECHANISM, _SENSITIVITY = (
    _AT[name] for name in ("unit", "neighbours", "mechanism", "sensitivity")
)

_SLACK = 1 + Decimal(2) ** -40
"""How much a stored ceiling may exceed the one computed here: the last bits of functions differ between machines."""

_loss = lru_cache(maxsize=4096)(parse_loss)


class Replay:
    """Derives the sums from the entries in order, and refuses an entry that the rules do not allow.

    Among the rules: each reservation fits what was granted before it, and each ceiling follows from the grant.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.frozen = ""
        self.simulated = False
        self.accounts: dict[str, tuple[str, str, Balance]] = {}
        self.runs: dict[str, tuple[str, str, str]] = {}
        # By open run and draw: part, reserved loss, and whether it was drawn.
        self._draws: dict[str, dict[tuple[str, int | None], tuple[str, str, bool]]] = {}
        # Accounts of the first format, also counted in concentrated DP.
        self._concentrated: dict[str, Balance] = {}

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
                self._require(row, dataset not in self.accounts and (kind == "create") == (row[_SEQ] == 1))
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
                self._require(row, False)

    def open_runs(self) -> list[str]:
        return [run for run, (_, _, state) in self.runs.items() if state == "open"]

    def _open(self, row: Row) -> None:
        grant = parse_grant(str(row[_LOSS]))
        currency, ceiling = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), grant)
        opened = Balance.open(grant, currency, ceiling)
        self._require(row, _ceiling_follows(opened))
        self.accounts[str(row[_DATASET])] = (str(row[_UNIT]), str(row[_NEIGHBOURS]), opened)
        if grant is not None and currency is None:
            self._concentrated[str(row[_DATASET])] = Balance.open(None)
        if row[_KIND] == "create":
            self.simulated = row[_AT["step"]] == "simulated"

    def _grant(self, row: Row) -> None:
        more = parse_grant(str(row[_LOSS]))
        self._require(row, more is not None and row[_DATASET] in self.accounts)
        assert more is not None
        unit, neighbours, balance = self.accounts[str(row[_DATASET])]
        if balance.granted is not None:
            total = balance.total_with(more)
            currency, ceiling = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), total)
            balance_after = balance.grant_more(more, currency, ceiling)
            same = currency is balance.currency or (balance.is_untouched and balance.currency is not None)
            self._require(row, same and _ceiling_follows(balance_after))
            self.accounts[str(row[_DATASET])] = (unit, neighbours, balance_after)

    def _migrate(self, row: Row) -> None:
        name = str(row[_DATASET])
        self._require(row, name in self._concentrated)
        after = self.migrated_balance(name)
        stated = parse_currency(str(row[_MECHANISM]), str(row[_SENSITIVITY]), after.granted)
        self._require(row, stated[0] is after.currency and parse_grant(str(row[_LOSS])) == after.granted)
        after = Balance(after.granted, *stated, after.spent, after.reserved)
        self._require(row, _ceiling_follows(after))
        del self._concentrated[name]
        unit, neighbours, _ = self.accounts[name]
        self.accounts[name] = (unit, neighbours, after)

    def migrated_balance(self, name: str) -> Balance:
        """An account of the first format in a currency that takes its losses; fully spent where none does."""
        _, _, old = self.accounts[name]
        concentrated, granted, sums = self._concentrated[name], old.granted, old.committed
        assert granted is not None
        epsilon, delta = granted.epsilon, delta_of(granted)
        if not delta:
            one = Balance.open(granted, Currency.PURE)
            if self.has_no_currency(name):
                return one.write_off(Pure(max(epsilon, sums.pure + sums.approx_epsilon)))
            return Balance(granted, one.currency, one.ceiling, _as_pure(old.spent), _as_pure(old.reserved))
        if not sums.delta:
            one = Balance.open(granted, Currency.CONCENTRATED)
            return Balance(granted, one.currency, one.ceiling, concentrated.spent, concentrated.reserved)
        one = Balance.open(granted, Currency.APPROX)
        if self.has_no_currency(name):
            return one.write_off(Approx(epsilon, delta))
        return Balance(granted, one.currency, one.ceiling, _as_approx(old.spent), _as_approx(old.reserved))

    def has_no_currency(self, name: str) -> bool:
        """Whether an account of the first format mixed kinds of loss that no currency takes together."""
        _, _, old = self.accounts[name]
        sums, with_delta = old.committed, old.granted is not None and delta_of(old.granted) > 0
        return name in self._concentrated and bool(sums.rho and sums.delta if with_delta else sums.rho or sums.delta)

    def _draw(self, row: Row) -> None:
        draws, draw = self._draws.get(str(row[_RUN]), {}), (str(row[_RELEASE]), _index(row))
        part, text, drawn = draws.get(draw, ("", "", True))
        self._require(row, not drawn and text == row[_LOSS] and not self.frozen)
        before = [one for one in draws.values() if one[2]] if part else []
        draws[draw] = (part, text, True)
        self._change(row, Balance.draw, [*before, (part, text, False)])

    def _reserve(self, row: Row) -> None:
        name = str(row[_RUN])
        run = (str(row[_DATASET]), str(row[_STUDY]), "open")
        known = row[_DATASET] in self.accounts and not self.frozen
        self._require(row, known and self.runs.setdefault(name, run) == run)
        draws = self._draws.setdefault(name, {})
        if row[_KIND] == "reserve":
            draw = (str(row[_RELEASE]), _index(row))
            self._require(row, draw not in draws)
            part, text = str(row[_AT["step"]]), str(row[_LOSS])
            before = [(of, loss, True) for of, loss, _ in draws.values()] if part else []
            draws[draw] = (part, text, False)
            self._change(row, Balance.reserve, [*before, (part, text, False)])
            self._require(row, self.accounts[str(row[_DATASET])][2].covers(Spent.zero()))

    def _end(self, row: Row) -> None:
        name = str(row[_RUN])
        self._require(row, name in self._draws and self.runs[name][0] == row[_DATASET])
        end = Balance.draw if row[_KIND] == "forfeit" else Balance.release
        self._change(row, end, list(self._draws.pop(name).values()))
        dataset, study, _ = self.runs[name]
        self.runs[name] = (dataset, study, RUN_ENDS[str(row[_KIND])])

    def _change(
        self, row: Row, step: Callable[[Balance, Spent], Balance], draws: Sequence[tuple[str, str, bool]]
    ) -> None:
        """Moves an account by what `draws` cost beyond the marked ones, which were counted before."""
        name = str(row[_DATASET])
        self._require(row, name in self.accounts)
        unit, neighbours, balance = self.accounts[name]
        self.accounts[name] = (unit, neighbours, step(balance, _added_cost(draws, balance.in_currency)))
        if name in self._concentrated:
            self._concentrated[name] = step(self._concentrated[name], _added_cost(draws, _as_concentrated))

    def _write_off(self, row: Row, loss: Loss) -> None:
        name = str(row[_DATASET])
        self._require(row, name in self.accounts)
        unit, neighbours, balance = self.accounts[name]
        self.accounts[name] = (unit, neighbours, balance.write_off(loss))
        if name in self._concentrated:
            self._concentrated[name] = self._concentrated[name].write_off(_as_concentrated(loss))

    def _require(self, row: Row, holds: bool) -> None:
        if not holds:
            raise Refused(
                f"{self._where}: entry {row[_SEQ]} ({row[_KIND]} {row[_RUN]} {row[_RELEASE]}) does not "
                "follow from the entries before it. The file was changed by something other than Comity; "
                "restore the last good copy",
                code="chain",
            )


def _added_cost(draws: Sequence[tuple[str, str, bool]], counted: Callable[[Loss], Loss]) -> Spent:
    """What `draws` cost beyond the marked ones."""
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


def _ceiling_follows(balance: Balance) -> bool:
    """Whether the stored ceiling is at most what the grant buys."""
    if balance.granted is None or balance.currency is None or balance.ceiling is None:
        return True
    computed_here = ceiling_of(balance.currency, balance.granted)
    match balance.ceiling, computed_here:
        case GDP(square=stored), GDP(square=computed):
            return stored <= computed * _SLACK
        case ZCDP(rho=stored), ZCDP(rho=computed):
            return stored <= computed * _SLACK
        case stored, computed:
            return stored == computed


def _as_concentrated(loss: Loss) -> Loss:
    """The ρ of a loss: ε²/2 for a pure one. An (ε, δ) has none, but then its account is not counted in ρ."""
    match loss:
        case Pure(epsilon=epsilon) | Approx(epsilon=epsilon):
            return ZCDP(at_least(LOSSES.divide(LOSSES.multiply(epsilon, epsilon), Decimal(2))))
        case _:
            return loss


def _as_pure(spent: Spent) -> Spent:
    return Spent.zero().add(Pure(LOSSES.add(spent.pure, spent.approx_epsilon)))


def _as_approx(spent: Spent) -> Spent:
    return Spent.zero().add(Approx(LOSSES.add(spent.pure, spent.approx_epsilon), spent.delta))


# Files


def check_opened(connection: sqlite3.Connection, owner: int, where: str) -> None:
    """What opening a file checks: pages, chains and sums, in full where that is fast."""
    with translate_sqlite_errors(where):
        query = "SELECT seq FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1"
        last = connection.execute(query, (owner,)).fetchone()
        if last is not None and last[0] > FULL_CHECK_ENTRIES:
            _check_end(connection, owner, where, last[0] - FULL_CHECK_ENTRIES)
            return
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != ("ok",):
            raise damaged(where, "its pages do not fit together")
        check_fully(connection, owner, where)


def _check_end(connection: sqlite3.Connection, owner: int, where: str, after: int) -> None:
    query = "SELECT head FROM entries WHERE owner = ? AND seq = ?"
    head = connection.execute(query, (owner, after)).fetchone()
    if head is None:
        raise damaged(where, f"entry {after} is missing")
    for _ in follow_entries(entry_rows(connection, owner, after), where=where, after=(after, head[0])):
        pass
    check_state(connection, owner, where)
    count = last_commits(connection, owner)[0].count
    _follow_commits(connection, owner, where, after=max(0, count - FULL_CHECK_ENTRIES))


def check_fully(connection: sqlite3.Connection, owner: int, where: str) -> tuple[int, str]:
    """Follows both chains from the start and derives every sum again; returns number and head of the last entry."""
    with translate_sqlite_errors(where):
        replay, count, head = replay_entries(entry_rows(connection, owner), where)
        runs = "SELECT run, dataset, study, state FROM runs WHERE owner = ?"
        stored_runs = {row[0]: row[1:] for row in connection.execute(runs, (owner,))}
        query = "SELECT frozen, simulated FROM ledgers WHERE owner = ?"
        stored = connection.execute(query, (owner,)).fetchone()
        same = (
            stored_accounts(connection, owner) == replay.accounts
            and stored_runs == replay.runs
            and stored == (replay.frozen, int(replay.simulated))
        )
        if not same:
            raise Refused(
                f"{where}: the sums do not follow from the {count} entries. Entries are missing at the end "
                "or sums were changed by something other than Comity; restore the last good copy",
                code="chain",
            )
        check_state(connection, owner, where)
        _follow_commits(connection, owner, where)
        return count, head


def replay_entries(rows: Iterable[Row], where: str) -> tuple[Replay, int, str]:
    """The sums after a whole chain of entries, its length and its last head."""
    replay, count, head = Replay(where), 0, ""
    for row in follow_entries(rows, where=where):
        replay.take(row)
        count, head = count + 1, str(row[-1])
    return replay, count, head


def check_state(connection: sqlite3.Connection, owner: int, where: str) -> None:
    """Refuses accounts, a last entry or a last commit that Comity did not write."""
    commits = last_commits(connection, owner)
    entry = connection.execute(
        "SELECT seq, head FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1", (owner,)
    ).fetchone()
    if not commits or entry is None:
        raise damaged(where, "its commits or entries are missing")
    last = commits[0]
    before = commits[1].head if len(commits) > 1 else b""
    if entry[0] != last.seq or not last.follows(before, entry[1]):
        raise damaged(where, "the last commit does not follow from the entries")
    if last.state != state_digest(connection, owner):
        raise Refused(
            f"{where}: the sums of the ledger are not those that were last written: they were changed by something "
            "other than Comity. Nothing is spent from it; restore the last good copy and write off what may have "
            f"been spent since: comity ledger write-off {where} ...",
            code="chain",
        )


def _follow_commits(connection: sqlite3.Connection, owner: int, where: str, *, after: int = 0) -> None:
    """Checks every commit after number `after`; the heads of entries must have been checked before."""
    before = b"" if after == 0 else bytes.fromhex(find_commit(connection, owner, after))
    expected, seq = after, 0
    for commit, entry_head in commits_after(connection, owner, after):
        expected += 1
        in_order = commit.count == expected and commit.seq >= seq
        if not in_order or entry_head is None or not commit.follows(before, entry_head):
            raise damaged(where, f"commit {expected} does not follow from those before it")
        before, seq = commit.head, commit.seq


# Exports

Sign = Callable[[bytes], bytes]
"""Returns the signature of a statement."""
Check = Callable[[bytes, bytes], None]
"""Raises Malformed unless the first argument is a signature of the second."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A ledger that passed its check. `frozen` is the missing head of a frozen ledger. `signed` is whether the owner's
    signature of an export was checked, and `exported` is then the time of the export."""

    entries: int
    head: str
    frozen: str = ""
    signed: bool = False
    exported: str = ""


def export_statement(count: int, head: str, exported: str) -> bytes:
    """What the owner signs. The head fixes every entry, and the first entry names the ledger."""
    statement = {"format": _EXPORT_FORMATS[-1], "entries": count, "head": head, "exported": exported}
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def write_export(rows: Iterable[Row], file: TextIO, sign: Sign | None = None) -> tuple[int, str]:
    """Writes one line per entry, then the signature if any; returns the number and head of the last entry."""
    count, head = 0, ""
    file.write(f'{{"format": "{_EXPORT_FORMATS[-1]}", "entries": [')
    for row in rows:
        file.write((",\n" if count else "\n") + json.dumps(dict(zip(FIELDS, row, strict=True))))
        count, head = count + 1, str(row[-1])
    end = {"head": head, "exported": datetime.now(UTC).isoformat(timespec="seconds")}
    if sign is not None:
        end["signature"] = sign(export_statement(count, head, end["exported"])).hex()
    file.write("\n], " + json.dumps(end)[1:] + "\n")
    return count, head


def verify_export(exported: object, check: Check | None = None) -> Verified:
    """Checks the chain of an exported ledger and that the rules allow each entry. With `check`, also that the holder of
    the key signed it."""
    where = "export"
    if not isinstance(exported, Mapping) or exported.get("format") not in _EXPORT_FORMATS:
        raise BadInput(
            f"expected an exported ledger of format {' or '.join(_EXPORT_FORMATS)}: export it again", code="export"
        )
    if not isinstance(exported.get("entries"), list):
        raise BadInput(
            "expected an exported ledger, found one without a list of entries: export it again", code="export"
        )
    rows = [parse_entry(fields, where=where) for fields in exported["entries"]]
    with translate_sqlite_errors(where):
        replay, count, head = replay_entries(rows, where)
    if exported.get("head") != head:
        raise Refused("export: the last head is not the one stated, so entries are missing at the end", code="chain")
    found = Verified(count, head, replay.frozen)
    return found if check is None else _check_signature(found, exported, check)


def _check_signature(found: Verified, exported: Mapping[str, object], check: Check) -> Verified:
    when, signature = exported.get("exported"), exported.get("signature")
    if signature is None:
        raise Refused(
            "export: it has no signature, so entries may have been left out; ask its owner to export it with --keys",
            code="signature",
        )
    try:
        if exported["format"] != _EXPORT_FORMATS[-1] or not isinstance(when, str) or not isinstance(signature, str):
            raise Malformed("the fields that are signed are missing")
        check(bytes.fromhex(signature), export_statement(found.entries, found.head, when))
    except (Malformed, ValueError) as error:
        raise Refused(
            "export: it is not what its owner signed: entries were changed, removed or cut off, or another key signed "
            "it; ask its owner for it again",
            code="signature",
        ) from error
    return replace(found, signed=True, exported=when)


# The first format


def migrate(connection: sqlite3.Connection, owner: int, where: str) -> CommitHead:
    """Inside the caller's transaction: checks the old chain and its sums, then writes the new sums."""
    with translate_sqlite_errors(where):
        replay, _, _ = replay_entries(entry_rows(connection, owner), where)
        upgrade_tables(connection)
        rows = Rows(connection, owner, where)
        for name, (unit, neighbours, _) in list(replay.accounts.items()):
            for run in replay.open_runs():
                dataset, study, _ = replay.runs[run]
                if dataset == name and replay.has_no_currency(name):
                    replay.take(_append(rows, "forfeit", make_row(name, unit, neighbours, study=study, run=run)))
                    rows.end_run(run, RUN_ENDS["forfeit"])
            after = replay.migrated_balance(name)
            currency, ceiling = currency_texts(after)
            loss = grant_text(after.granted)
            entry = make_row(
                name, unit, neighbours, mechanism=currency, sensitivity=ceiling, loss=loss, note=_MIGRATION_NOTE
            )
            replay.take(_append(rows, "currency", entry))
            rows.open_account(name, Unit(unit), Neighbours(neighbours), replay.accounts[name][2])
        seq, entry_head = rows.last()
        state = state_digest(connection, owner)
        head = commit_head(b"", 1, entry_head, state, b"")
        append_commit(connection, owner, Commit(1, seq, state, b"", head))
        return CommitHead(rows.id(), 1, head.hex())


def _append(rows: Rows, kind: str, entry: Row) -> Row:
    rows.append(kind, [entry])
    return rows.last_row()
