"""Whose records a simulation's data are: the parties that the study lists, or as many as it counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comity.errors import StudyError
from comity.study.study import Study


def listed(study: Study) -> Iterable[str]:
    """The parties that the study names; none where it counts them."""
    return () if isinstance(study.parties, int) else study.parties


def some_records(study: Study, records: int) -> None:
    if not records:
        raise StudyError(
            f"{study.where}: simulation.data holds no records at all, so that every ledger would pay for nothing; "
            "check that it names the right files",
            key="simulation.data",
        )


def matching(study: Study, found: Sequence[str], said: str) -> None:
    """The parties that the data have are those that the study lists, or as many as it counts."""
    if isinstance(study.parties, int):
        if len(found) != study.parties:
            raise StudyError(
                f"{study.where}: parties.count = {study.parties}, and {said} {len(found)} parties; set parties.count "
                f"to {len(found)}, or correct the data",
                key="parties.count",
            )
        return
    absent = [name for name in study.parties if name not in found]
    surplus = [name for name in found if name not in study.parties]
    if absent or surplus:
        wrong = f"nothing for {_few(absent)}" if absent else f"{_few(surplus)}, which the study does not list"
        raise StudyError(
            f"{study.where}: {said} {wrong}; every [parties.NAME] of the study needs its records and no other may have "
            "any. Correct [parties] or the data",
            key="parties",
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
