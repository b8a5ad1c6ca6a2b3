"""The coordinator's side of a run: what `coordinate` talks to.

Everything here is rebuilt from the journal, so that running again with the same run id is resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.federation.coordinator.asks import Asks, Progress
from comity.federation.coordinator.kept import Sent, opened
from comity.federation.coordinator.opening import open_release, summed_release
from comity.federation.coordinator.released import Total, curated, perturbed
from comity.federation.coordinator.transcript import Transcript, entrusted_steps, transcript_of
from comity.federation.declare.bounds import Range
from comity.federation.declare.plausibility import require_plausible, require_ranges
from comity.federation.declare.protection import Summed
from comity.federation.part import SUM
from comity.federation.step import spec_of
from comity.federation.sum.coordinator import SetUp

__all__ = ["Parties", "Progress"]


class Parties(Asks):
    """The parties of one run: asked for steps, summed, and what is made of their values. Every sum that is opened is
    compared with what public figures allow."""

    @property
    def set_ups(self) -> dict[int, SetUp]:
        """Of the secure sum, by circle."""
        return self._memory.set_ups

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        """Run a step that contributes and open its release the way the declaration says; the same call for each."""
        spec = spec_of(step, self.consortium)
        release = summed_release(self.declaration, spec)
        index = self._memory.count(release)
        sources = self.consortium.among(release.source)
        got = self.ask(step, label=index, need=release.least(self.consortium), to=sources, **values)
        found = open_release(self.under(SUM), self.agreed, release, index, got)
        require_plausible(release, self.consortium, found.value, found.parties)
        if isinstance(release.protection, Summed):
            self._memory.kept.add(release, f"{spec.name}[{index}]", opened(found.value, found.parties))
        return found

    def require(self, name: str, parties: int, ranges: Iterable[Range], *, sender: str = "") -> None:
        """End the run where what was opened of so many parties lies outside of what the method knows from public
        figures, beyond its bound: nothing may be made of it. `sender` is whose value it is, where it is one party's."""
        require_ranges(self.declaration[name], self.consortium, parties, ranges, sender=sender)

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """A value made from entrusted releases, with a trusted coordinator's noise: drawn once each time the release is
        made, and journalled."""
        release = self.declaration[name]
        index = self._memory.count(release)
        noisy = perturbed(release, index, value, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", noisy)
        return noisy

    def compute(self, name: str, values: Any) -> Any:
        """What a trusted coordinator's mechanism makes of values from entrusted releases: drawn once each time the
        release is made, and journalled."""
        release = self.declaration[name]
        index = self._memory.count(release)
        found = curated(release, index, values, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", found)
        return found

    @property
    def kept(self) -> dict[str, Any]:
        """What this run paid for so far, by release, as it was received."""
        return self._memory.kept.values(self.declaration)

    @property
    def sent(self) -> list[Sent]:
        """What parties were sent so far with asks of this run, and may keep."""
        return self._memory.kept.sent

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Chance or a decision of the coordinator: made once per run and journalled."""
        return self.journal.once(self.run, f"{self._mount}.{name}" if self._mount else name, make)

    @property
    def transcript(self) -> Transcript:
        return transcript_of(self.journal, self.study, self.run, entrusted=entrusted_steps(self.agreed))
