"""The coordinator of a study between organisations, over whatever channel reaches their sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.federation.coordinator.parties import Parties, Progress
from comity.federation.messages.channel import FOR_EVER, Channel, Patience
from comity.federation.messages.sealed_channel import SealedChannel
from comity.privacy.randomness import ReleasedNoise

if TYPE_CHECKING:
    from comity.crypto.sealing.sealed import Identity
    from comity.federation.coordinator.exchange import Watch
    from comity.federation.coordinator.journal import Journal
    from comity.study.study import Study


def coordinator(
    study: Study,
    *,
    run: str,
    channel: Channel,
    journal: Journal,
    keys: Identity,
    progress: Progress | None = None,
    patience: Patience = FOR_EVER,
    watch: Watch | None = None,
) -> Parties:
    """The coordinator's side of one run, for `whole_run`. What the channel carries is sealed to the sites, and what
    they reply to this process. Running again with the same journal and run id resumes."""
    agreed = study.agreed
    return Parties(
        agreed,
        run=run,
        channel=SealedChannel(channel, agreed.consortium.roster),
        journal=journal,
        keys=keys,
        noise=ReleasedNoise(),
        progress=progress,
        patience=patience,
        watch=watch,
    )
