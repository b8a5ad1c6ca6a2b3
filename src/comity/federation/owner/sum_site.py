"""A site as a step of the secure sum sees it: the parties that sum together, and no others.

Sums over different parties have nothing in common: neither masks nor shares, lists or thresholds. So a step of the
secure sum works on the *circle* that its label names, in a consortium of that circle alone, and what it keeps lies
apart from that of other circles. A party that is not in the circle neither masks nor holds anything for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.errors import Refused
from comity.federation.messages.paths import StepPath
from comity.federation.owner.site import Site

if TYPE_CHECKING:
    from comity.federation.owner.host import Host

_OWN = "sum."


class SumSite(Site):
    def __init__(self, host: Host, run: str, path: StepPath, sends: str | None) -> None:
        super().__init__(host, run, path, sends)
        self._circle = host.agreed.circle(path.label)
        self.consortium = self._circle.consortium
        if not self.consortium.knows(self.party):
            raise Refused(f"{self.party} takes no part in the sums of {path}", code="sum")

    @property
    def circle(self) -> str:
        """The label of the circle's set-up."""
        return str(self._circle.place)

    def sums(self) -> tuple[str, ...]:
        return self._circle.sums

    def keep(self, name: str, value: Any) -> None:
        super().keep(self._apart(name), value)

    def forget(self, name: str) -> None:
        super().forget(self._apart(name))

    def _raw(self, name: str) -> bytes | None:
        return super()._raw(self._apart(name))

    def _apart(self, name: str) -> str:
        return f"{name}@{self._circle.place}" if name.startswith(_OWN) and self._circle.place else name
