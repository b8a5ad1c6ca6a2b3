"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from comity.cli import bench, demo, doctor, ledger, new, plan, predict, report, reproduce, run, schema

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


app.command("new")(new.new)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("report")(report.report)
app.add_typer(schema.app, name="schema")
app.add_typer(ledger.app, name="ledger")
app.command("predict")(predict.predict)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("reproduce")(reproduce.reproduce)
app.command("doctor")(doctor.doctor)
