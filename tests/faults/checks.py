"""What must hold after every kill and every resume: each release is charged once and has one noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comity.errors import ComityError
from comity.federation.agreement import Agreement
from comity.federation.messages.ask import StepPath
from comity.privacy.ledger import Ledger
from tests.faults.seen import ANSWERED, Sight, twice


@dataclass(frozen=True)
class Line:
    """An entry of a ledger, as far as it must stay as it is."""

    kind: str
    release: str
    index: int | None
    loss: str
    time: str


def lines_of(ledger: Ledger, run: str) -> list[Line]:
    """The lines of one run; in a ledger of several studies its name follows the study's hash."""
    return [
        Line(e.kind, e.release, e.index, str(e.loss), str(e.time))
        for e in ledger.entries()
        if e.run == run or e.run.endswith(f"/{run}")
    ]


def declared(agreement: Agreement, party: str) -> set[tuple[str, int]]:
    """The draws that a run pays for at a party, each once."""
    return {(draw.release, draw.index) for draw in agreement.declaration.draws(party, agreement.consortium)}


def owed(agreement: Agreement, party: str, path: str) -> tuple[str, int] | None:
    """The draw without which no answer under this path may have left a party. A release of many rounds that is paid for
    as a whole is paid for with the first."""
    where = StepPath.parse(path)
    _, spec = agreement.step(where)
    if spec.sends is None:
        return None
    known = declared(agreement, party)
    number = int(where.label) if where.label.isdigit() else 0
    return next(((spec.sends, index) for index in (number, 0) if (spec.sends, index) in known), None)


def broken(
    agreement: Agreement,
    ledgers: dict[str, Ledger],
    sights: Sequence[Sight],
    before: dict[str, list[Line]],
    run: str,
) -> tuple[list[str], dict[str, list[Line]]]:
    """What does not hold, in words, and the lines of each ledger now. `before` are those of the last look."""
    wrong, now = twice(sights), {}
    for party, ledger in ledgers.items():
        try:
            ledger.verify()
        except ComityError as error:
            wrong.append(f"{party}: {error}")
        now[party] = lines_of(ledger, run)
        draws = [(line.release, line.index) for line in now[party] if line.kind == "draw"]
        if len(draws) > len(set(draws)):
            wrong.append(f"{party} paid twice for one draw")
        if not set(draws) <= declared(agreement, party):
            wrong.append(f"{party} paid for what nobody declared")
        if sum(line.kind == "reserve" for line in now[party]) not in (0, len(declared(agreement, party))):
            wrong.append(f"{party} reserved other draws than the declared ones")
        then = before.get(party, [])
        if now[party][: len(then)] != then:
            wrong.append(f"{party}'s ledger has lost or changed an entry")
        for sight in sights:
            if sight.kind == ANSWERED and sight.by == party:
                draw = owed(agreement, party, sight.name)
                if draw is not None and draw not in draws:
                    wrong.append(f"{party} answered {sight.name} and its ledger lacks the draw {draw[0]}[{draw[1]}]")
    return wrong, now
