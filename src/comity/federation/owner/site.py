"""A site as one step sees it: data, the way out, memory between steps. All effects wait for the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import derive
from comity.errors import BadInput, Malformed, Refused, Stopped
from comity.federation.declare.bounds import Opened
from comity.federation.declare.consortium import COORDINATOR, ITSELF
from comity.federation.declare.protection import Computed, Entrusted, EntrustedRounds, Selected, Summed
from comity.federation.declare.release import Release, is_release_name
from comity.federation.messages.codec import encode
from comity.federation.messages.delivered import OWN
from comity.federation.messages.paths import StepPath
from comity.federation.owner.mailbox import Mailbox
from comity.federation.owner.rows import Rows

if TYPE_CHECKING:
    from comity.data import LocalRecords, Records
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")

PARTS = "run:parts"
"""Where the key is kept by which the run sets records aside."""
_RECORDS = "run:records"


class Site(Mailbox):
    """What a step of a method may use."""

    def __init__(self, host: Host, run: str, path: StepPath, sends: str | None) -> None:
        super().__init__(host, run, path)
        self._sends = sends
        # What leaves under the name of the release that the step sends.
        self.contribution: Any = None
        self.contributed = False

    # The owner's records.

    @property
    def records(self) -> LocalRecords:
        """The records that this step may see. Where the study has an evaluation they are those of the step's part, and
        no others: what a release of one part costs rests on it. The run is bound to them from here on."""
        digest = self._host.records_digest
        if digest is not None and self._stored(_RECORDS) is None:
            self.effects.state[_RECORDS] = digest.encode()
        if self.consortium.evaluation is None:
            return self._host.records
        return self._host.part_of_records(self._parts_key(), aside=self._aside)

    def require_same_records(self) -> None:
        """A step that ran is not run again, so that a site which starts again with other records would mix what it made
        of the old ones with what it makes of these. Found before the step, so that it costs nothing; for others it is a
        stop like any other."""
        bound = self._stored(_RECORDS)
        if bound is not None and bound.decode() != self._host.records_digest:
            raise Stopped(
                f"run {self._run} began with other records than are there now; put them back, or end the run: comity "
                f"site end {self._run}",
                key="data",
            )

    def _parts_key(self) -> bytes:
        measuring = self._host.agreed.measuring
        if measuring is not None and measuring.common:
            return derive(self._study.encode(), "set aside")
        key: bytes | None = self.kept(PARTS)
        if key is None:
            raise Refused("this run has set no records aside here, because it has not begun", code="unreserved")
        return key

    def total(self, part: Callable[[Rows], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Σ `part(rows)` over blocks of this owner's records, which need not fit into memory; over one block where they
        are there already.

        `part` bounds each record by itself, since nothing is promised about where blocks begin. Every record is in one
        block of one pass. What goes wrong while they are read is a stop that the owner sees, whatever the bound of the
        release: it is no failed fit that may be answered neutrally.
        """
        found: NDArray[np.float64] | None = None
        records = self.records
        for block in self._blocks(records):
            one = part(Rows(block.features, block.labels, np.ones(len(block), np.bool_), len(records)))
            # A sum of its own: what a part hands back may be the block itself, which the next one overwrites.
            found = np.array(one) if found is None else np.add(found, one, out=found)
        assert found is not None
        return found

    def _blocks(self, records: LocalRecords) -> Iterator[Records]:
        try:
            yield from records.blocks()
        except BadInput as error:
            raise Refused(str(error), code="stopped") from error
        except (Exception, SystemExit):
            # A driver's text may hold a path or a password.
            log.exception("%s: the records can't be read", self.party)
            raise Refused("the records can't be read; the log of this site says why", code="stopped") from None

    @property
    def features(self) -> NDArray[np.float64]:
        try:
            return self.records.features
        except BadInput as error:
            # More records than fit into memory are no failed fit, to be answered neutrally and paid for.
            raise Refused(str(error), code="stopped") from error

    @property
    def labels(self) -> NDArray[Any]:
        if self.records.labels is None:
            raise Refused(f"{self.party} holds no labels", code="stopped")
        return self.records.labels

    @property
    def filled(self) -> NDArray[np.bool_]:
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
        release = self._host.agreed.declaration[self._sends]
        self._require_source(release)
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
        in_clear = isinstance(release.protection, Entrusted | EntrustedRounds)
        scale = None if in_clear else release.scale(self.consortium)
        permit = None
        if not isinstance(release.protection, EntrustedRounds):
            permit = self.effects.draw(release.name, index)
        elif self.kept(_paid(release.name)) is None:
            self.effects.draw(release.name, 0)
            self.keep(_paid(release.name), True)
        self.contributed = True
        if scale is not None and permit is not None:
            noise = release.noise
            assert noise is not None
            part = isinstance(release.protection, Summed)
            units = units + noise.draw(self._host.noise, scale, shape, permit=permit, part=part)
        if isinstance(release.protection, Summed):
            # Where the secure sum looks for it, whichever part it is of.
            self.effects.state[f"out:{release.name}/{index}"] = encode(units << np.int64(64 - release.ring))
        else:
            self.contribution = units

    def compute(self, values: Any, *, name: str | None = None) -> Any:
        """Run the mechanism of a computed release on this party's values; what it found.

        One debit, noted before anything is drawn, covers all that the mechanism draws. What the step `sends` leaves
        with the reply. A release whose receiver is the party itself stays, under its `name`, for later steps
        (`computed`). The same ask again finds the same result.
        """
        name = name or self._sends or ""
        release, index = self._host.agreed.declaration[name], int(self.label)
        protection, stays = release.protection, release.to == ITSELF
        leaves = name == self._sends and not self.contributed
        if not isinstance(protection, Computed) or not (stays or leaves):
            raise Refused(f"{self._path} computes no {name}, or a second time", code="undeclared", key=name)
        self._require_source(release)
        if index >= release.times or (name, index) in self.effects.draws:
            raise Refused(f"{self._path}: {name} is computed more often than declared", code="too-often", key=name)
        protection.mechanism.check(values)
        permit = self.effects.draw(name, index)
        result = protection.mechanism.run(self._host.noise, values, permit=permit)
        release.check(result, self.party, self.party if stays else COORDINATOR, self.consortium, self.dims)
        if stays:
            self.keep(_computed(name, index), result)
        else:
            self.contribution, self.contributed = result, True
        return result

    def _require_source(self, release: Release) -> None:
        """This party is a source of the release, and the release is of the part of the records that this step reads,
        whatever a method says of it."""
        if (release.name in self._host.agreed.declaration.holdout) != self._aside:
            raise Refused(f"{self._path} does not see the records of {release.name}", code="undeclared")
        if not self.consortium.includes(release.source, self.party):
            raise Refused(f"{release.name} does not come from {self.party}", code="undeclared", key=release.name)

    def computed(self, name: str, index: int = 0) -> Any:
        """What an earlier step, or this one, computed for the party itself."""
        return self.kept(_computed(name, index))

    def draw(self, name: str, *, sensitivity: float) -> NDArray[np.int64]:
        """The noise of a release that is selected under encryption, in grid units; drawing it is the debit.

        Its scale is this party's own secret, because `sensitivity` depends on how many records it has; the declared
        sensitivity is the largest that there can be. The noise may leave this step only encrypted or shared.
        """
        release = self._host.agreed.declaration[name]
        noise = release.noise
        if not isinstance(release.protection, Selected) or noise is None:
            raise Refused(f"{name} is not declared with noise that is selected", code="undeclared", key=name)
        self._require_source(release)
        if not 0 < sensitivity <= release.sensitivity:
            raise Refused(f"{name}: a sensitivity of at most {release.sensitivity} was declared", code="stopped")
        scale = noise.scale(sensitivity=sensitivity, shape=release.shape, grid=release.grid)
        permit = self.effects.draw(release.name, 0)
        return noise.draw(self._host.noise, scale, release.shape, permit=permit)

    # Towards this owner.

    def deliver(self, name: str, value: Any) -> None:
        """Leave a value with this party's owner, in its own results, and nowhere else: no ask or reply carries it.

        What a party makes for itself (its own model, trained on what was shared) is not released, so that its name is
        none of the declared ones. It is delivered once: the same again is no harm, another value is refused.
        """
        declared = {release.name for release in self._host.agreed.declaration.releases}
        if name in declared or not is_release_name(name):
            raise Refused(f"{name!r} can't be delivered: a plain name that no release has was expected", code="form")
        raw = encode(value)
        before = self.effects.delivered.get((name, OWN), self._delivered(name).get(OWN))
        if before is not None and before != raw:
            raise Refused(f"{name} was delivered with another value before", code="delivered", key=name)
        if before is None:
            self.effects.delivered[name, OWN] = raw

    def arrived(self, release: Release, value: Any) -> None:
        """Keep a value of a release that an ask brought."""
        self.effects.delivered[release.name, str(self._path)] = encode(value)

    def _delivered(self, name: str) -> dict[str, bytes]:
        return self._host.store.delivered(self._run, name).get(name, {})


def _computed(name: str, index: int) -> str:
    return f"computed:{name}/{index}"


def _paid(name: str) -> str:
    return f"paid:{name}"
