"""A draft from owners' files: how each file is read, what is matched, what is named, and what the study says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.data import Bounded, Classes, Numeric, Schema
from comity.errors import BadInput, DataError, StudyError
from comity.study.drafting.draft import (
    Wishes,
    draft_by_columns,
    draft_by_rows,
    holds_columns,
    mark_drafts,
    party_name,
    read_files,
)
from comity.study.drafting.matching import match_codes, match_columns, match_units
from comity.study.drafting.own_files import OwnFile, kind_of, read_own_file
from comity.study.drafting.proposals import Decide, Decisions, take_all, take_sure
from comity.study.drafting.similar import match_names, match_values, same_name
from comity.study.drafting.study_text import delta_for, round_figure
from comity.study.study import Study


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def save(folder: Path, name: str, **columns: Any) -> Path:
    pd.DataFrame(columns).to_csv(folder / name, index=False)
    return folder / name


def read(path: Path, decide: Decide = take_sure) -> tuple[OwnFile, Decisions]:
    decisions = Decisions(decide)
    return read_own_file(path.stem, path, decisions), decisions


# Names and values.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Age", "age"),
        ("heart_rate", "HeartRate"),
        ("height_cm", "height_m"),
        ("sex", "Geschlecht"),
        ("Größe", "height"),
        ("chol", "cholesterol"),
        ("age", "patient_age"),
        ("smoking_status", "smoking_statuss"),
    ],
)
def test_names_that_mean_the_same_are_recognised(first: str, second: str) -> None:
    assert same_name(first, second) and same_name(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [("age", "stage"), ("weight", "height"), ("a", "b"), ("hdl", "ldl"), ("pressure1", "pressure2")],
)
def test_names_that_mean_something_else_are_not(first: str, second: str) -> None:
    assert same_name(first, second) is None


def test_a_name_with_two_counterparts_is_matched_with_neither() -> None:
    assert match_names(["pressure_1", "pressure_2", "age"], ["pressure", "Age"], {}) == {"Age": "age"}
    assert match_names(["pressure"], ["pressure_1", "pressure_2"], {}) == {}
    assert match_names(["chol"], ["cholesterol"], {("chol", "cholesterol"): False}) == {}


@pytest.mark.parametrize(
    ("known", "others", "expected"),
    [
        (["male", "female"], ["m", "w"], {"m": "male", "w": "female"}),
        (["male", "female"], ["M", "F"], {"M": "male", "F": "female"}),
        (["yes", "no"], ["1", "0"], {"1": "yes", "0": "no"}),
        (["yes", "no"], ["Ja", "Nein"], {"Ja": "yes", "Nein": "no"}),
        (["surgical", "medical"], ["Surg.", "med"], {"Surg.": "surgical", "med": "medical"}),
        (["male", "female"], ["1", "2"], {}),
        (["a", "b"], ["c"], {}),
        (["stage 1", "stage 2"], ["stage"], {}),
        (["yes", "no"], ["yes", "n"], {"n": "no"}),
    ],
)
def test_codes_that_mean_the_same_are_recognised_and_no_others(
    known: list[str], others: list[str], expected: dict[str, str]
) -> None:
    assert match_values(known, others) == expected


# One file.


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    rows = "".join(f"{20 + i};1,{i:02d};{1 + i}.234;{1 + i % 28:02d}.03.2021;x{i}\n" for i in range(40))
    path = tmp_path / "south.csv"
    path.write_bytes(("alter;größe;preis;tag;name\n" + rows + "?;1,50;5.000;?;k.A.\n").encode("latin-1"))
    file, decisions = read(path)
    assert file.keys == {"separator": ";", "encoding": "latin-1", "decimal": ","}
    assert file.translation.missing == ("?", "k.A.")
    assert file.translation.format == {"preis": "1.234,5", "tag": "%d.%m.%Y"}
    assert file.frame["preis"].tolist()[:2] == [1234.0, 2234.0] and file.frame["größe"].tolist()[1] == 1.01
    assert [kind_of(file.frame[name]) for name in file.columns[:4]] == ["number", "number", "number", "day"]
    assert any("semicolons" in note and "decimal commas" in note for note in decisions.notes)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([34, 51, 67, -9, 45, 80], {"-9": ""}),
        ([34, 51, 67, 999, 45, 80], {"999": ""}),
        (["34", "51", "67", "unknown", "45"], {"unknown": ""}),
        ([-3, 5, -9, 8, 2, 4], {}),
        ([990, 999, 1010, 1020, 1005], {}),
        (["red", "green", "unknown"], {}),
    ],
)
def test_codes_for_missing_values_are_recognised_by_the_other_values(
    tmp_path: Path, values: list[Any], codes: dict[str, str]
) -> None:
    path = save(tmp_path, "a.csv", x=values * 3, y=range(3 * len(values)))
    assert read(path, take_all)[0].translation.recode.get("x", {}) == codes
    # 999 may be a largest value that was cut off.
    assert read(path)[0].translation.recode.get("x", {}) == ({} if "999" in codes else codes)


def test_dates_that_two_formats_read_follow_the_other_dates_of_the_file(tmp_path: Path) -> None:
    file, decisions = read(save(tmp_path, "a.csv", born=["03/04/1950"] * 5, seen=["23/11/2021"] * 5))
    assert file.translation.format == {"born": "%d/%m/%Y", "seen": "%d/%m/%Y"} and not decisions.notes
    file, decisions = read(save(tmp_path, "b.csv", born=["03/04/1950"] * 5))
    assert file.translation.format == {"born": "%d/%m/%Y"} and "%m/%d/%Y" in decisions.notes[0]


def test_numbers_that_two_formats_read_are_a_guess(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", x=["1,234", "5,678", "9,100"] * 3)
    assert read(path)[0].translation.format == {}
    assert read(path, take_all)[0].translation.format == {"x": "1,234.5"}
    assert read(save(tmp_path, "b.csv", x=["1,234.5", "5,678.0", "9.1"]))[0].translation.format == {"x": "1,234.5"}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [("a.txt", "x\n1\n", "expected a .csv"), ("a.csv", "x,y\n", "no records"), ("a.csv", "x,x\n1,2\n", "two columns")],
)
def test_files_that_can_not_be_drafted_from_are_refused(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read(write(tmp_path, name, text))
    with pytest.raises(BadInput, match="no such file"):
        read(tmp_path / "absent.csv")


# Two files.


def two(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> list[OwnFile]:
    paths = [save(tmp_path, "north.csv", **first), save(tmp_path, "south.csv", **second)]
    return read_files(paths, None, Decisions())


def test_columns_are_matched_by_values_only_where_somebody_says_so(tmp_path: Path) -> None:
    north, south = two(
        tmp_path, {"ward": ["surgery", "medicine"] * 3, "n": range(6)}, {"abt": ["surgery", "medicine"] * 3}
    )
    assert match_columns(north, south, {}, sure := Decisions()).columns == ["abt"] and len(sure.declined) == 1
    assert match_columns(north, south, {}, Decisions(take_all)).columns == ["ward"]
    assert match_columns(north, south, {"abt": "n"}, Decisions()).columns == ["n"]
    with pytest.raises(BadInput, match="did you mean 'abt'"):
        match_columns(north, south, {"abtt": "ward"}, Decisions())


def test_codes_of_yes_and_no_match_no_column_by_themselves(tmp_path: Path) -> None:
    north, south = two(tmp_path, {"smoker": ["yes", "no"] * 3}, {"pregnant": [1, 0] * 3})
    assert match_columns(north, south, {}, Decisions(take_all)).columns == ["pregnant"]


def test_codes_without_a_counterpart_are_named(tmp_path: Path) -> None:
    north, south = two(tmp_path, {"sex": ["male", "female"] * 3}, {"sex": [1, 2] * 3})
    decisions = Decisions()
    assert match_codes(north, south, ["sex"], {}, decisions).translation.recode == {}
    assert (
        "1, 2 match none of female, male" in decisions.unmatched[0]
        and "--recode south.sex.1=" in decisions.unmatched[0]
    )
    given = match_codes(north, south, ["sex"], {"sex": {"1": "male", "2": "female"}}, decisions)
    assert given.frame["sex"].tolist() == ["male", "female"] * 3


def test_numbers_of_which_one_file_has_two_are_still_numbers(tmp_path: Path) -> None:
    files = two(tmp_path, hospital(range(40), season=[1, 2] * 20), hospital(range(30), season=[1, 2, 3] * 10))
    decisions = Decisions()
    study = drafted(tmp_path, files, decisions)
    assert study.schema["season"] == Numeric("season", 1, 3, integer=True, draft=True) and not decisions.unmatched


def test_a_column_with_texts_here_and_numbers_there_is_left_out_unless_they_are_codes(tmp_path: Path) -> None:
    wards = {"ward": [("surgery", "medicine", "other")[place % 3] for place in range(30)]}
    codes = {"ward": [place % 3 for place in range(30)]}
    decisions = Decisions()
    study = drafted(tmp_path, two(tmp_path, hospital(range(30), **wards), hospital(range(30), **codes)), decisions)
    assert study.schema.names == ("age",) and "0, 1, 2 match none of" in decisions.unmatched[0]
    assert "ward holds other kinds of values at south" in decisions.unmatched[1]
    recode = {"south": {"ward": {"0": "surgery", "1": "medicine", "2": "other"}}}
    (tmp_path / "again").mkdir()
    files = two(tmp_path / "again", hospital(range(30), **wards), hospital(range(30), **codes))
    assert drafted(tmp_path / "again", files, recode=recode).schema.names == ("age", "ward")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bike1", "bike1"),
        ("St. Mary's", "st-mary-s"),
        ("Klinik München", "klinik-munchen"),
        ("coordinator", "party-coordinator"),
        ("病院", "party"),
        ("x" * 60, "x" * 32),
    ],
)
def test_a_file_names_its_party(text: str, name: str) -> None:
    assert party_name(text) == name


def test_units_are_converted_by_names_and_by_values_only_where_somebody_says_so(tmp_path: Path) -> None:
    heights = [150, 160, 170, 180, 190]
    north, south = two(
        tmp_path,
        {"height_cm": heights, "dose": heights},
        {"height_m": [1.5, 1.6, 1.7, 1.8, 1.9], "dose": [0.15, 0.16, 0.17, 0.18, 0.19]},
    )
    south = match_columns(north, south, {}, Decisions())
    assert match_units(north, south, ["height_cm", "dose"], {}, Decisions()).translation.unit == {"height_cm": 100}
    guessed = match_units(north, south, ["height_cm", "dose"], {}, Decisions(take_all))
    assert guessed.translation.unit == {"height_cm": 100, "dose": 1000}
    assert guessed.frame["height_cm"].tolist() == heights


def test_values_of_another_size_are_asked_about_until_their_factor_is_given(tmp_path: Path) -> None:
    """Chemical units differ by a factor for each substance: no name shows it, and no power of ten fits."""
    north, south = two(
        tmp_path,
        {"chol": [150, 180, 200, 230, 260], "age": [20, 40, 50, 60, 80], "change": [-2, -1, 0, 1, 2]},
        {"chol": [3.9, 4.6, 5.2, 5.9, 6.7], "age": [30, 50, 60, 70, 90], "change": [-200, -100, 0, 100, 200]},
    )
    names = ["chol", "age", "change"]
    decisions = Decisions(take_all)
    assert match_units(north, south, names, {}, decisions).translation.unit == {}
    (question,) = decisions.checks
    assert "chol" in question and "(about 38.5): --unit south.chol=FACTOR" in question
    settled = Decisions(take_all)
    assert match_units(north, south, names, {"chol": 38.67}, settled).translation.unit == {"chol": 38.67}
    assert settled.checks == []
    with pytest.raises(BadInput, match="has no column 'cholesterol'"):
        match_units(north, south, names, {"cholesterol": 38.67}, Decisions())


# The study.


def hospital(places: range, **more: Any) -> dict[str, Any]:
    columns = {
        "age": [20 + 7 * place % 61 for place in places],
        "ward": [("surgery", "medicine")[place % 2] for place in places],
        "ill": [("no", "yes")[(place // 3) % 2] for place in places],
    }
    return {**columns, **more}


def drafted(tmp_path: Path, files: list[OwnFile], decisions: Decisions | None = None, **wishes: Any) -> Study:
    named = Wishes(**{"name": "trial", "protocol": "averaging", "target": "ill", **wishes})
    made = (draft_by_columns if named.protocol == "vertical" else draft_by_rows)(files, named, decisions or Decisions())
    folder = tmp_path / "trial"
    folder.mkdir()
    made.write(folder)
    return Study.load(folder / "study.toml")


def test_every_bound_of_a_draft_is_marked(tmp_path: Path) -> None:
    study = drafted(tmp_path, two(tmp_path, hospital(range(40)), hospital(range(30))))
    assert study.schema.drafts == ("age", "ward", "ill")
    text = (tmp_path / "trial" / "schema.toml").read_text()
    assert text.count("draft = true  # taken from the records") == 3 and "PRIVATE" in text
    assert "age, ward, ill" in study.notices[0]
    whole = mark_drafts(Schema((Numeric("x", 0, 1),), Bounded("y", 0, 1)))
    assert whole.drafts == ("x", "y") and Schema.parse(whole.to_toml()) == whole


@pytest.mark.parametrize(
    ("protocol", "unit", "neighbours", "more"),
    [
        ("averaging", "record", "replace", {}),
        ("synthetic", "record", "add-remove", {}),
        ("summary", "record", "replace", {"consumer": "south"}),
    ],
)
def test_defaults_fit_the_method(
    tmp_path: Path, protocol: str, unit: str, neighbours: str, more: dict[str, Any]
) -> None:
    study = drafted(tmp_path, two(tmp_path, hospital(range(40)), hospital(range(30))), protocol=protocol, **more)
    study.plan()
    assert (study.privacy.unit, study.privacy.neighbours) == (unit, neighbours)
    assert study.privacy.delta == 1e-5 and study.privacy.epsilon == 1


@pytest.mark.parametrize(("units", "delta"), [(2, 1e-5), (999, 1e-5), (9_999, 1e-5), (10_000, 1e-6), (123_456, 1e-7)])
def test_delta_is_below_a_tenth_of_one_in_the_declared_units(units: int, delta: float) -> None:
    assert delta_for(units) == delta < 1 / (10 * units)


@pytest.mark.parametrize(("count", "figure"), [(1, 1), (47, 47), (303, 300), (695, 700), (12_345, 12_000)])
def test_declared_sizes_are_round(count: int, figure: int) -> None:
    assert round_figure(count) == figure


def test_columns_of_one_file_only_and_identifiers_are_left_out_and_named(tmp_path: Path) -> None:
    files = two(
        tmp_path,
        hospital(
            range(40), patient_id=[f"n{place}" for place in range(40)], lactate=[place / 7 for place in range(40)]
        ),
        hospital(range(30), patient_id=[f"s{place}" for place in range(30)], comment=["text"] * 30),
    )
    decisions = Decisions()
    study = drafted(tmp_path, files, decisions)
    assert study.schema.names == ("age", "ward")
    named = "\n".join([*decisions.unmatched, *decisions.notes])
    assert all(word in named for word in ("lactate", "comment", "patient_id identifies records"))


def test_an_identifier_with_several_records_of_one_person_is_no_column_to_learn_from(tmp_path: Path) -> None:
    """Its bounds would be published in the schema, and a weight would be learned on the number of a person."""
    files = two(
        tmp_path,
        hospital(range(120), PatNr=[5000 + place // 2 for place in range(120)], number_of_visits=list(range(120))),
        hospital(range(60), patient_id=[9000 + place // 2 for place in range(60)], number_of_visits=[3, 4] * 30),
    )
    decisions = Decisions()
    assert drafted(tmp_path, files, decisions).schema.names == ("age", "ward", "number_of_visits")
    assert [note for note in decisions.notes if "PatNr" in note] == [
        "PatNr identifies people, some of them in several records, and is left out; the study protects each record, "
        "and not all records of one person together"
    ]
    assert not any("PatNr" in question for question in decisions.checks)


def test_an_identifier_is_not_asked_about_as_if_it_had_a_unit(tmp_path: Path) -> None:
    files = two(
        tmp_path,
        hospital(range(40), patient_id=list(range(1000, 1040))),
        hospital(range(40), patient_id=list(range(70000, 70040))),
    )
    decisions = Decisions()
    drafted(tmp_path, files, decisions)
    assert decisions.checks == []


def test_a_number_of_another_size_than_the_rest_is_asked_about(tmp_path: Path) -> None:
    """A drafted bound follows it, and the column's other values could not be told apart."""
    ages = [*range(20, 59), 10**30]
    files = two(tmp_path, hospital(range(40), years=ages), hospital(range(40), years=list(range(20, 60))))
    decisions = Decisions()
    drafted(tmp_path, files, decisions)
    (question,) = decisions.checks
    assert "years: one value of north is 1e+30" in question and str(tmp_path / "north.csv") in question


def test_people_with_several_records_are_why_no_column_identifies_them(tmp_path: Path) -> None:
    ids = [f"n{place}" for place in range(40)]
    files = two(
        tmp_path, hospital(range(40), patient_id=[*ids[:39], ids[0]]), {"patient_id": ids, "crp": list(range(40))}
    )
    with pytest.raises(BadInput, match=r"patient_id of .*north\.csv has the same value in several records"):
        drafted(tmp_path, files, protocol="vertical")


def test_records_without_a_target_are_left_out_and_counted(tmp_path: Path) -> None:
    gaps = hospital(range(30))
    gaps["ill"] = [*gaps["ill"][:28], None, None]
    decisions = Decisions()
    study = drafted(tmp_path, two(tmp_path, hospital(range(40)), gaps), decisions)
    assert study.simulation.data["south"]["complete"] == ["ill"]
    assert "south: 2 records without ill are left out" in decisions.notes


def test_a_target_whose_codes_differ_is_refused_with_the_option_that_says_what_they_mean(tmp_path: Path) -> None:
    other = hospital(range(30))
    other["ill"] = [("A", "B")[place % 2] for place in range(30)]
    files = two(tmp_path, hospital(range(40)), other)
    with pytest.raises(BadInput, match=r"'A', 'B'.*--recode south\.ill\.CODE=CLASS"):
        drafted(tmp_path, files)
    study = drafted(tmp_path, files, recode={"south": {"ill": {"A": "no", "B": "yes"}}})
    assert study.schema.target == Classes("ill", ("no", "yes"), draft=True)


def test_a_first_file_with_one_class_takes_the_others_from_the_next(tmp_path: Path) -> None:
    files = two(tmp_path, hospital(range(40), ill=["yes"] * 40), hospital(range(30)))
    assert drafted(tmp_path, files).schema.target == Classes("ill", ("no", "yes"), draft=True)


def test_no_error_quotes_a_record(tmp_path: Path) -> None:
    """A file without a header line has a record there, and a column of numbers is no list of codes."""
    (tmp_path / "north.csv").write_text("61,secret,yes\n" * 5)
    (tmp_path / "south.csv").write_text("age,ward,ill\n" + "".join(f"{place},w,{place}.125\n" for place in range(30)))
    files = read_files([tmp_path / "north.csv", tmp_path / "south.csv"], None, Decisions())
    with pytest.raises(BadInput, match="begins with a header line") as caught:
        drafted(tmp_path, files)
    assert "secret" not in str(caught.value)
    (tmp_path / "classes").mkdir()
    other = read_files(
        [save(tmp_path / "classes", "east.csv", **hospital(range(40))), tmp_path / "south.csv"], None, Decisions()
    )
    with pytest.raises(BadInput, match="holds numbers or days") as caught:
        drafted(tmp_path, other)
    assert ".125" not in str(caught.value)


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"target": "il"}, "did you mean 'ill'"),
        ({"rename": {"sout": {"a": "b"}}}, "did you mean 'south'"),
        ({"recode": {"sout": {"a": {"b": "c"}}}}, "did you mean 'south'"),
        ({"protocol": "summary"}, "--consumer NAME"),
        ({"protocol": "summary", "consumer": "nobody"}, "north, south; found 'nobody'"),
        ({"identifier": "nobody"}, "'nobody'"),
        ({"protocol": "vertical"}, "no column identifies the same people"),
    ],
)
def test_wishes_that_the_files_do_not_allow_are_refused(tmp_path: Path, wishes: dict[str, Any], sentence: str) -> None:
    files = two(tmp_path, hospital(range(40)), hospital(range(30)))
    with pytest.raises(BadInput, match=sentence):
        drafted(tmp_path, files, **wishes)


def test_a_column_of_one_file_names_the_parties(tmp_path: Path) -> None:
    places = range(60)
    path = save(tmp_path, "all.csv", **hospital(places, site=[("St. Mary", "north")[place % 2] for place in places]))
    study = drafted(tmp_path, read_files([path], "site", Decisions()), by="site")
    assert list(study.consortium.parties) == ["st-mary", "north"]
    assert study.schema.names == ("age", "ward")
    from comity.study.records.party_data import load_party_data

    assert {name: len(one) for name, one in load_party_data(study).parties.items()} == {"st-mary": 24, "north": 24}
    with pytest.raises(BadInput, match="splits one file"):
        read_files([path, path], "site", Decisions())
    with pytest.raises(BadInput, match="two or more parties"):
        read_files([path], None, Decisions())
    with pytest.raises(BadInput, match="did you mean 'site'"):
        draft_by_rows(
            read_files([path], "sitee", Decisions()),
            Wishes(name="t", protocol="averaging", target="ill", by="sitee"),
            Decisions(),
        )
    gaps = save(tmp_path, "gaps.csv", **hospital(places, site=["a", None] * 30))
    with pytest.raises(DataError, match="names no party"):
        draft_by_rows(
            read_files([gaps], "site", Decisions()),
            Wishes(name="t", protocol="averaging", target="ill", by="site"),
            Decisions(),
        )


def test_different_columns_of_the_same_people_are_recognised(tmp_path: Path) -> None:
    people = [f"p{place:03d}" for place in range(60)]
    lab = {"patient": [*people[10:], "x1", "x2"], "lactate": [place / 9 for place in range(52)], "age": range(52)}
    files = two(tmp_path, hospital(range(60), pid=people), lab)
    assert holds_columns(files)
    (tmp_path / "rows").mkdir()
    assert not holds_columns(two(tmp_path / "rows", hospital(range(40)), hospital(range(30))))
    decisions = Decisions()
    study = drafted(tmp_path, files, decisions, protocol="vertical")
    assert study.schema.identifier == "pid" and study.simulation.data["south"]["rename"] == {"patient": "pid"}
    assert not isinstance(study.parties, int)
    assert [study.parties[name].columns for name in ("north", "south")] == [["age", "ward", "ill"], ["lactate"]]
    assert "south: age is held by another party already, and is left out here" in decisions.notes
    study.plan()


def test_public_records_are_written_in_the_schema_s_terms(tmp_path: Path) -> None:
    places = range(400)
    path = save(tmp_path, "all.csv", **hospital(places, site=[f"s{place % 40}" for place in places]))
    public = write(tmp_path, "public.csv", "Alter;ward\n" + "34;surg\n51;?\n67;medicine\n" * 20)
    study = drafted(tmp_path, read_files([path], "site", Decisions()), by="site", protocol="softlabel", public=public)
    assert pd.read_parquet(tmp_path / "trial" / "public.parquet")["ward"].fillna("").tolist()[:3] == [
        "surgery",
        "",
        "medicine",
    ]
    assert study.parties == 40 and study.privacy.unit == "party"
    study.plan()


def test_how_a_file_is_read_is_outside_of_the_study_s_hash_and_checked_with_it(tmp_path: Path) -> None:
    study = drafted(tmp_path, two(tmp_path, hospital(range(40)), hospital(range(30))))
    path, text = Path(study.where), Path(study.where).read_text()
    path.write_text(text.replace('path = "south.csv"', 'path = "south.csv"\nrename = {x = "y"}\nunit = {age = 2}'))
    assert Study.load(path).hash == study.hash
    path.write_text(text.replace('path = "south.csv"', 'path = "south.csv"\nunit = {age = "2"}'))
    with pytest.raises(StudyError, match=r"study.toml: simulation.data.south: unit.age: expected a number"):
        Study.load(path)
