"""What was paid for is in the result of everybody who was to receive it, saved and loaded again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comity
from comity.errors import DataError
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import (
    Derived,
    Disclosed,
    Entrusted,
    Noised,
    Public,
    Sealed,
    Selected,
    Summed,
)
from comity.federation.declare.release import Array
from comity.federation.messages.received import is_kept
from comity.privacy.loss import ZCDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.report.result import load_result
from comity.study.results.released import Released, describe_releases, load_released, save_released
from comity.study.simulation.simulate import Terms, simulate
from tests.report.small_run import simulated
from tests.report.small_studies import CASES, refusal, small_study

# Keys whose every value has to run with their variant; a study may refuse the keys of the other one.
RUN = {
    "averaging default": ("delta", "model", "solver"),
    "averaging published": ("noise",),
    "softlabel default": ("delta", "statistic", "feature_map"),
    "softlabel published": ("delta", "method", "sensitivity", "auxiliary_privacy"),
    "summary default": ("deliver", "selection"),
    "summary published": ("bid_sign", "features"),
    "synthetic default": ("delta", "model", "pooling"),
    "synthetic published": ("labelling", "learner"),
    "vertical default": ("delta", "model", "products", "solver", "alignment"),
    "vertical published": ("model",),
}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


# Each takes seconds; what is kept of them is compared in tests/synthetic/test_columns_study.py, once for all.
ELSEWHERE = ("synthetic default alignment=", "synthetic default products=")


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(ELSEWHERE)])
def test_every_paid_release_is_in_its_receivers_results_and_reads_back_equal(case: str, tmp_path: Path) -> None:
    refused = refusal(case, tmp_path)
    if refused is not None:
        variant, _, setting = case.rpartition(" ")
        assert setting.partition("=")[0] not in RUN[variant], refused
        return
    result = comity.simulate(small_study(case, tmp_path, **{"simulation.baselines": False}), seed=1)
    assert result.declaration is not None and result.consortium is not None
    declared, consortium = result.declaration, result.consortium
    result.save(tmp_path / "run")
    again = load_result(tmp_path / "run")
    for name in ("coordinator", *consortium.parties):
        due = [r for r in declared.releases if is_kept(r) and consortium.includes(r.to, name)]
        found = again.received_by(name)
        assert [release.name for release in due] == list(found)
        for release in due:
            assert equal(result.released[release.name], found[release.name]), release.name
            assert _count(found[release.name]) == release.times or release.times == 1
    assert not list((tmp_path / "run" / "released").glob("*.new"))


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("statistic=histograms")][:1])
def test_soft_labels_are_as_released(case: str, tmp_path: Path) -> None:
    result = comity.simulate(small_study(case, tmp_path), seed=1)
    result.save(tmp_path / "run")
    labels = np.load(tmp_path / "run" / "released" / "arrays.npz", allow_pickle=False)["soft_labels"]
    assert labels.shape == (20, 2) and np.array_equal(labels, load_result(tmp_path / "run").released["soft_labels"])
    page = json.loads((tmp_path / "run" / "released" / "released.json").read_text())
    (said,) = (one for one in page["releases"] if one["name"] == "soft_labels")
    assert (said["source"], said["to"], said["value"]) == ("coordinator", "everyone", {"array": "soft_labels"})
    assert "20, 2" in said["form"] and said["protection"] == "made from histograms"


def test_the_roles_of_contributing_present_a_dataset_to_the_consumer_alone(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": __name__}
    for example in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(example, "CONTRIBUTING.md", "exec", dont_inherit=True), scope)
    again = load_result(scope["outcome"].save(tmp_path))
    assert set(again.received_by("lab")) == {"numbers"} and not again.received_by("ash")
    assert len(again.presented) == again.received_by("lab")["numbers"].sum()
    assert [(one.name, one.loss) for one in again.guarantee.payers] == [
        ("consumer (lab)", "eps 70.00, delta 1e-6"),
        ("each owner (ash, birch)", "eps 50.00, delta 1e-6"),
    ]


def test_the_example_of_contributing_keeps_what_it_opened(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    method, use, *_ = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {"__name__": __name__}
    exec(compile(method + use, "CONTRIBUTING.md", "exec", dont_inherit=True), scope)
    result = scope["outcome"]
    assert set(result.model) == {"centre"}
    again = load_result(result.save(tmp_path))
    assert np.array_equal(again.released["centre"], scope["outcome"].released["centre"])
    opened = again.released["mean"]
    assert opened["parties"] == 3
    np.testing.assert_allclose(opened["sum"] / 3, again.released["centre"])
    assert set(again.received_by("ash")) == {"centre"} and set(again.received_by("coordinator")) == {"mean", "centre"}


def test_a_stack_of_parties_keeps_the_same(tmp_path: Path) -> None:
    case = "softlabel default statistic=histograms"
    few = small_study(case, tmp_path)
    from comity.study.records.party_data import load_party_data

    one: Any = load_party_data(few).parties["clinic-01"]
    many = simulate(
        few.protocol,
        parties={f"p{i}": one for i in range(1001)},
        epsilon=1,
        delta=1e-6,
        seed=1,
        terms=Terms(schema=few.schema),
    )
    assert set(load_result(many.save(tmp_path / "run")).released) == {"histograms", "model", "soft_labels"}
    assert many.released["histograms"]["parties"] == 1001


def test_what_no_noise_covers_is_not_kept(tmp_path: Path) -> None:
    result = simulated("avg")
    assert set(result.released) == {"model"}  # the entrusted models are not
    noise = Gaussian(ZCDP(1))
    for protection, kept in (
        (Summed(noise), True),
        (Noised(noise), True),
        (Derived("x"), True),
        (Selected(noise), False),
        (Entrusted(noise), False),
        (Sealed("a key"), False),
        (Public("a size"), False),
        (Disclosed("a size", "sizes"), False),
    ):
        one = Release(name="x", source="every party", to="coordinator", protection=protection, form=Array((1,)))
        assert is_kept(one) is kept, protection


def test_a_role_reaches_its_parties() -> None:
    consortium = Consortium(parties=("a", "b", "c"), loss=Pure(1), roles={"consumer": ("c",)})
    release = Release(name="x", source="coordinator", to="consumer", protection=Derived("y"), form=Array((1,)))
    (one,) = describe_releases({"x": np.ones(1)}, Declaration((release,), adversary="nobody"), consortium)
    assert [name for name in ("coordinator", "a", "b", "c") if one.reaches(name)] == ["c"]


VALUES = {
    "file": np.arange(6).reshape(2, 3),
    "empty": np.zeros((0, 4)),
    "shares": {"a/b": np.arange(3, dtype="<u8"), "..": np.ones(1), "ä": {"x": [1, 2.5, "text", None, True]}},
    "many": [np.ones(2), {"sum": np.ones(2), "parties": 2**70}],
    "raw": b"\x00\xff",
    "odd": [float("inf"), -0.0],
}


def test_any_form_is_stored_without_code(tmp_path: Path) -> None:
    made = tuple(Released(name, "a", "b", (), "p", "f", value) for name, value in VALUES.items())
    save_released(made, tmp_path / "released")
    again = {one.name: one.value for one in load_released(tmp_path / "released")}
    assert equal(again, VALUES)
    save_released(made[:1], tmp_path / "released")
    assert [one.name for one in load_released(tmp_path / "released")] == ["file"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("released.json", None),
        ("released.json", b"{"),
        ("released.json", b'{"format": "other", "releases": []}'),
        ("released.json", b'{"format": "comity-released-1", "releases": [{"name": "x"}]}'),
        ("released.json", b'{"format": "comity-released-1", "releases": [3]}'),
        ("arrays.npz", None),
        ("arrays.npz", b"PK\x03\x04"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    save_released((Released("x", "a", "b", (), "p", "f", np.ones(2)),), tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        load_released(tmp_path)


def test_an_array_of_objects_is_not_opened(tmp_path: Path) -> None:
    save_released((Released("x", "a", "b", (), "p", "f", np.ones(2)),), tmp_path)
    np.savez(tmp_path / "arrays.npz", x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=r"arrays\.npz"):
        load_released(tmp_path)
