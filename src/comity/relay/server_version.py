"""Which versions of `nats-server` may be a relay.

Earlier ones have known vulnerabilities, some of which need no key: up to 2.11.13 and 2.12.4 a stranger could crash the
server by a websocket before authenticating, and before 2.11.15 and 2.12.6 through ports that a relay does not open.
Anyone can finish TLS with a relay and reach the server's parser, so the floor follows the NATS project's advisories:
raise it when one names the port of clients or of websockets. To do so, change `FLOOR`, the sentence in docs/deploy.md
and the image in operating/compose.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FLOOR: Mapping[tuple[int, int], int] = MappingProxyType({(2, 11): 16, (2, 12): 7, (2, 14): 0})
"""The first admitted patch of each maintained minor version. Newer minor versions are admitted; others are refused."""
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?(?![0-9A-Za-z.+-])")


@dataclass(frozen=True)
class ServerVersion:
    """A pre-release comes before the release of the same number."""

    minor: tuple[int, int]
    patch: int
    is_prerelease: bool = False

    @property
    def is_admitted(self) -> bool:
        floor = FLOOR.get(self.minor)
        if floor is None:
            return self.minor > max(FLOOR)
        return (self.patch, not self.is_prerelease) >= (floor, True)


def parse_version(text: str) -> ServerVersion | None:
    """The first version in a server's output, or None."""
    match = _VERSION.search(text)
    if match is None:
        return None
    return ServerVersion((int(match[1]), int(match[2])), int(match[3]), match[4] is not None)


def expected_versions() -> str:
    """For messages: "nats-server 2.11.16, 2.12.7, 2.14.0 or newer"."""
    floors = [f"{major}.{minor}.{patch}" for (major, minor), patch in sorted(FLOOR.items())]
    return f"nats-server {', '.join(floors)} or newer"
