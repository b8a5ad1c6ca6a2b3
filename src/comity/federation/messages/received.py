"""What each receiver gets of a run, and keeps.

A party receives releases in two ways. Values that a step takes (an iterate, a list) arrive with that step's ask, and
are stored in the commit of its reply. The method's results, opened sums and what a trusted coordinator perturbed arrive
with `run.end`: in clear what all parties receive, sealed to its key of the run what is for a role or one party. The
first value of a run under a name counts and a different one is refused. A party refuses what was not declared to it, or
has another form. What a step delivers to its own owner is not sent at all.

Received values outlive the run in the owner's file, unlike the run's state: they are what was paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comity.errors import Malformed
from comity.federation.declare.consortium import COORDINATOR, ITSELF, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Computed, Curated, Derived, Noised, Perturbed, Selected, Summed
from comity.federation.declare.release import Array, Count, Each, Fields, Form
from comity.federation.messages.ask import END
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import Signatures
from comity.representation import short_repr

OWN = ""
"""The path of what a step delivers to its own owner: no ask carries it."""
SIGNATURES = ":signatures"
"""The name of the coordinator's signatures on the releases; no release has this name."""
YOURS = "yours"
"""The name under which `run.end` brings what is for one party alone."""


@dataclass(frozen=True, eq=False)
class Received:
    """What a party has of a run: `releases` by their names, and its `own` values, which nobody else was sent.

    `signatures` are the coordinator's on the releases, by name and path; those of a list are in its order. A release
    that is missing there came without a signature that outlives the run.
    """

    __repr__ = short_repr

    releases: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    signatures: Signatures = field(default_factory=dict)


@dataclass(frozen=True)
class NamedValues:
    """Values by the names of releases; the receiver checks each against the release of that name."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is dict and all(type(name) is str for name in value)


def is_kept(release: Release) -> bool:
    """Whether its value belongs to the results of its receivers. Noise that was selected under encryption is opened
    only with what is derived from it. What a site computes for its own later steps is not sent; its owner has it if a
    step delivers it."""
    covered = isinstance(release.protection, Summed | Noised | Computed | Perturbed | Curated | Derived)
    return covered and release.to != ITSELF and not isinstance(release.protection, Selected)


def form_of(release: Release, consortium: Consortium) -> Form:
    """The form of one value of a release, as its receivers get it at the end of a run."""
    if isinstance(release.protection, Summed):
        return Fields({"sum": Array(release.shape), "parties": Count(consortium.size)})
    return release.form if release.source == COORDINATOR else Each(release.form)


def check_received(release: Release, value: Any, party: str, consortium: Consortium, dims: Mapping[str, int]) -> None:
    """Refuse a value that was not declared to this party or has another form. Several values are a list."""
    sent = release.to != ITSELF and (release.source == COORDINATOR or is_kept(release))
    if not consortium.includes(release.to, party) or not sent:
        raise Malformed(f"{release.name} is not declared as released to {party}", code="undeclared", key=release.name)
    several = type(value) is list and release.times > 1
    values = value if several else [value]
    form = form_of(release, consortium)
    if len(values) > release.times or not all(form.fits(one, dims, consortium) for one in values):
        raise Malformed(f"{release.name} is not of its declared form {release.form}", code="form", key=release.name)


def read_received(stored: Mapping[str, Mapping[str, bytes]], declaration: Declaration) -> Received:
    """Read a site's stored values: by name, in the order in which they came, each under the path of its ask."""
    releases: dict[str, Any] = {}
    own: dict[str, Any] = {}
    signed: Signatures = {}
    paths: dict[str, list[str]] = {}
    for name, by_path in stored.items():
        values = {path: decode(raw) for path, raw in by_path.items()}
        if name == SIGNATURES:
            signed = values[str(END)]
        elif OWN in values:
            own[name] = values[OWN]
        elif str(END) in values:
            releases[name], paths[name] = values[str(END)], [str(END)]
        else:
            several = declaration[name].times > 1 or len(values) > 1
            releases[name] = list(values.values()) if several else next(iter(values.values()))
            paths[name] = list(values)
    # All signatures of a list or none: half of them prove nothing about it.
    lasting = {
        name: {path: signed[name][path] for path in used}
        for name, used in paths.items()
        if set(used) <= set(signed.get(name, ()))
    }
    return Received(releases, own, lasting)
