"""The comparison of the defaults: what a row says, what stands beside ours, and that the document is its print."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Records, Schema
from comity.data.schemas.columns import Classes, Numeric
from comity.errors import BadInput
from experiments.accuracy import averaging as generalisation_averaging
from experiments.accuracy import comparison as generalisation
from experiments.accuracy import pictures
from experiments.accuracy import rows as generalisation_rows
from experiments.accuracy import softlabel as generalisation_softlabel
from experiments.accuracy.rows import Beside, Case, Fitted, Scores, row, scores
from experiments.accuracy.tables import Table
from experiments.papers import PAPERS

FIELDS = {"case", "ours", "spread", "pooled", "constant", "own", "below_pooled", "log_loss"}


def made(name: str = "made", rows: int = 400, seed: int = 0) -> Table:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (rows, 3))
    y = np.where(x @ [2.0, -1.0, 0.5] + 0.3 * generator.normal(size=rows) > 0, "yes", "no")
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "ill": y})
    schema = Schema(tuple(Numeric(one, -1, 1) for one in "abc"), Classes("ill", ("no", "yes")))
    return Table(name, schema, frame.iloc[: rows // 2], frame.iloc[rows // 2 :])


def test_a_row_is_a_case_with_ours_and_what_it_is_compared_with() -> None:
    beside = Beside(Scores(0.9, 0.3, 0.95), constant=0.6, own=0.8, sklearn=Scores(0.91))
    found = row(Case("averaging", "made", 5, 1, 0.5), [Scores(0.85, 0.4, 0.9), Scores(0.87, 0.5, 0.8)], beside)
    assert found["case"] == "averaging made K=5 t=1 eps=0.5" and set(found) >= FIELDS
    assert found["ours"] == pytest.approx(0.86) and found["below_pooled"] == pytest.approx(0.04)
    assert found["worst"] == 0.85 and found["log_loss"] == pytest.approx(0.45) and found["auc"] == pytest.approx(0.85)


def test_averaging_runs_over_a_table_and_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generalisation_rows, "_diffprivlib", lambda name: None)
    size = generalisation_averaging.Size(("made",), (5.0,), 2)
    held = generalisation_averaging.make_consortium(made(rows=4000))
    found = list(generalisation_averaging.of_table(held, size, quick=False))
    assert [one["case"] for one in found] == ["averaging made K=5 t=1 eps=5", "averaging-pure made K=5 t=1 eps=5"]
    first = found[0]
    assert first["constant"] < first["ours"] <= 1 and abs(first["below_pooled"]) < 0.05
    assert first["diffprivlib"] == "not installed" and abs(first["sklearn"] - first["pooled"]) < 0.02
    assert first["log_loss"] > 0 and first["pooled_auc"] > 0.9


def test_soft_labels_run_over_a_table_and_say_what_was_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generalisation_rows, "_diffprivlib", lambda name: None)
    size = generalisation_softlabel.Size({"made": (60,)}, (0.01, 3.0), 3, auxiliary=300)
    noisy, found = generalisation_softlabel.of_table(made(rows=4000), 60, size, quick=False)
    assert found["case"] == "softlabel made K=60 t=1 eps=3" and set(found) >= FIELDS
    assert found["statistic"] == "class-sums" and found["repeats"] == 3
    assert max(found["constant"], noisy["ours"]) < found["ours"] <= 1 and abs(found["below_pooled"]) < 0.05
    assert found["own"] < found["pooled"] and 0 < found["log_loss"] < 0.7 and found["pooled_auc"] > 0.9


def test_parties_and_public_rows_of_soft_labels_share_no_record() -> None:
    held, protocol = generalisation_softlabel.dealt(made(rows=2000), 30, 200)
    own = {row.tobytes() for row in held.features.reshape(-1, held.features.shape[-1])}
    assert len(own) == 600 and held.auxiliary.shape[0] == 200
    assert not own & {row.tobytes() for row in held.auxiliary} and protocol.sizes == 20


def test_a_private_fit_stands_beside_where_the_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Private:
        def __init__(self, **options: Any) -> None:
            assert options["epsilon"] == 2.0 and options["data_norm"] == 1.0

        def fit(self, x: Any, y: Any) -> Any:
            return self

        def predict_proba(self, x: Any) -> np.ndarray:
            return np.tile([0.4, 0.6], (len(x), 1))

    monkeypatch.setattr(generalisation_rows, "_diffprivlib", lambda name: Private)
    records = Records(np.eye(4) / 2, np.array([0, 1, 0, 1]))
    fitted = Fitted(records, records)
    plain, (private, why) = fitted.plain, fitted.private(2.0)
    assert private == scores(np.tile([0.4, 0.6], (4, 1)), np.array([0, 1, 0, 1])) and why == ""
    assert plain.accuracy == 1.0 and private.accuracy == 0.5


def test_every_method_of_the_comparison_has_rows() -> None:
    assert "generalisation" in PAPERS
    assert set(generalisation.COMPARED) == {"averaging", "softlabel", "vertical"}
    assert all(map(callable, generalisation.COMPARED.values()))


PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"


def test_the_table_of_the_page_has_the_columns_and_methods_of_the_command() -> None:
    written = PAGE.read_text("utf-8").partition(generalisation.BEGIN)[2].partition(generalisation.END)[0]
    heads = generalisation.table([]).splitlines()
    assert written.splitlines()[1 : 1 + len(heads)] == heads
    rows = [line for line in written.splitlines() if " K=" in line]
    assert {line.split()[1] for line in rows} >= {"averaging", "vertical", "softlabel"}
    assert len(pictures.read_rows(PAGE.read_text("utf-8"))) == len(rows)


def test_a_new_table_replaces_the_old_one_and_leaves_the_text() -> None:
    old = f"before\n{generalisation.BEGIN}\n| old |\n{generalisation.END}\nafter\n"
    new = generalisation.with_table(old, [{"case": "averaging adult K=5 t=1 eps=1", "ours": 0.5, "note": "a note"}])
    assert new.startswith("before\n") and new.endswith("after\n") and "| old |" not in new
    assert "| averaging adult K=5 t=1 eps=1 | 0.5000 | - |" in new and "\n- a note\n" in new
    assert generalisation.with_table(new, []).count("a note") == 0
    with pytest.raises(BadInput, match="put them back"):
        generalisation.with_table("no marks", [])


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.file)
def test_the_pictures_are_drawn_from_the_table_on_the_page(picture: pictures.Picture) -> None:
    rows = pictures.read_rows(PAGE.read_text("utf-8"))
    again = "draw it again: python -m experiments.accuracy.pictures docs"
    assert (PAGE.parent / picture.file).read_text("utf-8") == pictures.draw(picture, rows), again
    assert f"]({picture.file})" in PAGE.read_text("utf-8")
    other = [replace(row, ours=row.ours - 0.1) for row in rows]
    assert pictures.draw(picture, other) != pictures.draw(picture, rows)
