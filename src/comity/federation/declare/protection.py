"""Protections: how a released value is protected, and what the plan says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from comity.privacy.loss import Loss
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.scale import Scale
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True)
class Summed:
    """Masked at the site. Only the sum is opened, with every party's part of the noise in it."""

    noise: Noise
    text: ClassVar[str] = "secure sum + shared noise"


@dataclass(frozen=True)
class Noised:
    """The site adds all of the noise before the value leaves."""

    noise: Noise
    text: ClassVar[str] = "noised at the site"


@dataclass(frozen=True)
class Selected(Noised):
    """Every party draws noise for its secret size and is charged. One party's draw is selected under encryption and is
    opened only together with the value, in additive shares."""

    text: ClassVar[str] = "in additive shares, with the noise of one party; nobody learns which"


class Mechanism(Protocol):
    """Turns a party's values into something that may leave, under one permit and for one debit, however often it draws.

    `charged` holds for all values and all draws, as long as one unit moves the values by at most `sensitivity`, in the
    sense that the mechanism states. The calling step ensures that.
    """

    @property
    def name(self) -> str: ...

    @property
    def charged(self) -> Loss: ...

    @property
    def sensitivity(self) -> float: ...

    def check(self, values: Any) -> None:
        """Refuse values that it can't run on, before anything is debited or drawn."""
        ...

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> Any:
        """What may leave."""
        ...


@dataclass(frozen=True)
class Computed:
    """Computed privately at the site: a choice, a table, a whole algorithm. Only the result leaves, or nothing where
    the receiver is the party itself."""

    mechanism: Mechanism

    @property
    def text(self) -> str:
        return f"computed at the site by {self.mechanism.name}"


@dataclass(frozen=True)
class Entrusted:
    """Sent in clear to a coordinator that is trusted to add noise before it releases anything. The party pays when it
    sends."""

    noise: Noise
    text: ClassVar[str] = "in clear to the coordinator, which is trusted to add noise"


@dataclass(frozen=True)
class EntrustedRounds:
    """Sent in clear, round after round, to a coordinator that is trusted to release nothing of it but the private
    releases that it `pays_for`.

    `loss` is what a unit loses by all of those in all rounds together, however many it takes part in. The party pays it
    whole in the first round: whether it takes part later may depend on its records, so that may not decide the price.
    """

    loss: Loss
    pays_for: tuple[str, ...]

    @property
    def text(self) -> str:
        made = ", ".join(self.pays_for)
        return f"in clear to the coordinator, which is trusted to release only {made}; one loss for all rounds"


@dataclass(frozen=True)
class Curated:
    """Computed privately by the trusted coordinator from what was entrusted to it, anew each time."""

    mechanism: Mechanism
    of: str

    @property
    def text(self) -> str:
        return f"made from {self.of} by the coordinator, with {self.mechanism.name}"


@dataclass(frozen=True)
class Perturbed:
    """Made by the trusted coordinator from an entrusted release, with new noise each time."""

    noise: Noise
    of: str

    @property
    def text(self) -> str:
        return f"made from {self.of}, noised by the coordinator"


@runtime_checkable
class Correlated(Protocol):
    """Noise of a trusted coordinator, planned for all its `rounds` together: a draw depends on those before."""

    @property
    def rounds(self) -> int: ...

    def draw_next(
        self, source: NoiseSource, scale: Scale, shape: tuple[int, ...], *, permit: Permit, state: Any
    ) -> tuple[NDArray[np.int64], Any]:
        """This round's noise, and the state for the next round: values that the codec takes, journalled with the
        result. `state` is None before the first round."""
        ...


@dataclass(frozen=True)
class Sealed:
    why: str

    @property
    def text(self) -> str:
        return f"sealed end to end; the receiver sees {self.why}"


@dataclass(frozen=True, init=False)
class Derived:
    """Made from the releases `of` by a participant that has them, and from nothing else that is private."""

    of: tuple[str, ...]

    def __init__(self, *of: str) -> None:
        if not of:
            raise ValueError("a derived release names what it is made from")
        object.__setattr__(self, "of", of)

    @property
    def text(self) -> str:
        *most, last = self.of
        return f"made from {', '.join(most)} and {last}" if most else f"made from {last}"


@dataclass(frozen=True)
class Public:
    why: str

    @property
    def text(self) -> str:
        return f"public: {self.why}"


@dataclass(frozen=True)
class Disclosed:
    """Leaves exactly as it is. `policy` names the key of a site's policy that must allow it, and `most` is the largest
    number of values that leave, where the policy limits it. `sealed` values can be read by their receiver only."""

    why: str
    policy: str
    most: int = 0
    sealed: bool = False

    @property
    def text(self) -> str:
        return f"EXACT, no privacy: {self.why} (needs policy.{self.policy})" + "; sealed" * self.sealed


Protection = (
    Summed
    | Noised
    | Computed
    | Entrusted
    | EntrustedRounds
    | Perturbed
    | Curated
    | Sealed
    | Derived
    | Public
    | Disclosed
)
