"""What leaves where gradients are summed, and where local models are. Sensitivities: proof.md, 2 to 4."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.methods.averaging import calibration
from comity.methods.averaging.moment_blocks import entries, moved
from comity.methods.averaging.objectives import TOLERANCE
from comity.methods.averaging.sizes import HEADROOM, largest
from comity.methods.averaging.whitening import Whitening
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Neighbours

if TYPE_CHECKING:
    from comity.methods.averaging.protocol import Averaging


def of_gradients(method: Averaging, who: Consortium) -> tuple[Release, ...]:
    """Second moments of rows as they are and as they are whitened, gradients round by round, how sure the model is, and
    what these are taken at: the whitening and the iterates."""
    budget = method.budget(who)
    most = HEADROOM * largest(method.sizes)
    replaced, cut = who.neighbours is Neighbours.REPLACE, method.cut(who)
    moment = Release(
        name="second_moment",
        source=EVERY_PARTY,
        to=COORDINATOR,
        protection=Summed(Gaussian(budget.second_moment)),
        form=Array((entries(method.blocks),), "<i8"),
        bound=RecordSum(moved(replaced=replaced), moved(replaced=False) * most, most),
    )
    return (
        moment,
        *((replace(moment, name="whitened_moment", times=method.looks),) if method.looks else ()),
        Release(
            name="whitening",
            source=COORDINATOR,
            to=EVERY_PARTY,
            protection=Derived("second_moment", *(("whitened_moment",) if method.looks else ())),
            form=Array(Whitening.none(method.features).factors.shape),
            times=method.looks + budget.rounds,
        ),
        Release(
            name="gradient",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(budget.gradient)),
            form=Array(method.shape, "<i8"),
            bound=RecordSum(cut * (2 if replaced else 1), cut * most, most),
            times=budget.rounds,
        ),
        *(() if budget.calibration is None else (_calibration(method, budget.calibration, most, replaced=replaced),)),
        Release(
            name="iterate",
            source=COORDINATOR,
            to=EVERY_PARTY,
            protection=Derived(*made_of(method)),
            form=Array(method.shape),
            times=budget.rounds + method.asks,
        ),
    )


def made_of(method: Averaging) -> tuple[str, ...]:
    """What weights of a descent come from."""
    return ("gradient", "calibration") if method.asks else ("gradient",)


def _calibration(method: Averaging, loss: GDP, most: int, *, replaced: bool) -> Release:
    """Sensitivity: proof.md, 8."""
    limits = calibration.limits(method.objective)
    return Release(
        name="calibration",
        source=EVERY_PARTY,
        to=COORDINATOR,
        protection=Summed(Gaussian(loss)),
        form=Array((2,), "<i8"),
        bound=RecordSum(limits.moved(replaced=replaced), limits.moved(replaced=False) * most, most),
        times=method.asks,
    )


def of_models(method: Averaging, who: Consortium) -> tuple[Release, ...]:
    """Local models weighted by public sizes, once."""
    l2, most = method.penalty(who), largest(method.sizes)
    noise = Spherical(who.loss) if isinstance(who.loss, Pure) else Gaussian(gaussian_budget(who.loss))
    radius = method.objective.radius(l2)
    apart = min(method.objective.diameter(l2) / l2 + most * 2 * TOLERANCE / l2, 2 * most * radius)
    return (
        Release(
            name="models",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(noise),
            form=Array(method.shape, "<i8"),
            bound=RecordSum(apart, most * radius),
        ),
    )
