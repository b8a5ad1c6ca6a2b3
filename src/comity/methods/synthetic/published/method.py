"""Private datasets as published: each sharer grows a private tree, makes records from it, and all trees vote on labels.

F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019 (PFDS):

    1  SharePredictor   each sharer sends a private tree to all sharers                      (`grow`)
    2  ShareData        each sharer counts the upper levels of its tree, makes the counts consistent, makes records in
                        the leaves, labels them by the vote of all trees and sends them to everyone    (`share`)
    3  each owner fits a model to the shared records and its own, and keeps it               (`learn`)

Sharers are the parties with the role "sharer", or all parties where none has it. The noise is that of the paper; its
true cost is in `Budget` and `proof.md`. The schema is public and so is the shape of every tree. One thing is not as
printed: choices are made by noisy max (permute-and-flip) instead of the exponential mechanism, at the same loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    build_model,
    choose_learner,
    compare_baselines,
    measure_error,
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
from comity.privacy.mechanisms import NoisyCounts, NoisyMax
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.artefacts.dataset import Dataset
    from comity.federation.evaluation.assessment import Assessment

# What the published noise costs.
#
# Printed: ε/2 for the tree, ε/(2h) for each of its h levels (h − 1 of choices, and the leaves), and ε/2 for the counts
# of levels 1 … p − 1. The noise below is that of the paper. Its true cost (proof.md, 2 to 4):
#
#     with ε' = ε/(2h)                 a record is added or removed  a record is replaced
#     one level of choices             ε'/2                          ε'
#     leaves                           ε'                            2ε'
#     counts of p − 1 levels           ε/2                           ε·(p − 2)/(p − 1)
#
# Choices cost half of what is printed because scores are monotone. A replaced record counts twice everywhere but at the
# root, whose count stays.


@dataclass(frozen=True)
class Budget:
    """The printed ε of a study, laid out over a tree of `depth` levels, the first `levels` − 1 of which are `counted`
    where sizes are made consistent."""

    epsilon: Decimal
    depth: int
    levels: int
    neighbours: Neighbours
    counted: bool = True

    @classmethod
    def of(cls, loss: Loss, depth: int, levels: int, neighbours: Neighbours, *, counted: bool = True) -> Budget:
        if not isinstance(loss, Pure) or loss.epsilon <= 0:
            raise StudyError(
                f"synthetic.variant = published has Laplace noise and needs a pure epsilon above 0, found {loss}; set "
                "privacy.delta to 0",
                key="privacy.delta",
            )
        return cls(loss.epsilon, depth, levels, neighbours, counted)

    @property
    def replaced(self) -> bool:
        return self.neighbours is Neighbours.REPLACE

    def _share(self, times: int, of: int) -> Pure:
        return Pure(LOSSES.divide(LOSSES.multiply(self.epsilon, Decimal(times)), Decimal(of)))

    @property
    def choice(self) -> NoisyMax:
        """Of one level: exponential noise of mean 2/ε', whoever is a neighbour."""
        twice = 2 if self.replaced else 1
        return NoisyMax(loss=self._share(twice, 4 * self.depth), sensitivity=1.0, touched=twice, monotone=True)

    @property
    def leaves(self) -> NoisyCounts:
        """Laplace noise of scale 1/ε' on each count."""
        moved = 2 if self.replaced else 1
        return NoisyCounts(loss=self._share(moved, 2 * self.depth), sensitivity=float(moved))

    @property
    def counts(self) -> NoisyCounts:
        """Laplace noise of scale 2(p − 1)/ε on each count."""
        measured = self.levels - 1
        moved = 2 * (measured - 1) if self.replaced else measured
        return NoisyCounts(loss=self._share(moved, 2 * measured), sensitivity=float(moved))

    @property
    def total(self) -> Decimal:
        """The loss of a sharer by everything that it releases."""
        each = LOSSES.multiply(self.choice.charged.epsilon, Decimal(self.depth - 1))
        rest = [one.charged for one in ((self.leaves, self.counts) if self.counted else (self.leaves,))]
        return LOSSES.add(each, sum((one.epsilon for one in rest if isinstance(one, Pure)), Decimal(0)))

    @property
    def factor(self) -> float:
        """The loss by the printed ε."""
        return float(self.total / self.epsilon)


# What leaves. Sizes of trees differ between owners and are public; the number of shared records is not known before.


@dataclass(frozen=True)
class OneOf:
    """A value of one of several forms: an owner's own shape is checked where it is known whose value it is."""

    of: tuple[Form, ...]

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return any(form.fits(value, dims, consortium) for form in self.of)


@dataclass(frozen=True)
class Rows:
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


# Room for records: least squares leave about as many as there are, noise that is cut at zero many times more.
MAX_RECORDS = 1 << 20


def declare_releases(
    shapes: Sequence[Shape], budget: Budget, source: str, *, classes: int, columns: int, levels: int
) -> tuple[Release, ...]:
    """For owners with trees of these shapes; `levels` is of how many sizes are taken, 0 where leaves are left alone."""

    def made(name: str, to: str, protection: Computed | Derived, form: Any) -> Release:
        return Release(name=name, source=source, to=to, protection=protection, form=form)

    def sent(name: str, to: str, of: str, form: Any) -> Release:
        return Release(name=name, source=COORDINATOR, to=to, protection=Derived(of), form=form)

    splits = tuple(
        made(
            split_name(number),
            ITSELF,
            Computed(budget.choice),
            OneOf(_drop_duplicates(Array((shape.choices[number],), "<i8") for shape in shapes)),
        )
        for number in range(len(shapes[0].levels))
    )
    leaves = OneOf(_drop_duplicates(Array((shape.leaves, classes), "<i8") for shape in shapes))
    sizes = OneOf(_drop_duplicates(Array((_count_nodes(shape, levels),), "<i8") for shape in shapes))
    counted = (made("counts", ITSELF, Computed(budget.counts), sizes),) if levels else ()
    tree, rows = OneOf(_drop_duplicates(_tree_form(shape, classes) for shape in shapes)), Rows(columns, MAX_RECORDS)
    return (
        *splits,
        made("leaves", ITSELF, Computed(budget.leaves), leaves),
        *counted,
        made("tree", COORDINATOR, Derived(*(release.name for release in splits), "leaves"), tree),
        sent("trees", source, "tree", Each(tree)),
        made("dataset", COORDINATOR, Derived("trees", *(release.name for release in counted)), rows),
        sent("datasets", EVERYONE, "dataset", Each(rows)),
    )


def _count_nodes(shape: Shape, levels: int) -> int:
    return sum(level.nodes for level in shape.levels[: levels - 1])


def state_claim(budget: Budget) -> str:
    if budget.total <= budget.epsilon:
        return PRIVATE
    return (
        f"not private as claimed: {Pure(budget.epsilon)} is claimed for a record that is replaced and "
        f"{Pure(budget.total)} is lost, because such a record moves the counts of two nodes; set "
        'privacy.neighbours to "add-remove"'
    )


def split_name(number: int) -> str:
    return f"split_{number + 1}"


def _tree_form(shape: Shape, classes: int) -> Fields:
    nodes = sum(level.nodes for level in shape.levels)
    return Fields({"thresholds": Array((nodes,)), "counts": Array((shape.leaves, classes), "<i8")})


def _drop_duplicates(forms: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for form in forms:
        if form not in found:
            found.append(form)
    return tuple(found)


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labelling = Literal["vote", "own"]
Depth = Annotated[int, Interval(ge=3, le=20)]
Candidates = Annotated[int, Interval(ge=1, le=1000)]
Levels = Annotated[int, Interval(ge=3)]
Leaves = Annotated[int, Interval(ge=1, le=1_000_000)]

SHARER = "sharer"
# Shapes are public and the same in every step of a run; the sharers of a simulation all look at all of them.
_MAX_SHAPES = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSynthetic(Protocol):
    """A private dataset of each sharer, from a private tree of its own records.

    Adversary    whoever sees all that is shared, the other owners and the coordinator together. No owner relies on
                 another: each draws its own noise in full.
    Unit         a record, added or removed, or replaced.
    Learned      sharers and coordinator: the trees. Everyone: the datasets. An owner's final model stays with it.
    Sensitivity  scores of thresholds 1, monotone; leaves 1 (replaced: 2); the counts of p − 1 levels p − 1 (replaced:
                 2(p − 2), the root's count staying) in L1 (proof.md, 2 to 4).

    `depth` (h) counts the level of the leaves; `levels` (p) that of the leaves too, of those that sizes are taken from.
    `leaves` caps the width of every level; `seed` names the public chance that shapes are drawn from.
    """

    name: ClassVar[str] = "synthetic"
    variant: ClassVar[str] = "published"
    roles: ClassVar[tuple[str, ...]] = (SHARER,)

    schema: Schema
    depth: Depth
    candidates: Candidates
    levels: Levels
    leaves: Leaves
    labelling: Labelling
    consistency: bool
    learner: Learner | None
    l2: Positive
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels > self.depth:
            raise StudyError(
                f"synthetic.levels must lie between 3 and {self.depth}, found {self.levels}", key="synthetic.levels"
            )
        # The attributes of a schema without a target are refused.
        assert self.attributes.classes
        choose_learner(self.learner, self.target)

    # What the study fixes.

    @property
    def title(self) -> str:
        made = f"labels by {'the vote of all trees' if self.labelling == 'vote' else 'the own tree'}"
        return f"synthetic (published trees, {made}{'' if self.consistency else ', no least squares'})"

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
        """Of the models that owners fit."""
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
        return Budget.of(consortium.loss, self.depth, self.levels, consortium.neighbours, counted=self.consistency)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'synthetic.variant = published protects a record; found privacy.unit = "{consortium.unit}". Set '
                'privacy.unit = "record"',
                key="privacy.unit",
            )
        budget, source = self.budget(consortium), self.source(consortium)
        shapes = [self.shape(party) for party in self.sharers(consortium)]
        return Declaration(
            declare_releases(
                shapes,
                budget,
                source,
                classes=self.attributes.classes,
                columns=len(self.attributes.all) + 1,
                levels=self.levels if self.consistency else 0,
            ),
            adversary="whoever sees all trees and datasets, all other owners and the coordinator together",
            claim=state_claim(budget),
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        sharers = self.sharers(parties.consortium)
        need = max(1, len(sharers) - parties.consortium.dropouts)
        grown_ones = parties.ask(self.grow, to=sharers, need=need)
        trees = {party: given["tree"] for party, given in grown_ones.items()}
        made = parties.ask(self.share, to=list(trees), need=min(need, len(trees)), trees=trees)
        datasets = {party: given["dataset"] for party, given in made.items()}
        parties.ask(self.learn, datasets=datasets)
        return {"datasets": datasets}

    # What a site does.

    @step(gives=("tree",))
    def grow(self, site: Site) -> dict[str, Any]:
        """This owner's tree: one debit for each level of choices, one for the leaves."""
        values, labels = self._own(site)
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
        """Records from this owner's tree, with the labels that all trees vote for."""
        kept = site.kept("synthetic.tree")
        if kept is None:
            raise Refused(f"{site.party} has grown no tree in this run", code="missing", key="tree")
        mine = self.tree(site.party, kept)
        voters = self._read(trees) if self.labelling == "vote" else [mine]
        if self.consistency:
            path = mine.path(self._own(site)[0])
            counts = site.compute(count_levels(mine.shape, path, self.levels - 1), name="counts")
            masses = solve_leaf_masses(mine, counts, self.levels - 1)
        else:
            masses = clip_leaf_masses(mine)
        stream = site.public_stream("synthetic records", site.party)
        sizes = round_masses(masses, stream)
        made = draw_records(mine, _truncate(sizes, MAX_RECORDS), stream)
        labels = vote(voters, made, self.attributes.classes)
        return {"dataset": np.column_stack([made, draw_targets(self.target, labels, stream)]).astype("<f8")}

    @step()
    def learn(self, site: Site, datasets: Mapping[str, Floats]) -> None:
        """This owner's own model, of its own records as they are and all that was shared. It goes nowhere."""
        rows, labels = self._together(datasets)
        own = np.asarray(site.labels)
        features = np.concatenate([rows, site.features[:, : self.encoding.width]])
        fitted = train_model(self.kind, self.target, features, np.concatenate([labels, own]), self.l2)
        site.deliver("model", fitted)

    def _own(self, site: Site) -> tuple[Floats, Integers]:
        return self.attributes.values(site.features), self.attributes.labels(site.labels)

    def tree(self, party: str, sent: Mapping[str, Any]) -> Tree:
        """A tree as its owner sent it, if it has the public shape of this owner's trees."""
        shape = self.shape(party)
        ends = np.cumsum([level.nodes for level in shape.levels])
        thresholds, counts = sent["thresholds"], sent["counts"]
        if thresholds.shape != (ends[-1],) or counts.shape != (shape.leaves, self.attributes.classes):
            raise Malformed(f"the tree of {party} is not of its public shape", code="form", key="tree")
        return Tree(shape, tuple(np.split(thresholds, ends[:-1])), counts)

    def _read(self, trees: Mapping[str, Any]) -> list[Tree]:
        return [self.tree(party, sent) for party, sent in trees.items()]

    def _together(self, datasets: Mapping[str, Floats]) -> tuple[Floats, NDArray[Any]]:
        """Encoded rows and targets of all shared records."""
        width = len(self.attributes.all) + 1
        made = np.concatenate([np.zeros((0, width)), *datasets.values()])
        labels = made[:, -1] if isinstance(self.target, Bounded) else made[:, -1].astype(np.int64)
        return self.attributes.rows(made[:, :-1]), labels

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Dataset:
        """All shared records in one table. They are nobody's, so that they name nobody."""
        from comity.artefacts.dataset import Dataset
        from comity.methods.synthetic.published.synthesis import build_table

        made = np.concatenate([np.zeros((0, len(self.attributes.all) + 1)), *released["datasets"].values()])
        return Dataset(build_table(self.attributes, made[:, :-1], made[:, -1]), replace(self.schema, identifier=None))

    def present_own(self, own: Mapping[str, Any], consortium: Consortium) -> Mapping[str, Artefact]:
        """The owner's own model, in the form of any other model; it was fitted to raw records, and is its owner's."""
        return {"model": build_model(self.target, own["model"], self.encoding)} if "model" in own else {}

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.federation.evaluation.assessment import Assessment

        compared = [] if train is None else self.compare(train, test)
        numbers = isinstance(self.target, Bounded)
        measure = (
            "mean squared error, the target's bounds being -1 and 1"
            if numbers
            else "share of test records that is predicted wrongly"
        )
        said = f"{measure}, by a {self.kind} model of the shared records alone"
        return Assessment(self.score(presented, test), said, tuple(compared))

    def score(self, model: Any, test: Records) -> float | None:
        """The error of a model that is fitted to the shared records alone."""
        if test.labels is None:
            return None
        found = self.encoding.encode(model.frame).records
        assert found.labels is not None
        weights = train_model(self.kind, self.target, found.features, found.labels, self.l2)
        return measure_error(self.target, weights, test.features, test.labels)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """Of a model that is fitted to the shared records alone."""
        found = self.encoding.encode(presented.frame).records
        assert found.labels is not None
        weights = train_model(self.kind, self.target, found.features, found.labels, self.l2)
        numbers = PredictionTask(0, self.target.low, self.target.high) if isinstance(self.target, Bounded) else None
        return score_predictor(build_model(self.target, weights, self.encoding), records, numbers)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return compare_baselines(self.kind, self.target, train, test, self.l2)

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
        why = "scores of thresholds all move the same way, so that a choice costs half of what is printed"
        if budget.replaced:
            why = "a record that is replaced moves the counts of two nodes on each level"
        sees, claimed = "whoever sees all trees and datasets", str(Pure(budget.epsilon))
        return (TrueLoss("a record", sees, claimed, f"at most {Pure(budget.total)}", why),)

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        return (
            f"the noise is as printed for {Pure(budget.epsilon)}; what it costs is {budget.factor:.3f} of that "
            "(proof.md, 5)",
            "the shapes of trees are public, drawn from the schema and synthetic.seed; every owner's own model stays "
            "at its site",
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return (
            "as published, what is learned from the shared records is about what a constant knows (Census .239 at eps "
            '1, a constant .239): leaves hold less than their noise; use variant = "default" for records to work with',
        )


@lru_cache(maxsize=_MAX_SHAPES)
def _shape(
    attributes: tuple[Attribute, ...], depth: int, candidates: int, leaves: int, stream: tuple[str | int, ...]
) -> Shape:
    return draw_shape(attributes, depth=depth, candidates=candidates, leaves=leaves, stream=Stream.public(*stream))


def _truncate(sizes: Integers, most: int) -> Integers:
    """Sizes that add up to no more than `most`: what is beyond is left out, from the last leaf on."""
    return np.asarray(np.diff(np.minimum(np.concatenate([[0], np.cumsum(sizes)]), most)), np.int64)
