"""Whether an owner's site can do its work: one finding for each thing that can be wrong, with what to do about it.

For the owner's own terminal: sentences name files and keys of the site, and say of records what `comity schema check`
says. Nothing is spent; the ledger's chain is followed from its first entry, and every record is read.
"""

from __future__ import annotations

import platform
import shutil
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from comity._version import __version__
from comity.crypto import key_file
from comity.errors import ComityError
from comity.files import is_wider
from comity.privacy.ledger import Ledger, describe_freeze
from comity.site.approval import check_records
from comity.site.inbox import Arrival, Inbox
from comity.site.site_file import SiteFile

if TYPE_CHECKING:
    from comity.relay.address import Reached

State = Literal["ok", "warning", "failure"]

SOON = timedelta(days=30)
"""A certificate that ends within these days is to be renewed: it takes two people and a telephone."""
ROOM, LEAST_ROOM = 1 << 30, 100 << 20
"""Bytes of disk below which an owner is warned, and below which a run's commits are about to fail."""
_EARLIER = timedelta(minutes=2)
OLDEST_CLIENT = (2, 16)
"""Of nats-py, as the extra `deploy` asks for."""


@dataclass(frozen=True)
class Finding:
    """`name` is what was looked at. A sentence that is not ok ends with what to do."""

    name: str
    state: State
    sentence: str


def examined(path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Iterator[Finding]:
    """Look at a site, from its file outwards. What can't be looked at because of what was found before is left out."""
    try:
        site = SiteFile.load(path)
    except ComityError as error:
        yield Finding("site file", "failure", str(error))
        return
    yield Finding("site file", "ok", f"{site.where}: {site.party}, {len(site.data)} datasets")
    yield _versions(site)
    yield _keys(site)
    yield from _membership(site, clock())
    yield _disk(site)
    yield from _modes(site)
    ledger = _ledger(site)
    yield from ledger
    try:
        Inbox(site.home).arrivals()
    except ComityError as error:
        yield Finding("inbox", "failure", str(error))
        return
    if ledger[0].state != "failure":
        yield _clock(site, clock())
    yield from _data(site)


def _versions(site: SiteFile) -> Finding:
    """What a deployment needs beside the package itself."""
    said = f"comity {__version__}, python {platform.python_version()}, cryptography {metadata.version('cryptography')}"
    try:
        client = metadata.version("nats-py")
    except metadata.PackageNotFoundError:
        if site.relay is None:
            return Finding("versions", "ok", said)
        return Finding("versions", "failure", f"{said}; nats-py is missing: pip install 'comity[deploy]'")
    if tuple(int(part) for part in client.split(".")[:2]) < OLDEST_CLIENT:
        wanted = ".".join(map(str, OLDEST_CLIENT))
        sentence = f"{said}; nats-py {client} is older than {wanted}: pip install --upgrade 'comity[deploy]'"
        return Finding("versions", "failure", sentence)
    return Finding("versions", "ok", f"{said}, nats-py {client}")


def _keys(site: SiteFile) -> Finding:
    """Present, the owner's alone, and the ones that its approved studies pin."""
    try:
        public = key_file.load(site.keys).public
        for arrival in _approved(site):
            if Inbox(site.home).study(arrival.study).consortium.roster.get(site.party) != public:
                sentence = (
                    f"{site.keys}: study {arrival.study[:12]} pins another key of {site.party}; put that key back"
                )
                return Finding("keys", "failure", f"{sentence}, or send this one's public keys to the study's author")
    except ComityError as error:
        return Finding("keys", "failure", str(error))
    return Finding("keys", "ok", f"{site.keys}: readable by you alone")


def _membership(site: SiteFile, now: datetime) -> Iterator[Finding]:
    """Key, certificate, authority and address, as the relay will see them."""
    if site.relay is None:
        yield Finding("certificate", "warning", f"{site.where} has no [relay]: nothing is served; join a consortium")
        return
    from comity.relay.certificates import CERTIFICATE, check_installed, load_certificate
    from comity.relay.endpoint import NatsEndpoint

    certificate = site.home / (site.relay.certificate or f"relay/{CERTIFICATE}")
    try:
        until = check_installed(certificate.parent, site.party)
        began = load_certificate(certificate).not_valid_before_utc
        if until <= now:
            sentence = f"{certificate}: ended on {until:%Y-%m-%d}; ask for a new one: comity consortium join"
            yield Finding("certificate", "failure", sentence)
            return
        if began > now:
            sentence = f"{certificate}: holds from {began:%Y-%m-%d %H:%M} on, and it is {now:%Y-%m-%d %H:%M} here; "
            yield Finding("certificate", "failure", sentence + "set the clock")
            return
        relay = NatsEndpoint(site).relay
    except ComityError as error:
        yield Finding("certificate", "failure", str(error))
        return
    days = (until - now).days
    if until - now < SOON:
        sentence = f"{certificate}: ends on {until:%Y-%m-%d}, in {days} days; ask for a new one: comity consortium join"
        yield Finding("certificate", "warning", sentence)
    else:
        sentence = f"{certificate}: for {site.party} and the key beside it, until {until:%Y-%m-%d}"
        yield Finding("certificate", "ok", sentence)
    yield _dialled(relay.address, relay.context())


def _dialled(address: str, context: ssl.SSLContext) -> Finding:
    """That somebody whom the authority vouches for answers there; whether it admits us is seen when the site serves."""
    from comity.relay.address import dial

    return relay_finding(address, dial(address, context))


def relay_finding(address: str, reached: Reached) -> Finding:
    from comity.relay.server_version import expected_versions, parse_version

    states: dict[str, State] = {"answers": "ok", "full": "warning", "foreign": "failure", "silent": "warning"}
    version = parse_version(reached.version)
    if version is not None and not version.is_admitted:
        sentence = f"{address}: its server is {reached.version}, which has known holes; ask who runs it to install"
        return Finding("relay", "warning", f"{sentence} {expected_versions()}")
    return Finding("relay", states[reached.state], reached.explain(address))


def _disk(site: SiteFile) -> Finding:
    free = shutil.disk_usage(site.home).free
    sentence = f"{site.home}: {free / 2**30:.1f} GB are free"
    if free < LEAST_ROOM:
        return Finding("disk", "failure", f"{sentence}; runs stop where nothing can be written: make room")
    return Finding("disk", "warning" if free < ROOM else "ok", sentence + ("; make room" if free < ROOM else ""))


def _modes(site: SiteFile) -> Iterator[Finding]:
    """What others may read of what is the owner's alone: a copy that was put back has whatever mode the copy had."""
    ledger = [site.ledger.with_name(site.ledger.name + suffix) for suffix in ("", "-wal", "-shm")]
    folders = [site.home / name for name in ("studies", "results")]
    for path, mode in [*((one, "600") for one in ledger), *((one, "700") for one in folders)]:
        if is_wider(path):
            yield Finding("modes", "warning", f"{path}: others can read it; run: chmod {mode} {path}")


def _ledger(site: SiteFile) -> list[Finding]:
    """That it opens, that its chain holds, that it is not frozen, that each dataset has a budget, and what is left."""
    try:
        owner = site.owner()
        verified = owner.ledger.verify()
        accounts = owner.ledger.summary()
    except ComityError as error:
        return [Finding("ledger", "failure", str(error))]
    if verified.frozen:
        return [Finding("ledger", "failure", describe_freeze(str(site.ledger), verified.frozen))]
    found = [Finding("ledger", "ok", f"{site.ledger}: {verified.entries} entries, the chain holds")]
    for account in accounts:
        spent = account.left is not None and account.left <= 0
        more = f"; nothing is left: comity ledger grant {site.ledger} --dataset {account.dataset} ..." if spent else ""
        found.append(Finding("budget", "warning" if spent else "ok", f"{account}{more}"))
    return found


def _clock(site: SiteFile, now: datetime) -> Finding:
    """A clock that runs behind what was written here makes periods wrong, and certificates seem not to hold yet. How
    far it is from others' is not looked at."""
    known = [entry.time for entry in Ledger(site.ledger).entries()[-1:]]
    known += [arrival.arrived for arrival in Inbox(site.home).arrivals()]
    last = max((datetime.fromisoformat(text) for text in known if text), default=now)
    if now + _EARLIER < last:
        sentence = f"it is {now:%Y-%m-%d %H:%M} by this clock, and something was written here at {last:%Y-%m-%d %H:%M}"
        return Finding("clock", "failure", f"{sentence}; set the clock")
    return Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC, not before anything that was written here")


def _data(site: SiteFile) -> Iterator[Finding]:
    """Each dataset against the schema of each study that is approved for it; without one, that it can be opened."""
    approved = _approved(site)
    for name in site.data:
        studies = [one for one in approved if one.decision is not None and one.decision.dataset == name]
        try:
            site.source(name)
            odd = [
                f"for study {one.study[:12]}: {sentence}"
                for one in studies
                for sentence in check_records(site, Inbox(site.home).study(one.study), name)
            ]
        except ComityError as error:
            yield Finding("data", "failure", f"data.{name}: {error}")
            continue
        for sentence in odd:
            yield Finding("data", "warning", f"data.{name} {sentence}")
        if not odd:
            against = f"fits {len(studies)} approved studies" if studies else "is there; no study is approved for it"
            yield Finding("data", "ok", f"data.{name} {against}")


def _approved(site: SiteFile) -> list[Arrival]:
    return [one for one in Inbox(site.home).arrivals() if one.approval is not None]
