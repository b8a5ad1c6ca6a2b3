"""The result of a run: what was released, what it cost, what crossed the wire; as an object and as a folder.

A folder holds `result.json` (everything but arrays), `released/` with what was paid for, a folder for each artefact
(`model/`, `data/`, ...) with its card, `transcript.json` and `report.html`; for a few parties also `parties/NAME/`,
what each of them received. `result.json` is written last: a folder that has it has everything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from comity.artefacts.artefact import Artefact, load_artefact, save_artefact
from comity.errors import ComityError, DataError
from comity.federation.coordinator.transcript import Line, Transcript
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.declaration import TrueLoss
from comity.federation.declare.payers import Payer
from comity.federation.declare.protection import Perturbed
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.federation.evaluation.figures import Figures
from comity.federation.plan import Plan, PlanRow
from comity.files import make_folder, write_atomically
from comity.privacy.loss import parse_loss
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.report.card import write_card
from comity.report.page import render_result
from comity.report.sentences import describe_uncovered
from comity.report.versions import versions
from comity.report.views import View, list_views
from comity.representation import NamedValues
from comity.study.results.outcome import Account, Guarantee, Outcome
from comity.study.results.released import (
    Released,
    describe_releases,
    load_released,
    safe_name,
    save_received,
    save_released,
)
from comity.untrusted.file_names import UnsafeName, check_name
from comity.untrusted.pages import validate
from comity.untrusted.text import escape_line

_FORMAT = "comity-result-3"
# More names than a line holds.
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives back. One that was read from a folder has everything but `outcome`.

        result = comity.simulate("study.toml")
        result.model.predict(frame)
        result.save("runs/new")

    `presented` is what the method makes of its releases, an artefact or the values by their names; `beside` are further
    artefacts by their folders. The `assessment` is measured on records that are private outside a simulation, and empty
    where nobody measured: a score is a release. The `evaluation` is such a release, on records that were set aside, and
    covered by the guarantee. `releases` are what was paid for, as each receiver got it. `findings`
    says what is odd about the records of a simulation, in exact counts that no guarantee covers. `model_noise` is the
    standard deviation of the noise in each released number of the model, where the declaration tells it. What no
    guarantee covers is not in the `repr`, which ends up in logs and notebooks.
    """

    study: str
    study_hash: str
    run: str
    protocol: str
    parties: int
    presented: Any
    releases: tuple[Released, ...]
    guarantee: Guarantee
    plan: Plan
    views: tuple[View, ...]
    transcript: Transcript
    accounts: tuple[Account, ...]
    assessment: Assessment = field(repr=False)
    model_noise: float | None
    seconds: float
    masks: bool
    seed: int | None
    made: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = field(default=(), repr=False)
    beside: Mapping[str, Artefact] = field(default_factory=dict)
    evaluation: Figures | None = None
    simulated: bool = True
    outcome: Outcome | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> Result:
        return cls(
            study=outcome.study,
            study_hash=outcome.study_hash,
            run=outcome.run,
            protocol=outcome.protocol,
            parties=outcome.parties,
            presented=outcome.presented,
            releases=describe_releases(outcome.released, outcome.declaration, outcome.consortium),
            guarantee=outcome.guarantee,
            plan=outcome.plan,
            views=list_views(outcome.declaration, outcome.consortium),
            transcript=outcome.transcript,
            accounts=outcome.accounts,
            assessment=outcome.assessment,
            model_noise=_model_noise(outcome),
            seconds=outcome.seconds,
            masks=outcome.masks,
            seed=outcome.seed,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=dict(outcome.settings),
            versions=versions(),
            findings=outcome.findings,
            beside=dict(outcome.beside),
            evaluation=outcome.evaluation,
            simulated=outcome.simulated,
            outcome=outcome,
        )

    def __repr__(self) -> str:
        took = f", {self.seconds:.1f} s" if self.seconds else ""
        kind = "a private release" if self.guarantee.private else "no private release"
        lines = [
            f"Result of {self.study!r}, run {self.run}",
            f"  protocol   {self.protocol}, {self.parties} parties{took}",
            f"  guarantee  {self.guarantee.loss} per party; unit: {self.guarantee.unit}; {kind}",
        ]
        if self.error is not None:
            beside = ", ".join(f"{one.name} {one.error:.3f}" for one in self.baselines)
            lines.append(f"  error      {self.error:.3f}" + (f" ({beside})" if beside else ""))
        if self.evaluation is not None:
            lines.append("  evaluated  on records that were set aside: .evaluation")
        made = ", ".join(f"{place} ({type(one).__name__})" for place, one in self.artefacts.items())
        named = list(dict.fromkeys(one.name for one in self.releases))
        lines.append(f"  artefacts  {made or 'none'}")
        lines.append(f"  released   {', '.join(named[:_SHOWN])}" + (", …" if len(named) > _SHOWN else ""))
        # A result that was read from a folder may have any names, and its `repr` goes to a terminal.
        return "\n".join(map(escape_line, lines))

    @property
    def model(self) -> Any:
        """What was presented, by the name that it has where it predicts."""
        return self.presented

    @property
    def dataset(self) -> Any:
        """What was presented, by the name that it has where it is a dataset: its records are in `dataset.frame`."""
        if not hasattr(self.presented, "frame"):
            raise AttributeError(f"a run of {self.protocol} presents no dataset; see .model, .presented and .released")
        return self.presented

    @property
    def error(self) -> float | None:
        return self.assessment.error

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        return self.assessment.baselines

    @property
    def artefacts(self) -> dict[str, Artefact]:
        """What is saved, by the folder that it is saved in."""
        own = {self.presented.place: self.presented} if isinstance(self.presented, Artefact) else {}
        return {**own, **self.beside}

    def baseline(self, name: str) -> Baseline | None:
        return next((baseline for baseline in self.baselines if baseline.name == name), None)

    @property
    def released(self) -> dict[str, Any]:
        """What was paid for, by the names of the releases."""
        return NamedValues({one.name: one.value for one in self.releases})

    def received_by(self, participant: str) -> dict[str, Any]:
        """What a party, or the coordinator, has of it."""
        return NamedValues({one.name: one.value for one in self.releases if one.reaches(participant)})

    def report(self, path: str | Path) -> Path:
        """Write the page: one file that asks nobody for anything."""
        path = Path(path)
        write_atomically(path, render_result(self))
        return path

    def save(self, folder: str | Path) -> Path:
        """Write the run's files into `folder`, which is made if it is not there."""
        folder = Path(folder)
        make_folder(folder)
        for place, artefact in self.artefacts.items():
            save_artefact(artefact, folder / place)
            write_atomically(folder / place / f"{place.upper()}_CARD.md", write_card(self, artefact))
        save_released(self.releases, folder / "released")
        self._save_received(folder / "parties")
        write_atomically(folder / "transcript.json", json.dumps(self.transcript.as_rows(), indent=1) + "\n")
        self.report(folder / "report.html")
        text = json.dumps(self.as_json(), indent=2, ensure_ascii=False, allow_nan=False, default=str)
        write_atomically(folder / "result.json", text + "\n")
        return folder

    def _save_received(self, folder: Path) -> None:
        """Each party's own results, where the run kept them: what it has at home after a deployment."""
        outcome = self.outcome
        if outcome is None:
            return
        for party, found in outcome.received.items():
            save_received(
                found,
                outcome.presented_to[party],
                folder / safe_name(party),
                party=party,
                study=self.study_hash,
                run=self.run,
                declaration=outcome.declaration,
                consortium=outcome.consortium,
                kept=outcome.kept.get(party),
            )

    def as_json(self) -> dict[str, Any]:
        """Everything but arrays and the transcript's lines."""
        guarantee = asdict(self.guarantee)
        # JSON has no infinity.
        guarantee["epsilon"] = self.guarantee.epsilon if math.isfinite(self.guarantee.epsilon) else None
        total = None if self.plan.total is None else self.plan.total.as_text()
        return {
            "format": _FORMAT,
            "study": self.study,
            "study_hash": self.study_hash,
            "run": self.run,
            "protocol": self.protocol,
            "made": self.made,
            "parties": self.parties,
            "private": self.guarantee.private,
            "guarantee": guarantee,
            "presented": self.presented.place if isinstance(self.presented, Artefact) else None,
            "artefacts": {place: artefact.kind for place, artefact in self.artefacts.items()},
            **self.assessment.as_json(),
            "not_covered": describe_uncovered(self),
            "evaluation": None if self.evaluation is None else self.evaluation.as_json(),
            "plan": self.plan.as_json() | {"total": total},
            "views": [asdict(view) for view in self.views],
            "accounts": [asdict(account) for account in self.accounts],
            "traffic": {"rounds": self.transcript.rounds, "bytes": self.transcript.bytes},
            "model_noise": self.model_noise,
            "masks": self.masks,
            "simulated": self.simulated,
            "seed": self.seed,
            "seconds": self.seconds,
            "findings": list(self.findings),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
        }


def load_result(folder: str | Path) -> Result:
    """The result that `Result.save` wrote into `folder`.

        result = comity.load_result("runs/triage")
        result.guarantee, result.released

    Anything else is a `DataError`. Loading runs no code of the folder.
    """
    folder = Path(folder)
    page = _json(folder / "result.json")
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise DataError(
            f"{folder / 'result.json'}: expected a result of format {_FORMAT}, found another; give the folder of a "
            "run, or use the comity that wrote it"
        )
    lines = _json(folder / "transcript.json")
    try:
        artefacts = {place: load_artefact(folder / _inside(place)) for place in page["artefacts"]}
        return _result(page, lines, artefacts, load_released(folder / "released"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{folder}: result.json or transcript.json is damaged ({error!r}); run the study again"
        ) from error
    except ComityError as error:
        raise DataError(f"{folder}: the result can't be read: {error}") from error


def _inside(place: Any) -> str:
    """The name of a folder beside the page that names it."""
    try:
        if "/" not in check_name(place):
            return str(place)
    except UnsafeName as error:
        raise ValueError(f"an artefact lies in a folder of the run, found {place!r}, which {error}") from error
    raise ValueError(f"an artefact lies in a folder of the run, found {place!r}")


def _result(
    page: Mapping[str, Any], lines: Any, artefacts: Mapping[str, Artefact], releases: tuple[Released, ...]
) -> Result:
    own = page["presented"]
    # Without an artefact a method presents the values that its coordinator made.
    values = {one.name: one.value for one in releases if one.source == COORDINATOR}
    guarantee, planned = dict(page["guarantee"]), page["plan"]
    # JSON has no infinity.
    epsilon = math.inf if guarantee["epsilon"] is None else validate(float, guarantee["epsilon"])
    if not 0 <= validate(float, guarantee["delta"]) <= 1:
        raise ValueError(f"guarantee.delta lies between 0 and 1, found {guarantee['delta']!r}")
    return Result(
        study=validate(str, page["study"]),
        study_hash=validate(str, page["study_hash"]),
        run=validate(str, page["run"]),
        protocol=validate(str, page["protocol"]),
        parties=int(page["parties"]),
        presented=values if own is None else artefacts[own],
        beside={place: artefact for place, artefact in artefacts.items() if place != own},
        releases=releases,
        evaluation=Figures.from_json(page["evaluation"]) if page.get("evaluation") else None,
        guarantee=replace(validate(Guarantee, guarantee | {"epsilon": 0.0}), epsilon=epsilon),
        plan=Plan(
            study=validate(str, planned["study"]),
            protocol=validate(str, planned["protocol"]),
            parties=int(planned["parties"]),
            unit=validate(str, planned["unit"]),
            neighbours=validate(str, planned["neighbours"]),
            rows=validate(tuple[PlanRow, ...], planned["releases"]),
            total=None if planned["total"] is None else parse_loss(planned["total"]),
            guarantee=validate(str, planned["loss_per_party"]),
            adversary=validate(str, planned["adversary"]),
            claim=validate(str, planned["claim"]),
            expected=validate(str, planned["expected"]),
            notes=validate(tuple[str, ...], planned["notes"]),
            payers=validate(tuple[Payer, ...], planned.get("payers", ())),
            warnings=validate(tuple[str, ...], planned["warnings"]),
            # Results that were written before plans stated them have none.
            true_losses=validate(tuple[TrueLoss, ...], planned.get("true_losses", ())),
            exposed=validate(str, planned.get("exposed", "")),
        ),
        views=validate(tuple[View, ...], page["views"]),
        transcript=Transcript(validate(tuple[Line, ...], lines)),
        accounts=validate(tuple[Account, ...], page["accounts"]),
        assessment=Assessment.from_json(dict(page)),
        model_noise=validate(float | None, page["model_noise"]),
        seconds=validate(float, page["seconds"]),
        masks=bool(page["masks"]),
        # Results of earlier releases do not say.
        simulated=bool(page.get("simulated", True)),
        seed=validate(int | None, page["seed"]),
        made=validate(str, page["made"]),
        settings=validate(dict[str, Any], page["settings"]),
        versions=validate(dict[str, str], page["versions"]),
        findings=validate(tuple[str, ...], page["findings"]),
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error}); give the folder of a run that has ended") from error


def _model_noise(outcome: Outcome) -> float | None:
    """Standard deviation of one released coordinate of the model, which follows from the declaration alone."""
    release = next((release for release in outcome.declaration.releases if release.name == "model"), None)
    if release is None or not isinstance(release.protection, Perturbed):
        return None
    scale, noise = release.scale(outcome.consortium), release.protection.noise
    if isinstance(noise, Gaussian):
        return scale.total * scale.grid
    if isinstance(noise, Spherical):
        # A radius of Gamma(d, β) in a uniform direction: E r² / d = β² (d + 1).
        return scale.total * scale.grid * math.sqrt(math.prod(release.shape) + 1)
    return None
