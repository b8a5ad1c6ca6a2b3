"""The tree of commands. A new command is a function in the file of its group, and a line here if it has no group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from comity.cli import audit, consortium, doctor, keys, ledger, relay, released, runs, schema, simulate, site, study
from comity.errors import ComityError

app = typer.Typer(
    name="comity",
    help="Organisations learn together under differential privacy; each keeps its records and its privacy budget.\n\n"
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("new", short_help="Write a study that runs as it is.")(simulate.new)
app.command("plan", short_help="Show what a study would release and cost; reads no data.")(simulate.plan)
app.command("run", short_help="Simulate a study on this machine.")(simulate.run)
app.command("audit", short_help="Attack a study; measured loss beside the claimed one.")(audit.audit)
app.command("report", short_help="Write and open the page of a run.")(runs.report)
app.command("combine", short_help="Add published shares up to a model.")(released.combine)
app.command("predict", short_help="Predict with a released model.")(released.predict)
app.command("synth", short_help="Make rows and tables from released counts.")(released.synth)
app.add_typer(schema.app, name="schema", short_help="Check data against a schema, or draft one.")
app.add_typer(ledger.app, name="ledger", short_help="An owner's privacy budget: granted, spent, left.")
app.add_typer(keys.app, name="keys", short_help="Make and show the keys of a party.")
app.add_typer(consortium.app, name="consortium", short_help="Invite, join, admit and revoke members.")
app.add_typer(relay.app, name="relay", short_help="The server to which members connect.")
app.add_typer(site.app, name="site", short_help="An owner's side: arrived studies, approvals, serving.")
app.add_typer(study.app, name="study", short_help="Send a study to its parties and run it with them.")
app.command("runs", short_help="List the runs that were started from here.")(runs.runs)
app.command("fetch", short_help="Get the results of a deployed run and check their signatures.")(runs.fetch)
app.command("demo", short_help="Simulate a small study of every method; one page.")(simulate.demo)
app.command("doctor", short_help="Check this machine, a site or a consortium.")(doctor.doctor)

MOVED: Final = {"bench": "bench", "reproduce": "papers"}
"""Commands that are experiments now, with their names there."""
_ANY_ARGUMENTS: Final[dict[str, Any]] = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}


class Moved(ComityError):
    exit_code = 2
    code = "moved"


def _moved(name: str, new_name: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        words = " ".join(context.args) if context.args else "list"
        raise Moved(
            f"`comity {name}` moved out of the package, to the experiments in Comity's source. In a checkout, run: "
            f"python -m experiments {new_name} {words}"
        )

    return command


for old, new in MOVED.items():
    app.command(old, hidden=True, context_settings=_ANY_ARGUMENTS)(_moved(old, new))
