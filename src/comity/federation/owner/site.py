"""A site as one step sees it: the owner's records, the ways out, and what steps of a run keep for each other.

Nothing that a step does takes effect before the store commits it with the reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.blas import one_thread
from comity.crypto.sealing import PublicIdentity
from comity.data.tables.streamed_records import StreamedRecords
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import BadInput, Malformed, Refused, Stopped
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, ITSELF, Consortium
from comity.federation.declare.declaration import SumGroup
from comity.federation.declare.protection import Computed, Entrusted, EntrustedRounds, Selected, Summed
from comity.federation.declare.release import Release, is_release_name
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import encode
from comity.federation.messages.received import OWN
from comity.federation.owner.block_sums import BlockSum, read_parts
from comity.federation.owner.mailbox import Mailbox
from comity.federation.owner.prepared_rows import Preparation
from comity.federation.owner.rows import Rows
from comity.federation.owner.run_state import Effects, RunState
from comity.federation.part import SUM
from comity.federation.sum.site import mask_contribution
from comity.federation.sum.terms import Masked

if TYPE_CHECKING:
    from comity.data import LocalRecords
    from comity.data.tables.row_file import UnnamedFile
    from comity.federation.owner.host import Host

_Built = TypeVar("_Built")

log = logging.getLogger("comity.site")

HOLDOUT_KEY = "run:parts"
"""Where the key is kept that decides which records the run holds out."""
_RECORDS = "run:records"


class Site:
    """What a step may use.

    `label` is the index of this ask; `dims` are the public sizes that the run has bound. A step of the secure sum sees
    the consortium of its group alone, and a party outside of that group takes no part in it.
    """

    def __init__(self, host: Host, run: str, path: StepPath, sends: str | None) -> None:
        agreement = host.agreement
        self._host = host
        self._study = agreement.study
        self._sends = sends
        self._sum_group = agreement.sum_group(path.label) if path.mount == SUM else None
        self.run = run
        self.path = path
        self.label = path.label
        self.party = host.party
        self.consortium: Consortium = agreement.consortium if self._sum_group is None else self._sum_group.consortium
        if self._sum_group is not None and not self.consortium.knows(self.party):
            raise Refused(f"{self.party} takes no part in the sums of {path}", code="sum")
        self.effects = Effects()
        self._state = RunState(
            self.effects,
            lambda place: host.store.state(run, place),
            holdout=agreement.is_holdout(path.mount),
            sum_group=self._sum_group,
        )
        self.dims: Mapping[str, int] = self._state.dims
        self.mailbox = Mailbox(host, run, path, self._state, self.consortium)
        # What leaves under the name of the release that the step sends.
        self.contribution: Any = None
        self.contributed = False

    def __reduce__(self) -> NoReturn:
        """A site holds keys: no function that is sent to an engine takes one along."""
        raise TypeError("it holds this site's keys")

    def release(self, name: str) -> Release:
        return self._host.agreement.declaration[name]

    @property
    def sum_group(self) -> SumGroup:
        """The parties that sum together, in a step of the secure sum."""
        assert self._sum_group is not None
        return self._sum_group

    # Memory between the steps of a run.

    def keep(self, name: str, value: Any) -> None:
        self._state.keep(name, value)

    def kept(self, name: str, default: Any = None) -> Any:
        return self._state.kept(name, default)

    def forget(self, name: str) -> None:
        self._state.forget(name)

    # Letters to and from other parties.

    def send(self, to: str, name: str, value: Any, key: PublicIdentity | None = None) -> None:
        """Send a declared value to a party, sealed and signed (`Mailbox.send`)."""
        self.mailbox.send(to, name, value, key)

    def send_all(self, receivers: Iterable[str], name: str, value: Any) -> None:
        """`send` one large value to several parties."""
        self.mailbox.send_all(receivers, name, value)

    def received(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """What other parties sent under a declared name in this run, by sender."""
        return self.mailbox.received(name, senders)

    def take(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """`received`, once: this step deletes what it takes."""
        return self.mailbox.take(name, senders)

    # Secrets and signatures, bound to the study and the run.

    def secret(self) -> bytes:
        return fresh_seed()

    def seed(self, secret: bytes, *label: str | int) -> bytes:
        return derive(secret, self._study, self.run, *label)

    def public_stream(self, *purpose: str | int) -> Stream:
        """Public randomness of this run, the same at every participant."""
        return Stream.public(self._study, self.run, *purpose)

    def context(self, *what: Any) -> bytes:
        return encode([self._study, self.run, *what])

    def sign(self, *what: Any) -> bytes:
        return self._host.keys.sign(self.context(*what))

    def verify(self, party: str, signature: bytes, *what: Any) -> None:
        self._host.identity_of(party).verify(signature, self.context(*what))

    # The owner's records.

    @property
    def records(self) -> LocalRecords:
        """The records that this step may see; from here on the run is bound to them.

        Where the study has an evaluation, they are the held-out records or the others, depending on the step. The cost
        of its releases relies on that.
        """
        digest = self._host.records_digest
        if digest is not None and self._state.stored(_RECORDS) is None:
            self.effects.state[_RECORDS] = digest.encode()
        if self.consortium.evaluation is None:
            return self._host.records
        return self._host.part_of_records(self._holdout_key(), holdout=self._state.holdout)

    def require_same_records(self) -> None:
        """Stop before the step, which costs nothing, if the records are not those that the run began with.

        A step that ran does not run again: a site that restarts with other records would mix results of both. To others
        it is a stop like any other.
        """
        bound = self._state.stored(_RECORDS)
        if bound is not None and bound.decode() != self._host.records_digest:
            raise Stopped(
                f"run {self.run} began with other records than are there now; put them back, or end the run: comity "
                f"site end {self.run}",
                key="data",
            )

    def _holdout_key(self) -> bytes:
        model_evaluation = self._host.agreement.model_evaluation
        if model_evaluation is not None and model_evaluation.common:
            return derive(self._study.encode(), "set aside")
        key: bytes | None = self.kept(HOLDOUT_KEY)
        if key is None:
            raise Refused("this run holds no records out here, because it has not begun", code="unreserved")
        return key

    def total(
        self,
        part: Callable[[Rows], NDArray[np.float64]],
        *,
        at_once: int | None = None,
        prepare: Preparation | None = None,
        exact: bool = False,
    ) -> NDArray[np.float64]:
        """Σ `part(rows)` over blocks of this owner's records, which need not fit into memory.

        Every record is in one block of one pass. Blocks may begin anywhere, so `part` bounds each record by itself. It
        gets at most `at_once` records, where that is given: what it computes of them then stays in a processor's cache.
        `prepare` fills `Rows.prepared`, from memory where an earlier ask brought the same values. If reading fails, the
        step stops and the owner sees why, whatever the bound of the release: it is no failed fit that may be answered
        neutrally.

        `exact` says that `part` adds numbers on the grid of `comity.data.exact_sums`: the sum is then the same to the
        last bit in any blocks. Otherwise blocks are added in their order. Blocks are computed by as many threads as
        there are processors, so `part` changes nothing but what it returns.
        """
        records = self.records
        work = BlockSum(part, len(records), at_once, prepare, exact)
        pieces = None if prepare is None else self._host.prepared.of(records, prepare, work.at_once)
        with one_thread():
            found = work.add(read_parts(records, work, pieces, self._reading))
        if pieces is not None:
            self._host.prepared.keep(records, pieces)
        return found

    def prepared(self, name: str, values: bytes, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """What `make` computes of this step's records from public `values`: from memory, where an earlier step of the
        run computed it. It is read-only, and written nowhere."""
        key = encode([self.run, self._state.holdout, values])
        return self._host.prepared.array(name, key, self.records, make)

    def built(self, name: str, values: bytes, make: Callable[[], _Built]) -> _Built:
        """What `make` builds of this step's records, such as a file without a name: the same for later steps of the run
        in this process. A site that was started again builds it again."""
        key = encode([self.run, self._state.holdout, values])
        made: _Built = self._host.prepared.built(name, key, self.records, make)
        return made

    def drop_built(self, name: str, values: bytes) -> None:
        """Forget what was built, before the run ends."""
        self._host.prepared.drop(name, encode([self.run, self._state.holdout, values]))

    def open_file(self) -> UnnamedFile | None:
        """A file without a name for what is built of records in blocks; None for records in memory."""
        records = self.records
        return records.open_file() if isinstance(records, StreamedRecords) else None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
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

    # To the coordinator.

    def contribute(self, value: NDArray[np.float64] | None = None, *, share: NDArray[np.uint64] | None = None) -> None:
        """Bound a value, put it on the grid, debit it, and add this party's noise. It leaves as the declaration says.

        None is the neutral contribution of a party without anything to say. `share` is a share of a value that no
        participant holds in whole, and is on the grid already.
        """
        if self._sends is None or self.contributed:
            raise Refused(f"{self.path} contributes nothing, or a second time", code="undeclared")
        release = self.release(self._sends)
        self._require_source(release)
        shape, index = release.shape, int(self.label)
        if isinstance(release.bound, OpenedValue):
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
        # All checks come before the draw is noted: from there on it is paid for.
        sums = self._prepared_sums(release, index) if isinstance(release.protection, Summed) else None
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
        self.contribution = units if sums is None else self._mask(units, release, index, *sums)

    def _prepared_sums(self, release: Release, index: int) -> tuple[SumGroup, RunState]:
        """The group of a sum, and what its set-up left here."""
        group = self._host.agreement.sum_group(f"{release.name}/{index}")
        state = self._state.of_sums(group)
        if not state.kept("sum.seated", False):
            raise Refused("a party contributes to a sum once its masks are set up", code="sum")
        return group, state

    def _mask(self, units: NDArray[np.int64], release: Release, index: int, group: SumGroup, state: RunState) -> Masked:
        label, units = f"{release.name}/{index}", units << np.int64(64 - release.ring)
        # The owner's own copy, deleted with the run.
        self.effects.state[f"out:{label}"] = encode(units)
        state.keep(f"sum.masked/{label}", True)
        return mask_contribution(units, release, label, group.consortium, state.kept, self.seed)

    def compute(self, values: Any, *, name: str | None = None) -> Any:
        """Run the mechanism of a computed release on this party's values, and return its result.

        One debit, noted before anything is drawn, covers all draws of the mechanism. The result of the release that the
        step `sends` leaves with the reply. The result of a release to the party itself stays, under its `name`, for
        later steps (`computed`). The same ask again finds the same result.
        """
        name = name or self._sends or ""
        release, index = self.release(name), int(self.label)
        protection, stays = release.protection, release.to == ITSELF
        leaves = name == self._sends and not self.contributed
        if not isinstance(protection, Computed) or not (stays or leaves):
            raise Refused(f"{self.path} computes no {name}, or a second time", code="undeclared", key=name)
        self._require_source(release)
        if index >= release.times or (name, index) in self.effects.draws:
            raise Refused(f"{self.path}: {name} is computed more often than declared", code="too-often", key=name)
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
        """Refuse unless this party is a source of the release, and the release is made from the records that this step
        sees, whatever the method declares."""
        if (release.name in self._host.agreement.declaration.holdout) != self._state.holdout:
            raise Refused(f"{self.path} does not see the records of {release.name}", code="undeclared")
        if not self.consortium.includes(release.source, self.party):
            raise Refused(f"{release.name} does not come from {self.party}", code="undeclared", key=release.name)

    def computed(self, name: str, index: int = 0) -> Any:
        """What this step or an earlier one computed for the party itself."""
        return self.kept(_computed(name, index))

    def draw(self, name: str, *, sensitivity: float) -> NDArray[np.int64]:
        """Draw the noise of a release that is selected under encryption, in grid units. The draw is the debit.

        The scale of the noise is this party's secret, because `sensitivity` depends on how many records it has; the
        declared sensitivity is the largest possible one. The noise may leave this step only encrypted or shared.
        """
        release = self.release(name)
        noise = release.noise
        if not isinstance(release.protection, Selected) or noise is None:
            raise Refused(f"{name} is not declared with noise that is selected", code="undeclared", key=name)
        self._require_source(release)
        if not 0 < sensitivity <= release.sensitivity:
            raise Refused(f"{name}: a sensitivity of at most {release.sensitivity} was declared", code="stopped")
        scale = noise.scale(sensitivity=sensitivity, shape=release.shape, grid=release.grid)
        permit = self.effects.draw(release.name, 0)
        return noise.draw(self._host.noise, scale, release.shape, permit=permit)

    # To this owner.

    def deliver(self, name: str, value: Any) -> None:
        """Leave a value with this party's owner, in its own results: no ask or reply carries it.

        What a party makes for itself, such as its own model, is not released: its name is none of the declared ones. A
        second delivery of the same value does no harm; another value is refused.
        """
        declared = {release.name for release in self._host.agreement.declaration.releases}
        if name in declared or not is_release_name(name):
            raise Refused(f"{name!r} can't be delivered: use a plain name that no release has", code="form")
        raw = encode(value)
        stored = self._host.store.delivered(self.run, name).get(name, {})
        before = self.effects.delivered.get((name, OWN), stored.get(OWN))
        if before is not None and before != raw:
            raise Refused(f"{name} was delivered with another value before", code="delivered", key=name)
        if before is None:
            self.effects.delivered[name, OWN] = raw

    def keep_arrived(self, release: Release, value: Any) -> None:
        """Keep a value of a release that an ask brought."""
        self.effects.delivered[release.name, str(self.path)] = encode(value)


def _computed(name: str, index: int) -> str:
    return f"computed:{name}/{index}"


def _paid(name: str) -> str:
    return f"paid:{name}"
