"""Protections: how a released value is guarded on its way, and what the plan says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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
    """Masked at the site; only the sum, with every party's part of the noise in it, is opened."""

    noise: Noise

    @property
    def text(self) -> str:
        return "secure sum + shared noise"


@dataclass(frozen=True)
class Noised:
    """Noised at the site in full before it leaves."""

    noise: Noise

    @property
    def text(self) -> str:
        return "noised at the site"


@dataclass(frozen=True)
class Selected(Noised):
    """Every party draws noise for its own secret size and is charged; one party's draw is selected under encryption and
    opened with the value alone, in additive shares."""

    @property
    def text(self) -> str:
        return "in additive shares, with the noise of one party that nobody knows"


class Mechanism(Protocol):
    """Turns a party's values into something that may leave, under one permit and for one debit, however often it draws.

    `charged` holds whatever the values are and whatever is drawn on the way, as long as one unit moves them by at most
    `sensitivity`, in the sense that the mechanism states; the step that calls it sees to that.
    """

    @property
    def name(self) -> str: ...

    @property
    def charged(self) -> Loss: ...

    @property
    def sensitivity(self) -> float: ...

    def check(self, values: Any) -> None:
        """Refuses values that it can't run on, before anything is debited or drawn."""
        ...

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> Any:
        """What may leave."""
        ...


@dataclass(frozen=True)
class Computed:
    """A choice, a table, a whole algorithm: computed privately at the site, of which only the result leaves it, or not
    even that where its receiver is the party itself."""

    mechanism: Mechanism

    @property
    def text(self) -> str:
        return f"computed at the site by {self.mechanism.name}"


@dataclass(frozen=True)
class Entrusted:
    """Sent in clear to a coordinator that is trusted to release only what it has perturbed. Sending is paying."""

    noise: Noise

    @property
    def text(self) -> str:
        return "in clear to the coordinator, who is trusted to add noise"


@dataclass(frozen=True)
class EntrustedRounds:
    """Sent in clear, round after round, to a coordinator that is trusted to release only what it makes privately of all
    of them: the releases that it `pays_for`.

    `loss` is what a unit loses by all of those together in all rounds, in however many it takes part. It is paid whole
    with the first round: whether a party is heard later may depend on its records, and so may not decide what it pays.
    """

    loss: Loss
    pays_for: tuple[str, ...]

    @property
    def text(self) -> str:
        made = ", ".join(self.pays_for)
        return f"in clear to the coordinator, trusted to release {made} alone; one loss for all rounds"


@dataclass(frozen=True)
class Curated:
    """Computed privately by the trusted coordinator from what was entrusted to it, once for each of its times."""

    mechanism: Mechanism
    of: str

    @property
    def text(self) -> str:
        return f"made from {self.of}, by {self.mechanism.name} of the coordinator"


@dataclass(frozen=True)
class Perturbed:
    """Made by the trusted coordinator from an entrusted release, with noise drawn once for each of its times."""

    noise: Noise
    of: str

    @property
    def text(self) -> str:
        return f"made from {self.of}, noised by the coordinator"


@runtime_checkable
class Correlated(Protocol):
    """Noise of a trusted coordinator, laid out over all its `rounds` together: a draw depends on those before."""

    @property
    def rounds(self) -> int: ...

    def draw_next(
        self, source: NoiseSource, scale: Scale, shape: tuple[int, ...], *, permit: Permit, state: Any
    ) -> tuple[NDArray[np.int64], Any]:
        """This round's noise, and what the next round must know of it: values that the codec takes, journalled with
        the result. None before the first round."""
        ...


@dataclass(frozen=True)
class Sealed:
    why: str

    @property
    def text(self) -> str:
        return f"sealed end to end; the receiver sees {self.why}"


@dataclass(frozen=True, init=False)
class Derived:
    """Made by whoever holds the releases `of`, from nothing else that is private."""

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
    """Leaves exactly as it is. `policy` names the key of a site's policy that must allow it, and `most` is how many
    values leave at most, where the policy limits their number. `sealed` values are for their receiver's eyes alone."""

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
