"""Private datasets as published: each sharer grows a private tree and makes records from it; all trees vote on labels.

F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019 (PFDS):

    1  SharePredictor   each sharer sends a private tree to all sharers                      (`grow`)
    2  ShareData        each sharer counts the upper levels of its tree, makes the counts consistent, makes records in
                        the leaves, labels them by the vote of all trees and sends them to everyone    (`share`)
    3  each owner fits a model to the shared records and its own, and keeps it               (`learn`)

Sharers are the parties with the role "sharer", or all parties if none has it. The noise is that of the paper; `Budget`
and `proof.md` have its true cost. The schema is public, and so is the shape of every tree. Where the paper leaves
something open, `Synthetic.paper` says what stands in for it. Off unless a study turns them on: choices by
permute-and-flip instead of the exponential mechanism, and smooth losses of the owners' models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import Bounded, Encoding, LocalRecords, Records, Schema, Target
from comity.entropy import Stream
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, ITSELF, Consortium
from comity.federation.declare.declaration import PRIVATE, Declaration, TrueLoss
from comity.federation.declare.protection import Computed, Derived
from comity.federation.declare.release import Array, Each, Fields, Form, Release
from comity.federation.evaluation.assessment import Baseline
from comity.federation.evaluation.own_score import OwnScore, score_predictor
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.synthetic.published.predictor import (
    Learner,
    Losses,
    build_model,
    choose_learner,
    compare_baselines,
    measure_error,
    measure_errors,
    train_model,
)
from comity.methods.synthetic.published.synthesis import (
    clip_leaf_masses,
    draw_records,
    round_masses,
    solve_leaf_masses,
    vote,
)
from comity.methods.synthetic.published.tree import (
    Attribute,
    Attributes,
    Shape,
    Tree,
    count_levels,
    draw_shape,
    draw_targets,
    grow_tree,
)
from comity.privacy.loss import LOSSES, Loss, Pure
from comity.privacy.mechanisms import ExponentialMechanism, NoisyCounts, NoisyMax
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.artefacts.dataset import Dataset
    from comity.federation.evaluation.assessment import Assessment

Choice = Literal["exponential", "permute-and-flip"]

# What the published noise costs.
#
# Printed: ε/2 for the tree, which is ε/(2h) for each of its h levels (h − 1 of choices, and the leaves), and ε/2 for
# the counts of levels 1 … p − 1. The noise below is that of the paper. Its true cost (proof.md, 2 to 4):
#
#     with ε' = ε/(2h)                 a record is added or removed  a record is replaced
#     one level of choices             ε'/2                          ε'
#     leaves                           ε'                            2ε'
#     counts of p − 1 levels           ε/2                           ε·(p − 2)/(p − 1)
#
# Choices cost half of what is printed, because scores are monotone. A replaced record counts twice everywhere but at
# the root, whose count does not change.


@dataclass(frozen=True)
class Budget:
    """The printed ε of a study, divided over a tree of `depth` levels. Where sizes are made consistent, the first
    `levels` − 1 are `counted` too. `chooses` names the mechanism of choices; both cost the same."""

    epsilon: Decimal
    depth: int
    levels: int
    neighbours: Neighbours
    counted: bool = True
    chooses: Choice = "exponential"

    @classmethod
    def of(
        cls,
        loss: Loss,
        depth: int,
        levels: int,
        neighbours: Neighbours,
        *,
        counted: bool = True,
        chooses: Choice = "exponential",
    ) -> Budget:
        if not isinstance(loss, Pure) or loss.epsilon <= 0:
            raise StudyError(
                f"synthetic.variant = published has Laplace noise and needs a pure epsilon above 0, found {loss}; set "
                "privacy.delta to 0",
                key="privacy.delta",
            )
        return cls(loss.epsilon, depth, levels, neighbours, counted, chooses)

    @property
    def replaced(self) -> bool:
        return self.neighbours is Neighbours.REPLACE

    def _share(self, times: int, of: int) -> Pure:
        return Pure(LOSSES.divide(LOSSES.multiply(self.epsilon, Decimal(times)), Decimal(of)))

    @property
    def choice(self) -> ExponentialMechanism | NoisyMax:
        """The choices of one level, under both neighbour relations: weights exp(ε'u/2), or exponential noise of mean
        2/ε'."""
        touched = 2 if self.replaced else 1
        mechanism = ExponentialMechanism if self.chooses == "exponential" else NoisyMax
        return mechanism(loss=self._share(touched, 4 * self.depth), sensitivity=1.0, touched=touched, monotone=True)

    @property
    def leaves(self) -> NoisyCounts:
        """Laplace noise of scale 1/ε' on each count."""
        moved = 2 if self.replaced else 1
        return NoisyCounts(loss=self._share(moved, 2 * self.depth), sensitivity=float(moved))

    @property
    def counts(self) -> NoisyCounts:
        """Laplace noise of scale 2(p − 1)/ε on each count."""
        upper = self.levels - 1
        moved = 2 * (upper - 1) if self.replaced else upper
        return NoisyCounts(loss=self._share(moved, 2 * upper), sensitivity=float(moved))

    @property
    def total(self) -> Decimal:
        """The loss of a sharer by everything that it releases."""
        choices = LOSSES.multiply(self.choice.charged.epsilon, Decimal(self.depth - 1))
        counts = [one.charged for one in ((self.leaves, self.counts) if self.counted else (self.leaves,))]
        return LOSSES.add(choices, sum((one.epsilon for one in counts if isinstance(one, Pure)), Decimal(0)))

    @property
    def factor(self) -> float:
        """The loss divided by the printed ε."""
        return float(self.total / self.epsilon)


# Forms of what leaves. The sizes of trees are public and differ between owners. The number of shared records is not
# known beforehand.


@dataclass(frozen=True)
class OneOf:
    """A value of one of several forms. `read_tree` checks it against the shape of its owner's tree."""

    of: tuple[Form, ...]

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return any(form.fits(value, dims, consortium) for form in self.of)


@dataclass(frozen=True)
class SharedRecords:
    """Up to `most` records of `width` finite numbers each."""

    width: int
    most: int

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return (
            isinstance(value, np.ndarray)
            and value.dtype.str == "<f8"
            and value.ndim == 2
            and value.shape[1] == self.width
            and len(value) <= self.most
            and bool(np.isfinite(value).all())
        )


# Room for records: least squares leave about as many as there are, noise clipped at zero many times more.
MAX_RECORDS = 1 << 20


def split_name(number: int) -> str:
    """The release of the thresholds that a level chooses."""
    return f"split_{number + 1}"


def _one_of(forms: Iterable[Form]) -> OneOf:
    different: list[Form] = []
    for form in forms:
        if form not in different:
            different.append(form)
    return OneOf(tuple(different))


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labelling = Literal["vote", "own"]
Depth = Annotated[int, Interval(ge=3, le=20)]
Candidates = Annotated[int, Interval(ge=1, le=1000)]
Levels = Annotated[int, Interval(ge=3)]
Leaves = Annotated[int, Interval(ge=1, le=1_000_000)]

SHARER = "sharer"
SHARED_ALONE, SPREAD = "error of shared records alone", "spread between owners"
# The most shapes that are cached. Every step of a run uses the same ones, and in a simulation all sharers use all.
_MAX_SHAPES = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSynthetic(Protocol):
    """A private dataset of each sharer, made from a private tree of its records.

    Adversary    everyone who sees all trees and datasets: the coordinator and all other owners together. No owner
    relies
                 on another, because each draws its full noise itself.
    Unit         a record, added or removed, or replaced.
    Learned      sharers and coordinator: the trees. Everyone: the datasets. An owner's final model stays with it.
    Sensitivity  scores of thresholds 1, monotone; leaves 1 (replaced: 2); the counts of p − 1 levels p − 1 (replaced:
                 2(p − 2), because the root's count does not change) in L1 (proof.md, 2 to 4).

    `depth` (h) is the number of levels of a tree, `levels` (p) the number of levels whose sizes are made consistent;
    both include the leaves. `leaves` caps the width of every level. `seed` names the public randomness that draws
    shapes.
    """

    name: ClassVar[str] = "synthetic"
    variant: ClassVar[str] = "published"
    version: ClassVar[int] = 3
    assesses_own: ClassVar[bool] = True
    roles: ClassVar[tuple[str, ...]] = (SHARER,)
    needs_compiler: ClassVar[bool] = True

    schema: Schema
    depth: Depth
    candidates: Candidates
    levels: Levels
    leaves: Leaves
    labelling: Labelling
    consistency: bool
    choice: Choice
    learner: Learner | None
    losses: Losses
    l2: Positive
    seed: int

    @property
    def makes(self) -> str:
        return "synthetic datasets, one of each sharing party"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels > self.depth:
            raise StudyError(
                f"synthetic.levels must lie between 3 and {self.depth}, found {self.levels}", key="synthetic.levels"
            )
        # `Attributes` refuses a schema without a target.
        assert self.attributes.classes
        choose_learner(self.learner, self.target)

    # What the study fixes.

    @property
    def title(self) -> str:
        labels = f"labels by {'the vote of all trees' if self.labelling == 'vote' else 'the own tree'}"
        return f"synthetic (published trees, {labels}{'' if self.consistency else ', no least squares'})"

    @property
    def stackable(self) -> bool:
        return False

    @cached_property
    def attributes(self) -> Attributes:
        return Attributes(self.schema)

    @property
    def encoding(self) -> Encoding:
        return self.attributes.encoding

    @property
    def target(self) -> Target:
        target = self.schema.target
        assert target is not None
        return target

    @property
    def kind(self) -> Learner:
        """The kind of model that owners fit."""
        return choose_learner(self.learner, self.target)

    @cached_property
    def _digest(self) -> str:
        return self.schema.digest()

    def shape(self, party: str) -> Shape:
        """The public shape of a party's tree."""
        stream = ("published tree", self._digest, self.seed, party)
        return _shape(self.attributes.all, self.depth, self.candidates, self.leaves, stream)

    def sharers(self, consortium: Consortium) -> Sequence[str]:
        return consortium.among(self.source(consortium))

    def source(self, consortium: Consortium) -> str:
        return SHARER if consortium.roles.get(SHARER) else EVERY_PARTY

    def budget(self, consortium: Consortium) -> Budget:
        return Budget.of(
            consortium.loss,
            self.depth,
            self.levels,
            consortium.neighbours,
            counted=self.consistency,
            chooses=self.choice,
        )

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'synthetic.variant = published protects a record; found privacy.unit = "{consortium.unit}". Set '
                'privacy.unit = "record"',
                key="privacy.unit",
            )
        budget = self.budget(consortium)
        return Declaration(
            self._declare_releases(consortium, budget),
            adversary="everyone who sees all trees and datasets: all other owners and the coordinator together",
            claim=self._state_claim(budget),
        )

    def _declare_releases(self, consortium: Consortium, budget: Budget) -> tuple[Release, ...]:
        source, classes = self.source(consortium), self.attributes.classes
        shapes = [self.shape(party) for party in self.sharers(consortium)]

        def by_sharers(name: str, to: str, protection: Computed | Derived, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        def by_coordinator(name: str, to: str, of: str, form: Form) -> Release:
            return Release(name=name, source=COORDINATOR, to=to, protection=Derived(of), form=form)

        splits = tuple(
            by_sharers(
                split_name(number),
                ITSELF,
                Computed(budget.choice),
                _one_of(Array((shape.choices[number],), "<i8") for shape in shapes),
            )
            for number in range(len(shapes[0].levels))
        )
        leaves = _one_of(Array((shape.leaves, classes), "<i8") for shape in shapes)
        sizes = _one_of(Array((self._count_upper_nodes(shape),), "<i8") for shape in shapes)
        counts = (by_sharers("counts", ITSELF, Computed(budget.counts), sizes),) if self.consistency else ()
        tree = _one_of(self._tree_form(shape) for shape in shapes)
        records = SharedRecords(len(self.attributes.all) + 1, MAX_RECORDS)
        return (
            *splits,
            by_sharers("leaves", ITSELF, Computed(budget.leaves), leaves),
            *counts,
            by_sharers("tree", COORDINATOR, Derived(*(release.name for release in splits), "leaves"), tree),
            by_coordinator("trees", source, "tree", Each(tree)),
            by_sharers("dataset", COORDINATOR, Derived("trees", *(release.name for release in counts)), records),
            by_coordinator("datasets", EVERYONE, "dataset", Each(records)),
        )

    def _count_upper_nodes(self, shape: Shape) -> int:
        return sum(level.nodes for level in shape.levels[: self.levels - 1])

    def _tree_form(self, shape: Shape) -> Fields:
        nodes = sum(level.nodes for level in shape.levels)
        counts = Array((shape.leaves, self.attributes.classes), "<i8")
        return Fields({"thresholds": Array((nodes,)), "counts": counts})

    @staticmethod
    def _state_claim(budget: Budget) -> str:
        if budget.total <= budget.epsilon:
            return PRIVATE
        return (
            f"not private as claimed: the paper claims {Pure(budget.epsilon)}, and a record that is replaced loses "
            f"{Pure(budget.total)}, because it moves the counts of two nodes; set privacy.neighbours to "
            '"add-remove"'
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        sharers = self.sharers(parties.consortium)
        need = max(1, len(sharers) - parties.consortium.dropouts)
        grown = parties.ask(self.grow, to=sharers, need=need)
        trees = {party: values["tree"] for party, values in grown.items()}
        shared = parties.ask(self.share, to=list(trees), need=min(need, len(trees)), trees=trees)
        datasets = {party: values["dataset"] for party, values in shared.items()}
        parties.ask(self.learn, datasets=datasets)
        return {"datasets": datasets}

    # What a site does.

    @step(gives=("tree",))
    def grow(self, site: Site) -> dict[str, Any]:
        """Grow this owner's tree, with one debit for each level of choices and one for the leaves."""
        values, labels = self._own_values(site)
        tree = grow_tree(
            self.shape(site.party),
            values,
            labels,
            self.attributes.classes,
            choose=lambda number, rows: site.compute(rows, name=split_name(number)),
            noise=lambda counts: site.compute(counts, name="leaves"),
        )
        sent = {"thresholds": np.concatenate(tree.thresholds).astype("<f8"), "counts": tree.counts.astype("<i8")}
        site.keep("synthetic.tree", sent)
        return {"tree": sent}

    @step(gives=("dataset",))
    def share(self, site: Site, trees: Mapping[str, Any]) -> dict[str, Any]:
        """Make records from this owner's tree, with the labels that all trees vote for."""
        kept = site.kept("synthetic.tree")
        if kept is None:
            raise Refused(f"{site.party} has grown no tree in this run", code="missing", key="tree")
        tree = self.read_tree(site.party, kept)
        voters = [self.read_tree(party, sent) for party, sent in trees.items()] if self.labelling == "vote" else [tree]
        if self.consistency:
            path = tree.path(self._own_values(site)[0])
            counts = site.compute(count_levels(tree.shape, path, self.levels - 1), name="counts")
            masses = solve_leaf_masses(tree, counts, self.levels - 1)
        else:
            masses = clip_leaf_masses(tree)
        stream = site.public_stream("synthetic records", site.party)
        sizes = round_masses(masses, stream)
        records = draw_records(tree, _truncate(sizes, MAX_RECORDS), stream)
        labels = vote(voters, records, self.attributes.classes)
        return {"dataset": np.column_stack([records, draw_targets(self.target, labels, stream)]).astype("<f8")}

    @step()
    def learn(self, site: Site, datasets: Mapping[str, Floats]) -> None:
        """Fit this owner's model to its own records, without noise, and to all shared ones. It stays at the site."""
        rows, labels = self._join_datasets(datasets)
        own = np.asarray(site.labels)
        features = np.concatenate([rows, site.features[:, : self.encoding.width]])
        site.deliver("model", self._fit(features, np.concatenate([labels, own])))

    def _fit(self, rows: Floats, labels: NDArray[Any]) -> Floats:
        return train_model(self.kind, self.target, rows, labels, self.l2, losses=self.losses)

    def _own_values(self, site: Site) -> tuple[Floats, Integers]:
        return self.attributes.values(site.features), self.attributes.labels(site.labels)

    def read_tree(self, party: str, sent: Mapping[str, Any]) -> Tree:
        """The tree that a party sent. Refuse one that does not have the public shape of this party's tree."""
        shape = self.shape(party)
        ends = np.cumsum([level.nodes for level in shape.levels])
        thresholds, counts = sent["thresholds"], sent["counts"]
        if thresholds.shape != (ends[-1],) or counts.shape != (shape.leaves, self.attributes.classes):
            raise Malformed(f"the tree of {party} is not of its public shape", code="form", key="tree")
        return Tree(shape, tuple(np.split(thresholds, ends[:-1])), counts)

    def _concatenate(self, datasets: Mapping[str, Floats]) -> Floats:
        """All shared records: attributes, and the target in the last column."""
        return np.concatenate([np.zeros((0, len(self.attributes.all) + 1)), *datasets.values()])

    def _join_datasets(self, datasets: Mapping[str, Floats]) -> tuple[Floats, NDArray[Any]]:
        """Encoded rows and targets of all shared records."""
        records = self._concatenate(datasets)
        labels = records[:, -1] if isinstance(self.target, Bounded) else records[:, -1].astype(np.int64)
        return self.attributes.rows(records[:, :-1]), labels

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Dataset:
        """All shared records in one table, without identifiers."""
        from comity.artefacts.dataset import Dataset
        from comity.methods.synthetic.published.synthesis import build_table

        records = self._concatenate(released["datasets"])
        table = build_table(self.attributes, records[:, :-1], records[:, -1])
        return Dataset(table, replace(self.schema, identifier=None))

    def present_own(self, own: Mapping[str, Any], consortium: Consortium) -> Mapping[str, Artefact]:
        """The owner's model. It was fitted to raw records, so it is for its owner only."""
        return {"model": build_model(self.target, own["model"], self.encoding)} if "model" in own else {}

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.federation.evaluation.assessment import Assessment

        baselines = [] if train is None else self.compare(train, test)
        of = f"{self._measure}, by a {self.kind} model of the shared records alone"
        return Assessment(self.score(presented, test), of, tuple(baselines))

    @property
    def _measure(self) -> str:
        if isinstance(self.target, Bounded):
            return "mean squared error, with the target's bounds at -1 and 1"
        return "share of test records that is predicted wrongly"

    def assess_own(self, found: Assessment, own: Mapping[str, Mapping[str, Artefact]], test: Records) -> Assessment:
        """The mean error of the owners' own models, which is what the paper reports. The error of a model of the shared
        records alone, which readers of the release can fit too, is beside it."""
        from comity.federation.evaluation.assessment import Figure

        models = [kept["model"] for kept in own.values() if "model" in kept]
        if not models or test.labels is None:
            return found
        errors = [self._measure_model(model, test) for model in models]
        figures = [Figure(SPREAD, float(np.std(errors)), "standard deviation over owners of the error of their models")]
        if found.error is not None:
            figures.append(Figure(SHARED_ALONE, found.error, found.measure))
        return replace(
            found,
            error=float(np.mean(errors)),
            measure=f"{self._measure}, by each owner's own {self.kind} model of its records and all shared ones: the "
            f"mean over {len(errors)} owners",
            figures=(*found.figures, *figures),
        )

    def _measure_model(self, model: Any, test: Records) -> float:
        return measure_error(self.target, np.atleast_2d(model.weights), test.features, np.asarray(test.labels))

    def record_errors(self, presented: Any, own: Mapping[str, Mapping[str, Artefact]], test: Records) -> Floats | None:
        """Of the owners' own models: the mean over them. Of a model of the shared records where owners keep none."""
        if test.labels is None:
            return None
        kept: list[Any] = [artefacts["model"] for artefacts in own.values() if "model" in artefacts]
        weights = [np.atleast_2d(model.weights) for model in kept] or [self._fit_shared(presented)]
        errors = [measure_errors(self.target, one, test.features, test.labels) for one in weights]
        return np.asarray(np.mean(errors, axis=0), np.float64)

    def score(self, model: Any, test: Records) -> float | None:
        """The error of a model that is fitted to the shared records alone."""
        if test.labels is None:
            return None
        return measure_error(self.target, self._fit_shared(model), test.features, test.labels)

    def _fit_shared(self, presented: Any) -> Floats:
        shared = self.encoding.encode(presented.frame).records
        assert shared.labels is not None
        return self._fit(shared.features, shared.labels)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """Score a model that is fitted to the shared records alone."""
        weights = self._fit_shared(presented)
        numbers = PredictionTask(0, self.target.low, self.target.high) if isinstance(self.target, Bounded) else None
        return score_predictor(build_model(self.target, weights, self.encoding), records, numbers)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return compare_baselines(self.kind, self.target, train, test, self.l2, losses=self.losses)

    # What the plan says.

    def expectation(self, consortium: Consortium) -> str:
        budget = self.budget(consortium)
        leaves = [self.shape(party).leaves for party in self.sharers(consortium)]
        return (
            f"trees of {min(leaves)} to {max(leaves)} leaves; each class count of a leaf carries noise of standard "
            f"deviation {2**0.5 * budget.leaves.scale.total:.3g}, each count of a level above "
            f"{2**0.5 * budget.counts.scale.total:.3g}"
        )

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 5."""
        budget = self.budget(consortium)
        why = "scores of thresholds all move in one direction, so a choice costs half of what is printed"
        if budget.replaced:
            why = "a record that is replaced moves the counts of two nodes on each level"
        reader, claimed = "everyone who sees all trees and datasets", str(Pure(budget.epsilon))
        return (TrueLoss("a record", reader, claimed, f"at most {Pure(budget.total)}", why),)

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        return (
            f"the noise is as printed for {Pure(budget.epsilon)} and costs {budget.factor:.3f} of that (proof.md, 5)",
            "the shapes of trees are public, drawn from the schema and synthetic.seed; every owner's own model stays "
            "at its site",
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return (
            "as published, owners' models with the shared records are about as good as a constant (error on Census at "
            "eps 1: .24, of a constant .24, of owners alone .20), because leaves hold less than their noise; use "
            'variant = "default" for real work',
        )


@lru_cache(maxsize=_MAX_SHAPES)
def _shape(
    attributes: tuple[Attribute, ...], depth: int, candidates: int, leaves: int, stream: tuple[str | int, ...]
) -> Shape:
    return draw_shape(attributes, depth=depth, candidates=candidates, leaves=leaves, stream=Stream.public(*stream))


def _truncate(sizes: Integers, most: int) -> Integers:
    """Sizes that add up to at most `most`; what is too much is taken from the last leaves."""
    return np.asarray(np.diff(np.minimum(np.concatenate([[0], np.cumsum(sizes)]), most)), np.int64)
