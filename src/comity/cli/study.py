"""`comity study`: pack a study for its parties, or submit it to them and run it."""

from __future__ import annotations

import time
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.console import LOOPBACK, AsRole, ConsoleOptions, Invite, takes_console_options
from comity.cli.options import INVITATION, RUNS, AsJson, InvitationFile, Quiet, RunsFolder, StudyFile, make_group
from comity.cli.output import progress_bar, show, warn

if TYPE_CHECKING:
    from comity.cli.run_folder import RunManifest
    from comity.crypto.sealing import Identity
    from comity.errors import Refused, Stopped
    from comity.relay.address import RelayAddress
    from comity.study.results.result import Result
    from comity.study.study import Study

app = make_group(
    "Pack a study for its parties, or submit it to them and run it.",
    example="comity study pack study.toml --keys coordinator.key",
)


@app.command()
def pack(
    study: StudyFile,
    keys: Annotated[Path, typer.Option(help="The coordinator's key file, which signs.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the pack here.", show_default="NAME-HASH.study")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the study with its schema and public files into one signed file, without [simulation].

    Send it over any channel; a site takes it in with: comity site receive FILE

    Example: comity study pack study.toml --keys coordinator.key
    """
    from comity.crypto import key_file
    from comity.errors import BadInput
    from comity.files import write_new
    from comity.site.pack import pack as pack_study
    from comity.study.study import Study

    loaded = Study.load(study)
    loaded.plan()
    raw = pack_study(loaded, key_file.load(keys))
    path = out or Path(f"{loaded.name.replace(' ', '-')}-{loaded.hash[:12]}.study")
    try:
        write_new(path, raw)
    except OSError as error:
        raise BadInput(f"{path}: the pack can't be written ({error.strerror}); choose another --out") from error
    document = {"path": str(path), "hash": loaded.hash, "bytes": len(raw), "parties": list(loaded.consortium.parties)}
    show([f"{path}: {loaded.name}, study {loaded.hash}"], document, as_json=as_json)


@app.command()
def submit(
    study: StudyFile,
    keys: Annotated[Path, typer.Option(help="The coordinator's key file.", show_default=False)],
    invitation: InvitationFile = INVITATION,
    out: RunsFolder = RUNS,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume a run.", show_default=False)] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every owner has approved the study.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Deliver a study to its parties and run it with them. The run starts only once every party has agreed.

    If an owner has not approved the study yet, nothing is spent: use --resume once it has, or --wait.

    Example: comity study submit study.toml --keys coordinator.key

    Example: comity study submit study.toml --keys coordinator.key --wait

    Example: comity study submit study.toml --keys coordinator.key --resume runs/2026-11-15-1
    """
    from comity.cli.runs import show_run

    folder = submit_study(study, keys, invitation, out, resume, quiet=quiet or as_json, wait=wait)
    show_run(folder, as_json=as_json)


@app.command()
@takes_console_options
def console(
    invite: Invite = None,
    role: AsRole = "read",
    options: ConsoleOptions = LOOPBACK,
    out: RunsFolder = RUNS,
    as_json: AsJson = False,
) -> None:
    """Serve pages in a browser on which the coordinator sees who is ready, who refused why, rounds and results.

    It reads the folder of runs and changes nothing in it. The first start prints a one-time link, with which you
    choose a name and a password.

    Example: comity study console --port 8751

    Example: comity study console --invite "project lead"
    """
    from comity.cli.console import make_invitation, serve_console
    from comity.cli.run_folder import load_study, read_manifest
    from comity.cli.runs import list_runs
    from comity.files import make_folder

    if invite is not None:
        make_invitation(out, options, invite, role, as_json=as_json)
        return
    address = options.address()
    from comity.console.coordinator_console import Runs, make_coordinator_console

    make_folder(out)
    runs = Runs(lambda: list_runs(out), lambda folder: load_study(folder, read_manifest(folder)))
    served, application = make_coordinator_console(out, address, runs, provider=options.open_provider(address))
    serve_console(served, application, options, as_json=as_json)


JOURNAL = "journal.sqlite"
_APPROVAL_CHECK_SECONDS = 2.0
_NOT_APPROVED = ("study", "approval")
"""Codes with which a site refuses a study that its owner has not approved."""


def submit_study(
    path: Path, keys: Path, invitation: Path, out: Path, resume: Path | None, *, quiet: bool, wait: bool = False
) -> Path:
    """Deliver the study and run it, or resume a run of it. Returns the run's folder, which has the form of a
    simulation's. With `wait`, an approval that is missing is waited for."""
    from comity.crypto import key_file
    from comity.errors import BadInput, Refused, Stopped
    from comity.federation.declare.consortium import COORDINATOR
    from comity.relay.address import RelayAddress
    from comity.relay.delivery_file import note_problem
    from comity.site.pack import require_confirmed
    from comity.study.study import Study

    if find_spec("nats") is None:
        raise BadInput("nats is missing; run: pip install 'comity[deploy]'")
    study, identity = Study.load(path), key_file.load(keys)
    study.plan()
    study.agreement.protocol.require_installed()
    require_confirmed(study)
    address = RelayAddress.load(invitation, keys)
    address.require_member(COORDINATOR)
    folder = _open_folder(path, study, out, resume)
    if _is_complete(folder):
        return folder
    _record_submission(path, study, folder, identity)
    remedy = f"comity study submit {path} --keys {keys} --invitation {invitation} --resume {folder}"
    try:
        _run_once_approved(study, identity, address, folder, remedy, quiet=quiet, wait=wait)
    except (Refused, Stopped) as stop:
        note_problem(folder, str(stop))
        raise _explain(stop, study, folder, remedy) from stop
    except KeyboardInterrupt as stop:
        raise Stopped(f"{folder}: the run was stopped before its end. Resume it: {remedy}") from stop
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT, EFBIG):
            raise
        raise Stopped(
            f"{folder}: the disk is full ({error.strerror}). Free some space, then resume: {remedy}"
        ) from error
    return folder


def _explain(stop: Refused | Stopped, study: Study, folder: Path, remedy: str) -> Refused | Stopped:
    """The same with what to do next."""
    from comity.errors import Refused, Stopped

    if isinstance(stop, Stopped):
        return Stopped(f"{folder}: the run was stopped before its end ({stop}). Resume it: {remedy}")
    if stop.code not in _NOT_APPROVED:
        return stop
    return Refused(
        f"{stop}. Once its owner has approved the study (comity site approve {study.hash[:12]}), resume: {remedy}",
        code=stop.code,
        key=stop.key,
        party=stop.party,
    )


def _open_folder(path: Path, study: Study, out: Path, resume: Path | None) -> Path:
    """A new run folder, or the one to resume; refused if that one is of another study."""
    from comity.cli.run_folder import begin_run, find_folder, make_folder, read_manifest
    from comity.errors import Refused

    if resume is None:
        folder = make_folder(out)
        begin_run(folder, make_manifest(path, study), study.text)
        return folder
    folder = find_folder(resume, out)
    if read_manifest(folder).study_hash != study.hash:
        raise Refused(f"{path} is not the study of {folder}; start a new run with it", code="study")
    return folder


def _is_complete(folder: Path) -> bool:
    """Whether the result is signed and every party knows that the run ended."""
    from comity.cli.run_folder import read_manifest
    from comity.relay.deployment import unnotified_parties
    from comity.study.results.signatures import NAME as SIGNED

    return (folder / SIGNED).exists() and not unnotified_parties(folder / JOURNAL, read_manifest(folder).run)


def _record_submission(path: Path, study: Study, folder: Path, identity: Identity) -> None:
    """Record the study of the folder as submitted; refused if its file was changed since the run began."""
    from comity.cli.run_folder import read_manifest
    from comity.errors import Refused
    from comity.relay.submissions import record_submission
    from comity.study.study import Study

    as_run = (folder / "study.toml").read_text(encoding="utf-8")
    if Study.parse(as_run, folder=path.parent, where=str(folder / "study.toml")).hash != study.hash:
        raise Refused(f"{folder / 'study.toml'}: is not the study {path}; restore it from a backup", code="study")
    record_submission(study.hash, read_manifest(folder).run, as_run, identity.public)


def _run_once_approved(
    study: Study, identity: Identity, address: RelayAddress, folder: Path, remedy: str, *, quiet: bool, wait: bool
) -> None:
    """Deliver and run the study; with `wait`, again until no owner's approval is missing. A refused attempt starts
    nothing at any site."""
    from comity.errors import Refused

    waits_for = ""
    while True:
        try:
            _deliver_and_run(study, identity, address, folder, remedy, quiet=quiet)
            return
        except Refused as refusal:
            if not wait or refusal.code not in _NOT_APPROVED:
                raise
            if refusal.party != waits_for or not waits_for:
                waits_for = refusal.party or "a party"
                warn(f"{waits_for} has not approved study {study.hash[:12]} yet; waiting for it")
        time.sleep(_APPROVAL_CHECK_SECONDS)


def _deliver_and_run(
    study: Study, identity: Identity, address: RelayAddress, folder: Path, remedy: str, *, quiet: bool
) -> None:
    from comity.cli.run_folder import read_manifest, site_log
    from comity.relay.channel import NatsChannel
    from comity.relay.delivery_file import note_problem, write_delivery
    from comity.relay.deployment import deliver_study, run_deployed, unnotified_parties
    from comity.study.results.signatures import NAME as SIGNED

    run, is_signed = read_manifest(folder).run, (folder / SIGNED).exists()
    with (
        site_log(folder),
        progress_bar(study.name, quiet=quiet) as progress,
        NatsChannel(address, study.consortium.parties) as channel,
    ):
        channel.wait_until_connected()
        if not is_signed:
            if progress is not None:
                progress("delivering the study")
            report = partial(write_delivery, folder, resume=remedy)
            deliver_study(study, keys=identity, channel=channel, report=report)
        outcome = run_deployed(
            study, run=run, keys=identity, channel=channel, journal=folder / JOURNAL, progress=progress
        )
        if not is_signed:
            save_signed(outcome, folder, identity)
            note_problem(folder, "")
        if missing := unnotified_parties(folder / JOURNAL, run):
            warn(
                f"{', '.join(missing)}: have not heard that the run ended and have no results; when they serve "
                f"again, run: {remedy}"
            )


def save_signed(result: Result, folder: Path, keys: Identity) -> None:
    """Save a result beside the study as run, and sign all files together, except journal and logs."""
    from comity.study.results.signatures import sign_files

    result.save(folder)
    names = ["result.json", "transcript.json", "report.html", "study.toml", "released", *result.artefacts]
    sign_files(folder, names, keys, study=result.study_hash, run=result.run)


def make_manifest(path: Path, study: Study) -> RunManifest:
    from comity.cli.run_folder import RunManifest
    from comity.study.local.consortium import new_run_id

    return RunManifest(
        run=new_run_id(),
        study=str(path.absolute()),
        study_folder=str(path.parent.absolute()),
        study_hash=study.hash,
        seed=None,
        overrides={},
        parties=study.consortium.size,
        resumable=True,
        deployed=True,
    )
