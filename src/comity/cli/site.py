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
    help="An owner's side: studies that arrived, what was approved, and answering.\n\nExample: comity site inbox",
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
        Form, typer.Option(help="How to log: for people, or one object a line without texts of foreign exceptions.")
    ] = Form.TEXT,
    as_json: AsJson = False,
) -> None:
    """Dial out to the relay and answer what was approved, until stopped. Refusals are kept for: comity site status

    Example: comity site serve

    Example: comity site serve --log json
    """
    from comity.site.logs import log_to_stderr
    from comity.site.service import Desk, endpoint_of

    log_to_stderr(log)
    desk = Desk(site)
    endpoint = endpoint_of(desk.site)
    document = {"party": desk.site.party, "serving": list(desk.studies)}
    show(f"{desk.site.party} serves {len(desk.studies)} studies", document, as_json=as_json)
    try:
        endpoint.serve(desk)
    except KeyboardInterrupt:
        # The way to end it. Runs that are open go on when it serves again.
        raise typer.Exit(0) from None


@app.command()
def status(
    refusals: Annotated[int, typer.Option(help="How many of the last refusals to show.", min=0)] = _REFUSALS,
    site: SiteOption = SITE,
    as_json: AsJson = False,
) -> None:
    """Show budgets, runs, what was decided, and what was refused and why. For your own terminal only.

    Example: comity site status
    """
    from dataclasses import asdict

    from comity.cli.ledger import accounts_document
    from comity.site.inbox import Inbox
    from comity.site.results import own_score
    from comity.site.site_file import SiteFile
    from comity.site.status import Refusals, runs_of, unsettled

    loaded = SiteFile.load(site)
    ledger = loaded.owner().ledger
    accounts, runs, box = ledger.summary(), runs_of(ledger), Inbox(loaded.home)
    arrivals = box.arrivals()
    last = unsettled(Refusals(loaded.home), arrivals, refusals)
    lines = [f"{loaded.party} · {loaded.where}", *(f"  {account}" for account in accounts)]
    unread = sum(not one.read for one in arrivals)
    where = ": comity site inbox" if unread else ""
    lines.append(f"  studies        {len(arrivals)} arrived, {unread} unread{where}")
    shown = [(one.mark[:12], one.run, one.title, one.dataset, one.state) for one in runs]
    heads = ("study", "run", "title", "dataset", "state")
    lines += table(heads, shown, indent="    ").split("\n") if shown else ["  no runs yet"]
    scores = {f"{one.mark[:12]}/{one.run}": own_score(loaded.home, one.mark, one.run) for one in runs if one.mark}
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
    """Abandon an open run for good: frees what it never drew, forgets its masks. What it drew stays spent.

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
