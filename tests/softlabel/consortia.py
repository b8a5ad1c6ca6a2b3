"""Small consortia of soft-label parties: worst cases whose numbers are known, and ordinary ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, sqrt
from typing import Any

import numpy as np
from scipy.special import lambertw

from comity.data import Records
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.host import Host
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Loss, Pure
from comity.study.local.cohort import Cohort, stack_parties
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, make_hosts, make_parties, make_roster
from tests.support.noise import NoNoise

NAMES = ("ash", "birch", "cedar", "doum", "elm", "fir", "gum")


def labels(count: int) -> tuple[str, ...]:
    return tuple(f"class {k}" for k in range(count))


def ordinary(classes: int, parties: int = 5, rows: int = 12, width: int = 4, seed: int = 0) -> list[Records]:
    """Clusters around one centre per class, inside the unit ball."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, width))
    out = []
    for _ in range(parties):
        y = generator.integers(0, classes, rows)
        x = centres[y] + 0.7 * generator.normal(size=(rows, width))
        out.append(Records(x / 8, y))
    return out


def auxiliary(rows: int = 20, width: int = 4, seed: int = 9) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(rows, width))
    found: np.ndarray = x / np.linalg.norm(x, axis=1).max()
    return found


def protocol(
    classes: int = 3, method: Any = "soft", *, l2: float = 1e-2, public: Any = None, sensitivity: Any = "tight"
) -> PublishedSoftLabel:
    return SoftLabel.published_over_rows(
        auxiliary=auxiliary() if public is None else public,
        classes=labels(classes),
        method=method,
        l2=l2,
        sensitivity=sensitivity,
    )


def make_consortium(parties: int, loss: Loss | None = None, *, dropouts: int = 0) -> Consortium:
    names = NAMES[:parties]
    return Consortium(
        parties=names,
        loss=loss or Pure(1),
        colluders=0,
        dropouts=dropouts,
        roster=make_roster(names),
    )


def host_parties(
    method: PublishedSoftLabel,
    records: Sequence[Records],
    *,
    consortium: Consortium | None = None,
    noise: Any = None,
    lose: Iterable[tuple[str, str]] = (),
) -> tuple[Parties, dict[str, Host], LossyChannel]:
    """The coordinator's side, the hosts, and a channel that remembers what was asked."""
    consortium = consortium or make_consortium(len(records))
    agreement = Agreement(STUDY, method, consortium)
    hosts = make_hosts(agreement, dict(zip(consortium.parties, records)), noise=NoNoise())
    channel = LossyChannel(hosts, lose)
    return make_parties(agreement, hosts, noise=noise or NoNoise(), channel=channel), hosts, channel


def make_cohort(method: PublishedSoftLabel, records: Sequence[Records], noise: Any = None, most: int = 3) -> Cohort:
    """The same parties, in stacks of `most`."""
    consortium = make_consortium(len(records))
    return Cohort(
        method,
        consortium,
        blocks=lambda allowed: stack_parties(list(records), min(allowed, most)),
        noise=noise or NoNoise(),
        ledger=Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours),
        study=STUDY,
        run="run-1",
    )


def longest_model_l2(classes: int) -> float:
    """The penalty at which a party whose records all are (e1, one class) has a minimiser as long as the norm bound.

    The bound is reached where the winning score leads every other by t = 1 + W0((C − 1)/e); there the minimiser's
    equation l2·W = (label − p) xᵀ fixes l2.
    """
    others = classes - 1
    lead = 1 + float(lambertw(others / np.e).real)
    missing = others * exp(-lead) / (1 + others * exp(-lead))
    # One vector carries the lead itself; rows per class share it, C/(C − 1) of it in the winner and the rest.
    return missing / lead if classes == 2 else missing * classes / (others * lead)


def all_alike(x: float, label: int, rows: int = 2, width: int = 1) -> Records:
    """A party whose records are all x·e1 with one label."""
    features = np.zeros((rows, width))
    features[:, 0] = x
    return Records(features, np.full(rows, label))


ROOT2 = sqrt(2.0)
