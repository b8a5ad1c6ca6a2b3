"""A result as a folder: saved, and loaded without running code of the folder.

A folder holds `result.json` (everything but arrays), `released/` with what was paid for, a folder for each artefact
(`model/`, `data/`, ...) with its card, `transcript.json` and `report.html`; for a few parties also `parties/NAME/`,
what each of them received. `result.json` is written last: a folder that has it has everything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from comity.artefacts.artefact import Artefact, load_artefact, save_artefact
from comity.errors import ComityError, DataError
from comity.federation.coordinator.transcript import Line, Transcript
from comity.federation.declare.about import About
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.declaration import TrueLoss
from comity.federation.declare.payers import Payer
from comity.federation.evaluation.assessment import Assessment
from comity.federation.evaluation.figures import Figures
from comity.federation.plan import UNITS, Plan, PlanRow, Reads
from comity.files import make_folder, write_atomically
from comity.privacy.loss import parse_loss
from comity.report.card import write_card
from comity.report.page import render_result
from comity.study.results.released import (
    Released,
    load_released,
    safe_name,
    save_received,
    save_released,
)
from comity.study.results.result import FORMAT, Account, Guarantee, Result
from comity.study.results.views import View
from comity.untrusted.file_names import UnsafeName, check_name
from comity.untrusted.pages import validate

AUDIT_PAGE = "audit.html"
"""What the page of an audit of a run's study is called in the folder of the run."""
_MAX_NOISE = 1e150
"""Of a deviation that a plot can draw."""


def save_result(result: Result, folder: Path) -> Path:
    """Write a run's files into `folder`, which is made if it is not there."""
    make_folder(folder)
    for place, artefact in result.artefacts.items():
        save_artefact(artefact, folder / place)
        write_atomically(folder / place / f"{place.upper()}_CARD.md", write_card(result, artefact))
    save_released(result.releases, folder / "released")
    _save_received(result, folder / "parties")
    write_atomically(folder / "transcript.json", json.dumps(result.transcript.as_rows(), indent=1) + "\n")
    write_report(result, folder / "report.html")
    write_atomically(folder / "result.json", format_result(result) + "\n")
    return folder


def format_result(result: Result) -> str:
    """The text of `result.json`."""
    return json.dumps(result.as_json(), indent=2, ensure_ascii=False, allow_nan=False, default=str)


def write_report(result: Result, path: Path) -> Path:
    """Write the page: one file that loads nothing else. It links to the page of an audit, where one is beside it."""
    audited = (path.parent / AUDIT_PAGE).is_file()
    write_atomically(path, render_result(result, audit=AUDIT_PAGE if audited else None))
    return path


def _save_received(result: Result, folder: Path) -> None:
    """Write each party's results, where the run kept them: what its site has after a deployment."""
    for party, received in result.received.items():
        save_received(
            received,
            result.presented_to[party],
            folder / safe_name(party),
            party=party,
            study=result.study_hash,
            run=result.run,
            declaration=result.declaration,
            consortium=result.consortium,
            kept=result.kept.get(party),
        )


def load_result(folder: str | Path) -> Result:
    """The result that `Result.save` wrote into `folder`.

        result = comity.load_result("runs/triage")
        result.guarantee, result.released

    Anything else is a `DataError`. Loading runs no code of the folder.
    """
    folder = Path(folder)
    page = _json(folder / "result.json")
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise DataError(
            f"{folder / 'result.json'}: expected a result of format {FORMAT}, found another; give the folder of a "
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
    for unit in (guarantee["unit"], planned["unit"]):
        if unit not in UNITS:
            raise ValueError(f"a unit is one of {', '.join(UNITS)}, found {unit!r}")
    noise = validate(float | None, page["model_noise"])
    if noise is not None and not 0 <= noise < _MAX_NOISE:
        raise ValueError("model_noise is no deviation that a run has")
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
            about=validate(About, planned.get("about", {})),
            makes=validate(str, planned.get("makes", "")),
            reads=validate(tuple[Reads, ...], planned.get("reads", ())),
            tells_parties_apart=validate(bool, planned.get("tells_parties_apart", False)),
        ),
        views=validate(tuple[View, ...], page["views"]),
        transcript=Transcript(validate(tuple[Line, ...], lines)),
        accounts=validate(tuple[Account, ...], page["accounts"]),
        assessment=Assessment.from_json(dict(page)),
        model_noise=noise,
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
