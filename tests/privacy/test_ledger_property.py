"""Any sequence of operations agrees with a model that only knows fractions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledgers import RECORD

from comity.errors import BudgetExceeded, Refused
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import Pure

LOSSES = st.decimals(min_value=0, max_value=2, places=5).map(str)
RUNS = st.sampled_from(["a", "b", "c", "d"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), RUNS, st.lists(LOSSES, max_size=3)),
        st.tuples(st.just("draw"), RUNS, st.integers(0, 2)),
        st.tuples(st.sampled_from(["void", "close"]), RUNS, st.none()),
        st.tuples(st.just("grant"), st.none(), LOSSES),
        st.tuples(st.just("write-off"), st.none(), LOSSES),
    ),
    max_size=20,
)


@dataclass
class Model:
    """What the rules say, without storage, chain or decimals."""

    granted: Fraction
    spent: Fraction = Fraction(0)
    lists: dict[str, list[Fraction]] = field(default_factory=dict)
    drawn: dict[str, set[int]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    @property
    def reserved(self) -> Fraction:
        undrawn = (
            loss
            for run in self.lists.keys() - self.ended
            for index, loss in enumerate(self.lists[run])
            if index not in self.drawn[run]
        )
        return sum(undrawn, Fraction(0))

    def apply(self, name: str, run: str, value: object) -> str:
        if name == "grant":
            self.granted += Fraction(str(value))
        elif name == "write-off":
            self.spent += Fraction(str(value)) + self.reserved
            self.ended |= self.lists.keys()
        elif name == "reserve":
            assert isinstance(value, list)
            losses = [Fraction(loss) for loss in value]
            if run in self.lists:
                return "" if run not in self.ended and self.lists[run] == losses else "refused"
            if self.spent + self.reserved + sum(losses) > self.granted:
                return "budget"
            self.lists[run], self.drawn[run] = losses, set()
        elif run not in self.lists:
            return "refused"
        elif name == "draw":
            assert isinstance(value, int)
            if run in self.ended or value >= len(self.lists[run]) or value in self.drawn[run]:
                return "refused"
            self.drawn[run].add(value)
            self.spent += self.lists[run][value]
        else:
            self.ended.add(run)
        return ""


def perform(ledger: Ledger, name: str, run: str, value: object) -> str:
    try:
        if name == "grant":
            ledger.grant_more(Pure(str(value)), "more")
        elif name == "write-off":
            ledger.write_off(Pure(str(value)), "lost")
        elif name == "reserve":
            assert isinstance(value, list)
            draws = [Draw("v", i, Pure(loss), "laplace", 1) for i, loss in enumerate(value)]
            ledger.reserve(study="s", run=run, draws=draws, **RECORD)
        elif name == "draw":
            assert isinstance(value, int)
            ledger.draw(run=run, release="v", index=value, step="s").use()
        else:
            getattr(ledger, name)(run)
    except BudgetExceeded:
        return "budget"
    except Refused:
        return "refused"
    return ""


@settings(max_examples=150, deadline=None)
@given(granted=LOSSES, operations=OPERATIONS)
def test_the_ledger_agrees_with_the_model(granted: str, operations: list[tuple[str, str, object]]) -> None:
    model = Model(Fraction(granted))
    ledger = Ledger.in_memory(grant=Pure(granted), **RECORD)
    for name, run, value in operations:
        assert perform(ledger, name, run, value) == model.apply(name, run, value)
        [account] = ledger.summary()
        assert Fraction(account.spent.pure) == model.spent
        assert Fraction(account.reserved.pure) == model.reserved
        assert account.left is not None
        assert Fraction(account.left) == max(model.granted - model.spent - model.reserved, 0)
    ledger.verify()
