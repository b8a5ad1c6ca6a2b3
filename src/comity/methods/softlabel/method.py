"""Soft-label transfer without a trusted entity: parties vote locally, one noisy sum is opened, everyone gets the model.

After J. Hamm, P. Cao, M. Belkin, Learning Privately from Multiparty Data, ICML 2016. There a trusted entity collects
the local classifiers and perturbs what it learns from their votes. Here every party works on the public auxiliary
records itself and contributes one bounded statistic. The secure sum opens the noisy total and nothing else, and the
global model is post-processing of it. The sensitivities are derived in `proof.md`. The method of the paper:
`published/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import ceil, inf, prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Classes, Encoding, Records, Schema
from comity.errors import StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import Evaluation
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.adaptation import ADAPTATION_NOTE, Adaptation
from comity.federation.evaluation.assessment import Baseline, Figure
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.learn.local_models import Ballot, linear_votes, local_votes
from comity.methods.constants import Constant
from comity.methods.declared_records import warn_owner
from comity.methods.method import Method, Only, Setting
from comity.methods.softlabel.baselines import fit_baselines, measure_error
from comity.methods.softlabel.choice import (
    Choice,
    Figures,
    MapName,
    StatisticName,
    check_classes,
    check_terms,
    choose,
    choose_noise,
)
from comity.methods.softlabel.published.constants import PAPER
from comity.methods.softlabel.published.method import (
    WHY_PUBLISHED_ONLY,
    AuxiliaryPrivacy,
    LearnsFrom,
    PublishedSoftLabel,
    SensitivityBound,
    read_private_auxiliary,
)
from comity.methods.softlabel.record_sums import Cells, NamedClass
from comity.methods.softlabel.statistic import RecordTotal
from comity.methods.softlabel.votes import Histograms
from comity.methods.tables import validate
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    import pandas as pd

    from comity.data import LocalRecords
    from comity.learn.classifiers import LinearClassifier

Floats = NDArray[np.float64]

_CLUSTERS_NOTE = (
    "parties label clusters of the public records: where the classes do not follow these clusters, which no public "
    "figure tells, the model may be less accurate than a constant"
)

# Options.


class SoftLabel(Method):
    """One classifier from the votes of local classifiers on public records, or from sums over private records.

        method = comity.SoftLabel(schema, auxiliary=public, sizes=25)
        print(method.plan(["north", "south"], epsilon=1, delta=1e-6))
        result = method.simulate({"north": north, "south": south}, epsilon=1, delta=1e-6)

    It protects a whole party, all of whose records may be replaced, against a curious coordinator with up to
    `colluders` parties and against everyone who sees the model. `auxiliary` holds public records without labels.
    `variant="published"` is the method of Hamm, Cao and Belkin (2016), which trusts the coordinator.
    """

    table: ClassVar[str] = "softlabel"
    counts_sizes: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"scaling": "rows", "sizes": "records_per_party", "sensitivity": "constants"}
    paper: ClassVar[Mapping[str, Constant]] = PAPER

    variant: Literal["default", "published"] = Field(
        "default", description="parties sum a noisy statistic securely; or the method of Hamm, Cao and Belkin (2016)"
    )
    auxiliary: str = Field(description="file of public, unlabelled records, beside the study")
    scaling: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    intercept: bool = Field(
        True, description="append a constant feature, regularised like any other; published: none by default"
    )
    statistic: Annotated[StatisticName, Only(variant="default")] = Field(
        "auto", description="what is summed; auto chooses from public quantities and the plan says why"
    )
    sizes: Annotated[int | None, Only(variant="default")] = Field(
        None, ge=1, description="how many records a party has, declared, never counted; 1 where one may hold one class"
    )
    feature_map: Annotated[MapName, Only(variant="default")] = Field(
        "none", description="map for votes and histograms, fitted on the public auxiliary records"
    )
    dimensions: Annotated[int | None, Only(variant="default", feature_map=("pca", "random"))] = Field(
        None, ge=1, description="of the pca or random feature map"
    )
    local_l2: Annotated[Positive, Only(variant="default")] = Field(
        1e-4, description="regularisation of the built-in local classifier"
    )
    method: Annotated[LearnsFrom, Only(variant="published")] = Field(
        "soft", description="published: what the coordinator learns from"
    )
    l2: Annotated[Positive, Only(variant="published")] = Field(
        1e-2, description="published: regularisation, there 1e-4 by default; the noise is scaled by its inverse"
    )
    sensitivity: Annotated[SensitivityBound, Only(variant="published")] = Field(
        "tight", description="published: sensitivity as printed (paper, its default there), or as derived (tight)"
    )
    auxiliary_privacy: Annotated[AuxiliaryPrivacy, Only(variant="published", why=WHY_PUBLISHED_ONLY)] = Field(
        "public", description="published, soft and vote: private records stay with the coordinator, who votes on them"
    )
    auxiliary_records: Annotated[
        int | None,
        Only(variant="published", auxiliary_privacy="private", why="public records are counted in their file"),
    ] = Field(None, ge=1, description="published: how many private auxiliary records there are; their number is public")

    def __init__(self, schema: Schema | None = None, /, **options: Any) -> None:
        # Without it, type checkers know of the options alone.
        super().__init__(schema, **options)

    def count_sizes(self, frames: Mapping[str, pd.DataFrame]) -> int:
        """The records of the smallest party; 1 where a party holds a single class."""
        target = self.given_schema.target
        labels = [frame[target.name] for frame in frames.values() if target is not None and target.name in frame]
        single = any(one.nunique() < 2 for one in labels)
        return 1 if single else max(1, min(map(len, frames.values()), default=1))

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "party", "neighbours": "replace", **super().privacy(setting)}

    def files(self) -> Mapping[str, str]:
        # The hash of a private file would be a release.
        return {} if self.auxiliary_privacy == "private" else {"softlabel.auxiliary": self.auxiliary}

    def declared_records(self, party: str) -> int | None:
        # 1 means that a party may hold a single class, not that it holds a single record.
        return None if self.sizes == 1 else self.sizes

    def make_protocol(self, setting: Setting) -> Protocol:
        target = setting.schema.target
        if not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: softlabel learns classes; declare [target] with classes in the schema",
                key="target",
            )
        encoding = Encoding(setting.schema, scaling="symmetric", rows=self.scaling, intercept=self.intercept)
        if self.auxiliary_privacy == "private":
            auxiliary = read_private_auxiliary(setting, self.auxiliary, self.auxiliary_records, encoding)
        else:
            frame = setting.read(self.auxiliary, "softlabel.auxiliary")
            auxiliary = encoding.encode_features(frame, where=f"{setting.where}: softlabel.auxiliary: {self.auxiliary}")
        if self.variant == "published":
            return self._published(auxiliary=auxiliary, classes=target.values, encoding=encoding)
        return self._over(auxiliary=auxiliary, classes=target.values, encoding=encoding)

    @classmethod
    def over_rows(
        cls,
        *,
        auxiliary: Floats,
        classes: tuple[str, ...] = ("0", "1"),
        encoding: Encoding | None = None,
        **options: Any,
    ) -> SoftLabelProtocol:
        """The protocol over rows that are already encoded, for estimators; None leaves an option at its default."""
        given = {key: value for key, value in options.items() if value is not None}
        method = validate(cls, {"auxiliary": "<auxiliary>", **given}, cls.__name__, f"{cls.table}.")
        return method._over(auxiliary=auxiliary, classes=classes, encoding=encoding)

    @classmethod
    def published_over_rows(
        cls,
        *,
        auxiliary: Floats,
        classes: tuple[str, ...] = ("0", "1"),
        encoding: Encoding | None = None,
        **options: Any,
    ) -> PublishedSoftLabel:
        """The published protocol over rows that are already encoded."""
        given = {"auxiliary": "<auxiliary>", **options, "variant": "published"}
        method = validate(cls, given, cls.__name__, f"{cls.table}.")
        return method._published(auxiliary=auxiliary, classes=classes, encoding=encoding)

    def _published(self, **rows: Any) -> PublishedSoftLabel:
        return PublishedSoftLabel(
            method=self.method,
            l2=self.l2,
            sensitivity_bound=self.sensitivity,
            auxiliary_privacy=self.auxiliary_privacy,
            **rows,
        )

    def _over(self, **rows: Any) -> SoftLabelProtocol:
        return SoftLabelProtocol(
            statistic=self.statistic,
            sizes=self.sizes,
            feature_map=self.feature_map,
            dimensions=self.dimensions,
            local_l2=self.local_l2,
            **rows,
        )


# What runs.


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftLabelProtocol(Protocol):
    """One statistic of local votes or records, summed securely with shared noise; a linear model made from it.

    Adversary    semi-honest coordinator, and up to `colluders` parties.
    Unit         a whole party: all of its records may be replaced.
    Learned      coordinator: the noisy sum. Everyone: the model made from it. Nobody sees a local classifier or vote.
    Sensitivity  of the sum, that of the statistic (proof.md, 1 to 5): no 1/λ and no N in it. Divided by the number of
                 parties after opening.
    """

    name: ClassVar[str] = "softlabel"
    version: ClassVar[int] = 8

    auxiliary: Floats
    classes: tuple[str, ...]
    statistic: StatisticName
    sizes: Annotated[int, Interval(ge=1)] | None
    feature_map: MapName
    dimensions: int | None
    local_l2: Positive
    encoding: Encoding | None = field(repr=False)

    @property
    def makes(self) -> str:
        return "one classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.classes)
        if self.auxiliary.ndim != 2 or not len(self.auxiliary) or not np.isfinite(self.auxiliary).all():
            raise StudyError(
                "softlabel.auxiliary must hold finite rows of public, unlabelled records, at least one; found shape "
                f"{self.auxiliary.shape}",
                key="softlabel.auxiliary",
            )

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"softlabel ({self.statistic})"

    @property
    def scratch(self) -> int:
        """A site holds votes on all auxiliary rows before they become a contribution."""
        return len(self.auxiliary) * len(self.classes)

    def choice(self, consortium: Consortium) -> Choice:
        """The statistic of this study, chosen from public quantities alone, and why."""
        return self._choose(Figures.of(consortium))

    @cached_property
    def _choose(self) -> Callable[[Figures], Choice]:
        """A choice decomposes the auxiliary rows, and every step asks for it: the last few are cached."""
        chosen = partial(
            choose,
            auxiliary=self.auxiliary,
            classes=len(self.classes),
            records_per_party=self.sizes,
            statistic=self.statistic,
            feature_map=self.feature_map,
            dimensions=self.dimensions,
        )
        return lru_cache(maxsize=4)(chosen)

    def ballot(self, consortium: Consortium) -> Ballot | None:
        """What a party's own model votes on; None where the statistic sums records."""
        asked = self.choice(consortium).statistic.needs == "votes"
        return Ballot(self.auxiliary, self.classes) if asked else None

    def streams(self, consortium: Consortium) -> bool:
        """Sums over records come in blocks; local classifiers need all records of a party at once."""
        return isinstance(self.choice(consortium).statistic, RecordTotal)

    @property
    def prediction_task(self) -> PredictionTask:
        return PredictionTask(len(self.classes))

    def on_training_part(self, terms: Evaluation) -> SoftLabelProtocol:
        return self if self.sizes is None else replace(self, sizes=terms.left(self.sizes))

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        check_terms(consortium)
        statistic = self.choice(consortium).statistic
        if isinstance(consortium.loss, Pure) and not statistic.pure:
            raise StudyError(
                f'softlabel.statistic = "{statistic.name}" takes Gaussian noise; set privacy.delta, for example 1e-6, '
                'or statistic = "votes"',
                key="softlabel.statistic",
            )
        opened = Release(
            name=statistic.name,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self._noise(consortium)),
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
            adversary=(
                f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties"
            ),
        )

    def _noise(self, consortium: Consortium) -> Noise:
        statistic = self.choice(consortium).statistic
        counted = statistic.bound.l1 / statistic.bound.l2 if isinstance(statistic, NamedClass) else inf
        return choose_noise(consortium.loss, prod(statistic.shape), l1=counted)

    def deviation(self, consortium: Consortium, parties: int | None = None) -> float:
        """Standard deviation of the noise in one coordinate of the mean, with the parts of all survivors."""
        count = consortium.size if parties is None else parties
        release = self.declare(consortium)[self.choice(consortium).statistic.name]
        return release.opened_deviation(consortium, count) / count

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium, total = parties.consortium, parties.sum(self.contribute)
        statistic = self.choice(consortium).statistic
        mean, deviation = total.value / total.parties, self.deviation(consortium, total.parties)
        released = {"model": statistic.model(mean, deviation)}
        if isinstance(statistic, Histograms):
            released["soft_labels"] = statistic.soft_labels(mean, deviation)
        return released

    # What a site does.

    def _sent(self, consortium: Consortium) -> str:
        return self.choice(consortium).statistic.name

    @step(sends=_sent, stacked=True)
    def contribute(self, site: Site) -> None:
        site.contribute(self._contribution(site))

    def _contribution(self, site: Site) -> Floats:
        warn_owner(site, self.sizes, "softlabel.sizes")
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

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier:
        from comity.learn.classifiers import LinearClassifier

        return LinearClassifier(
            np.asarray(released["model"], np.float64),
            classes=self.classes,
            encoding=self.encoding,
            feature_map=self.choice(consortium).statistic.map,
        )

    def train_on_soft_labels(self, estimator: Any, released: Mapping[str, Any]) -> Any:
        """Train any scikit-learn classifier on the released soft labels of the auxiliary rows, at no cost."""
        from comity.learn.soft_labels import fit_on_soft_labels

        if "soft_labels" not in released:
            raise StudyError(
                'soft labels of single records are released by softlabel.statistic = "histograms" only; this run '
                f"released {', '.join(released)}",
                key="softlabel.statistic",
            )
        return fit_on_soft_labels(estimator, self.auxiliary, released["soft_labels"], classes=self.classes)

    # What a simulation measures.

    def score(self, model: LinearClassifier, test: Records) -> float:
        return measure_error(model, test)

    def adapt_own(self, presented: Any, records: LocalRecords, party: str) -> Adaptation | None:
        from comity.methods.own_adaptation import adapt_linear

        return adapt_linear(presented, records)

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        """Sums over records may exceed their bound; votes and models never do."""
        statistic = self.choice(consortium).statistic
        if not isinstance(statistic, RecordTotal):
            return ()
        clipped = []
        for records in train:
            filled = np.ones(len(records.features), bool)
            found = statistic.contribution(records.features, np.asarray(records.labels), filled)
            clipped.append(not np.allclose(statistic.bound.enforce(found, statistic.shape), found, rtol=0, atol=1e-9))
        about = "share of the parties whose sum is longer than its bound and shortened to it"
        return (Figure("parties clipped", float(np.mean(clipped)), about),)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return fit_baselines(train, test, self.classes)

    # What the plan says.

    def title_in(self, consortium: Consortium) -> str:
        statistic = self.choice(consortium).statistic
        return f"softlabel ({statistic.name}, {type(self._noise(consortium)).__name__})".replace(
            "Spherical", "spherical"
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """Where the noise may leave no more than a constant."""
        return self.choice(consortium).warnings

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        found = [ADAPTATION_NOTE]
        if isinstance(self.choice(consortium).statistic, Cells):
            found.insert(0, _CLUSTERS_NOTE)
        if not isinstance(consortium.loss, Pure) and not isinstance(self._noise(consortium), Gaussian):
            found.insert(0, "so few numbers are opened that noise of pure epsilon is smaller: delta is not spent")
        return tuple(found)

    def expectation(self, consortium: Consortium) -> str:
        choice = self.choice(consortium)
        ratio = choice.statistic.noise_to_signal(self.deviation(consortium))
        fewest = ceil(consortium.size * ratio)
        level = f"about {fewest} parties, or an epsilon of about {_epsilon(consortium) * ratio:.2g}"
        limit = f"below {level}, it would exceed it" if ratio < 1 else f"it takes {level}, to fall below it"
        return f"{choice.why}. Noise is {ratio:.0%} of the signal at {consortium.size} parties; {limit}"


def _epsilon(consortium: Consortium) -> float:
    return float(getattr(consortium.loss, "epsilon", 1.0))
