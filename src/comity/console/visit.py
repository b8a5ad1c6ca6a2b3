"""One request to a console: who sends it, with which form, and the responses that a page can give."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from comity.console.guard import MAX_FORM_BYTES
from comity.console.people import Person, Role
from comity.errors import BadInput
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    from comity.console.app import Console
    from comity.console.sessions import Session

_MAX_FIELDS = 40
_MAX_QUERY = 4096


@dataclass(frozen=True)
class Page:
    """A page of a console. `role` is the least that a person must have; None for people who have not signed in.
    `action` is what the access log calls it; without one the page is not logged."""

    path: str
    handler: Callable[[Visit], Response]
    role: Role | None
    action: str = ""
    method: str = "GET"


@dataclass
class Visit:
    console: Console
    request: Request
    form: Mapping[str, str]
    session: Session | None
    key: str
    person: Person | None
    # What a handler adds to the line of the access log.
    about: str = ""
    outcome: str = "done"
    cookie: str | None = field(default=None)

    @property
    def address(self) -> str:
        client = self.request.client
        return "unknown" if client is None else client.host

    @property
    def role(self) -> Role | None:
        return None if self.person is None else self.person.rank

    def may(self, word: str) -> bool:
        """Whether the person has this role; for templates."""
        return self.role is not None and self.role >= Role.of(word)

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return str(self.request.query_params.get(name, default))[:200]

    def long_query(self, name: str) -> str:
        """A part of the query that may be long, as a provider's code is; empty where it is too long for one."""
        value = str(self.request.query_params.get(name, ""))
        return value if len(value) <= _MAX_QUERY else ""

    def text(self, name: str, most: int, default: str = "") -> str:
        """A field of the form, as one line."""
        value = self.form.get(name, default).strip()
        if len(value) > most:
            raise BadInput(f"{name} has {len(value)} characters, and at most {most} fit; shorten it", key=name)
        return escape_line(" ".join(value.split()))

    def number(self, name: str, low: int, high: int) -> int:
        value = self.form.get(name, "").strip()
        if not (value.isascii() and value.isdecimal() and len(value) < 9 and low <= int(value) <= high):
            raise BadInput(f"{name} is a whole number from {low} to {high}, found {value[:20]!r}", key=name)
        return int(value)

    def begin_session(self) -> None:
        """Give a browser without a session one, so that its forms can carry a token."""
        if self.session is None:
            self.cookie, self.session = self.console.sessions.begin()
            self.key = self.cookie

    def sign_in(self, person: Person) -> None:
        """Replace this browser's session by one of the person, under another id."""
        self.cookie, self.session = self.console.sessions.sign_in(self.key, person.name, password_mark(person))
        self.key, self.person = self.cookie, person

    def sign_out(self) -> None:
        self.console.sessions.end(self.key)
        self.cookie, self.session, self.person = "", None, None

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        page = self.console.templates.get_template(template).render(
            visit=self,
            console=self.console,
            here=self.request.url.path,
            token="" if self.session is None else self.session.token,
            notice=self._take_notice(),
            **values,
        )
        return HTMLResponse(page, status)

    def redirect(self, to: str, notice: str = "") -> Response:
        if notice and self.session is not None:
            self.session.notice = notice
        return RedirectResponse(quote(to, safe="/?=&#"), 303)

    def _take_notice(self) -> str:
        if self.session is None:
            return ""
        notice, self.session.notice = self.session.notice, ""
        return notice


def password_mark(person: Person) -> str:
    """Changes with the person's password or binding, which ends the sessions that began before."""
    return hashlib.sha256(f"{person.password}\0{person.subject}".encode()).hexdigest()


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. A field that is given twice is refused: two readers could take different ones."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise BadInput("this form is too long")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/x-www-form-urlencoded":
        raise BadInput("a form is sent as application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise BadInput("this form can't be read") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadInput("this form has a field twice")
    return fields
