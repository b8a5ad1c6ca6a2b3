"""`comity fetch`: the results of a deployed run, in a folder like that of a simulated run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import say
from comity.cli.runs import OUT, Out


def fetch(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its folder.", show_default=False)],
    to: Annotated[Path | None, typer.Option(help="The folder to create.", show_default="named like the run")] = None,
    site: Annotated[
        Path | None, typer.Option(help="An owner's site file: what was delivered there.", show_default=False)
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="The coordinator's keys, for a run that was not submitted here.", show_default=False),
    ] = None,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Write the results of a run that ended into a new folder, after checking their signatures.

    An altered file is refused by name. With --site the results are what this owner received and what stays with it;
    without, all that the coordinator has except its journal. The expected signer comes from the submission or from
    --keys, never from the folder itself. With --site the command also says, at your terminal and in no file, how good
    the model or dataset is on your records.

    Example: comity fetch 2026-11-17-7f3a91c2 --to readmission

    Example: comity fetch 2026-11-17-7f3a91c2 --site site.toml

    Example: comity fetch copied/2026-11-17-1 --keys coordinator.toml
    """
    from comity.cli.run import show_run

    if site is None:
        show_run(_at_coordinator(run, to, out, keys), as_json=as_json)
        return
    folder, said = _at_site(run, to, site)
    if said:
        # On the terminal alone: the score is about this owner's records.
        say(said, err=True)
    show_run(folder, as_json=as_json)


def _at_site(run: str, to: Path | None, path: Path) -> tuple[Path, str]:
    """The new folder, and the score on this owner's records in a sentence."""
    from comity.artefacts.writing import write_text
    from comity.report.result import Result
    from comity.site.results import load_own_score, load_results
    from comity.site.site_file import SiteFile
    from comity.study.results.received import safe_name

    loaded = SiteFile.load(path)
    study, outcome = load_results(loaded, run)
    score = load_own_score(loaded.home, study.hash, outcome.run)
    folder = _new(to or Path(safe_name(outcome.run)))
    write_text(folder / "study.toml", study.text)
    return Result.of(outcome).save(folder), "" if score is None else f"{loaded.party}: {score.sentence}"


def _at_coordinator(run: str, to: Path | None, out: Path, keys: Path | None) -> Path:
    from comity.cli.public_keys import read_public_keys
    from comity.cli.run_folder import read_begun
    from comity.cli.runs import listed
    from comity.errors import BadInput, Stopped
    from comity.relay.submissions import check_submitted, require_submission
    from comity.site.pack import write_files
    from comity.study.results.received import safe_name
    from comity.study.results.signed_files import NAME, checked_files

    named = [one for one in listed(out) if run in (one.run, one.folder, Path(one.folder).name)]
    if len(named) != 1 and not Path(run).is_dir():
        known = ", ".join(one.run for one in listed(out)) or "none"
        raise BadInput(f"{out}: no run is called {run!r}; there are: {known}. See: comity runs", key="run")
    source = Path(named[0].folder) if len(named) == 1 else Path(run)
    begun = read_begun(source)
    if not begun.deployed:
        raise BadInput(f"{source}: this run was simulated here and is not signed; its folder is its result", key="run")
    if not any((source / name).exists() for name in ("result.json", NAME)):
        raise Stopped(f"{source}: this run has not ended; resume it: comity study submit ... --resume {source}")
    given = None if keys is None else read_public_keys(keys, key="keys")
    expected = require_submission(source, study=begun.study_hash, run=begun.run, given=given)
    files = checked_files(source, expected.coordinator, study=expected.study, run=expected.run)
    check_submitted(source, files, expected)
    folder = _new(to or Path(safe_name(begun.run)))
    write_files(files, folder)
    return folder


def _new(folder: Path) -> Path:
    from comity.errors import BadInput
    from comity.files import make_folder

    try:
        make_folder(folder, exist_ok=False)
    except FileExistsError:
        raise BadInput(f"{folder}: exists already, and nothing is overwritten; choose another --to", key="to") from None
    except OSError as error:
        raise BadInput(f"{folder}: can't be created ({error.strerror}); choose another --to", key="to") from error
    return folder
