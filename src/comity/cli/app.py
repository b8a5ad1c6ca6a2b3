"""The tree of commands. A new command is a function in the file of its group, and a line here if it has no group."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
import typer.core

from comity.cli import (
    audit,
    consortium,
    doctor,
    dossier,
    editor_schemas,
    keys,
    ledger,
    new,
    relay,
    released,
    runs,
    schema,
    simulate,
    site,
    study,
)
from comity.errors import ComityError

GROUPS: Final = {
    "Start": ("new", "demo", "doctor"),
    "A study on this machine": ("plan", "run", "runs", "report", "compare", "dossier", "audit", "schema"),
    "An owner": ("ledger", "site", "keys"),
    "Between organisations": ("consortium", "relay", "study", "fetch"),
    "Figures from a result": ("predict", "export", "synth", "combine"),
}
"""The commands by what they are for, in the order of the help page."""


class GroupedCommands(typer.core.TyperGroup):
    """Lists commands under the headings of `GROUPS`; one that has no group is listed last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        visible = {name: one for name, one in self.commands.items() if not one.hidden}
        grouped = [name for names in GROUPS.values() for name in names]
        others = tuple(name for name in visible if name not in grouped)
        for heading, names in (*GROUPS.items(), *((("Others", others),) if others else ())):
            rows = [(name, visible[name].get_short_help_str(formatter.width)) for name in names if name in visible]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


app = typer.Typer(
    name="comity",
    cls=GroupedCommands,
    help="Organisations learn together under differential privacy; each keeps its records and its privacy budget.\n\n"
    "Example: comity new triage; cd triage; comity plan study.toml; comity run study.toml --seed 7",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Level(StrEnum):
    """How much of what happens is logged on stderr."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


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
    log_level: Annotated[
        Level | None, typer.Option(help="Log on stderr what happens, from this level on.", show_default=False)
    ] = None,
) -> None:
    if log_level is not None:
        import logging

        from comity.site.logs import Form, log_to_stderr

        log_to_stderr(Form.TEXT)
        logging.getLogger("comity").setLevel(log_level.value.upper())


app.command("new", short_help="Write a study that runs as it is.")(new.new)
app.command("plan", short_help="Show what a study would release and cost; reads no data.")(simulate.plan)
app.command("run", short_help="Simulate a study on this machine.")(simulate.run)
app.command("audit", short_help="Attack a study; measured loss beside the claimed one.")(audit.audit)
app.command("report", short_help="Write and open the page of a run.")(runs.report)
app.command("compare", short_help="Put runs side by side: errors and costs.")(runs.compare)
app.command("dossier", short_help="Write the documents that an approval needs.")(dossier.dossier)
app.command("combine", short_help="Add published shares up to a model.")(released.combine)
app.command("predict", short_help="Predict with a released model.")(released.predict)
app.command("export", short_help="Write a released model as ONNX or skops.")(released.export)
app.command("synth", short_help="Make rows and tables from released counts.")(released.synth)
app.add_typer(schema.app, name="schema", short_help="Check data against a schema, or draft one.")
schema.app.command("json")(editor_schemas.json_schema)
app.add_typer(ledger.app, name="ledger", short_help="An owner's privacy budget: granted, spent, left.")
app.add_typer(keys.app, name="keys", short_help="Make and show the keys of a party.")
app.add_typer(consortium.app, name="consortium", short_help="Invite, admit and revoke members.")
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


for old, now in MOVED.items():
    app.command(old, hidden=True, context_settings=_ANY_ARGUMENTS)(_moved(old, now))
