"""Auxiliary records that are private as well: only the trusted coordinator has them, and it votes in the parties' name.

Parties that voted at home would need the records. They entrust their local models instead; the coordinator asks each
model about each auxiliary record, and the noise on what it learns hides one of these records beside a whole party.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comity.data import Encoding
from comity.errors import DataError, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.learn.fits import contrasts, hard_votes, one_hot
from comity.methods.parameters import ABSENT, Setting

Floats = NDArray[np.float64]

AuxiliaryPrivacy = Literal["public", "private"]

WHY_NOT_AT_HOME = (
    'parties that vote at home need the auxiliary records, and their map is fitted on them; use variant = "published", '
    'whose trusted coordinator votes, with method = "soft"'
)


def check(privacy: str, method: str, constants: str, classes: int) -> None:
    """Private auxiliary records go with soft labels alone, and with printed constants for two classes alone."""
    if privacy == "private" and method != "soft":
        reasons = {
            "avg": "avg does not use auxiliary records; leave auxiliary_privacy out",
            "vote": "vote has the noise of a majority that one party turns round on every record, which leaves nothing "
            'to learn; use method = "soft"',
        }
        raise StudyError(
            f'softlabel.auxiliary_privacy = "private" is for method = "soft", found "{method}": {reasons[method]}',
            key="softlabel.auxiliary_privacy",
        )
    if privacy == "private" and constants == "paper" and classes > 2:
        raise StudyError(
            'softlabel.constants = "paper" has a factor for private auxiliary records that holds for two classes, and '
            f'{classes} are declared; use constants = "tight"',
            key="softlabel.constants",
        )


def moved_share(parties: int, records: int) -> float:
    """(N + 2M − 1)/(NM): how far the mean gradient moves, in steps of one label, with a party and a record replaced.

    N − 1 records keep their place and move by one of M votes; the replaced one takes away a whole step and brings
    another (proof.md, private auxiliary records).
    """
    return (records + 2 * parties - 1) / (records * parties)


def printed_share(parties: int, records: int) -> float:
    """(N + M − 1)/(NM), the paper's factor, which goes with its constant of 2. For one vector, two classes."""
    return (records + parties - 1) / (records * parties)


def absent(records: int, width: int) -> Floats:
    """Stands for the records where only their number and width are known, at a party: a row of zeros for each."""
    return np.zeros((records, width))


def shares_of_votes(parties: Parties, step: Callable[..., Any], name: str, auxiliary: Floats, classes: int) -> Floats:
    """Shares of votes (N, C) on records that the parties never see, from the models that they entrust."""
    if not isinstance(parties, Parties):
        raise Refused(
            "with private auxiliary records the coordinator asks each party's model by itself, and stacks of parties "
            "have none; simulate at most 1,000 parties",
            code="no-step",
        )
    if not auxiliary.any():
        raise Refused(
            "softlabel.auxiliary: the private records are not here, and the coordinator votes on them; put the file "
            "beside its study",
            code="stopped",
            key="softlabel.auxiliary",
        )
    who, grid = parties.consortium, parties.declaration[name].spacing(parties.consortium)
    got = parties.ask(step, label=0, need=who.survivors)
    votes = np.zeros((len(auxiliary), classes))
    for values in got.values():
        votes += votes_of(values[name] * grid, auxiliary, classes)
    return votes / len(got)


def votes_of(coordinates: Floats, auxiliary: Floats, classes: int) -> Floats:
    """Whole votes (N, C) of one model in released coordinates. A zero one has nothing to say and votes 1/C."""
    if not coordinates.any():
        return np.full((len(auxiliary), classes), 1.0 / classes)
    weights = coordinates[0] if classes == 2 else contrasts(classes).T @ coordinates
    return one_hot(hard_votes(weights, auxiliary, multiclass=classes > 2), classes)


def read_private(setting: Setting, file: str, records: int | None, encoding: Encoding) -> Floats:
    """The rows of a private file where it is, and zeros where it is not: at the parties.

    Their number is agreed in the study, because the noise depends on it and the file is no part of what is agreed.
    """
    if records is None:
        raise StudyError(
            f"{setting.where}: softlabel.auxiliary_records is missing: the noise depends on how many private auxiliary "
            "records there are, and parties don't have the file; declare their number",
            key="softlabel.auxiliary_records",
        )
    try:
        frame = setting.read(file, "softlabel.auxiliary")
    except DataError as error:
        if error.code != ABSENT:
            raise
        return absent(records, encoding.width)
    if len(frame) != records:
        raise StudyError(
            f"{setting.where}: softlabel.auxiliary_records = {records}, and {file} holds {len(frame)} records; correct "
            "one of them",
            key="softlabel.auxiliary_records",
        )
    return encoding.encode_features(frame, where=f"{setting.where}: softlabel.auxiliary: {file}")
