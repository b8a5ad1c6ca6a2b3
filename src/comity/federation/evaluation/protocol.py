"""The evaluation of a released model on held-out records: a part of every run whose study has an evaluation.

Adversary    the method's: the sums are opened as the method's own.
Unit         the study's. A record or person is either trained on or held out, so it pays for one of the two; a whole
             party pays for both (proof.md, 2).
Learned      by every reader of the model: noisy sums over the held-out records, and the figures made from them.
Sensitivity  that of the `ScoreCard`, for every model that a coordinator may send: predictions about a record do not
             depend on the other records, to the last bit (`Rowwise`, proof.md, 3).

Only these steps see held-out records, and they see no others: `Site.records` depends on the part of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium, Participants
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.figures import Z_GAUSSIAN, Z_LAPLACE, Figures, estimate_figures
from comity.federation.evaluation.score_card import (
    MAX_RECORDS,
    PredictionTask,
    Rowwise,
    ScoreCard,
    ScoreCardBound,
    choose_bins,
)
from comity.federation.part import Part, step
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Unit

if TYPE_CHECKING:
    from comity.federation.coordinator.parties import Parties
    from comity.federation.owner.rows import Rows
    from comity.federation.owner.site import Site
    from comity.federation.protocol import Protocol

Floats = NDArray[np.float64]

MODEL, SUMS, QUALITY = "model", "evaluation", "quality"
"""The names of the method's model, of the evaluation's sums, and of the sums as the model's readers receive them."""


@dataclass(frozen=True, eq=False)
class ModelEvaluation(Part):
    """What every evaluation has in common: one paid sum over held-out records."""

    name: ClassVar[str] = "evaluation"

    method: Protocol

    @property
    def common(self) -> str:
        """How all owners hold out the same rows, under a public key: by "positions" or "identifiers". Empty where each
        owner has its own records and a secret key."""
        return ""

    def terms(self, consortium: Consortium) -> Evaluation:
        assert consortium.evaluation is not None
        return consortium.evaluation

    def noise(self, consortium: Consortium) -> Noise:
        """Noise of the method's kind: Gaussian if the method spends δ, Laplace if not."""
        paid = [release.loss for release in self.method.declare(consortium).releases if release.loss is not None]
        terms = self.terms(consortium)
        if isinstance(terms.loss, Pure) or all(isinstance(loss, Pure) for loss in paid):
            return Laplace(terms.pure)
        return Gaussian(gaussian_budget(terms.loss))

    def model(self, consortium: Consortium) -> Release:
        """The method's own release of the model, which must reach the parties that evaluate it."""
        model = self.method.declare(consortium)[MODEL]
        if model.to != EVERYONE:
            raise StudyError(
                f"the parties evaluate the model, but {self.method.name} gives it to {model.to} alone; set "
                "privacy.colluders to 1 or more, or leave [evaluation] out",
                key="privacy.colluders",
            )
        return model

    def quality(self, size: int) -> Release:
        return Release(name=QUALITY, source=COORDINATOR, to=EVERYONE, protection=Derived(SUMS), form=Array((size + 1,)))

    def source(self, consortium: Consortium) -> Participants:
        """The parties that pay for the method's releases, if these are the same for all; otherwise every party."""
        paid = {release.source for release in self.method.declare(consortium).releases if release.loss is not None}
        return paid.pop() if len(paid) == 1 else EVERY_PARTY

    def z(self, consortium: Consortium) -> float:
        return Z_LAPLACE if isinstance(self.noise(consortium), Laplace) else Z_GAUSSIAN

    def measure(self, parties: Parties, released: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the sites to evaluate what the method released."""
        raise NotImplementedError(f"{type(self).__name__} evaluates nothing")

    def figures(self, released: Mapping[str, Any], consortium: Consortium) -> Figures | None:
        """The figures from the released sums; None without such sums."""
        raise NotImplementedError(f"{type(self).__name__} has no figures")


@dataclass(frozen=True, eq=False)
class RecordEvaluation(ModelEvaluation):
    """Every party holds whole records and scores its own."""

    def _task(self) -> PredictionTask:
        found = self.method.prediction_task
        assert found is not None
        return found

    def card(self, consortium: Consortium) -> ScoreCard:
        """The score card, its bins chosen from public figures: the declared number of units and the noise."""
        card = ScoreCard(self._task(), 2, consortium.unit, consortium.neighbours)
        units, share = self.method.declared_units(consortium), self.terms(consortium).share
        # The method declares the records that it trains on.
        holdout = (
            None if units is None else float(units) if consortium.unit is Unit.PARTY else units * share / (1 - share)
        )
        rough = self._sums(card, consortium).opened_deviation(consortium, consortium.size)
        return ScoreCard(card.task, choose_bins(holdout, rough), consortium.unit, consortium.neighbours)

    def _sums(self, card: ScoreCard, consortium: Consortium) -> Release:
        party = consortium.unit is Unit.PARTY
        most = card.count_weight * (1.0 if party else MAX_RECORDS)
        return Release(
            name=SUMS,
            source=self.source(consortium),
            to=COORDINATOR,
            protection=Summed(self.noise(consortium)),
            form=Array((card.size,), "<i8"),
            bound=ScoreCardBound(card.l2, card.l1, most, neutral_within=party),
        )

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is Unit.PERSON:
            raise StudyError(
                "an evaluation bounds what one record or one whole party adds, but a person may have several records: "
                'found privacy.unit = "person". Set privacy.unit = "record", or leave [evaluation] out',
                key="privacy.unit",
            )
        card = self.card(consortium)
        return Declaration(
            (self.model(consortium), self._sums(card, consortium), self.quality(card.size)), adversary="as the method's"
        )

    def measure(self, parties: Parties, released: Mapping[str, Any]) -> dict[str, Any]:
        total = parties.sum(self.evaluate, model=released[MODEL])
        return {QUALITY: np.append(total.value, float(total.parties))}

    @step(sends=SUMS)
    def evaluate(self, site: Site, model: Any) -> None:
        card, presented = self.card(site.consortium), self.method.present({MODEL: model}, site.consortium)
        if not isinstance(presented, Rowwise):
            raise StudyError(
                f"[evaluation] needs a model that predicts record by record, but {self.method.name} presents a "
                f"{type(presented).__name__} without `rowwise`; leave [evaluation] out",
                key="evaluation",
            )
        predictor = presented.rowwise()

        def part(rows: Rows) -> Floats:
            return card.block_sums(predictor, rows.features, rows.labels)

        site.contribute(card.party_sums(site.total(part)))

    def figures(self, released: Mapping[str, Any], consortium: Consortium) -> Figures | None:
        quality = released.get(QUALITY)
        if quality is None:
            return None
        card, party = self.card(consortium), consortium.unit is Unit.PARTY
        deviation = self._sums(card, consortium).opened_deviation(consortium, round(float(quality[-1])))
        of = "parties, each weighing the same" if party else "records"
        return estimate_figures(card, np.asarray(quality[:-1], np.float64), deviation, z=self.z(consortium), of=of)
