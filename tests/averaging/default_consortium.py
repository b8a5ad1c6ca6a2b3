"""Small consortia for the default of averaged models: made records, exact sums, plain computations to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from comity.data import Records
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.host import Host
from comity.federation.protocol import Protocol
from comity.methods.averaging import Averaging, AveragingProtocol, descent
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Loss
from comity.privacy.unit import Neighbours, Unit
from tests.support.consortia import NAMES, STUDY, make_host, make_open_ledger, make_parties, make_roster
from tests.support.noise import NoNoise

KINDS = ("logistic", "svm", "softmax", "linear")


def make_records(
    kind: str, sizes: tuple[int, ...] = (60, 40, 30, 50, 20), width: int = 4, seed: int = 0
) -> dict[str, Records]:
    """Parties whose target follows a linear rule, with rows in the unit ball."""
    generator = np.random.default_rng(seed)
    rule = generator.normal(size=(3, width))
    out = {}
    for name, size in zip(NAMES, sizes):
        x = generator.normal(size=(size, width))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        scores = x @ rule.T + 0.1 * generator.normal(size=(size, 3))
        if kind == "linear":
            y = np.clip(scores[:, 0], -3, 3)
        elif kind == "softmax":
            y = scores.argmax(1)
        else:
            y = (scores[:, 0] > 0).astype(np.int64)
        out[name] = Records(x, y)
    return out


def protocol(kind: Any = "logistic", records: dict[str, Records] | None = None, **options: Any) -> AveragingProtocol:
    records = records or make_records(kind)
    classes = {"softmax": ("a", "b", "c"), "linear": ()}.get(kind, ("0", "1"))
    options.setdefault("sizes", {name: len(own) for name, own in records.items()})
    width = next(iter(records.values())).features.shape[1]
    return Averaging.over_rows(features=width, model=kind, classes=classes, low=-3.0, high=3.0, **options)


def make_consortium(
    loss: Loss | None = None, *, parties: int = 5, dropouts: int = 0, neighbours: str = "replace"
) -> Consortium:
    names = NAMES[:parties]
    return Consortium(
        parties=names,
        loss=loss or Approx(1.0, 1e-5),
        unit=Unit.RECORD,
        neighbours=Neighbours(neighbours),
        colluders=1 if parties > 1 else 0,
        dropouts=dropouts,
        roster=make_roster(names),
    )


def parties(
    built: Protocol,
    records: dict[str, Records],
    consortium: Consortium,
    *,
    lose: tuple[tuple[str, str], ...] = (),
    noise: Any = None,
    folder: Any = None,
    hosts: dict[str, Host] | None = None,
) -> tuple[Parties, dict[str, Host]]:
    agreement = Agreement(STUDY, built, consortium)
    if hosts is None:
        hosts = {}
        for name in consortium.parties:
            ledger = make_open_ledger(name, consortium) if folder is None else _open_or_create(folder, name, consortium)
            hosts[name] = make_host(agreement, name, records[name], ledger, noise=noise or NoNoise())
    return make_parties(agreement, hosts, folder, lose=lose), hosts


def _open_or_create(folder: Any, name: str, consortium: Consortium) -> Ledger:
    path = folder / f"{name}.ledger"
    if path.exists():
        return Ledger(path)
    terms: dict[str, Any] = {"dataset": name, "unit": consortium.unit, "neighbours": consortium.neighbours}
    return Ledger.create(path, grant=Approx(5, 1e-5), **terms)


def whitening_in_one_place(built: Any, consortium: Any, rows: Any, records: int, before: Any) -> Any:
    """The matrix of the whitening after one more look, found again: eigenvalues that noise does not explain, less what
    noise adds to them, are brought down to a tenth of all, and all rows to a mean square of 1."""
    seen = rows @ before.T
    seen = seen / np.maximum(1, np.linalg.norm(seen, axis=1, keepdims=True))
    release = built.declare(consortium)["second_moment"]
    spread = release.opened_deviation(consortium)
    values, axes = np.linalg.eigh(seen.T @ seen)
    variance = len(values) * spread**2 / 2
    lengths = np.zeros(len(values))
    clear = values > np.sqrt(2 * len(values)) * spread
    own = (values[clear] + np.sqrt(values[clear] ** 2 - 4 * variance)) / 2
    lengths[clear] = own - variance / own
    rest = max((seen**2).sum() - lengths.sum(), 2 * spread)
    highest = rest + lengths.sum()
    level = brentq(lambda one: one - 0.1 * (rest + np.minimum(lengths, one).sum()), 0, highest)
    shorter = np.where(lengths > level, np.sqrt(level / np.maximum(lengths, 1e-12)), 1.0)
    left = rest + np.minimum(lengths, level).sum()
    return max(1.0, np.sqrt(records / left)) * (axes * shorter) @ axes.T @ before


def ridge_in_one_place(built: Any, consortium: Any, matrices: Any) -> Any:
    """The ridge that stands for the noise, found again: r = 12·noise·√(directions that it leaves standing), of those
    eigenvalues that the noise of the second moment does not explain; or 1.2·noise·√(features) if that is less."""
    budget, declared = built.budget(consortium), built.declare(consortium)
    wider = descent.shared_noise_factor(consortium)
    noise = declared["gradient"].sensitivity / np.sqrt(float(budget.gradient.square) * budget.rounds) * wider
    release = declared["second_moment"]
    scale = release.scale(consortium)
    spread = release.deviation(scale) * scale.grid * wider
    values = [np.linalg.eigvalsh(matrix) for matrix in matrices]
    own = np.concatenate([one[one > np.sqrt(2 * len(one)) * spread] for one in values])
    strengths = built.objective.step_curvature(built.clip_norm(consortium)) / 2 * built.touched_blocks * own

    def standing(r: float) -> float:
        return float(max(1.0, (strengths / (strengths + r)).sum()))

    found = brentq(lambda r: r - 12 * noise * np.sqrt(standing(r)), 1e-12, 12 * noise * (1 + np.sqrt(len(own))))
    return min(found, 1.2 * noise * np.sqrt(built.features))


def factor_in_one_place(built: Any, records: Any, consortium: Any, weights: Any, present_in: Any) -> float:
    """How much surer the model is made, found again: the posterior mean of a logarithm that is supposed to be 0 ± 0.3,
    from sums whose slopes are differences of them."""
    if built.model not in ("logistic", "softmax"):
        return 1.0
    deviation = built.declare(consortium)["calibration"].opened_deviation(consortium)
    log, variance, ends = 0.0, 0.3**2, (-0.3, 1.0, 0.25) if built.model == "logistic" else (-0.8, 1.2, 0.5)
    for number in range(2):
        held = [records[name] for name in present_in(built.round_count(consortium) + number)]
        x, y = np.concatenate([one.features for one in held]), np.concatenate([one.labels for one in held])
        scores = x @ weights.T * np.exp(log)
        along = scores / np.maximum(1, np.linalg.norm(scores, axis=1, keepdims=True))

        def pull(more: float, scores: Any = scores, along: Any = along, y: Any = y) -> Any:
            return (built.objective.residual(scores * np.exp(more), built.scale_targets(y)) * along).sum(1)

        growth = float(np.minimum((pull(1e-5) - pull(-1e-5)) / 2e-5, ends[2]).sum())
        gain = variance * growth / (variance * growth**2 + deviation**2 * (1 + variance))
        log -= gain * float(np.clip(pull(0.0), *ends[:2]).sum())
        variance *= 1 - gain * growth
    return float(np.exp(log))
