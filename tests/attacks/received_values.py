"""Every step that takes a value from the coordinator or a peer, and how to look at what it makes of each record.

A step that multiplies records with what it received has a case here; any other has its reason not to. A step that is in
neither list fails `test_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from inspect import isclass
from itertools import pairwise, product
from math import inf
from pkgutil import walk_packages
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import comity.federation
import comity.methods
from comity.data import Bounded, Classes, Numeric, Records, Schema
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.evaluation import split_budget
from comity.federation.evaluation.protocol import RecordEvaluation
from comity.federation.owner.prepared_rows import Preparation
from comity.federation.owner.rows import Rows
from comity.federation.part import Part, StepSpec
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.methods.softlabel import SoftLabel, SoftLabelProtocol
from comity.methods.summary import OneShotSummary
from comity.methods.summary.ratio import MAX_RANK
from comity.methods.vertical import Vertical
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.design import Design
from comity.methods.vertical.evaluation import ErrorsByColumns
from comity.methods.vertical.rlwe_rounds import RlweRounds
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from tests.averaging.default_consortium import make_consortium as averaging_consortium
from tests.summary.auctions import build_auction, build_published
from tests.summary.consortia import build_one_shot, make_records
from tests.summary.consortia import make_consortium as summary_consortium

Floats = NDArray[np.float64]

# Kinds of steps that take something and multiply no record with it in floating point.
NO_RECORD = "no record meets what it takes: keys, lists, signatures, shares and ciphertexts"
MODULAR = "integers modulo a power of two, or encrypted ones: exact in any order"
AS_THEY_ARE = "records leave or are scored exactly as agreed, outside of the guarantee"

EXEMPT = {
    **{f"SecureSum.{name}": NO_RECORD for name in ("deal", "meet", "enlist", "seat", "agree", "unmask")},
    **{f"Lifecycle.{name}": NO_RECORD for name in ("ready", "begin", "meet", "end")},
    **{f"Argmin.{name}": NO_RECORD for name in ("extend", "deal", "multiply")},
    **{f"Comparisons.{name}": NO_RECORD for name in ("extend", "multiply")},
    **{f"PublishedAveraging.{name}": NO_RECORD for name in ("unmask", "select", "publish")},
    "Alignment.pseudonyms": NO_RECORD,
    "Alignment.place": NO_RECORD,
    "Products.offer": MODULAR,
    "Products.encrypt": MODULAR,
    "Products.evaluate": MODULAR,
    "Products.mask": MODULAR,
    "Products.settle": MODULAR,
    "DealerRounds.respond": MODULAR,
    "DealerRounds.settle": MODULAR,
    "SyntheticProtocol.count_measured": "it counts cells whose edges follow from opened counts: whole numbers",
    "SyntheticProtocol.count_again": "it counts cells of pairs that follow from opened counts: whole numbers",
    **{
        f"SyntheticProtocol.{name}": "it counts groups of cells that follow from opened counts: whole numbers"
        for name in ("count_triples", "count_measured_triples")
    },
    "PublishedSynthetic.share": "records are drawn from the party's own noisy tree, and noisy trees label them",
    "PublishedSynthetic.learn": "what it learns stays with the party",
    "OneShotSummary.choose": AS_THEY_ARE,
    "Market.sell": AS_THEY_ARE,
    "JointPrediction.partial": AS_THEY_ARE,
}


@dataclass(frozen=True)
class Case:
    """What a step makes of a party's rows and a message, both of width d.

    `seen` is a sum over records, or their values one by one if `single`, or the largest of them. `allowed` is how far
    the rounding of a sum of so many records is counted.
    """

    name: str
    seen: Callable[[Floats, NDArray[Any], Any], Floats]
    messages: Callable[[Floats], Iterator[Any]]
    kind: str = "sum"
    allowed: Callable[[int, int], float] = field(default=lambda records, width: 0.0)


class Batch:
    """Stands where `Site` stands, with rows that are read in one block or in several."""

    def __init__(self, consortium: Consortium, party: str, rows: Floats, labels: NDArray[Any], blocks: int = 1) -> None:
        self.consortium, self.party, self.label = consortium, party, "0"
        self.features, self.labels, self.filled = rows, labels, np.ones(len(rows), bool)
        self.records = Records(rows, labels)
        self.blocks, self.sent, self.state = blocks, np.zeros(0), dict[str, Any]()

    def total(
        self,
        part: Callable[[Rows], Floats],
        *,
        at_once: int | None = None,
        prepare: Preparation | None = None,
        exact: bool = False,
    ) -> Floats:
        edges = [len(self.features) * place // self.blocks for place in range(self.blocks + 1)]
        found = []
        for a, b in pairwise(edges):
            prepared = () if prepare is None else prepare.once(self.features[a:b])
            filled = np.ones(b - a, bool)
            found.append(part(Rows(self.features[a:b], self.labels[a:b], filled, len(self.features), prepared)))
        return np.asarray(np.sum(found, axis=0), np.float64)

    def contribute(self, value: Floats) -> None:
        self.sent = np.asarray(value, np.float64).reshape(-1)

    def keep(self, name: str, value: Any) -> None:
        self.state[name] = value

    def kept(self, name: str, otherwise: Any = None) -> Any:
        return self.state.get(name, otherwise)

    def public_stream(self, *purpose: Any) -> Any:
        from comity.entropy import Stream

        return Stream.public(*purpose)

    def deliver(self, name: str, value: Any) -> None:
        pass


def steps() -> dict[str, tuple[type, StepSpec]]:
    """Every step of every method and part that takes a value, by class and name; inherited ones once."""
    found: dict[str, tuple[type, StepSpec]] = {}
    for package in (comity.federation, comity.methods):
        for module in walk_packages(package.__path__, package.__name__ + "."):
            for kind in vars(import_module(module.name)).values():
                if not isclass(kind) or not issubclass(kind, Part):
                    continue
                for one in vars(kind).values():
                    spec = getattr(one, "spec", None)
                    if isinstance(spec, StepSpec) and spec.takes:
                        found[f"{kind.__name__}.{spec.name}"] = (kind, spec)
    return found


# Averaged models.


@cache
def averaging(width: int, kind: str) -> AveragingProtocol:
    classes = {"softmax": ("a", "b", "c"), "linear": ()}.get(kind, ("0", "1"))
    return Averaging.over_rows(features=width, model=cast(Any, kind), classes=classes, sizes=60, solver="gradient")


@cache
def added(evaluated: bool = False) -> Consortium:
    consortium = averaging_consortium(neighbours="add-remove")
    if not evaluated:
        return consortium
    loss, evaluation = split_budget(Approx(4, "1e-5"), Unit.RECORD, Neighbours.ADD_REMOVE, share=0.4)
    return replace(consortium, loss=loss, evaluation=evaluation)


def averaged(kind: str, step: str, names: tuple[str, ...]) -> Case:
    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        built = averaging(rows.shape[1], kind)
        if kind != "linear":
            labels = labels % len(built.classes)
        site = Batch(added(), "ash", rows, labels, blocks=1 + len(rows) // 50)
        getattr(built, step)(site, **{name: message[name] for name in names})
        return site.sent

    def messages(rows: Floats) -> Iterator[Any]:
        built = averaging(rows.shape[1], kind)
        for scale, directions, weights in hostile(rows):
            factors = np.zeros((built.whitenings, 1 + 10 * rows.shape[1]))
            factors[:, 0] = scale
            factors[:, 1 : 1 + directions.size] = directions.ravel()
            yield {"whitening": factors, "iterate": np.resize(weights, built.shape)}

    def allowed(records: int, width: int) -> float:
        return rounding(averaging(width, kind).declare(added())[step].bounded)

    return Case(f"AveragingProtocol.{step}", seen, messages, allowed=allowed)


def rounding(bound: Any) -> float:
    """What a bound counts for the rounding of sums and of elementwise functions."""
    assert isinstance(bound, RecordSum)
    return bound.l2 - bound.moved


def hostile(rows: Floats) -> Iterator[tuple[float, Floats, Floats]]:
    """A scale, ten directions at most, and weights: long ones, ones that cancel these rows, ones too small to square.

    Rows span ten directions at most (`batch`), so that a map can leave nothing of them but rounding.
    """
    chance, width = np.random.default_rng(len(rows)), rows.shape[1]
    span = np.linalg.svd(rows, full_matrices=False)[2][: min(10, width, len(rows))]
    across = chance.normal(size=width)
    across -= (across @ span.T) @ span
    yield 1e30, span, 1e25 * across + 1e9 * span[0]
    yield 1e17, span, 1e16 * across
    # As large as public ranges allow, so that these cancel after they were clipped too.
    yield 2.0**30, span, np.asarray(2.0**29 * across / max(float(np.abs(across).max()), 1e-300))
    yield 1e26, 1e22 * chance.normal(size=(min(10, width), width)), 1e30 * np.resize([1.0, -1.0, 1e-12], width)
    yield 5e-324, np.full((1, width), 5e-324), np.full(width, 5e-324)
    yield 3.0, 0.9 * span, np.asarray(chance.normal(size=width), np.float64)


# The evaluation of whole records.


def evaluated(kind: str) -> Case:
    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        built = averaging(rows.shape[1], kind)
        if kind != "linear":
            labels = labels % len(built.classes)
        site = Batch(added(evaluated=True), "ash", rows, labels, blocks=1 + len(rows) // 50)
        RecordEvaluation(built).evaluate(cast(Any, site), message)
        return site.sent

    def messages(rows: Floats) -> Iterator[Any]:
        for _, _, weights in hostile(rows):
            yield np.resize(weights, averaging(rows.shape[1], kind).shape)

    return Case("RecordEvaluation.evaluate", seen, messages)


@cache
def soft(width: int) -> SoftLabelProtocol:
    auxiliary = np.random.default_rng(1).normal(size=(240, width))
    return SoftLabel.over_rows(auxiliary=auxiliary, sizes=60, statistic="class-sums")


def evaluated_behind_a_map() -> Case:
    """What a score card is made of, where the model is one behind a public feature map."""
    consortium = replace(added(), unit=Unit.PARTY, neighbours=Neighbours.REPLACE)

    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        return soft(rows.shape[1]).present({"model": message}, consortium).rowwise().predict_proba(rows)

    def messages(rows: Floats) -> Iterator[Any]:
        found = cast(Any, soft(rows.shape[1]).choice(consortium).statistic.map)
        for _, _, weights in hostile(found(rows)):
            yield np.stack([weights, -weights])

    return Case("RecordEvaluation.evaluate", seen, messages, kind="single")


# Summaries.


@cache
def one_shot(width: int) -> OneShotSummary:
    return build_one_shot(columns=width)


def summarised(step: str) -> Case:
    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        consortium, built = summary_consortium(), one_shot(rows.shape[1])
        site = Batch(consortium, "elm" if step == "wish" else "ash", rows, labels, blocks=1 + len(rows) // 50)
        getattr(built, step)(site, **message)
        return site.sent

    def messages(rows: Floats) -> Iterator[Any]:
        built = one_shot(rows.shape[1])
        features = built.features(summary_consortium())(rows)
        across = np.linalg.svd(features)[2][-10:]
        for scale, directions, _ in hostile(features):
            # Along what features have nothing of, where they are few, and along what they have most of.
            long = scale > 1e20
            axes = np.zeros((features.shape[1], MAX_RANK))
            axes[:, : len(directions)] = across[: len(directions)].T if long else directions.T
            variances = np.zeros(MAX_RANK)
            variances[: len(directions)] = scale**-2 if scale > 1 else 1e-300
            mean = np.zeros(features.shape[1]) if long else features.mean(axis=0)
            spectrum = {"mean": mean, "axes": axes, "variances": variances}
            more = {"ratio": np.resize([1.0, scale, -scale], 1 + MAX_RANK)} if step == "weigh" else {}
            yield {"spectrum": spectrum, **more}

    def allowed(records: int, width: int) -> float:
        release = one_shot(width).declare(summary_consortium())["mass" if step == "weigh" else "wish"]
        return rounding(release.bounded)

    return Case(f"OneShotSummary.{step}", seen, messages, allowed=allowed)


def bid(name: str) -> Case:
    made: Any = build_auction if name == "AuctionSummary" else build_published

    @cache
    def built(width: int) -> Any:
        more = {"seeds": np.random.default_rng(0).random((30, width))} if name == "PublishedSummary" else {"records": 1}
        sizes = {party: len(own) for party, own in make_records().items()}
        return made(columns=width, **{"sizes": sizes, **more})

    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        site = Batch(summary_consortium(), "ash", rows, labels)
        built(rows.shape[1]).bid(site, message)
        return site.sent[:1]

    def messages(rows: Floats) -> Iterator[Any]:
        for _, _, weights in hostile(built(rows.shape[1]).features(rows)):
            yield weights

    return Case(f"{name}.bid", seen, messages, kind="largest")


# Columns at different parties.


@cache
def by_columns(width: int, *, classes: bool = True) -> Design:
    target: Any = Classes("y", ("no", "yes")) if classes else Bounded("y", -1.0, 1.0)
    numbers = tuple(Numeric(f"x{place}", -1, 1) for place in range(width))
    schema = Schema((*numbers, Numeric("z", -1, 1)), target)
    columns = {"ash": tuple(one.name for one in numbers), "birch": ("z", "y")}
    return Design(schema, columns, centred=True, intercept=True, bins=False)


def in_rounds(kind: Any, step: str) -> Case:
    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        design = by_columns(rows.shape[1])
        rounds = kind(design=design, max_rows=1 << 10)
        units = rounds.features(design.matrix(Records(rows, labels), "ash"), "ash")
        if step == "weigh":
            found = rounds.scores(units, "ash", message["weights"], message["interval"])[:, None]
        else:
            found = rounds.instruments(units, "ash", message["whitening"])
        return np.asarray(found, np.float64)

    def messages(rows: Floats) -> Iterator[Any]:
        width, chance = rows.shape[1], np.random.default_rng(4)
        for scale, directions, weights in hostile(rows):
            # On a wide interval a score of many digits goes round the circle: its last ones decide where it ends.
            long = max(1.0, min(1e15, float(np.abs(weights).max())))
            yield {
                "weights": np.append(long * chance.normal(size=width), [0.0, 0.0]),
                "interval": np.array([0.5, 1e18]),
                "whitening": np.resize(scale * directions, (width + 1, width)),
            }

    return Case(f"{kind.__name__}.{step}", seen, messages, kind="single")


def errors_by_columns(classes: bool) -> Case:
    @cache
    def model_evaluation(width: int) -> ErrorsByColumns:
        design = by_columns(width, classes=classes)
        method = Vertical.over_columns(
            solver="quadratic", schema=design.schema, columns=dict(design.columns), max_rows=1 << 10
        )
        return ErrorsByColumns(method)

    def seen(rows: Floats, labels: NDArray[Any], message: Any) -> Floats:
        built, site = model_evaluation(rows.shape[1]), Batch(added(), "ash", rows, labels)
        built.receive(cast(Any, site), message)
        return built.product.matrix(cast(Any, site), Records(rows, labels))

    def messages(rows: Floats) -> Iterator[Any]:
        for _, _, weights in hostile(rows):
            yield np.append(weights, [0.5, 0.1])

    return Case("ErrorsByColumns.receive", seen, messages, kind="single")


CASES = [
    averaged("logistic", "whitened_moment", ("whitening",)),
    *(averaged(kind, "gradient", ("iterate", "whitening")) for kind in ("logistic", "softmax", "svm", "linear")),
    *(averaged(kind, "calibration", ("iterate",)) for kind in ("logistic", "softmax")),
    *(evaluated(kind) for kind in ("logistic", "softmax", "linear")),
    evaluated_behind_a_map(),
    summarised("wish"),
    summarised("weigh"),
    bid("AuctionSummary"),
    bid("PublishedSummary"),
    *(in_rounds(RlweRounds, step) for step in ("whiten", "weigh")),
    *(in_rounds(DealerRounds, step) for step in ("blind", "weigh")),
    errors_by_columns(classes=True),
    errors_by_columns(classes=False),
]


def batch(records: int, width: int) -> tuple[Floats, NDArray[Any]]:
    """Rows in the unit ball, in ten directions at most, and labels of three classes."""
    chance = np.random.default_rng([records, width])
    rows = chance.normal(size=(records, min(10, width))) @ chance.normal(size=(min(10, width), width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * chance.uniform(1.0, 1.5, size=(records, 1))
    return rows, chance.integers(0, 3, records)


RECORDS, WIDTHS = (2, 121, 200), (1, 3, 40, 140, 200)


def beyond(case: Case, records: int, width: int) -> float:
    """How far records change each other's part, over what is counted: above 1 is too far."""
    rows, labels = batch(records, width)
    worst, allowed = 0.0, case.allowed(records, width)
    for message in case.messages(rows):
        with np.errstate(all="ignore"):
            every, last = slice(None), slice(-1, None)
            whole, fewer, one = (case.seen(rows[at], labels[at], message) for at in (every, slice(-1), last))
        assert np.isfinite(whole).all()
        if case.kind == "single":
            apart = float(np.abs(whole - np.concatenate([fewer, one])).max(initial=0.0))
        elif case.kind == "largest":
            apart = float(np.abs(whole - np.maximum(fewer, one)).max())
        else:
            apart = float(np.linalg.norm(whole - (fewer + one)))
        worst = max(worst, (apart / allowed if allowed else inf) if apart else 0.0)
    return worst


def cases_of(*names: str) -> list[Case]:
    """Those of some methods or parts."""
    return [case for case in CASES if case.name.split(".")[0] in names]


def worst(case: Case) -> float:
    return max(beyond(case, records, width) for records, width in product(RECORDS, WIDTHS))
