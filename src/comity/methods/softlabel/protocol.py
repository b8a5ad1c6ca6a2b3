"""Soft-label transfer without a trusted entity: parties vote at home, one noisy sum is opened, everyone gets the model.

After J. Hamm, P. Cao, M. Belkin, Learning Privately from Multiparty Data, ICML 2016. There a trusted entity collects
the local classifiers and perturbs what it learns from their votes. Here every party works on the public auxiliary
records itself and contributes one bounded statistic; the secure sum opens the noisy total and nothing else, and the
global model is made from it at no further cost. The sensitivities are derived in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import ceil, inf, prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import Encoding, Records
from comity.errors import StudyError
from comity.federation.assessment import Figure
from comity.federation.baseline import Baseline
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.card import Predicts
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.learn.local_models import Ballot, linear_votes, local_votes
from comity.methods.declared_records import tell_owner
from comity.methods.softlabel.baselines import baselines, wrong
from comity.methods.softlabel.record_sums import NamedClass
from comity.methods.softlabel.rule import Choice, Figures, Map, Name, choose, choose_noise
from comity.methods.softlabel.statistic import RecordTotal
from comity.methods.softlabel.votes import Histograms
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftLabel(Protocol):
    """One statistic of local votes or records, summed securely with shared noise; a linear model made from it.

    Adversary    semi-honest coordinator, and up to `colluders` parties.
    Unit         a whole party: all of its records may be replaced.
    Learned      coordinator: the noisy sum. Everyone: the model made from it. Nobody sees a local classifier or vote.
    Sensitivity  of the sum, that of the statistic (proof.md, 1 to 5): no 1/λ and no N in it. Divided by the number of
                 parties after opening.
    """

    name: ClassVar[str] = "softlabel"
    version: ClassVar[int] = 7

    auxiliary: Floats
    classes: tuple[str, ...] = ("0", "1")
    statistic: Name = "auto"
    records_per_party: Annotated[int, Interval(ge=1)] | None = None
    feature_map: Map = "none"
    dimensions: int | None = None
    local_l2: Positive = 1e-4
    encoding: Encoding | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.classes)
        if self.auxiliary.ndim != 2 or not len(self.auxiliary) or not np.isfinite(self.auxiliary).all():
            raise StudyError(
                "softlabel.auxiliary must hold finite rows of public, unlabelled records, at least one; found shape "
                f"{self.auxiliary.shape}",
                key="softlabel.auxiliary",
            )

    @property
    def scratch(self) -> int:
        """Votes on all auxiliary rows are held before they become a contribution."""
        return len(self.auxiliary) * len(self.classes)

    @property
    def title(self) -> str:
        return f"softlabel ({self.statistic})"

    def ballot(self, who: Consortium) -> Ballot | None:
        """What a party's own model votes on. Where records are summed themselves no model has a place."""
        asked = self.choice(who).statistic.needs == "votes"
        return Ballot(self.auxiliary, self.classes) if asked else None

    def choice(self, who: Consortium) -> Choice:
        """The statistic of this study, chosen from public quantities alone, and why."""
        return self._choose(Figures.of(who))

    @cached_property
    def _choose(self) -> Callable[[Figures], Choice]:
        """Every step asks again for what takes a decomposition of the auxiliary rows: the last few answers are kept."""
        chosen = partial(
            choose,
            auxiliary=self.auxiliary,
            classes=len(self.classes),
            records_per_party=self.records_per_party,
            statistic=self.statistic,
            feature_map=self.feature_map,
            dimensions=self.dimensions,
        )
        return lru_cache(maxsize=4)(chosen)

    def declare(self, who: Consortium) -> Declaration:
        check_terms(who)
        statistic = self.choice(who).statistic
        if isinstance(who.loss, Pure) and not statistic.pure:
            raise StudyError(
                f'softlabel.statistic = "{statistic.name}" takes Gaussian noise; set privacy.delta, for example 1e-6, '
                'or statistic = "votes"',
                key="softlabel.statistic",
            )
        opened = Release(
            name=statistic.name,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self._noise(who)),
            form=Array(statistic.shape, "<i8"),
            bound=statistic.bound,
        )
        model = Release(
            name="model",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived(statistic.name),
            form=Array((len(self.classes), statistic.map.dimensions)),
        )
        soft = Release(
            name="soft_labels",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived(statistic.name),
            form=Array((len(self.auxiliary), len(self.classes))),
        )
        return Declaration(
            (opened, model, soft) if isinstance(statistic, Histograms) else (opened, model),
            adversary=f"an honest-but-curious coordinator with up to {who.colluders} of {who.size} parties",
        )

    def _noise(self, who: Consortium) -> Noise:
        statistic = self.choice(who).statistic
        counted = statistic.bound.l1 / statistic.bound.l2 if isinstance(statistic, NamedClass) else inf
        return choose_noise(who.loss, prod(statistic.shape), l1=counted)

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        who, total = parties.consortium, parties.sum(self.contribute)
        statistic = self.choice(who).statistic
        mean, deviation = total.value / total.parties, self.deviation(who, total.parties)
        released = {"model": statistic.model(mean, deviation)}
        if isinstance(statistic, Histograms):
            released["soft_labels"] = statistic.soft_labels(mean, deviation)
        return released

    def deviation(self, who: Consortium, parties: int | None = None) -> float:
        """Standard deviation of the noise on one coordinate of the mean, every survivor having added its part."""
        count = who.size if parties is None else parties
        release = self.declare(who)[self.choice(who).statistic.name]
        return release.opened_deviation(who, count) / count

    def _sent(self, who: Consortium) -> str:
        return self.choice(who).statistic.name

    @step(sends=_sent, stacked=True)
    def contribute(self, site: Site) -> None:
        site.contribute(self._contribution(site))

    def _contribution(self, site: Site) -> Floats:
        tell_owner(site, self.records_per_party, "softlabel.records_per_party")
        statistic = self.choice(site.consortium).statistic
        if isinstance(statistic, RecordTotal):
            return statistic.of_total(site.total(statistic.part))
        votes = self._votes(site) if statistic.needs == "votes" else None
        return statistic.contribution(site.features, site.labels, site.filled, votes)

    def _votes(self, site: Site) -> Floats:
        """(..., N, C), every row in the simplex: of the owner's own model, or of the built-in linear classifier."""
        count = len(self.classes)
        if site.local is not None:
            return local_votes(site.local, site.features, site.labels, self.auxiliary, count, filled=site.filled)
        return linear_votes(site.features, site.labels, site.filled, self.auxiliary, count, self.local_l2)

    def streams(self, who: Consortium) -> bool:
        """Local classifiers, whose votes or weights are summed, are fitted on all records of a party at once."""
        return isinstance(self.choice(who).statistic, RecordTotal)

    # Where records are set aside.

    @property
    def predicts(self) -> Predicts:
        return Predicts(len(self.classes))

    def on_training_part(self, terms: Evaluation) -> SoftLabel:
        return (
            self
            if self.records_per_party is None
            else replace(self, records_per_party=terms.left(self.records_per_party))
        )

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], who: Consortium) -> LinearClassifier:
        from comity.learn.classifiers import LinearClassifier

        return LinearClassifier(
            np.asarray(released["model"], np.float64),
            classes=self.classes,
            encoding=self.encoding,
            feature_map=self.choice(who).statistic.map,
        )

    def trained(self, estimator: Any, released: Mapping[str, Any]) -> Any:
        """Any scikit-learn classifier, trained on the released soft labels of the auxiliary rows: costs nothing."""
        from comity.learn.soft_labels import fit_on_soft_labels

        if "soft_labels" not in released:
            raise StudyError(
                'soft labels of single records are released by softlabel.statistic = "histograms" only; this run '
                f"released {', '.join(released)}",
                key="softlabel.statistic",
            )
        return fit_on_soft_labels(estimator, self.auxiliary, released["soft_labels"], classes=self.classes)

    def score(self, model: LinearClassifier, test: Records) -> float:
        return wrong(model, test)

    def shares_cut(self, opened: Mapping[str, Any], train: Sequence[Records], who: Consortium) -> tuple[Figure, ...]:
        """Of sums over records: votes and models lie within their bounds."""
        statistic = self.choice(who).statistic
        if not isinstance(statistic, RecordTotal):
            return ()
        cut = []
        for records in train:
            filled = np.ones(len(records.features), bool)
            found = statistic.contribution(records.features, np.asarray(records.labels), filled)
            cut.append(not np.allclose(statistic.bound.enforce(found, statistic.shape), found, rtol=0, atol=1e-9))
        about = "share of the parties whose sum is longer than its bound and shortened to it"
        return (Figure("parties cut", float(np.mean(cut)), about),)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return baselines(train, test, self.classes, self.local_l2)

    def titled(self, who: Consortium) -> str:
        statistic = self.choice(who).statistic
        return f"softlabel ({statistic.name}, {type(self._noise(who)).__name__})".replace("Spherical", "spherical")

    def notes(self, who: Consortium) -> tuple[str, ...]:
        if isinstance(who.loss, Pure) or isinstance(self._noise(who), Gaussian):
            return ()
        return ("so few numbers are opened that noise of pure epsilon is the quieter one: delta is not spent",)

    def expectation(self, who: Consortium) -> str:
        choice = self.choice(who)
        ratio = choice.statistic.noise_to_signal(self.deviation(who))
        fewest = ceil(who.size * ratio)
        level = f"about {fewest} parties, or an epsilon of about {_epsilon(who) * ratio:.2g}"
        limit = f"below {level}, it would exceed it" if ratio < 1 else f"it takes {level}, to fall below it"
        return f"{choice.why}. Noise is {ratio:.0%} of the signal at {who.size} parties; {limit}"


def _epsilon(who: Consortium) -> float:
    return float(getattr(who.loss, "epsilon", 1.0))


def check_terms(who: Consortium) -> None:
    """Refuse a unit that the proofs do not cover, before anything is reserved."""
    if who.unit is not Unit.PARTY or who.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"softlabel protects a whole party, replaced; found unit = {who.unit}, neighbours = {who.neighbours}. "
            'Set privacy.unit = "party" and privacy.neighbours = "replace"',
            key="privacy.unit" if who.unit is not Unit.PARTY else "privacy.neighbours",
        )


def check_classes(classes: Sequence[str]) -> None:
    if len(classes) < 2:
        raise StudyError(
            "soft labels need a target of at least two classes; declare [target] classes in the schema", key="target"
        )
