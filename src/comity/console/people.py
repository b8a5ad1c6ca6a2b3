"""The people who may use a console, and the one-time links with which they choose a password.

    console/people.json    names, roles and password hashes
    console/links.json     digests of the links that were given out and not yet used

Promise    A link works once and for `LINK_SECONDS`. The files hold no password and no link. They are read at every
           request, so a changed role or a removed person counts at once.
Against    Anyone who reads a copy of the files, and anyone who finds an old link in a terminal's history.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from time import time
from typing import Any

from comity.console.passwords import COST, Cost, hash_password, verify_password
from comity.errors import BadInput, Stopped
from comity.files import locked, make_folder, write_atomically
from comity.untrusted.pages import validate
from comity.untrusted.text import is_hidden

FOLDER = "console"
LINK_SECONDS = 15 * 60
MAX_NAME = 60
_LINK_BYTES = 32


class Role(IntEnum):
    """What a person may do; each role includes those before it."""

    READ = 1
    APPROVE = 2
    ADMINISTER = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role:
        try:
            return cls[word.upper()]
        except KeyError:
            known = ", ".join(one.word for one in cls)
            raise BadInput(f"a role is one of {known}; found {word[:40]!r}", key="role") from None


@dataclass(frozen=True)
class Person:
    """`password` is a hash, empty for a person who signs in with a provider only. `subject` is who the person is at
    that provider, empty for one who does not use it."""

    name: str
    role: str
    password: str = ""
    subject: str = ""

    @property
    def rank(self) -> Role:
        return Role.of(self.role)


@dataclass(frozen=True)
class Link:
    """A link that waits to be used. Without a name its user chooses one."""

    name: str
    role: str
    until: float


def check_person_name(name: str) -> str:
    """A name as it stands in decisions and logs: one line without invisible characters."""
    name = name.strip()
    if not name or len(name) > MAX_NAME or any(map(is_hidden, name)):
        raise BadInput(f"a name is one line of 1 to {MAX_NAME} visible characters", key="name")
    return name


class People:
    """The files in the folder `console` beside a site file, or in the folder of a coordinator's runs."""

    def __init__(self, home: Path, clock: Callable[[], float] = time, cost: Cost = COST) -> None:
        self.folder = home / FOLDER
        self._people, self._links = self.folder / "people.json", self.folder / "links.json"
        self._clock, self._cost = clock, cost

    def all(self) -> dict[str, Person]:
        return {name: validate(Person, page) for name, page in _read(self._people).items()}

    def find(self, name: str) -> Person | None:
        return self.all().get(name)

    def with_subject(self, subject: str) -> Person | None:
        """The person that the administrator bound to this subject of the provider."""
        return next((one for one in self.all().values() if subject and one.subject == subject), None)

    def check(self, name: str, password: str) -> Person | None:
        """The person, if the password is right."""
        known = self.find(name)
        right = verify_password(password, None if known is None or not known.password else known.password)
        return known if right else None

    # Links.

    def make_link(self, name: str, role: Role) -> str:
        """The secret of a new link. An earlier link for the same name stops working."""
        name = check_person_name(name) if name else ""
        secret = secrets.token_urlsafe(_LINK_BYTES)
        with self._locked():
            links = {key: one for key, one in self._open_links().items() if one.name != name}
            links[_digest(secret)] = Link(name, role.word, self._clock() + LINK_SECONDS)
            self._write(self._links, links)
        return secret

    def find_link(self, secret: str) -> Link | None:
        """A link that can still be used. Looking does not use it up: a browser may fetch a page twice."""
        return self._open_links().get(_digest(secret))

    def use_link(self, secret: str, name: str, password: str) -> Person | None:
        """Use a link up, and set the password of its person. None if it was used or has expired.

        A link without a name is for a new person; it never takes over the name of another."""
        hashed = hash_password(password, self._cost)
        with self._locked():
            links = self._open_links()
            link = links.pop(_digest(secret), None)
            if link is None:
                return None
            people = self.all()
            chosen = link.name or check_person_name(name)
            if not link.name and chosen in people:
                raise BadInput(f"{chosen} has signed in here before; choose another name", key="name")
            known = people.get(chosen, Person(chosen, link.role))
            people[chosen] = replace(known, role=link.role, password=hashed)
            self._write(self._links, links)
            self._write(self._people, people)
            return people[chosen]

    def _open_links(self) -> dict[str, Link]:
        links = {key: validate(Link, page) for key, page in _read(self._links).items()}
        return {key: one for key, one in links.items() if one.until > self._clock()}

    # Changes by an administrator.

    def bind(self, name: str, role: Role, subject: str) -> Person:
        """Let a subject of the provider sign in under a name."""
        name = check_person_name(name)
        if not subject or len(subject) > 255 or any(map(is_hidden, subject)):
            raise BadInput("the subject at the provider is one line of 1 to 255 characters", key="subject")
        with self._locked():
            people = self.all()
            if any(one.subject == subject and one.name != name for one in people.values()):
                raise BadInput("this subject is bound to another person already", key="subject")
            people[name] = replace(people.get(name, Person(name, role.word)), role=role.word, subject=subject)
            self._write(self._people, people)
            return people[name]

    def remove(self, name: str) -> bool:
        """Remove a person and the links for this name. The last administrator stays."""
        with self._locked():
            people = self.all()
            others = [one for one in people.values() if one.name != name]
            if name in people and people[name].rank is Role.ADMINISTER:
                _require_administrator(others)
            links = {key: one for key, one in self._open_links().items() if one.name != name}
            self._write(self._links, links)
            if name not in people:
                return False
            del people[name]
            self._write(self._people, people)
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self.folder)
        busy = Stopped(f"{self.folder}: another process changes the people of this console; try again")
        with locked(self.folder / ".lock", seconds=5.0, blocked=lambda: busy):
            yield

    def _write(self, path: Path, entries: Mapping[str, Person | Link]) -> None:
        write_atomically(path, json.dumps({key: asdict(one) for key, one in entries.items()}, indent=1) + "\n")


def _require_administrator(people: list[Person]) -> None:
    if not any(one.rank is Role.ADMINISTER for one in people):
        raise BadInput("the last administrator can't be removed; invite another one first", key="name")


def _read(path: Path) -> dict[str, Any]:
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: can't be read ({error}); restore it, or delete it and invite people again") from error
    if not isinstance(page, dict):
        raise BadInput(f"{path}: expected a table; restore it, or delete it and invite people again")
    return page


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
