"""Signing in and out, and the people of a console."""

from __future__ import annotations

from starlette.responses import Response

from comity.console.people import LINK_SECONDS, MAX_NAME, Role
from comity.console.visit import Page, Visit
from comity.errors import BadInput, Refused

_LINKS = "\0links"
TOO_MANY = "too many attempts to sign in: wait a quarter of an hour, or ask the operator of this console for a new link"
_WRONG_LINK = (
    "this link was used or has expired; ask the operator of this console for another: comity site console --invite NAME"
)


def sign_in_pages() -> list[Page]:
    return [
        Page("/sign-in", show_sign_in, None),
        Page("/sign-in", check_password, None, method="POST"),
        Page("/link/{secret}", show_link, None),
        Page("/link", use_link, None, method="POST"),
        Page("/sign-out", sign_out, Role.READ, "signed out", method="POST"),
        Page("/people", show_people, Role.ADMINISTER, "looked at the people"),
        Page("/people/invite", invite, Role.ADMINISTER, "invited", method="POST"),
        Page("/people/bind", bind, Role.ADMINISTER, "bound to the provider", method="POST"),
        Page("/people/remove", remove, Role.ADMINISTER, "removed a person", method="POST"),
    ]


def show_sign_in(visit: Visit) -> Response:
    if visit.person is not None:
        return visit.redirect("/")
    visit.begin_session()
    return visit.render("sign_in.html.jinja", problem="")


def check_password(visit: Visit) -> Response:
    name, password = visit.form.get("name", "").strip()[:MAX_NAME], visit.form.get("password", "")
    console = visit.console
    known = console.people.find(name)
    # Of a name that nobody has, nothing is kept: it may be a password in the wrong field.
    logged = name if known is not None else "an unknown name"
    if not console.limits.take(name if known is not None else logged):
        console.log(visit, "sign-in", logged, "too many attempts")
        return visit.render("sign_in.html.jinja", 429, problem=TOO_MANY)
    person = console.people.check(name, password)
    if person is None:
        console.log(visit, "sign-in", logged, "wrong")
        return visit.render("sign_in.html.jinja", 403, problem="name and password do not fit together")
    console.limits.give_back(name)
    visit.sign_in(person)
    console.log(visit, "sign-in")
    return visit.redirect("/")


def show_link(visit: Visit) -> Response:
    """Ask for a password. The link is used up by the form, not by being looked at."""
    secret = visit.part("secret")
    if not visit.console.limits.take(_LINKS):
        return visit.render("error.html.jinja", 429, sentence=TOO_MANY)
    link = visit.console.people.find_link(secret)
    if link is None:
        visit.console.log(visit, "link", outcome="wrong")
        return visit.render("error.html.jinja", 403, sentence=_WRONG_LINK)
    visit.console.limits.give_back(_LINKS)
    visit.begin_session()
    return visit.render("link.html.jinja", link=link, secret=secret, problem="", name="")


def use_link(visit: Visit) -> Response:
    console, secret = visit.console, visit.form.get("secret", "")
    if not console.limits.take(_LINKS):
        return visit.render("error.html.jinja", 429, sentence=TOO_MANY)
    link = console.people.find_link(secret)
    if link is None:
        console.log(visit, "link", outcome="wrong")
        return visit.render("error.html.jinja", 403, sentence=_WRONG_LINK)
    console.limits.give_back(_LINKS)
    name, password = visit.form.get("name", ""), visit.form.get("password", "")
    try:
        if password != visit.form.get("again", ""):
            raise BadInput("the two passwords differ", key="password")
        person = console.people.use_link(secret, name, password)
    except BadInput as error:
        return visit.render("link.html.jinja", 400, link=link, secret=secret, problem=str(error), name=name[:MAX_NAME])
    if person is None:
        raise Refused(_WRONG_LINK)
    visit.sign_in(person)
    console.log(visit, "chose a password")
    return visit.redirect("/")


def sign_out(visit: Visit) -> Response:
    person = visit.person
    visit.sign_out()
    # The access log says who signed out.
    visit.person = person
    return visit.redirect("/sign-in")


def show_people(visit: Visit, link: str = "", name: str = "") -> Response:
    return visit.render(
        "people.html.jinja",
        people=sorted(visit.console.people.all().values(), key=lambda one: one.name),
        roles=list(Role),
        link=link,
        name=name,
        minutes=LINK_SECONDS // 60,
    )


def invite(visit: Visit) -> Response:
    """Make a link and show it once. Inviting a person again sets another role, and lets it choose a new password."""
    name, role = visit.text("name", MAX_NAME), Role.of(visit.form.get("role", ""))
    if not name:
        raise BadInput("give the name of the person to invite", key="name")
    visit.about = f"{name} as {role.word}"
    secret = visit.console.people.make_link(name, role)
    return show_people(visit, f"{visit.console.address.url}/link/{secret}", name)


def bind(visit: Visit) -> Response:
    name, role = visit.text("name", MAX_NAME), Role.of(visit.form.get("role", ""))
    visit.about = f"{name} as {role.word}"
    visit.console.people.bind(name, role, visit.form.get("subject", "").strip())
    return visit.redirect("/people", f"{name} can sign in with the provider.")


def remove(visit: Visit) -> Response:
    name = visit.text("name", MAX_NAME)
    visit.about = name
    removed = visit.console.people.remove(name)
    return visit.redirect("/people", f"{name} was removed." if removed else f"There is nobody called {name}.")
