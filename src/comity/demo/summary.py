"""A summary in the demonstration: a consumer buys pictures of even digits from archives that have all of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from comity.data import Encoding, Records
from comity.data.public.digits import SIDE, digit_pictures, digit_schema
from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown, row_of
from comity.entropy import Stream
from comity.federation.baseline import Baseline
from comity.federation.coordinator.parties import Progress
from comity.methods.summary import OneShotSummary
from comity.methods.summary.baselines import accuracy
from comity.methods.summary.features import width
from comity.methods.summary.herding import herd_towards
from comity.report.result import Result
from comity.study.results.outcome import Outcome
from comity.study.simulation.simulate import simulate

NAME = "summary"
METHODS = ("one-shot",)
EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
# Odd and even pictures of each owner.
OWNERS = {"ashford": (2000, 1500), "birkdale": (2500, 500), "calder": (2500, 500), "dunmore": (2500, 500)}
CONSUMER, WISHED, PUBLIC, TESTED, BOUGHT = "newtown", 400, 150, 600, 100
# Each repeat is a run with masks and ledgers.
WHOLE_RUNS = 2
SAVED_EPSILON, GRANT = 1.0, 3.0


def demonstrate(folder: Path, said: Progress, repeats: int) -> Shown:
    """Summaries at every ε, and one run without a seed in `folder`."""
    said("summary: drawing pictures")
    encoding = Encoding(digit_schema(), scaling="unit")
    held, test = archives(encoding), pictures(encoding, TESTED, "demo, summary test", EVEN, tested=True)
    public = encoding.encode_features(digit_pictures(PUBLIC, "demo, summary public"))
    method = OneShotSummary(
        columns=encoding.width,
        gamma=width(public),
        sizes={name: len(records) for name, records in held.items()},
        records=BOUGHT,
        labels="<i8",
        width_from=f"by {PUBLIC} public records",
        image=(SIDE, SIDE),
        encoding=encoding,
    )
    run = partial(simulate, method, parties=held, delta=DELTA, unit="record", roles=roles(), results=False)
    rows = []
    levels = compared(held, test, method.gamma)
    for epsilon in EPSILONS:
        said(f"summary: error against epsilon {epsilon:g}")
        seeds = range(min(repeats, WHOLE_RUNS))
        errors = [wrong(run(epsilon=epsilon, seed=seed), test, method.gamma) for seed in seeds]
        rows.append(row_of(NAME, "pictures", METHODS[0], epsilon, errors, levels))
    said("summary: one run without a seed")
    result = Result.of(
        run(
            epsilon=SAVED_EPSILON,
            test=test,
            grant=GRANT,
            study="demo pictures",
            settings={"privacy.unit": "record", "privacy.epsilon": SAVED_EPSILON, "privacy.delta": DELTA},
        )
    )
    result.save(folder)
    return _shown(tuple(rows), result, min(repeats, WHOLE_RUNS))


def _shown(rows: tuple[Row, ...], result: Result, repeats: int) -> Shown:
    about = (
        f"{len(OWNERS)} archives hold {sum(map(sum, OWNERS.values())):,} small pictures of digits, most of them odd; a "
        f"consumer with {WISHED} even ones buys {BOUGHT} that look like its own. A linear classifier that saw nothing "
        f"else is tested on {TESTED} other even ones. Own data: {BOUGHT} pictures of one archive at random; pooled: "
        "the choice that sees all pictures."
    )
    return Shown(
        NAME,
        "Summaries",
        "records of many owners that match a consumer's, by a private density ratio (after Sarpatwar et al. 2019)",
        "a record, replaced",
        METHODS,
        (Case("pictures", about, rows),),
        NOTES,
        f"{repeats} draws of the noise, a whole run each",
        result,
        figure="MMD² to the consumer's records",
    )


NOTES = (
    "Owners and consumer learn of each other what noisy moments tell. The pictures that are bought are real ones: "
    "towards curator and consumer there is no differential privacy for them, and a site's policy must allow it.",
)


def roles() -> dict[str, tuple[str, ...]]:
    return {"owner": tuple(OWNERS), "consumer": (CONSUMER,)}


def pictures(encoding: Encoding, count: int, label: str, digits: tuple[int, ...], *, tested: bool = False) -> Records:
    return encoding.encode(digit_pictures(count, label, digits=digits, tested=tested), where=label).records


def archives(encoding: Encoding) -> dict[str, Records]:
    found = {}
    for name, (odd, even) in OWNERS.items():
        parts = [
            pictures(encoding, count, f"demo, summary {name} {kind}", digits)
            for count, kind, digits in ((odd, "odd", ODD), (even, "even", EVEN))
        ]
        labels = np.concatenate([np.asarray(part.labels) for part in parts])
        found[name] = Records(np.concatenate([part.features for part in parts]), labels)
    return {**found, CONSUMER: pictures(encoding, WISHED, "demo, summary consumer", EVEN)}


def wrong(outcome: Outcome, test: Records, gamma: float) -> float:
    """Share of test records that a classifier of the summary gets wrong."""
    bought = outcome.presented
    return 1 - (accuracy(bought.rows, bought.labels, test, gamma) or 0.0)


def compared(held: dict[str, Records], test: Records, gamma: float) -> list[Baseline]:
    """The most frequent class of the consumer's kind, an owner's own pictures at random, the choice that sees all."""
    owners = [held[name] for name in OWNERS]
    rows = np.concatenate([records.features for records in owners])
    labels = np.concatenate([np.asarray(records.labels) for records in owners])
    stream = Stream.public("demo, summary baselines")
    alone = []
    for records in owners:
        some = stream.permutation(len(records))[:BOUGHT]
        alone.append(1 - (accuracy(records.features[some], np.asarray(records.labels)[some], test, gamma) or 0.0))
    best = herd_towards(rows, held[CONSUMER].features, BOUGHT, gamma)
    share = np.bincount(np.asarray(test.labels)).max() / len(test)
    return [
        Baseline("constant", float(1 - share)),
        Baseline("own data", fmean(alone)),
        Baseline("pooled", 1 - (accuracy(rows[best], labels[best], test, gamma) or 0.0)),
    ]
