"""An owner's results, written when a run ends.

    results/HASH-RUN/    what was released to this owner and what stays with it (`study.results.received`)
    results/HASH-RUN/signed.json    its files, signed by this owner's own key

They are read again by `comity.site.fetching`, which no serving site imports.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from comity.federation.agreement import measured_by
from comity.federation.protocol import presented_to
from comity.study.results.received import PAGE, safe_name, save_received
from comity.study.results.signed_files import NAME, sign_files

if TYPE_CHECKING:
    from comity.federation.owner.host import Host


def results_folder(home: Path, study: str, run: str) -> Path:
    """Where an owner has its results of a run."""
    return home / "results" / f"{study[:12]}-{safe_name(run)}"


def are_written(home: Path, study: str, run: str) -> bool:
    """Whether they are there as a whole: these two are written last."""
    return all((results_folder(home, study, run) / last).exists() for last in (PAGE, NAME))


def write_results(host: Host, home: Path, run: str) -> None:
    """Write what a host has of a run that ended; from the same ledger it gives the same folder again."""
    study, found = host.agreed.study, host.received(run)
    folder = results_folder(home, study, run)
    save_received(
        found,
        presented_to(host.agreed.protocol, found, host.who),
        folder,
        party=host.party,
        study=study,
        run=run,
        declaration=host.declaration,
        who=host.who,
        kept=host.agreed.protocol.present_own(found.own, host.who),
        measured=measured_by(host.agreed, found),
    )
    names = sorted(one.name for one in folder.iterdir() if one.name != NAME and not one.name.startswith("."))
    sign_files(folder, names, host.keys, study=study, run=run)
