"""The catalogue of mutants: what is changed where, and which tests must notice."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CATALOGUE = Path(__file__).with_name("catalogue.toml")


class Stale(Exception):
    """The catalogue speaks of source text that is not there, or not once: the mutant would be another one, or none."""


@dataclass(frozen=True)
class Mutant:
    """One rule removed or weakened: in `file` the text `find` becomes `put`, and one of `tests` must fail."""

    rule: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]

    def of(self, source: str) -> str:
        """The source with the rule removed."""
        found = source.count(self.find)
        if found != 1:
            raise Stale(
                f"the catalogue is stale: {self.file} has {found} times, not once, the text of {self.rule!r}: "
                f"{self.find!r}"
            )
        return source.replace(self.find, self.put)

    @property
    def folder(self) -> str:
        """Where the tests beside this rule lie: by the package that has the rule, by the protocol, or by the kind of
        experiment."""
        return folder_of(self.file)


def folder_of(file: str) -> str:
    if (outside := Path(file).parts)[0] == "experiments":
        return "/".join(("tests", *outside[:-1][:2])) + "/"
    packages = Path(file).parts[2:-1]
    if packages == ("methods",):
        # What all methods share is what a study says: it is tested where studies are.
        return "tests/study/"
    if packages[:2] == ("federation", "evaluation"):
        return "tests/evaluation/"
    below = packages[1:2] if packages[:1] == ("methods",) else packages[:1]
    return "/".join(("tests", *below)) + "/"


def folders_of(file: str) -> tuple[str, ...]:
    """Where tests of a rule may lie. Sites are made of a study and a relay, so their tests may guard rules of both."""
    own = folder_of(file)
    return (own, "tests/site/") if own in ("tests/study/", "tests/relay/") else (own,)


def read(path: Path = CATALOGUE) -> list[Mutant]:
    """The mutants, in the order of the file; a table for each source file, a line for each rule."""
    with path.open("rb") as file:
        tables: Mapping[str, Mapping[str, Mapping[str, str]]] = tomllib.load(file)
    return [
        Mutant(rule, source, line["find"], line["put"], tuple(line["tests"].split()))
        for source, rules in tables.items()
        for rule, line in rules.items()
    ]
