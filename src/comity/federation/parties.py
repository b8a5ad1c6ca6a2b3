"""The coordinator's side of a run: what `coordinate` talks to.

Everything here is rebuilt from the journal, so that running again with the same run id is resuming. An ask stays open
until the journal closes it; who was lost in it is part of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.sealed import Identity
from comity.errors import Malformed, Refused, SiteLost, Stopped
from comity.federation.channel import Channel
from comity.federation.codec import decode, encode
from comity.federation.consortium import COORDINATOR, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.envelope import SIGNATURE_BYTES, Digests, signed_ask, verified_reply
from comity.federation.forms import Count
from comity.federation.journal import Journal, Trace
from comity.federation.kept import Kept, opened
from comity.federation.letters import parted
from comity.federation.protection import Entrusted, Perturbed, Summed
from comity.federation.protocol import Protocol, spec_of
from comity.federation.transcript import Transcript, transcript_of
from comity.privacy.permit import Permit
from comity.privacy.randomness import NoiseSource

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over `parties` contributions, in the units of the value; `names` says whose, where sites answered."""

    value: NDArray[np.float64]
    parties: int
    names: tuple[str, ...] | None = None


@dataclass(eq=False)
class _Memory:
    """What one run has learnt so far; shared by all views of it."""

    alive: list[str]
    mail: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)


class Parties:
    """Asks steps of the parties of one run. `keys` are the coordinator's own, pinned in the roster under its name;
    `noise` is the trusted coordinator's, where a method has one."""

    def __init__(
        self,
        protocol: Protocol,
        who: Consortium,
        *,
        study: str,
        run: str,
        channel: Channel,
        journal: Journal,
        keys: Identity,
        noise: NoiseSource | None = None,
        progress: Progress | None = None,
        _mount: str = "",
        _memory: _Memory | None = None,
    ) -> None:
        self.protocol = protocol
        self.consortium = who
        self.study = study
        self.run = run
        self.channel = channel
        self.journal = journal
        self.keys = keys
        self.noise = noise
        self.progress = progress
        self.declaration: Declaration = protocol.declare(who).accept(who)
        self._mount = _mount
        self._memory = _memory or _Memory(list(who.parties))

    @property
    def alive(self) -> list[str]:
        return list(self._memory.alive)

    @property
    def memo(self) -> dict[str, Any]:
        return self._memory.memo

    @property
    def dims(self) -> Mapping[str, int]:
        """Public sizes that this run has bound."""
        return self._memory.dims

    def under(self, mount: str) -> Parties:
        """The same run, with steps looked up in a part of the protocol."""
        return Parties(
            self.protocol,
            self.consortium,
            study=self.study,
            run=self.run,
            channel=self.channel,
            journal=self.journal,
            keys=self.keys,
            noise=self.noise,
            progress=self.progress,
            _mount=mount + ".",
            _memory=self._memory,
        )

    def ask(
        self,
        step: Callable[..., Any] | str,
        *,
        to: Iterable[str] | None = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        label: str | int = 0,
        need: int | None = None,
        **values: Any,
    ) -> dict[str, dict[str, Any]]:
        """Run a step at some parties; the values they return, by party. `each` gives a party values of its own.

        Lost parties are missing from the answer; fewer than `need` (default: all that were asked) stops the run, to be
        resumed. A refusal stops it too, with the code that the site gave.
        """
        name = self._mount + (step if isinstance(step, str) else spec_of(step).name)
        owner, _ = self.protocol.find(name)
        declared = self.declaration if owner is self.protocol else owner.declare(self.consortium)
        alive = set(self._memory.alive)
        asked = [party for party in (to if to is not None else each or self.alive) if party in alive]
        path = f"{name}[{label}]"
        if self.progress is not None:
            self.progress(path)
        replies = self._open(path, declared, asked, values, each or {})
        if not self.journal.is_closed(self.run, path):
            replies = self._send(path, replies, need)
        got = self._read(path, declared, replies)
        self._memory.kept.exchanged(self.declaration, path, values, each or {}, got)
        return got

    def _open(
        self,
        path: str,
        declared: Declaration,
        asked: list[str],
        values: Mapping[str, Any],
        each: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, bytes | None]:
        own = {}
        for party in asked:
            mine = dict(each.get(party, {}))
            for key, value in {**values, **mine}.items():
                if isinstance(declared[key].form, Count):
                    self._memory.dims[key] = value
            for key, value in {**values, **mine}.items():
                declared[key].check(value, COORDINATOR, party, self.consortium, self._memory.dims)
            own[party] = (encode(mine), encode(self._memory.mail.pop(party, [])))
        self.journal.open(self.run, path, encode(dict(values)), own)
        return self.journal.replies(self.run, path)

    def _send(self, path: str, known: dict[str, bytes | None], need: int | None) -> dict[str, bytes | None]:
        waiting: dict[str, bytes] = {}
        digests: dict[str, Digests] = {}
        missing = [party for party, reply in known.items() if reply is None]
        for party, ask in self.journal.messages(self.study, self.run, path, missing):
            waiting[party], digests[party] = signed_ask(self.keys, party, ask)
        replies = self.channel.ask(waiting) if waiting else {}
        answers = {}
        for party, signed in replies.items():
            raw, digest = self._verified(path, party, digests, signed)
            reply = decode(raw)
            if not isinstance(reply, dict):
                raise Malformed(f"{party} sent no proper reply to {path}")
            if "refused" in reply:
                # Not journalled: after the cause is removed, the same ask may be answered.
                code, key = str(reply["refused"]), str(reply.get("key", ""))
                concerning = f" ({key})" if key else ""
                if code == "stopped":
                    raise Stopped(f"{party} stopped in {path}; its own log says why")
                raise Refused(f"{party} refused {path}: {code}{concerning}", code=code, key=key)
            asked = Trace(len(waiting[party]) - SIGNATURE_BYTES, digests[party].body)
            self.journal.remember_trace(self.run, path, party, asked, Trace(len(raw), digest))
            if "boxes" in reply:
                raw, boxes = _parted(path, party, reply)
                self.journal.hold(self.run, path, party, boxes)
            answers[party] = raw
        got = len(answers) + len(known) - len(missing)
        enough = got >= (len(known) if need is None else need)
        self.journal.got(self.run, path, answers, decided=enough)
        if not enough:
            lost = sorted(set(waiting) - set(answers))
            shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
            raise SiteLost(
                f"{path}: no answer from {shown}; {got} of the {need or len(known)} needed answered. "
                "Nothing is lost: run again with the same run id to resume"
            )
        return self.journal.replies(self.run, path)

    def _verified(self, path: str, party: str, sent: Mapping[str, Digests], signed: bytes) -> tuple[bytes, bytes]:
        identity = self.consortium.roster.get(party)
        if identity is None or party not in sent:
            raise Refused(f"{path}: {party} has no pinned key in the roster, or was not asked", code="stranger")
        try:
            return verified_reply(identity, party, sent[party], signed)
        except Malformed as error:
            raise Malformed(
                f"{path}: what arrived is not what {party} signed for this ask; it was altered on the way, or the ask "
                "was. Nothing is lost: run again with the same run id",
                code="signature",
            ) from error

    def _read(self, path: str, declared: Declaration, replies: Mapping[str, bytes | None]) -> dict[str, dict[str, Any]]:
        out: dict[str, dict[str, Any]] = {}
        for party, reply in replies.items():
            if reply is None:
                if party in self._memory.alive:
                    self._memory.alive.remove(party)
                continue
            match decode(reply):
                case {"stopped": True}:
                    raise Stopped(
                        f"{party} stopped in {path} after its draw: it is spent, and the run can't go on with it"
                    )
                case {"ok": dict(values), "mail": list(mail)}:
                    pass
                case _:
                    raise Malformed(f"{party} sent no proper reply to {path}")
            for key, value in values.items():
                declared[key].check(value, party, COORDINATOR, self.consortium, self._memory.dims)
            for letter in mail:
                if not isinstance(letter, dict) or not self.consortium.knows(letter.get("to")):
                    raise Malformed(f"{party} sent mail to nobody in {path}")
                bulk = letter.get("bulk", b"")
                if "bulk" in letter and not (isinstance(bulk, bytes) and self.journal.holds(self.run, bulk)):
                    raise Malformed(f"{party} sent a letter without its box in {path}")
                self._memory.mail.setdefault(letter["to"], []).append(letter)
            out[party] = values
        return out

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        """Run a step that contributes and open its release the way the declaration says; the same call for each."""
        spec = spec_of(step)
        if spec.sends is None:
            raise Refused(f"{spec.name} contributes nothing", code="undeclared")
        release = self.declaration[spec.sends]
        index = self._memory.counts.get(release.name, -1) + 1
        self._memory.counts[release.name] = index
        sources = [party for party in self.alive if self.consortium.includes(release.source, party)]
        got = self.ask(step, label=index, need=self.consortium.survivors, to=sources, **values)
        grid = release.spacing(self.consortium)
        if isinstance(release.protection, Summed):
            from comity.federation.secure_sum import SecureSum

            units, names = SecureSum().open(self, release, index)
        else:
            units = np.zeros(release.shape, "<i8")
            for values_of in got.values():
                units += values_of[release.name]
            names = tuple(got)
        value = np.asarray(units * grid, np.float64)
        if isinstance(release.protection, Summed):
            self._memory.kept.add(release, f"{spec.name}[{index}]", opened(value, len(names)))
        return Total(value, len(names), names)

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """A trusted coordinator's noise on a value made from entrusted releases, drawn once per run."""
        release = self.declaration[name]
        noisy = perturbed(release, value, self.consortium, self.noise, lambda make: self.once(f"noise:{name}", make))
        self._memory.kept.add(release, name, noisy)
        return noisy

    @property
    def kept(self) -> dict[str, Any]:
        """What this run paid for so far, by release, as it was received."""
        return self._memory.kept.values(self.declaration)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Chance or a decision of the coordinator: made once per run and journalled."""
        return self.journal.once(self.run, self._mount + name, make)

    @property
    def transcript(self) -> Transcript:
        clear = frozenset(
            spec.name
            for attribute in dir(type(self.protocol))
            if (spec := getattr(getattr(type(self.protocol), attribute, None), "spec", None)) is not None
            and spec.sends is not None
            and spec.sends in {r.name for r in self.declaration.releases if isinstance(r.protection, Entrusted)}
        )
        return transcript_of(self.journal, self.study, self.run, entrusted=clear)


def _parted(path: str, party: str, reply: Mapping[str, Any]) -> tuple[bytes, dict[bytes, bytes]]:
    if not isinstance(reply["boxes"], list) or not all(type(box) is bytes for box in reply["boxes"]):
        raise Malformed(f"{party} sent no proper boxes in {path}")
    return parted(reply)


def perturbed(
    release: Release,
    value: NDArray[np.float64],
    who: Consortium,
    source: NoiseSource | None,
    once: Callable[[Callable[[], Any]], Any],
) -> NDArray[np.float64]:
    """Put the value on the release's grid, add its noise, and return it in its own units."""
    if not isinstance(release.protection, Perturbed) or source is None:
        raise Refused(f"{release.name} is not declared as noised by a trusted coordinator", code="undeclared")
    noise, scale, drawn_from = release.protection.noise, release.scale(who), source
    units = np.rint(value / scale.grid).astype("<i8")
    if units.shape != release.shape:
        raise Malformed(f"{release.name}: declared {release.shape}, found {units.shape}", code="form")
    noisy = once(lambda: units + noise.draw(drawn_from, scale, release.shape, permit=Permit(release.name, 0)))
    return np.asarray(noisy * scale.grid, np.float64)


def run(parties: Parties) -> dict[str, Any]:
    """The whole life of a run: what its method releases at the end."""
    return whole_run(parties)[0]


def whole_run(parties: Parties) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole life of a run: what its method releases at the end, and what was released on the way. Calling it again
    with the same run id resumes it, or gives the same values again."""
    heads = {party: {"seen": parties.journal.seen_head(party)} for party in parties.alive}
    begun = parties.under("run").ask("begin", each=heads)
    parties.journal.remember_heads({party: values["head"] for party, values in begun.items()})

    def made() -> list[dict[str, Any]]:
        values = parties.protocol.coordinate(parties)
        return [checked(values, parties.declaration, parties.consortium, parties.dims), parties.kept]

    # Both in one record: a run that is killed before its end finds what was released on the way there too.
    released, kept = parties.once("released", made)
    parties.under("run").ask("end", need=0)
    return released, kept


def checked(
    released: dict[str, Any], declaration: Declaration, who: Consortium, dims: Mapping[str, int]
) -> dict[str, Any]:
    """What the method releases at its end meets its declaration like anything else that leaves."""
    for name, value in released.items():
        release = declaration[name]
        if release.source != COORDINATOR:
            raise Malformed(f"{name} is not declared as released by the coordinator", code="undeclared", key=name)
        if not release.form.fits(value, dims, who):
            raise Malformed(f"{name} is not of its declared form {release.form}", code="form", key=name)
    return released
