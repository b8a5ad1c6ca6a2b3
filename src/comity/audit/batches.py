"""Batch independence: what a site contributes for n records is what n − 1 of them and the last contribute, added.

Only then is the bound on one record a bound on its absence. No sampling finds a step that breaks it, such as one that
centres records on their mean, or a sum whose rounding follows the number of rows. Messages are those that no honest
coordinator sends: as long as numbers get, too small to square, and in directions that the records cancel in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.audit.row import Check, Control
from comity.data import Bounded, Classes, Numeric, Records, Schema
from comity.entropy import Stream
from comity.federation.agreement import Agreement
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.protocol import RecordEvaluation
from comity.federation.owner.prepared_rows import Preparation
from comity.federation.owner.rows import Rows
from comity.methods.averaging import Averaging
from comity.methods.averaging.method import AveragingProtocol
from comity.methods.summary import OneShotSummary, Summary
from comity.methods.summary.ratio import MAX_RANK
from comity.methods.synthetic import Synthetic
from comity.methods.vertical import Vertical
from comity.study.records.encoding import encode_records
from comity.study.study import Study

Floats = NDArray[np.float64]
Seen = Callable[["BatchSite", Any], Floats]

_OWNERS = ("ash", "birch", "cedar")
_TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
_WIDTH, _LATENT = 40, 10
_SIZES = (2, 3, 121, 200)


class BatchSite:
    """Stands where a `Site` stands, over given rows, and keeps what a step contributes before it is bounded."""

    def __init__(self, consortium: Consortium, party: str, rows: Floats, labels: NDArray[Any] | None) -> None:
        self.consortium, self.party, self.label = consortium, party, "0"
        self.features, self.labels = rows, labels
        self.filled, self.records = np.ones(len(rows), np.bool_), Records(rows, labels)
        self.sent, self.state = np.zeros(0), dict[str, Any]()

    def total(
        self,
        part: Callable[[Rows], Floats],
        *,
        at_once: int | None = None,
        prepare: Preparation | None = None,
        exact: bool = False,
    ) -> Floats:
        prepared = () if prepare is None else prepare.once(self.features)
        return np.asarray(part(Rows(self.features, self.labels, self.filled, len(self.features), prepared)), np.float64)

    def contribute(self, value: Floats) -> None:
        self.sent = np.asarray(value, np.float64).reshape(-1)

    def keep(self, name: str, value: Any) -> None:
        self.state[name] = value

    def deliver(self, name: str, value: Any) -> None:
        pass


class CentringSite(BatchSite):
    """A broken twin: a step that sees records less their own mean."""

    def __init__(self, consortium: Consortium, party: str, rows: Floats, labels: NDArray[Any] | None) -> None:
        super().__init__(consortium, party, rows - rows.mean(axis=0), labels)


@dataclass(frozen=True, eq=False)
class BatchStep:
    """A step of a default method. `seen` runs it at a site with a message, and returns a sum over records, or a row for
    each if `single`. `rounding` is how far the bound of the release lets a sum be rounded."""

    name: str
    schema: Schema
    agreement: Agreement
    party: str
    seen: Seen
    messages: Callable[[Floats], Iterator[Any]] = lambda rows: iter([{}])
    single: bool = False
    rounding: float = 0.0


def batch_checks() -> Iterator[Check]:
    for step in batch_steps():
        worst = max(excess(step, size) for size in _SIZES)
        sizes = f"{min(_SIZES)} to {max(_SIZES)} records"
        found = "equal bit by bit" if worst == 0 else f"{worst:.2g} of the rounding that is counted"
        yield Check(f"{step.name}: no record changes the part of another", worst <= 1, f"{found}, {sizes}")


def centring_control() -> Control:
    """Every step that takes numbers, made to centre them first, has to fail the check. Counts take cells."""
    steps = [step for step in batch_steps() if not step.name.startswith("synthetic")]
    least = min(max(excess(step, size, CentringSite) for size in _SIZES) for step in steps)
    return Control("steps that centre on their own rows", least > 1, least, 1.0)


def excess(step: BatchStep, count: int, kind: type[BatchSite] = BatchSite) -> float:
    """How far the parts of n − 1 records and of the last one miss that of all n, over the rounding that is counted."""
    records = encode_batch(step, count)
    labels, worst = records.labels, 0.0

    def run(at: slice, message: Any) -> Floats:
        own = None if labels is None else labels[at]
        with np.errstate(all="ignore"):
            return step.seen(kind(step.agreement.consortium, step.party, records.features[at], own), message)

    for message in step.messages(records.features):
        whole, fewer, last = (run(at, message) for at in (slice(None), slice(-1), slice(-1, None)))
        apart = whole - (np.concatenate([fewer, last]) if step.single else fewer + last)
        distance = float(np.linalg.norm(apart))
        if distance or not np.isfinite(whole).all():
            worst = max(worst, distance / step.rounding if step.rounding and np.isfinite(distance) else np.inf)
    return worst


def encode_batch(step: BatchStep, count: int) -> Records:
    """Records of the study's schema in ten directions at most, which hostile weights can cancel; of all classes."""
    schema, stream = step.schema, Stream.public("audit batch", count)
    names = [column.name for column in schema.columns]
    mixed = stream.normal((count, _LATENT)) @ stream.normal((_LATENT, len(names)))
    frame = pd.DataFrame(mixed / np.abs(mixed).max(), columns=names)
    target = schema.target
    if isinstance(target, Classes):
        frame[target.name] = [target.values[place % len(target.values)] for place in range(count)]
    elif isinstance(target, Bounded):
        frame[target.name] = np.linspace(target.low, target.high, count)
    return encode_records(step.agreement.protocol, frame, step.party, party=step.party)


def batch_steps() -> Iterator[BatchStep]:
    """Every step of a default method whose contribution is a sum over records, or a row for each."""
    numbers = tuple(Numeric(f"x{place}", -1, 1) for place in range(_WIDTH))
    classes, added = Classes("outcome", ("no", "yes")), {**_TERMS, "neighbours": "add-remove"}
    schema = Schema(numbers, classes)
    averaging = Averaging(schema, sizes=200, intercept=False).study(_OWNERS, **added, evaluation={})
    for step, taken in (
        ("second_moment", ()),
        ("whitened_moment", ("whitening",)),
        ("gradient", ("iterate", "whitening")),
        ("calibration", ("iterate",)),
    ):
        yield _step_of("averaging", averaging, step, "ash", partial(_descents, averaging.agreement, taken))
    yield BatchStep(
        "averaging, evaluation",
        schema,
        averaging.agreement,
        "ash",
        partial(_evaluated, averaging.agreement),
        lambda rows: ({"model": one["iterate"]} for one in _descents(averaging.agreement, ("iterate",), rows)),
    )
    linear = Averaging(Schema(numbers, Bounded("outcome", -1, 1)), sizes=200, intercept=False)
    yield _step_of("averaging, linear", linear.study(_OWNERS, **added), "moments", "ash")
    few = Schema(numbers[:4], classes)
    synthetic = Synthetic(few).study(_OWNERS, **added)
    yield _step_of("synthetic", synthetic, "measure", "ash", release="narrow")
    openings = partial(_openings, synthetic.agreement)
    yield _step_of("synthetic", synthetic, "count_measured", "ash", openings, release="counts")
    summary = Summary(few, records=1, sizes=200, deliver="weights")
    bought = summary.study((*_OWNERS, "elm"), consumer="elm", **_TERMS)
    yield _step_of("summary", bought, "moments", "ash")
    yield _step_of("summary", bought, "wish", "elm", partial(_spectra, bought.agreement, False))
    yield _step_of("summary", bought, "weigh", "ash", partial(_spectra, bought.agreement, True), release="mass")
    held = {"ash": [one.name for one in numbers[:-1]] + ["outcome"], "birch": [numbers[-1].name]}
    vertical = Vertical(schema, columns=held).study(tuple(held), **_TERMS)
    for name in ("scores", "instruments"):
        yield BatchStep(
            f"vertical, {name}",
            schema,
            vertical.agreement,
            "ash",
            partial(_by_rows, vertical.agreement, name),
            _rounds,
            single=True,
        )


def _step_of(
    method: str,
    study: Study,
    step: str,
    party: str,
    messages: Callable[[Floats], Iterator[Any]] = lambda rows: iter([{}]),
    release: str = "",
) -> BatchStep:
    agreement = study.agreement

    def seen(site: BatchSite, message: Any) -> Floats:
        getattr(agreement.protocol, step)(site, **message)
        return site.sent

    declared = agreement.declaration[release or step].bound
    rounding = declared.l2 - declared.moved if isinstance(declared, RecordSum) else 0.0
    return BatchStep(f"{method}, {step}", study.schema, agreement, party, seen, messages, rounding=rounding)


def _evaluated(agreement: Agreement, site: BatchSite, message: Any) -> Floats:
    RecordEvaluation(agreement.protocol).evaluate(cast(Any, site), **message)
    return site.sent


def _by_rows(agreement: Agreement, name: str, site: BatchSite, message: Any) -> Floats:
    """Scores or instruments of each record, as a round multiplies them with other parties' columns."""
    protocol = cast(Any, agreement.protocol)
    rounds = protocol.secure_rounds
    units = rounds.features(protocol.design.matrix(site.records, site.party), site.party)
    if name == "scores":
        found = rounds.scores(units, site.party, message["weights"], message["interval"])[:, None]
    else:
        found = rounds.instruments(units, site.party, message["whitening"])
    return np.asarray(found, np.float64)


# Messages.


def _hostile(rows: Floats) -> Iterator[tuple[float, Floats, Floats]]:
    """A scale, ten directions at most, and weights: long, cancelled by these rows, too small to square."""
    width, stream = rows.shape[1], Stream.public("audit messages", len(rows))
    span = np.linalg.svd(rows, full_matrices=False)[2][: min(_LATENT, width, len(rows))]
    across = np.asarray(stream.normal((width,)), np.float64)
    across -= (across @ span.T) @ span
    yield 1e30, span, 1e25 * across + 1e9 * span[0]
    yield 2.0**30, span, np.asarray(2.0**29 * across / max(float(np.abs(across).max()), 1e-300))
    yield 1e26, 1e22 * stream.normal((min(_LATENT, width), width)), 1e30 * np.resize([1.0, -1.0, 1e-12], width)
    yield 5e-324, np.full((1, width), 5e-324), np.full(width, 5e-324)
    yield 3.0, 0.9 * span, np.asarray(stream.normal((width,)), np.float64)


def _descents(agreement: Agreement, names: tuple[str, ...], rows: Floats) -> Iterator[dict[str, Floats]]:
    protocol = agreement.protocol
    assert isinstance(protocol, AveragingProtocol)
    for scale, directions, weights in _hostile(rows):
        factors = np.zeros((protocol.whitenings, 1 + _LATENT * rows.shape[1]))
        factors[:, 0] = scale
        factors[:, 1 : 1 + directions.size] = directions.ravel()
        every = {"whitening": factors, "iterate": np.resize(weights, protocol.shape)}
        yield {name: every[name] for name in names}


def _spectra(agreement: Agreement, weigh: bool, rows: Floats) -> Iterator[dict[str, Any]]:
    protocol = agreement.protocol
    assert isinstance(protocol, OneShotSummary)
    features = protocol.features(agreement.consortium)(rows)
    for scale, directions, _ in _hostile(features):
        axes, variances = np.zeros((features.shape[1], MAX_RANK)), np.zeros(MAX_RANK)
        axes[:, : len(directions)] = directions.T
        variances[: len(directions)] = scale**-2 if scale > 1 else 1e-300
        spectrum = {"mean": features.mean(axis=0), "axes": axes, "variances": variances}
        ratio = {"ratio": np.resize([1.0, scale, -scale], 1 + MAX_RANK)} if weigh else {}
        yield {"spectrum": spectrum, **ratio}


def _openings(agreement: Agreement, rows: Floats) -> Iterator[dict[str, Floats]]:
    """Narrow counts from which edges follow: as they may be, and numbers that no count can be."""
    (cells,) = agreement.declaration["narrow"].shape
    for _, _, weights in _hostile(rows):
        yield {"opened": np.resize(weights, cells)}
    yield {"opened": np.resize([np.nan, np.inf, -np.inf, 1e300], cells)}


def _rounds(rows: Floats) -> Iterator[dict[str, Floats]]:
    """On a wide interval a score of many digits goes round the circle: its last ones decide where it ends."""
    width = rows.shape[1]
    for scale, directions, weights in _hostile(rows):
        long = max(1.0, min(1e15, float(np.abs(weights).max())))
        yield {
            "weights": long * np.resize([0.3, -1.0, 0.7], _WIDTH + 1),
            "interval": np.array([0.5, 1e18]),
            "whitening": np.resize(scale * directions, (_WIDTH, width)),
        }
