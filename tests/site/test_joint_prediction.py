"""Joint prediction between owners with site files: approved like a study, by the released model alone, no peeking."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.cli import main
from comity.errors import Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.replies import PartyValues
from comity.federation.messages.ask import Ask
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.owner.host import Answer
from comity.federation.owner.registry import Registry
from comity.learn.classifiers import LinearClassifier
from comity.site.approval import preview_approval
from comity.site.status import Refusals
from comity.study.prediction import read_weights, weights_text
from comity.study.records.party_data import load_party_data
from comity.study.study import Study
from tests.support.column_sites import NEW, ColumnSites
from tests.support.sites import approve, connect_services, execute, keys_table
from tests.support.witnesses import witnesses_in

pytestmark = pytest.mark.usefixtures("packs_read_here")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Sites where a study has released its model, to be copied."""
    folder = tmp_path_factory.mktemp("columns")
    with witnesses_in(folder / "home"):
        return folder, ColumnSites.make_columns(folder / "sites").train()


@pytest.fixture
def columns(trained: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ColumnSites, Any]:
    folder, coef = trained
    # A ledger that is closed while it is copied takes its log away.
    gc.collect()
    shutil.copytree(folder, tmp_path / "all")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "all" / "home"))
    home = tmp_path / "all" / "sites"
    return ColumnSites(home, ColumnSites.load(home).coordinator, tuple(ColumnSites.names)), coef


def approved(sites: ColumnSites, study: Study) -> dict[str, Any]:
    services = sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)), dataset="new")
    return services


def wanted(study: Study, coef: Any, new: pd.DataFrame) -> pd.Series:
    model = LinearClassifier(coef[None, :], classes=("no", "yes"), encoding=cast(Any, study.protocol).encoding)
    return pd.Series(model.predict(new), index=new["person"])


def test_the_receiver_alone_has_predictions_beside_its_identifiers_as_often_as_approved(columns: Any) -> None:
    sites, coef = columns
    study = sites.prediction(coef)
    services = approved(sites, study)
    spent = {name: str(service.site.owner().ledger.summary()[0].spent) for name, service in services.items()}
    values, _ = execute(connect_services(study, services, sites.coordinator))
    assert values["scores"].shape == (NEW,)
    (table,) = sites.home("north").glob(f"results/{study.hash[:12]}-*/table/table.csv")
    found = pd.read_csv(table).set_index("person")
    expected = wanted(study, coef, sites.new)
    assert (found.loc[expected.index, "predicted"] == expected).all() and len(found) == NEW
    for name in ("south", "west"):
        (results,) = sites.home(name).glob(f"results/{study.hash[:12]}-*")
        page = json.loads((results / "received.json").read_text())
        assert page["presented"] is None and page["own"] == [] and "scores" not in page["released"]
    with pytest.raises(Refused) as refusal:
        execute(connect_services(study, services, sites.coordinator, run="run-2"))
    assert refusal.value.code == "approval"
    # It draws nothing, and so it costs nothing in epsilon.
    assert spent == {name: str(service.site.owner().ledger.summary()[0].spent) for name, service in services.items()}


def test_what_crosses_is_what_was_declared(columns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ask and reply as it is inside its box: names that were declared, no partial score, no score. What the
    coordinator opens of one party is masked, and the sum of all of them is the scores."""
    sites, coef = columns
    study = sites.prediction(coef)
    seen: list[tuple[str, bytes, bytes]] = []
    opened: dict[str, Any] = {}
    answered, ask = Registry.answer, Parties.ask

    def opening(self: Parties, *words: Any, **more: Any) -> dict[str, PartyValues]:
        got = ask(self, *words, **more)
        opened.update({party: values["masked"] for party, values in got.items() if "masked" in values})
        return got

    def listening(self: Registry, raw: bytes) -> Answer:
        answer = answered(self, raw)
        seen.append((self.party, raw, answer.reply))
        return answer

    monkeypatch.setattr(Registry, "answer", listening)
    monkeypatch.setattr(Parties, "ask", opening)
    services = approved(sites, study)
    values, _ = execute(connect_services(study, services, sites.coordinator))
    protocol, consortium = study.protocol, study.consortium
    declared = {
        one.name
        for mount in study.agreement.mounts
        for one in (study.agreement.declared(mount).releases if mount else protocol.declare(consortium).releases)
    }
    for party, raw, reply in seen:
        asked, given = Ask.parse(raw[:-SIGNATURE_BYTES]), decode(reply[:-SIGNATURE_BYTES])
        names = {*asked.values, *given.get("ok", {})}
        assert names <= declared, (party, names - declared)
    crossed = b"".join(raw + reply for _, raw, reply in seen)
    new = sites.new
    for party in sites.names:
        encoded = protocol.encoding_of(party).encode(new).records.features
        exact = np.rint(np.clip(encoded, -1, 1) @ protocol.weights_of(party) * 2.0**24).astype(np.int64)
        # What a party adds is sealed to the coordinator, and no number of it crosses in clear, of any record.
        assert exact.any() and not any(one.tobytes() in crossed for one in exact if abs(int(one)) > 1 << 16)
    # The scores go to the receiver in a box for its key of the run, and to no other party at all.
    assert not any(one.tobytes() in crossed for one in np.asarray(values["scores"]))
    assert set(opened) == set(sites.names)
    # No partial score is above the sum of all weights; a uniform word is below it with a chance of 2^-36.
    most = int(2.0**24 * (np.abs(coef).sum() + 1))
    assert all((np.abs(words.view(np.int64)) > most).all() for words in opened.values())
    total = sum(opened.values(), np.zeros(NEW, np.uint64)).view(np.int64) * 2.0**-24 + coef[-1]
    np.testing.assert_allclose(total, values["scores"])


def test_weights_of_the_coordinators_own_choice_are_refused_before_an_approval(columns: Any) -> None:
    """Weights that are zero but for one column would make every score that column of one owner, exactly."""
    sites, coef = columns
    peeking = np.zeros_like(coef)
    peeking[1] = 1.0
    study = sites.prediction(peeking)
    service = sites.services()["south"]
    arrival = service.take_in(sites.pack(study))
    with pytest.raises(Refused, match="are not those that run trained-1 released") as refusal:
        approve(service, arrival, dataset="new")
    assert (refusal.value.code, refusal.value.key) == ("study", "prediction.weights")
    # Nor is it served where its owner's decision got there by another way.
    service.inbox.approve(study.hash, dataset="new", runs=1)
    service.refresh()
    assert study.hash not in service.studies
    assert "are not those that run" in Refusals(sites.home("south")).last(1)[0].sentence


def test_a_model_that_was_not_released_here_or_has_other_columns_is_refused(columns: Any) -> None:
    """With columns swapped, a weight would belong to another one."""
    sites, coef = columns
    study = sites.prediction(coef)
    changes = {
        'run = "trained-1"': ('run = "another"', "prediction.run"),
        f'of = "{sites.training_study().hash}"': (f'of = "{"0" * 64}"', "prediction.of"),
        '["place", "sex"]': ('["sex", "place"]', "prediction.of"),
    }
    service, path = sites.services()["south"], study.folder / "study.toml"
    for find, (put, key) in changes.items():
        assert find in study.text
        path.write_text(study.text.replace(find, put))
        arrival = service.take_in(sites.pack(Study.load(path)))
        with pytest.raises(Refused) as refusal:
            approve(service, arrival, dataset="new")
        assert (refusal.value.code, refusal.value.key) == ("study", key)


def test_a_policy_that_forbids_it_refuses_with_a_code_and_its_owner_reads_why(columns: Any) -> None:
    sites, coef = columns
    study = sites.prediction(coef)
    for allowed in (0, NEW - 1):
        sites.terms("south", allowed=allowed)
        service = sites.services()["south"]
        with pytest.raises(Refused, match=f"policy.joint_predictions is {allowed}") as refusal:
            service.take_in(sites.pack(study))
        assert (refusal.value.code, refusal.value.key) == ("policy", "joint_predictions")
        assert not [one for one in service.inbox.arrivals() if one.study == study.hash]
        last = Refusals(sites.home("south")).last(1)[0]
        assert last.code == "policy" and f"policy.joint_predictions is {allowed}" in last.sentence


def test_terms_that_became_narrower_after_the_approval_refuse_the_run(columns: Any) -> None:
    sites, coef = columns
    study = sites.prediction(coef)
    services = approved(sites, study)
    sites.terms("south", allowed=0)
    with pytest.raises(Refused) as refusal:
        execute(connect_services(study, services, sites.coordinator))
    assert (refusal.value.code, refusal.value.key, refusal.value.party) == ("policy", "joint_predictions", "south")
    assert "scores up to 40 new records jointly and exactly" in Refusals(sites.home("south")).last(1)[0].sentence


def test_it_waits_for_its_owner_also_where_the_policy_decides(columns: Any) -> None:
    """Another number of records is another study: approved by terms alone, the number would bound nothing."""
    sites, coef = columns
    sites.terms("south", more='approval = "within-policy"')
    # With one dataset, which is the only reason for which terms alone could not decide.
    text = sites.site("south").read_text()
    text = text.replace('[data.patients]\nsource = "csv"\npath = "patients.csv"\n', "")
    # And with everybody pinned, so that no unknown party is the reason either.
    others = [name for name in sites.names if name != "south"]
    text += "".join(f"\n[pinned.{name}]\n{keys_table(sites.identity(name))}\n" for name in others)
    sites.site("south").write_text(text)
    assert sites.services()["south"].take_in(sites.pack(sites.prediction(coef))).decision is None


def test_an_owner_reads_what_would_leave_exactly(columns: Any) -> None:
    sites, coef = columns
    study = sites.prediction(coef)
    service = sites.services()["south"]
    service.take_in(sites.pack(study))
    text = preview_approval(service.site, service.site.owner(), study, dataset="new", runs=1).view.as_text()
    assert "EXACTLY" in text and "the exact score of each new record" in text
    assert "to the coordinator and north" in text and "not private" in text
    # Nothing is paid, so that nothing is said about what several records would pay.
    assert "every ledger is charged" not in text


def test_its_hash_covers_the_model_the_number_and_the_receiver(columns: Any) -> None:
    sites, coef = columns
    studies = [
        sites.prediction(coef),
        sites.prediction(coef, records=7),
        sites.prediction(coef, receiver=None),
        sites.prediction(coef * 2),
        sites.prediction(coef, run="other"),
        sites.training_study(),
    ]
    assert len({study.hash for study in studies}) == len(studies)


WRONG = [
    ('receiver = "north"', 'receiver = "nobody"', "prediction.receiver"),
    ("[prediction]", "[evaluation]\n\n[prediction]", "evaluation"),
    ('weights = "weights.json"', 'weights = "../weights.json"', "prediction.weights"),
    ('weights = "weights.json"', 'weights = "schema.toml"', "prediction.weights"),
    ("records = 40", "records = 0", "prediction.records"),
]


def test_what_is_wrong_in_the_table_is_named_by_its_key(columns: Any) -> None:
    sites, coef = columns
    study = sites.prediction(coef)
    for find, put, key in WRONG:
        assert find in study.text
        with pytest.raises(StudyError) as wrong:
            Study.parse(study.text.replace(find, put), folder=study.folder)
        assert wrong.value.key == key
    text = study.text + '\n[simulation]\ndata = "people.csv"\nsplit = "by-features"\n'
    with pytest.raises(StudyError, match="comity predict"):
        load_party_data(Study.parse(text, folder=study.folder))
    (study.folder / "weights.json").write_text(weights_text(np.ones(3)))
    with pytest.raises(StudyError, match="give the model and the schema of one study"):
        Study.load(study.folder / "study.toml")


@pytest.mark.parametrize("text", ["", "[]", '{"weights": [1]}', '{"format": 1, "weights": 2}', '{"weights": ["1"]}'])
def test_weights_that_can_not_be_read_are_refused(text: str) -> None:
    with pytest.raises(StudyError) as wrong:
        read_weights(text, "study.toml")
    assert wrong.value.key == "prediction.weights"
    assert (read_weights(weights_text(np.array([0.1, -1e-300])), "") == [0.1, -1e-300]).all()


def test_wrong_usage_of_the_command(tmp_path: Path) -> None:
    for words in (
        ["--keys", "k"],
        ["--jointly", "--keys", "k"],
        ["data.csv", "--jointly", "--keys", "k"],
        ["--jointly"],
    ):
        assert main(["predict", str(tmp_path), *words]) == 2
    assert main(["predict", str(tmp_path), "data.csv", "--receiver", "north"]) == 2
