"""Protections: how a released value is guarded on its way, and what the plan says about it."""

from __future__ import annotations

from dataclasses import dataclass

from comity.privacy.mechanisms import Noise


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


@dataclass(frozen=True)
class Entrusted:
    """Sent in clear to a coordinator that is trusted to release only what it has perturbed. Sending is paying."""

    noise: Noise

    @property
    def text(self) -> str:
        return "in clear to the coordinator, who is trusted to add noise"


@dataclass(frozen=True)
class Perturbed:
    """Made by the trusted coordinator from an entrusted release, with noise drawn once per run."""

    noise: Noise
    of: str

    @property
    def text(self) -> str:
        return f"made from {self.of}, noised by the coordinator"


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


Protection = Summed | Noised | Entrusted | Perturbed | Sealed | Derived | Public | Disclosed
Debited = Summed | Noised | Entrusted
