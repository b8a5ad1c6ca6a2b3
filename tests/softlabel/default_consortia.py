"""Small consortia for the default protocol: every statistic, hosts with the secure sum, stacks, and the plain sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from comity.data import Records
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.owner.host import Host
from comity.learn.local_models import LocalModel, linear_votes, local_votes
from comity.methods.softlabel.method import SoftLabel, SoftLabelProtocol
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Loss
from comity.study.local.cohort import Cohort, stack_parties
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, WatchedJournal, make_host, make_identity, make_open_ledger, make_roster
from tests.support.noise import NoNoise

from .consortia import labels

NAMES = ("ash", "bay", "elm", "fir", "gum", "oak", "sal", "yew")
STATISTICS = ("votes", "histograms", "class-sums", "cells", "models")
WIDTH = 4
RUN = "run-1"


def centres(classes: int) -> np.ndarray:
    return np.random.default_rng(21).normal(size=(classes, WIDTH))


def clusters(classes: int, rows: int, seed: int) -> Records:
    """Records around one centre per class, every class held by anyone with as many records as classes."""
    generator = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    return Records((centres(classes)[y] + 0.5 * generator.normal(size=(rows, WIDTH))) / 6, y.astype(np.int64))


def filled(classes: int, parties: int = 5, rows: int = 24) -> list[Records]:
    """Parties of different sizes."""
    return [clusters(classes, rows + place, seed=place) for place in range(parties)]


def soft(statistic: Any = "votes", classes: int = 3, *, rows: int = 60, **more: Any) -> SoftLabelProtocol:
    return SoftLabel.over_rows(
        auxiliary=clusters(classes, rows, seed=99).features,
        classes=labels(classes),
        statistic=statistic,
        sizes=more.pop("sizes", 24),
        local_l2=more.pop("local_l2", 1e-2),
        **more,
    )


def empty() -> Records:
    return Records(np.zeros((0, WIDTH)), np.zeros(0, np.int64))


def make_consortium(parties: int = 5, loss: Loss | None = None, *, dropouts: int = 0, colluders: int = 1) -> Consortium:
    names = NAMES[:parties]
    return Consortium(
        parties=names,
        loss=loss or Approx(60, 1e-6),
        colluders=colluders,
        dropouts=dropouts,
        roster=make_roster(names),
    )


def host_parties(
    protocol: SoftLabelProtocol,
    records: Sequence[Records | Callable[[], Records]],
    *,
    consortium: Consortium | None = None,
    models: Mapping[str, LocalModel] | None = None,
    lose: Iterable[tuple[str, str]] = (),
    study: str = STUDY,
) -> tuple[Parties, dict[str, Host]]:
    """The coordinator's side over real hosts, without noise."""
    consortium = consortium or make_consortium(len(records))
    hosts = {
        name: make_host(
            Agreement(study, protocol, consortium),
            name,
            own,
            make_open_ledger(name, consortium),
            noise=NoNoise(),
            local=(models or {}).get(name),
        )
        for name, own in zip(consortium.parties, records)
    }
    return coordinator(protocol, consortium, hosts, WatchedJournal(), lose, study), hosts


def coordinator(
    protocol: SoftLabelProtocol,
    consortium: Consortium,
    hosts: Mapping[str, Host],
    journal: Journal,
    lose: Iterable[tuple[str, str]] = (),
    study: str = STUDY,
) -> Parties:
    channel = LossyChannel(hosts, lose)
    agreement = Agreement(study, protocol, consortium)
    return Parties(agreement, run=RUN, channel=channel, journal=journal, keys=make_identity(COORDINATOR), noise=None)


def make_cohort(
    protocol: SoftLabelProtocol, records: Sequence[Records], *, consortium: Consortium | None = None, most: int = 3
) -> Cohort:
    """The same parties, in stacks of `most`."""
    consortium = consortium or make_consortium(len(records))
    return Cohort(
        protocol,
        consortium,
        blocks=lambda allowed: stack_parties(list(records), min(allowed, most)),
        noise=NoNoise(),
        ledger=Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours),
        study=STUDY,
        run=RUN,
    )


def contribution(
    protocol: SoftLabelProtocol, consortium: Consortium, own: Records, model: LocalModel | None = None
) -> np.ndarray:
    """What one party has to say, in the statistic's own units, worked out without a host."""
    statistic, count = protocol.choice(consortium).statistic, len(protocol.classes)
    present, y = np.ones(len(own), bool), np.asarray(own.labels)
    votes = None
    if statistic.needs == "votes":
        if model is None:
            votes = linear_votes(own.features, y, present, protocol.auxiliary, count, protocol.local_l2)
        else:
            votes = local_votes(model, own.features, y, protocol.auxiliary, count)
    return statistic.contribution(own.features, y, present, votes)


def quantise(protocol: SoftLabelProtocol, consortium: Consortium, value: np.ndarray) -> np.ndarray:
    """The integers that are masked: bounded, and put on the grid of the release."""
    release = protocol.declare(consortium)[protocol.choice(consortium).statistic.name]
    return np.rint(release.bounded.enforce(value, release.shape) / release.spacing(consortium)).astype(np.int64)


def sum_plainly(
    protocol: SoftLabelProtocol,
    consortium: Consortium,
    records: Sequence[Records],
    models: Mapping[str, LocalModel] | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """What is released when the integers of `names` are added up in one place."""
    given = dict(zip(consortium.parties, records))
    summed = [
        quantise(protocol, consortium, contribution(protocol, consortium, given[name], (models or {}).get(name)))
        for name in names or consortium.parties
    ]
    statistic = protocol.choice(consortium).statistic
    mean: Any = sum(summed) * protocol.declare(consortium)[statistic.name].spacing(consortium) / len(summed)
    deviation = protocol.deviation(consortium, len(summed))
    out = {"model": statistic.model(mean, deviation)}
    if statistic.name == "histograms":
        out["soft_labels"] = cast(Any, statistic).soft_labels(mean, deviation)
    return out
