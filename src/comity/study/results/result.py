"""What a run gives back: one value, the same wherever it ran.

`comity.report.result` saves it as a folder and loads it again.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_FLOOR
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity._version import __version__
from comity.artefacts.artefact import Artefact
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import (
    Payer,
    delta_of,
    format_charged,
    format_payers,
    format_spent,
    largest_cost,
    payers,
)
from comity.federation.declare.protection import Perturbed
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.federation.evaluation.figures import Figures
from comity.federation.plan import Plan, plan
from comity.privacy.ledger import format_rounded
from comity.privacy.loss import float_above
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.representation import NamedValues, html_table
from comity.study.results.released import Released, describe_releases
from comity.study.results.views import View, list_views
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from comity.federation.coordinator.transcript import Transcript
    from comity.federation.messages.received import Received
    from comity.privacy.ledger import Account as LedgerAccount

FORMAT = "comity-result-3"
# More names than a line holds.
_SHOWN = 8


_PACKAGES = ("numpy", "scipy", "scikit-learn", "opendp", "cryptography", "pandas", "pyarrow")


@cache
def software_versions() -> Mapping[str, str]:
    """What a run was made with: versions of what computes, and the kind of machine; no host name, no paths."""
    found = {"comity": __version__, "python": platform.python_version()}
    found |= {package: metadata.version(package) for package in _PACKAGES}
    return found | {"system": f"{platform.system()} {platform.machine()}"}


@dataclass(frozen=True)
class Guarantee:
    """What the run cost, in which unit, against whom. A seeded run is no private result.

    `loss` and `epsilon` are the most that it cost a party; `payers` are all that paid differently, the largest first.
    """

    loss: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    adversary: str
    claim: str
    seeded: bool
    payers: tuple[Payer, ...] = ()

    @property
    def losses(self) -> dict[str, str]:
        """What each distinct payer lost, by what it is called."""
        return {payer.name: payer.loss for payer in self.payers} or {"each party": self.loss}

    def _repr_html_(self) -> str:
        seeded = [("", "made with a seed: a simulation, not a private release")] if self.seeded else []
        rows = [*((payer, loss) for payer, loss in self.losses.items())]
        rows += [("unit", f"{self.unit}, {self.neighbours}"), ("against", self.adversary), ("claim", self.claim)]
        return html_table("Guarantee", ("", ""), rows + seeded)

    @property
    def private(self) -> bool:
        return self.claim == "private" and not self.seeded

    @property
    def paid(self) -> str:
        """What each payer lost, in one clause."""
        return format_payers(self.payers) if self.payers else f"{self.loss} per party"

    def __str__(self) -> str:
        text = f"{self.paid}; unit: {self.unit}, {self.neighbours}; against {self.adversary}"
        if self.claim != "private":
            text += f"; {self.claim}"
        # It is printed, and a result that was read from a folder may claim anything.
        return escape_line(text + ("; made with a seed: a simulation, not a private release" if self.seeded else ""))


@dataclass(frozen=True)
class Account:
    """One party's ledger after the run, as text, rounded so that no budget looks larger than it is."""

    party: str
    granted: str
    spent: str
    left: str

    @classmethod
    def of(cls, party: str, summary: LedgerAccount, consortium: Consortium) -> Account:
        """As its owner reads it."""
        unlimited = "no limit"
        return cls(
            party,
            granted=unlimited if summary.granted is None else str(summary.granted),
            spent=format_spent(summary.spent, delta_of(consortium)),
            left=unlimited if summary.left is None else f"eps {format_rounded(summary.left, ROUND_FLOOR)}",
        )


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives back.

        result = comity.simulate("study.toml")
        result.model.predict(frame)
        result.save("runs/new")

    `presented` is what the method makes of its releases, an artefact or the values by their names; `beside` are further
    artefacts by their folders. `releases` are what was paid for, as each receiver got it. The `assessment` is measured
    on records that are private outside a simulation, and empty where nothing was measured: a score is a release. The
    `evaluation` is such a release, measured on held-out records and covered by the guarantee. `findings` are warnings
    about the records of a simulation, in exact counts that no guarantee covers. `model_noise` is the standard deviation
    of the noise in each released number of the model, where the declaration tells it. What no guarantee covers is not
    in the `repr`, which ends up in logs and notebooks.

    A result that was loaded from a folder has everything but the `declaration`, the `consortium` and what each party
    `received`.
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
    model_noise: float | None
    accounts: tuple[Account, ...] = ()
    assessment: Assessment = field(default_factory=Assessment, repr=False)
    seconds: float = 0.0
    masks: bool = True
    seed: int | None = None
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: dict(software_versions()))
    findings: tuple[str, ...] = field(default=(), repr=False)
    beside: Mapping[str, Artefact] = field(default_factory=dict)
    evaluation: Figures | None = None
    # Whether one machine had the records of every party, or each owner its own.
    simulated: bool = True
    terms: tuple[Declaration, Consortium] | None = field(default=None, repr=False)
    # What each party has of the run, where parties are few or the caller asked; and what the method makes of it.
    received: Mapping[str, Received] = field(default_factory=dict, repr=False)
    presented_to: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # What the method makes of the values that each party's own steps left with it: nobody else's.
    kept: Mapping[str, Mapping[str, Artefact]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        agreement: Agreement,
        released: Mapping[str, Any],
        transcript: Transcript,
        *,
        run: str,
        kept: Mapping[str, Any] | None = None,
        seed: int | None = None,
        partly: bool = False,
    ) -> Result:
        """The result of a run, from what its coordinator has at its end: what was `released`, and `kept` on the way.
        Or, `partly`, from what a party has: what it was not released is None."""

        def make(build: Callable[[], Any]) -> Any:
            try:
                return build()
            except KeyError:
                if partly:
                    return None
                raise

        protocol, consortium = agreement.protocol, agreement.consortium
        declaration = agreement.accepted
        spent, delta = largest_cost(declaration, consortium), delta_of(consortium)
        shown = plan(agreement.title, protocol, consortium, declaration, agreement.about)
        return cls(
            study=agreement.title,
            study_hash=agreement.study,
            run=run,
            protocol=protocol.name,
            parties=consortium.size,
            presented=make(lambda: protocol.present(released, consortium)),
            beside=make(lambda: protocol.beside(released, consortium, study=agreement.study, run=run)) or {},
            releases=describe_releases({**(kept or {}), **released}, declaration, consortium),
            guarantee=Guarantee(
                loss=format_charged(spent, delta),
                epsilon=float_above(spent.epsilon_at(delta)),
                delta=float(delta),
                unit=shown.unit,
                neighbours=shown.neighbours,
                adversary=declaration.adversary,
                claim=declaration.claim,
                seeded=seed is not None,
                payers=payers(declaration, consortium),
            ),
            plan=shown,
            views=list_views(declaration, consortium),
            transcript=transcript,
            model_noise=_model_noise(declaration, consortium),
            seed=seed,
            evaluation=None
            if consortium.evaluation is None
            else make(lambda: protocol.model_evaluation(consortium).figures(released, consortium)),
            terms=(declaration, consortium),
        )

    @property
    def declaration(self) -> Declaration:
        """What the run declared, where the result was not loaded from a folder."""
        return self._terms[0]

    @property
    def consortium(self) -> Consortium:
        """Who took part, where the result was not loaded from a folder."""
        return self._terms[1]

    @property
    def _terms(self) -> tuple[Declaration, Consortium]:
        if self.terms is None:
            raise AttributeError(
                "a result that was loaded from a folder has no declaration and no consortium; see .plan"
            )
        return self.terms

    def __repr__(self) -> str:
        lines = [self._title, *(f"  {name:<10} {text}" for name, text in self._brief())]
        # A result that was read from a folder may have any names, and its `repr` goes to a terminal.
        return "\n".join(map(escape_line, lines))

    def _repr_html_(self) -> str:
        """The same few lines, for a notebook."""
        return html_table(self._title, ("", ""), self._brief())

    @property
    def _title(self) -> str:
        return f"Result of {self.study!r}, run {self.run}"

    def _brief(self) -> list[tuple[str, str]]:
        """What the result is, in a few lines, each with its name."""
        took = f", {self.seconds:.1f} s" if self.seconds else ""
        kind = "a private release" if self.guarantee.private else "no private release"
        lines = [
            ("protocol", f"{self.protocol}, {self.parties} parties{took}"),
            ("guarantee", f"{self.guarantee.paid}; unit: {self.guarantee.unit}; {kind}"),
        ]
        if self.error is not None:
            beside = ", ".join(f"{one.name} {one.error:.3f}" for one in self.baselines)
            lines.append(("error", f"{self.error:.3f}" + (f" ({beside})" if beside else "")))
        if self.evaluation is not None:
            lines.append(("evaluated", "on records that were set aside: .evaluation"))
        made = ", ".join(f"{place} ({type(one).__name__})" for place, one in self.artefacts.items())
        named = list(dict.fromkeys(one.name for one in self.releases))
        lines.append(("artefacts", made or "none"))
        lines.append(("released", ", ".join(named[:_SHOWN]) + (", …" if len(named) > _SHOWN else "")))
        return lines

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
    def subgroups(self) -> pd.DataFrame:
        """The error of each subgroup of the test records with its 95 % interval, as `[simulation] evaluate_by` asked.
        Empty where it did not; never covered by a guarantee."""
        import pandas as pd

        heads = ("by", "group", "records", "error", "low", "high", "verdict")
        rows = [[getattr(one, head) for head in heads] for one in self.assessment.subgroups]
        return pd.DataFrame(rows, columns=list(heads))

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

    @property
    def not_covered(self) -> str | None:
        """A sentence on figures that the guarantee does not cover; None where nothing was measured."""
        if not self.assessment.measured:
            return None
        if self.error is None:
            measured = "The figures of quality were"
        else:
            measured = "The error and the baselines were" if self.baselines else "The error was"
        return (
            f"{measured} measured on the private records of a simulation, outside the guarantee: in a deployment each "
            "such figure would be a separate release, noised and paid for, or stay with its owner."
        )

    def as_json(self) -> dict[str, Any]:
        """Everything but arrays and the transcript's lines."""
        guarantee = asdict(self.guarantee)
        # JSON has no infinity.
        guarantee["epsilon"] = self.guarantee.epsilon if math.isfinite(self.guarantee.epsilon) else None
        total = None if self.plan.total is None else self.plan.total.as_text()
        return {
            "format": FORMAT,
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
            "not_covered": self.not_covered,
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

    def export(self, path: str | Path) -> Path:
        """Write the released linear model for other programs: ONNX for a file that ends in .onnx, scikit-learn's by
        skops for .skops. The file has the guarantee in its metadata. Needs `comity[export]`."""
        from comity.learn.export import export_model

        return export_model(self.presented, Path(path), self.export_metadata())

    def export_metadata(self) -> dict[str, str]:
        """What an exported model says of itself."""
        schema = getattr(getattr(self.presented, "encoding", None), "schema", None)
        return {
            "guarantee": str(self.guarantee),
            "study": self.study,
            "study_hash": self.study_hash,
            "run": self.run,
            "made": self.made,
            "made_with": f"comity {self.versions.get('comity', '')}".strip(),
            **({} if schema is None else {"schema": schema.to_toml()}),
        }

    # How it is shown and saved: the one place here that knows of reports, imported when it is called.

    def report(self, path: str | Path) -> Path:
        """Write the page: one file that loads nothing else."""
        from comity.report.result import write_report

        return write_report(self, Path(path))

    def plot(self) -> Figure:
        """The first picture of the page as a figure of matplotlib, which a notebook shows: the strongest weights of a
        model, the columns of a dataset, or what was bought from whom."""
        from comity.report.first_picture import plot_result

        return plot_result(self)

    def save(self, folder: str | Path) -> Path:
        """Write the run's files into `folder`, which is made if it is not there."""
        from comity.report.result import save_result

        return save_result(self, Path(folder))


def _model_noise(declaration: Declaration, consortium: Consortium) -> float | None:
    """Standard deviation of one released coordinate of the model, which follows from the declaration alone."""
    release = next((release for release in declaration.releases if release.name == "model"), None)
    if release is None or not isinstance(release.protection, Perturbed):
        return None
    scale, noise = release.scale(consortium), release.protection.noise
    if isinstance(noise, Gaussian):
        return scale.total * scale.grid
    if isinstance(noise, Spherical):
        # A radius of Gamma(d, β) in a uniform direction: E r² / d = β² (d + 1).
        return scale.total * scale.grid * math.sqrt(math.prod(release.shape) + 1)
    return None
