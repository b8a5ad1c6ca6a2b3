"""What a step knows of its run, and what steps of a run keep for each other. All effects wait for the commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from comity.entropy import Stream, derive, fresh_seed
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.release import Release
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.paths import StepPath
from comity.federation.owner.effects import Effects

if TYPE_CHECKING:
    from comity.federation.owner.host import Host


class Memory:
    """`label` is the index of this ask; `dims` are the public sizes that the run has learnt. What steps of one part of
    the records keep is not seen by those of the other."""

    def __init__(self, host: Host, run: str, path: StepPath) -> None:
        self._host = host
        self._study = host.agreed.study
        self._run = run
        self._path = path
        self._aside = host.agreed.is_holdout(path.mount)
        self.label = path.label
        self.party = host.party
        self.consortium: Consortium = host.agreed.consortium
        self.effects = Effects()
        self.dims: Mapping[str, int] = _Dimensions(self)

    @property
    def run(self) -> str:
        return self._run

    def sums(self) -> tuple[str, ...]:
        return self._host.agreed.declaration.sums()

    def release(self, name: str) -> Release:
        return self._host.agreed.declaration[name]

    def public_stream(self, *purpose: str | int) -> Stream:
        """Public randomness of this run, the same at every participant."""
        return Stream.public(self._study, self._run, *purpose)

    def keep(self, name: str, value: Any) -> None:
        self.effects.state[of_part(name, aside=self._aside)] = encode(value)

    def forget(self, name: str) -> None:
        self.effects.state[of_part(name, aside=self._aside)] = None

    def kept(self, name: str, default: Any = None) -> Any:
        raw = self._raw(name)
        return default if raw is None else decode(raw)

    def _raw(self, name: str) -> bytes | None:
        return self._stored(of_part(name, aside=self._aside))

    def _stored(self, name: str) -> bytes | None:
        state = self.effects.state
        return state[name] if name in state else self._host.store.state(self._run, name)

    # Secrets and signatures, bound to the study and the run.

    def secret(self) -> bytes:
        return fresh_seed()

    def seed(self, secret: bytes, *label: str | int) -> bytes:
        return derive(secret, self._study, self._run, *label)

    def sign(self, *what: Any) -> bytes:
        return self._host.keys.sign(encode([self._study, self._run, *what]))

    def verify(self, party: str, signature: bytes, *what: Any) -> None:
        self._host.identity_of(party).verify(signature, encode([self._study, self._run, *what]))

    def context(self, *what: Any) -> bytes:
        return encode([self._study, self._run, *what])


def of_part(name: str, *, aside: bool) -> str:
    """Where a part's steps keep a value; what belongs to the run has one place."""
    return f"aside:{name}" if aside and not name.startswith("run:") else name


class _Dimensions(Mapping[str, int]):
    """Looked up when they are needed: most steps need none."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __getitem__(self, name: str) -> int:
        value = self._memory.kept(f"dim:{name}")
        if value is None:
            raise KeyError(name)
        return int(value)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the dimensions of a run are looked up by name")

    def __len__(self) -> int:
        raise TypeError("the dimensions of a run are looked up by name")
