"""Which names, and which values, most likely mean the same: by spelling, and by short lists of common synonyms.

The lists are those of general words in tables about people, in English, German and French. They hold no result of any
dataset.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

_ALIKE = 0.8
_PREFIX_LETTERS = 3


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: tuple[frozenset[str], ...] = tuple(
    _words(words)
    for words in (
        "age alter ageyears",
        "sex gender geschlecht sexe",
        "weight gewicht poids bodyweight",
        "height groesse grosse taille bodyheight koerpergroesse",
        "smoker smoking smokes raucher fumeur",
        "diagnosis diagnose diagnostic",
        "glucose glukose bloodsugar blutzucker",
        "cholesterol chol cholesterin",
        "bloodpressure bp blutdruck",
        "heartrate pulse puls hr",
        "birthdate dateofbirth dob geburtsdatum birthday",
        "admitted admission admissiondate aufnahme aufnahmedatum dateofadmission",
        "visit visitdate besuch besuchsdatum dateofvisit",
        "postcode zip zipcode plz",
        "id pid patient patientid patientnr patientno patientnumber patientennummer patid patnr mrn caseid",
    )
)
VALUES: tuple[frozenset[str], ...] = tuple(
    _words(words)
    for words in (
        "yes y true t ja j oui o positive pos present 1",
        "no n false f nein non negative neg absent 0",
        "male m man mann maennlich mannlich homme masculin h",
        "female f w woman frau weiblich femme feminin",
    )
)
UNITS = _words(
    "mm cm m kg g mg ug lb lbs in inch inches dl ml l mmol umol mmhg kpa bpm years year yrs yr days months hours"
)
"""Words of a name that say how a column is measured."""
IDENTIFIERS = _words("id pid patient patientid nr no number num key mrn case index record identifier")
"""Words of a name that say that a column identifies somebody."""

_ID_WORDS = _words("id ids pid mrn identifier patientid patid caseid subjectid")
_PEOPLE = _words("patient pat subject person")
"""Words of a name of which nothing measures anything: with `IDENTIFIERS` alone beside them they name somebody."""


def words_of(name: str) -> tuple[str, ...]:
    """The words of a column's name, in lower case and without accents: `BodyWeight_kg` has body, weight and kg."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(one for one in plain if not unicodedata.combining(one))
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", plain))


@lru_cache(maxsize=4096)
def fold(text: str) -> str:
    """A text by its letters and digits alone."""
    return "".join(words_of(text)) or text.strip().lower()


def stem(name: str) -> str:
    """A column's name without its units."""
    words = words_of(name)
    kept = [word for word in words if word not in UNITS]
    return "".join(kept or words)


def units_of(name: str) -> tuple[str, ...]:
    return tuple(word for word in words_of(name) if word in UNITS)


def says_identifier(name: str) -> bool:
    return bool(set(words_of(name)) & IDENTIFIERS)


def is_identifier_name(name: str) -> bool:
    """Whether a name can be only that of an identifier, as `patient_id` and `PatNr`: not `number_of_visits`, and not
    `patient_age`."""
    words = set(words_of(name))
    return bool(words & _ID_WORDS) or (bool(words & _PEOPLE) and words <= _PEOPLE | IDENTIFIERS)


SIMILAR = "similar names"


def same_name(first: str, second: str) -> str | None:
    """Why two column names most likely mean the same; None where nothing says so. The first reason is the best."""
    if fold(first) == fold(second):
        return "the same name in another spelling"
    one, other = stem(first), stem(second)
    if one == other:
        return "the same name but for its unit"
    if any(one in group and other in group for group in NAMES):
        return "names that mean the same"
    if _begins(one, other) or _within(first, second):
        return "one name contains the other"
    return SIMILAR if _is_misspelt(one, other) else None


REASONS = (
    "the same name in another spelling",
    "the same name but for its unit",
    "names that mean the same",
    "one name contains the other",
    SIMILAR,
)
"""The reasons of `same_name`, from strong to weak. The last is a guess."""


def _is_misspelt(one: str, other: str) -> bool:
    """Whether two names differ by a slip: not in how they begin (weight, height), and not in a digit."""
    digits = [re.sub(r"[^0-9]", "", name) for name in (one, other)]
    alike = SequenceMatcher(None, one, other).ratio() >= _ALIKE
    return alike and digits[0] == digits[1] and one[:2] == other[:2]


def _begins(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _PREFIX_LETTERS and long.startswith(short)


def _within(first: str, second: str) -> bool:
    one, other = set(words_of(first)) - UNITS, set(words_of(second)) - UNITS
    return bool(one and other) and (one < other or other < one)


def match_names(known: Sequence[str], others: Sequence[str], fits: Mapping[tuple[str, str], bool]) -> dict[str, str]:
    """The known name of each of the other names, with equal ones first and then by the strongest reason that both share
    with nobody else. `fits` says which pairs have values of the same kind."""
    pairs = {name: name for name in others if name in known}
    for reason in REASONS:
        free = [name for name in known if name not in pairs.values()]
        left = [name for name in others if name not in pairs]
        found = [
            (own, name)
            for own in left
            for name in free
            if fits.get((name, own), True) and same_name(name, own) == reason
        ]
        for own, name in found:
            alone = sum(one == own for one, _ in found) == 1 and sum(other == name for _, other in found) == 1
            if alone:
                pairs[own] = name
    return pairs


def match_values(known: Collection[str], others: Iterable[str]) -> dict[str, str]:
    """The known value of each other value that is spelled differently and most likely means the same."""
    free = [value for value in others if value not in known]
    taken = {value for value in others if value in known}
    for alike in (_same_fold, _same_meaning, _same_beginning, _same_spelling):
        pairs = {}
        for value in free:
            found = [name for name in known if alike(value, name)]
            if len(found) == 1 and (found[0] not in taken or alike is _same_fold or alike is _same_meaning):
                pairs[value] = found[0]
        # Two values with one beginning are two values.
        distinct = len(set(pairs.values())) == len(pairs) or alike in (_same_fold, _same_meaning)
        if pairs and distinct:
            rest = [value for value in free if value not in pairs]
            return {**pairs, **match_values([name for name in known if name not in pairs.values()], rest)}
    return {}


def _same_fold(one: str, other: str) -> bool:
    return fold(one) == fold(other) and bool(fold(one))


def _same_meaning(one: str, other: str) -> bool:
    return any(fold(one) in group and fold(other) in group for group in VALUES)


def _same_beginning(one: str, other: str) -> bool:
    short, long = sorted((fold(one), fold(other)), key=len)
    return bool(short) and not short.isdecimal() and long.startswith(short)


def _same_spelling(one: str, other: str) -> bool:
    return min(len(one), len(other)) > _PREFIX_LETTERS and _is_misspelt(fold(one), fold(other))
