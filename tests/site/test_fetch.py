"""Results of a deployed run as its coordinator and its parties fetch them: signed, looked at, of one form."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.cli import main
from comity.cli.run_folder import begin_run, make_folder, read_manifest, write_manifest
from comity.cli.study import JOURNAL, make_manifest, save_signed
from comity.crypto.sealing import Identity
from comity.federation.coordinator.journal import Journal
from comity.federation.owner.host import Answer
from comity.federation.owner.registry import Registry
from comity.relay.deployment import connect_parties
from comity.relay.submissions import _path, find_submission, record_submission
from comity.report.result import load_result
from comity.site.results import results_folder
from comity.study.local.channel import LocalChannel
from comity.study.results.released import load_received
from comity.study.results.result import Result
from comity.study.results.signatures import _statement, sign_files
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.sites import NAMES, STUDY, Sites, approve, execute, keys_table

PUBLISHED = STUDY.replace("averaging", "synthetic").replace("delta = 1e-6\n", 'neighbours = "add-remove"\n')


def ran(sites: Sites, study: Study, out: Path) -> Path:
    """As `comity study submit` does, over the local channel."""
    services = sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    folder = make_folder(out)
    begin_run(folder, make_manifest(study.folder / "study.toml", study), study.text)
    run = read_manifest(folder).run
    record_submission(study.hash, run, study.text, sites.coordinator.public)
    parties = connect_parties(
        study, run=run, channel=LocalChannel(services), journal=Journal(folder / JOURNAL), keys=sites.coordinator
    )
    released, kept = execute(parties)
    outcome = Result.of(study.agreement, released, parties.transcript, run=run, kept=kept)
    save_signed(replace(outcome, simulated=False), folder, sites.coordinator)
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def done(sites: Sites, tmp_path: Path) -> tuple[Sites, Study, Path]:
    study = sites.study()
    return sites, study, ran(sites, study, tmp_path / "runs")


def test_a_run_is_fetched_by_its_coordinator_and_its_parties_in_the_form_of_a_simulated_one(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, folder = done
    run = read_manifest(folder).run
    assert main(["fetch", run, "--out", str(folder.parent), "--to", str(tmp_path / "mine")]) == 0
    simulated = tmp_path / "simulation"
    simulated.mkdir()
    author, researcher = 'data = "/private/of/the/author.csv"', 'data = {north = "north.csv", south = "south.csv"}'
    for name in NAMES:
        shutil.copy(sites.home(name) / "patients.csv", simulated / f"{name}.csv")
    shutil.copy(study.folder / "schema.toml", simulated)
    (simulated / "study.toml").write_text(study.text.replace(author, researcher))
    run_study(Study.load(simulated / "study.toml")).save(tmp_path / "simulated")
    same = {name for name in files(tmp_path / "simulated") if not name.startswith("parties/")} | {"study.toml"}
    assert files(tmp_path / "mine") == same
    fetched = load_result(tmp_path / "mine")
    assert fetched.run == run and fetched.guarantee.private and not fetched.simulated
    page = (tmp_path / "mine" / "report.html").read_text()
    assert not re.search(r"<tbody>\s*</tbody>", page) and "Simulated on one machine" not in page
    for name in NAMES:
        at = ["--site", str(sites.site(name)), "--to", str(tmp_path / name)]
        assert main(["fetch", run, *at]) == 0
        own = load_result(tmp_path / name)
        # What was fitted on the owner's records is not in a folder that may be passed on.
        kept = {one for one in files(tmp_path / "simulated" / "parties" / name) if not one.startswith("own/adapted/")}
        assert files(tmp_path / name) == same | {f"parties/{name}/{one}" for one in kept}
        assert "model/model.json" in files(tmp_path / f"{name}-own")
        assert own.study_hash == study.hash and own.guarantee == fetched.guarantee
        np.testing.assert_array_equal(own.released["model"], fetched.released["model"])
        np.testing.assert_array_equal(own.model.coef_, fetched.model.coef_)
        assert "gradient" not in own.released and "gradient" in fetched.released
        # An owner knows its own ledger, and neither how long the run took nor what crossed the wire.
        (account,) = own.accounts
        assert account.party == name and "eps" in account.spent and not own.simulated
        page = (tmp_path / name / "report.html").read_text()
        assert "0.0 s" not in page and "Simulated on one machine" not in page and "This owner's ledger" in page
        assert not re.search(r"<tbody>\s*</tbody>", page) and "Bytes and rounds" not in page
        assert main(["fetch", run, *at]) == 3 and "never overwritten" in capsys.readouterr().err


def test_a_file_that_was_altered_is_refused_by_its_name(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, folder = done
    run = read_manifest(folder).run
    home = results_folder(sites.home("north"), study.hash, run)
    fetches = {
        folder: ["fetch", run, "--out", str(folder.parent)],
        home: ["fetch", run, "--site", str(sites.site("north"))],
    }
    for place, words in fetches.items():
        for name in sorted(files(place) - {"run.json", JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"}):
            path = place / name
            before = path.read_bytes()
            changes = [before[:-2] + bytes([before[-2] ^ 1]) + before[-1:]]
            for change in changes if name != "report.html" else [*changes, None]:
                path.unlink() if change is None else path.write_bytes(change)
                to = tmp_path / "altered"
                assert main([*words, "--to", str(to)]) in (3, 4), name
                assert str(path) in capsys.readouterr().err and not to.exists()
                path.write_bytes(before)
        assert main([*words, "--to", str(tmp_path / place.name)]) == 0


def test_whoever_signs_for_another_or_takes_another_run_is_refused(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, folder = done
    run = read_manifest(folder).run
    words = ["fetch", run, "--out", str(folder.parent), "--to", str(tmp_path / "no")]
    for keys, of in ((sites.identity("north"), run), (sites.coordinator, "run-2")):
        sign_files(folder, ["result.json"], keys, study=study.hash, run=of)
        assert main(words) == 4 and "signed.json" in capsys.readouterr().err
    # An owner that alters what it was released can sign its files, and not the coordinator's word.
    home = results_folder(sites.home("north"), study.hash, run)
    with np.load(home / "released" / "arrays.npz") as kept:
        arrays = {name: kept[name] + (name == "model") for name in kept.files}
    np.savez(home / "released" / "arrays.npz", **arrays)
    names = [one.name for one in home.iterdir() if one.name != "signed.json"]
    sign_files(home, names, sites.identity("north"), study=study.hash, run=run)
    assert main(["fetch", run, "--site", str(sites.site("north")), "--to", str(tmp_path / "no")]) == 4
    assert "model is not what the coordinator signed" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_a_page_can_not_lead_out_of_its_folder(done: tuple[Sites, Study, Path], tmp_path: Path) -> None:
    """Whoever signs names the files; a fetch reads none outside the folder, also not for the signer."""
    sites, study, folder = done
    run, to = read_manifest(folder).run, tmp_path / "no"
    secret = folder.parent / "secret"
    secret.write_text("x")
    (folder / "link").symlink_to(secret)
    x, nothing = (hashlib.sha256(content).hexdigest() for content in (b"x", b""))
    page = json.loads((folder / "signed.json").read_text())
    signed = dict(page["files"])
    for name, digest in (("../secret", x), (str(secret), x), ("link", x), ("link", nothing), ("missing", nothing)):
        listed = signed | {name: digest}
        signature = sites.coordinator.sign(_statement(study.hash, run, listed))
        page.update(files=listed, signature=signature.hex())
        (folder / "signed.json").write_text(json.dumps(page))
        assert main(["fetch", run, "--out", str(folder.parent), "--to", str(to)]) == 4 and not to.exists()


@pytest.mark.parametrize("files", [{"\ud800": "0"}, {"model": 1}, {"model": None}, ["model"]])
def test_a_list_of_files_that_is_none_is_bad_data(done: tuple[Sites, Study, Path], tmp_path: Path, files: Any) -> None:
    _, _, folder = done
    page = json.loads((folder / "signed.json").read_text())
    (folder / "signed.json").write_text(json.dumps(page | {"files": files}))
    run, to = read_manifest(folder).run, tmp_path / "no"
    assert main(["fetch", run, "--out", str(folder.parent), "--to", str(to)]) == 3 and not to.exists()


def test_a_folder_does_not_say_itself_who_signed_it(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger pins its own key in the folder's study and signs everything with it."""
    sites, study, folder = done
    run, stranger, to = read_manifest(folder).run, Identity(), tmp_path / "fetched"
    honest, forged = tmp_path / "honest", tmp_path / "forged"
    shutil.copytree(folder, honest)
    theirs, ours = stranger.public.to_texts(), sites.coordinator.public.to_texts()
    text = study.text
    for name, key in ours.items():
        assert key in text
        text = text.replace(key, theirs[name])
    own_keys, strangers_keys = tmp_path / "coordinator.toml", tmp_path / "stranger.toml"
    own_keys.write_text(keys_table(sites.coordinator))
    strangers_keys.write_text(keys_table(stranger))
    folder_words = ["fetch", str(folder), "--to", str(to)]

    def sign_as(keys: Identity, *, of: str) -> None:
        sign_files(
            folder, ["result.json", "transcript.json", "study.toml", "released", "model"], keys, study=of, run=run
        )

    (folder / "study.toml").write_text(text)
    sign_as(stranger, of=study.hash)
    assert main(folder_words) == 4 and "signed.json: has no valid signature" in capsys.readouterr().err
    assert main([*folder_words, "--keys", str(strangers_keys)]) == 4 and "with other keys" in capsys.readouterr().err
    # The folder's own word about the study's hash counts as little.
    other = Study.parse(text, folder=study.folder).hash
    write_manifest(folder, replace(read_manifest(folder), study_hash=other))
    sign_as(stranger, of=other)
    assert main(folder_words) == 4 and f"submitted as study {study.hash[:12]}" in capsys.readouterr().err
    # Signed by the coordinator itself, a study that was not submitted is refused too.
    write_manifest(folder, replace(read_manifest(folder), study_hash=study.hash))
    sign_as(sites.coordinator, of=study.hash)
    assert main(folder_words) == 4 and "not the study that was submitted" in capsys.readouterr().err
    assert not to.exists()
    # Elsewhere nobody knows the run: the keys come with the command, never with the folder.
    shutil.copytree(folder, forged)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "another machine"))
    assert find_submission(run) is None
    for place in (honest, forged):
        words = ["fetch", str(place), "--to", str(tmp_path / f"{place.name}-fetched")]
        assert main(words) == 4 and "--keys FILE" in capsys.readouterr().err
        assert (
            main([*words, "--keys", str(strangers_keys)]) == 4 and "has no valid signature" in capsys.readouterr().err
        )
    assert main(["fetch", str(honest), "--to", str(to), "--keys", str(own_keys)]) == 0
    assert load_result(to).study_hash == study.hash


def test_a_damaged_note_of_a_submission_vouches_for_nothing(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, folder = done
    to = tmp_path / "no"
    note = _path(read_manifest(folder).run)
    for left in ("", "{", "[]", '{"format": "comity-submission-1"}', "[" * 100_000):
        note.write_text(left)
        assert main(["fetch", str(folder), "--to", str(to)]) == 3
        assert "record of a submission" in capsys.readouterr().err and not to.exists()


def test_a_result_of_another_run_is_refused_though_its_coordinator_signed_it(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites, study, folder = done
    page = json.loads((folder / "result.json").read_text())
    for change in ({"run": "another"}, {"study_hash": "ab" * 32}):
        (folder / "result.json").write_text(json.dumps({**page, **change}))
        names = ["result.json", "transcript.json", "study.toml", "released", "model"]
        sign_files(folder, names, sites.coordinator, study=study.hash, run=read_manifest(folder).run)
        assert main(["fetch", str(folder), "--to", str(tmp_path / "no")]) == 4
        assert "is not the result of run" in capsys.readouterr().err and not (tmp_path / "no").exists()


NOTHING = hashlib.sha256(b"").hexdigest()


def resign(sites: Sites, study: Study, folder: Path, files: dict[str, str]) -> None:
    """The page of a result as a signer with another program would write it."""
    page = json.loads((folder / "signed.json").read_text())
    page.update(files=files, signature=sites.coordinator.sign(_statement(study.hash, page["run"], files)).hex())
    (folder / "signed.json").write_text(json.dumps(page))


def test_a_fetch_empties_no_file_outside_its_folder(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be read is missing, and missing is not empty: nothing is written under a name that leads elsewhere."""
    sites, study, folder = done
    to, victim, beside = tmp_path / "no", tmp_path / "victim.toml", tmp_path / "precious"
    for one in (victim, beside):
        one.write_text("precious")
    (folder / "link").symlink_to(victim)
    (folder / "way").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    names = [str(victim), "../precious", f"{folder}/../../precious", "link", "way/precious", "pipe", "missing"]
    odd = ["a/../result.json", "./result.json", "", ".", "..", "a\\b", "a\0b", "a\x1b[2Jb", "re\u202esult", "released"]
    for name in (*names, *odd):
        resign(sites, study, folder, {name: NOTHING})
        assert main(["fetch", str(folder), "--to", str(to)]) == 4, name
        said = capsys.readouterr().err
        assert not to.exists() and "\x1b" not in said and "\u202e" not in said and said.count("\n") == 1
        assert victim.read_text() == beside.read_text() == "precious", name
    resign(sites, study, folder, {"result.json": NOTHING})
    assert main(["fetch", str(folder), "--to", str(to)]) == 4 and "result.json: was altered" in capsys.readouterr().err


def test_runs_are_listed_with_state_and_cost(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, study, folder = done
    out = folder.parent
    waiting = make_folder(out)
    begin_run(waiting, make_manifest(study.folder / "study.toml", study), study.text)
    (out / "other").mkdir()
    capsys.readouterr()
    assert main(["runs", "--out", str(out), "--json"]) == 0
    found = {Path(one["folder"]).name: one for one in json.loads(capsys.readouterr().out)["runs"]}
    assert set(found) == {folder.name, waiting.name}
    one = found[folder.name]
    assert (one["state"], one["study"], one["parties"], one["where"]) == ("done", "readmission", 2, "deployed")
    assert one["hash"] == study.hash and "eps 0.90" in one["cost"] and one["when"].startswith("20")
    assert (found[waiting.name]["state"], found[waiting.name]["cost"]) == ("waiting", None)
    assert main(["fetch", found[waiting.name]["run"], "--out", str(out), "--to", str(tmp_path / "no")]) == 5
    write_manifest(waiting, replace(read_manifest(waiting), deployed=False, refused="no"))
    assert main(["runs", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "refused" in text and "simulated" in text and read_manifest(folder).run in text
    assert main(["fetch", read_manifest(waiting).run, "--out", str(out), "--to", str(tmp_path / "no")]) == 3
    assert main(["fetch", "nothing", "--out", str(out)]) == 3
    assert main(["runs", "--out", str(tmp_path / "empty")]) == 0


def test_what_stays_with_an_owner_is_in_its_results_and_in_no_message(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner's own model, trained on its records as they are and on what was shared."""
    for name in NAMES:
        path = sites.site(name)
        page = path.read_text().replace('"softlabel"]', '"synthetic"]').replace('["default"]', '["published"]')
        path.write_text(page)
    seen: list[bytes] = []
    answered = Registry.answer

    def listening(self: Registry, raw: bytes) -> Answer:
        answer = answered(self, raw)
        seen.extend([raw, answer.reply])
        return answer

    monkeypatch.setattr(Registry, "answer", listening)
    study = sites.study(epsilon=0.3, text=PUBLISHED, table='variant = "published"\ndepth = 4\nlevels = 3')
    folder = ran(sites, study, tmp_path / "runs")
    run, crossed = read_manifest(folder).run, b"".join(seen)
    models = {}
    for name in NAMES:
        home = results_folder(sites.home(name), study.hash, run)
        found, _ = load_received(home)
        models[name] = found.own["model"]["coef"] if isinstance(found.own["model"], dict) else found.own["model"]
        assert (home / "own" / "model").is_dir()
        # Positive control: what is shared is found.
        assert all(rows.tobytes()[:64] in crossed for rows in found.releases["datasets"].values())
    values = {name: np.ascontiguousarray(model).tobytes() for name, model in models.items()}
    assert len(set(values.values())) == len(NAMES)
    for name, raw in values.items():
        assert raw[:16] not in crossed
        for place in (*(sites.home(other) for other in NAMES if other != name), folder):
            written = [path for path in place.rglob("*") if path.is_file() and raw[:16] in path.read_bytes()]
            assert not written, written
        assert any(raw[:16] in path.read_bytes() for path in sites.home(name).rglob("*") if path.is_file())


def test_what_a_folder_says_of_its_run_is_checked_before_it_is_used(
    done: tuple[Sites, Study, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, folder = done
    path = folder / "run.json"
    before = path.read_text()
    pages = [json.dumps({**json.loads(before), key: value}) for key, value in WRONG]
    for text in [*pages, "[" * 100_000, "[]", "null", '"x"']:
        path.write_text(text)
        for words in (["fetch", str(folder), "--to", str(tmp_path / "no")], ["runs", "--out", str(folder.parent)]):
            code = main(words)
            said = capsys.readouterr().err
            assert code in (0, 3) and "defect" not in said, (words, text[:200])
        assert not (tmp_path / "no").exists() and main(["run", "--resume", str(folder)]) == 3
        capsys.readouterr()


WRONG: list[tuple[str, object]] = [
    *product(("run", "study_hash"), (5, None, (), {"x": 1}, True, "\ud800")),
    ("seed", "7"),
    ("parties", True),
    ("overrides", []),
    ("refused", 3),
    ("deployed", "yes"),
]
