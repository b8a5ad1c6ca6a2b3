"""A site as one step sees it: data, the way out, memory between steps. All effects wait for the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.bounds import Opened
from comity.federation.codec import decode, encode
from comity.federation.consortium import Consortium
from comity.federation.declaration import Release
from comity.federation.effects import Effects
from comity.federation.letters import Head, seal, seal_in_common
from comity.federation.protection import Entrusted, Sealed, Selected, Summed

if TYPE_CHECKING:
    from comity.federation.host import Host


class Site:
    """What one step may use. `label` is the index of this ask; `dims` are the public sizes that the run has learnt."""

    def __init__(self, host: Host, study: str, run: str, path: str, sends: str | None, label: str) -> None:
        self._host = host
        self._study = study
        self._run = run
        self._path = path
        self._sends = sends
        self.label = label
        self.party = host.party
        self.consortium: Consortium = host.who
        self.effects = Effects()
        self.contribution: NDArray[np.int64] | None = None
        self.contributed = False
        self.dims: Mapping[str, int] = _Dimensions(self)

    # The owner's records.

    @property
    def records(self) -> Records:
        return self._host.records

    @property
    def features(self) -> NDArray[np.float64]:
        return self.records.features

    @property
    def labels(self) -> NDArray[Any]:
        if self.records.labels is None:
            raise Refused(f"{self.party} holds no labels", code="stopped")
        return self.records.labels

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which rows are records rather than padding: all of them at a real site."""
        return np.ones(len(self.records), bool)

    @property
    def local(self) -> Callable[..., Any] | None:
        """The owner's own model, where it gave one; without it a protocol uses its built-in classifier."""
        return self._host.local

    # Towards the coordinator.

    def contribute(self, value: NDArray[np.float64] | None = None, *, share: NDArray[np.uint64] | None = None) -> None:
        """Bound, put on the grid, debit, add this party's noise; then it leaves as the declaration says.

        None is the neutral contribution of a party that has nothing to say. `share` is a share of a value that exists
        nowhere in whole; it is on the grid already.
        """
        if self._sends is None or self.contributed:
            raise Refused(f"{self._path} contributes nothing, or a second time", code="undeclared")
        release = self._host.declaration[self._sends]
        shape, index = release.shape, int(self.label)
        if isinstance(release.bound, Opened):
            if share is None or share.shape != shape:
                raise Malformed(f"{release.name}: a share of shape {shape} was declared", code="form", key=release.name)
            units = share.astype("<u8").view("<i8")
        else:
            if value is None:
                value = release.bounded.neutral(shape)
            if np.shape(value) != shape:
                found = np.shape(value)
                raise Malformed(f"{release.name}: declared {shape}, found {found}", code="form", key=release.name)
            bounded = release.bounded.enforce(np.asarray(value, np.float64), shape)
            units = np.rint(bounded / release.spacing(self.consortium)).astype("<i8")
        # Whatever can be wrong is found before the draw is noted: from there on there is no way back.
        scale = None if isinstance(release.protection, Entrusted) else release.scale(self.consortium)
        permit = self.effects.draw(release.name, index)
        self.contributed = True
        if scale is not None:
            noise = release.noise
            assert noise is not None
            part = isinstance(release.protection, Summed)
            units = units + noise.draw(self._host.noise, scale, shape, permit=permit, part=part)
        if isinstance(release.protection, Summed):
            self.keep(f"out:{release.name}/{index}", units << np.int64(64 - release.ring))
        else:
            self.contribution = units

    def draw(self, name: str, *, sensitivity: float) -> NDArray[np.int64]:
        """The noise of a release that is selected under encryption, in grid units; drawing it is the debit.

        Its scale is this party's own secret, because `sensitivity` depends on how many records it has; the declared
        sensitivity is the largest that there can be. The noise may leave this step only encrypted or shared.
        """
        release = self._host.declaration[name]
        noise = release.noise
        if not isinstance(release.protection, Selected) or noise is None:
            raise Refused(f"{name} is not declared with noise that is selected", code="undeclared", key=name)
        if not 0 < sensitivity <= release.sensitivity:
            raise Refused(f"{name}: a sensitivity of at most {release.sensitivity} was declared", code="stopped")
        scale = noise.scale(sensitivity=sensitivity, shape=release.shape, grid=release.grid)
        permit = self.effects.draw(release.name, 0)
        return noise.draw(self._host.noise, scale, release.shape, permit=permit)

    # Towards another party.

    def send(self, to: str, name: str, value: Any) -> None:
        """Seal a declared value to a party's pinned key and sign it; the coordinator relays it with the next ask."""
        self._check_sealed([to], name, value)
        head = Head(self._study, self._run, self._path, self.party, to, name)
        self.effects.mail.append(seal(self._host.keys, self._host.identity_of(to), head, encode(value)))

    def send_all(self, receivers: Iterable[str], name: str, value: Any) -> None:
        """`send` to several parties, for a value so large that it should be encrypted, relayed and journalled once."""
        heads = {to: Head(self._study, self._run, self._path, self.party, to, name) for to in receivers}
        self._check_sealed(heads, name, value)
        identities = {to: self._host.identity_of(to) for to in heads}
        letters, box = seal_in_common(self._host.keys, identities, heads, encode(value))
        self.effects.mail += letters
        self.effects.boxes.append(box)

    def _check_sealed(self, receivers: Iterable[str], name: str, value: Any) -> None:
        release = self._host.declared(self._path)[name]
        for to in receivers:
            release.check(value, self.party, to, self.consortium, self.dims)
        if not isinstance(release.protection, Sealed):
            raise Refused(f"{name} is not declared as sealed", code="undeclared", key=name)

    def received(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """What other parties sent under a declared name in this run, by sender."""
        asked = self.consortium.parties if senders is None else senders
        found = ((party, self.kept(f"in:{name}/{party}")) for party in asked)
        return {party: value for party, value in found if value is not None}

    def take(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """`received`, once: what is taken is gone with this step, and is not even stored if it came with its ask."""
        found = self.received(name, senders)
        for party in found:
            self.forget(f"in:{name}/{party}")
        return found

    # Between steps of a run.

    def keep(self, name: str, value: Any) -> None:
        self.effects.state[name] = encode(value)

    def forget(self, name: str) -> None:
        self.effects.state[name] = None

    def kept(self, name: str, default: Any = None) -> Any:
        state = self.effects.state
        raw = state[name] if name in state else self._host.store.state(self._run, name)
        return default if raw is None else decode(raw)

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

    # The life of a run.

    def sums(self) -> tuple[str, ...]:
        return self._host.declaration.sums()

    def release(self, name: str) -> Release:
        return self._host.declaration[name]

    def public_stream(self, *purpose: str | int) -> Stream:
        """Public randomness of this run, the same at every participant."""
        return Stream.public(self._study, self._run, *purpose)

    def ledger_head(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        """The head of the ledger's chain, signed; `seen` is one that this site gave out before, or empty. Without the
        signature anyone could show a made-up head, and a ledger that does not know a head freezes."""
        if seen["head"]:
            self._host.keys.public.verify(seen["signature"], encode(["ledger head", self.party, seen["head"]]))
        head = self._host.store.ledger_head(seen["head"])
        return {"head": head, "signature": self._host.keys.sign(encode(["ledger head", self.party, head]))}

    def reserve(self) -> None:
        self._host.permit_run(self._study, self._run)
        self.effects.reserve = True

    def close(self) -> None:
        self.effects.close = True


class _Dimensions(Mapping[str, int]):
    def __init__(self, site: Site) -> None:
        self._site = site

    def __getitem__(self, name: str) -> int:
        value = self._site.kept(f"dim:{name}")
        if value is None:
            raise KeyError(name)
        return int(value)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the dimensions of a run are looked up by name")

    def __len__(self) -> int:
        raise TypeError("the dimensions of a run are looked up by name")
