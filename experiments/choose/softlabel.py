"""Constants of soft labels, on training rows of Adult, credit defaults, KDD-99, HAR and MNIST, and
for several classes of `experiments.accuracy.several`.

Parties and public rows are dealt as in the comparison, and the sums perturbed by the noise that the protocol declares;
what is looked at is a quarter of the training rows that neither parties nor public rows hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from comity import SoftLabel
from comity.data import dataset
from comity.entropy import Stream
from comity.methods.softlabel import SoftLabelProtocol, choice, record_sums, votes
from comity.privacy import SeededNoise
from experiments.accuracy.rows import scores
from experiments.accuracy.softlabel import dealt
from experiments.accuracy.training_rows import split_training_rows
from experiments.choose.leaving_out import Choice, Utilities, replace_constants, utility
from experiments.papers.softlabel.default import Layout, contributions, mean_votes
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, total

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_REPEATS = 6


@dataclass(frozen=True)
class Deal:
    """A table dealt to parties of so many records."""

    table: str
    parties: int
    records: int = 20
    public: int = 2000


TWO_CLASSES: Mapping[str, tuple[Deal, ...]] = {
    "Adult": (Deal("adult-20", 24), Deal("adult-20", 100), Deal("adult-200", 400)),
    "credit defaults": (Deal("credit", 24), Deal("credit", 100), Deal("credit", 400)),
    "KDD-99": (Deal("kdd", 24), Deal("kdd", 100), Deal("kdd", 400)),
}
SEVERAL: Mapping[str, tuple[Deal, ...]] = {
    "HAR": (Deal("har", 24, public=1000), Deal("har", 70, public=1000), Deal("har", 230, records=6, public=1000)),
    "MNIST": (Deal("mnist", 100), Deal("mnist", 300, records=6)),
    "KDD-99 by kind": (Deal("attacks", 24), Deal("attacks", 100), Deal("attacks", 500)),
    "Adult by marriage": (Deal("marriage", 24), Deal("marriage", 100), Deal("marriage", 500)),
    "rentals": (Deal("rentals", 24), Deal("rentals", 100), Deal("rentals", 500)),
}
ALL = {**TWO_CLASSES, "HAR": SEVERAL["HAR"]}
# Where public rows cluster and classes do not, sums and clusters differ most.
FEW: Mapping[str, tuple[Deal, ...]] = {
    "HAR": (Deal("har", 24, public=1000), Deal("har", 80, public=1000)),
    "MNIST": (Deal("digits", 24), Deal("digits", 80)),
    "KDD-99 by kind": (Deal("attacks", 24), Deal("attacks", 80)),
    "Adult by column": tuple(Deal(name, many) for name in ("marriage", "occupation", "education") for many in (24, 80)),
    "rentals": (Deal("rentals", 24), Deal("rentals", 80)),
    "generated": tuple(Deal(name, many) for name in ("generated-8", "generated-20") for many in (24, 80)),
}


@lru_cache(maxsize=32)
def load_deal(deal: Deal) -> tuple[Layout, SoftLabelProtocol]:
    if deal.table == "mnist":
        return _digits(deal)
    return dealt(split_training_rows(deal.table), deal.parties, deal.public, deal.records)


def _digits(deal: Deal) -> tuple[Layout, SoftLabelProtocol]:
    """Pixels of training digits, each row in the unit ball."""
    frame = dataset("mnist")
    frame = frame[(frame["split"].astype(str) == "train").to_numpy(bool)]
    private, looked_at = deal.parties * deal.records, 2000
    order = Stream.public("choose", "mnist").permutation(len(frame))[: private + deal.public + looked_at]
    pixels = [name for name in frame.columns if str(name).startswith("p")]
    rows = frame[pixels].to_numpy()[order].astype(np.float64) / (255 * 28)
    labels = frame["label"].to_numpy()[order].astype(np.int64)
    own, public, test = np.split(np.arange(len(order)), [private, private + deal.public])
    shape = (deal.parties, deal.records)
    layout = Layout(
        rows[own].reshape(*shape, -1),
        labels[own].reshape(shape),
        rows[public],
        rows[test],
        labels[test],
        tuple("0123456789"),
    )
    return layout, SoftLabel.over_rows(auxiliary=layout.auxiliary, classes=layout.classes, sizes=deal.records)


@lru_cache(maxsize=32)
def _votes_of(deal: Deal) -> Any:
    return mean_votes(load_deal(deal)[0])


def worth(deal: Deal, epsilon: float, statistic: Any = "auto", delta: float = DELTA) -> float:
    """The mean over a few draws of the noise."""
    layout, protocol = load_deal(deal)
    protocol = replace(protocol, statistic=statistic)
    consortium = make_consortium(deal.parties, epsilon, delta)
    taken, release = opened(protocol, consortium)
    shares = _votes_of(deal) if taken.needs == "votes" else None
    units = total(release, contributions(layout, taken, shares), consortium)
    source = SeededNoise(int(Stream.public("choose", deal.table, str(deal.parties), str(epsilon)).words(1)[0]))
    found = []
    for mean in noisy_means(release, units, consortium, source, _REPEATS):
        model = protocol.present({"model": taken.model(mean, protocol.deviation(consortium))}, consortium)
        one = scores(np.asarray(model.predict_proba(layout.test)), layout.truth)
        found.append(utility(one.accuracy, one.log_loss))
    return float(np.mean(found))


def choices() -> Iterator[Choice]:
    def tried(where: str, name: str, values: tuple[Any, ...], now: Any, over: str = "", **how: Any) -> Choice:
        deals = {"several": SEVERAL, "few": FEW}.get(over, ALL)
        return Choice(
            f"{where}.{name}", values, lambda value: _measure(deals, {f"softlabel.{where}.{name}": value}, **how), now
        )

    sums, counted, voted = "record_sums", "record_sums", "votes"
    yield tried(sums, "EXPLAINED", (0.1, 0.3, 0.6, 1.0), record_sums.EXPLAINED)
    yield tried(sums, "_NOISY", (0.0, 0.15, 0.25, 0.5), record_sums._NOISY)
    yield tried(sums, "_ROUNDS", ((1, 1), (1, 2), (2, 2)), record_sums._ROUNDS)
    yield tried(sums, "_L2_PER_DEVIATION", (0.25, 1.0, 4.0), record_sums._L2_PER_DEVIATION)
    yield tried("choice", "_SUM_NOISE", (0.1, 0.2, 0.4), choice._SUM_NOISE)
    yield tried("choice", "_MOSTLY_NOISE", (0.15, 0.2, 0.25, 0.4), choice._MOSTLY_NOISE)
    yield tried("choice", "_DIRECTIONS_PER_CLASS", (1, 1.5, 2, 3, 4, 6, 8), choice._DIRECTIONS_PER_CLASS, "few")
    yield tried("choice", "_NOISY_CELLS", (0.6, 0.8, 1.0, 1.2), choice._NOISY_CELLS, "several")
    yield tried("choice", "_CELL_NOISE", (3.0, 5.0, 8.0), choice._CELL_NOISE, "several", statistic="cells")
    yield tried(counted, "_AGREEMENT", (0.25, 0.35, 0.45), record_sums._AGREEMENT, "several", statistic="cells")
    yield tried(counted, "_DIFFER", (0.5, 0.8, 0.9), record_sums._DIFFER, "several", statistic="cells")
    yield tried(counted, "_DECIDED", (0.0, 0.5, 1.0), record_sums._DECIDED, "several", statistic="cells")
    yield tried("choice", "_VOTE_NOISE", (0.1, 0.2, 0.4), choice._VOTE_NOISE, delta=0.0)
    yield tried(voted, "_L2_PER_DEVIATION", (1.0, 4.0, 16.0), votes._L2_PER_DEVIATION, delta=0.0)


def _measure(
    deals: Mapping[str, tuple[Deal, ...]], constants: Mapping[str, Any], statistic: str = "auto", delta: float = DELTA
) -> Utilities:
    with replace_constants(constants):
        return {
            name: {
                f"{deal.table} K={deal.parties} n={deal.records} {epsilon:g}": worth(deal, epsilon, statistic, delta)
                for deal in several
                for epsilon in EPSILONS
            }
            for name, several in deals.items()
        }
