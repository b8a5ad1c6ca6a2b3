"""Vertical regression: one model over features held by different owners.

After D. Xu, S. Yuan, X. Wu, Achieving differential privacy in vertically partitioned multiparty learning (2019): a
quadratic objective is a polynomial whose coefficients are sums of products, some within a party, some across. Here
parties add noise to shares, before anything is opened: no participant ever sees an exact sum of products across
parties. In the order of the method:

    align    (where the schema has an identifier) the common rows of all parties, in one order
    size     the number of common rows, public under replacement
    product  shares of all products across parties stay at the sites
    moments  each party adds its own sums, its shares and its part of the noise; the secure sum opens the total
    model    positive part, ridge of the noise's size, solution; with standard errors
    rounds   (two classes) private gradient rounds start from that solution: `GradientRegression`

Where declared sizes say that noise would hide every column, the label's holder counts the classes instead of all that
follows `size`, and the model is that constant (`class_count`).

`published/` has the paper's own method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import floor, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr

from comity.data import Bounded, Encoding, LocalRecords, Records, Schema, split_columns
from comity.errors import StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue, Range
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.plausibility import moment_ranges
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Baseline, Figure
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import step
from comity.methods.by_columns import AlignmentMethod, MaxRows, ProductMethod
from comity.methods.by_columns.products import ProductsWithOwnSums
from comity.methods.by_columns.protocol import ByColumns
from comity.methods.constants import Constant
from comity.methods.declared_records import Sizes, check_sizes
from comity.methods.method import Method, Only, Setting
from comity.methods.tables import validate
from comity.methods.vertical.budgets import LARGEST_WEIGHT, Blocks, affordable_epsilon, format_rounded_up, party_losses
from comity.methods.vertical.centralised import CentralRounds, compute_baselines, measure_error, pool_columns
from comity.methods.vertical.class_count import constant_coefficients, count_rows, estimate_share, release_count
from comity.methods.vertical.curves import ERROR
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.descent import Descent
from comity.methods.vertical.design import PLACES, Design
from comity.methods.vertical.moments import (
    BESIDE,
    MomentEntries,
    Regression,
    entry_noise,
    fit_regression,
    gram,
    l1_sensitivity,
    l2_sensitivity,
)
from comity.methods.vertical.prediction import describe_prediction
from comity.methods.vertical.published.polynomial import Repair
from comity.methods.vertical.rlwe_rounds import RlweRounds
from comity.methods.vertical.rounds import RoundCount, Rounds
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours

if TYPE_CHECKING:
    from comity.federation.evaluation.own_score import OwnScore
    from comity.federation.evaluation.protocol import ModelEvaluation
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

SWITCH = 0.3
"""`auto` makes rounds from this ε on. Chosen on training rows of Adult, credit defaults, KDD-99 and HAR, at most 12,000
of each, with one left out at a time (`experiments/choose`). Of 0.03, 0.1, 0.3 and 1 it is the best over all, without
credit defaults, and without HAR; without Adult 0.1 is best, without KDD-99 1, by 0.02 on the dataset left out. At 0.3
rounds beat the moments alone in accuracy and log loss on Adult with 16 and 137 instruments and on credit defaults; at
0.1 only on Adult with 16 instruments, and with all rows."""

ROUNDS_UP_TO, DEARER = 0.05, 6.0
"""With declared sizes, `auto` makes rounds where the noise in an entry of the moments is at most this share of the rows
(`moments.entry_noise`), whatever ε is; less by this power of what rounds make the noise larger, because parties read
weights. Chosen with `COUNTED_FROM` on 500 to 8,000 training rows of Adult (16 and 137 columns), hours of many rentals,
news, retinas, heart disease and a generated table, ε 0.1 to 10, 0 and 1 colluders, 4 to 12 draws, as
`experiments.choose.few_rows` does, by the bars that cases miss. Of 0.01 to 0.1, and of 0 to 8, the best are 0.05 to
0.08 and 6 to 8, whichever dataset is left out; the smaller ones are taken."""

COUNTED_FROM = 0.08
"""With declared sizes, `auto` counts the classes alone where the noise in an entry is at least this share of the rows.
On the same rows as `ROUNDS_UP_TO`, of 0.05 to 0.25, 0.17 misses the fewest bars, over all and without any dataset, but
only because of heart disease and retinas, of which 500 rows alone are known; on Adult, news, rentals and the generated
table, 0.08 misses fewest or as few, and has the fewest runs that are 0.03 below a constant. So 0.08, by hand."""

WARNED_FROM = 0.02
"""The least noise in an entry, over the rows, at which a plan says that a classifier may be worse than a constant. In
the runs of `ROUNDS_UP_TO` no mean with less noise is below its constant in accuracy or above it in log loss, of Adult,
rentals, news, retinas, heart disease and the generated table; from 0.03 on means are, by up to 0.002, from 0.044 on by
up to 0.04. Single runs are 0.03 below from 0.022 on, and of retinas, measured on 250 rows, from 0.006. Chosen on all
datasets together."""

TENTHS_FOR_MOMENTS = 4
"""Tenths of μ² for the moments. On the same rows, of 2, 4 and 6, 6 is the best by 0.001 over 4, because of HAR; without
HAR 4 is. With all training rows 4 beats 6 by 0.0005 on Adult and credit defaults: the more rows, the less the moments
need. So 4."""

_DOWN = Context(prec=30, rounding=ROUND_FLOOR)
_READ_BY_ALL = (
    "prediction: the whole model goes to everyone, who applies it to whole records at home; its noise is scaled for "
    "parties that read weights. Jointly, where parties hold parts of a new record, it needs privacy.colluders >= 1"
)

_PUBLISHED_ONLY = {"sensitivity", "repair"}

# Options.


class Vertical(Method):
    """One regression over columns that different parties hold of the same people.

        method = comity.Vertical(schema, columns={"hospital": ["age", "readmitted"], "lab": ["lactate"]})
        print(method.plan(["hospital", "lab"], epsilon=1, delta=1e-6))
        result = method.simulate({"hospital": hospital, "lab": lab}, epsilon=1, delta=1e-6)

    It protects a record, the columns of one person at all parties together, which may be replaced, against a curious
    coordinator with up to `colluders` parties; with `products="dealer"` or `alignment="keyed"` the coordinator must
    work with no party. A bounded target gives a linear model, two classes a logistic one. `variant="published"` is the
    functional mechanism of Xu, Yuan and Wu (2019), in which parties see exact sums of each other's columns.
    """

    table: ClassVar[str] = "vertical"
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {"published": {"delta": 0}}
    by_columns: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"max_rows": "rows_at_most"}
    paper: ClassVar[Mapping[str, Constant]] = {
        "intercept": Constant(
            False, "Equations 2 and 4", "a constant feature; the paper's models are x·w, so d counts features alone"
        ),
        "sensitivity": Constant(
            "paper",
            "Lemma 1; sections Functional Mechanism and Application to Logistic Regression",
            "Δ_f = 2(1 + 2d + d²) for squared loss, d²/4 + d for logistic loss; tight: (d + 1)² and (d + 2)²/8",
        ),
        "repair": Constant(
            "none",
            "Algorithm 1, line 16",
            "argmin of the noisy polynomial, with no word on one that has no minimum; the accuracies of Table 3 come "
            "out with zhang (Zhang et al. 2012, section 6: a ridge of 4 deviations, then spectral trimming)",
        ),
        "block_epsilon": Constant(
            {},
            "Algorithm 1, line 3; Corollary 1",
            "empty: top-down, one ε for all coefficients; else ε^k and ε^kl from the bottom up",
        ),
        "noise": Constant(
            "Laplace of scale Δ_f/ε, one draw for each coefficient",
            "Algorithm 1, lines 7 and 12",
            "drawn by the party that sends the coefficient; here on a grid of 2^-28",
        ),
        "coefficients": Constant(
            "1 + d + d²",
            "section Dissecting objective function",
            "of squared loss, one for each ordered pair; d + d² of logistic loss",
        ),
        "taylor_order": Constant(2, "Equation 4", "of log(1 + exp(z)) at 0: z/2 + z²/8"),
        "secure_product": Constant(
            "BGN encryption with split decryption",
            "section Secure Share of Scalar Product",
            "here shares that the coordinator deals, opened between the same two parties",
            in_use="dealer",
        ),
        "epsilons": Constant((0.1, 1, 10), "Tables 1 and 3", "ε of the paper's runs; Table 2 has ε = 1"),
        "splits": Constant("10 of 80 % and 20 %", "section Experiment Setup", "training and test records"),
    }

    variant: Literal["default", "published"] = Field(
        "default", description="noise on shares, or the functional mechanism of Xu, Yuan and Wu (2019)"
    )
    label_at: str | None = Field(None, description="the party with the target; found by its columns if left out")
    model: Literal["linear", "logistic"] | None = Field(None, description="by the target if left out")
    products: Annotated[ProductMethod, Only(variant="default")] = Field(
        "rlwe", description="how products across parties are computed"
    )
    solver: Annotated[Literal["quadratic", "gradient", "auto"], Only(variant="default")] = Field(
        "auto", description="logistic: one release, private rounds after it, or auto: rounds where they help"
    )
    rounds: Annotated[RoundCount, Only(variant="default", solver=("gradient", "auto"))] = Field(
        6, description="private rounds, where there are any"
    )
    alignment: AlignmentMethod | None = Field(
        None, description="how rows are matched; keyed if the schema has an identifier, none otherwise"
    )
    intercept: bool = Field(True, description="a constant feature")
    bins: Annotated[bool, Only(variant="default")] = Field(
        False, description="numbers that declare edges become steps between them"
    )
    party_epsilon: Annotated[dict[str, float], Only(variant="default")] = Field(
        default_factory=dict,
        description="largest loss about a party's own columns, by party; the study is refused above",
    )
    block_epsilon: dict[str, float] = Field(
        default_factory=dict,
        description="pure losses from the bottom up: one for each party's own block, and one for each pair's, as a+b",
    )
    sensitivity: Annotated[Literal["paper", "tight"], Only(variant="published")] = Field(
        "paper", description="published: noise for the sensitivity as printed, or for the true one"
    )
    repair: Annotated[Repair, Only(variant="published")] = Field(
        "none",
        description="published: none takes the noisy polynomial as it is, zhang adds a ridge and leaves out directions "
        "without a minimum, floor raises eigenvalues to the deviation of the noise",
    )
    max_rows: MaxRows = Field(1 << 20, description="the most common rows that the products allow")
    sizes: Annotated[dict[str, int] | int | None, Only(variant="default")] = Field(
        None, description="records of each party, or one number for all: with these, auto and the plan know the rows"
    )

    def __init__(
        self, schema: Schema | None = None, /, *, columns: Mapping[str, Sequence[str]] | None = None, **options: Any
    ) -> None:
        # Type checkers would not see `schema` and `columns` otherwise.
        super().__init__(schema, columns=columns, **options)

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "record", "neighbours": "replace", **super().privacy(setting)}

    def make_protocol(self, setting: Setting) -> ColumnRegression:
        if not setting.columns:
            raise StudyError(
                f"{setting.where}: vertical needs the columns of each party; add [parties.NAME] tables with columns",
                key="parties",
            )
        columns = split_columns(setting.schema, setting.columns)
        if self.variant == "published":
            # It builds on what is below.
            from comity.methods.vertical.published.protocol import PublishedVertical

            built: ColumnRegression = PublishedVertical(
                schema=setting.schema,
                columns=columns,
                alignment=self._alignment(setting.schema),
                max_rows=self.max_rows,
                intercept=self.intercept,
                sensitivity=self.sensitivity,
                repair=self.repair,
                block_epsilon=self.block_epsilon,
            )
        else:
            built = self._make_default(setting.schema, columns, setting.pure)
        if self.label_at is not None and self.label_at != built.design.label_at:
            raise StudyError(
                f"{setting.where}: vertical.label_at = {self.label_at!r}, and the target is among the columns of "
                f"{built.design.label_at}; correct one of them",
                key="vertical.label_at",
            )
        kind = "logistic" if built.design.classes else "linear"
        if self.model is not None and self.model != kind:
            raise StudyError(
                f"{setting.where}: vertical.model = {self.model!r}, and the schema's target is for a {kind} model; "
                "declare [target] with classes for logistic, with low and high for linear",
                key="vertical.model",
            )
        return built

    @classmethod
    def over_columns(
        cls, *, schema: Schema, columns: Mapping[str, tuple[str, ...]], pure: bool = False, **options: Any
    ) -> VerticalRegression:
        """The protocol of these options over columns that are split already, as estimators have them."""
        return validate(cls, options, cls.__name__, f"{cls.table}.")._make_default(schema, columns, pure)

    def _make_default(self, schema: Schema, columns: Mapping[str, tuple[str, ...]], pure: bool) -> VerticalRegression:
        common: dict[str, Any] = {
            "schema": schema,
            "columns": columns,
            "pure": pure,
            "products": self.products,
            "alignment": self._alignment(schema),
            "intercept": self.intercept,
            "bins": self.bins,
            "party_epsilon": self.party_epsilon,
            "block_epsilon": self.block_epsilon,
            "max_rows": self.max_rows,
            "sizes": self.sizes,
        }
        if self.solver == "quadratic":
            return VerticalRegression(**common)
        return GradientRegression(**common, solver=self.solver, rounds=self.rounds)

    def options_for_hash(self) -> dict[str, Any]:
        found = super().options_for_hash()
        # Options of the published form are no part of other studies, which keep their hash.
        kept = {key: found[key] for key in found if self.variant == "published" or key not in _PUBLISHED_ONLY}
        # Studies without sizes keep theirs too.
        return {key: value for key, value in kept.items() if key != "sizes" or value is not None}

    def _alignment(self, schema: Schema) -> AlignmentMethod:
        return self.alignment or ("none" if schema.identifier is None else "keyed")


# What runs.


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnProducts(ProductsWithOwnSums):
    """Products of columns, each clipped to its bounds by its owner."""

    design: Design

    def matrix(self, site: Site, rows: Records) -> Floats:
        return self.design.matrix(rows, site.party)

    def sum_own(self, matrix: Floats) -> Floats:
        return gram(matrix)

    def digest_input(self, matrix: Floats) -> NDArray[np.int16]:
        """The factors: integers of 13 bits."""
        return np.rint(matrix * 2.0**self.places).astype(np.int16)


class ColumnRegression(ByColumns):
    """What the default and the published form share: how parties encode records, and the linear model presented."""

    name = "vertical"

    if TYPE_CHECKING:

        @property
        def design(self) -> Design: ...

    @property
    def makes(self) -> str:
        return f"one {'logistic' if self.design.classes else 'linear'} model over columns of different parties"

    @property
    def encoding(self) -> Encoding:
        return self.design.encoding

    def encoding_of(self, party: str) -> Encoding:
        return self.design.encoding_of(party)

    def make_model(
        self,
        coef: Floats,
        errors: Floats | None = None,
        shrunk: Floats | None = None,
        unshrunk: Floats | None = None,
    ) -> LinearClassifier | LinearRegressor:
        from comity.learn.classifiers import LinearClassifier
        from comity.learn.regressor import LinearRegressor

        if self.design.classes:
            return LinearClassifier(coef[None, :], classes=self.design.classes, encoding=self.encoding)
        target = self.design.schema.target
        assert isinstance(target, Bounded)
        return LinearRegressor(coef, target.low, target.high, self.encoding, errors, shrunk, unshrunk=unshrunk)

    def score(self, model: LinearClassifier | LinearRegressor, test: Records) -> float:
        return measure_error(self.design, model.weights.reshape(-1), test)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """None: no owner has all columns of the model. [evaluation] measures it instead."""
        return None

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return compute_baselines(self.design, train, test)


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalRegression(ColumnRegression):
    """Linear or logistic regression from noisy sums of products.

    Adversary    semi-honest: the coordinator with up to `colluders` parties. With `products="dealer"` a coordinator
                 that colludes with a party learns that party's peers' columns, because it has them masked and all
                 parties know the masks; and the sensitivity assumes that it deals correctly.
                 Not a party that runs a modified program: with a row beyond its bound it reads its peers' row.
    Unit         a record: all columns of one row, at all parties, may be replaced. The number of rows is public.
    Learned      coordinator: the noisy moments. Parties: the model (at `colluders` = 0: nothing, see `declare`).
    Sensitivity  `moments.l2_sensitivity` (Gaussian) and `l1_sensitivity` (pure), derived in proof.md, 2 to 4.
    """

    version: ClassVar[int] = 5

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    pure: bool
    products: ProductMethod
    alignment: AlignmentMethod
    intercept: bool
    bins: bool
    party_epsilon: Mapping[str, float]
    block_epsilon: Mapping[str, float]
    max_rows: MaxRows
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.design.pieces
        if self.block_epsilon:
            if not self.pure:
                raise StudyError(
                    "vertical.block_epsilon is about Laplace noise; set privacy.delta to 0, or leave it out",
                    key="vertical.block_epsilon",
                )
            _ = self.entries

    @property
    def title(self) -> str:
        return f"vertical ({self.traits})"

    @property
    def traits(self) -> str:
        kind = "logistic" if self.design.classes else "linear"
        return f"{kind}, {'Laplace' if self.pure else 'Gaussian'}, {self.products}"

    @cached_property
    def design(self) -> Design:
        return Design(self.schema, self.columns, centred=not self.pure, intercept=self.intercept, bins=self.bins)

    @cached_property
    def entries(self) -> MomentEntries:
        even = MomentEntries.of(self.design)
        return even if self.blocks is None else self.blocks.weigh(even)

    @cached_property
    def blocks(self) -> Blocks | None:
        """The budgets of single blocks, where the study names them."""
        if not self.block_epsilon:
            return None
        return Blocks.of(self.design, self.block_epsilon, self._carry)

    @property
    def _carry(self) -> float:
        """With rlwe an entry across parties may be one unit off its product: the entries of two neighbours may be two
        units further apart."""
        return 2 * self.product.unit if self.products == "rlwe" else 0.0

    @property
    def total_carry(self) -> float:
        """What the carry of the products adds to the sensitivity, in the norm of the noise."""
        size = self.entries.size
        return BESIDE * self._carry * (size if self.pure else sqrt(size))

    @property
    def _largest_weight(self) -> int:
        return LARGEST_WEIGHT if self.block_epsilon else BESIDE

    @cached_property
    def product(self) -> ColumnProducts:
        return ColumnProducts(
            columns=self.design.widths,
            places=PLACES,
            bound=1.0,
            method=self.products,
            max_rows=self.max_rows,
            # Room for the weights, for every party's rounding, and for the noise of any budget.
            noise=(len(self.columns) * self._largest_weight * self.max_rows << (2 * PLACES)) + (1 << 46),
            design=self.design,
        )

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        self.check_terms(consortium)
        readers = EVERYONE if consortium.colluders else COORDINATOR
        width = self.design.encoding.width
        own = [
            Release(name=name, source=COORDINATOR, to=readers, protection=Derived("moments"), form=Array((width,)))
            for name in self.derived_names
        ]
        return Declaration(
            (*self.declared_by_parts(consortium), self.moments(consortium.loss), *own),
            adversary=self.describe_adversary(consortium, "the model"),
        )

    @property
    def derived_names(self) -> tuple[str, ...]:
        """The releases derived from the moments; the last two come with models that have intervals."""
        return ("model", "errors") if self.design.classes else ("model", "errors", "shrunk", "unshrunk")

    def noise(self, loss: Loss) -> Noise:
        if isinstance(loss, Pure):
            return Laplace(loss)
        return Gaussian(gaussian_budget(loss))

    def moments(self, loss: Loss) -> Release:
        """The one release that costs: all weighted entries, opened by a secure sum of noisy shares."""
        size, unit = self.entries.size, self.product.unit
        if self.blocks is None:
            l2 = l2_sensitivity(self.design) + BESIDE * self._carry * sqrt(size)
            l1 = l1_sensitivity(self.design) + self.total_carry if self.pure else float("inf")
        else:
            loss = self.blocks.loss(self.entries)
            # A vector is never longer in L2 than in L1.
            l1 = l2 = self.blocks.sensitivity(self.entries)
        bound = OpenedValue(l2=l2, l1=l1, limit=float(self._largest_weight * self.max_rows), ring=self.product.bits)
        return Release(
            name="moments",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self.noise(loss)),
            form=Array((size,), "<i8"),
            bound=bound,
            grid=unit,
        )

    def check_terms(self, consortium: Consortium) -> None:
        """Refuse terms that the proof does not cover, before anything is reserved."""
        if not self.protects(consortium.unit) or consortium.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                f"vertical protects a record that may be replaced; found unit = {consortium.unit}, neighbours = "
                f"{consortium.neighbours}, alignment = {self.alignment}. Set privacy.unit = "
                '"record" ("person" only with an alignment) and privacy.neighbours = "replace"',
                key="privacy.unit",
            )
        self.check_parties(consortium)
        if self.sizes is not None:
            check_sizes(self.sizes, consortium, "vertical.sizes")
        if isinstance(consortium.loss, Pure) != self.pure:
            found = "0" if isinstance(consortium.loss, Pure) else "above 0"
            needed = "Laplace noise needs privacy.delta = 0" if self.pure else "Gaussian noise needs privacy.delta > 0"
            raise StudyError(f"vertical: {needed}, found delta {found}", key="privacy.delta")
        if self.party_epsilon:
            self._check_party_epsilon(consortium.loss)
        if self.blocks is not None:
            assert isinstance(consortium.loss, Pure)
            total = self.blocks.loss(self.entries)
            if total.epsilon > consortium.loss.epsilon:
                raise StudyError(
                    f"vertical.block_epsilon comes to eps {total.epsilon} about whole records, found privacy.epsilon = "
                    f"{consortium.loss.epsilon}; raise that, or lower the blocks",
                    key="vertical.block_epsilon",
                )

    def _check_party_epsilon(self, loss: Loss) -> None:
        """Refuse a loss that exceeds party_epsilon for any party's columns."""
        if self.blocks is not None:
            raise StudyError(
                "vertical.party_epsilon is a ceiling from the top, vertical.block_epsilon a budget from the bottom; "
                "leave one of them out",
                key="vertical.party_epsilon",
            )
        assert isinstance(loss, Pure | Approx)
        delta = float(loss.delta) if isinstance(loss, Approx) else 0.0
        most = affordable_epsilon(self.design, self.party_epsilon, delta, self.total_carry)
        if float(loss.epsilon) > most:
            raise StudyError(
                f"vertical.party_epsilon allows privacy.epsilon up to {floor(1e4 * most) / 1e4:g}, found "
                f"{loss.epsilon}; lower it, or raise the party's epsilon that is exceeded",
                key="vertical.party_epsilon",
            )

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        opened, shared = self.open_moments(parties)
        found = self.fit(opened, shared, parties.consortium)
        made = {"model": found.coef, "errors": found.errors, "shrunk": found.shrunk, "unshrunk": found.unshrunk}
        return {name: made[name] for name in self.derived_names}

    def open_moments(self, parties: Parties) -> tuple[Floats, int]:
        """The noisy moments and the number of common rows."""
        shared = self.agree_on_rows(parties)
        self.product.coordinate_products(parties, shared)
        total = parties.sum(self.contribute)
        parties.require("moments", total.parties, self.ranges(total.value, shared))
        return total.value, shared

    def ranges(self, opened: Floats, shared: int) -> tuple[Range, ...]:
        """Ranges of the moments of so many rows with columns within ±1."""
        matrix, spread = self.entries.assemble(opened, shared), np.sqrt(self.entries.variances(1.0))
        return moment_ranges(matrix, spread, float(shared), gaussian=not self.pure)

    def fit(self, opened: Floats, shared: int, consortium: Consortium) -> Regression:
        """The model from opened moments of so many rows: post-processing."""
        return fit_regression(self.entries, opened, shared, self.deviation(consortium))

    def deviation(self, consortium: Consortium) -> float:
        """Deviation of the noise in one opened entry: that of a trusted curator times √(K / (K − t))."""
        return self.moments(consortium.loss).opened_deviation(consortium)

    @property
    def declared_rows(self) -> int | None:
        """The most rows that all parties can have in common, by their declared sizes."""
        if self.sizes is None:
            return None
        return self.sizes if isinstance(self.sizes, int) else min(self.sizes.values())

    def entry_noise(self, consortium: Consortium, rows: int) -> float:
        """The noise in an entry of moments that take the whole loss, over the number of rows."""
        variances, *_ = self.entries.split(self.entries.variances(self.deviation(consortium)))
        return entry_noise(variances, rows)

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """Also where declared sizes can give a classifier no more than a constant, or less than one."""
        before, rows = super().warnings(consortium), self.declared_rows
        if rows is None or not self.design.classes:
            return before
        noise = self.entry_noise(consortium, rows)
        if noise < WARNED_FROM:
            return before
        factor = f"{noise / WARNED_FROM:.2g}"
        remedy = f"Raise privacy.epsilon about {factor} times, bring more rows, or declare fewer columns and categories"
        if self.counts_classes(consortium):
            what = (
                f"can only give a constant, how frequent each class is, which {self.design.label_at} counts alone: the "
                f"noise hides every column. {self.describe_count(consortium, rows)}"
            )
        else:
            what = "may give less than a constant: accuracy or log loss can be worse than of the classes' frequencies"
        return (*before, f"{rows:,} rows at this epsilon {what}. {remedy}")

    def counts_classes(self, consortium: Consortium) -> bool:
        """Whether a run counts the classes and nothing else."""
        return False

    def describe_count(self, consortium: Consortium, rows: int) -> str:
        """How far the counts of so many rows tell which class is more frequent."""
        raise NotImplementedError

    # At a site.

    @step(sends="moments")
    def contribute(self, site: Site) -> None:
        self._contribute_moments(site)

    def _contribute_moments(self, site: Site) -> None:
        shares = self.product.shares(site, site.dims["rows"])
        site.contribute(share=self.entries.share(site.party, self.product.own_sums(site), shares))

    # What comes out.

    def model_evaluation(self, consortium: Consortium) -> ModelEvaluation:
        from comity.methods.vertical.evaluation import ErrorsByColumns

        return ErrorsByColumns(self)

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        return self.make_model(*(np.asarray(released[name], np.float64) for name in self.derived_names))

    def expectation(self, consortium: Consortium) -> str:
        factor, weights = consortium.size / consortium.honest_parts, self.entries.weight
        most, least = (self.deviation(consortium) / float(weight) for weight in (weights.min(), weights.max()))
        spread = f"{least:.3g}" if self.blocks is None else f"{least:.3g} to {most:.3g}"
        text = (
            f"each released sum carries noise of deviation {spread}, where one record counts at most "
            f"1 (colluders {consortium.colluders}: {factor:.3g} times the variance of a trusted curator's)"
        )
        return f"{text}; {self._describe_party_losses(consortium.loss)}"

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        if consortium.evaluation is None:
            return (describe_prediction(consortium),)
        whole = "about one party's columns of a holdout row, the evaluation may tell the whole epsilon"
        return (describe_prediction(consortium), whole)

    def _describe_party_losses(self, loss: Loss) -> str:
        """The loss about one party's columns when all others are fixed."""
        if self.blocks is None:
            found, before = party_losses(self.design, loss, self.total_carry), ""
            total = loss.epsilon if isinstance(loss, Pure | Approx) else None
        else:
            found = self.blocks.party_losses(self.entries)
            total = self.blocks.loss(self.entries).epsilon
            before = f"the blocks' budgets come to eps {total} about whole records; "
        losses = ", ".join(f"{party} {format_rounded_up(epsilon, total)}" for party, epsilon in found.items())
        return f"{before}eps about a party's own columns alone: {losses}"


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientRegression(VerticalRegression):
    """Logistic regression with private rounds after the noisy moments.

    The quadratic objective replaces the logistic curve by a tangent. A few rounds start from its solution. In each, the
    parties read the current weights, compute shares of Σ u_i (s(z_i) − y_i + ½) over all records (s the curve and u the
    whitened and clipped features of `rounds`) and add noise to them; the coordinator takes a step from the opened sum
    (`descent`). The rounds solve the equation of the logistic fit, with u in place of x. `solver` is gradient, or auto:
    rounds where they are possible and help, the moments alone elsewhere, and a count of the classes where declared
    sizes say that moments could only give a constant.

    Parties read weights, and each knows its own part of the noise. Even with no colluders the noise is scaled to
    protect against each single party as well as against the coordinator.

    Adversary    with `products="dealer"` a coordinator that works with no party and deals correctly, and up to
                 `colluders` parties together; with "rlwe" the coordinator with up to `colluders` parties, of three and
                 more with one at most. At `colluders` = 0 every party by itself.
    Unit         a record, replaced.
    Learned      coordinator: noisy moments and noisy sums of responses, or two noisy counts. Parties: the weights of
                 every round.
    Sensitivity  `moments.l2_sensitivity` for the moments, `Rounds.bound` for a round: instruments have norm 1 at
                 most (proof.md, 9 and 11). √2 for the counts, 2 in L1 (proof.md, 14).
    Loss         four tenths of μ² for the moments, the rest in equal parts for the rounds.
    """

    version: ClassVar[int] = 7

    solver: Literal["gradient", "auto"]
    rounds: RoundCount

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "gradient":
            self._require(self.design.classes is not None, "target", "a target of two classes")
            self._require(not self.pure, "privacy.delta", "Gaussian noise: set privacy.delta above 0")
            self._require(
                not self.party_epsilon,
                "vertical.party_epsilon",
                "budgets about whole records: leave vertical.party_epsilon out",
            )

    def _require(self, holds: bool, key: str, what: str) -> None:
        if not holds:
            raise StudyError(f'vertical.solver = "gradient" needs {what}; or set it to "quadratic"', key=key)

    @property
    def title(self) -> str:
        if self._obstacle:
            return super().title
        where = "gradients" if self.solver == "gradient" else "gradients where they help"
        return f"vertical ({self.traits}, {where})"

    def counts_classes(self, consortium: Consortium) -> bool:
        """Public figures alone decide."""
        rows = self.declared_rows
        if rows is None or not (self.design.classes and self._may_count):
            return False
        return self.entry_noise(consortium, rows) >= COUNTED_FROM

    def describe_count(self, consortium: Consortium, rows: int) -> str:
        deviation = self.class_count(consortium).opened_deviation(consortium)
        # Of 60 and 40 % the difference is a fifth of the rows; its noise is that of two cells.
        chance = float(ndtr(-0.2 * rows / (sqrt(2) * deviation)))
        said = f"Of classes with 60 and 40 % of the rows it takes the wrong one in {100 * chance:.2g} % of runs"
        loss = consortium.loss
        if isinstance(loss, Approx) and loss.delta:
            pure = replace(consortium, loss=Pure(loss.epsilon))
            share = self.class_count(pure).opened_deviation(pure) / deviation
            if share < 1:
                said += (
                    f"; with privacy.delta = 0 and the same epsilon its noise is {share:.2g} times as large, and "
                    "ledgers are charged more"
                )
        return said

    @property
    def _may_count(self) -> bool:
        """Not without a constant, nor with ceilings and budgets of blocks, which are about moments."""
        return self.solver == "auto" and self.design.intercept and not (self.party_epsilon or self.block_epsilon)

    def makes_rounds(self, consortium: Consortium) -> bool:
        """Whether a run makes gradient rounds; public figures alone decide."""
        return self.missing_for_rounds(consortium) is None

    def missing_for_rounds(self, consortium: Consortium) -> str | None:
        """What `auto` would need for rounds; None where it makes them."""
        if self.solver == "gradient" or self._obstacle:
            return self._obstacle
        if not self._covers_colluders(consortium):
            return 'one colluder at most, or vertical.products = "dealer"'
        rows = self.declared_rows
        if rows is not None:
            noise, read = (self.entry_noise(one, rows) for one in (consortium, _with_reader(consortium)))
            if read <= ROUNDS_UP_TO * (noise / read) ** DEARER:
                return None
            return f"a larger epsilon or more than the declared {rows:,} rows, to be better than the quadratic"
        enough = isinstance(consortium.loss, Approx) and float(consortium.loss.epsilon) >= SWITCH
        return None if enough else f"a delta, and epsilon {SWITCH} or more"

    @cached_property
    def _obstacle(self) -> str | None:
        """What rules rounds out in every consortium; None where nothing does."""
        if self.solver == "gradient":
            return None
        if not self.design.classes:
            return "a target of two classes"
        if self.pure:
            return "Gaussian noise, and so a delta"
        if self.party_epsilon:
            return "budgets about whole records, without vertical.party_epsilon"
        return None

    def _covers_colluders(self, consortium: Consortium) -> bool:
        """Without a dealer, a score of three parties or more is split between two: at most one may collude."""
        return self.products == "dealer" or consortium.size == 2 or consortium.colluders <= 1

    @cached_property
    def secure_rounds(self) -> Rounds:
        if self.products == "rlwe":
            return RlweRounds(design=self.design, max_rows=self.max_rows)
        return DealerRounds(design=self.design, max_rows=self.max_rows)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        before = super().parts
        return before if self._obstacle else {**before, "rounds": self.secure_rounds}

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if self.counts_classes(consortium):
            return self._declare_count(consortium)
        if not self.makes_rounds(consortium):
            return super().declare(consortium)
        self.check_terms(consortium)
        if not self._covers_colluders(consortium):
            raise StudyError(
                f'vertical.solver = "gradient" with vertical.products = "rlwe" holds against one party of three or '
                f"more, found privacy.colluders = {consortium.colluders}; lower it, or set "
                'vertical.products = "dealer"',
                key="privacy.colluders",
            )
        derived = Derived("moments", "gradient")
        before = [
            replace(release, known_parts=1) if release.name == "moments" else release
            for release in super().declare(self.moment_terms(consortium)).releases
            if release.name not in self.derived_names
        ]
        between = [
            replace(release, protection=derived) if release.name in ("weights", "interval") else release
            for release in self.secure_rounds.declare(consortium).releases
        ]
        model = Release(
            name="model", source=COORDINATOR, to=EVERYONE, protection=derived, form=Array((self.design.encoding.width,))
        )
        alone = "" if consortium.colluders else ", and each party by itself"
        held = self.describe_adversary(consortium, None, also=alone)
        return Declaration((*before, *between, self.gradient(consortium.loss), model), adversary=held)

    def _declare_count(self, consortium: Consortium) -> Declaration:
        self.check_terms(consortium)
        model = Release(
            name="model",
            source=COORDINATOR,
            to=EVERYONE if consortium.colluders else COORDINATOR,
            protection=Derived("moments"),
            form=Array((self.design.encoding.width,)),
        )
        found = (*self.declared_by_matching(consortium), self.class_count(consortium), model)
        return Declaration(found, adversary=self.describe_adversary(consortium, "the model"))

    def class_count(self, consortium: Consortium) -> Release:
        """The noisy counts of both classes, which take the whole loss."""
        return release_count(self.design, self.noise(consortium.loss), self.max_rows)

    def moment_terms(self, consortium: Consortium) -> Consortium:
        """The terms of the moments: their part of the loss, and one part of the noise known to its reader."""
        if not self.makes_rounds(consortium):
            return consortium
        return replace(_with_reader(consortium), loss=self._split_loss(consortium.loss)[0])

    def _split_loss(self, loss: Loss) -> tuple[GDP, GDP]:
        """The losses of the moments and of one round, each rounded down."""
        square, tenth = gaussian_budget(loss).square, Decimal(10)
        moments = _DOWN.divide(_DOWN.multiply(square, Decimal(TENTHS_FOR_MOMENTS)), tenth)
        one = _DOWN.divide(
            _DOWN.multiply(square, tenth - TENTHS_FOR_MOMENTS), _DOWN.multiply(tenth, Decimal(self.rounds))
        )
        return GDP.squared(moments), GDP.squared(one)

    def gradient(self, loss: Loss) -> Release:
        """The noisy sums Σ u (s(z) − y + ½), the constant's last, once for every round."""
        return Release(
            name="gradient",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(self._split_loss(loss)[1])),
            form=Array((self.secure_rounds.size,), "<i8"),
            times=self.rounds,
            bound=self.secure_rounds.bound,
            grid=self.secure_rounds.grid,
            known_parts=1,
        )

    def round_deviation(self, consortium: Consortium) -> float:
        """Deviation of the noise in one opened sum of a round."""
        return self.gradient(consortium.loss).opened_deviation(consortium)

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium = parties.consortium
        if self.counts_classes(consortium):
            rows = self.agree_on_rows(parties)
            return {"model": self.fit_constant(parties.sum(self.contribute).value, rows, consortium)}
        if not self.makes_rounds(consortium):
            return super().coordinate(parties)
        opened, rows = self.open_moments(parties)
        descent = self.start(opened, rows, consortium)
        rounds = self.secure_rounds
        held = rounds.coordinate_whitening(parties, descent.whitening)
        for number in range(self.rounds):
            rounds.coordinate_round(parties, number, descent.weights, descent.intervals, descent.curve, held)
            descent = descent.step(parties.sum(self.descend).value)
        return {"model": descent.coefficients}

    def fit_constant(self, counts: Floats, rows: int, consortium: Consortium) -> Floats:
        """Coefficients of encoded rows from noisy counts of the classes: post-processing."""
        deviation = self.class_count(consortium).opened_deviation(consortium)
        return constant_coefficients(self.design, estimate_share(counts, deviation, rows))

    def start(self, opened: Floats, rows: int, consortium: Consortium) -> Descent:
        """The first descent, from the opened moments of so many rows."""
        moments = self.deviation(self.moment_terms(consortium))
        gradient = self.round_deviation(consortium)
        return Descent.start(
            self.secure_rounds,
            self.entries,
            opened,
            rows,
            moments=moments,
            gradient=gradient,
        )

    # At a site.

    @step(sends="moments")
    def contribute(self, site: Site) -> None:
        if self.counts_classes(site.consortium):
            site.contribute(count_rows(self.design, site))
        else:
            self._contribute_moments(site)

    @step(sends="gradient")
    def descend(self, site: Site) -> None:
        site.contribute(share=self.secure_rounds.share(site, int(site.label)))

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        if "errors" in released:
            return super().present(released, consortium)
        return self.make_model(np.asarray(released["model"], np.float64))

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        """Of the last round, at the party that clips most."""
        if not self.makes_rounds(consortium):
            return ()
        rows, widths = pool_columns(self.design, train), self.secure_rounds.widths
        if not len(rows):
            return ()
        columns = {party: rows[:, self.design.places(party)] for party in self.design.parties}
        whitening = {
            party: matrix.reshape(widths[party] + 1, widths[party]) for party, matrix in opened["whitening"].items()
        }
        last = (value[-1] if isinstance(value, list) else value for value in (opened["weights"], opened["interval"]))
        weights, intervals = last
        ends = np.stack([intervals[party] for party in columns])
        held = CentralRounds(self.secure_rounds, columns, whitening)
        return tuple(
            Figure(
                name,
                share,
                f"share of the records whose {name.removesuffix(' clipped')} a party clips in the last round",
            )
            for name, share in held.clipped_fractions(weights, ends).items()
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        before, missing = super().notes(consortium), self.missing_for_rounds(consortium)
        if self.counts_classes(consortium):
            return before
        if missing is None:
            return before if consortium.colluders else (_READ_BY_ALL, *before[1:])
        if not self.design.classes and self.rounds == Vertical.model_fields["rounds"].default:
            return before
        why = (
            f'vertical.solver = "auto" takes the quadratic alone: the {self.rounds} private rounds would need {missing}'
        )
        return (*before, why)

    def expectation(self, consortium: Consortium) -> str:
        if self.counts_classes(consortium):
            deviation = self.class_count(consortium).opened_deviation(consortium) / sqrt(2)
            return (
                f"the number of rows of a class is known up to a deviation of {deviation:.3g}; {self.design.label_at} "
                "alone is asked for its records, and loses the study's epsilon about its own column"
            )
        if not self.makes_rounds(consortium):
            return super().expectation(consortium)
        release = self.gradient(consortium.loss)
        factor = consortium.size / release.parts(consortium)
        moments = self.deviation(self.moment_terms(consortium)) / float(self.entries.weight.max())
        return (
            f"each released sum of products carries noise of deviation {moments:.3g}, then each of {self.rounds} "
            f"rounds {self.round_deviation(consortium):.3g} in every sum of residuals, where one record counts at most "
            f"1 (colluders {consortium.colluders}: {factor:.3g} times the variance of a trusted curator's); the "
            f"logistic curve is a sum of waves, off by {ERROR} at most{self._cost}"
        )

    @property
    def _cost(self) -> str:
        """How much a round without a dealer sends."""
        if not isinstance(self.secure_rounds, RlweRounds):
            return ""
        rows = min(self.max_rows, 10_000)
        sent = self.secure_rounds.bytes_per_round(rows) / 1e6
        return f"; without a dealer the parties send each other up to {sent:.3g} MB in each round over {rows} rows"


def _with_reader(consortium: Consortium) -> Consortium:
    """The terms of what parties read weights of: a single party counts as a colluder."""
    return replace(consortium, colluders=max(1, consortium.colluders))
