"""The site file: what it means, and that each error names its key."""

from __future__ import annotations

import re
from decimal import Decimal

import pandas as pd
import pytest

from comity.cli import main
from comity.data import digest_records
from comity.errors import BadInput, StudyError
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.site.site_file import SiteFile
from tests.support.sites import Sites

FULL = """\
sizes_may_leave = true
joint_predictions = 7
epsilon_per_period = 2.0
period_days = 365
approval = "within-policy"
"""


def test_what_an_owner_wrote_is_its_policy(sites: Sites) -> None:
    sites.write("north", policy=FULL)
    site = SiteFile.load(sites.site("north"))
    policy = site.policy
    assert (site.party, site.approval, list(site.data)) == ("north", "within-policy", ["patients"])
    assert policy.protocols == ("averaging", "softlabel") and policy.variants == ("default",)
    assert (policy.epsilon_per_study, policy.delta_per_study) == (Decimal("1.0"), Decimal("1e-05"))
    assert policy.period is not None
    assert (policy.period.epsilon, policy.period.delta, policy.period.days) == (Decimal("2.0"), Decimal("1e-05"), 365)
    assert policy.disclosures == {"sizes_may_leave"} and policy.joint_predictions == 7
    assert policy.submitters == {"coordinator": sites.coordinator.public} and policy.approved == {}
    assert not policy.unproven


def test_what_a_policy_leaves_out_is_not_allowed(sites: Sites) -> None:
    text = sites.site("north").read_text()
    kept = re.sub(r"^(protocols|variants|submitters|delta_per_study) = .*\n", "", text, flags=re.M)
    sites.site("north").write_text(kept)
    policy = SiteFile.load(sites.site("north")).policy
    assert policy.protocols == () and policy.variants == ("default",) and policy.submitters == {}
    assert policy.delta_per_study == 0 and not policy.disclosures and policy.joint_predictions == 0


WRONG = {
    "an unknown key": ("party =", 'partys = "x"\nparty =', "partys", "did you mean party"),
    "a misspelt key of the policy": ("epsilon_per_study", "epsilon_per_studdy", "policy.epsilon_per_studdy", "did you"),
    "no ceiling": ("epsilon_per_study = 1.0", "", "policy.epsilon_per_study", "is missing"),
    "a ceiling of nothing": ("epsilon_per_study = 1.0", "epsilon_per_study = 0", "policy.epsilon_per_study", "greater"),
    "an infinite ceiling": ("epsilon_per_study = 1.0", "epsilon_per_study = inf", "policy.epsilon_per_study", "finite"),
    "a delta of one": ("delta_per_study = 1e-5", "delta_per_study = 1.0", "policy.delta_per_study", "less than 1"),
    "an unknown method": ('"softlabel"]', '"softlable"]', "policy.protocols", "did you mean softlabel"),
    "an unknown variant": ('["default"]', '["publisht"]', "policy.variants.0", "published"),
    "an unknown way to approve": (
        "delta_per_study",
        'approval = "maybe"\ndelta_per_study',
        "policy.approval",
        "by-hand",
    ),
    "a period without an end": (
        "delta_per_study",
        "epsilon_per_period = 1\ndelta_per_study",
        "policy.period_days",
        "both",
    ),
    "days of nothing": ("delta_per_study", "period_days = 9\ndelta_per_study", "policy.epsilon_per_period", "both"),
    "a submitter without keys": ('["coordinator"]', '["mallory"]', "policy.submitters", "pinned.mallory"),
    "keys that are none": ('sign = "', 'sign = "zz', "pinned.coordinator", "hexadecimal"),
    "a source of another kind": ('source = "csv"', 'source = "excel"', "data.patients.source", "unknown source"),
    "a source without a path": ('path = "patients.csv"', "", "data.patients.path", "expected a value"),
    "no dataset": ('[data.patients]\nsource = "csv"\npath = "patients.csv"', "[data]", "data", "needs a dataset"),
    "a dataset that is no table": ("[data.patients]", "[data]", "data.source", "expected a table"),
    "no party": ('party = "north"', "", "party", "is missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_whatever_is_wrong_is_named_by_its_key(sites: Sites, case: str) -> None:
    old, new, key, said = WRONG[case]
    text = sites.site("north").read_text()
    assert old in text
    sites.site("north").write_text(text.replace(old, new, 1))
    with pytest.raises(StudyError, match=said) as error:
        SiteFile.load(sites.site("north"))
    assert error.value.key == key
    assert str(error.value).startswith(str(sites.site("north"))) and "\n" not in str(error.value)


@pytest.mark.parametrize("text, said", [("party = ", "not valid TOML"), ("\0", "not valid TOML")])
def test_what_is_no_site_file_at_all(sites: Sites, text: str, said: str) -> None:
    sites.site("north").write_text(text)
    with pytest.raises(StudyError, match=said):
        SiteFile.load(sites.site("north"))
    with pytest.raises(StudyError, match="comity site init"):
        SiteFile.load(sites.folder / "nowhere.toml")


def test_no_sentence_shows_what_may_be_a_password(sites: Sites) -> None:
    text = sites.site("north").read_text()
    secret = 'source = "sql"\nurl = "postgresql://reader:hunter2@host/clinic"\ntable = "visits"'
    sites.site("north").write_text(text.replace('source = "csv"\npath = "patients.csv"', secret))
    with pytest.raises(StudyError) as error:
        SiteFile.load(sites.site("north"))
    assert "hunter2" not in str(error.value) and error.value.key == "data.patients.url"


def test_every_dataset_has_a_budget_of_its_own(sites: Sites) -> None:
    more = '[data.visits]\nsource = "csv"\npath = "patients.csv"\n'
    with sites.site("north").open("a") as file:
        file.write(more)
    with pytest.raises(StudyError, match=r"data\.visits has no budget.*comity ledger add") as error:
        SiteFile.load(sites.site("north")).owner()
    assert error.value.key == "data.visits"
    Ledger(sites.home("north") / "north.ledger").add_dataset(
        dataset="visits", grant=Approx(1, 1e-5), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    owner = SiteFile.load(sites.site("north")).owner()
    assert set(owner.datasets) == {"patients", "visits"}
    with pytest.raises(BadInput, match="did you mean visits"):
        SiteFile.load(sites.site("north")).source("visit")


def test_an_owner_s_file_in_its_own_terms_is_read_as_a_clean_one(
    sites: Sites, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same keys as in a study, and the check that an owner makes before it approves."""
    agreement, path = sites.study().agreement, sites.home("north") / "patients.csv"
    clean = SiteFile.load(sites.site("north")).records("patients", agreement)
    frame = pd.read_csv(path)
    frame = frame.rename(columns={"age": "Alter"}).assign(sex=frame["sex"].map({"f": "w", "m": "m"}))
    frame["temperature"] = (frame["temperature"] * 10).round(4)
    frame.to_csv(path, index=False, sep=";", decimal=",")
    keys = (
        'path = "patients.csv"\nseparator = ";"\ndecimal = ","\nrename = {Alter = "age"}\nrecode = {sex = {w = "f"}}\n'
    )
    text = sites.site("north").read_text().replace('path = "patients.csv"\n', keys + "unit = {temperature = 0.1}\n")
    sites.site("north").write_text(text)
    messy = SiteFile.load(sites.site("north")).records("patients", agreement)
    assert digest_records(messy) == digest_records(clean)
    study, site = str(sites.folder / "study" / "study.toml"), str(sites.site("north"))
    assert main(["schema", "check", study, "--party", "north", "--site", site]) == 0
    sites.site("north").write_text(text.replace("w = ", "x = "))
    capsys.readouterr()
    assert main(["schema", "check", study, "--party", "north", "--site", site]) == 0
    said = capsys.readouterr().out
    assert f"{site}: data.patients" in said and "sex" in said and "'w'" in said
    sites.site("north").write_text(text.replace("rename = {Alter", "rename = {Altr"))
    with pytest.raises(BadInput, match=r"data\.patients \(patients\.csv\): rename.*did you mean 'Alter'"):
        SiteFile.load(sites.site("north")).records("patients", agreement)
    sites.site("north").write_text(text.replace("temperature = 0.1", "temperature = 0"))
    with pytest.raises(StudyError) as caught:
        SiteFile.load(sites.site("north"))
    assert caught.value.key == "data.patients.unit.temperature"
