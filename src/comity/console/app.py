"""A console as an application: its pages behind the guard, each for people with the role that it needs.

Promise    A page runs only for a person who is signed in with its role, a form only with the token of its session. Both
           are checked here, for every page, before its own code runs. A person's role is read at every request.
           An error shows its sentence if it is one of ours, and nothing but "an error" otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from comity._version import __version__
from comity.console.access_log import AccessLog
from comity.console.guard import Address, Application, Guard
from comity.console.oidc import provider_pages
from comity.console.people import People, Role
from comity.console.rate_limits import RateLimits
from comity.console.sessions import Sessions
from comity.console.visit import Page, Visit, password_mark, read_form
from comity.errors import BadInput, ComityError, Refused
from comity.report.page import make_environment, render_block
from comity.untrusted.text import shorten

log = logging.getLogger("comity.console")
_STATIC = Path(__file__).parent / "static"
_STYLED_PAGES = ("plan.html.jinja", "ledger.html.jinja")
STYLE_SECONDS = 300


@dataclass
class Console:
    """What the pages of a console share. `home` has the folder `console` with people and log. `title` is whose console
    it is, `menu` are addresses with their words."""

    home: Path
    address: Address
    title: str
    menu: Sequence[tuple[str, str]]
    people: People
    sessions: Sessions = field(default_factory=Sessions)
    limits: RateLimits = field(default_factory=RateLimits)
    provider: Any = None
    version: str = __version__

    @cached_property
    def access_log(self) -> AccessLog:
        return AccessLog(self.home)

    @cached_property
    def templates(self) -> Environment:
        return make_environment(PackageLoader("comity.console", "templates"))

    def log(self, visit: Visit, action: str, about: str = "", outcome: str = "done") -> None:
        who = "" if visit.person is None else visit.person.name
        self.access_log.write(who=who, address=visit.address, action=action, about=about, outcome=outcome)


def make_app(console: Console, pages: Sequence[Page]) -> Application:
    """The application, to be served or tested."""
    known = [*pages, *(provider_pages() if console.provider is not None else ())]
    known += [Page("/static/console.css", _style, None), Page("/static/icon.svg", _icon, None)]
    routes = [Route(one.path, _endpoint(console, one), methods=[one.method]) for one in known]

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        sentence = "There is no such page." if status == 404 else "This page can't be used like this."
        return PlainTextResponse(sentence + "\n", status)

    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: unknown}), console.address)


def _endpoint(console: Console, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit = Visit(console, request, {}, None, "", None)
        try:
            if page.method == "POST":
                visit.form = await read_form(request)
            response = await run_in_threadpool(_answer, console, page, visit)
        except ComityError as error:
            visit.outcome = "refused"
            response = visit.render("error.html.jinja", _status(error), sentence=shorten(str(error)))
        except Exception as error:
            # No text: a library's message may quote a value.
            log.error("%s: %s", page.path, type(error).__name__)
            visit.outcome = "failed"
            text = "an error of the console; its terminal says where. Nothing was decided."
            log.debug("%s", page.path, exc_info=error)
            response = visit.render("error.html.jinja", 500, sentence=text)
        _set_cookie(console, visit, response)
        return response

    return endpoint


def _answer(console: Console, page: Page, visit: Visit) -> Response:
    """Check session, token and role, then run the page."""
    _identify(console, visit)
    if page.method == "POST":
        token = visit.form.get("token", "")
        if visit.session is None or not visit.session.is_own_token(token):
            raise Refused("this form is not one of your session: it may have ended. Open the page again and repeat")
    if page.role is not None:
        if visit.role is None:
            if page.method == "GET":
                return visit.redirect("/sign-in")
            raise Refused("sign in first: your session has ended")
        if visit.role < page.role:
            console.log(visit, page.action or page.path, outcome="role refused")
            raise _Forbidden(
                f"this needs the role {page.role.word}, and {visit.person.name if visit.person else ''} has "
                f"{visit.role.word}; ask an administrator of this console"
            )
    try:
        response = page.handler(visit)
    except BaseException:
        if page.action:
            console.log(visit, page.action, visit.about, "refused")
        raise
    if page.action:
        console.log(visit, page.action, visit.about, visit.outcome)
    return response


class _Forbidden(Refused):
    pass


def _status(error: ComityError) -> int:
    if isinstance(error, Refused):
        return 403
    return 400 if isinstance(error, BadInput) else 503


def _identify(console: Console, visit: Visit) -> None:
    """Find session and person. A person who was removed, or whose password changed, is nobody."""
    visit.key = visit.request.cookies.get(console.address.cookie, "")
    visit.session = console.sessions.find(visit.key) if visit.key else None
    if visit.session is not None and visit.session.person:
        person = console.people.find(visit.session.person)
        if person is None or password_mark(person) != visit.session.password:
            console.sessions.end(visit.key)
            visit.session = None
        else:
            visit.person = person


def _set_cookie(console: Console, visit: Visit, response: Response) -> None:
    if visit.cookie is None:
        return
    response.set_cookie(
        console.address.cookie,
        visit.cookie,
        max_age=None if visit.cookie else 0,
        path="/",
        secure=console.address.tls,
        httponly=True,
        samesite="strict",
    )


def _style(visit: Visit) -> Response:
    """One stylesheet: that of the reports, whose pages the console shows, and its own."""
    parts = [render_block("base.html.jinja", "base_style")]
    parts += [render_block(name, "style") for name in _STYLED_PAGES]
    parts.append((_STATIC / "console.css").read_text(encoding="utf-8"))
    return Response("\n".join(parts), media_type="text/css", headers={"cache-control": f"max-age={STYLE_SECONDS}"})


def _icon(visit: Visit) -> Response:
    return Response((_STATIC / "icon.svg").read_bytes(), media_type="image/svg+xml")


__all__ = ["Console", "Page", "Role", "Visit", "make_app"]
