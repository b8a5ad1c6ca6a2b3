"""Measuring a released model on the records that were set aside: a part that a run has where its study says so.

Adversary    that of the method: the sums are opened as the method's are.
Unit         that of the study. A record or person lies in one part, so that what the method released of the other part
             costs it nothing; a whole party pays for both (proof.md, 2).
Learned      whoever reads the model: noisy sums over the records that were set aside, and the figures they lead to.
Sensitivity  `Card`, whatever model the coordinator sends: a record has the same answers beside any others, to the last
             bit (`Rowwise`, proof.md, 3).

The steps here are the only ones that see records that were set aside, and see no others: `Site.records` goes by the
part that a step belongs to.
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
    from comity.federation.owner.site import Rows, Site
    from comity.federation.protocol import Protocol

Floats = NDArray[np.float64]

MODEL, SUMS, QUALITY = "model", "evaluation", "quality"
"""The method's release that is measured, the sums, and what the readers of the model get of them."""


@dataclass(frozen=True, eq=False)
class ModelEvaluation(Part):
    """What every way of measuring has in common: one sum that is paid for, of the set-aside part."""

    name: ClassVar[str] = "evaluation"

    method: Protocol

    @property
    def common(self) -> str:
        """By what all owners set the same rows aside, with a key that everybody knows: "positions" or "identifiers";
        empty where each has records of its own, and a key that nobody else knows."""
        return ""

    def terms(self, consortium: Consortium) -> Evaluation:
        assert consortium.evaluation is not None
        return consortium.evaluation

    def noise(self, consortium: Consortium) -> Noise:
        """Of the method's kind: Gaussian where it spends δ, Laplace where it does not."""
        paid = [release.loss for release in self.method.declare(consortium).releases if release.loss is not None]
        terms = self.terms(consortium)
        if isinstance(terms.loss, Pure) or all(isinstance(loss, Pure) for loss in paid):
            return Laplace(terms.pure)
        return Gaussian(gaussian_budget(terms.loss))

    def model(self, consortium: Consortium) -> Release:
        """The method's own release of the model, which must reach the parties that measure it."""
        model = self.method.declare(consortium)[MODEL]
        if model.to != EVERYONE:
            raise StudyError(
                f"the parties measure the model, and {self.method.name} gives it to {model.to} alone; set "
                "privacy.colluders to 1 or more, or leave [evaluation] out",
                key="privacy.colluders",
            )
        return model

    def quality(self, size: int) -> Release:
        return Release(name=QUALITY, source=COORDINATOR, to=EVERYONE, protection=Derived(SUMS), form=Array((size + 1,)))

    def source(self, consortium: Consortium) -> Participants:
        """Those that pay for the method, where all of it comes from the same ones."""
        paid = {release.source for release in self.method.declare(consortium).releases if release.loss is not None}
        return paid.pop() if len(paid) == 1 else EVERY_PARTY

    def z(self, consortium: Consortium) -> float:
        return Z_LAPLACE if isinstance(self.noise(consortium), Laplace) else Z_GAUSSIAN

    def measure(self, parties: Parties, released: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the sites to measure what the method released."""
        raise NotImplementedError(f"{type(self).__name__} measures nothing")

    def figures(self, released: Mapping[str, Any], consortium: Consortium) -> Figures | None:
        """What the released sums say; None where nothing could be measured."""
        raise NotImplementedError(f"{type(self).__name__} has no figures")


@dataclass(frozen=True, eq=False)
class RecordEvaluation(ModelEvaluation):
    """Every party has whole records, and scores its own."""

    def _answers(self) -> PredictionTask:
        found = self.method.prediction_task
        assert found is not None
        return found

    def card(self, consortium: Consortium) -> ScoreCard:
        """Bins by public figures: the declared number of units, and the noise."""
        card = ScoreCard(self._answers(), 2, consortium.unit, consortium.neighbours)
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
                'an evaluation bounds what one record, or a whole party, adds; found privacy.unit = "person", who may '
                'have several records. Set privacy.unit = "record", or leave [evaluation] out',
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
                f"[evaluation] measures a model that answers record by record, and {self.method.name} presents a "
                f"{type(presented).__name__} without `rowwise`; leave [evaluation] out",
                key="evaluation",
            )
        predictor = presented.rowwise()

        def part(rows: Rows) -> Floats:
            return card.part(predictor, rows.features, rows.labels)

        site.contribute(card.of_total(site.total(part)))

    def figures(self, released: Mapping[str, Any], consortium: Consortium) -> Figures | None:
        quality = released.get(QUALITY)
        if quality is None:
            return None
        card, party = self.card(consortium), consortium.unit is Unit.PARTY
        deviation = self._sums(card, consortium).opened_deviation(consortium, round(float(quality[-1])))
        of = "parties, each weighing the same" if party else "records"
        return estimate_figures(card, np.asarray(quality[:-1], np.float64), deviation, z=self.z(consortium), of=of)
