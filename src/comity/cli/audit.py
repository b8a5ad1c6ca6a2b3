"""`comity audit`: attack a study, or every mechanism and method, and print what is lost at least beside the claim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comity.cli.options import AsJson, Quiet
from comity.cli.output import progress_bar, show, table

if TYPE_CHECKING:
    from comity.audit.row import Audit


def audit(
    study: Annotated[
        Path | None, typer.Argument(help="The study to attack; records are made from its schema.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Attack every mechanism and method, and known broken ones.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer draws, in less than half of the time.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with the curves of the attacks here. The report of a run links to audit.html in its "
            "folder.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure what an attacker who knows all other records can prove about one record, beside the claimed loss.

    The measured epsilon is a lower bound at 99.9 % for the whole table: a value above the claim refutes it, a value
    below proves nothing. Broken twins show that the attack would have seen a fault. No private records are read.

    Exit code 4 if a claim is refuted, a check fails or a broken twin is not caught.

    Example: comity audit study.toml

    Example: comity audit runs/2026-11-15-1/study.toml --out runs/2026-11-15-1/audit.html

    Example: comity audit --all --quick --out audit.html
    """
    from comity.audit.claim import QUICK, THOROUGH
    from comity.errors import Refused

    if (study is None) == (not everything):
        raise typer.BadParameter("give a study file or --all, one of them", param_hint="STUDY")
    effort = QUICK if quick else THOROUGH
    with progress_bar("audit", quiet=quiet or as_json) as progress:
        if study is None:
            from comity.audit.suite import audit_all

            found = audit_all(effort, progress=progress)
        else:
            from comity.audit.study import audit_study
            from comity.study.study import Study

            found = audit_study(Study.load(study), effort=effort, progress=progress)
    document = found.as_json()
    if out is not None:
        from comity.audit.page import write_page

        document["page"] = str(write_page(found, out))
        link_report(out)
    show(describe_audit(found), document, as_json=as_json)
    if not found.passed:
        raise Refused("the audit failed: see the lines above that do not say held or caught", code="audit")


def link_report(page: Path) -> None:
    """Write the report of a run again, if the page of the audit was written into the folder of the run."""
    from comity.report.result import AUDIT_PAGE, load_result

    if page.name == AUDIT_PAGE and (page.parent / "result.json").is_file():
        load_result(page.parent).report(page.parent / "report.html")


def describe_audit(audit: Audit) -> list[str]:
    """The table of claims, what else was checked, and the controls."""
    claims = table(
        ["claim", "claimed eps", "measured at least", "share", "design", "verdict"],
        [
            [
                claim.name,
                f"{claim.claimed:.3f}" + (f" at delta {claim.delta:g}" if claim.delta else ""),
                f"{claim.measured:.3f}",
                f"{claim.measured / claim.claimed:.2f}",
                f"{claim.design:.3f}",
                "held" if claim.held else "REFUTED",
            ]
            for claim in audit.claims
        ],
    )
    caught = [control for control in audit.every_control if control.caught]
    missed = [control for control in audit.every_control if not control.caught]
    failed = [check for check in audit.checks if not check.held]
    return [
        f"audit of {audit.title}: {'passed' if audit.passed else 'FAILED'}",
        *claims.splitlines(),
        f"  checks     {len(audit.checks) - len(failed)} of {len(audit.checks)} held",
        *(f"             FAILED: {check.name} ({check.found})" for check in failed),
        f"  controls   {len(caught)} of {len(audit.every_control)} broken twins caught",
        *(f"             NOT CAUGHT: {one.name} ({one.measured:.3f} of {one.claimed:.3f})" for one in missed),
        f"  confidence {audit.confidence:.1%} that no measured value in the table is above the truth",
        "  design     what the attacked pair of neighbours could show with endless draws",
        *(f"  membership {one.sentence}" for one in audit.illustrations),
    ]
