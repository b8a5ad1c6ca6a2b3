"""The command line with vertical studies: joint prediction, wrong identifiers, budgets by block; with exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.cli import main
from comity.errors import Refused
from comity.federation.declare.policy import SIMULATION, Policy
from comity.learn import load_model
from comity.study.simulation.joint_prediction import predict_jointly
from comity.study.study import Study
from tests.support.vertical import make_people, make_schema

TEXT = """
[study]
name = "sickness"
protocol = "vertical"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5

[vertical]
products = "dealer"
max_rows = 20000

[parties.north]
columns = ["age", "sick"]
[parties.south]
columns = ["place", "dose", "sex"]

[simulation]
test = "test.csv"
[simulation.data]
north = "north.csv"
south = "south.csv"
"""

QUADRATIC = TEXT.replace("[vertical]\n", '[vertical]\nsolver = "quadratic"\n')


@pytest.fixture
def comity(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))

    def call(*arguments: Any) -> Any:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def write(
    folder: Any, *, text: Any = TEXT, linear: bool = False, north: Any = None, south: Any = None, rows: int = 400
) -> Any:
    frame = make_people(rows, linear=linear)
    (folder / "schema.toml").write_text(make_schema(linear=linear, identifier=True).to_toml())
    (folder / "study.toml").write_text(text)
    (frame if north is None else north)[["person", "age", "sick"]].to_csv(folder / "north.csv", index=False)
    (frame if south is None else south)[["person", "place", "dose", "sex"]].to_csv(folder / "south.csv", index=False)
    make_people(50, seed=5, linear=linear).to_csv(folder / "test.csv", index=False)
    return folder / "study.toml"


# Joint prediction.


@pytest.mark.parametrize("linear", [False, True])
def test_new_records_are_predicted_jointly_as_the_whole_model_would(tmp_path: Path, comity: Any, linear: bool) -> None:
    """With a file for each party, whose rows differ, and with one file that is dealt; wrong files are wrong usage."""
    write(tmp_path, linear=linear)
    assert comity("run", "study.toml", "--seed", 1, "--quiet")[0] == 0
    run = next((tmp_path / "runs").iterdir())
    new = make_people(60, seed=9, linear=linear).drop(columns="sick")
    new[["person", "age"]].iloc[10:].to_csv(tmp_path / "n.csv", index=False)
    new[["person", "place", "dose", "sex"]].sample(frac=1, random_state=1).to_csv(tmp_path / "s.csv", index=False)
    code, out, said = comity("predict", run, "north=n.csv", "south=s.csv", "--jointly", "--to", "joint.csv")
    assert code == 0, said
    found = pd.read_csv(tmp_path / "joint.csv").set_index("person")["predicted"]
    model = load_model(run / "model")
    wanted = pd.Series(model.predict(new), index=new["person"]).iloc[10:]
    assert len(found) == 50
    if linear:
        np.testing.assert_allclose(found.loc[wanted.index], wanted, atol=1e-5)
    else:
        assert (found.loc[wanted.index] == wanted).all()
    assert "EXACT" in said and "not private" in said and "partial score to the other" in said
    # Whose site puts scores beside identifiers is declared, not read out of it.
    assert "to the coordinator and north" in said
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, _ = comity("predict", run, "new.csv", "--jointly", "--json")
    assert code == 0 and len(json.loads(out)) == 60
    assert set(json.loads(out)[0]) == {"person", "predicted", *(() if linear else ("p(no)", "p(yes)"))}
    for wrong in (["north=new.csv"], ["north=new.csv", "west=new.csv"], ["north=new.csv", "north=new.csv"]):
        assert comity("predict", run, *wrong, "--jointly")[0] == 2
    assert comity("predict", run, "new.csv", "new.csv")[0] == 2
    assert comity("predict", tmp_path, "new.csv", "--jointly")[0] == 3


def test_a_model_that_the_coordinator_keeps_is_not_applied_jointly(tmp_path: Path, comity: Any) -> None:
    write(tmp_path, text=QUADRATIC)
    assert comity("run", "study.toml", "--seed", 1, "--quiet", "--set", "privacy.colluders=0")[0] == 0
    run = next((tmp_path / "runs").iterdir())
    make_people(30, seed=9).drop(columns="sick").to_csv(tmp_path / "new.csv", index=False)
    code, _, said = comity("predict", run, "new.csv", "--jointly")
    assert code == 4 and "privacy.colluders" in said


def test_an_owner_limits_how_many_records_are_scored(tmp_path: Path) -> None:
    study = Study.load(write(tmp_path))
    new = make_people(30, seed=9).drop(columns="sick")
    coef, parties = np.linspace(-1, 1, 8), {"north": new, "south": new}
    allowed = Policy(approved=None, disclosures=SIMULATION.disclosures, joint_predictions=30)
    assert len(predict_jointly(study, coef, parties, policies={"south": allowed}).scores) == 30
    for most in (0, 29):
        strict = Policy(approved=None, disclosures=SIMULATION.disclosures, joint_predictions=most)
        with pytest.raises(Refused, match=f"policy.joint_predictions is {most}"):
            predict_jointly(study, coef, parties, policies={"south": strict})


def test_the_plan_says_who_can_predict(tmp_path: Path, comity: Any) -> None:
    """After rounds parties have read weights also where the study counts with no colluders."""
    for text, kept in ((QUADRATIC, "coordinator alone has the model"), (TEXT, "needs privacy.colluders >= 1")):
        write(tmp_path, text=text)
        everyone, without = (
            comity("plan", "study.toml", "--all", "--set", f"privacy.colluders={t}")[1] for t in (1, 0)
        )
        assert "model goes to everyone" in everyone and "NOT private" in everyone and "exact part to" in everyone
        assert kept in without and ("model goes to everyone" in without) is (text is TEXT)


# Identifiers.


def twice(frame: Any) -> pd.DataFrame:
    found: pd.DataFrame = pd.concat([frame, frame.iloc[[3]]])
    return found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (twice, ["south.csv", "records 4 and 401", "one record per person"]),
        (lambda f: f.assign(person=[f"x{i}" for i in range(len(f))]), ["share nobody", "'person'", "400 of"]),
        (lambda f: f.assign(person=[i + 0.5 for i in range(len(f))]), ["south.csv", "has a float", "as text"]),
        (lambda f: f.assign(person=f["person"].where(f.index != 7)), ["south.csv", "'person'", "no value"]),
        (lambda f: f.iloc[:0], ["south has no records"]),
    ],
)
def test_wrong_identifiers_are_bad_input_before_anything_is_spent(
    tmp_path: Path, comity: Any, change: Any, said: Any
) -> None:
    write(tmp_path, south=change(make_people(400)))
    code, _, told = comity("run", "study.toml", "--quiet")
    assert code == 3, told
    assert all(words in told for words in said), told
    assert not (tmp_path / "runs").exists() and "id3" not in told


def test_numbers_and_their_texts_are_one_identifier_and_padded_ones_are_not(tmp_path: Path, comity: Any) -> None:
    frame = make_people(400)
    numbers = frame.assign(person=range(400))
    write(tmp_path, north=numbers, south=numbers.assign(person=numbers["person"].astype(float)))
    assert comity("run", "study.toml", "--quiet", "--seed", 1)[0] == 0
    write(tmp_path, north=numbers, south=numbers.assign(person=[f"P{i:05d}" for i in range(400)]))
    code, _, told = comity("run", "study.toml", "--quiet", "--seed", 1)
    assert code == 3 and "north has 400 of 1 to 3 digits; south has 400 of 6 characters" in told


def test_one_file_with_a_person_twice_names_its_rows(tmp_path: Path, comity: Any) -> None:
    text = TEXT.replace('test = "test.csv"\n[simulation.data]\nnorth = "north.csv"\nsouth = "south.csv"\n', "")
    write(tmp_path, text=text + 'data = "people.csv"\nsplit = "by-features"\n')
    twice(make_people(400)).to_csv(tmp_path / "people.csv", index=False)
    code, _, told = comity("run", "study.toml", "--quiet")
    assert code == 3 and "people.csv" in told and "records 4 and 401" in told


def test_an_alignment_without_an_identifier_is_bad_input(tmp_path: Path, comity: Any) -> None:
    write(tmp_path)
    (tmp_path / "schema.toml").write_text(make_schema().to_toml())
    code, _, told = comity("plan", "study.toml", "--set", "vertical.alignment=ecdh")
    assert code == 3 and "identifier" in told


# Budgets by block.


def test_a_study_with_budgets_by_block_runs_and_costs_what_they_come_to(tmp_path: Path, comity: Any) -> None:
    text = TEXT.replace("delta = 1e-5\n", "").replace(
        "max_rows = 20000\n",
        'max_rows = 20000\n[vertical.block_epsilon]\nnorth = 0.5\nsouth = 0.5\n"north+south" = 0.5\n',
    )
    write(tmp_path, text=text)
    code, out, said = comity("plan", "study.toml", "--all")
    assert code == 0 and "blocks' budgets come to eps 1." in out, said
    code, out, said = comity("run", "study.toml", "--seed", 1, "--quiet", "--json")
    assert code == 0, said
    assert json.loads(out)["guarantee"]["epsilon"] <= 1.5
    code, _, said = comity("plan", "study.toml", "--set", "privacy.epsilon=0.4")
    assert code == 3 and "block_epsilon" in said
