"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from comity.cli import (
    combine,
    consortium,
    demo,
    doctor,
    fetch,
    keys,
    ledger,
    moved,
    new,
    plan,
    predict,
    relay,
    report,
    run,
    runs,
    schema,
    site,
    study,
    synth,
)

app = typer.Typer(
    name="comity",
    help="Organisations learn together under differential privacy, each keeping its records and its own budget.\n\n"
    "Example: comity new triage; cd triage; comity plan study.toml; comity run study.toml --seed 7",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from comity._version import __version__

        typer.echo(f"comity {__version__}")
        raise typer.Exit()


@app.callback()
def comity(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


app.command("new", short_help="Write a study that runs as it is.")(new.new)
app.command("plan", short_help="Show what a study would do; reads no data.")(plan.plan)
app.command("run", short_help="Simulate a study on this machine.")(run.run)
app.command("report", short_help="Make and open the page of a run.")(report.report)
app.command("combine", short_help="Add published shares up into a model.")(combine.combine)
app.command("predict", short_help="Predict with a released model.")(predict.predict)
app.command("synth", short_help="Rows and tables of released counts.")(synth.synth)
app.add_typer(schema.app, name="schema", short_help="Check data against a schema, or draft one.")
app.add_typer(ledger.app, name="ledger", short_help="An owner's budget: granted, spent, left.")
app.add_typer(keys.app, name="keys", short_help="A party's keys, and what the study pins of them.")
app.add_typer(consortium.app, name="consortium", short_help="Invite, join, admit and revoke members.")
app.add_typer(relay.app, name="relay", short_help="The server to which members connect.")
app.add_typer(site.app, name="site", short_help="An owner's side: arrived studies, approvals, serving.")
app.add_typer(study.app, name="study", short_help="Pack a study for the sites that it asks.")
app.command("runs", short_help="List the runs that were begun from here.")(runs.runs)
app.command("fetch", short_help="The results of a deployed run, once their signatures are good.")(fetch.fetch)
app.command("demo", short_help="Small studies on generated data, with a report.")(demo.demo)
app.command("doctor", short_help="Look at what Comity needs of this machine.")(doctor.doctor)
for name, place in moved.TO_EXPERIMENTS.items():
    app.command(name, hidden=True, context_settings=moved.ANY_ARGUMENTS)(moved.command(name, place))
