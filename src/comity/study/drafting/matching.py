"""Columns and values of several owners' files in the terms of the first file: names, codes and units of measure.

Every change is a proposal. What nothing matches is named, so that its owner can say what it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.drafting import MAX_CATEGORIES
from comity.data.schemas.reading import canonical_id, read_ids, read_numbers
from comity.data.tables.translation import Translation
from comity.errors import BadInput
from comity.study.drafting.own_files import OwnFile, are_compatible, holds_codes, kind_of, require_column, texts_of
from comity.study.drafting.proposals import Decisions
from comity.study.drafting.similar import (
    SIMILAR,
    is_identifier_name,
    match_names,
    match_values,
    same_name,
    says_identifier,
    stem,
    units_of,
)

if TYPE_CHECKING:
    import pandas as pd

FACTORS: dict[tuple[str, str], float] = {
    ("m", "cm"): 100,
    ("cm", "m"): 0.01,
    ("mm", "cm"): 0.1,
    ("cm", "mm"): 10,
    ("m", "mm"): 1000,
    ("mm", "m"): 0.001,
    ("in", "cm"): 2.54,
    ("inch", "cm"): 2.54,
    ("inches", "cm"): 2.54,
    ("kg", "g"): 1000,
    ("g", "kg"): 0.001,
    ("mg", "g"): 0.001,
    ("g", "mg"): 1000,
    ("lb", "kg"): 0.45359237,
    ("lbs", "kg"): 0.45359237,
    ("kpa", "mmhg"): 7.50062,
}
"""Factors between units that column names show."""
_POWERS = (10.0, 100.0, 1000.0, 0.1, 0.01, 0.001)
_QUARTILES = (0.25, 0.5, 0.75)
_FAR_LARGER = 1.8
"""The ratio of medians from which the author is asked about units: pounds and kilograms differ by 2.2. Not tuned on
data."""
_FAR_OUT = 1000.0
"""How many widths of the middle half a value lies from the median, from which the author is asked whether it is an
error. Incomes have values a few hundred widths away. Not tuned on data."""
_SHARED = 1 / 3
"""The share of the smaller file's identifiers that the other file has, from which two columns identify the same people.
Not tuned on data."""


# Names.


def match_columns(first: OwnFile, other: OwnFile, given: Mapping[str, str], decisions: Decisions) -> OwnFile:
    """The other file with the first file's names of its columns: those `given`, and those that most likely mean the
    same."""
    for own in given:
        require_column(other, own, "rename")
    known = [name for name in first.columns if name not in given.values()]
    others = [name for name in other.columns if name not in given]
    fits = {
        (name, own): are_compatible(first.frame[name], other.frame[own])
        for name in known
        for own in others
        if same_name(name, own)
    }
    rename = dict(given)
    for own, name in match_names(known, others, fits).items():
        why = same_name(name, own)
        if own != name and decisions.propose(other.party, name, f"{own} is {name} ({why})", sure=why != SIMILAR):
            rename[own] = name
    settled = {*rename.values(), *(set(others) & set(known))}
    rename |= _match_by_values(first, other, settled, set(rename) | set(known), decisions)
    return with_names(other, rename)


def _match_by_values(
    first: OwnFile, other: OwnFile, settled: set[str], taken: set[str], decisions: Decisions
) -> dict[str, str]:
    """Columns whose values are the same codes, or the only columns of days that are left in both files."""
    free = [name for name in first.columns if name not in settled]
    left = [name for name in other.columns if name not in taken]
    pairs = [(own, name) for own in left for name in free if _alike(first.frame[name], other.frame[own])]
    found: dict[str, str] = {}
    for own, name in pairs:
        alone = sum(one == own for one, _ in pairs) == 1 and sum(two == name for _, two in pairs) == 1
        if alone and decisions.propose(other.party, name, f"{own} is {name} (a guess by its values)", sure=False):
            found[own] = name
    return found


def _alike(known: pd.Series, other: pd.Series) -> bool:
    kinds = {kind_of(known), kind_of(other)}
    if kinds == {"day"}:
        return True
    if kinds != {"category"}:
        return False
    values, own = texts_of(known), texts_of(other)
    if max(len(values), len(own)) > MAX_CATEGORIES:
        return False
    matched = match_values(values, own)
    return bool(own) and all(value in values or value in matched for value in own) and not _is_bare(values, own)


def _is_bare(values: Sequence[str], own: Sequence[str]) -> bool:
    """Codes such as 0 and 1, or yes and no, are those of many columns: they match nothing."""
    common = {"0", "1", "yes", "no", "y", "n", "true", "false", "ja", "nein", "j"}
    return {value.lower() for value in (*values, *own)} <= common


def with_names(file: OwnFile, rename: Mapping[str, str]) -> OwnFile:
    """The file with these names, which its other translations then use."""
    kept = file.translation
    return file.with_translation(
        Translation(
            rename=dict(rename),
            missing=kept.missing,
            recode={rename.get(name, name): codes for name, codes in kept.recode.items()},
            format={rename.get(name, name): format for name, format in kept.format.items()},
            unit={rename.get(name, name): factor for name, factor in kept.unit.items()},
            complete=kept.complete,
        )
    )


# Values.


def match_codes(
    first: OwnFile, other: OwnFile, columns: Sequence[str], given: Mapping[str, Mapping[str, str]], decisions: Decisions
) -> OwnFile:
    """The other file with the first file's codes: those `given`, and those that most likely mean the same."""
    recode = {name: dict(codes) for name, codes in other.translation.recode.items()}
    for name, codes in given.items():
        require_column(other, name, "recode")
        recode.setdefault(name, {}).update(codes)
    for name in columns:
        known, own = first.frame[name], other.frame[name]
        numbers = not read_numbers(known).wrong.any() and not read_numbers(own).wrong.any()
        if numbers or not holds_codes(known) or not holds_codes(own):
            continue
        values = texts_of(known)
        if max(len(values), len(texts_of(own))) > MAX_CATEGORIES:
            continue
        strange = [value for value in texts_of(own) if value not in values and value not in recode.get(name, {})]
        matched = match_values(values, [*strange, *(value for value in texts_of(own) if value in values)])
        codes = {value: matched[value] for value in strange if value in matched}
        said = ", ".join(f"{value} is {code}" for value, code in codes.items())
        if codes and decisions.propose(other.party, name, f"{name}: {said}"):
            recode.setdefault(name, {}).update(codes)
        unknown = [value for value in strange if value not in recode.get(name, {})]
        if unknown and len(unknown) <= 12:
            decisions.unmatched.append(
                f"{other.party}: {name}: {', '.join(unknown)} {'matches' if len(unknown) == 1 else 'match'} none of "
                f"{', '.join(values[:12])}; if one means the same, give --recode {other.party}.{name}.{unknown[0]}=..."
            )
    return other.with_translation(replace(other.translation, recode=recode))


# Units of measure.


def match_units(
    first: OwnFile, other: OwnFile, columns: Sequence[str], given: Mapping[str, float], decisions: Decisions
) -> OwnFile:
    """The other file with factors for columns that are measured in another unit: those `given`, and those that names
    show, or a power of ten between values that do not overlap otherwise. Where sizes differ and no factor is known,
    a question is left for the file's owner."""
    unit = {**other.translation.unit, **given}
    for name in given:
        require_column(other, name, "unit")
    for name in (one for one in columns if one not in given):
        known, own = first.frame[name], other.frame[name]
        if kind_of(known) != "number" or kind_of(own) != "number" or identifies([known, own], name):
            continue
        own_name = other.translation.own_name(name)
        named = FACTORS.get((next(iter(units_of(own_name)), ""), next(iter(units_of(name)), "")))
        if named is not None and stem(own_name) == stem(name):
            sentence = f"{name}: {own_name} times {named:g} is {name}"
            if decisions.propose(other.party, name, sentence):
                unit[name] = named
            continue
        factor = _power_between(_values(known), _values(own))
        if factor is not None:
            guess = f"{name}: its values times {factor:g} have the size of the others (a guess by its values)"
            if decisions.propose(other.party, name, guess, sure=False):
                unit[name] = factor
        elif question := _ask_about_sizes(first.party, _values(known), other.party, _values(own), name):
            decisions.checks.append(question)
    return other.with_translation(replace(other.translation, unit=unit))


def _values(series: pd.Series) -> NDArray[np.float64]:
    read = read_numbers(series)
    return read.values[np.isfinite(read.values)]


def _power_between(known: NDArray[np.float64], own: NDArray[np.float64]) -> float | None:
    """The power of ten with which the middle halves of two columns overlap, where without it whole ranges don't."""
    if known.min() <= 0 or own.min() <= 0 or (own.min() <= known.max() and known.min() <= own.max()):
        return None
    low, high = np.quantile(known, (0.25, 0.75))
    first, last = np.quantile(own, (0.25, 0.75))
    fitting = [power for power in _POWERS if first * power <= high and low <= last * power]
    return fitting[0] if len(fitting) == 1 else None


def _ask_about_sizes(
    first: str, known: NDArray[np.float64], other: str, own: NDArray[np.float64], name: str
) -> str | None:
    """A question where the middle halves of two columns lie apart and one median is far larger: another unit, or other
    people. Chemical units differ by a factor for each substance, which no table here has."""
    (low, median, high), (first_own, median_own, last_own) = (np.quantile(one, _QUARTILES) for one in (known, own))
    if min(low, first_own) <= 0 or (first_own <= high and low <= last_own):
        return None
    ratio = median / median_own
    if max(ratio, 1 / ratio) < _FAR_LARGER:
        return None
    return (
        f"{name}: half of the values of {other} are between {first_own:.4g} and {last_own:.4g}, and half of those of "
        f"{first} between {low:.4g} and {high:.4g}; if {other} measures in another unit, give the factor (about "
        f"{ratio:.3g}): --unit {other}.{name}=FACTOR"
    )


def ask_about_errors(file: OwnFile, columns: Sequence[str], decisions: Decisions) -> None:
    """Ask about single numbers of another size than the rest: a drafted bound would follow them."""
    for name in columns:
        if kind_of(file.frame[name]) != "number" or not len(values := _values(file.frame[name])):
            continue
        low, median, high = np.quantile(values, _QUARTILES)
        farthest = float(values[np.argmax(np.abs(values - median))])
        if abs(farthest - median) > _FAR_OUT * (high - low) > 0:
            own = file.translation.own_name(name)
            decisions.checks.append(
                f"{name}: one value of {file.party} is {farthest:.4g}, and half of them are between {low:.4g} and "
                f"{high:.4g}; correct {own} in {file.path} if it is an error, because the drafted bounds follow it"
            )


# People.


def find_identifier(files: Sequence[OwnFile], named: str | None, decisions: Decisions) -> tuple[str, list[OwnFile]]:
    """The column that identifies the same people in every file, by the first file's name of it, and the files with that
    name."""
    first, *others = files
    if named is not None:
        require_column(first, named, "identifier")
    candidates = [named] if named is not None else [name for name in first.columns if _may_identify(first, name)]
    best: tuple[float, str, list[str]] | None = None
    for name in candidates:
        found = [_same_people(first.frame[name], other, name) for other in others]
        share = min((share for share, _ in found), default=0.0)
        if share >= _SHARED and (best is None or share > best[0]):
            best = share, name, [own for _, own in found]
    if best is None:
        raise BadInput(
            "no column identifies the same people in every file"
            + (f" as {named!r} does in {first.path}" if named else "")
            + "; check that identifiers are written alike, and name the first file's: --identifier COLUMN"
            + _describe_repeats(files),
            key="identifier",
        )
    _, name, owns = best
    renamed = [first]
    for other, own in zip(others, owns):
        if own != name:
            decisions.propose(other.party, name, f"{own} is {name} (they hold the same identifiers)")
        renamed.append(with_names(other, {} if own == name else {own: name}))
    return name, renamed


def _describe_repeats(files: Sequence[OwnFile]) -> str:
    """The likely reason why no column identifies people: one that could has some of them several times."""
    for file in files:
        for name in file.columns:
            ids, missing = read_ids(file.frame[name])
            if is_identifier_name(name) and len(set(ids[~missing])) < int((~missing).sum()):
                own = file.translation.own_name(name)
                return f". {own} of {file.path} has the same value in several records; keep one record per person"
    return ""


def _may_identify(file: OwnFile, name: str) -> bool:
    """Whether a column most likely identifies people: distinct codes, or distinct numbers under a name that says so. A
    small file may have every age once."""
    series = file.frame[name]
    return is_distinct(series) and (says_identifier(name) or bool(read_numbers(series).wrong.all()))


def _same_people(known: pd.Series, other: OwnFile, name: str) -> tuple[float, str]:
    """The column of the other file with most of the same identifiers, and which share of the smaller file they are."""
    people = _people(known)
    shares = [
        (len(people & found) / max(1, min(len(people), len(found))), own == name, own)
        for own in other.columns
        if is_distinct(other.frame[own]) and (found := _people(other.frame[own]))
    ]
    share, _, own = max(shares, default=(0.0, False, ""))
    return share, own


def _people(series: pd.Series) -> set[str]:
    ids, missing = read_ids(series)
    return {canonical_id(one) for one in ids[~missing]}


def identifies(columns: Sequence[pd.Series], name: str) -> bool:
    """Whether a column numbers or names people, in each of these files: every record once, or some people several times
    under a name that only identifiers have."""
    if all(is_distinct(one) and (says_identifier(name) or _counts_up(one)) for one in columns):
        return True
    return is_identifier_name(name) and any(_has_many_codes(one) for one in columns)


def _counts_up(series: pd.Series) -> bool:
    values = series.to_list()
    return all(isinstance(value, int) for value in values) and values == list(range(values[0], values[0] + len(values)))


def _has_many_codes(series: pd.Series) -> bool:
    ids, missing = read_ids(series)
    return len(set(ids[~missing])) > MAX_CATEGORIES and _is_whole(series)


def _is_whole(series: pd.Series) -> bool:
    """Whether values are texts or whole numbers."""
    numbers = read_numbers(series)
    known = numbers.values[np.isfinite(numbers.values)]
    return bool(numbers.wrong.any() or (known == np.floor(known)).all())


def is_distinct(series: pd.Series) -> bool:
    """Whether every record has an own value, which is a text or a whole number."""
    ids, missing = read_ids(series)
    numbers = read_numbers(series)
    whole = numbers.wrong.any() or (numbers.values == np.floor(numbers.values)).all()
    return not missing.any() and bool(whole) and len(set(ids)) == len(ids)
