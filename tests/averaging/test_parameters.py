"""The [averaging] table of a study: built, planned, run, and refused with the key that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.errors import StudyError
from comity.methods.averaging import AveragingProtocol, PublishedAveraging
from comity.study.simulation.simulate import run_study
from comity.study.study import Study

SCHEMA = """
[columns.age]
kind = "numeric"
low = 0
high = 100
edges = [30, 60]

[columns.sex]
kind = "categorical"
values = ["f", "m"]

[target]
name = "{name}"
{target}
"""

STUDY = """
[study]
name = "trial"
protocol = "averaging"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = 2.0
{delta}

[averaging]
{own}

[parties.north]
[parties.south]
[parties.west]

[simulation]
data = "records.csv"
test = "records.csv"
"""

CLASSES = ("ill", 'classes = ["no", "yes"]')
THREE = ("ward", 'classes = ["a", "b", "c"]')
NUMBER = ("cost", "low = 0\nhigh = 200")
SIZES = "sizes = 100"


def study(
    folder: Any, own: Any = SIZES, delta: str = "delta = 1e-6", target: Any = CLASSES, text: Any = STUDY
) -> Study:
    generator = np.random.default_rng(0)
    age, sex = generator.uniform(0, 100, 300), generator.integers(0, 2, 300)
    frame = pd.DataFrame({"age": age, "sex": np.array(["f", "m"])[sex]})
    frame["ill"] = np.where(age + 20 * sex > 60, "yes", "no")
    frame["ward"] = np.array(["a", "b", "c"])[np.digitize(age, [30, 60])]
    frame["cost"] = age + 50 * sex
    frame.to_csv(folder / "records.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.format(name=target[0], target=target[1]))
    (folder / "study.toml").write_text(text.format(own=own, delta=delta))
    return Study.load(folder / "study.toml")


@pytest.mark.parametrize(
    ("own", "target", "kind"),
    [
        (SIZES, CLASSES, "logistic"),
        (SIZES, THREE, "softmax"),
        (SIZES, NUMBER, "linear"),
        (SIZES + '\nmodel = "svm"', CLASSES, "svm"),
        (SIZES + '\nmodel = "softmax"', CLASSES, "softmax"),
    ],
)
def test_the_model_follows_the_target(tmp_path: Path, own: Any, target: Any, kind: str) -> None:
    built = study(tmp_path, own, target=target).protocol
    assert isinstance(built, AveragingProtocol) and built.model == kind
    # Three bins of age, two sexes and a constant.
    assert built.features == 6


@pytest.mark.parametrize("target", [CLASSES, THREE, NUMBER])
@pytest.mark.parametrize("delta", ["delta = 1e-6", ""])
def test_a_study_is_planned_and_run(tmp_path: Path, target: Any, delta: str) -> None:
    rounds = "rounds = 5\n" if delta and target != NUMBER else ""
    made = study(tmp_path, rounds + SIZES, delta, target)
    plan, last = made.plan(), "shrunk" if target == NUMBER else "deviations" if delta else "model"
    assert [row.release for row in plan.rows][-1] == last
    assert plan.unit == "a record" and "up to 1 of 3 parties colludes" in plan.notes[0] and "noise" in plan.expected
    outcome = run_study(made, seed=4)
    constant = outcome.baseline("constant")
    assert outcome.error is not None and constant is not None
    if delta:
        assert outcome.error < constant.error
    frame = pd.read_csv(tmp_path / "records.csv")
    assert len(outcome.model.predict(frame)) == 300


@pytest.mark.parametrize(
    ("own", "delta", "target", "key", "said"),
    [
        ("", "delta = 1e-6", CLASSES, "averaging.sizes", "averaging.sizes is missing"),
        ("[averaging.sizes]\nnorth = 5", "delta = 1e-6", CLASSES, "averaging.sizes", "no size for 'south'"),
        (SIZES + '\nsolver = "gradient"', "", CLASSES, "averaging.solver", "needs privacy.delta"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(
    tmp_path: Path, own: Any, delta: str, target: Any, key: str, said: str
) -> None:
    made = study(tmp_path, own, delta, target)
    with pytest.raises(StudyError, match=said) as found:
        made.plan()
    assert found.value.key == key


@pytest.mark.parametrize(
    ("own", "target", "key"),
    [
        (SIZES + '\nmodel = "logistic"', THREE, "averaging.model"),
        (SIZES + '\nmodel = "linear"', CLASSES, "averaging.model"),
        (SIZES + '\nmodel = "svm"', NUMBER, "averaging.model"),
        (SIZES + "\nround = 3", CLASSES, "averaging.round"),
        (SIZES + "\nnoise = 'literal'", CLASSES, "averaging.noise"),
        ("variant = 'published'\n" + SIZES, CLASSES, "averaging.sizes"),
        (SIZES + "\nl2 = 0.1", CLASSES, "averaging.l2"),
        (SIZES + "\nsolver = 'average'\nclip = 0.1", CLASSES, "averaging.clip"),
        (SIZES + "\nrounds = 0", CLASSES, "averaging.rounds"),
        ("variant = 'published'", NUMBER, "target"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, own: Any, target: Any, key: str) -> None:
    with pytest.raises(StudyError) as found:
        study(tmp_path, own, target=target)
    assert found.value.key == key


def test_the_published_variant_is_built_from_the_same_table(tmp_path: Path) -> None:
    built = study(tmp_path, "variant = 'published'\nl2 = 0.1\nnoise = 'literal'", "").protocol
    assert isinstance(built, PublishedAveraging) and built.l2 == 0.1 and built.noise == "literal"


def test_a_party_is_not_what_is_protected(tmp_path: Path) -> None:
    made = study(tmp_path, text=STUDY.replace('unit = "record"', 'unit = "party"'))
    with pytest.raises(StudyError) as found:
        made.plan()
    assert found.value.key == "privacy.unit"


@pytest.mark.parametrize("delta", ["delta = 1e-6", ""])
@pytest.mark.parametrize("target", [CLASSES, THREE, NUMBER])
@pytest.mark.parametrize("width", [1499, 1500, 1501, 1601])
def test_auto_means_the_same_solver_for_the_keys_and_for_the_run(
    tmp_path: Path, width: int, target: Any, delta: str
) -> None:
    """A key that the chosen solver has may be written, and one that it lacks is refused, also for wide records."""
    # Beside the values of the column: three bins of age, two sexes and a constant.
    values = ", ".join(f'"v{place}"' for place in range(width - 6))
    code = f'[columns.code]\nkind = "categorical"\nvalues = [{values}]\n'
    (tmp_path / "schema.toml").write_text(SCHEMA.format(name=target[0], target=target[1]) + code)
    (tmp_path / "records.csv").write_text("age,sex,code,ill,ward,cost\n1,f,v1,no,a,3\n")

    def loaded(own: str) -> Study:
        (tmp_path / "study.toml").write_text(STUDY.format(own=own, delta=delta))
        return Study.load(tmp_path / "study.toml")

    made = loaded(SIZES)
    built = made.protocol
    assert isinstance(built, AveragingProtocol) and built.features == width
    way = built.solver_for(made.consortium)
    assert (way == "moments") == (target == NUMBER and width <= 1500) or (not delta and target == CLASSES)
    for key, value, owner in (("rounds", 'rounds = "auto"', "gradient"), ("l2", 'l2 = "auto"', "average")):
        if way == owner:
            assert getattr(loaded(f"{SIZES}\n{value}").protocol, key) is None
        elif way != "moments" or target == NUMBER:
            with pytest.raises(StudyError, match=rf"averaging.{key} belongs to"):
                loaded(f"{SIZES}\n{value}")
    if delta:
        asked = loaded(f"{SIZES}\nrounds = 5")
        assert (
            isinstance(asked.protocol, AveragingProtocol) and asked.protocol.solver_for(asked.consortium) == "gradient"
        )
