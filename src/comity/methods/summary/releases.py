"""What leaves in one shot: noisy releases that all owners may see, and what is handed over to curator and consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Derived, Disclosed, Noised, Sealed, Summed
from comity.federation.declare.release import Array, Blob, Count, Fields
from comity.methods.summary import moments, ratio, spectrum
from comity.methods.summary.budget import Budget
from comity.methods.summary.forms import Chosen, Within
from comity.methods.summary.sizes import CONSUMER, HEADROOM, OWNER, consumer_of
from comity.privacy.mechanisms.gaussian import Gaussian


def noisy_releases(sizes: Mapping[str, int], width: int, who: Consortium) -> tuple[Release, ...]:
    """Moments of `width` features over all owners, the consumer's mean in their directions, each owner's mass, and what
    follows from those alone."""
    budget, owners = Budget.of(who), len(who.among(OWNER))
    most = HEADROOM * max(sizes[party] for party in who.among(OWNER))
    wished = HEADROOM * sizes[consumer_of(who)]
    return (
        Release(
            name="moments",
            source=OWNER,
            to=COORDINATOR,
            protection=Summed(Gaussian(budget.moments)),
            form=Array((moments.size(width),), "<i8"),
            bound=RecordSum(moments.MOVED, moments.REACH * most, most),
        ),
        Release(
            name="spectrum",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("moments"),
            form=Fields(
                {
                    "mean": Array((width,)),
                    "axes": Array((width, spectrum.MOST)),
                    "variances": Array((spectrum.MOST,)),
                }
            ),
        ),
        Release(
            name="wish",
            source=CONSUMER,
            to=COORDINATOR,
            protection=Noised(Gaussian(budget.wish)),
            form=Array((spectrum.MOST,), "<i8"),
            bound=RecordSum(2.0, float(wished), wished),
        ),
        Release(
            name="ratio",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("moments", "wish"),
            form=Array((1 + spectrum.MOST,)),
        ),
        Release(
            name="mass",
            source=OWNER,
            to=COORDINATOR,
            protection=Noised(Gaussian(budget.mass)),
            form=Array((1,), "<i8"),
            bound=RecordSum(ratio.MOST**2, ratio.MOST**2 * most, most),
        ),
        Release(
            name="attribution",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("moments", "wish", "mass"),
            form=Fields(
                {
                    "quotas": Array((owners,), "<i8"),
                    "shares": Array((owners,)),
                    "discrepancy": Array((2,)),
                }
            ),
        ),
    )


def handed_over(
    width: int, records: int, labels: Literal["<i8", "<f8"] | None, owners: int, *, within: Within, hashed: bool
) -> tuple[Release, ...]:
    """`records` rows of `width` numbers of all owners together, without differential privacy towards their readers."""
    what = "hashes of its chosen records, from which inner products and so distances follow" if hashed else "records"
    quota = Release(name="quota", source=COORDINATOR, to=OWNER, protection=Derived("mass"), form=Count(records))
    chosen = Release(
        name="chosen",
        source=OWNER,
        to=COORDINATOR,
        protection=Disclosed(
            f"exactly as many {what} as its quota; no differential privacy towards curator and consumer",
            "records_may_leave",
            sealed=True,
        ),
        form=Chosen(width, records, labels, within=within),
    )
    summary = Release(
        name="summary",
        source=COORDINATOR,
        to=(COORDINATOR, CONSUMER),
        protection=Derived("chosen"),
        form=Chosen(width, records, labels, owners, within),
    )
    if not hashed:
        return quota, chosen, summary
    seed = Release(
        name="seed",
        source=CONSUMER,
        to=OWNER,
        protection=Sealed("the seed of the hashes, which the curator does not know"),
        form=Blob(32),
    )
    return seed, quota, chosen, summary
