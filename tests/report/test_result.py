from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comity
from comity.data import Records, clinics
from comity.errors import BadInput, DataError
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Sealed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Assessment
from comity.privacy.loss import Pure
from comity.report.page import render_result
from comity.report.result import load_result
from comity.study.results.views import list_views
from comity.study.simulation.simulate import simulate
from tests.report.small_run import AUXILIARY, left, protocol, simulated
from tests.support.pages import list_leaves, replace_value


@pytest.fixture(scope="module")
def result() -> Any:
    return simulated(test=clinics(1, 80, "test")["clinic-01"])


def test_it_carries_what_the_run_gave(result: Any) -> None:
    assert result.model is result.presented
    assert [b.name for b in result.baselines] == ["constant", "own data", "pooled", "without noise"]
    assert result.baseline("pooled") in result.baselines
    assert result.model.predict(clinics(1, 5)["clinic-01"]).tolist()[0] in ("no", "yes")


def test_a_saved_result_reads_back_equal_and_makes_the_same_page(result: Any, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    again = load_result(tmp_path / "run")
    assert again.as_json() == result.as_json()
    assert (again.guarantee, again.plan, again.transcript) == (result.guarantee, result.plan, result.transcript)
    assert (again.accounts, again.baselines, again.views) == (result.accounts, result.baselines, result.views)
    np.testing.assert_array_equal(again.model.coef_, result.model.coef_)
    again.report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "run" / "report.html").read_bytes()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "model",
        "parties",
        "released",
        "report.html",
        "result.json",
        "transcript.json",
    ]
    assert sorted(p.name for p in (tmp_path / "run" / "model").iterdir()) == [
        "MODEL_CARD.md",
        "artefact.json",
        "model.json",
        "weights.npz",
    ]


def test_saving_again_replaces_every_file(result: Any, tmp_path: Path) -> None:
    result.save(tmp_path)
    other = simulated(seed=4)
    other.save(tmp_path)
    np.testing.assert_array_equal(load_result(tmp_path).model.coef_, other.model.coef_)
    assert load_result(tmp_path).error is None


def test_result_json_says_what_a_reader_needs(result: Any, tmp_path: Path) -> None:
    page = json.loads((result.save(tmp_path) / "result.json").read_text())
    assert page["format"] == "comity-result-3"
    assert page["private"] is False and page["seed"] == 3
    assert page["guarantee"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert page["plan"]["releases"][0]["release"] == "models"
    assert {a["left"] for a in page["accounts"]} == {left(2.5, 1)}
    assert page["traffic"]["rounds"] == 4 and page["traffic"]["bytes"] > 1000
    assert page["versions"]["comity"] == comity.__version__
    assert page["study_hash"] == result.study_hash
    assert "error and the baselines were measured on the private records of a simulation" in page["not_covered"]
    assert "outside the guarantee" in page["not_covered"]
    alone = replace(result, assessment=Assessment(error=0.1))
    assert alone.as_json()["not_covered"].startswith("The error was measured")
    assert replace(result, assessment=Assessment()).as_json()["not_covered"] is None


def test_a_write_that_fails_leaves_the_old_file(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = result.report(tmp_path / "report.html")
    before = path.read_bytes()

    def broken(self: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(BadInput, match=r"report\.html: can't be written \(No space left"):
        simulated().report(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("result.json", None),
        ("result.json", "{"),
        ("result.json", '{"format": "other"}'),
        ("result.json", '{"format": "comity-result-3"}'),
        ("transcript.json", '[{"path": 1}]'),
        ("transcript.json", None),
        ("model/model.json", "[]"),
        ("released/released.json", "[]"),
        ("released/arrays.npz", None),
    ],
)
def test_a_damaged_folder_is_named(result: Any, tmp_path: Path, name: str, text: Any) -> None:
    result.save(tmp_path)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=str(tmp_path)):
        load_result(tmp_path)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("transcript.json", (0, "parties"), [1]),
        ("transcript.json", (0, "bytes"), "many"),
        ("transcript.json", (0, "path"), []),
        ("transcript.json", (0, "digest"), 1),
        ("result.json", ("baselines", 0, "spread"), None),
        ("result.json", ("baselines", 0, "error"), "low"),
        ("result.json", ("error",), []),
        ("result.json", ("study",), "\ud800"),
        ("result.json", ("plan", "releases", 0, "loss"), 3),
        ("result.json", ("plan", "warnings"), [1]),
        ("result.json", ("views", 0, "participant"), {}),
        ("result.json", ("accounts", 0, "left"), 7),
        ("result.json", ("guarantee", "epsilon"), "1"),
        ("result.json", ("settings",), {"a": "\udc00"}),
        ("result.json", ("versions",), {"a": []}),
        ("result.json", ("seed",), "seven"),
    ],
)
def test_a_value_of_another_type_is_bad_data(result: Any, tmp_path: Path, name: str, place: Any, value: Any) -> None:
    """Found when the folder is read, and not by whatever adds it up or writes it."""
    result.save(tmp_path)
    page = inner = json.loads((tmp_path / name).read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / name).write_text(json.dumps(page))
    with pytest.raises(DataError, match="is damaged"):
        load_result(tmp_path)


@pytest.mark.parametrize("name", ["result.json", "transcript.json", "released/released.json"])
def test_a_value_of_another_type_is_a_damaged_folder_and_never_a_defect(result: Any, tmp_path: Path, name: str) -> None:
    """Whoever hands a folder over can write anything into its pages."""
    folder = result.save(tmp_path / "run")
    page, refused = json.loads((folder / name).read_text()), 0
    for path in list_leaves(page):
        for value in ({"x": [1]}, "\ud800", -1e308):
            (folder / name).write_text(json.dumps(replace_value(page, path, value)))
            try:
                again = load_result(folder)
            except DataError:
                refused += 1
                continue
            render_result(again), repr(again), str(again.guarantee), again.plan.as_text()
    assert refused


def test_the_card_states_guarantee_adversary_unit_and_seed(result: Any, tmp_path: Path) -> None:
    card = (result.save(tmp_path) / "model" / "MODEL_CARD.md").read_text()
    assert "eps 1.00" in card and "a whole party, replaced" in card
    assert result.guarantee.adversary in card
    assert "Not a private release" in card
    assert f"Error {result.error:.3f}" in card
    unseeded = simulated(seed=None)
    card = (unseeded.save(tmp_path) / "model" / "MODEL_CARD.md").read_text()
    assert "Not a private release" not in card and "Not measured" in card and "drawn as for a release" in card


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_stated_noise_is_that_of_the_draws(delta: float) -> None:
    # With one class of records alone nothing else varies, so released weights spread by the noise.
    draws = np.array([simulated(parties=1, seed=s, delta=delta).model.coef_[0] for s in range(15)])
    stated = simulated(parties=1, delta=delta).model_noise
    assert draws.std(axis=0).mean() == pytest.approx(stated, rel=0.2)


def test_views_split_parties_by_what_they_receive() -> None:
    consortium = Consortium(parties=("a", "b", "c"), loss=Pure(1), roles={"consumer": ("c",)})
    declaration = Declaration(
        (
            Release(name="mail", source="a", to="b", protection=Sealed("a key"), form=Array((1,))),
            Release(name="sum", source="every party", to="coordinator", protection=Sealed("it"), form=Array((1,))),
            Release(name="model", source="coordinator", to="consumer", protection=Derived("sum"), form=Array((1,))),
        ),
        adversary="nobody",
    )
    found = {view.participant: [seen.release for seen in view.seen] for view in list_views(declaration, consortium)}
    assert found == {"coordinator": ["sum"], "a": [], "c (consumer)": ["model"], "b": ["mail"]}


def test_a_result_of_many_parties_has_one_account_for_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = Records(AUXILIARY[:2], rng.integers(0, 2, 2))
    big = simulate(protocol(), parties={f"p{i}": one for i in range(1001)}, epsilon=1, delta=1e-6, seed=1)
    text = big.report(tmp_path / "big.html").read_text()
    assert "1,001" in text and "masks are left out" in text and not big.masks
    assert "masks are left out" not in simulated().report(tmp_path / "few.html").read_text()
