"""Published methods, attacked: what each loses at least, beside the corrected loss that its plan prints.

A claim of a paper that is smaller than the corrected loss is false, and a control: the attack must exceed it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from comity.audit.bound import epsilon_of_event
from comity.audit.cases import LINE, PLANE
from comity.audit.claim import Effort, measure_claim
from comity.audit.row import Claim, Control
from comity.audit.shift import Shift
from comity.data import Numeric, Schema
from comity.federation.agreement import Agreement
from comity.methods.averaging import Averaging
from comity.methods.averaging.published.method import PublishedAveraging
from comity.methods.synthetic import Synthetic
from comity.methods.synthetic.published.method import PublishedSynthetic
from comity.privacy.mechanisms.sarpatwar import STEPS, MeanWeights
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise

_EPSILON = 1.0
PUBLISHED = 5
"""How many claims `published_claims` makes."""


def corrected_loss(agreement: Agreement) -> float:
    """The ε that a plan prints for whoever sees what the method releases, rounded up; the first of its true losses."""
    first = agreement.protocol.true_losses(agreement.consortium)[0]
    found = re.search(r"eps ([0-9.]+)", first.true)
    assert found is not None, first
    return float(found.group(1))


def published_claims(effort: Effort, confidence: float) -> Iterator[Claim]:
    """Each at this confidence: methods whose noise meets the value under encryption, or inside a tree."""
    # Noise that is drawn vector by vector takes most of the time, and wide margins need few draws.
    effort = replace(effort, pure_draws=effort.pure_draws // 3, spherical_draws=effort.spherical_draws // 3)
    yield _averaged(effort, confidence, noise="spherical", parties=3, width=1, group=12)
    yield _averaged(effort, confidence, noise="literal", parties=2, width=36, group=48)
    yield _trees(effort, confidence, neighbours="add-remove")
    yield _trees(effort, confidence, neighbours="replace")
    yield _weights_of_the_auction(effort, confidence)


def _averaged(effort: Effort, confidence: float, *, noise: str, parties: int, width: int, group: int) -> Claim:
    """A party whose records are all replaced by their opposites. All parties have as many: then the noise, which that
    of the smallest is, is as narrow as it can be beside one record's part."""
    names = tuple(f"p{place}" for place in range(parties))
    schema = Schema(tuple(Numeric(f"x{place}", -1, 1) for place in range(width)), LINE.target)
    method = Averaging(
        schema,
        variant="published",
        l2=20.0,
        noise=cast(Any, noise),
        scaling="scaled",
        bins=True,
        intercept=False,
    )
    agreement = method.study(names, epsilon=_EPSILON, neighbours="replace").agreement
    protocol, consortium = agreement.protocol, agreement.consortium
    assert isinstance(protocol, PublishedAveraging)
    rows = np.full((group, width), width**-0.5)

    def model(label: int) -> NDArray[np.int64]:
        site: Any = SimpleNamespace(
            features=rows, labels=np.full(group, label), consortium=consortium, party=consortium.parties[0]
        )
        return protocol.model(site)

    release, drawn = agreement.declaration["noise"], protocol.noise_for(consortium)
    assert release.noise is not None
    scale = release.noise.scale(sensitivity=drawn.sensitivity(group), shape=release.shape, grid=release.grid)
    moved = model(1) - model(0)
    name = f"averaging, published, {noise} noise"
    claim = measure_claim(
        name,
        [Shift("noise", release.noise, scale, 1, width, moved)],
        claimed=corrected_loss(agreement),
        delta=0.0,
        group=group,
        view=protocol.true_losses(consortium)[0].to,
        pair=f"{group} records replaced together, all that a party has",
        effort=effort,
        confidence=confidence,
    )
    return _beside_the_paper(claim, _EPSILON)


def _trees(effort: Effort, confidence: float, *, neighbours: str) -> Claim:
    """The three mechanisms of a tree on tables that a group moves by all of their sensitivity: in every level the
    scores of a node, in the leaves and in the counted levels one count for each record that is added or removed.

    All draws are independent, so bounds add up. Those of equal tables have one distribution and count together.
    """
    started, group = time.perf_counter(), 32
    method = Synthetic(
        PLANE,
        variant="published",
        depth=8,
        candidates=10,
        levels=4,
        leaves=20000,
        labelling="vote",
        consistency=True,
        l2=1e-4,
        seed=0,
    )
    agreement = method.study(("ash", "birch"), epsilon=_EPSILON, neighbours=neighbours).agreement
    protocol = agreement.protocol
    assert isinstance(protocol, PublishedSynthetic)
    budget, draws = protocol.budget(agreement.consortium), effort.pure_draws
    # A record that is replaced leaves one node and enters another, in every level but the root.
    nodes = 2 if budget.replaced else 1
    each = 1 - (1 - confidence) / 3

    def bound(views: list[NDArray[np.bool_]]) -> float:
        far, near = (int(view.sum()) for view in views)
        return epsilon_of_event(hits=near, hits_other=far, draws=draws, confidence=each)

    def draw(mechanism: Any, table: list[int]) -> NDArray[np.int64]:
        tables = np.tile(np.array(table), (draws, 1))
        return np.asarray(mechanism.run(ReleasedNoise(), tables, permit=simulated_permit("tree")))

    # The other threshold is far ahead: then the weight of the first hardly counts in the sum, and its probability
    # moves by nearly the factor of its weight.
    ahead = 4 * group
    choice = bound([draw(budget.choice, [own, ahead]) == 0 for own in (0, group)])
    leaf = bound([draw(budget.leaves, [own]) >= group for own in (0, group)])
    count = bound([draw(budget.counts, [own]) >= group for own in (0, group)])
    times = (nodes * (budget.depth - 1), nodes, nodes * (budget.levels - nodes))
    lost = float(np.dot(times, (choice, leaf, count))) / group
    weight = 1 / budget.choice.scale.total / budget.choice.scale.grid
    chances = [1 / (1 + exp((ahead - own) * weight)) for own in (0, group)]
    exact = [log(chances[1] / chances[0]) / group, 1 / budget.leaves.scale.total, 1 / budget.counts.scale.total]
    claim = Claim(
        name=f"synthetic, published, records {'replaced' if budget.replaced else 'added'}",
        claimed=corrected_loss(agreement),
        measured=lost,
        design=float(np.dot(times, exact)),
        delta=0.0,
        view=protocol.true_losses(agreement.consortium)[0].to,
        pair=f"{group} records whose tables differ by all of their sensitivity",
        group=group,
        draws=draws,
        seconds=time.perf_counter() - started,
    )
    return _beside_the_paper(claim, _EPSILON)


def _weights_of_the_auction(effort: Effort, confidence: float) -> Claim:
    """One iteration of the auction's weights over eight coordinates. Records that are replaced raise the first and
    lower the others, so the first is chosen more often; the one that is chosen is measured as well."""
    started, group, printed, width = time.perf_counter(), 3, 1 / 6, 8
    mechanism = MeanWeights(epsilon=printed, iterations=1, dimensions=width, sensitivity=2.0, concentrated=False)
    draws, records, step = effort.spherical_draws, 4 * group, 2 * group * STEPS

    def count(first: int, others: int) -> int:
        """How often the first coordinate is chosen and measured as at least what the neighbour has."""
        values = (np.array([first, *[others] * (width - 1)], np.int64), np.zeros(width), records)
        found = 0
        for _ in range(draws):
            weights = mechanism.run(ReleasedNoise(), values, permit=simulated_permit("weights"))[1]
            found += bool(2 * records * STEPS * weights[0] >= step - 0.5)
        return found

    far, near = count(0, 2 * step), count(step, step)
    # The choice has e^(2Δε) for infinitely many coordinates; the measurement has e^(Δε). Here Δ = 2.
    choice = np.log((1 + (width - 1) * np.exp(4 * group * printed)) / width)
    lost = epsilon_of_event(hits=near, hits_other=far, draws=draws, confidence=confidence) / group
    claim = Claim(
        name="weights of the auction, published",
        claimed=float(cast(Any, mechanism.charged).epsilon),
        measured=lost,
        design=float(choice) / group + 2 * printed,
        delta=0.0,
        view="the curator and the owners, who see the weights",
        pair=f"{group} records replaced together",
        group=group,
        draws=draws,
        seconds=time.perf_counter() - started,
    )
    return _beside_the_paper(claim, printed)


def _beside_the_paper(claim: Claim, printed: float) -> Claim:
    """Where the corrected loss exceeds the printed one, the attack has to show it."""
    if claim.claimed <= printed:
        return claim
    false = Control(f"{claim.name}: the paper's epsilon", claim.measured > printed, claim.measured, printed)
    return replace(claim, controls=(*claim.controls, false))
