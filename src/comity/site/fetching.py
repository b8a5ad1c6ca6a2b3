"""An owner's results read again, as a run folder of the form that a simulation has.

Two signatures are looked at: the owner's own on the files, so that one that was altered is named, and the coordinator's
on each value, so that the result is worth something to others.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from comity.crypto.sealing import key_file
from comity.errors import BadInput, Stopped
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.consortium import COORDINATOR
from comity.privacy.ledger import Ledger
from comity.site.inbox import Inbox
from comity.site.pack import write_files
from comity.site.results import results_folder
from comity.site.runs import RunHere, runs_of
from comity.study.results.outcome import Account, Outcome
from comity.study.results.received import check_received, load_received
from comity.study.results.signed_files import checked_files

if TYPE_CHECKING:
    from comity.federation.declare.consortium import Consortium
    from comity.site.site_file import SiteFile
    from comity.study.study import Study


def fetched(site: SiteFile, named: str) -> tuple[Study, Outcome]:
    """A run as this owner has it: what was released to it, and what stays with it. Others' messages are not known here,
    and how good it is nobody measured."""
    run = _ended(Ledger(site.ledger), named)
    box = Inbox(site.home)
    study = box.study(box.find(run.mark).study)
    folder, who, protocol = results_folder(site.home, study.hash, run.run), study.consortium, study.protocol
    own = key_file.load(site.keys).public
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as copy:
        write_files(checked_files(folder, own, study=study.hash, run=run.run), Path(copy))
        found, _ = load_received(copy)
    check_received(found, folder, who.roster[COORDINATOR], study=study.hash, run=run.run)
    outcome = Outcome.of(study.agreed, found.releases, Transcript(()), run=run.run, partly=True)
    return study, replace(
        outcome,
        accounts=_accounts(Ledger(site.ledger), run.dataset, site.party, who),
        simulated=False,
        received={site.party: found},
        presented_to={site.party: outcome.presented},
        kept={site.party: protocol.present_own(found.own, who)},
    )


def _accounts(ledger: Ledger, dataset: str, party: str, who: Consortium) -> tuple[Account, ...]:
    """This owner's own ledger: of others' it knows nothing."""
    return tuple(Account.of(party, one, who) for one in ledger.summary() if one.dataset == dataset)


def _ended(ledger: Ledger, named: str) -> RunHere:
    mark, slash, run = named.rpartition("/")
    known = [one for one in runs_of(ledger) if one.run == (run if slash else named) and one.mark.startswith(mark)]
    if len(known) != 1:
        listed = ", ".join(f"{one.mark[:12]}/{one.run}" for one in runs_of(ledger)) or "none"
        many = f"{len(known)} runs here are" if known else "no run here is"
        raise BadInput(f"{many} called {named!r}; there are: {listed}", key="run")
    if known[0].state != "closed":
        raise Stopped(f"run {named} is {known[0].state} here, and has no results; fetch it when it has ended")
    return known[0]
