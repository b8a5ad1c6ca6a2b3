"""`comity site`, `comity study pack`: an owner's and a coordinator's commands, from nothing to an approved study."""

from __future__ import annotations

import io
import os
import re
import tomllib
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.crypto import key_file
from comity.crypto.public_block import PublicBlock
from comity.data import clinic_schema, clinics
from comity.errors import Refused
from comity.privacy.ledger import Ledger
from comity.site.inbox import Arrival, Decision
from comity.site.service import ENDPOINTS, SiteService
from comity.site.site_file import SiteFile
from comity.site.status import Refusals, open_refusals
from tests.support.sites import NAMES, Sites, connect_services, execute, write_invitation

COMMANDS = [["site", name] for name in ("init", "receive", "inbox", "approve", "refuse", "serve", "status", "end")]
COMMANDS += [["study", "pack"], ["ledger", "add"]]


@pytest.mark.parametrize("command", [["site"], ["study"], *COMMANDS], ids=" ".join)
def test_every_help_page_has_an_example_and_every_command_a_json_form(comity: Any, command: list[str]) -> None:
    ended = comity(*command, "--help")
    assert ended.code == 0 and f"comity {' '.join(command)}" in " ".join(ended.out.split("Example", 1)[1].split())
    assert "--json" in ended.out or len(command) == 1


@pytest.fixture
def owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records, a schema and the coordinator's public keys."""
    monkeypatch.chdir(tmp_path)
    next(iter(clinics(1, 30, "site").values())).to_csv("patients.csv", index=False)
    Path("schema.toml").write_text(clinic_schema("readmitted").to_toml())
    return tmp_path


INIT = ["site", "init", "--party", "north", "--dataset", "patients", "--data", "patients.csv", "--epsilon", "3"]
INIT += ["--protocols", "vertical, averaging"]


def test_init_writes_a_site_with_keys_and_a_ledger(comity: Any, owned: Path) -> None:
    comity("keys", "new", "coordinator.key")
    Path("coordinator.toml").write_text(comity("keys", "show", "coordinator.key", "--party", "coordinator").out)
    assert set(tomllib.loads(Path("coordinator.toml").read_text())) == {"coordinator"}
    more = ["--schema", "schema.toml", "--submitter", "coordinator=coordinator.toml", "--epsilon-per-study", "0.9"]
    period = ["--epsilon-per-period", "2", "--period-days", "365", "--invitation", "hospitals.toml"]
    ended = comity(*INIT, *more, *period, "--json")
    assert ended.code == 0, ended.err
    site = SiteFile.load("site.toml")
    assert site.policy.protocols == ("vertical", "averaging") and site.approval == "by-hand"
    assert site.policy.period is not None and site.policy.period.days == 365
    assert site.policy.submitters == {"coordinator": key_file.load(Path("coordinator.key")).public}
    assert str(site.policy.epsilon_per_study) == "0.9" and site.policy.delta_per_study > 0
    assert ended.document["keys"] == key_file.load(Path("north.keys")).to_texts()
    assert site.invitation == Path("hospitals.toml").resolve()
    block = PublicBlock.load(Path("north.toml"))
    assert (block.name, block.identity) == ("north", key_file.load(Path("north.keys")).public)
    assert [account.dataset for account in Ledger("north.ledger").summary()] == ["patients"]
    for name in ("site.toml", "north.keys"):
        assert Path(name).stat().st_mode & 0o077 == 0
    again = comity(*INIT)
    assert again.code == 3 and "already" in again.err
    # A further site file beside it takes the keys and the ledger that are there.
    assert comity(*INIT, "--site", "second.toml").code == 0
    assert len(Ledger("north.ledger").entries()) == 1


WRONG: dict[str, tuple[list[str], int, str]] = {
    "a file that is not there": (["--data", "patient.csv"], 3, "patients.csv"),
    "an unknown method": (["--protocols", "verticle"], 3, "did you mean vertical"),
    "half a period": (["--period-days", "3"], 3, "epsilon_per_period"),
    "an epsilon that is none": (["--epsilon", "much"], 3, "much"),
    "a submitter without a file": (["--submitter", "coordinator"], 2, "NAME=FILE"),
    "keys that are none": (["--submitter", "coordinator=schema.toml"], 3, "comity keys show"),
    "another way to approve": (["--approval", "never"], 3, "policy.approval"),
}


@pytest.mark.parametrize("case", WRONG)
def test_init_says_what_is_wrong_before_it_makes_anything(comity: Any, owned: Path, case: str) -> None:
    flags, code, said = WRONG[case]
    before = set(owned.iterdir())
    ended = comity(*INIT, *flags)
    assert ended.code == code and said in ended.err and ended.err.count("\n") == 1
    assert set(owned.iterdir()) == before


def test_init_checks_records_against_a_schema(comity: Any, owned: Path) -> None:
    lines = Path("patients.csv").read_text().splitlines()
    Path("patients.csv").write_text("\n".join([lines[0].replace("readmitted", "returned"), *lines[1:]]))
    ended = comity(*INIT, "--schema", "schema.toml")
    assert ended.code == 3 and "does not fit schema.toml" in ended.err and not Path("site.toml").exists()
    assert comity(*INIT).code == 0, "without a schema they are opened and no more"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_init_asks_for_what_no_flag_gave(comity: Any, owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = comity("site", "init")
    assert ended.code == 2 and "--party is missing" in ended.err
    monkeypatch.setattr("sys.stdin", Terminal("north\npatients\npatients.csv\nschema.toml\n2.5\naveraging\n"))
    ended = comity("site", "init")
    assert ended.code == 0, ended.err
    assert "Your name in studies" in ended.out and "Send north.toml" in ended.out
    assert SiteFile.load("site.toml").policy.protocols == ("averaging",)
    assert str(Ledger("north.ledger").summary()[0].left) == "2.5"


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites.make(tmp_path)


def test_from_a_packed_study_to_its_results(comity: Any, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    study = sites.study()
    pack = sites.folder / "readmission.study"
    made = comity("study", "pack", study.where, "--keys", sites.folder / "coordinator.key", "--out", pack, "--json")
    assert made.code == 0 and made.document["hash"] == study.hash and made.document["parties"] == list(NAMES)
    assert comity("study", "pack", study.where, "--keys", sites.folder / "coordinator.key", "--out", pack).code == 3
    monkeypatch.chdir(sites.home("north"))
    assert comity("site", "inbox").out == "no study has arrived\n"
    arrived = comity("site", "receive", pack)
    assert arrived.code == 0 and "waits for you" in arrived.out
    listed = comity("site", "inbox")
    assert "new" in listed.out and study.hash[:12] in listed.out
    short = study.hash[:6]
    one = comity("site", "inbox", short)
    assert one.code == 0 and "what leaves north" in one.out and "left           eps 3.00 now" in one.out
    assert [found["read"] for found in comity("site", "inbox", "--json").document["studies"]] == [True]

    # Nobody is asked where nobody is there; who is asked may say no.
    asked = comity("site", "approve", short)
    assert asked.code == 2 and "--yes" in asked.err
    assert comity("site", "approve", short, "--json").code == 2
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    declined = comity("site", "approve", short)
    assert declined.code == 4 and "secure sum + shared noise" in declined.out
    assert "waits for you" in comity("site", "inbox").out
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    said = comity("site", "approve", short, "--dataset", "patients", "--runs", "1")
    assert said.code == 0 and f"approved: readmission {study.hash[:12]} for patients, 1 run in all" in said.out
    for name in NAMES[1:]:
        there = ["--site", sites.site(name)]
        assert comity("site", "receive", pack, *there).code == 0
        view = comity("site", "approve", short, "--yes", "--json", *there).document["view"]
        assert view["cost"].startswith("eps ") and view["left_before"] == "eps 3.00" and view["plan"]["parties"] == 2

    execute(connect_services(study, sites.services(), sites.coordinator))
    status = comity("site", "status")
    assert status.code == 0 and "closed" in status.out and "spent" in status.out
    second = connect_services(study, sites.services(), sites.coordinator, run="run-2")
    with pytest.raises(Exception, match="approval"):
        execute(second)
    page = comity("site", "status", "--json").document
    assert [run["run"] for run in page["runs"]] == ["run-1"]
    assert page["refusals"][-1]["code"] == "approval" and page["refusals"][-1]["run"] == "run-2"
    assert "approved for 1 run here" in comity("site", "status").out


def test_the_parties_of_a_study_are_listed_also_where_the_policy_rules_it_out(comity: Any, sites: Sites) -> None:
    study, here = sites.study(), ["--site", sites.site("north")]
    (sites.folder / "study.zip").write_bytes(sites.pack(study))
    assert comity("site", "receive", sites.folder / "study.zip", *here).code == 0
    path = sites.site("north")
    path.write_text(re.sub(r"epsilon_per_study *= *\S+", "epsilon_per_study = 0.1", path.read_text()))
    shown = comity("site", "inbox", study.hash[:8], *here)
    assert shown.code == 4 and "epsilon_per_study" in shown.err
    for name in NAMES:
        assert name in shown.out and sites.identity(name).public.fingerprint in shown.out
    assert comity("site", "inbox", study.hash[:8], "--json", *here).code == 4


def test_a_decision_names_who_decided(comity: Any, sites: Sites) -> None:
    study, here = sites.study(), ["--site", sites.site("north")]
    (sites.folder / "study.zip").write_bytes(sites.pack(study))
    assert comity("site", "receive", sites.folder / "study.zip", *here).code == 0
    for wrong in ("two\nlines", "x" * 201):
        assert comity("site", "approve", study.hash[:12], "--yes", "--by", wrong, *here).code == 2
    assert "waits for you" in comity("site", "inbox", *here).out
    office = "the data office \u202e"
    said = comity("site", "approve", study.hash[:12], "--yes", "--by", office, *here)
    assert said.code == 0 and ", by the data office \\u202e" in said.out and "\u202e" not in said.out
    status = comity("site", "status", *here)
    assert "1 run, by the data office" in status.out and "\u202e" not in status.out
    assert comity("site", "status", "--json", *here).document["studies"][0]["decision"]["by"] == office.strip()
    assert comity("site", "refuse", study.hash[:12], "--by", "the board", "--why", "too early", *here).code == 0
    assert "refused, by the board: too early" in comity("site", "status", *here).out


def test_a_refusal_that_an_approval_settled_is_no_longer_in_the_status(comity: Any, sites: Sites) -> None:
    study, here = sites.study(), ["--site", sites.site("north")]
    (sites.folder / "study.zip").write_bytes(sites.pack(study))
    assert comity("site", "receive", sites.folder / "study.zip", *here).code == 0
    waiting = Refused("refused: the study waits for an approval", code="approval")
    now = datetime.now(UTC)
    for seconds, of in ((-60, study.hash), (-50, "f" * 64), (60, study.hash)):
        noted = Refusals(sites.home("north"), clock=partial(now.__add__, timedelta(seconds=seconds)))
        noted.record(waiting, study=of, run=f"at {seconds}")
    before = comity("site", "status", "--json", *here).document["refusals"]
    assert [one["run"] for one in before] == ["at -60", "at -50", "at 60"]
    assert comity("site", "approve", study.hash[:12], "--yes", *here).code == 0
    shown = comity("site", "status", "--json", *here)
    assert shown.code == 0, shown.err
    after = shown.document["refusals"]
    # What another study was refused stays, and what this one is refused from now on.
    assert [one["run"] for one in after] == ["at -50", "at 60"]
    assert comity("site", "status", *here).out.count("waits for an approval") == 2
    assert comity("site", "status", "--refusals", 0, "--json", *here).document["refusals"] == []


def test_a_refusal_in_the_second_of_an_approval_is_sorted_by_its_moment(sites: Sites) -> None:
    study = sites.study()
    moment = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
    approved = Decision("approved", moment.isoformat(timespec="milliseconds"), "patients", 1)
    arrival = Arrival(study.hash, "readmission", "averaging", "coordinator", approved.when, True, approved)
    for milliseconds in (-1, 1):
        noted = Refusals(sites.home("north"), clock=partial(moment.__add__, timedelta(milliseconds=milliseconds)))
        noted.record(Refused("refused", code="approval"), study=study.hash, run=f"at {milliseconds}")
    assert [one.run for one in open_refusals(Refusals(sites.home("north")), [arrival], 5)] == ["at 1"]


def test_init_takes_a_csv_file_of_another_dialect(comity: Any, owned: Path) -> None:
    table = pd.read_csv("patients.csv")
    table.to_csv("patients.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    told = comity(*INIT, "--schema", "schema.toml")
    assert told.code == 3 and "separator" in told.err and not Path("site.toml").exists()
    flags = ["--separator", ";", "--decimal", ",", "--encoding", "latin-1"]
    assert comity(*INIT, "--schema", "schema.toml", *flags).code == 0
    source = SiteFile.load("site.toml").data["patients"]
    assert {"separator": ";", "decimal": ",", "encoding": "latin-1"}.items() <= dict(source).items()
    assert len(SiteFile.load("site.toml").source("patients").read()) == len(table)


def test_refuse_and_end(comity: Any, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    study = sites.study()
    (sites.folder / "pack").write_bytes(sites.pack(study))
    for name in NAMES:
        there = ["--site", sites.site(name)]
        comity("site", "receive", sites.folder / "pack", *there)
        assert comity("site", "approve", study.hash, "--yes", *there).code == 0
    parties = connect_services(study, sites.services(), sites.coordinator)
    parties.progress = lambda path: parties.cancel() if path == "gradient[0]" else None
    with pytest.raises(Exception, match="cancelled"):
        execute(parties)
    monkeypatch.chdir(sites.home("north"))
    refused = comity("site", "refuse", study.hash[:8], "--why", "no legal basis yet", "--json")
    assert refused.code == 0 and refused.document["open_runs"] == ["run-1"]
    assert "refused: no legal basis yet" in comity("site", "inbox").out
    assert SiteService("site.toml").studies == ()
    unknown = comity("site", "end", "run-9", "--yes")
    assert unknown.code == 3 and f"open are: {study.hash[:12]}/run-1" in unknown.err
    assert comity("site", "end", "run-1").code == 2
    ended = comity("site", "end", "run-1", "--yes", "--json")
    assert ended.code == 0 and float(ended.document["accounts"][0]["reserved_epsilon"]) == 0
    assert float(ended.document["accounts"][0]["spent_epsilon"]) > 0
    assert comity("site", "end", "run-1", "--yes").code == 3


def test_what_is_refused_or_wrong_ends_with_its_code_and_one_sentence(comity: Any, sites: Sites) -> None:
    site = sites.site("north")
    pack = sites.folder / "pack"
    pack.write_bytes(sites.pack(sites.study()))
    there = ["--site", site]
    assert comity("site", "receive", sites.folder / "nothing", *there).code == 3
    comity("site", "receive", pack, *there)
    dear = sites.study(epsilon=2.0, at="dear")
    pack.write_bytes(sites.pack(dear))
    comity("site", "receive", pack, *there)
    failed = comity("site", "approve", dear.hash, "--yes", "--json", *there)
    assert failed.code == 4 and failed.failure["code"] == "policy" and failed.failure["key"] == "epsilon_per_study"
    assert comity("site", "approve", "ffffffff", "--yes", *there).code == 3
    assert comity("site", "approve", dear.hash, "--dataset", "visits", "--yes", *there).code == 3
    serving = comity("site", "serve", *there, "--json")
    assert serving.code == 3 and serving.failure["key"] == "invitation"
    pack.write_bytes(b"no study")
    assert comity("site", "receive", pack, *there).code == 4
    site.write_text(site.read_text().replace("[policy]", "[polici]"))
    for command in (
        ["inbox"],
        ["status"],
        ["serve"],
        ["end", "x", "--yes"],
        ["refuse", "ffff"],
        ["receive", str(pack)],
    ):
        ended = comity("site", *command, *there)
        assert ended.code == 3 and "polici" in ended.err and ended.err.count("\n") == 1, command


def test_serve_joins_the_desk_to_the_engine_of_its_address(
    comity: Any, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[SiteService] = []

    class Engine:
        def serve(self, service: SiteService) -> None:
            served.append(service)

    monkeypatch.setitem(ENDPOINTS, "here", lambda site: Engine())
    sites.write("north", top=write_invitation(sites.home("north"), "here://x"))
    ended = comity("site", "serve", "--site", sites.site("north"), "--json")
    assert ended.code == 0 and ended.document == {"party": "north", "serving": []} and len(served) == 1


def test_a_ledger_takes_a_further_dataset(comity: Any, sites: Sites) -> None:
    path = sites.home("north") / "north.ledger"
    ended = comity("ledger", "add", path, "--dataset", "visits", "--epsilon", "1", "--delta", "1e-5", "--json")
    assert [account["dataset"] for account in ended.document["accounts"]] == ["patients", "visits"]
    assert comity("ledger", "add", path, "--dataset", "visits", "--epsilon", "1").code == 3


def test_help_of_a_site_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    script = "import sys; from comity.cli import main; main(['site', 'init', '--help']); print('pandas' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout.strip().endswith("False")


def test_a_malformed_decision_is_no_defect_of_the_program(comity: Any, sites: Sites) -> None:
    service = SiteService(sites.site("north"))
    arrival = service.take_in(sites.pack(sites.study()))
    path = service.inbox.folder / arrival.study / "decision.json"
    service.inbox.approve(arrival.study, dataset="patients", runs=1)
    path.write_text(path.read_text().replace('"runs": 1', '"runs": "3"'))
    for command in ("inbox", "status"):
        ended = comity("site", command, "--site", sites.site("north"))
        assert ended.code == 3 and "runs must be a whole number, found '3'" in ended.err, ended.err
        assert ended.err.count("\n") == 1
