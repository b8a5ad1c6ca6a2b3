"""Coordinators that send what makes records show most, instead of what a method would send.

Sensitivities hold for every message that a site accepts. A method's own coordinator sends few of them, and none that
brings a record to the edge of its bound in every release. These do, for the methods whose messages decide how far a
record moves a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.audit.capture import Coordinate
from comity.audit.neighbours import corner_rows
from comity.federation.coordinator.parties import Parties
from comity.federation.part import EVALUATION
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging.method import AveragingProtocol
from comity.methods.averaging.second_moments import Whitening
from comity.methods.summary import OneShotSummary
from comity.methods.summary.protocol import OWNER
from comity.methods.summary.ratio import MAX_RANK, MAX_RATIO
from comity.methods.vertical.curves import WIDEST
from comity.methods.vertical.method import GradientRegression
from comity.privacy.unit import Neighbours
from comity.study.records.encoding import encode_records
from comity.study.study import Study

Floats = NDArray[np.float64]


def hostile_coordinator(study: Study, rows: pd.DataFrame) -> Coordinate | None:
    """The strongest coordinator that we know for this study and neighbours that differ in one of `rows`; None where the
    method's own is."""
    agreement = study.agreement
    protocol, consortium = agreement.protocol, agreement.consortium
    if isinstance(protocol, AveragingProtocol):
        if "gradient" not in {one.name for one in agreement.declaration.releases}:
            return None
        return partial(ask_averages, _wrong_rows(study, protocol, rows))
    if consortium.evaluation is not None:
        return None
    if isinstance(protocol, OneShotSummary):
        ends = corner_rows(study.schema, 2)
        encoded = encode_records(protocol, ends, "corners", party=consortium.among(OWNER)[0])
        return partial(ask_on_an_axis, protocol.features(consortium)(encoded.features))
    if isinstance(protocol, GradientRegression) and protocol.makes_rounds(consortium):
        return ask_wrong_scores
    return None


@dataclass(frozen=True, eq=False)
class WrongRows:
    """Weights and whitenings under which two rows show most. `iterate` scores both as the other class, so residuals are
    as large as the clip allows. `whitening` maps both to one point of the sphere, where their gradients are opposite.
    At `calibration` one is as wrong as can be, and the other is right by as much as counts."""

    iterate: Floats
    whitening: Floats
    calibration: Floats


def _wrong_rows(study: Study, protocol: AveragingProtocol, rows: pd.DataFrame) -> WrongRows:
    """For the two rows of different classes that move second moments furthest: long, and as orthogonal as any."""
    party, longest = study.agreement.consortium.parties[0], Whitening.identity(protocol.features).factors
    longest[:, 0] = 1000.0
    encoded = encode_records(protocol, rows, "neighbours", party=party)
    inside, labels = in_unit_ball(encoded.features), np.asarray(encoded.labels)
    ones, zeros = inside[labels == 1], inside[labels == 0]
    two_classes = int(np.prod(protocol.shape)) == protocol.features and len(ones) > 0 and len(zeros) > 0
    if not two_classes or study.agreement.consortium.neighbours is not Neighbours.REPLACE:
        far = np.full(protocol.shape, -1000.0)
        # Several classes: at weights of zero every class is equally wrong.
        return WrongRows(far if two_classes else np.zeros(protocol.shape), longest, far)
    # |aaᵀ − bbᵀ|² = |a|⁴ + |b|⁴ − 2(a·b)².
    moved = np.add.outer((ones**2).sum(axis=1) ** 2, (zeros**2).sum(axis=1) ** 2) - 2 * (ones @ zeros.T) ** 2
    one, zero = np.unravel_index(np.argmax(moved), moved.shape)
    first, second = (row / np.linalg.norm(row) for row in (ones[one], zeros[zero]))
    apart = first - second
    whitening = Whitening(longest).with_stage(0, 1000.0, (apart / np.linalg.norm(apart))[None]).factors
    iterate = -1000.0 * apart
    # Dual to the rows: a score of −1000 for the first, which is wrong, and of −1 for the second, which is right.
    duals = np.linalg.pinv(np.stack([ones[one], zeros[zero]]))
    return WrongRows(
        iterate.reshape(protocol.shape), whitening, (duals @ np.array([-1000.0, -1.0])).reshape(protocol.shape)
    )


def ask_averages(wrong: WrongRows, parties: Parties) -> None:
    """A coordinator of averaging. Whitened moments are asked for under a whitening that leaves directions alone, and
    makes all rows as long as the ball allows."""
    protocol, declaration = parties.protocol, parties.declaration
    assert isinstance(protocol, AveragingProtocol)
    longest = Whitening.identity(protocol.features).factors
    longest[:, 0] = 1000.0
    parties.sum(protocol.second_moment)
    for _ in range(declaration["whitened_moment"].times):
        parties.sum(protocol.whitened_moment, whitening=longest)
    for _ in range(declaration["gradient"].times):
        parties.sum(protocol.gradient, iterate=wrong.iterate, whitening=wrong.whitening)
    for _ in range(protocol.calibrations):
        parties.sum(protocol.calibration, iterate=wrong.calibration)
    if parties.agreement.model_evaluation is not None:
        far = np.full(protocol.shape, -1000.0)
        parties.agreement.model_evaluation.measure(parties.under(EVALUATION), {"model": far})


def ask_on_an_axis(ends: Floats, parties: Parties) -> None:
    """A coordinator of a summary whose spectrum has one axis, between the features of two records, and hardly any
    variance: in the consumer's coordinates a record on either side is as far out as the ball allows. The ratio is 0 on
    one side and the largest on the other."""
    protocol, consortium = parties.protocol, parties.consortium
    assert isinstance(protocol, OneShotSummary)
    axes, variances, ratio = np.zeros((ends.shape[1], MAX_RANK)), np.zeros(MAX_RANK), np.zeros(1 + MAX_RANK)
    away = ends[1] - ends[0]
    axes[:, 0], variances[0] = away / np.linalg.norm(away), 1e-12
    ratio[:2] = MAX_RATIO / 2, 1e6
    spectrum = {"mean": ends.mean(axis=0), "axes": axes, "variances": variances}
    parties.sum(protocol.moments)
    parties.sum(protocol.wish, spectrum=spectrum)
    parties.ask(protocol.weigh, to=consortium.among(OWNER), spectrum=spectrum, ratio=ratio)


def ask_wrong_scores(parties: Parties) -> None:
    """A coordinator of vertical rounds that makes all instruments constant and as long as allowed. Scores follow one
    column alone, up to where the response is largest. Two records of different classes, each scored as the other, then
    move every round by all of its sensitivity."""
    protocol = parties.protocol
    assert isinstance(protocol, GradientRegression)
    rounds, design = protocol.secure_rounds, protocol.design
    protocol.open_moments(parties)
    whitening = {party: np.zeros((width + 1, width)) for party, width in rounds.widths.items()}
    for matrix in whitening.values():
        matrix[-1] = -8.0
    rounds.coordinate_whitening(parties, whitening)
    top = WIDEST.period * int(np.argmax(WIDEST.values)) / len(WIDEST.values)
    scored = next(party for party, width in rounds.widths.items() if width)
    weights = np.zeros(rounds.size)
    weights[rounds.places[scored].start] = 1e6
    intervals = np.array([[0.0, top if party == scored else 0.0] for party in design.parties])
    for number in range(protocol.rounds):
        rounds.coordinate_round(parties, number, weights, intervals)
        parties.sum(protocol.descend)
