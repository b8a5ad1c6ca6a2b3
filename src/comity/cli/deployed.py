"""A run between organisations: its folder is made and found as that of a simulation."""

from __future__ import annotations

from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

from comity.cli.output import progress_bar, warn

if TYPE_CHECKING:
    from comity.cli.run_folder import RunManifest
    from comity.crypto.sealing import Identity
    from comity.report.result import Result
    from comity.study.study import Study

JOURNAL = "journal.sqlite"


# One refusal for each way in which a submission can fail, in order.
def submit_study(path: Path, keys: Path, relay: Path, out: Path, resume: Path | None, *, quiet: bool) -> Path:  # noqa: C901
    """Deliver the study and run it, or resume a run of it. Returns the run's folder."""
    from comity.cli.run_folder import begin, find_folder, make_folder, read_manifest, site_log
    from comity.crypto import key_file
    from comity.errors import BadInput, Refused, Stopped
    from comity.federation.declare.consortium import COORDINATOR
    from comity.relay.submissions import record_submission
    from comity.report.result import Result
    from comity.study.results.signed_files import NAME as SIGNED
    from comity.study.study import Study

    try:
        from comity.relay.channel import NatsChannel
        from comity.relay.deployment import deliver_study, run_deployed, unnotified_parties
        from comity.relay.membership import load_membership
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is missing; run: pip install 'comity[deploy]'") from error

    study, identity = Study.load(path), key_file.load(keys)
    study.plan()
    member, address = load_membership(relay)
    if member != COORDINATOR:
        raise BadInput(
            f"{relay}: expected the coordinator's membership, found that of {member}; change --relay", key="relay"
        )
    address.check_files()
    if resume is None:
        folder = make_folder(out)
        begin(folder, _manifest(path, study), study.text)
    else:
        folder = find_folder(resume, out)
        if read_manifest(folder).study_hash != study.hash:
            raise Refused(f"{path} is not the study of {folder}; start a new run with it", code="study")
        if (folder / SIGNED).exists() and not unnotified_parties(folder / JOURNAL, read_manifest(folder).run):
            return folder
    as_run = (folder / "study.toml").read_text(encoding="utf-8")
    if Study.parse(as_run, folder=path.parent, where=str(folder / "study.toml")).hash != study.hash:
        raise Refused(f"{folder / 'study.toml'}: is not the study {path}; restore it from a backup", code="study")
    record_submission(study.hash, read_manifest(folder).run, as_run, identity.public)
    remedy = f"comity study submit {path} --keys {keys} --relay {relay} --resume {folder}"
    try:
        with (
            site_log(folder),
            progress_bar(study.name, quiet=quiet) as progress,
            NatsChannel(address, study.consortium.parties) as channel,
        ):
            channel.wait_until_connected()
            run = read_manifest(folder).run
            if not (folder / SIGNED).exists():
                if progress is not None:
                    progress("delivering the study")
                deliver_study(study, keys=identity, channel=channel)
            outcome = run_deployed(
                study, run=run, keys=identity, channel=channel, journal=folder / JOURNAL, progress=progress
            )
            if not (folder / SIGNED).exists():
                save_signed(Result.of(outcome), folder, identity)
            if missing := unnotified_parties(folder / JOURNAL, run):
                warn(
                    f"{', '.join(missing)}: not yet told that the run ended, and without its results; when they serve "
                    f"again, run: {remedy}"
                )
    except (KeyboardInterrupt, Stopped) as stop:
        why = f" ({stop})" if isinstance(stop, Stopped) else ""
        raise Stopped(f"{folder}: the run was stopped before its end{why}. Resume it: {remedy}") from stop
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT, EFBIG):
            raise
        raise Stopped(
            f"{folder}: the disk is full ({error.strerror}). Free some space, then resume: {remedy}"
        ) from error
    except Refused as refusal:
        if refusal.code in ("study", "approval"):
            raise Refused(
                f"{refusal}. Once its owner has approved the study (comity site approve {study.hash[:12]}), "
                f"resume: {remedy}",
                code=refusal.code,
                key=refusal.key,
                party=refusal.party,
            ) from refusal
        raise
    return folder


def save_signed(result: Result, folder: Path, keys: Identity) -> None:
    """Save a result beside the study as run, and sign all files together, except journal and logs."""
    from comity.study.results.signed_files import sign_files

    result.save(folder)
    names = ["result.json", "transcript.json", "report.html", "study.toml", "released", *result.artefacts]
    sign_files(folder, names, keys, study=result.study_hash, run=result.run)


def _manifest(path: Path, study: Study) -> RunManifest:
    from comity.cli.run_folder import RunManifest
    from comity.study.local.chance import new_run_id

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
