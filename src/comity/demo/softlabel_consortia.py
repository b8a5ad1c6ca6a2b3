"""The consortia of the demonstration: generated clinics, and scikit-learn's tumours dealt to small practices.

Both are brought into the unit ball by public means: a schema's bounds, or public unlabelled records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Encoding, Records, clinic_schema, clinics, public_cohort
from comity.entropy import Stream
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel
from comity.methods.softlabel.published.protocol import Method

CLINICS, VISITS, PUBLIC, TESTED = 600, 20, 500, 2000
PRACTICES, TUMOURS, PUBLIC_TUMOURS = 100, 3, 120
DEFAULT: Final = "default"
# One for every published method and ε. With private records, choosing it by scores would be a release of its own.
L2 = 0.005


@dataclass(frozen=True, eq=False)
class SmallConsortium:
    """Records of each party, records to test on, and what is public."""

    name: str
    about: str
    parties: Mapping[str, Records]
    test: Records
    auxiliary: NDArray[np.float64]
    classes: tuple[str, ...]
    records_per_party: int
    encoding: Encoding | None = None

    def protocol(self, method: Literal["default"] | Method) -> SoftLabel | PublishedSoftLabel:
        """The default, or one of the published methods."""
        if method == DEFAULT:
            return SoftLabel(
                auxiliary=self.auxiliary,
                classes=self.classes,
                records_per_party=self.records_per_party,
                encoding=self.encoding,
            )
        return PublishedSoftLabel(
            auxiliary=self.auxiliary, classes=self.classes, method=method, l2=L2, encoding=self.encoding
        )


def clinic_consortium() -> SmallConsortium:
    """Who comes back to an emergency department; each clinic has seen a few patients of its own kind."""
    encoding = Encoding(clinic_schema("readmitted"), scaling="symmetric", rows="normalised", intercept=True)
    visits = clinics(CLINICS, VISITS, "demo")
    together = encoding.encode(pd.concat(visits.values(), ignore_index=True), where="clinics").records
    tested = pd.concat(clinics(TESTED // 50, 50, "demo, test").values(), ignore_index=True)
    return SmallConsortium(
        name="clinics",
        about=f"{CLINICS} generated clinics with {VISITS} visits each; will the patient be readmitted? "
        f"Tested on {TESTED:,} visits at other clinics.",
        parties={name: _cut(together, place, VISITS) for place, name in enumerate(visits)},
        test=encoding.encode(tested, where="test").records,
        auxiliary=encoding.encode_features(public_cohort(PUBLIC, "demo"), where="public cohort"),
        classes=("no", "yes"),
        records_per_party=VISITS,
        encoding=encoding,
    )


def tumour_consortium() -> SmallConsortium:
    """scikit-learn's breast cancer records; centre and scale of each measurement come from the public ones."""
    from sklearn.datasets import load_breast_cancer

    measured, benign = load_breast_cancer(return_X_y=True)
    order = Stream.public("comity demo", "tumours").permutation(len(measured))
    measured, malignant = measured[order], 1 - benign[order]
    public = measured[:PUBLIC_TUMOURS]
    scaled = np.clip((measured - public.mean(0)) / (2 * public.std(0)), -1, 1)
    rows = np.column_stack([scaled, np.ones(len(scaled))])
    # A little below 1, by more than a norm's rounding.
    rows *= (1 - 1e-12) / np.linalg.norm(rows, axis=1, keepdims=True)
    start, end = PUBLIC_TUMOURS, PUBLIC_TUMOURS + PRACTICES * TUMOURS
    private = Records(rows[start:end], malignant[start:end].astype(np.int64))
    return SmallConsortium(
        name="breast cancer",
        about=f"{PRACTICES} practices with {TUMOURS} tumours each, from scikit-learn's bundled records; benign or "
        f"malignant? Tested on {len(rows) - end} others; {PUBLIC_TUMOURS} unlabelled ones are public.",
        parties={f"practice-{place + 1:03d}": _cut(private, place, TUMOURS) for place in range(PRACTICES)},
        test=Records(rows[end:], malignant[end:].astype(np.int64)),
        auxiliary=rows[:start],
        classes=("benign", "malignant"),
        records_per_party=TUMOURS,
    )


def _cut(records: Records, place: int, size: int) -> Records:
    rows = slice(place * size, (place + 1) * size)
    assert records.labels is not None
    return Records(records.features[rows], records.labels[rows])
