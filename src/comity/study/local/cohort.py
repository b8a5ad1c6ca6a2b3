"""Simulation of very many parties: the same step bodies on stacks of parties, with the memory of one stack.

Masks are left out, because they cancel: the same quantised, noised integers are summed that real sites would send. The
result says so. All parties of a cohort spend alike: one ledger stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords
from comity.data.exact_sums import MAX_BLOCK_ROWS, ExactSum
from comity.data.records import stack_records
from comity.errors import Malformed, Refused
from comity.federation.coordinator.delivery import KeptValues, opened_sum
from comity.federation.coordinator.parties import Parties, Progress
from comity.federation.coordinator.released import Total, check_released, perturb
from comity.federation.coordinator.transcript import Line, Transcript
from comity.federation.declare.bounds import OpenedValue, Range
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.plausibility import require_plausible, require_ranges
from comity.federation.declare.protection import Entrusted, Summed
from comity.federation.messages.codec import decode, encode
from comity.federation.owner.prepared_rows import Preparation
from comity.federation.owner.rows import Rows
from comity.federation.part import spec_of
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Ledger
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import NoiseSource

# Contributions of one stack, or what a step holds on the way to them, take at most this much memory.
STACK_BYTES = 32 << 20
# No stack has more parties: what a step computes on the way stays small too.
STACK_PARTIES = 512


class Stack:
    """Takes the place of a `Site`: features (B, n, d), labels (B, n), filled (B, n). `contribute` adds up, before any
    noise: the cohort draws it for each party."""

    def __init__(
        self,
        release: Release,
        consortium: Consortium,
        features: NDArray[np.float64],
        labels: NDArray[Any],
        filled: NDArray[np.bool_],
        local: Callable[..., Any] | None = None,
    ) -> None:
        self.consortium = consortium
        self.local = local
        self.features = features
        self.labels = labels
        self.filled = filled
        self._release = release
        self.units: NDArray[np.int64] | None = None

    def total(
        self,
        part: Callable[[Rows], NDArray[np.float64]],
        *,
        at_once: int | None = None,
        prepare: Preparation | None = None,
        exact: bool = False,
    ) -> NDArray[np.float64]:
        """The total of each party of the stack. Exact sums are of blocks of records that are not too long for them;
        others are of one block."""
        prepared = () if prepare is None else prepare.once(self.features)
        whole = Rows(self.features, self.labels, self.filled, prepared=prepared)
        length = self.features.shape[-2]
        if not exact or length <= MAX_BLOCK_ROWS:
            return part(whole)
        starts = range(0, length, MAX_BLOCK_ROWS)
        parts = (part(whole.some(slice(start, start + MAX_BLOCK_ROWS))) for start in starts)
        return ExactSum.total(map(ExactSum.of, parts)).value()

    def contribute(self, value: NDArray[np.float64] | None = None) -> None:
        release, shape, stacked = self._release, self._release.shape, self.features.ndim == 3
        count = len(self.features) if stacked else 1
        if value is None:
            value = np.broadcast_to(release.bounded.neutral(shape), (count, *shape))
        if np.shape(value) != ((count, *shape) if stacked else shape):
            raise Malformed(f"{release.name}: declared {shape}, found {np.shape(value)}", code="form")
        bounded = release.bounded.enforce(np.asarray(value, np.float64), shape).reshape(count, *shape)
        quantised = np.rint(bounded * (1.0 / release.spacing(self.consortium)))
        # Sums of fewer than 2^53 units are exact in doubles, and several times faster than in integers.
        exact = count * release.bounded.limit / release.spacing(self.consortium) < 2**52
        self.units = quantised.sum(axis=0).astype("<i8") if exact else quantised.astype("<i8").sum(axis=0)

    def deliver(self, name: str, value: Any) -> None:
        raise Refused(f"{name}: parties in a stack keep no results; use at most 1,000", code="no-step")


Block = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]
Blocks = Callable[[int], Iterable[Block]]


def stack_parties(records: Sequence[LocalRecords], most: int) -> Iterator[Block]:
    """Stacks of at most so many parties."""
    for start in range(0, len(records), most):
        yield stack_records(records[start : start + most])


class Cohort:
    """Takes the place of `Parties`. `blocks(most)` yields stacks of at most `most` parties, in order, and is called
    once per round: nothing of a party is kept. `known` is for repeats over the same records: the first run stores the
    sums that depend on these alone, before noise, and the others reuse them."""

    def __init__(
        self,
        protocol: Protocol,
        consortium: Consortium,
        *,
        blocks: Blocks,
        noise: NoiseSource,
        ledger: Ledger,
        study: str,
        run: str,
        progress: Progress | None = None,
        local: Callable[..., Any] | None = None,
        known: dict[str, tuple[NDArray[np.int64], int]] | None = None,
    ) -> None:
        self.protocol = protocol
        self._local = local
        self._known = known
        self.consortium = consortium
        self.declaration: Declaration = protocol.accepted(consortium)
        self.ledger = ledger
        self._blocks = blocks
        self._noise = noise
        self._progress = progress
        self._run = run
        self._counts: dict[str, int] = {}
        self._once: dict[str, Any] = {}
        self._lines: list[Line] = []
        self._kept = KeptValues()
        draws = self.declaration.draws(next(iter(consortium.parties)), consortium)
        with ledger.transaction() as transaction:
            transaction.reserve(
                study=study, run=run, draws=draws, unit=consortium.unit, neighbours=consortium.neighbours
            )

    def execute(self) -> dict[str, Any]:
        """Run the protocol over the cohort and close the run: what it releases, checked against its declaration."""
        # A cohort answers `sum`, `require`, `perturb` and `once` as `Parties` does; a method that asks single parties
        # needs hosts.
        values = check_released(self.protocol.coordinate(cast(Parties, self)), self.declaration, self.consortium, {})
        self.ledger.close(self._run)
        return values

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        spec = spec_of(step, self.consortium)
        if spec.sends is None or not spec.stacked:
            raise Refused(f"{spec.name} does not run on stacks of parties; use at most 1,000 parties", code="no-step")
        release = self.declaration[spec.sends]
        if isinstance(release.bound, OpenedValue):
            raise Refused(f"{release.name} is a share: it needs real sites, at most 1,000", code="no-step")
        index = self._next(release)
        with self.ledger.transaction() as transaction:
            transaction.draw(run=self._run, release=release.name, index=index, step=f"{spec.name}[{index}]")
        path = f"{spec.name}[{index}]"
        if values or self._known is None:
            units, count = self._add_up(step, release, path, values)
        else:
            if path not in self._known:
                self._known[path] = self._add_up(step, release, path, values)
            units, count = self._known[path]
        units = self._add_noise(release, units, count)
        self._lines.append(Line(path, "to parties", count, 0, ""))
        self._lines.append(Line(path, "to coordinator", count, count * units.nbytes, ""))
        total = np.asarray(units * release.spacing(self.consortium), np.float64)
        require_plausible(release, self.consortium, total, count)
        self._kept.add_exchange(self.declaration, self.declaration, path, values, {}, {})
        self._kept.add(release, path, opened_sum(total, count))
        return Total(total, count)

    def _add_up(
        self, step: Callable[..., Any], release: Release, path: str, values: dict[str, Any]
    ) -> tuple[NDArray[np.int64], int]:
        """The sum of all parties' quantised contributions, and how many parties there are."""
        numbers = max(int(np.prod(release.shape)), self.protocol.scratch)
        most = max(1, min(STACK_PARTIES, STACK_BYTES // (8 * numbers)))
        units, count = np.zeros(release.shape, "<i8"), 0
        for features, labels, filled in self._blocks(most):
            stack = Stack(release, self.consortium, features, labels, filled, self._local)
            step(stack, **values)
            if stack.units is None:
                raise Refused(f"{path.partition('[')[0]} contributed nothing", code="undeclared")
            units += stack.units
            count += len(features)
            if self._progress is not None:
                self._progress(f"{path} {count}/{self.consortium.size}")
        return units, count

    def _add_noise(self, release: Release, units: NDArray[np.int64], parties: int) -> NDArray[np.int64]:
        """Add the noise that each of the parties draws."""
        if isinstance(release.protection, Entrusted):
            return units
        noise, scale = release.noise, release.scale(self.consortium)
        assert noise is not None
        part = isinstance(release.protection, Summed)
        for _ in range(parties):
            permit = simulated_permit(release.name)
            units = units + noise.draw(self._noise, scale, release.shape, permit=permit, part=part)
        return units

    def require(self, name: str, parties: int, ranges: Iterable[Range]) -> None:
        require_ranges(self.declaration[name], self.consortium, parties, ranges)

    @property
    def kept(self) -> dict[str, Any]:
        """What was released on the way, by release, as its receivers got it."""
        return self._kept.values(self.declaration)

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        release = self.declaration[name]
        index = self._next(release)
        noisy = perturb(release, index, value, self.consortium, self._noise, self.once)
        self._kept.add(release, f"{name}[{index}]", noisy)
        return noisy

    def _next(self, release: Release) -> int:
        index = self._counts.get(release.name, -1) + 1
        self._counts[release.name] = index
        return index

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._once:
            self._once[name] = decode(encode(make()))
        return self._once[name]

    @property
    def transcript(self) -> Transcript:
        return Transcript(tuple(self._lines))
