"""`comity.SoftLabel`: one class from its schema, the same study as a file with the same terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import comity
from comity import SoftLabel, Study
from comity.data import clinic_schema, clinics, public_cohort
from comity.errors import StudyError

SCHEMA = clinic_schema("readmitted")
PARTIES = ("ash", "birch", "cedar", "fir")
STUDY = """\
[study]
name = "study"
protocol = "softlabel"
schema = "schema.toml"
[privacy]
epsilon = 1.0
delta = 1e-6
{privacy}
[softlabel]
auxiliary = "public.csv"
{options}
[parties.ash]
[parties.birch]
[parties.cedar]
[parties.fir]
"""


def made(**options: Any) -> SoftLabel:
    return SoftLabel(SCHEMA, auxiliary=public_cohort(60), **{"sizes": 20, **options})


def written(folder: Path, options: str, privacy: str = "") -> Study:
    public_cohort(60).to_csv(folder / "public.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(STUDY.format(options=options, privacy=privacy), encoding="utf-8")
    return Study.load(folder / "study.toml")


def test_a_method_in_python_is_the_study_of_the_file_with_the_same_terms(tmp_path: Path) -> None:
    study, file = made().study(PARTIES, epsilon=1, delta=1e-6), written(tmp_path, "sizes = 20")
    assert study.protocol.sizes == file.protocol.sizes == 20  # type: ignore[attr-defined]
    assert study.plan().as_text() == file.plan().as_text()
    # The hash has the name of the file, which a table in memory lacks.
    assert (
        study.hash
        == made().study(PARTIES, epsilon=1, delta=1e-6).hash
        != made(sizes=21).study(PARTIES, epsilon=1, delta=1e-6).hash
    )


def test_earlier_names_of_options_mean_the_same_study(tmp_path: Path) -> None:
    now = written(tmp_path, 'sizes = 20\nscaling = "clipped"', 'unit = "party"')
    before = written(tmp_path, 'records_per_party = 20\nrows = "clipped"', 'unit = "party"\nneighbours = "replace"')
    assert before.hash == now.hash
    assert [notice.split(" is now")[0] for notice in before.notices] == [
        "softlabel.rows",
        "softlabel.records_per_party",
    ]
    with pytest.raises(StudyError) as found:
        written(tmp_path, "sizes = 20\nrecords_per_party = 20")
    assert found.value.key == "softlabel.records_per_party"


def test_it_protects_a_whole_party_where_nobody_says_so() -> None:
    plan = made().plan(PARTIES, epsilon=1, delta=1e-6)
    assert plan.unit == "a whole party" and plan.neighbours == "replaced"


def test_frames_are_simulated_with_public_records_in_memory() -> None:
    frames = dict(zip(PARTIES, clinics(4, 20, "softlabel method").values()))
    result = made(statistic="votes").simulate(frames, epsilon=50, delta=1e-6, seed=3)
    assert set(result.model.predict(frames["ash"])) <= {"no", "yes"}


def test_unknown_options_and_missing_files_are_one_sentence() -> None:
    with pytest.raises(StudyError, match=r"softlabel\.statistics"):
        made(statistics="votes")
    with pytest.raises(StudyError, match=r"softlabel\.auxiliary must be a DataFrame"):
        comity.SoftLabel(SCHEMA, auxiliary="public.csv", sizes=20).plan(PARTIES, epsilon=1, delta=1e-6)
    with pytest.raises(StudyError, match="without a schema"):
        SoftLabel(auxiliary="public.csv", sizes=20).plan(PARTIES, epsilon=1, delta=1e-6)


def test_it_is_a_public_name() -> None:
    assert comity.SoftLabel is SoftLabel and "SoftLabel" in comity.__all__


def test_sizes_are_those_of_the_smallest_party_or_one_where_a_party_has_one_class() -> None:
    frames, target = clinics(4, 20), "readmitted"
    frames["clinic-02"] = frames["clinic-02"].iloc[:12]
    method = SoftLabel(SCHEMA, auxiliary=public_cohort(60))
    assert all(frame[target].nunique() == 2 for frame in frames.values())
    assert method.count_sizes(frames) == 12
    assert method.count_sizes(frames | {"clinic-03": frames["clinic-03"].assign(**{target: "no"})}) == 1
    result = method.simulate(frames, epsilon=1, delta=1e-6, seed=1)
    assert "counted from the frames" in result.findings[0] and len(result.model.predict(frames["clinic-01"])) == 20
    released = method.simulate(frames, epsilon=1, delta=1e-6)
    assert not released.guarantee.private and "sizes were counted" in str(released.guarantee)
    assert made(sizes=12).simulate(frames, epsilon=1, delta=1e-6).guarantee.private
    with pytest.raises(AttributeError, match="a run of softlabel presents no dataset"):
        result.dataset  # noqa: B018
