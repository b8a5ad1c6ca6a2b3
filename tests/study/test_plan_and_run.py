"""Whatever public figures decide is decided by the plan: it refuses, naming a key, or the run completes.

Every combination of method, variant, loss, parties, colluders and drop-outs is planned and then run, with as many
parties lost on the way as the study allows for. A refusal leaves every ledger as it was, from whichever door it comes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.errors import BadInput, ComityError, Refused
from comity.federation.messages.channel import Channel
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit
from comity.study.local import consortium
from comity.study.records.party_data import load_party_data
from comity.study.results.result import Result
from comity.study.simulation.simulate import RunOptions, Terms, simulate
from comity.study.study import Study
from tests.support.asks import path_of
from tests.support.channels import WholeLocal

PURE, WITH_DELTA = "", "delta = 1e-3"


@dataclass(frozen=True)
class Method:
    protocol: str
    own: str
    unit: str = "record"
    identifier: bool = False
    neighbours: str = "replace"

    @property
    def by_columns(self) -> bool:
        return "rows_at_most" in self.own


def _softlabel(own: str) -> Method:
    return Method("softlabel", f'auxiliary = "public.csv"\n{own}', unit="party")


METHODS = (
    *(
        _softlabel(f'statistic = "{name}"\nsizes = 4')
        for name in ("auto", "votes", "histograms", "class-sums", "cells", "models")
    ),
    *(_softlabel(f'variant = "published"\nl2 = 0.5\nmethod = "{name}"') for name in ("vote", "soft", "avg")),
    *(Method("averaging", f'sizes = 4\nrounds = 2\nsolver = "{name}"') for name in ("auto", "gradient")),
    *(Method("averaging", 'sizes = 4\nsolver = "average"', neighbours=name) for name in ("replace", "add-remove")),
    Method("averaging", 'variant = "published"\nmost = 64'),
    *(
        Method("vertical", f'rows_at_most = 64\nsolver = "quadratic"\nproducts = "{name}"', identifier=known)
        for name in ("rlwe", "dealer")
        for known in (False, True)
    ),
    Method("vertical", 'rows_at_most = 64\nrounds = 2\nproducts = "dealer"\nalignment = "ecdh"', identifier=True),
    Method("vertical", 'rows_at_most = 64\nproducts = "dealer"\nsolver = "gradient"\nrounds = 2'),
    Method("vertical", "rows_at_most = 64\nrounds = 2"),
    *(Method("vertical", 'rows_at_most = 64\nvariant = "published"', identifier=known) for known in (False, True)),
    Method("synthetic", 'rows_at_most = 64\nproducts = "rlwe"'),
    Method("synthetic", 'rows_at_most = 64\nproducts = "dealer"', identifier=True),
)


@dataclass(frozen=True)
class Case:
    method: Method
    parties: int
    colluders: int
    dropouts: int
    delta: str

    def write(self, folder: Path) -> Path:
        generator, names = np.random.default_rng(1), [f"p{k}" for k in range(self.parties)]
        features = [f"c{k}" for k in range(max(2, self.parties))]
        rows = 16
        frame = pd.DataFrame(generator.uniform(-1, 1, (rows, len(features))), columns=features)
        frame["ill"] = np.where(frame["c0"] > 0, "yes", "no")
        frame["person"] = [f"id{k}" for k in range(rows)]
        frame.drop(columns=["ill", "person"]).to_csv(folder / "public.csv", index=False)
        columns = "".join(f'[columns.{name}]\nkind = "numeric"\nlow = -1\nhigh = 1\n' for name in features)
        target = '[target]\nname = "ill"\nclasses = ["no", "yes"]\n'
        known = '[identifier]\nname = "person"\n' if self.method.identifier else ""
        (folder / "schema.toml").write_text(columns + target + known)
        if self.method.by_columns:
            held = {
                name: [feature for j, feature in enumerate(features) if j % len(names) == k]
                for k, name in enumerate(names)
            }
            held[names[-1]].append("ill")
            parties = "".join(f"[parties.{name}]\ncolumns = {held[name]}\n" for name in names)
            data = 'data = "records.csv"\nsplit = "by-features"'
            frame.to_csv(folder / "records.csv", index=False)
        else:
            parties = "".join(f"[parties.{name}]\n" for name in names)
            data, frame = 'data = "records.csv"\nsplit = "by-column"\ncolumn = "at"', frame.drop(columns="person")
            dealt = pd.concat([frame.iloc[[k % 4, k % 4 + 4, 8, 9]].assign(at=name) for k, name in enumerate(names)])
            dealt.to_csv(folder / "records.csv", index=False)
        text = (
            f'[study]\nname = "tried"\nprotocol = "{self.method.protocol}"\nschema = "schema.toml"\n'
            f'[privacy]\nunit = "{self.method.unit}"\nneighbours = "{self.method.neighbours}"\nepsilon = 2.0\n'
            f"{self.delta}\ncolluders = {self.colluders}\ndropouts = {self.dropouts}\n"
            f"[{self.method.protocol}]\n{self.method.own}\n{parties}"
            f"[simulation]\n{data}\nbaselines = false\nholdout = 0.2\n"
        )
        (folder / "study.toml").write_text(text)
        return folder / "study.toml"


def _ledgers(case: Case) -> dict[str, Ledger]:
    unit, neighbours = Unit(case.method.unit), Neighbours(case.method.neighbours)
    return {
        name: Ledger.in_memory(dataset=name, unit=unit, neighbours=neighbours)
        for name in (f"p{k}" for k in range(case.parties))
    }


def _state(ledgers: Mapping[str, Ledger]) -> list[str]:
    return [repr(ledger.summary()) for ledger in ledgers.values()]


class Vanishing(WholeLocal):
    """Loses as many parties as the study allows for, with the first step after the reservation."""

    lost: tuple[str, ...] = ()

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        here = {p: m for p, m in messages.items() if p not in self.lost or path_of(m).startswith("run.begin")}
        return super().carry(here)


def _simulated(study: Study, case: Case, ledgers: Mapping[str, Ledger], monkeypatch: pytest.MonkeyPatch) -> Result:
    party_data = load_party_data(study)
    lost = tuple(f"p{k}" for k in range(case.parties - case.dropouts, case.parties))
    channel: type[Channel] = type("Losing", (Vanishing,), {"lost": lost})
    monkeypatch.setattr(consortium, "LocalChannel", channel)
    privacy = study.privacy
    return simulate(
        study.protocol,
        parties=party_data.parties,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        unit=privacy.unit.value,
        seed=1,
        terms=Terms(
            schema=study.schema,
            neighbours=privacy.neighbours.value,
            colluders=privacy.colluders,
            dropouts=privacy.dropouts,
        ),
        options=RunOptions(baselines=False, ledgers=ledgers),
    )


def holds(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the plan approves; checks that the run then completes, and else that nothing is touched."""
    ledgers = _ledgers(case)
    untouched = _state(ledgers)
    path = case.write(folder)
    try:
        study = Study.load(path)
        study.plan()
    except (BadInput, Refused) as error:
        assert error.key, f"{case}: no key in {error}"
        assert str(path) in str(error), f"{case}: no file in {error}"
        # Whoever goes round the plan meets the same refusal, and no ledger notices.
        with pytest.raises((BadInput, Refused)):
            _simulated(Study.load(path), case, ledgers, monkeypatch)
        assert _state(ledgers) == untouched, case
        return False
    outcome = _simulated(study, case, ledgers, monkeypatch)
    assert outcome.model is not None
    assert all(account.spent != "eps 0.00" for account in outcome.accounts[: case.parties - case.dropouts])
    return True


def every_case() -> list[Case]:
    return [
        Case(method, parties, colluders, dropouts, delta)
        for method, parties, colluders, dropouts, delta in itertools.product(
            METHODS, range(1, 8), range(4), range(4), (PURE, WITH_DELTA)
        )
    ]


SAMPLE = random.Random(10).sample(every_case(), 60)


def test_a_sum_that_could_not_be_opened_is_refused_by_the_plan_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient = Method("averaging", 'sizes = 4\nrounds = 2\nsolver = "gradient"')
    case = Case(gradient, 3, 1, 1, WITH_DELTA)
    with pytest.raises(Refused, match=r"study.toml: .*needs 3 to finish") as found:
        Study.load(case.write(tmp_path)).plan()
    assert found.value.key == "privacy.dropouts"
    assert not holds(case, tmp_path, monkeypatch)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: f"{case.method.protocol}-{case.parties}")
def test_a_plan_refuses_with_a_key_or_the_run_completes(
    case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds(case, tmp_path, monkeypatch)


def test_the_sample_has_runs_of_every_method_and_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parties and no drop-outs suit everyone: nobody passes by being refused always."""
    for number, method in enumerate(METHODS):
        (tmp_path / str(number)).mkdir()
        trusting = 'variant = "published"' in method.own and method.protocol != "softlabel"
        colluders = 0 if trusting and method.protocol == "averaging" else 1
        case = Case(method, 3, colluders, 0, PURE if trusting else WITH_DELTA)
        assert holds(case, tmp_path / str(number), monkeypatch), case


@pytest.mark.long
def test_every_plan_refuses_with_a_key_or_the_run_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [
        Case(method, 110, colluders, dropouts, delta)
        for method in METHODS
        if 'statistic = "votes"' in method.own or 'solver = "gradient"' in method.own
        for colluders, dropouts, delta in ((1, 0, WITH_DELTA), (3, 5, WITH_DELTA), (60, 40, PURE))
        if method.protocol != "vertical"
    ]
    approved = 0
    for number, case in enumerate([*every_case(), *large]):
        (tmp_path / str(number)).mkdir()
        try:
            approved += holds(case, tmp_path / str(number), monkeypatch)
        except ComityError as error:
            raise AssertionError(f"{case}: {error}") from error
    assert approved > 1000
