"""What `comity site console` and `comity study console` share: their options, invitations, and serving."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.cli.output import say, show
from comity.errors import BadInput

if TYPE_CHECKING:
    from comity.console.app import Console
    from comity.console.guard import Address, Application

PORT = 8750
Invite = Annotated[
    str | None, typer.Option(metavar="NAME", help="Print a one-time link for this person and exit.", show_default=False)
]
AsRole = Annotated[str, typer.Option(help="The person's role: read, approve or administer.")]


@dataclass(frozen=True)
class ConsoleOptions:
    """Where a console is reached, and who vouches for people. Each field is an option."""

    host: Annotated[str, typer.Option(help="The address to listen on; others than loopback need a certificate.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)] = PORT
    name: Annotated[
        list[str] | None, typer.Option(help="A host name that people type; may be repeated.", show_default=False)
    ] = None
    certificate: Annotated[
        Path | None, typer.Option(help="The TLS certificate (PEM), with its chain.", show_default=False)
    ] = None
    key: Annotated[Path | None, typer.Option(help="The key of the certificate (PEM).", show_default=False)] = None
    provider: Annotated[
        Path | None, typer.Option(help="A TOML file that describes an OpenID Connect provider.", show_default=False)
    ] = None

    def address(self) -> Address:
        _require_installed()
        from comity.console.guard import Address

        if (self.certificate is None) != (self.key is None):
            raise typer.BadParameter("--certificate and --key belong together.")
        return Address.of(self.host, self.port, tuple(self.name or ()), tls=self.certificate is not None)

    def open_provider(self, address: Address) -> Any:
        """The provider, if one is named."""
        if self.provider is None:
            return None
        from comity.console.oidc import Provider

        return Provider.load(self.provider, address)


LOOPBACK = ConsoleOptions()


def takes_console_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `ConsoleOptions`, which it receives as its argument `options`."""
    names = [field.name for field in fields(ConsoleOptions)]

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = ConsoleOptions(**{name: given.pop(name) for name in names})
        command(**given, options=options)

    own = inspect.signature(ConsoleOptions, eval_str=True).parameters.values()
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        parameters += own if one.name == "options" else [one]
    # Typer makes a command's options from its signature and annotations.
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    with_options.__dict__["__signature__"] = inspect.Signature(keywords)
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def make_invitation(home: Path, options: ConsoleOptions, name: str, role: str, *, as_json: bool) -> None:
    """Print a link for a person. A console that runs already knows it."""
    address = options.address()
    from comity.console.people import LINK_SECONDS, People, Role

    secret = People(home).make_link(name, Role.of(role))
    link = f"{address.url}/link/{secret}"
    lines = [f"a link for {name} ({role}), once and within {LINK_SECONDS // 60} minutes:", f"  {link}"]
    show(lines, {"link": link, "name": name, "role": role}, as_json=as_json)


def serve_console(console: Console, app: Application, options: ConsoleOptions, *, as_json: bool) -> None:
    """Serve until stopped. Nobody knows a password yet: print a link for an administrator."""
    from comity.console.people import LINK_SECONDS, Role
    from comity.console.server import serve

    def announce() -> None:
        document: dict[str, Any] = {"console": console.title, "url": console.address.url, "link": None}
        lines = [f"{console.title} at {console.address.url}"]
        if not console.people.all():
            document["link"] = f"{console.address.url}/link/{console.people.make_link('', Role.ADMINISTER)}"
            lines.append(f"open this link once, within {LINK_SECONDS // 60} minutes, and choose a password:")
            lines.append(f"  {document['link']}")
        show(lines, document, as_json=as_json)

    try:
        serve(app, console.address, certificate=options.certificate, key=options.key, ready=announce)
    except KeyboardInterrupt:
        say("stopped", err=True)


def _require_installed() -> None:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise BadInput(f"{', '.join(missing)}: missing; run: pip install 'comity[console]'")
