"""An owner's results: written when a run ends, scored on the owner's records, and fetched later.

    results/HASH-RUN/               what was released to this owner and what stays with it (`study.results.received`)
    results/HASH-RUN/signed.json    the files' digests, signed with this owner's key
    own-scores/HASH-RUN.json        the score on this owner's records, mode 0600

Scores are beside the results, not among them: results are signed, fetched and may be passed on; a figure about records
may not. No log line has a score either, because a collector may read logs. `comity site status` and `comity fetch` show
them.
"""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from comity.crypto import key_file
from comity.errors import BadInput, Stopped
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.evaluation.own_score import OwnScore
from comity.federation.protocol import presented_to
from comity.files import write_atomically
from comity.privacy.ledger import Ledger
from comity.site.inbox import Inbox
from comity.site.pack import write_files
from comity.site.status import SiteRun, list_runs
from comity.study.results.released import PAGE, check_received, load_received, safe_name, save_received
from comity.study.results.result import Account, Result
from comity.study.results.signatures import NAME, read_signed_files, sign_files
from comity.untrusted.pages import validate

if TYPE_CHECKING:
    from comity.federation.declare.consortium import Consortium
    from comity.federation.owner.host import Host
    from comity.site.site_file import SiteFile
    from comity.study.study import Study


def results_folder(home: Path, study: str, run: str) -> Path:
    """The folder of an owner's results of a run."""
    return home / "results" / f"{study[:12]}-{safe_name(run)}"


def are_written(home: Path, study: str, run: str) -> bool:
    """Whether the results are complete: these two files are written last."""
    return all((results_folder(home, study, run) / last).exists() for last in (PAGE, NAME))


def write_results(host: Host, home: Path, run: str) -> None:
    """Write what a host received in a run that ended. The same ledger gives the same folder again."""
    study, received = host.agreement.study, host.received(run)
    folder = results_folder(home, study, run)
    save_received(
        received,
        presented_to(host.agreement.protocol, received, host.consortium),
        folder,
        party=host.party,
        study=study,
        run=run,
        declaration=host.declaration,
        consortium=host.consortium,
        kept=host.agreement.protocol.present_own(received.own, host.consortium),
        measured=host.agreement.evaluation_figures(received),
    )
    names = sorted(one.name for one in folder.iterdir() if one.name != NAME and not one.name.startswith("."))
    sign_files(folder, names, host.keys, study=study, run=run)


log = logging.getLogger("comity.site")

_FOLDER = "own-scores"


def score_results(host: Host, home: Path, run: str) -> None:
    """Score what a host received in a run that ended. A failure here stops nothing else: the log says that there is no
    score, and nothing about the records."""
    try:
        score = _compute_score(host, run)
    except Exception:
        # No exception text: a model's or a reader's message may quote records.
        log.warning("%s: what run %s released could not be scored on the records here", host.party, run)
        score = None
    page = {"score": None if score is None else asdict(score)}
    try:
        write_atomically(_path(home, host.agreement.study, run), json.dumps(page) + "\n")
    except BadInput as error:
        log.warning("%s: the score of run %s can't be written: %s", host.party, run, error)


def _compute_score(host: Host, run: str) -> OwnScore | None:
    protocol = host.agreement.protocol
    presented = presented_to(protocol, host.received(run), host.consortium)
    return None if presented is None else protocol.score_own(presented, host.records, host.party)


def is_scored(home: Path, study: str, run: str) -> bool:
    """Whether scoring was tried, with or without success."""
    return _path(home, study, run).exists()


def load_own_score(home: Path, study: str, run: str) -> OwnScore | None:
    """The score of a run of the study with this hash; None if there is none, or its file can't be read."""
    try:
        page = json.loads(_path(home, study, run).read_text(encoding="utf-8"))
        score: OwnScore | None = validate(OwnScore | None, page["score"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return score


def _path(home: Path, study: str, run: str) -> Path:
    return home / _FOLDER / f"{study[:12]}-{safe_name(run)}.json"


def load_results(site: SiteFile, named: str, ledger: Ledger | None = None) -> tuple[Study, Result]:
    """A run as this owner has it, in the form of a simulation's outcome: what was released to the owner, and what stays
    with it. It has neither the other parties' messages nor an assessment.

    Two signatures are checked: the owner's on the files, which detects an altered one, and the coordinator's on each
    value, which proves the result to others. `ledger` is the site's, if the caller has it open."""
    ledger = Ledger(site.ledger) if ledger is None else ledger
    run = _find_ended_run(ledger, named)
    box = Inbox(site.home)
    study = box.study(box.find(run.mark).study)
    folder, consortium, protocol = results_folder(site.home, study.hash, run.run), study.consortium, study.protocol
    own = key_file.load(site.keys).public
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as copy:
        write_files(read_signed_files(folder, own, study=study.hash, run=run.run), Path(copy))
        received, _ = load_received(copy)
    check_received(received, folder, consortium.roster[COORDINATOR], study=study.hash, run=run.run)
    outcome = Result.of(study.agreement, received.releases, Transcript(()), run=run.run, partly=True)
    return study, replace(
        outcome,
        accounts=_accounts(ledger, run.dataset, site.party, consortium),
        simulated=False,
        received={site.party: received},
        presented_to={site.party: outcome.presented},
        kept={site.party: protocol.present_own(received.own, consortium)},
    )


def _accounts(ledger: Ledger, dataset: str, party: str, consortium: Consortium) -> tuple[Account, ...]:
    """The account in this owner's ledger; other parties' ledgers are unknown here."""
    return tuple(Account.of(party, one, consortium) for one in ledger.summary() if one.dataset == dataset)


def _find_ended_run(ledger: Ledger, named: str) -> SiteRun:
    mark, slash, run = named.rpartition("/")
    known = [one for one in list_runs(ledger) if one.run == (run if slash else named) and one.mark.startswith(mark)]
    if len(known) != 1:
        listed = ", ".join(f"{one.mark[:12]}/{one.run}" for one in list_runs(ledger)) or "none"
        many = f"{len(known)} runs here are" if known else "no run here is"
        raise BadInput(f"{many} called {named!r}; there are: {listed}", key="run")
    if known[0].state != "closed":
        raise Stopped(f"run {named} is {known[0].state} here and has no results; fetch it after it has ended")
    return known[0]
