"""What an owner is shown before it approves a study: its own view of the plan, and how its records fit.

Whatever would be refused later is refused here, by the same code: study, keys, policy, budget, records. Nothing is
written, and what is said about records is for the owner's own terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from comity.errors import BadInput
from comity.federation.owner.hosting import Approval, Owner
from comity.site.hosting import host_for
from comity.site.site_file import SiteFile
from comity.site.view import OwnersView, view_of
from comity.study.records.encodings import encoding_of
from comity.study.records.held_records import held_records
from comity.study.records.sources import sentences
from comity.study.study import Study


@dataclass(frozen=True)
class Considered:
    """A study that may be approved, and what is odd about the records that it would read."""

    view: OwnersView
    findings: tuple[str, ...]


def dataset_for(site: SiteFile, named: str | None) -> str:
    """The dataset that is meant; the only one where none is named."""
    if named is None and len(site.data) != 1:
        raise BadInput(
            f"{site.where} has the datasets {', '.join(site.data)}; say which one the study may read: --dataset NAME",
            key="dataset",
        )
    name = next(iter(site.data)) if named is None else named
    site.source(name)
    return name


def considered(site: SiteFile, owner: Owner, study: Study, *, dataset: str, runs: int) -> Considered:
    """What an approval of the study for so many runs in all would mean, or why there can be none."""
    host = host_for(site, owner, study, Approval(study=study.hash, dataset=dataset, runs=runs))
    begun = host.store.runs_of(study.hash, other_than="")
    if begun >= runs:
        raise BadInput(
            f"study {study.hash[:12]} has begun {begun} runs here, and --runs counts all of them; give "
            f"{begun + 1} or more",
            key="runs",
        )
    view = view_of(host, study.plan(), dataset=dataset, runs=runs)
    return Considered(view, check_records(site, study, dataset))


def check_records(site: SiteFile, study: Study, dataset: str) -> tuple[str, ...]:
    """What is odd about a dataset's records for a study, in sentences without values; all of them are read."""
    where, party, protocol = f"{site.where}: data.{dataset}", site.party, study.protocol
    limit = int(site.memory * 2**30)
    source = site.source(dataset)
    _, frame = held_records(protocol, study.consortium, source, where=where, party=party, limit=limit)
    if frame is None:
        return ()
    # It brings pandas, which a site that serves needs for files of its own alone.
    from comity.data import explain

    declared, schema = study.parameters.declared_records(party), encoding_of(protocol, where, party).schema
    return sentences(explain(schema, frame, where, unit=study.privacy.unit.value, records=declared))
