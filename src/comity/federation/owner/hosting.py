"""A party's host for one study, made from what its owner wrote and what its owner approved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity
from comity.data import digest_of
from comity.errors import Refused
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import Policy
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import NoiseSource, ReleasedNoise

if TYPE_CHECKING:
    from comity.data import LocalRecords


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What an owner said yes to: a study by its hash, one of its datasets, and how many runs."""

    study: str
    dataset: str
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What stands in an owner's site file. All of its studies share keys, ledger and terms.

    `datasets` read records as a study wants them, when a step first needs them. The policy's own list of approved
    studies is not used: an approval is given with each study.
    """

    party: str
    keys: Identity
    ledger: Ledger
    policy: Policy
    datasets: Mapping[str, Callable[[Agreement], LocalRecords]]
    noise: NoiseSource = field(default_factory=ReleasedNoise)
    local: Callable[..., Any] | None = None


def host_of(owner: Owner, agreed: Agreement, approval: Approval) -> Host:
    """The host of an approved study. Refuses what could never be answered: another study than was approved, a party
    that is not asked, keys that the study does not pin, a dataset without records or without a budget."""
    who, study = agreed.consortium, agreed.study
    if approval.study != study:
        raise Refused(
            f"study {study[:12]} was given and study {approval.study[:12]} approved; approve the one that is to run",
            code="study",
        )
    if approval.runs < 1:
        raise Refused(f"study {study[:12]} is approved for {approval.runs} runs; expected 1 or more", code="approval")
    if owner.party not in who.parties:
        raise Refused(
            f"study {study[:12]} has no party {owner.party!r}; see its [parties]", code="study", key="parties"
        )
    for name in (COORDINATOR, owner.party):
        if name not in who.roster:
            raise Refused(f"study {study[:12]} pins no keys of {name}; add them to it", code="keys", key="keys")
    if who.roster[owner.party] != owner.keys.public:
        raise Refused(
            f"study {study[:12]} pins another key of {owner.party} than this site has; send yours to its author",
            code="keys",
            key="keys",
        )
    if approval.dataset not in owner.datasets:
        raise Refused(
            f"the site has the datasets {', '.join(owner.datasets)}, the approval names {approval.dataset!r}",
            code="approval",
            key="dataset",
        )
    budgets = [account.dataset for account in owner.ledger.summary()]
    if approval.dataset not in budgets:
        raise Refused(
            f"the ledger has a budget for {', '.join(budgets)}, the approval names {approval.dataset!r}",
            code="approval",
            key="dataset",
        )
    return Host(
        agreed,
        owner.party,
        records=lambda: owner.datasets[approval.dataset](agreed),
        keys=owner.keys,
        store=Store(
            owner.ledger, unit=who.unit, neighbours=who.neighbours, dataset=approval.dataset, study=agreed.study
        ),
        noise=owner.noise,
        policy=replace(owner.policy, approved={study: approval.runs}),
        local=owner.local,
        digest=digest_of,
    )
