"""What an approval would mean, shown before the owner gives it, and the host that serves an approved study.

`preview_approval` raises every refusal that a run would raise later, by the same code: study, keys, policy, budget,
records. It writes nothing, and what it says about records is for the owner's terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from typing import Any

import numpy as np

from comity.data.tables.encoded_cache import CachePlace
from comity.errors import BadInput, ComityError, Malformed, Refused
from comity.federation.declare.consortium import COORDINATOR, format_participants
from comity.federation.declare.declaration import Release
from comity.federation.declare.payers import delta_of, format_spent, spent_by
from comity.federation.declare.policy import KnownParties
from comity.federation.evaluation.protocol import MODEL
from comity.federation.messages.ask import END
from comity.federation.messages.codec import decode
from comity.federation.owner.host import Host
from comity.federation.owner.registry import Approval, Owner, host_of
from comity.federation.owner.store import Store
from comity.federation.plan import Plan
from comity.privacy.ledger import Account, format_rounded
from comity.site.inbox import Inbox
from comity.site.site_file import SiteFile
from comity.study.records.encoding import data_warnings, encoding_of, load_records
from comity.study.study import Study
from comity.untrusted.text import escape_line


def host_for(site: SiteFile, owner: Owner, study: Study, approval: Approval) -> Host:
    """The host of an approved study. It refuses what `host_of` refuses, a method that this installation can't compute,
    and a joint prediction whose weights are not those that a run released to this owner."""
    study.agreement.protocol.require_installed()
    _require_own_model(site, owner, study)
    return host_of(owner, study.agreement, approval)


def _require_own_model(site: SiteFile, owner: Owner, study: Study) -> None:
    """Refuse a joint prediction unless it applies the model that a run of an approved study released to this owner, to
    the same columns of the same parties. With weights of its choice a coordinator could compute any linear function:
    weights that are zero but for one column reveal that column, record by record."""
    table = study.prediction
    if table is None:
        return
    from comity.methods.vertical.prediction import JointPrediction

    short = study.hash[:12]
    try:
        trained = Inbox(site.home).study(table.of)
    except ComityError as error:
        raise Refused(
            f"refused: study {short} applies a model of study {table.of[:12]}, which is not in this inbox as it "
            f"arrived ({error})",
            code="study",
            key="prediction.of",
        ) from error
    if _column_layout(trained) != _column_layout(study):
        raise Refused(
            f"refused: study {short} has another schema, other parties, columns, keys or parameters than study "
            f"{table.of[:12]}, whose model it applies; its author can write it with comity predict",
            code="study",
            key="prediction.of",
        )
    consortium = trained.consortium
    store = Store(owner.ledger, unit=consortium.unit, neighbours=consortium.neighbours, study=trained.hash)
    raw = store.delivered(table.run, MODEL).get(MODEL, {}).get(str(END))
    try:
        released = None if raw is None else np.asarray(decode(raw), np.float64).reshape(-1)
    except (Malformed, ValueError, TypeError):
        released = None
    if released is None:
        raise Refused(
            f"refused: study {short} applies the model of run {table.run} of study {table.of[:12]}, which released "
            "none here; see: comity site status",
            code="study",
            key="prediction.run",
        )
    assert isinstance(study.protocol, JointPrediction)
    if released.tobytes() != study.protocol.coef.tobytes():
        raise Refused(
            f"refused: the weights of study {short} are not those that run {table.run} released to this site; ask its "
            "author why",
            code="study",
            key="prediction.weights",
        )


def _column_layout(study: Study) -> tuple[object, ...]:
    """What maps each weight to a column of a party; the order matters."""
    parties = study.parties if isinstance(study.parties, int) else tuple(study.parties.items())
    return study.schema.digest(), parties, study.method


@dataclass(frozen=True)
class ReleaseRow:
    """One release that leaves the site or reaches it; `other` is the receiver or the source."""

    release: str
    other: str
    protection: str
    loss: str


@dataclass(frozen=True)
class OwnersView:
    """A study as one owner sees it: what leaves this site, to whom, and at what cost to its budget. `before` and
    `after` are the epsilon left for the dataset, now and after all approved runs; `arithmetic` remarks on them, and
    `accounts` are what they were read from."""

    plan: Plan
    study: str
    party: str
    coordinator: str
    parties: KnownParties
    noise_left: float
    dataset: str
    runs: int
    leaves: tuple[ReleaseRow, ...]
    exactly: tuple[str, ...]
    reaches: tuple[ReleaseRow, ...]
    cost: str
    before: str
    after: str
    arithmetic: str
    accounts: tuple[Account, Account]

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.plan.study,
            "hash": self.study,
            "party": self.party,
            "coordinator": self.coordinator,
            "parties": [vars(one) for one in self.parties.parties],
            "parties_known": len(self.parties.known),
            "noise_left": self.noise_left,
            "dataset": self.dataset,
            "runs": self.runs,
            "leaves": [vars(one) for one in self.leaves],
            "leaves_exactly": list(self.exactly),
            "reaches_you": [vars(one) for one in self.reaches],
            "cost": self.cost,
            "left_before": self.before,
            "left_after": self.after,
            "plan": self.plan.as_json(),
        }

    def as_text(self) -> str:
        plan = self.plan
        lines = [
            f"{plan.study} · {plan.protocol} · {plan.parties} parties · unit: {plan.unit}, {plan.neighbours}",
            *(f"  {key.replace('_', ' '):<14} {text}" for key, text in plan.about.given().items()),
            f"  study hash     {self.study}",
            f"  coordinator    {self.coordinator}",
            *parties_lines(self.parties),
            f"  what leaves {self.party}",
            *_table(("release", "to", "protection", "loss a run"), self.leaves, "nothing"),
            *(f"    EXACTLY      {one}" for one in self.exactly),
            f"  what reaches {self.party}",
            *_table(("release", "from", "protection", ""), self.reaches, "nothing"),
            f"  cost           {self.cost} of {self.dataset} for {_runs(self.runs)}",
            f"  left           {self.before} now, {self.after} after{self.arithmetic}",
        ]
        lines += [f"  true loss      {loss}" for loss in plan.true_losses]
        lines += [f"  WARNING        {one}" for one in plan.claim_warnings]
        if self.parties.missing_colluders:
            lines.append(f"  WARNING        {self.unknown_warning()}")
        lines += [f"  WARNING        {warning}" for warning in plan.warnings]
        lines.append(f"  holds against  {plan.adversary}")
        lines += [f"  note           {note}" for note in plan.notes]
        # The study's author chose its texts; none of them may start a line of this page.
        return "\n".join(map(escape_line, lines))

    def unknown_warning(self) -> str:
        """What parties without a pinned key mean for this owner."""
        parties = self.parties
        left = (
            ""
            if self.noise_left == 1
            else f" The noise that hides your records would have {self.noise_left:.2g} of the variance that this cost "
            f"assumes; with Gaussian noise you would lose {self.noise_left**-0.5:.2g} times as much."
        )
        return (
            f"{len(parties.unknown)} of {len(parties.parties) - 1} other parties are unknown to you. The study's "
            f"author may have invented them, and then they add no noise.{left} Pin the keys of those you know, or ask "
            f"for privacy.colluders = {parties.needed_colluders} (the study has {parties.colluders})"
        )


def parties_lines(known: KnownParties) -> list[str]:
    """Each party of a study with its key's fingerprint, and whether the owner pinned it."""
    listed = [(one.name, one.fingerprint or "no key", one.standing) for one in known.parties]
    return [
        f"  parties        {known.in_words()}; compare fingerprints by telephone and pin the keys",
        *_columns(("name", "fingerprint of its key", ""), listed),
    ]


def make_owners_view(host: Host, plan: Plan, *, dataset: str, runs: int) -> OwnersView:
    """What an approval for this many runs would mean. It writes nothing, and raises the refusal that policy or ledger
    would raise for these runs."""
    agreement, party, consortium = host.agreement, host.party, host.consortium
    host.permit(runs - 1)
    known = KnownParties.of(consortium, party, host.policy.pinned)
    begun = host.store.runs_of(agreement.study, other_than="")
    foreseen = host.store.foresee(host.reservation(), *(f"run {number}" for number in range(begun, runs)))
    before, after = (
        next(account for account in accounts if account.dataset == dataset)
        for accounts in (host.store.ledger.summary(), foreseen)
    )
    parts = (agreement.declared(mount) for mount in (*agreement.protocol.parts, *agreement.evaluation_mounts))
    exact = [
        release
        for declaration in (agreement.declaration, *parts)
        for release in declaration.disclosures(party, consortium)
    ]
    declaration = agreement.declaration
    leaves = [
        one for one in declaration.releases if one.source != COORDINATOR and consortium.includes(one.source, party)
    ]
    return OwnersView(
        plan=plan,
        study=agreement.study,
        party=party,
        coordinator=host.identity_of(COORDINATOR).fingerprint,
        parties=known,
        noise_left=known.noise_left(agreement.declaration, consortium, party),
        dataset=dataset,
        runs=runs,
        leaves=tuple(_release_row(one, one.to) for one in leaves),
        exactly=tuple(dict.fromkeys(f"{one.name}: {one.protection.text}" for one in exact)),
        reaches=tuple(
            _release_row(one, one.source) for one in declaration.seen_by(party, consortium) if one not in leaves
        ),
        cost=format_spent(spent_by(declaration, party, consortium, runs=runs), delta_of(consortium)),
        before=_left(before),
        after=_left(after),
        arithmetic=after.arithmetic,
        accounts=(before, after),
    )


def _release_row(release: Release, other: str | tuple[str, ...]) -> ReleaseRow:
    times = f" x{release.times}" if release.times > 1 else ""
    loss = "-" if release.loss is None else str(release.loss * release.times)
    return ReleaseRow(release.name + times, format_participants(other), release.protection.text, loss)


def _left(account: Account) -> str:
    return "no limit" if account.left is None else f"eps {format_rounded(account.left, ROUND_FLOOR)}"


def _table(heads: tuple[str, str, str, str], rows: tuple[ReleaseRow, ...], none: str) -> list[str]:
    if not rows:
        return [f"    {none}"]
    return _columns(heads, [(one.release, one.other, one.protection, one.loss if heads[3] else "") for one in rows])


def _columns(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [heads, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    return ["    " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs in all"


@dataclass(frozen=True)
class ApprovalPreview:
    """A study that the owner may approve, and warnings about the records that it would read."""

    view: OwnersView
    data_warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"view": self.view.as_json(), "findings": list(self.data_warnings)}

    def as_text(self) -> str:
        warnings = (escape_line(f"  WARNING        {sentence}") for sentence in self.data_warnings)
        return "\n".join([self.view.as_text(), *warnings])


def choose_dataset(site: SiteFile, named: str | None) -> str:
    """The named dataset, or the only one if none is named."""
    if named is None and len(site.data) != 1:
        raise BadInput(
            f"{site.where} has the datasets {', '.join(site.data)}; say which one the study may read: --dataset NAME",
            key="dataset",
        )
    name = next(iter(site.data)) if named is None else named
    site.source(name)
    return name


def preview_approval(site: SiteFile, owner: Owner, study: Study, *, dataset: str, runs: int) -> ApprovalPreview:
    """What an approval of the study for `runs` runs in all would mean; raises why it is impossible."""
    view = preview_plan(site, owner, study, dataset=dataset, runs=runs).view
    return ApprovalPreview(view, check_records(site, study, dataset))


def preview_plan(site: SiteFile, owner: Owner, study: Study, *, dataset: str, runs: int) -> ApprovalPreview:
    """The same without the warnings about the records, of which it reads none."""
    host = host_for(site, owner, study, Approval(study=study.hash, dataset=dataset, runs=runs))
    begun = host.store.runs_of(study.hash, other_than="")
    if begun >= runs:
        raise BadInput(
            f"study {study.hash[:12]} has started {begun} runs here, and --runs counts all of them; give "
            f"{begun + 1} or more",
            key="runs",
        )
    return ApprovalPreview(make_owners_view(host, study.plan(), dataset=dataset, runs=runs), ())


def check_records(site: SiteFile, study: Study, dataset: str) -> tuple[str, ...]:
    """Warnings about a dataset's records for a study, in sentences without values; this reads all records."""
    where, party, protocol = f"{site.where}: data.{dataset}", site.party, study.protocol
    limit = int(site.memory * 2**30)
    source = site.source(dataset)
    cache = CachePlace(site.home, int(site.cache * 2**30))
    _, frame = load_records(
        protocol, study.consortium, source, where=where, party=party, limit=limit, cache=cache, only_check=True
    )
    if frame is None:
        return ()
    # Imported late: it brings pandas, which a serving site does not otherwise need.
    from comity.data import explain

    declared, schema = study.method.declared_records(party), encoding_of(protocol, where, party).schema
    return data_warnings(explain(schema, frame, where, unit=study.privacy.unit.value, records=declared))
