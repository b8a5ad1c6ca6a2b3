"""The site file: an owner's data, budget and terms. It never leaves the owner's disk.

Relative paths start at its folder, which also holds arrived studies, decisions, results and refusals. A key left out of
the policy allows the least: no protocol, no submitter, nothing exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from comity.crypto import key_file
from comity.crypto.sealing import PublicIdentity
from comity.data import check_table, open_source
from comity.data.tables.encoded_cache import DEFAULT_CACHE_BYTES, CachePlace
from comity.errors import BadInput, StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import check_party_name, check_party_names
from comity.federation.declare.policy import Period, Policy
from comity.federation.owner.registry import Owner
from comity.methods import PROTOCOLS
from comity.methods.tables import Table, hint, validate
from comity.privacy.ledger import Ledger
from comity.site.backups import BackupTable
from comity.site.notices import NoticesTable, check_notices
from comity.study.records.encoding import load_records
from comity.study.tables import prefix_errors
from comity.untrusted.toml import parse_toml

if TYPE_CHECKING:
    from comity.data import LocalRecords, Source

NAME = "site.toml"

Approving = Literal["by-hand", "within-policy"]


class PolicyTable(Table):
    """The owner's terms; `Policy` says what each key means."""

    protocols: tuple[str, ...] = ()
    variants: tuple[Literal["default", "published"], ...] = ("default",)
    epsilon_per_study: float = Field(gt=0, allow_inf_nan=False)
    delta_per_study: float = Field(0.0, ge=0, lt=1)
    epsilon_per_period: float | None = Field(None, gt=0, allow_inf_nan=False)
    delta_per_period: float | None = Field(None, ge=0, lt=1)
    period_days: int | None = Field(None, ge=1)
    submitters: tuple[str, ...] = ()
    sizes_may_leave: bool = False
    records_may_leave: bool = False
    joint_predictions: int = Field(0, ge=0)
    unproven: bool = False
    approval: Approving = "by-hand"


class SiteTables(Table):
    """The tables of a site file, as written."""

    party: str
    ledger: str = Field(min_length=1)
    keys: str = Field(min_length=1)
    policy: PolicyTable
    data: dict[str, Any]
    pinned: dict[str, dict[str, str]] = Field(default_factory=dict)
    # The relay that the site connects to.
    invitation: str | None = Field(None, min_length=1)
    notices: NoticesTable | None = None
    backup: BackupTable | None = None
    # Gigabytes of encoded records of one dataset that are held in memory; more are read in blocks.
    memory: float = Field(1.0, gt=0)
    # Gigabytes of encoded records of one run that may be on disk, in a file without a name beside the site file.
    cache: float = Field(DEFAULT_CACHE_BYTES / 2**30, ge=0, allow_inf_nan=False)


@dataclass(frozen=True, eq=False)
class SiteFile:
    """An owner's site file, parsed. `where` is the file, `home` its folder."""

    where: str
    home: Path
    party: str
    ledger: Path
    keys: Path
    data: Mapping[str, Mapping[str, Any]]
    policy: Policy
    approval: Approving
    invitation: Path | None
    memory: float
    cache: float
    notices: NoticesTable | None = None
    backup: BackupTable | None = None

    @classmethod
    def load(cls, path: str | Path) -> SiteFile:
        """Read a site file; a StudyError names the wrong key. This opens neither records nor secrets."""
        path = Path(path)
        where = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StudyError(f"{where}: there is no such site file; make one: comity site init") from None
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(f"{where}: the site file can't be read ({error})") from error
        tables = parse_toml(text, where)
        if "relay" in tables:
            raise StudyError(
                f"{where}: [relay] is of an earlier version, whose members had certificates; replace the table by "
                'invitation = "consortium.toml" and put the consortium\'s invitation there (docs/deploy.md, Coming '
                "from certificates)",
                key="relay",
            )
        file = validate(SiteTables, tables, where, "")
        with prefix_errors(where):
            check_party_name(file.party, key="party")
            check_party_names(file.pinned, key="pinned")
        if not file.data:
            raise StudyError(f"{where}: data: a site needs a dataset; add [data.NAME]", key="data")
        for name, table in file.data.items():
            _check_dataset(name, table, where)
        if file.notices is not None:
            check_notices(file.notices, where)
        home = path.resolve().parent
        return cls(
            where=where,
            home=home,
            party=file.party,
            ledger=home / file.ledger,
            keys=home / file.keys,
            data=file.data,
            policy=_policy(file, where),
            approval=file.policy.approval,
            invitation=None if file.invitation is None else home / file.invitation,
            memory=file.memory,
            cache=file.cache,
            notices=file.notices,
            backup=file.backup,
        )

    def owner(self) -> Owner:
        """Open the site's keys and ledger; refused unless the ledger has a budget for each dataset."""
        keys, ledger = key_file.load(self.keys), Ledger(self.ledger)
        budgets = {account.dataset for account in ledger.summary()}
        for name in self.data:
            if name not in budgets:
                raise StudyError(
                    f"{self.where}: data.{name} has no budget in {self.ledger}, which has one for "
                    f"{', '.join(sorted(budgets))}; add it: comity ledger add {self.ledger} --dataset {name} ...",
                    key=f"data.{name}",
                )
        readers: dict[str, Callable[[Agreement], LocalRecords]] = {
            name: partial(self.records, name) for name in self.data
        }
        return Owner(party=self.party, keys=keys, ledger=ledger, policy=self.policy, datasets=readers)

    def source(self, dataset: str) -> Source:
        """The source of a dataset's records; a missing file raises here."""
        if dataset not in self.data:
            raise BadInput(
                f"{self.where}: there is no data.{dataset}{hint(dataset, self.data)}; it has {', '.join(self.data)}",
                key="dataset",
            )
        return open_source(self.data[dataset], where=f"{self.where}: data.{dataset}", base=self.home)

    def records(self, dataset: str, agreement: Agreement) -> LocalRecords:
        """The records of a dataset, encoded for a study."""
        where = f"{self.where}: data.{dataset}"
        limit = int(self.memory * 2**30)
        return load_records(
            agreement.protocol,
            agreement.consortium,
            self.source(dataset),
            where=where,
            party=self.party,
            limit=limit,
            cache=CachePlace(self.home, int(self.cache * 2**30)),
        )[0]


def _check_dataset(name: str, table: Any, where: str) -> None:
    key = f"data.{name}"
    if not isinstance(table, Mapping):
        raise StudyError(
            f"{where}: {key}: expected a table with source = ..., found {type(table).__name__}; write [data.NAME]",
            key=key,
        )
    try:
        check_table(table, f"{where}: {key}")
    except StudyError as error:
        raise StudyError(str(error), key=f"{key}.{error.key}") from None


def _policy(file: SiteTables, where: str) -> Policy:
    table = file.policy
    for name in table.protocols:
        if name not in PROTOCOLS:
            raise StudyError(
                f"{where}: policy.protocols: {name!r} is not a method{hint(name, PROTOCOLS)}; known are "
                f"{', '.join(PROTOCOLS)}",
                key="policy.protocols",
            )
    period = None
    for key, other in (
        ("period_days", "epsilon_per_period"),
        ("epsilon_per_period", "period_days"),
        ("delta_per_period", "epsilon_per_period"),
    ):
        if getattr(table, key) is not None and getattr(table, other) is None:
            raise StudyError(
                f"{where}: policy.{key} needs policy.{other}; write both or neither",
                key=f"policy.{other}",
            )
    if table.epsilon_per_period is not None and table.period_days is not None:
        delta = table.delta_per_study if table.delta_per_period is None else table.delta_per_period
        # As written: 0.1 in a file is exactly a tenth, not the nearest double.
        period = Period(
            epsilon=Decimal(repr(table.epsilon_per_period)), delta=Decimal(repr(delta)), days=table.period_days
        )
    pinned = _pinned(file, where)
    allowed = {"sizes_may_leave": table.sizes_may_leave, "records_may_leave": table.records_may_leave}
    return Policy(
        protocols=table.protocols,
        variants=table.variants,
        epsilon_per_study=table.epsilon_per_study,
        delta_per_study=table.delta_per_study,
        period=period,
        submitters={name: pinned[name] for name in file.policy.submitters},
        pinned=pinned,
        disclosures=frozenset(name for name, is_allowed in allowed.items() if is_allowed),
        joint_predictions=table.joint_predictions,
        unproven=table.unproven,
    )


def _pinned(file: SiteTables, where: str) -> dict[str, PublicIdentity]:
    """The keys that the owner pinned; every submitter must be among them."""
    pinned = {}
    for name in file.policy.submitters:
        if name not in file.pinned:
            raise StudyError(
                f"{where}: policy.submitters names {name!r}, whose keys are not pinned{hint(name, file.pinned)}; add "
                f"[pinned.{name}] with sign, mlkem and x25519",
                key="policy.submitters",
            )
    for name, texts in file.pinned.items():
        try:
            pinned[name] = PublicIdentity.from_texts(texts)
        except (KeyError, ValueError):
            raise StudyError(
                f"{where}: pinned.{name} must hold sign, mlkem and x25519 as hexadecimal text, as comity keys show "
                "prints them",
                key=f"pinned.{name}",
            ) from None
    return pinned
