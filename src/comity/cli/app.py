"""The tree of commands. A new command is a function in the file of its group, and a line here if it has no group.

A command's file is imported when the command is in the tree: one that is run alone does not wait for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core

from comity.errors import ComityError

if TYPE_CHECKING:
    app: typer.Typer

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


COMMANDS: Final = {
    "new": ("new:new", "Write a study that runs as it is."),
    "plan": ("simulate:plan", "Show what a study would release and cost; reads no data."),
    "run": ("simulate:run", "Simulate a study on this machine."),
    "audit": ("audit:audit", "Attack a study; measured loss beside the claimed one."),
    "report": ("runs:report", "Write and open the page of a run."),
    "compare": ("runs:compare", "Put runs side by side: errors and costs."),
    "dossier": ("dossier:dossier", "Write the documents that an approval needs."),
    "combine": ("released:combine", "Add published shares up to a model."),
    "predict": ("released:predict", "Predict with a released model."),
    "export": ("released:export", "Write a released model as ONNX or skops."),
    "synth": ("released:synth", "Make rows and tables from released counts."),
    "schema": ("schema", "Check data against a schema, or draft one."),
    "ledger": ("ledger", "An owner's privacy budget: granted, spent, left."),
    "keys": ("keys", "Make and show the keys of a party."),
    "consortium": ("consortium", "Invite, admit and revoke members."),
    "relay": ("relay", "The server to which members connect."),
    "site": ("site", "An owner's side: arrived studies, approvals, serving."),
    "study": ("study", "Send a study to its parties and run it with them."),
    "runs": ("runs:runs", "List the runs that were started from here."),
    "fetch": ("runs:fetch", "Get the results of a deployed run and check their signatures."),
    "demo": ("simulate:demo", "Simulate a small study of every method; one page."),
    "doctor": ("doctor:doctor", "Check this machine, a site or a consortium."),
}
"""The file of each command, with the function, or without one for a group of commands; and the short help."""

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


@cache
def make_app(only: str | None = None) -> typer.Typer:
    """All commands, or `only` one of them."""
    made = typer.Typer(
        name="comity",
        cls=GroupedCommands,
        help="Organisations learn together under differential privacy; each keeps its records and its privacy "
        "budget.\n\nExample: comity new triage; cd triage; comity plan study.toml; comity run study.toml --seed 7",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(comity)
    for name, (place, short_help) in COMMANDS.items():
        if only not in (None, name):
            continue
        file, _, function = place.partition(":")
        module = import_module(f"comity.cli.{file}")
        if function:
            made.command(name, short_help=short_help)(getattr(module, function))
        else:
            made.add_typer(module.app, name=name, short_help=short_help)
    for old, now in MOVED.items() if only is None else ():
        made.command(old, hidden=True, context_settings=_ANY_ARGUMENTS)(_moved(old, now))
    return made


def __getattr__(name: str) -> Any:
    if name == "app":
        return make_app()
    raise AttributeError(name)
