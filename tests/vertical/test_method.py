"""`comity.Vertical`: one class from its schema and its columns, the same study as a file with the same terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity import Study, Vertical
from comity.data import clinic_schema, clinics
from comity.errors import StudyError
from comity.methods.vertical.starter import HOSPITAL, SURGERY

# mypy takes the options alone for the arguments of a method.
SCHEMA = clinic_schema("readmitted")
HELD = {"hospital": HOSPITAL, "surgery": SURGERY}
STUDY = """\
[study]
name = "study"
protocol = "vertical"
schema = "schema.toml"
[privacy]
epsilon = 1.0
delta = 1e-6
{privacy}
[vertical]
products = "dealer"
{options}
[parties.hospital]
columns = [{hospital}]
[parties.surgery]
columns = [{surgery}]
"""


def made(**options: Any) -> Vertical:
    method: Vertical = comity.Vertical(SCHEMA, columns=HELD, products="dealer", **{"max_rows": 1024, **options})
    return method


def written(folder: Path, options: str, privacy: str = "") -> Study:
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    quoted = {party: ", ".join(f'"{name}"' for name in names) for party, names in HELD.items()}
    (folder / "study.toml").write_text(STUDY.format(options=options, privacy=privacy, **quoted), encoding="utf-8")
    return Study.load(folder / "study.toml")


def people(count: int = 600) -> pd.DataFrame:
    together = pd.concat(clinics(count // 100, 100, "vertical method").values(), ignore_index=True)
    return together.assign(patient=[f"P{number:05d}" for number in range(len(together))])


def test_a_method_in_python_is_the_study_of_the_file_with_the_same_terms(tmp_path: Path) -> None:
    study, file = made().study(list(HELD), epsilon=1, delta=1e-6), written(tmp_path, "max_rows = 1024")
    assert study.hash == file.hash and study.plan().as_text() == file.plan().as_text()


def test_the_earlier_name_of_an_option_means_the_same_study(tmp_path: Path) -> None:
    now = written(tmp_path, "max_rows = 1024")
    before = written(tmp_path, "rows_at_most = 1024", 'unit = "record"\nneighbours = "replace"')
    assert before.hash == now.hash and not now.notices
    assert before.notices == ("vertical.rows_at_most is now called vertical.max_rows; the study means the same",)


def test_it_protects_a_record_where_nobody_says_so() -> None:
    plan = made().plan(list(HELD), epsilon=1, delta=1e-6)
    assert plan.unit == "a record" and plan.neighbours == "replaced"


def test_frames_in_any_order_are_matched_by_their_identifiers() -> None:
    together = people()
    order = np.random.default_rng(1).permutation(len(together))
    # Each owner knows 20 people that the other does not.
    mixed = {"hospital": together.iloc[order[20:]], "surgery": together.iloc[order[::-1][20:]]}
    common = together.iloc[np.sort(order[20:-20])]
    coef = [
        made(solver="quadratic")
        .simulate(
            {party: frames[party][["patient", *names]] for party, names in HELD.items()},
            epsilon=1e4,
            delta=1e-6,
            seed=1,
        )
        .model.coef_
        for frames in (mixed, dict.fromkeys(HELD, common))
    ]
    np.testing.assert_allclose(coef[0], coef[1], atol=1e-3)


def test_unknown_options_and_missing_columns_are_one_sentence() -> None:
    with pytest.raises(StudyError, match=r"vertical\.solvers"):
        made(solvers="auto")
    with pytest.raises(StudyError, match="columns of each party") as found:
        comity.Vertical(SCHEMA).plan(list(HELD), epsilon=1, delta=1e-6)
    assert found.value.key == "parties"


def test_it_is_a_public_name() -> None:
    assert comity.Vertical is Vertical and "Vertical" in comity.__all__
