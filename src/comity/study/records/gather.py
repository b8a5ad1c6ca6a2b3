"""The records of a study's simulation: read, checked, encoded and dealt to the parties.

Everything that can be wrong with the data is found here, before a ledger exists and before anything is drawn.
"""

from __future__ import annotations

from dataclasses import replace

from comity.errors import StudyError
from comity.study.records.by_columns import columns_dealt
from comity.study.records.by_rows import rows_dealt
from comity.study.records.encodings import is_vertical
from comity.study.records.local_models import study_models
from comity.study.records.material import Material
from comity.study.study import Study


def gather(study: Study) -> Material:
    """What each party holds, its model with it. What public figures rule out is refused before a record is read."""
    if study.prediction is not None:
        raise StudyError(
            f"{study.where}: a study with [prediction] trains nothing that could be simulated; to try a joint "
            "prediction here: comity predict RUN PARTY=FILE ... --jointly",
            key="prediction",
        )
    study.plan()
    if study.simulation.data is None:
        raise StudyError(
            f"{study.where}: simulation.data is missing; name one file to be split among the parties, "
            "or a file for each party",
            key="simulation.data",
        )
    material = columns_dealt(study) if is_vertical(study.protocol) else rows_dealt(study)
    if not isinstance(study.parties, int):
        # In the study's order, which its hash covers, and not in that of the data.
        material = replace(material, parties={name: material.parties[name] for name in study.parties})
    return replace(material, models=study_models(study, list(material.parties)))
