"""`comity site receive|inbox|approve|refuse`: the studies that arrived, and the owner's decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import say, show, table
from comity.cli.site_options import DECLINED, SITE, SiteOption, Yes, agreed
from comity.errors import ComityError
from comity.untrusted.text import one_line

if TYPE_CHECKING:
    from comity.site.approval import ApprovalPreview
    from comity.site.inbox import Arrival
    from comity.site.site_file import SiteFile
    from comity.study.study import Study

Hash = Annotated[str, typer.Argument(metavar="HASH", help="The study's hash, or its beginning.", show_default=False)]
Dataset = Annotated[str | None, typer.Option(help="The dataset that the study may read.", show_default="the only one")]
Runs = Annotated[int, typer.Option(help="How many runs in all, including those already started.", min=1)]


def receive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A packed study.", show_default=False)],
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Take in a packed study that did not come over the relay. One of policy.submitters must have signed it.

    Example: comity site receive readmission-3d59a0c41b7e.study
    """
    from comity.errors import BadInput
    from comity.site.service import SiteService

    try:
        raw = file.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{file}: the pack can't be read ({error.strerror}); name a file of comity study pack"
        ) from error
    arrival = SiteService(site).received(raw)
    state = _state(arrival)
    said = f"{arrival.study[:12]}  {arrival.name} of {arrival.submitter}: {state}"
    show([said], document_of(arrival), as_json=as_json)


def inbox(
    study: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="Show one study in full.", show_default=False)
    ] = None,
    dataset: Dataset = None,
    runs: Runs = 1,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """List the studies that arrived, unread ones first; or show what one means for you, which marks it read.

    Example: comity site inbox

    Example: comity site inbox 3d59
    """
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile

    loaded = SiteFile.load(site)
    box = Inbox(loaded.home)
    if study is not None:
        box.mark_read(box.find(study).study)
        try:
            arrival, found, _ = _preview(site, study, dataset, runs)
        except ComityError:
            if not as_json:
                # An owner first looks at who takes part, even if its policy or its records exclude the study.
                say(_parties(loaded, box.study(box.find(study).study)))
            raise
        show(_text(found), {**document_of(arrival), **_page(found)}, as_json=as_json)
        return
    arrivals = box.arrivals()
    rows = [
        (
            "" if one.read else "new",
            one.study[:12],
            one.name,
            one.protocol,
            one.submitter,
            one.arrived[:16],
            _state(one),
        )
        for one in arrivals
    ]
    text = (
        table(("", "hash", "study", "protocol", "from", "arrived", "state"), rows) if rows else "no study has arrived"
    )
    show(text, {"studies": [document_of(one) for one in arrivals]}, as_json=as_json)


def approve(
    study: Hash,
    dataset: Dataset = None,
    runs: Runs = 1,
    yes: Yes = False,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Approve a study for one dataset and a number of runs, after showing what would leave and what would be left.

    The site file's policy applies to approved studies too. An approval is for a hash: a changed study needs another.

    Example: comity site approve 3d59 --dataset patients --runs 1
    """
    arrival, found, name = _preview(site, study, dataset, runs)
    text = _text(found)
    if not as_json:
        say(text)
    if not agreed("Approve this study?", yes=yes, as_json=as_json):
        raise typer.Exit(DECLINED)
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile

    Inbox(SiteFile.load(site).home).approve(arrival.study, dataset=name, runs=runs)
    said = f"approved: {arrival.name} {arrival.study[:12]} for {name}, {runs} run{'s' * (runs > 1)} in all"
    show([said], {"approved": arrival.study, **_page(found)}, as_json=as_json)


def refuse(
    study: Hash,
    why: Annotated[str, typer.Option(help="The reason, kept at this site.")] = "",
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Refuse a study, or withdraw its approval. What it drew stays spent. End its open runs with: comity site end RUN

    Example: comity site refuse 3d59 --why "no legal basis yet"
    """
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile
    from comity.site.status import list_runs

    loaded = SiteFile.load(site)
    box = Inbox(loaded.home)
    arrival = box.find(study)
    box.refuse(arrival.study, why)
    ledger = loaded.owner().ledger
    left = [one.run for one in list_runs(ledger) if one.is_of(arrival.study) and one.state == "open"]
    more = f"; open runs: {', '.join(left)} (comity site end RUN)" if left else ""
    document = {"refused": arrival.study, "why": why, "open_runs": left}
    show([f"refused: {arrival.name} {arrival.study[:12]}{more}"], document, as_json=as_json)


def _preview(site: Path, study: str, dataset: str | None, runs: int) -> tuple[Arrival, ApprovalPreview, str]:
    from comity.site.approval import choose_dataset, preview_approval
    from comity.site.inbox import Inbox
    from comity.site.site_file import SiteFile

    loaded = SiteFile.load(site)
    box = Inbox(loaded.home)
    arrival = box.find(study)
    given = arrival.decision
    name = choose_dataset(loaded, dataset or (given.dataset if given is not None and given.dataset else None))
    return arrival, preview_approval(loaded, loaded.owner(), box.study(arrival.study), dataset=name, runs=runs), name


def _parties(site: SiteFile, study: Study) -> list[str]:
    from comity.federation.declare.policy import KnownParties
    from comity.site.approval import parties_lines

    return parties_lines(KnownParties.of(study.consortium, site.party, site.policy.pinned))


def _text(found: ApprovalPreview) -> str:
    warnings = (one_line(f"  WARNING        {sentence}") for sentence in found.data_warnings)
    return "\n".join([found.view.as_text(), *warnings])


def _page(found: ApprovalPreview) -> dict[str, Any]:
    return {"view": found.view.as_json(), "findings": list(found.data_warnings)}


def _state(arrival: Arrival) -> str:
    given = arrival.decision
    if given is None:
        return "waits for you"
    if given.decision == "refused":
        return "refused" + (f": {given.why}" if given.why else "")
    return f"approved for {given.dataset}, {given.runs} run{'s' * (given.runs > 1)}" + (
        f", {given.why}" * bool(given.why)
    )


def document_of(arrival: Arrival) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(arrival), "state": _state(arrival)}
