"""Every error that Comity raises on purpose.

    ComityError
    ├── BadInput            what a person wrote or supplied can't be used           exit code 3
    │   ├── StudyError        the study or site file
    │   ├── SchemaError       the schema
    │   └── DataError         the records
    ├── Refused             a site, a ledger or a check said no                      exit code 4
    │   ├── BudgetExceeded    the ledger can't pay: requested, remaining, difference
    │   └── Malformed         bytes or values that are not what was declared
    │       └── Implausible     an opened value that no honest parties could have made
    └── Stopped             the run ended early and can be resumed                  exit code 5
        └── SiteLost          a party did not answer

The sentence of an error is for the person whose data or file it is about. Over the wire go `code` and `key` alone: a
value, a count or a remaining budget in a sentence would be a release that nobody accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any

# The share of the letters of both names that must agree for a suggestion. With less, "delta" is suggested for "data".
_ALIKE = 0.75
_PREFIX_LETTERS = 3


class ComityError(Exception):
    """Root of the tree. `code` is a short public word, `key` the schema, study or release key concerned, `party` the
    party that reported the error, where it was another one."""

    code = "error"
    exit_code = 1

    def __init__(self, sentence: str, *, code: str | None = None, key: str = "", party: str = "") -> None:
        super().__init__(sentence)
        self.code = code or type(self).code
        self.key = key
        self.party = party


class BadInput(ComityError):
    """What was supplied can't be used; nothing was spent."""

    code = "bad-input"
    exit_code = 3


class StudyError(BadInput):
    """A study or site file is wrong: names the file, the key, the value, and what to do."""

    code = "bad-study"


class SchemaError(BadInput):
    """A schema is wrong or does not fit the data."""

    code = "bad-schema"


class DataError(BadInput):
    """Records can't be read or do not fit the schema."""

    code = "bad-data"


class Refused(ComityError):
    """Refused by budget, policy, approval or protocol. The refused ask spent nothing."""

    code = "refused"
    exit_code = 4


class BudgetExceeded(Refused):
    """The ledger can't pay. The figures stay with the owner; others learn `code`."""

    code = "budget"

    def __init__(self, sentence: str, *, requested: str, remaining: str, difference: str, key: str = "") -> None:
        super().__init__(sentence, key=key)
        self.requested = requested
        self.remaining = remaining
        self.difference = difference

    def __reduce__(self) -> tuple[Any, ...]:
        """A refusal in another process of the owner arrives as one, with its figures."""
        figures = partial(type(self), requested=self.requested, remaining=self.remaining, difference=self.difference)
        return figures, self.args, self.__dict__


class Malformed(Refused):
    """Bytes or values that are not of the declared form."""

    code = "malformed"


class Implausible(Malformed):
    """An opened value lies outside what public figures allow: some party sent values that the study does not let it
    send. The run ends for all, and its values are not used."""

    code = "implausible"


class Stopped(ComityError):
    """The run ended early; run it again with the same run id to resume."""

    code = "stopped"
    exit_code = 5


class SiteLost(Stopped):
    """Too few parties answered."""

    code = "site-lost"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name` in any case, or else one of which it is a prefix, or the other way round."""
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    lower = name.lower()
    match = get_close_matches(lower, list(by_lower), n=1, cutoff=_ALIKE)
    if not match and len(lower) >= _PREFIX_LETTERS:
        match = [other for other in by_lower if other.startswith(lower) or lower.startswith(other + "_")][:1]
    return by_lower[match[0]] if match else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean ...?" if one is similar, then the known names."""
    names = list(known)
    match = nearest_name(name, names)
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    guess = f"; did you mean {match!r}?" if match else "."
    return f"{guess} Known here: {listed or 'nothing'}."
