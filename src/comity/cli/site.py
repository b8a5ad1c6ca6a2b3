"""`comity site`: an owner's side of studies between organisations. Nothing runs that was not approved here."""

from __future__ import annotations

from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table
from comity.cli.site_inbox import approve, document_of, inbox, receive, refuse
from comity.cli.site_init import init
from comity.cli.site_options import DECLINED, SITE, SiteOption, Yes, agreed
from comity.site.logs import Form

app = typer.Typer(
    help="An owner's site: take in studies, approve them, and answer their steps.\n\nExample: comity site inbox",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (init, receive, inbox, approve, refuse):
    app.command()(command)

_REFUSALS = 10


@app.command()
def serve(
    site: SiteOption = SITE,
    log: Annotated[
        Form, typer.Option(help="Log for people, or as one JSON object a line without the texts of foreign exceptions.")
    ] = Form.TEXT,
    as_json: AsJson = False,
) -> None:
    """Connect to the relay and answer for approved studies until stopped. See refusals with: comity site status

    Example: comity site serve

    Example: comity site serve --log json
    """
    from comity.site.logs import log_to_stderr
    from comity.site.service import SiteService, open_endpoint

    log_to_stderr(log)
    service = SiteService(site)
    endpoint = open_endpoint(service.site)
    document = {"party": service.site.party, "serving": list(service.studies)}
    show(f"{service.site.party} serves {len(service.studies)} studies", document, as_json=as_json)
    try:
        endpoint.serve(service)
    except KeyboardInterrupt:
        # Ctrl-C is how an operator stops it; open runs continue when it serves again.
        raise typer.Exit(0) from None


@app.command()
def status(
    refusals: Annotated[int, typer.Option(help="How many of the last refusals to show.", min=0)] = _REFUSALS,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Show budgets, runs, decisions, and refusals with their reasons. For your terminal only.

    Example: comity site status
    """
    from dataclasses import asdict

    from comity.cli.ledger import accounts_document
    from comity.site.inbox import Inbox
    from comity.site.results import load_own_score
    from comity.site.site_file import SiteFile
    from comity.site.status import Refusals, list_runs, open_refusals

    loaded = SiteFile.load(site)
    ledger = loaded.owner().ledger
    accounts, runs, box = ledger.summary(), list_runs(ledger), Inbox(loaded.home)
    arrivals = box.arrivals()
    last = open_refusals(Refusals(loaded.home), arrivals, refusals)
    lines = [f"{loaded.party} · {loaded.where}", *(f"  {account}" for account in accounts)]
    unread = sum(not one.read for one in arrivals)
    where = ": comity site inbox" if unread else ""
    lines.append(f"  studies        {len(arrivals)} arrived, {unread} unread{where}")
    shown = [(one.mark[:12], one.run, one.title, one.dataset, one.state) for one in runs]
    heads = ("study", "run", "title", "dataset", "state")
    lines += table(heads, shown, indent="    ").split("\n") if shown else ["  no runs yet"]
    scores = {f"{one.mark[:12]}/{one.run}": load_own_score(loaded.home, one.mark, one.run) for one in runs if one.mark}
    lines += [f"  {name}  {score.sentence}" for name, score in scores.items() if score is not None]
    lines += [f"  refused        {one.time} {one.study} {one.sentence}".replace("  refused: ", " ") for one in last]
    document = {
        "party": loaded.party,
        "accounts": accounts_document(accounts),
        "studies": [document_of(one) for one in arrivals],
        "runs": [asdict(one) for one in runs],
        "own_scores": {
            name: {**asdict(score), "worse_than_a_constant": score.is_worse}
            for name, score in scores.items()
            if score is not None
        },
        "refusals": [asdict(one) for one in last],
    }
    show(lines, document, as_json=as_json)


@app.command()
def end(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or HASH/RUN.", show_default=False)],
    yes: Yes = False,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Abandon an open run for good: free what it never drew and delete its masks. What it drew stays spent.

    Example: comity site end 2026-11-17-7f3a
    """
    from comity.cli.ledger import accounts_document
    from comity.site.site_file import SiteFile
    from comity.site.status import end_run

    loaded = SiteFile.load(site)
    ledger = loaded.owner().ledger
    if not agreed(f"End run {run} for good?", yes=yes, as_json=as_json):
        raise typer.Exit(DECLINED)
    ended = end_run(ledger, run)
    accounts = ledger.summary()
    lines = [f"ended: {ended.title} run {ended.run}", *(f"  {account}" for account in accounts)]
    show(lines, {"ended": ended.run, "study": ended.mark, "accounts": accounts_document(accounts)}, as_json=as_json)
