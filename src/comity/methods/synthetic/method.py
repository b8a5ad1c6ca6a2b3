"""Synthetic records from two-way counts: one secure sum with one noise, from which anyone makes rows.

After F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019, where every agent releases
its own dataset. Here the agents' records are counted together: each count carries one noise instead of one per agent,
and one dataset results. With `rounds` = 2 a second sum counts the strongest pairs again.
Derivations: `proof.md`. Parties that hold different columns: `columns.py`. The paper's method: `published/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from comity.data import Bounded, CellEncoding, LocalRecords, Records, Schema, split_columns
from comity.errors import Malformed, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Counts, Range
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array, Count, Each, Fields, Form
from comity.federation.owner.rows import Rows
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.by_columns import AlignmentMethod, MaxRows, ProductMethod
from comity.methods.constants import Constant
from comity.methods.declared_records import Sizes, check_sizes, sum_sizes
from comity.methods.method import Method, Only, Setting
from comity.methods.synthetic.counts import (
    BINS,
    FIRST_SHARE,
    MAX_COLUMNS,
    MAX_COUNTS,
    MAX_LABEL_ERROR,
    MAX_PAIR_NOISE,
    Counting,
    Recount,
    affords_pairs,
    expected_errors,
    fit_counting,
    label_error,
    pair_noise,
    split_loss,
    table_ranges,
)
from comity.methods.synthetic.edges import (
    MAX_EDGE_NOISE,
    MEASURED_BINS,
    MEASURING_SHARE,
    MeasuredNumbers,
    Measuring,
    edge_noise,
)
from comity.methods.synthetic.owners import OWNER, add_owner_column, check_owner_column, check_owner_counts
from comity.methods.synthetic.published.constants import PAPER
from comity.methods.synthetic.published.method import (
    Candidates,
    Choice,
    Depth,
    Labelling,
    Leaves,
    Levels,
    PublishedSynthetic,
)
from comity.methods.synthetic.published.predictor import Learner, Losses
from comity.methods.synthetic.triples import (
    LARGER_SHARE,
    MAX_TRIPLE_NOISE,
    Triples,
    choose_triple_share,
    find_triples,
    triple_noise,
)
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.federation.evaluation.assessment import Assessment
    from comity.federation.evaluation.own_score import OwnScore
    from comity.methods.synthetic.artefact import SyntheticDataset

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Model = Literal["auto", "mixture", "naive-bayes"]
Pooling = Literal["sum", "none"]
Rounds = Annotated[int, Interval(ge=1, le=2)]
MeasuredEdges = Literal["auto", "measured", "equal"]
CountedTriples = Literal["auto", "counted", "none"]

# The most records that one party may count; cells are clipped beyond. It decides the width of integers and moves no
# noise: a limit of size.
MAX_RECORDS = 1 << 31
# The most parties for which each one's own dataset is written too, if parties release alone: a limit of size.
MAX_DATASETS = 16

# Options.


def _refuse_decimals(value: Any) -> Any:
    """A number of records is a whole number also in how it is written."""
    written = value.values() if isinstance(value, dict) else (value,)
    if any(isinstance(one, float) for one in written):
        raise PydanticCustomError("whole_number", "expected a whole number of records; write it without decimals")
    return value


class Synthetic(Method):
    """A dataset of synthetic records, made from noisy counts of all parties' records.

        method = comity.Synthetic(schema, sizes=400)
        print(method.plan(["north", "south", "east"], epsilon=1, delta=1e-6))
        dataset = method.simulate(frames, epsilon=1, delta=1e-6).presented
        dataset.frame

    It protects each record, against a curious coordinator with up to `colluders` parties and against everyone who sees
    the counts or the rows. Give `columns` where parties hold different columns of the same people.
    `variant="published"` is the method of Fioretto and Van Hentenryck (2019), with the guarantee that it has.
    """

    table: ClassVar[str] = "synthetic"
    by_columns: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"max_rows": "rows_at_most"}
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {"published": {"delta": 0}}
    paper: ClassVar[Mapping[str, Constant]] = PAPER
    facts: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "held": {
            "rows": "parties that hold whole records",
            "columns": "parties that hold different columns ([parties.NAME] columns)",
        }
    }

    variant: Literal["default", "published"] = Field(
        "default",
        description="default: two-way counts by one secure sum with shared noise; published: private trees, shared and "
        "sampled",
    )
    model: Annotated[Model, Only(variant="default")] = Field(
        "auto", description="auto: naive-bayes where noise would cover the pairs of columns, by the declared records"
    )
    sizes: Annotated[
        dict[str, int] | int | None, BeforeValidator(_refuse_decimals), Only(variant="default", held="rows")
    ] = Field(None, description="records of each party, or one number for each; their sum is what `rows` says")
    rows: Annotated[int | None, BeforeValidator(_refuse_decimals), Only(variant="default")] = Field(
        None,
        ge=1,
        description="records of all parties together: a round figure, or their exact number where neighbours replace; "
        "tables that count more than four times as many end the run",
    )
    bins: Annotated[int | Literal["auto"], Only(variant="default")] = Field(
        "auto", description="cells of numbers without bins in the schema; auto: 8, or fewer for very many columns"
    )
    edges: Annotated[MeasuredEdges, Only(variant="default", held="rows")] = Field(
        "auto",
        description="cells of numbers without bins or edges in the schema; measured: with 10 % of the loss; equal: of "
        "equal length; auto: measured where noise allows it, in one round of one sum",
    )
    pooling: Annotated[Pooling, Only(variant="default", held="rows")] = Field(
        "sum", description="sum: one noise for the sum of all; none: each party releases its counts with its own noise"
    )
    rounds: Annotated[Rounds, Only(variant="default", held="rows", pooling="sum", model=("auto", "mixture"))] = Field(
        1,
        description="2: all tables with 40 % of the loss, then those with the target and the 25 strongest others again",
    )
    triples: Annotated[CountedTriples, Only(variant="default", held="rows")] = Field(
        "auto",
        description="tables of three columns in few groups of cells; counted: with 30 or 50 % of the loss; none: pairs "
        "alone; auto: counted where noise allows it, by the declared records, in one round of one sum",
    )
    by_owner: Annotated[bool, Only(variant="default", held="rows", pooling="sum")] = Field(
        False,
        description="true: a column `owner` says which party's records a row is like; it is counted with the others, "
        "so what differs between parties is released too",
    )
    products: Annotated[ProductMethod, Only(variant="default", held="columns")] = Field(
        "rlwe", description="parties with different columns: how tables across parties are computed"
    )
    alignment: Annotated[AlignmentMethod | None, Only(variant="default", held="columns")] = Field(
        None,
        description="parties with different columns: how rows are matched; keyed if the schema has an identifier, none "
        "otherwise",
    )
    max_rows: Annotated[MaxRows, Only(variant="default", held="columns")] = Field(
        1 << 20, description="parties with different columns: the most rows that products have room for"
    )
    depth: Annotated[Depth, Only(variant="published")] = Field(
        8, description="published only: levels of a tree, including the leaves"
    )
    candidates: Annotated[Candidates, Only(variant="published")] = Field(
        10, description="published only: thresholds to choose from"
    )
    levels: Annotated[Levels, Only(variant="published")] = Field(
        4, description="published only: levels whose sizes are made consistent, including the leaves"
    )
    leaves: Annotated[Leaves, Only(variant="published")] = Field(
        20_000, description="published only: most nodes of a level, by a rule that reads no record"
    )
    labelling: Annotated[Labelling, Only(variant="published")] = Field(
        "vote", description="published only: labels by the vote of all trees, or by the sharer's own tree"
    )
    consistency: Annotated[bool, Only(variant="published")] = Field(
        True, description="published only: false leaves the noisy sizes of leaves, clipped at zero"
    )
    choice: Annotated[Choice, Only(variant="published")] = Field(
        "exponential",
        description="published only: how thresholds are chosen; permute-and-flip is never worse at the same loss",
    )
    learner: Annotated[Learner | None, Only(variant="published")] = Field(
        None, description="published only: the model that each owner fits and keeps; by the target if left out"
    )
    losses: Annotated[Losses, Only(variant="published", learner=("svm", "linear"))] = Field(
        "printed",
        description="published only: printed: squares or the hinge; smooth: Huber's loss or the smoothed hinge",
    )
    l2: Annotated[Positive, Only(variant="published")] = Field(
        1e-4, description="published only: penalty of the owners' models, times the square of their weights"
    )
    seed: Annotated[int, Only(variant="published")] = Field(
        0, description="published only: names the public randomness that draws the shapes of trees"
    )

    if TYPE_CHECKING:
        # For type checkers, which else derive one from the fields alone.
        def __init__(
            self, schema: Schema | None = None, /, *, columns: Mapping[str, Sequence[str]] | None = None, **options: Any
        ) -> None: ...

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        # Matching rows of different columns reveals how many records there are, so they can only be replaced.
        neighbours = "replace" if setting.columns else "add-remove"
        return {"unit": "record", "neighbours": neighbours, **super().privacy(setting)}

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def resolve_options(self, setting: Setting) -> dict[str, Any]:
        found = {**super().resolve_options(setting), "held": "columns" if setting.columns else "rows"}
        if self.variant == "published" and self.learner is None:
            found["learner"] = "linear" if isinstance(setting.schema.target, Bounded) else "logistic"
        return found

    def options_for_hash(self) -> dict[str, Any]:
        # Studies from before there were these options keep their hash where they mean nothing.
        absent = {"sizes"} if self.sizes is None else set()
        absent |= {"edges"} if self.edges == "auto" else set()
        absent |= {"triples"} if self.triples == "auto" else set()
        absent |= set() if self.by_owner else {"by_owner"}
        absent |= set() if self.variant == "published" else {"choice", "losses"}
        return {key: value for key, value in super().options_for_hash().items() if key not in absent}

    def protocol(self) -> CountsProtocol | PublishedSynthetic:
        """What runs over this schema."""
        built = self.build(Setting(self.given_schema, type(self).__name__, self.read_given, self.given_columns))
        assert isinstance(built, CountsProtocol | PublishedSynthetic)
        return built

    def make_protocol(self, setting: Setting) -> CountsProtocol | PublishedSynthetic:
        if self.variant == "published":
            return self._build_published(setting)
        if self.rows is not None and self.sizes is not None:
            raise StudyError(
                f"{setting.where}: synthetic.sizes and synthetic.rows both say how many records there are; remove one",
                key="synthetic.sizes",
            )
        common: dict[str, Any] = {
            "schema": setting.schema,
            "model": self.model,
            "rows": self.rows,
            "bins": None if self.bins == "auto" else self.bins,
        }
        if not setting.columns:
            return SyntheticProtocol(
                **common,
                sizes=self.sizes,
                edges=self.edges,
                pooling=self.pooling,
                rounds=self.rounds,
                triples=self.triples,
                by_owner=self.by_owner,
            )
        # It comes with compiled products, which studies of whole records do not need.
        from comity.methods.synthetic.columns import SyntheticColumnsProtocol

        return SyntheticColumnsProtocol(
            **common,
            columns=split_columns(setting.schema, setting.columns),
            products=self.products,
            alignment=self.alignment or ("none" if setting.schema.identifier is None else "keyed"),
            max_rows=self.max_rows,
        )

    def _build_published(self, setting: Setting) -> PublishedSynthetic:
        if setting.columns:
            raise StudyError(
                f'{setting.where}: synthetic.variant = "published" is for parties that hold whole records, found '
                "[parties.NAME] columns; leave the columns or the variant out",
                key="synthetic.variant",
            )
        return PublishedSynthetic(
            schema=setting.schema,
            depth=self.depth,
            candidates=self.candidates,
            levels=self.levels,
            leaves=self.leaves,
            labelling=self.labelling,
            consistency=self.consistency,
            choice=self.choice,
            learner=self.learner,
            losses=self.losses,
            l2=self.l2,
            seed=self.seed,
        )


# What runs.


@dataclass(frozen=True, kw_only=True, eq=False)
class CountsProtocol(Protocol):
    """What counting whole records and counting columns of different parties share: which tables are counted, which
    model is chosen, what the plan says, and what is made from the counts.

    `rows` is the declared number of all records, for the rule that chooses the model.
    """

    name: ClassVar[str] = "synthetic"
    max_columns: ClassVar[int] = MAX_COLUMNS

    schema: Schema
    model: Model
    rows: Annotated[int, Interval(ge=1)] | None
    bins: Annotated[int, Interval(ge=2, le=256)] | None

    @property
    def makes(self) -> str:
        return "one synthetic dataset"

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self._gaussian.layout.counts

    def record_errors(self, presented: Any, own: Mapping[str, Any], test: Records) -> NDArray[np.float64] | None:
        from comity.methods.synthetic.fidelity import record_errors

        return record_errors(presented, test)

    # What the study fixes.

    @cached_property
    def _gaussian(self) -> Counting:
        return fit_counting(self.schema, bins=self.bins, max_columns=self.max_columns)

    @cached_property
    def _laplace(self) -> Counting:
        return fit_counting(self.schema, bins=self.bins, pure=True, max_columns=self.max_columns)

    @property
    def cells(self) -> Counting:
        """The cells of records, which do not depend on the noise."""
        return self._gaussian

    @property
    def encoding(self) -> CellEncoding:
        return self.cells.encoding

    def full_counting(self, consortium: Consortium) -> Counting:
        """All pairs."""
        return self._laplace if isinstance(consortium.loss, Pure) else self._gaussian

    def counting(self, consortium: Consortium) -> Counting:
        """The tables that are counted: all pairs, or those with the target for naive Bayes."""
        whole = self.full_counting(consortium)
        return whole.sparser if self.choose_model(consortium) == "naive-bayes" else whole

    def choose_model(self, consortium: Consortium) -> str:
        """The model, by the study or by a rule from public figures."""
        if self.model != "auto":
            return self.model
        whole = self.full_counting(consortium)
        deviation = self._declare_counts(whole, consortium).opened_deviation(consortium, consortium.size)
        carried = affords_pairs(whole.layout, deviation, self.declared_rows(consortium))
        return "mixture" if carried else "naive-bayes"

    def declared_rows(self, consortium: Consortium) -> int | None:
        """The declared number of all records."""
        return self.rows

    def _undivided_cells(self, consortium: Consortium) -> int:
        """Cells of a number for which the schema has neither bins nor edges."""
        return self.counting(consortium).bins

    # What leaves.

    def _declare_counts(self, counting: Counting, consortium: Consortium) -> Release:
        """The release of tables."""
        raise NotImplementedError(f"{type(self).__name__} releases no counts")

    @staticmethod
    def _noise(consortium: Consortium) -> Gaussian | Laplace:
        loss = consortium.loss
        return Laplace(loss) if isinstance(loss, Pure) else Gaussian(gaussian_budget(loss))

    # What comes out.

    def _make_dataset(
        self,
        values: Any,
        parties: int,
        total: int | None,
        consortium: Consortium,
        narrowed: tuple[float, ...] | None = None,
    ) -> SyntheticDataset:
        """The dataset of opened counts. `total` is the number of records where it is public, `narrowed` the factor of
        each block's noise over that of the release."""
        from comity.methods.synthetic.artefact import NoisyCounts, SyntheticDataset

        counting = self.counting(consortium)
        deviation = self._declare_counts(counting, consortium).opened_deviation(consortium, parties)
        values = np.asarray(values, np.float64)
        model = self.choose_model(consortium)
        return SyntheticDataset(NoisyCounts(counting, model, values, deviation, total, parties, narrowed))

    # What the plan says.

    def _make_title(self, consortium: Consortium, how: str = "") -> str:
        noise = "Laplace" if isinstance(consortium.loss, Pure) else "Gaussian"
        return f"synthetic ({self.choose_model(consortium)}, {noise}{how})"

    def declared_units(self, consortium: Consortium) -> int | None:
        return self.declared_rows(consortium)

    def _planned_deviations(self, consortium: Consortium) -> dict[tuple[int, ...], float]:
        """The deviation of each table's counts, as far as it is known before a run."""
        counting = self.counting(consortium)
        deviation = self._declare_counts(counting, consortium).opened_deviation(consortium, consortium.size)
        return counting.layout.deviations(deviation)

    def expectation(self, consortium: Consortium) -> str:
        deviations, rows = self._planned_deviations(consortium), self.declared_rows(consortium)
        widths = deviations.values()
        noise = f"counts carry noise of deviation {min(widths):.3g} to {max(widths):.3g}"
        if rows is None:
            return f"{noise}; declare synthetic.rows, a round figure, to see this as a share of your records"
        errors = expected_errors(self.counting(consortium).layout, deviations, rows)
        pairs = [error for key, error in errors.items() if len(key) == 2] or list(errors.values())
        mean = sum(pairs) / len(pairs)
        useless = self._warn_of_noise(mean, label_error(self.counting(consortium).layout, errors))
        return (
            f"{noise}: in a table, noise alone moves {mean:.2%} of {rows:,} records on average and "
            f"{max(errors.values()):.2%} at most, before tables are made to agree{useless}"
        )

    @staticmethod
    def _warn_of_noise(mean: float, labels: float | None) -> str:
        if mean > 0.5:
            return ", so expect a useless dataset: raise epsilon or bring more records"
        if labels is not None and labels > MAX_LABEL_ERROR:
            return (
                f". Tables with the target are off by {labels:.0%} of the records, so a model of the dataset may "
                "predict the target no better or worse than a constant, above all where one class is rare: raise "
                "epsilon or bring more records"
            )
        return ""

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        counting, whole, rows = (
            self.counting(consortium),
            self.full_counting(consortium),
            self.declared_rows(consortium),
        )
        layout = counting.layout
        found = [
            f"{layout.counts:,} counts of {layout.columns} columns in {len(layout.blocks)} tables, "
            f"{self._undivided_cells(consortium)} cells for a number without bins in the schema"
        ]
        if self.bins is None and counting.bins < BINS[0]:
            found.append(f"{BINS[0]} cells for a number would be too many counts; there are {counting.bins}")
        if self.model == "auto" and rows is None:
            found.append("model: mixture, because neither synthetic.rows nor synthetic.sizes is declared")
        elif self.model == "auto" and rows is not None:
            deviation = self._declare_counts(whole, consortium).opened_deviation(consortium, consortium.size)
            noise = pair_noise(whole.layout, deviation, rows)
            than = "above" if noise > MAX_PAIR_NOISE else "at most"
            found.append(
                f"model: {self.choose_model(consortium)}, because the noise of a pair of columns is {noise:.3g} of the "
                f"records, {than} {MAX_PAIR_NOISE}"
            )
        if layout.reach is not None and not layout.sparse:
            labelled = "those with the target, " if layout.target is not None else ""
            found.append(
                f"{layout.uncounted:,} pairs of columns are not counted, because there are so many: only {labelled}"
                f"those of columns at most {layout.reach} places apart. The rows know other pairs only "
                "as far as these imply them: put related columns next to each other in the schema, or leave some out"
            )
        if layout.sparse and layout.target is None:
            found.append(
                "only single columns are counted, so the columns of a row will be independent of each other: raise "
                "epsilon, bring more records, or name a target"
            )
        if self.schema.impossible:
            found.append(
                f"{len(self.schema.impossible)} rules of the schema say what is impossible: the fit has no such rows; "
                "records that contradict a rule are counted like others"
            )
        return (*found, "anyone with the counts can make rows from them, with public randomness and at no further cost")


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticProtocol(CountsProtocol):
    """Weighted counts of every column and pair of columns, summed securely with shared noise; rows made from them.

    Adversary    an honest-but-curious coordinator with up to `colluders` parties, and everyone who sees counts or rows.
    Unit         a record, added or removed (their number is then noised too), or replaced.
    Learned      everyone: the noisy counts over all parties, and every row made from them.
    Sensitivity  a record adds w_b to one cell of each block b: √Σ w_b² in L2, Σ w_b in L1 (pure); for a replaced record
                 √2 and 2 times that (proof.md, 1). Cells, blocks and weights come from the schema and reveal nothing.

    `rows`, or the sum of `sizes`, is the declared number of all records: a round figure for the rule that chooses the
    model, and the exact number where records are replaced. With `pooling` = "none" each party adds its own full noise,
    and its guarantee holds against all others. With `rounds` = 2 all tables are counted with a part of the loss, and
    those with the target and the strongest others again with the rest. Each of the two sums has the sensitivity of its
    own tables (proof.md, 4). Where `edges` are measured, a sum of narrow counts of single columns comes first
    (proof.md, 5). Where `triples` are counted, a sum of tables of three columns comes last (proof.md, 6). With
    `by_owner` the party that holds a record is one more column (proof.md, 7).
    """

    version: ClassVar[int] = 5

    sizes: Sizes | None
    edges: MeasuredEdges
    pooling: Pooling
    rounds: Rounds
    triples: CountedTriples = "auto"
    by_owner: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_owner:
            check_owner_column(self.schema)
        if self.triples == "counted" and self._triples is None:
            raise StudyError(
                'synthetic.triples = "counted" needs three columns that follow no other, at most 64 of them, '
                'pooling = "sum", rounds = 1 and not the model naive-bayes; change one of these, or set '
                'triples = "auto"',
                key="synthetic.triples",
            )
        if self.edges == "measured" and self._measuring is None:
            raise StudyError(
                'synthetic.edges = "measured" needs a number without bins or edges in the schema, pooling = "sum" and '
                'rounds = 1; change one of these, or set edges = "auto"',
                key="synthetic.edges",
            )
        if self.rounds == 2 and self.pooling == "none":
            raise StudyError(
                'synthetic.rounds = 2 chooses from the counts of all parties together, found pooling = "none"; set '
                'rounds = 1, or pooling = "sum"',
                key="synthetic.rounds",
            )
        if self.rounds == 2:
            assert Recount(self.cells.layout).candidates

    @property
    def makes(self) -> str:
        return f"{super().makes} by owner" if self.by_owner else super().makes

    @property
    def tells_parties_apart(self) -> bool:
        return self.by_owner

    # What the study fixes.

    def declared_rows(self, consortium: Consortium) -> int | None:
        return self.rows if self.sizes is None else sum_sizes(self.sizes, consortium.parties)

    @cached_property
    def _measuring(self) -> Measuring | None:
        """The numbers whose cells may be measured."""
        if self.edges == "equal" or self.pooling == "none" or self.rounds == 2:
            return None
        bins = self._gaussian.bins
        found = Measuring(self._gaussian.schema, bins, bins if self.bins is not None else max(bins, MEASURED_BINS))
        if Counting(found.with_edges(found.planned_edges()), bins).layout.counts > MAX_COUNTS:
            found = Measuring(self._gaussian.schema, bins, bins)
        return found if found.names else None

    def measures(self, consortium: Consortium) -> bool:
        """Whether edges are measured, by the study or by a rule from public figures."""
        measuring, rows = self._measuring, self.declared_rows(consortium)
        if measuring is None or self.edges == "measured" or rows is None:
            return measuring is not None
        deviation = self._declare_narrow(measuring, consortium).opened_deviation(consortium, consortium.size)
        return edge_noise(measuring.layout, deviation, rows) <= MAX_EDGE_NOISE

    def _with_owners(self, schema: Schema, consortium: Consortium) -> Schema:
        """The schema of what is counted: with the parties as a column, if the study says so."""
        return add_owner_column(schema, consortium.parties) if self.by_owner else schema

    @cached_property
    def _triples(self) -> Triples | None:
        """The triples that may be counted. Measured edges leave a column as many groups, and no fewer cells."""
        if self.triples == "none" or self.pooling == "none" or self.rounds == 2 or self.model == "naive-bayes":
            return None
        counting = self._gaussian
        if self._measuring is not None:
            counting = replace(counting, schema=self._planned_schema)
        return find_triples(counting.layout)

    def counts_triples(self, consortium: Consortium) -> bool:
        """Whether triples are counted, by the study or by a rule from public figures."""
        if self._triples is None or self.triples == "counted":
            return self._triples is not None
        triples, rows = self._triples_of(consortium), self.declared_rows(consortium)
        if triples is None or rows is None:
            return False
        deviation = self._declare_triples(triples, consortium).opened_deviation(consortium, consortium.size)
        return triple_noise(triples, deviation, rows) <= MAX_TRIPLE_NOISE

    def _triples_of(self, consortium: Consortium) -> Triples | None:
        """The triples of the cells that are counted. With the parties as a column there may be too many."""
        if self._triples is None:
            return None
        layout = self.full_counting(consortium).layout
        return find_triples(layout) if self.by_owner else replace(self._triples, layout=layout)

    def _planned_triples(self, consortium: Consortium) -> Triples:
        found = self._triples_of(consortium)
        if found is None:
            raise StudyError(
                f'synthetic.triples = "counted" has too many tables of three columns with {consortium.size} parties as '
                'a column; set triples = "auto", or by_owner = false',
                key="synthetic.triples",
            )
        return found

    def choose_model(self, consortium: Consortium) -> str:
        return "mixture" if self.counts_triples(consortium) else super().choose_model(consortium)

    def _undivided_cells(self, consortium: Consortium) -> int:
        measuring = self._measuring
        return (
            super()._undivided_cells(consortium)
            if measuring is None or not self.measures(consortium)
            else (measuring.cells)
        )

    @property
    def encoding(self) -> CellEncoding:
        return self.cells.encoding if self._measuring is None else self._measuring.encoding

    def full_counting(self, consortium: Consortium) -> Counting:
        whole = super().full_counting(consortium)
        if self._measuring is not None and self.measures(consortium):
            whole = replace(whole, schema=self._planned_schema)
        return replace(whole, schema=self._with_owners(whole.schema, consortium)) if self.by_owner else whole

    @cached_property
    def _planned_schema(self) -> Schema:
        assert self._measuring is not None
        return self._measuring.with_edges(self._measuring.planned_edges())

    def measured_counting(self, consortium: Consortium, narrow: Floats) -> Counting:
        assert self._measuring is not None
        release = self._declare_narrow(self._measuring, consortium)
        deviation = release.opened_deviation(consortium, consortium.size)
        schema = self._measuring.with_edges(self._measuring.measured_edges(narrow, deviation))
        return replace(self.counting(consortium), schema=self._with_owners(schema, consortium))

    def recount(self, consortium: Consortium) -> Recount:
        """What a second round counts."""
        return Recount(self.full_counting(consortium).layout)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'synthetic protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        if self.sizes is not None:
            check_sizes(self.sizes, consortium, "synthetic.sizes")
        if self.by_owner:
            check_owner_counts(self.full_counting(consortium).layout)
        counts = self._declare_counts(self.counting(consortium), consortium)
        one = Array(counts.shape)
        if self.rounds == 2:
            return self._declare_two_rounds(counts, consortium)
        if self.pooling == "sum":
            return self._declare_sums(counts, consortium)
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("counts"),
            form=Each(one),
        )
        alone = "everyone who receives what a party released, including the coordinator and the other parties"
        return Declaration((counts, tables), adversary=alone)

    def _declare_two_rounds(self, counts: Release, consortium: Consortium) -> Declaration:
        if self.choose_model(consortium) == "naive-bayes":
            raise StudyError(
                "synthetic.rounds = 2 counts the strongest pairs of columns again, but the model is naive-bayes, which "
                'has only pairs with the target; set rounds = 1, or model = "mixture"',
                key="synthetic.rounds",
            )
        again = self._declare_recount(consortium)
        one, pairs = Array(counts.shape), Array((self.recount(consortium).chosen_count,), "<i8")
        many = Count(consortium.size)
        opened, listed = (
            Release(name=name, source=COORDINATOR, to=EVERY_PARTY, protection=Derived("counts"), form=form)
            for name, form in (("opened", one), ("pairs", pairs))
        )
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("counts", "again"),
            form=Fields(
                {"counts": one, "parties": many, "pairs": pairs, "again": Array(again.shape), "parties_again": many}
            ),
        )
        releases = (counts, opened, listed, again, tables)
        return Declaration(releases, adversary=_coordinator_with_parties(consortium))

    def _declare_sums(self, counts: Release, consortium: Consortium) -> Declaration:
        """The counts, after narrow ones if edges are measured, and before triples if these are counted."""
        many, releases = Count(consortium.size), [counts]
        made: dict[str, Form] = {"counts": Array(counts.shape), "parties": many}

        def opened(name: str, of: Release) -> Release:
            form = Array(of.shape)
            return Release(name=name, source=COORDINATOR, to=EVERY_PARTY, protection=Derived(of.name), form=form)

        if self._measuring is not None and self.measures(consortium):
            narrow = self._declare_narrow(self._measuring, consortium)
            releases = [narrow, opened("opened", narrow), *releases]
            made["narrow"] = Array(narrow.shape)
        if self.counts_triples(consortium):
            triples = self._declare_triples(self._planned_triples(consortium), consortium)
            releases += [opened("pairs", counts), triples]
            made |= {"triples": Array(triples.shape), "parties_triples": many}
        sums = [one.name for one in releases if one.bound is not None]
        tables = Release(name="tables", source=COORDINATOR, to=EVERYONE, protection=Derived(*sums), form=Fields(made))
        return Declaration((*releases, tables), adversary=_coordinator_with_parties(consortium))

    def _declare_narrow(self, measuring: Measuring, consortium: Consortium) -> Release:
        return self._declare_sum(
            "narrow",
            measuring.layout.counts,
            measuring.layout.weights,
            split_loss(consortium, MEASURING_SHARE)[0],
            consortium,
        )

    def _declare_counts(self, counting: Counting, consortium: Consortium) -> Release:
        if self.rounds == 2:
            noise = split_loss(consortium, FIRST_SHARE)[0]
        else:
            shares = [MEASURING_SHARE] if self.measures(consortium) else []
            shares += [self._triple_share(consortium)] if self.counts_triples(consortium) else []
            noise = split_loss(consortium, *shares)[-1] if shares else self._noise(consortium)
        return self._declare_sum("counts", counting.layout.counts, counting.layout.weights, noise, consortium)

    def _declare_triples(self, triples: Triples, consortium: Consortium) -> Release:
        return self._declare_triples_at(self._triple_share_of(triples, consortium), triples, consortium)

    def _declare_triples_at(self, share: Decimal, triples: Triples, consortium: Consortium) -> Release:
        noise = split_loss(consortium, share)[0]
        return self._declare_sum("triples", triples.counts, triples.weights, noise, consortium)

    def _triple_share(self, consortium: Consortium) -> Decimal:
        return self._triple_share_of(self._planned_triples(consortium), consortium)

    def _triple_share_of(self, triples: Triples, consortium: Consortium) -> Decimal:
        """The part of the loss that counts triples, by public figures alone."""
        larger = self._declare_triples_at(LARGER_SHARE, triples, consortium)
        deviation = larger.opened_deviation(consortium, consortium.size)
        return choose_triple_share(triples, deviation, self.declared_rows(consortium))

    def _declare_recount(self, consortium: Consortium) -> Release:
        recount = self.recount(consortium)
        noise = split_loss(consortium, FIRST_SHARE)[1]
        return self._declare_sum("again", recount.counts, recount.weights, noise, consortium)

    def _declare_sum(
        self, name: str, counts: int, weights: tuple[int, ...], noise: Gaussian | Laplace, consortium: Consortium
    ) -> Release:
        return Release(
            name=name,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Noised(noise) if self.pooling == "none" else Summed(noise),
            form=Array((counts,), "<i8"),
            bound=Counts(weights, consortium.neighbours is Neighbours.REPLACE, MAX_RECORDS),
        )

    @property
    def stackable(self) -> bool:
        # A stack does not know whose records are whose.
        return self.pooling == "sum" and not self.by_owner

    def streams(self, consortium: Consortium) -> bool:
        return True

    def sums_exactly(self, consortium: Consortium) -> bool:
        """Counts are whole numbers."""
        return True

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        if self.rounds == 2:
            return {"tables": self._count_twice(parties)}
        if self.pooling == "sum":
            return {"tables": self._count_once(parties)}
        consortium, release = parties.consortium, parties.declaration["counts"]
        grid = release.spacing(consortium)
        got = parties.ask(self.count, need=release.min_parties(consortium))
        tables = {party: np.asarray(values["counts"] * grid, np.float64) for party, values in got.items()}
        for party, counts in tables.items():
            parties.require("counts", 1, self._ranges(counts, consortium), sender=party)
        return {"tables": tables}

    def _ranges(self, counts: Floats, consortium: Consortium) -> tuple[Range, ...]:
        return table_ranges(self.counting(consortium).layout, counts, about=self.declared_rows(consortium))

    def _count_once(self, parties: Parties) -> dict[str, Any]:
        consortium, measuring = parties.consortium, self._measuring
        about = self.declared_rows(consortium)
        before: dict[str, Any] = {}
        counting, narrow = self.counting(consortium), None
        if measuring is not None and self.measures(consortium):
            first = parties.sum(self.measure)
            parties.require("narrow", first.parties, table_ranges(measuring.layout, first.value, about=about))
            narrow = before["opened"] = first.value
            counting = self.measured_counting(consortium, narrow)
        found = parties.sum(self.count if narrow is None else self.count_measured, **before)
        parties.require("counts", found.parties, table_ranges(counting.layout, found.value, about=about))
        tables = {"counts": found.value, "parties": found.parties, **({} if narrow is None else {"narrow": narrow})}
        if not self.counts_triples(consortium):
            return tables
        last = parties.sum(
            self.count_triples if narrow is None else self.count_measured_triples, **before, pairs=found.value
        )
        triples = self._planned_triples(consortium)
        parties.require("triples", last.parties, table_ranges(triples, last.value, about=about))
        return {**tables, "triples": last.value, "parties_triples": last.parties}

    def _count_twice(self, parties: Parties) -> dict[str, Any]:
        first = parties.sum(self.count)
        parties.require("counts", first.parties, self._ranges(first.value, parties.consortium))
        pairs = self._find_strongest(first.value, parties.consortium)
        second = parties.sum(self.count_again, opened=first.value, pairs=pairs)
        return {
            "counts": first.value,
            "parties": first.parties,
            "pairs": pairs,
            "again": second.value,
            "parties_again": second.parties,
        }

    def _find_strongest(self, opened: Floats, consortium: Consortium) -> Integers:
        first = self._declare_counts(self.full_counting(consortium), consortium)
        return self.recount(consortium).find_strongest(opened, first.opened_deviation(consortium, consortium.size))

    # What a site does.

    @step(sends="counts", stacked=True)
    def count(self, site: Site) -> None:
        self._contribute_counts(site, self.counting(site.consortium))

    @step(sends="narrow", stacked=True)
    def measure(self, site: Site) -> None:
        """Count each number without edges by itself, in narrow cells."""
        measuring = self._measuring
        assert measuring is not None
        site.contribute(site.total(lambda rows: measuring.count(rows.features, rows.filled), exact=True))

    @step(sends="counts", stacked=True)
    def count_measured(self, site: Site, opened: Floats) -> None:
        """Count in the cells that follow from the opened narrow counts. The bound holds for any cells."""
        self._contribute_counts(site, self.measured_counting(site.consortium, opened))

    @step(sends="triples", stacked=True)
    def count_triples(self, site: Site, pairs: Floats) -> None:
        """Count triples in the groups that follow from the opened counts. The bound holds for any groups."""
        self._contribute_triples(site, self.counting(site.consortium), pairs)

    @step(sends="triples", stacked=True)
    def count_measured_triples(self, site: Site, opened: Floats, pairs: Floats) -> None:
        """The same in cells of measured edges."""
        self._contribute_triples(site, self.measured_counting(site.consortium, opened), pairs)

    def _contribute_triples(self, site: Site, counting: Counting, pairs: Floats) -> None:
        triples, owner = self._planned_triples(site.consortium), self._counted_owner(site)
        groups = triples.choose_groups(pairs)

        def count(rows: Rows) -> Floats:
            return triples.count(groups, self._counted_cells(rows, counting, owner), rows.filled)

        site.contribute(site.total(count, exact=True))

    def _contribute_counts(self, site: Site, counting: Counting) -> None:
        owner = self._counted_owner(site)

        def count(rows: Rows) -> Floats:
            return counting.layout.count(self._counted_cells(rows, counting, owner), rows.filled)

        site.contribute(site.total(count, exact=True))

    def _counted_owner(self, site: Site) -> int | None:
        """The cell of the site's party, where owners are counted. What counts its records holds this and not the site,
        so that it can be sent to the owner's engine."""
        return site.consortium.parties.index(site.party) if self.by_owner else None

    def _counted_cells(self, rows: Rows, counting: Counting, owner: int | None) -> Floats:
        """A party's records in the cells that are counted."""
        found = self._in_cells(rows.features, counting)
        return found if owner is None else self._with_owner(found, owner)

    def _with_owner(self, cells: Floats, party: int) -> Floats:
        """Records (..., n, columns) with the cell of the party that holds them."""
        return np.insert(cells, len(self.schema.columns), party, axis=-1)

    def _in_cells(self, features: Floats, counting: Counting) -> Floats:
        """Records as they are encoded, in the cells that are counted."""
        return features if self._measuring is None else self._measuring.merge(features, counting.cells)

    @step(sends="again", stacked=True)
    def count_again(self, site: Site, opened: Floats, pairs: Integers) -> None:
        """Count the pairs that follow from the opened counts. Another list could ask for what nobody agreed to."""
        consortium = site.consortium
        if not np.array_equal(pairs, self._find_strongest(opened, consortium)):
            raise Malformed(
                "the pairs to count again are not the strongest of the opened counts; nothing was drawn. Ask the "
                "coordinator which version it runs",
                code="form",
                key="pairs",
            )
        recount, counting, owner = self.recount(consortium), self.full_counting(consortium), self._counted_owner(site)

        def count(rows: Rows) -> Floats:
            return recount.count(pairs, self._counted_cells(rows, counting, owner), rows.filled)

        site.contribute(site.total(count, exact=True))

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> SyntheticDataset:
        from comity.methods.synthetic.artefact import OpenedCounts

        tables = released["tables"]
        # If a party drops out after the first round, the rounds count different records and are not averaged.
        if self.rounds == 2 and tables["parties"] == tables["parties_again"]:
            return self._combine_rounds(tables, consortium)
        if self.pooling == "none":
            return self._present_counts(sum(tables.values()), len(tables), consortium)
        made = self._present_counts(tables["counts"], tables["parties"], consortium)
        # If a party drops out before the triples, they count different records and are not used.
        if "triples" in tables and tables["parties"] == tables["parties_triples"]:
            release = self._declare_triples(self._planned_triples(consortium), consortium)
            deviation = release.opened_deviation(consortium, tables["parties"])
            triples = OpenedCounts(np.asarray(tables["triples"], np.float64), deviation)
            made = replace(made, counts=replace(made.counts, triples=triples))
        measuring = self._measuring
        if measuring is None or "narrow" not in tables:
            return made
        narrow = np.asarray(tables["narrow"], np.float64)
        deviation = self._declare_narrow(measuring, consortium).opened_deviation(consortium, consortium.size)
        counting = self.measured_counting(consortium, narrow)
        named = replace(measuring, schema=self._with_owners(measuring.schema, consortium))
        measured = MeasuredNumbers(named, narrow, deviation)
        return replace(made, counts=replace(made.counts, counting=counting, measured=measured))

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """The dataset of each party, if parties release alone."""
        tables = released["tables"] if self.pooling == "none" else {}
        if not 1 < len(tables) <= MAX_DATASETS:
            return {}
        return {
            f"data-{place}": self._present_counts(tables[party], 1, consortium)
            for place, party in enumerate(consortium.parties, start=1)
            if party in tables
        }

    def _combine_rounds(self, tables: Mapping[str, Any], consortium: Consortium) -> SyntheticDataset:
        parties = int(tables["parties"])
        rounds = (self._declare_counts(self.full_counting(consortium), consortium), self._declare_recount(consortium))
        first, second = (release.opened_deviation(consortium, parties) for release in rounds)
        both = self.recount(consortium).combine(
            np.asarray(tables["counts"], np.float64), tables["again"], tables["pairs"], (first, second)
        )
        return self._present_counts(both.values, parties, consortium, both.narrowed)

    def _present_counts(
        self, values: Any, parties: int, consortium: Consortium, narrowed: tuple[float, ...] | None = None
    ) -> SyntheticDataset:
        replaced = consortium.neighbours is Neighbours.REPLACE
        # The declared number is that of all records; one party's number is in its counts alone.
        total = self.declared_rows(consortium) if replaced and parties == consortium.size else None
        return self._make_dataset(values, parties, total, consortium, narrowed)

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.synthetic.fidelity import assess, pool_records

        presented = self._without_owner(presented)

        def in_cells(records: Records) -> Records:
            return replace(records, features=self._in_cells(records.features, presented.counts.counting))

        if train is None:
            return assess(presented, None, in_cells(test))
        own = [in_cells(records) for records in train]
        return assess(presented, pool_records(own), in_cells(test), lambda task, tested: task.compare(own, tested))

    def record_errors(self, presented: Any, own: Mapping[str, Any], test: Records) -> NDArray[np.float64] | None:
        presented = self._without_owner(presented)
        cells = self._in_cells(test.features, presented.counts.counting)
        return super().record_errors(presented, own, replace(test, features=cells))

    def _without_owner(self, presented: SyntheticDataset) -> SyntheticDataset:
        """What is compared with test records, which no party holds."""
        return presented.without(OWNER) if self.by_owner else presented

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.synthetic.fidelity import score_columns, score_target

        counting = presented.counts.counting
        own = counting.cells.labels(len(self.schema.columns)).index(party) if self.by_owner else None

        def in_cells(features: Floats) -> Floats:
            found = self._in_cells(features, counting)
            return found if own is None else self._with_owner(found, own)

        if self.schema.target is not None:
            return score_target(presented, records, in_cells)
        return score_columns(presented, records, tuple(range(len(self.cells.cells.names))), in_cells)

    # What the plan says.

    def title_in(self, consortium: Consortium) -> str:
        alone = ", each party alone" if self.pooling == "none" else ""
        return self._make_title(consortium, ", two rounds" if self.rounds == 2 else alone)

    def _planned_deviations(self, consortium: Consortium) -> dict[tuple[int, ...], float]:
        """Before the first round it is known only that pairs with the target are counted again."""
        found = super()._planned_deviations(consortium)
        if self.rounds == 2:
            narrower, again = self._deviation_ratio(consortium), self.recount(consortium).labelled
            found |= {block.key: found[block.key] * narrower for block in again}
        return found

    def _deviation_ratio(self, consortium: Consortium) -> float:
        """The deviation of a table that both rounds count, over that of the first round."""
        rounds = (self._declare_counts(self.full_counting(consortium), consortium), self._declare_recount(consortium))
        first, second = (release.opened_deviation(consortium, consortium.size) for release in rounds)
        return second / hypot(first, second)

    def _describe_rounds(self, consortium: Consortium) -> str:
        recount = self.recount(consortium)
        return (
            f"two rounds: the first counts all tables with {FIRST_SHARE:.0%} of the loss; the second spends the rest "
            f"on the {len(recount.labelled)} tables with the target and the {recount.chosen_count} strongest of "
            f"{len(recount.candidates)} others, chosen from the opened counts. For these the deviation falls to "
            f"{self._deviation_ratio(consortium):.2f} of the first round's. If a party drops out in between, only the "
            "first round is used"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        many = consortium.size > MAX_DATASETS and self.pooling == "none"
        datasets = (f"above {MAX_DATASETS} parties only the dataset of all of them is written",) if many else ()
        rounds = (self._describe_rounds(consortium),) if self.rounds == 2 else ()
        owners = (
            (
                f"owners: a column {OWNER!r} says which party's records a row is like. Everyone who gets the dataset "
                f"sees, up to the noise, how many records each of {consortium.size} parties holds and how they differ "
                "from those of others; a record is protected as before",
            )
            if self.by_owner
            else ()
        )
        found = (*super().notes(consortium), *datasets, *rounds, *owners)
        return (*found, *self._describe_edges(consortium), *self._describe_triples(consortium))

    def _describe_triples(self, consortium: Consortium) -> tuple[str, ...]:
        triples = self._triples_of(consortium)
        if triples is None:
            return ()
        deviation = self._declare_triples(triples, consortium).opened_deviation(consortium, consortium.size)
        which = "with the target " if triples.labelled else ""
        if self.counts_triples(consortium):
            share = self._triple_share_of(triples, consortium)
            return (
                f"three columns: {share:.0%} of the loss counts {len(triples.blocks):,} tables {which}of three "
                f"columns in up to {triples.groups} groups of cells each (deviation {deviation:.3g}). "
                "The groups follow from the opened counts of pairs. If a party drops out in between, only pairs are "
                "used",
            )
        rows = self.declared_rows(consortium)
        if rows is None:
            return ("three columns: only pairs are counted, because neither synthetic.rows nor sizes is declared",)
        noise = triple_noise(triples, deviation, rows)
        return (
            f"three columns: only pairs are counted, because the noise of tables of three columns would be {noise:.2g} "
            f"of the records, above {MAX_TRIPLE_NOISE}",
        )

    def _describe_edges(self, consortium: Consortium) -> tuple[str, ...]:
        measuring = self._measuring
        if measuring is None:
            return ()
        names = f"{len(measuring.names)} numbers without bins or edges in the schema"
        narrow = self._declare_narrow(measuring, consortium).opened_deviation(consortium, consortium.size)
        if self.measures(consortium):
            return (
                f"edges: {MEASURING_SHARE:.0%} of the loss counts {names} by themselves in up to "
                f"{max(measuring.layout.sizes)} narrow cells (deviation {narrow:.3g}); their {measuring.cells} cells "
                "then hold about equally many records each",
            )
        return (
            f"edges: the cells of {names} have equal length, because the noise of measured edges would be above "
            f"{MAX_EDGE_NOISE} of the records; declare edges for numbers with a long tail",
        )


def _coordinator_with_parties(consortium: Consortium) -> str:
    return f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties"
