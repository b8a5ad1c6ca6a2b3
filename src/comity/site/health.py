"""Checks of an owner's site for `comity doctor`: one finding for each thing that can be wrong, with its remedy.

Findings are for the owner's terminal: they name files and keys of the site, and say about records what `comity schema
check` says. The checks spend nothing. They verify the ledger's chain from its first entry, and read every record.
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
from comity.files import is_shared
from comity.privacy.ledger import Ledger, describe_freeze
from comity.site.approval import check_records
from comity.site.backups import newest_copy
from comity.site.inbox import Arrival, Inbox
from comity.site.site_file import SiteFile

if TYPE_CHECKING:
    from comity.relay.address import ProbeResult
    from comity.relay.invitation import Invitation

State = Literal["ok", "warning", "failure"]

SOON = timedelta(days=30)
"""Warn this long before an entry or a certificate ends: a new one takes two people."""
WARN_FREE_BYTES, MIN_FREE_BYTES = 1 << 30, 100 << 20
"""Free disk space below which the owner is warned, and below which commits are about to fail."""
_CLOCK_TOLERANCE = timedelta(minutes=2)
MIN_CLIENT_VERSION = (2, 16)
"""Of nats-py, as the extra `deploy` requires."""


@dataclass(frozen=True)
class Finding:
    """`name` is what was checked. The sentence of a warning or failure ends with what to do."""

    name: str
    state: State
    sentence: str


def check_site(path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Iterator[Finding]:
    """Check a site, starting with its file. Checks that an earlier failure makes impossible are left out."""
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
    yield _backup(site, clock())
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
    """The versions of what a deployment needs."""
    cryptography = metadata.version("cryptography")
    versions = f"comity {__version__}, python {platform.python_version()}, cryptography {cryptography}"
    try:
        client = metadata.version("nats-py")
    except metadata.PackageNotFoundError:
        if site.invitation is None:
            return Finding("versions", "ok", versions)
        return Finding("versions", "failure", f"{versions}; nats-py is missing: pip install 'comity[deploy]'")
    if tuple(int(part) for part in client.split(".")[:2]) < MIN_CLIENT_VERSION:
        wanted = ".".join(map(str, MIN_CLIENT_VERSION))
        sentence = f"{versions}; nats-py {client} is older than {wanted}: pip install --upgrade 'comity[deploy]'"
        return Finding("versions", "failure", sentence)
    return Finding("versions", "ok", f"{versions}, nats-py {client}")


def _keys(site: SiteFile) -> Finding:
    """The key file is present, private, and the one that approved studies pin."""
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
    """The invitation, the site's key in it, its end date, and the relay."""
    if site.invitation is None:
        sentence = f"{site.where} has no invitation, so the site serves nothing; ask your consortium's holder for one"
        yield Finding("invitation", "warning", sentence)
        return
    from comity.relay.address import RelayAddress
    from comity.relay.invitation import Invitation

    try:
        relay = RelayAddress.load(site.invitation, site.keys)
        relay.require_member(site.party)
        invitation = Invitation.load(site.invitation)
    except ComityError as error:
        yield Finding("invitation", "failure", str(error))
        return
    yield _entry(site, invitation, now)
    yield _probe(relay.address, relay.tls_context())


def _entry(site: SiteFile, invitation: Invitation, now: datetime) -> Finding:
    """When the site's entry at the relay and the relay's certificate end, as far as the invitation says."""
    expires, listed = invitation.valid_until, invitation.members.get(site.party)
    holder = "ask the consortium's holder"
    if expires <= now:
        sentence = f"{site.invitation}: the relay's certificate expired on {expires:%Y-%m-%d}; {holder}"
        return Finding("invitation", "failure", f"{sentence} for a new invitation")
    if invitation.valid_from > now:
        sentence = f"{site.invitation}: the relay's certificate is valid from {invitation.valid_from:%Y-%m-%d %H:%M} on"
        return Finding("invitation", "failure", f"{sentence}, and it is {now:%Y-%m-%d %H:%M} here; set the clock")
    if listed is None:
        sentence = f"{site.invitation}: was written before {site.party} was admitted and has no end date for it"
        return Finding("invitation", "warning", f"{sentence}; {holder} for the current one")
    if listed.until <= now:
        sentence = f"{site.invitation}: the entry of {site.party} ended on {listed.until:%Y-%m-%d}"
        return Finding("invitation", "failure", f"{sentence}; {holder} to admit you again, and for a new invitation")
    ends = min(expires, listed.until)
    if ends - now < SOON:
        what = f"the entry of {site.party}" if ends == listed.until else "the relay's certificate"
        sentence = f"{site.invitation}: {what} ends on {ends:%Y-%m-%d}, in {(ends - now).days} days"
        return Finding("invitation", "warning", f"{sentence}; {holder} for a later end and a new invitation")
    return Finding(
        "invitation", "ok", f"{site.invitation}: {site.party} with the key of {site.keys.name}, until {ends:%Y-%m-%d}"
    )


def _probe(address: str, context: ssl.SSLContext) -> Finding:
    """Whether a relay with the pinned certificate answers. Whether it admits the site shows when it serves."""
    from comity.relay.address import probe

    return relay_finding(address, probe(address, context))


def relay_finding(address: str, reached: ProbeResult) -> Finding:
    from comity.relay.server_version import expected_versions, parse_version

    states: dict[str, State] = {"answers": "ok", "full": "warning", "foreign": "failure", "silent": "warning"}
    version = parse_version(reached.version)
    if version is not None and not version.is_admitted:
        sentence = f"{address}: its server is {reached.version}, which has known vulnerabilities"
        return Finding("relay", "warning", f"{sentence}; ask its operator to install {expected_versions()}")
    return Finding("relay", states[reached.state], reached.explain(address))


def _disk(site: SiteFile) -> Finding:
    free = shutil.disk_usage(site.home).free
    sentence = f"{site.home}: {free / 2**30:.1f} GB are free"
    if free < MIN_FREE_BYTES:
        return Finding("disk", "failure", f"{sentence}; runs stop when nothing can be written: free some space")
    if free < WARN_FREE_BYTES:
        return Finding("disk", "warning", f"{sentence}; free some space")
    return Finding("disk", "ok", sentence)


def _backup(site: SiteFile, now: datetime) -> Finding:
    """How old the newest copy of the site's folder is, where the site file says where copies are."""
    if site.backup is None:
        sentence = f"not known: {site.where} names no folder of copies; add [backup] with path to have its age checked"
        return Finding("backup", "ok", sentence)
    place, newest = site.home / site.backup.path, newest_copy(site)
    if newest is None:
        return Finding("backup", "warning", f"{place}: holds no copy; back up the site's folder (docs/deploy.md)")
    days = (now - newest).total_seconds() / 86_400
    sentence = f"{place}: the newest copy is of {newest:%Y-%m-%d %H:%M} UTC, {max(0.0, days):.1f} days ago"
    if days > site.backup.max_days:
        return Finding("backup", "warning", f"{sentence}, more than backup.max_days = {site.backup.max_days}; back up")
    return Finding("backup", "ok", sentence)


def _modes(site: SiteFile) -> Iterator[Finding]:
    """Private files that others can read; a restored backup may have lost its modes."""
    ledger = [site.ledger.with_name(site.ledger.name + suffix) for suffix in ("", "-wal", "-shm")]
    folders = [site.home / name for name in ("studies", "results")]
    for path, mode in [*((one, "600") for one in ledger), *((one, "700") for one in folders)]:
        if is_shared(path):
            yield Finding("modes", "warning", f"{path}: others can read it; run: chmod {mode} {path}")


def _ledger(site: SiteFile) -> list[Finding]:
    """The ledger opens, its chain holds, it is not frozen, and each dataset has a budget; then what is left."""
    try:
        owner = site.owner()
        verified = owner.ledger.verify()
        accounts = owner.ledger.summary()
    except ComityError as error:
        return [Finding("ledger", "failure", str(error))]
    if verified.frozen:
        return [Finding("ledger", "failure", describe_freeze(str(site.ledger), verified.frozen))]
    findings = [Finding("ledger", "ok", f"{site.ledger}: {verified.entries} entries, the chain holds")]
    for account in accounts:
        spent = account.left is not None and account.left <= 0
        more = f"; nothing is left: comity ledger grant {site.ledger} --dataset {account.dataset} ..." if spent else ""
        findings.append(Finding("budget", "warning" if spent else "ok", f"{account}{more}"))
    return findings


def _clock(site: SiteFile, now: datetime) -> Finding:
    """Whether the clock is behind something already written here, which would make budget periods wrong and
    certificates invalid. Other machines' clocks are not compared."""
    known = [entry.time for entry in Ledger(site.ledger).entries()[-1:]]
    known += [arrival.arrived for arrival in Inbox(site.home).arrivals()]
    last = max((datetime.fromisoformat(text) for text in known if text), default=now)
    if now + _CLOCK_TOLERANCE < last:
        sentence = f"this clock says {now:%Y-%m-%d %H:%M}, and something was written here at {last:%Y-%m-%d %H:%M}"
        return Finding("clock", "failure", f"{sentence}; set the clock")
    return Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC, not before anything that was written here")


def _data(site: SiteFile) -> Iterator[Finding]:
    """Check each dataset against the schemas of the studies approved for it; without any, check that it opens."""
    approved = _approved(site)
    for name in site.data:
        studies = [one for one in approved if one.decision is not None and one.decision.dataset == name]
        try:
            site.source(name)
            warnings = [
                f"for study {one.study[:12]}: {sentence}"
                for one in studies
                for sentence in check_records(site, Inbox(site.home).study(one.study), name)
            ]
        except ComityError as error:
            yield Finding("data", "failure", f"data.{name}: {error}")
            continue
        for sentence in warnings:
            yield Finding("data", "warning", f"data.{name} {sentence}")
        if not warnings:
            against = f"fits {len(studies)} approved studies" if studies else "is there; no study is approved for it"
            yield Finding("data", "ok", f"data.{name} {against}")


def _approved(site: SiteFile) -> list[Arrival]:
    return [one for one in Inbox(site.home).arrivals() if one.approval is not None]
