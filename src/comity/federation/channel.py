"""How bytes reach the sites. The engine of a deployment implements this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Channel(Protocol):
    def ask(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Deliver a message to each party, wait, and return the replies. A party that is missing was lost.

        It knows no steps and may be called again with the same messages: sites answer an ask once and remember it.
        """
