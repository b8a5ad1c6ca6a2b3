"""Taxonomies of categories: public trees whose leaves are the categories of a column.

A file has a table for each column that is grouped; groups are lists of categories, or tables of groups:

    [education]
    "no degree" = ["9th", "10th"]
    [education.degree]
    first = ["Bachelors"]

Categories of the schema that the file does not place, among them those of other and of missing values, are below the
root; those that the schema does not have are left out. A column without a table has its categories below the root. No
record is read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comity.data import Categorical, Schema
from comity.errors import StudyError
from comity.methods.synthetic.published.tree import Attributes


@dataclass(frozen=True)
class Group:
    """Categories by their places, and the groups below; a group of a single category has none."""

    values: tuple[int, ...]
    below: tuple[Group, ...] = ()


@dataclass(frozen=True)
class Taxonomy:
    """For each attribute of a schema the root of its categories, None where it is a number."""

    roots: tuple[Group | None, ...]


def taxonomy_of(attributes: Attributes, text: str = "", where: str = "the taxonomy") -> Taxonomy:
    """From the text of a file and the schema; from the schema alone where there is none."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(
            f"{where}: expected TOML, found something else ({error}); correct it", key="taxonomy"
        ) from error
    names = _categories(attributes.schema)
    roots: list[Group | None] = []
    for one in attributes.all:
        if one.numeric:
            roots.append(None)
            continue
        known = names.get(one.name, [str(place) for place in range(one.values)])
        roots.append(_root(tables.get(one.name, {}), known, one.values, f"{where}, {one.name}"))
    return Taxonomy(tuple(roots))


def _categories(schema: Schema) -> dict[str, list[str]]:
    return {column.name: list(column.values) for column in schema.columns if isinstance(column, Categorical)}


def _root(table: Any, known: Sequence[str], count: int, where: str) -> Group:
    place = {name: at for at, name in enumerate(known)}
    groups = _groups(table, place, where)
    found = [value for group in groups for value in group.values]
    twice = sorted({known[value] for value in found if found.count(value) > 1})
    if twice:
        raise StudyError(
            f"{where}: expected each category in one group, found {twice[0]!r} in several; leave it in one",
            key="taxonomy",
        )
    left = [Group((value,)) for value in range(count) if value not in found]
    return _joined([*groups, *left])


def _groups(table: Any, place: Mapping[str, int], where: str) -> list[Group]:
    if isinstance(table, Mapping):
        below = [_groups(one, place, f"{where}, {name}") for name, one in table.items()]
        return [_joined(groups) for groups in below if groups]
    if isinstance(table, list) and all(isinstance(name, str) for name in table):
        return [Group((place[name],)) for name in table if name in place]
    raise StudyError(
        f"{where}: expected a list of categories or a table of groups, found {table!r}; correct it", key="taxonomy"
    )


def _joined(groups: list[Group]) -> Group:
    """A group of one group is that group: a step that splits nothing would cost as much as any other."""
    if len(groups) == 1:
        return groups[0]
    return Group(tuple(sorted(value for group in groups for value in group.values)), tuple(groups))
