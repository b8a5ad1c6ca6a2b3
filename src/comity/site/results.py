"""An owner's results: written when a run ends, scored on and adapted to the owner's records, and fetched later.

    results/HASH-RUN/               what was released to this owner and what stays with it (`study.results.received`)
    results/HASH-RUN/signed.json    the files' digests, signed with this owner's key
    own-models/HASH-RUN/            the model adapted to this owner's records, mode 0600 in a folder of 0700
    own-scores/HASH-RUN.json        the scores on this owner's records, mode 0600

Scores and adapted models are beside the results, not among them: results are signed, fetched and may be passed on; what
was fitted on or counted among records without noise may not. No log line has a score either, because a collector may
read logs. `comity site status` and `comity fetch` show them.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from comity.artefacts.artefact import save_artefact
from comity.crypto import key_file
from comity.errors import BadInput, Stopped
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.evaluation.adaptation import OwnComparison
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
    from comity.data import LocalRecords
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

T = TypeVar("T")

_FOLDER, _MODELS = "own-scores", "own-models"


def score_results(host: Host, home: Path, run: str) -> None:
    """Score what a host received in a run that ended, and adapt it to the host's records. A failure here stops nothing
    else: the log says that there is no score or no adapted model, and nothing about the records."""
    score = _try_on_records(host, run, "scored on", host.agreement.protocol.score_own)
    adaptation = _try_on_records(host, run, "adapted to", host.agreement.protocol.adapt_own)
    comparison = None if adaptation is None else adaptation.comparison
    page = {name: None if one is None else asdict(one) for name, one in (("score", score), ("comparison", comparison))}
    try:
        if adaptation is not None:
            save_artefact(adaptation.model, own_model_folder(home, host.agreement.study, run))
        # Last: it says that scoring is done.
        write_atomically(_path(home, host.agreement.study, run), json.dumps(page) + "\n")
    except (BadInput, OSError) as error:
        log.warning("%s: the score of run %s can't be written: %s", host.party, run, error)


def _try_on_records(host: Host, run: str, what: str, use: Callable[[Any, LocalRecords, str], T | None]) -> T | None:
    try:
        presented = presented_to(host.agreement.protocol, host.received(run), host.consortium)
        return None if presented is None else use(presented, host.records, host.party)
    except Exception:
        # No exception text: a model's or a reader's message may quote records.
        log.warning("%s: what run %s released could not be %s the records here", host.party, run, what)
        return None


def is_scored(home: Path, study: str, run: str) -> bool:
    """Whether scoring was tried, with or without success."""
    return _path(home, study, run).exists()


def load_own_score(home: Path, study: str, run: str) -> OwnScore | None:
    """The score of a run of the study with this hash; None if there is none, or its file can't be read."""
    score: OwnScore | None = _load_figures(home, study, run, "score", OwnScore)
    return score


def load_own_comparison(home: Path, study: str, run: str) -> OwnComparison | None:
    """The owner alone, the joint model and the adapted one; None if there is none, or its file can't be read."""
    comparison: OwnComparison | None = _load_figures(home, study, run, "comparison", OwnComparison)
    return comparison


def _load_figures(home: Path, study: str, run: str, name: str, kind: type) -> Any:
    try:
        page = json.loads(_path(home, study, run).read_text(encoding="utf-8"))
        return validate(kind | None, page[name])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def own_model_folder(home: Path, study: str, run: str) -> Path:
    """Where the model is that was adapted to this owner's records. Beside the results: nothing there is passed on."""
    return home / _MODELS / f"{study[:12]}-{safe_name(run)}"


def own_copy_folder(fetched: Path) -> Path:
    """Where `comity fetch` writes the adapted model and its scores: beside the fetched folder, which may be passed
    on."""
    return fetched.with_name(f"{fetched.name}-own")


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
