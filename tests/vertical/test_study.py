"""A vertical study as a file: columns by party, one table or a file each, and what can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.data import StreamedRecords
from comity.errors import DataError, StudyError
from comity.methods.vertical import GradientRegression
from comity.methods.vertical.published.protocol import PublishedVertical
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study
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
colluders = 1

[vertical]
products = "dealer"
max_rows = 20000

[parties.north]
columns = ["a*", "sick"]
[parties.south]
columns = ["place", "dose", "sex"]

[simulation]
data = "people.parquet"
split = "by-features"
"""

PUBLISHED = TEXT.replace("delta = 1e-5", "").replace('products = "dealer"', 'variant = "published"')


def study(
    folder: Any, text: Any = TEXT, *, linear: bool = False, identifier: bool = False, overrides: Any = None
) -> Any:
    (folder / "schema.toml").write_text(make_schema(linear=linear, identifier=identifier).to_toml())
    make_people(3000, linear=linear).to_parquet(folder / "people.parquet")
    return Study.parse(text, folder=folder, where="study.toml", overrides=overrides)


def test_a_study_by_features_learns_better_than_the_labels_holder_alone(tmp_path: Path) -> None:
    found = run_study(study(tmp_path), seed=1)
    alone, pooled = found.baseline("own data"), found.baseline("pooled")
    assert found.error is not None and alone is not None and pooled is not None
    assert found.error < alone.error and found.error < pooled.error + 0.03
    assert set(found.model.predict(make_people(20, seed=9))) <= {"no", "yes"}


def test_a_linear_study_predicts_in_the_units_of_its_target(tmp_path: Path) -> None:
    found = run_study(study(tmp_path, linear=True), seed=1)
    assert cast(Any, found.error) < cast(Any, found.baseline("constant")).error
    predicted = found.model.predict(make_people(500, seed=9, linear=True))
    assert 2 < predicted.mean() < 8 and predicted.std() > 0.5
    assert (found.released["errors"] > 0).all()


def test_delta_zero_is_laplace_noise(tmp_path: Path) -> None:
    built = study(tmp_path, overrides={"privacy.delta": 0.0})
    plan = built.plan()
    assert "Laplace" in built.protocol.title and "eps 2.00" in plan.as_text() and "rounds" not in built.protocol.parts
    assert "would need Gaussian noise, and so a delta" in plan.notes[-1]
    assert cast(Any, run_study(built, seed=1).error) < 0.4


def test_an_identifier_aligns_rows_of_files_that_differ(tmp_path: Path) -> None:
    built = study(tmp_path, identifier=True)
    assert built.protocol.alignment == "keyed"
    frame = make_people(3000)
    frame[["person", "age", "sick"]].iloc[100:].to_csv(tmp_path / "north.csv", index=False)
    frame[["person", "place", "dose", "sex"]].sample(frac=0.9, random_state=1).to_parquet(tmp_path / "south.parquet")
    make_people(1000, seed=5).to_csv(tmp_path / "test.csv", index=False)
    text = TEXT.replace('data = "people.parquet"\nsplit = "by-features"', 'test = "test.csv"')
    text += '[simulation.data]\nnorth = "north.csv"\nsouth = "south.parquet"\n'
    found = run_study(study(tmp_path, text, identifier=True), seed=1)
    assert cast(Any, found.error) < cast(Any, found.baseline("own data")).error


def test_the_published_variant_runs_and_says_what_it_is(tmp_path: Path) -> None:
    built = study(tmp_path, PUBLISHED)
    assert isinstance(built.protocol, PublishedVertical)
    found = run_study(built, seed=1)
    assert not found.guarantee.private and "not private as claimed" in built.plan().as_text()


def test_the_held_out_rows_are_the_same_at_every_party_and_at_none(tmp_path: Path) -> None:
    party_data = load_party_data(study(tmp_path))
    sizes = {len(records) for records in party_data.parties.values()}
    assert sizes == {2400} and party_data.test is not None and len(party_data.test) == 600


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vertical.label_at": "south"}, "label_at"),
        ({"vertical.model": "linear"}, "model"),
        ({"parties.south.columns": ["place", "dose"]}, "'sex'"),
        ({"parties.south.columns": ["place", "dose", "sex", "age"]}, "already"),
        ({"parties.south.columns": ["place", "dose", "sexx"]}, "sexx"),
        ({"vertical.alignment": "keyed"}, "identifier"),
        ({"vertical.product": "rlwe"}, "products"),
        ({"vertical.block_epsilon": {"north": 1.0}, "privacy.delta": 0.0}, r"nothing for south, north\+south"),
        (
            {"vertical.party_epsilon": {"north": 1.0}, "vertical.variant": "published"},
            r"remove vertical\.products and vertical\.party_epsilon, and set privacy\.delta to 0, or leave",
        ),
    ],
)
def test_what_is_wrong_with_a_study_is_named(tmp_path: Path, change: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(tmp_path, overrides=change)


def test_a_split_by_rows_is_refused_for_columns(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="by-features"):
        load_party_data(study(tmp_path, overrides={"simulation.split": "even"}))
    with pytest.raises(StudyError, match="record"):
        load_party_data(study(tmp_path, overrides={"privacy.unit": "party"}))


def test_missing_columns_name_the_file(tmp_path: Path) -> None:
    built = study(tmp_path)
    make_people(30).drop(columns="dose").to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match="dose"):
        load_party_data(built)


def test_columns_are_needed(tmp_path: Path) -> None:
    text = TEXT.replace('[parties.north]\ncolumns = ["a*", "sick"]\n', "").replace(
        '[parties.south]\ncolumns = ["place", "dose", "sex"]', "[parties]\ncount = 2"
    )
    with pytest.raises(StudyError, match="columns"):
        study(tmp_path, text)
    assert isinstance(study(tmp_path).protocol, GradientRegression)


def test_a_linear_model_is_saved_with_its_errors_and_read_again(tmp_path: Path) -> None:
    from comity.report.result import load_result

    found = run_study(study(tmp_path, linear=True), seed=1)
    found.save(tmp_path / "out")
    model = load_result(tmp_path / "out").model
    frame = make_people(50, seed=9, linear=True)
    np.testing.assert_array_equal(model.predict(frame), found.model.predict(frame))
    lower, upper = model.interval(0.9).T
    assert (lower < model.coef_).all() and (model.coef_ < upper).all()
    with pytest.raises(DataError, match="confidence"):
        model.interval(1.5)


def test_the_command_line_runs_a_vertical_study_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from comity.cli.app import app

    monkeypatch.chdir(tmp_path)
    study(tmp_path, linear=True)
    (tmp_path / "study.toml").write_text(TEXT)
    make_people(30, seed=4, linear=True).drop(columns="sick").to_csv(tmp_path / "new.csv", index=False)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "study.toml"), "--seed", "3", "--json"])
    assert done.exit_code == 0, done.output
    run = next((tmp_path / "runs").iterdir())
    told = CliRunner().invoke(app, ["predict", str(run), str(tmp_path / "new.csv")])
    assert told.exit_code == 0 and told.output.count("\n") >= 30


def test_the_plan_says_once_that_a_record_is_charged_once(tmp_path: Path) -> None:
    notes = study(tmp_path).plan().notes
    assert [note for note in notes if "charged for this one loss" in note] and not any("m times" in n for n in notes)


@pytest.mark.parametrize("alignment", ["keyed", "ecdh"])
def test_the_published_method_multiplies_rows_of_the_same_people(tmp_path: Path, alignment: str) -> None:
    """Files in different orders, each with people of its own, give what aligned files give, exactly."""
    frame = make_people(600)
    make_people(200, seed=5).to_csv(tmp_path / "test.csv", index=False)
    text = PUBLISHED.replace('data = "people.parquet"\nsplit = "by-features"', 'test = "test.csv"\nbaselines = false')
    text += '[simulation.data]\nnorth = "north.csv"\nsouth = "south.csv"\n'

    def released(north: Any, south: Any, text: Any = text, **options: Any) -> Any:
        north[["person", "age", "sick"]].to_csv(tmp_path / "north.csv", index=False)
        south[["person", "place", "dose", "sex"]].to_csv(tmp_path / "south.csv", index=False)
        return run_study(study(tmp_path, text, **options), seed=1).released["model"]

    common = frame.iloc[50:550]
    in_order = released(common, common)
    aligned = text.replace("max_rows", f'alignment = "{alignment}"\nrows_at_most')
    turned = frame.iloc[50:].sample(frac=1.0, random_state=2)
    found = released(frame.iloc[:550], turned, aligned, identifier=True)
    assert np.array_equal(found, in_order)
    # The control: the same files without an alignment are other people's rows side by side.
    assert not np.allclose(released(common, common.sample(frac=1.0, random_state=2)), in_order)


def test_the_published_method_aligns_by_itself_where_there_is_an_identifier(tmp_path: Path) -> None:
    built = study(tmp_path, PUBLISHED, identifier=True)
    assert built.protocol.alignment == "keyed" and "tokens" in [row.release for row in built.plan().rows]


@pytest.mark.parametrize(
    "key", ['solver = "auto"', "rounds = 2", 'products = "dealer"', "party_epsilon = {north = 1.0}", "bins = true"]
)
def test_the_published_method_refuses_keys_that_it_has_no_use_for(tmp_path: Path, key: str) -> None:
    with pytest.raises(StudyError, match=r'belongs to vertical.variant = "default"') as found:
        study(tmp_path, PUBLISHED.replace('variant = "published"', f'variant = "published"\n{key}'))
    assert found.value.key == f"vertical.{key.partition(' ')[0]}"


@pytest.mark.parametrize(("text", "alignment"), [(TEXT, "keyed"), (TEXT, "ecdh"), (PUBLISHED, "keyed")])
def test_an_alignment_gets_its_warnings_in_the_plan(tmp_path: Path, text: Any, alignment: str) -> None:
    text = text.replace("max_rows", f'alignment = "{alignment}"\nrows_at_most')
    warnings = study(tmp_path, text, identifier=True).plan().warnings
    assert any("leave exactly" in one and "identifiers fixed" in one for one in warnings)
    tried = next(one for one in warnings if "dictionary" in one)
    assert ("coordinator together with one party" in tried) is (alignment == "keyed")
    assert not study(tmp_path, TEXT).plan().warnings


@pytest.mark.parametrize("text", [TEXT, PUBLISHED])
def test_rows_that_can_not_be_multiplied_are_found_before_there_is_a_ledger(tmp_path: Path, text: Any) -> None:
    frame = make_people(300)
    frame[["age", "sick"]].to_csv(tmp_path / "north.csv", index=False)
    frame[["place", "dose", "sex"]].iloc[1:].to_csv(tmp_path / "south.csv", index=False)
    given = text.replace('data = "people.parquet"\nsplit = "by-features"', "")
    given += '[simulation.data]\nnorth = "north.csv"\nsouth = "south.csv"\n'
    with pytest.raises(DataError, match="same rows in the same order"):
        load_party_data(study(tmp_path, given))
    with pytest.raises(StudyError, match="room for 100 rows, found 2400") as found:
        load_party_data(study(tmp_path, text.replace("20000", "100")))
    assert found.value.key == "vertical.max_rows"


def test_rows_that_are_multiplied_come_in_blocks_where_each_owner_has_its_own_file(tmp_path: Path) -> None:
    built = study(tmp_path, overrides={"simulation.memory": 1e-5})
    with pytest.raises(DataError, match=r"people\.parquet: takes more than simulation\.memory .* 2 parties") as caught:
        load_party_data(built)
    assert caught.value.key == "simulation.memory"
    for name, columns in {"north": ["age", "sick"], "south": ["place", "dose", "sex"]}.items():
        table = make_people(3000)
        table[[one for one in table if one in columns or (name == "north" and str(one).startswith("a"))]].to_parquet(
            tmp_path / f"{name}.parquet"
        )
    each = TEXT.replace('"people.parquet"\nsplit = "by-features"', '{north = "north.parquet", south = "south.parquet"}')
    assert set(load_party_data(study(tmp_path, each)).parties) == {"north", "south"}
    loaded = load_party_data(study(tmp_path, each, overrides={"simulation.memory": 1e-5})).parties
    assert all(isinstance(records, StreamedRecords) for records in loaded.values())
