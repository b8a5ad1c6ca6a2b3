"""The functional mechanism over columns of several parties, as published, for comparison.

D. Xu, S. Yuan, X. Wu, Achieving differential privacy in vertically partitioned multiparty learning (2019), Algorithm 1:

    1-3    the server allocates the coefficients of the objective and sets Δ: 2(1 + 2d + d²) for squared loss, d²/4 + d
           for logistic loss
    6-8    each party sums its single-party coefficients, adds Laplace noise of scale Δ/ε, sends them  (`perturb`)
    11     each pair of parties opens the sums of products of their columns to each other              (`open_sums`)
    12-13  each party adds noise to the cross-party coefficients of its own features, sends them       (`perturb`)
    16-17  the server minimises the noisy polynomial                                                   (`coordinate`)

A coefficient of w_a·w_b is sent by the owner of feature a, one of w_a by the owner of feature a, the constant by the
owner of the label: one draw per ordered pair, 1 + d + d² coefficients for squared loss. The server sees noisy
coefficients alone. The parties see exact sums (line 11); `true_losses` says what the noise truly protects.

From the bottom up (Corollary 1), each party names an ε for its own block of coefficients and each pair one for theirs:
block j gets noise of scale Δ_j/ε_j. Parties multiply the coefficients of block j by a public factor in (0, 1], so that
noise of one scale serves all blocks, and the server divides by it.

Where this differs from the paper: products are shared by a server that multiplies masked columns instead of under BGN
encryption, which would take 3.6 million times the time of a plain product; the same two parties read the same sums.
BGN holds against a server that works with all parties but one, this server must work with none. Repairs are options
that are off: `intercept`, `sensitivity`, `repair`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.crypto.products.fixed_point import lower_from_word, raise_to_word
from comity.data import Records, Schema
from comity.errors import Malformed, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import EntrySum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import INFINITE, Declaration, Release, TrueLoss
from comity.federation.declare.protection import Derived, Disclosed, Noised
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.by_columns import AlignmentMethod, MaxRows
from comity.methods.by_columns.products import ProductsWithOwnSums
from comity.methods.vertical.budgets import Block, read_budgets
from comity.methods.vertical.design import Design, scale_target
from comity.methods.vertical.method import ColumnRegression
from comity.methods.vertical.prediction import describe_prediction
from comity.methods.vertical.published.polynomial import Repair, coefficients, minimise_polynomial
from comity.methods.vertical.published.sensitivities import (
    BlockSensitivities,
    corollary_1,
    printed_sensitivity,
    printed_share,
    true_sensitivity,
)
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

CLAIM = (
    "not private as claimed: each pair of parties opens the exact sums of products of their columns to each other "
    "before noise is added, so no epsilon holds for a party's columns against any other party; someone who sees the "
    "noisy coefficients or the model alone learns no more about a record than the claimed epsilon"
)
_SOLUTION = {
    "none": "the model is where the noisy polynomial has no slope, which is no minimum where noise exceeds the data",
    "zhang": "the model minimises the noisy polynomial after a ridge of 4 deviations, in the directions that have a "
    "minimum",
    "floor": "the model minimises the noisy polynomial with eigenvalues raised to the deviation of the noise",
}
_PLACES = 14
"""Binary places of an entry: 2^24 products of two entries add up below 2^53, exactly, in floating point."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _EncodedProducts(ProductsWithOwnSums):
    """Products of encoded columns; the label's holder also has the label, after a constant if there is one."""

    design: Design

    def matrix(self, site: Site, rows: Records) -> Floats:
        features, design, labels = rows.features, self.design, rows.labels
        if site.party == design.label_at:
            if labels is None:
                raise Refused(f"{site.party} holds no labels", code="stopped")
            label = labels.astype(np.float64) - 0.5 if design.classes else scale_target(design.schema, labels)
            constant = [np.ones(len(features))] if design.intercept else []
            features = np.column_stack([features, *constant, label])
        return np.asarray(np.clip(np.nan_to_num(features), -self.bound, self.bound), np.float64)

    def sum_own(self, matrix: Floats) -> Floats:
        """Sums of products of the party's own columns, in units of a product."""
        units = self.form.encode(matrix).astype(np.float64)
        return np.asarray(units.T @ units, np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedVertical(ColumnRegression):
    """The published method as a run: parties open sums to each other, add noise, and send noisy coefficients.

    Adversary    a coordinator that works with no party, and readers of the model. No party.
    Unit         a record, replaced.
    Learned      coordinator: noisy coefficients. Each party: the exact sums of products of its columns with those of
                 each other party. Everyone: the model.
    Sensitivity  as printed, about twice the truth (`true_losses`); or the true one, by `sensitivity`.

    Rows are aligned as in the default where the schema has an identifier: the paper assumes aligned rows.
    """

    version: ClassVar[int] = 5
    variant: ClassVar[str] = "published"
    title: ClassVar[str] = "vertical (published functional mechanism)"

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    alignment: AlignmentMethod
    max_rows: MaxRows
    intercept: bool
    sensitivity: Literal["paper", "tight"]
    repair: Repair
    block_epsilon: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.block_epsilon:
            read_budgets(tuple(self.columns), self.block_epsilon)

    @cached_property
    def design(self) -> Design:
        return Design(self.schema, self.columns, centred=False, intercept=self.intercept, bins=False)

    @property
    def logistic(self) -> bool:
        return self.design.classes is not None

    @cached_property
    def widths(self) -> dict[str, int]:
        """Columns that each party multiplies: its features, and the label at its holder, with a constant if any."""
        beside = 1 + self.intercept
        return {
            party: self.encoding_of(party).width + beside * (party == self.design.label_at) for party in self.columns
        }

    @cached_property
    def product(self) -> _EncodedProducts:
        return _EncodedProducts(
            columns=self.widths, places=_PLACES, method="dealer", max_rows=self.max_rows, design=self.design
        )

    def declare(self, consortium: Consortium) -> Declaration:
        if (
            not isinstance(consortium.loss, Pure)
            or consortium.unit is not Unit.RECORD
            or consortium.neighbours is not Neighbours.REPLACE
        ):
            raise StudyError(
                "the published vertical method has Laplace noise for a record that may be replaced; set privacy.delta "
                'to 0, privacy.unit to "record" and privacy.neighbours to "replace"',
                key="privacy.unit" if isinstance(consortium.loss, Pure) else "privacy.delta",
            )
        self.check_parties(consortium)
        width, loss = self.encoding.width, self._charged(consortium.loss)
        # Weighted coefficients are rounded once as floating-point numbers, before they are rounded to the grid.
        inexact = 4.0 * self.max_rows * sum(self.coefficient_counts.values()) * 2.0**-52 if self.budgets else 0.0
        return Declaration(
            (
                *self.declared_by_parts(consortium),
                Release(
                    name="sums",
                    source=EVERY_PARTY,
                    to=EVERY_PARTY,
                    protection=Disclosed(
                        "the sums of products of its columns with those of the receiver",
                        "records_may_leave",
                        sealed=True,
                    ),
                    form=Array(None, "<u8"),
                ),
                Release(
                    name="coefficients",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Noised(Laplace(loss)),
                    form=Array((max(self.coefficient_counts.values()),), "<i8"),
                    # Sums of integers are exact: nothing is added for floating point.
                    bound=EntrySum(
                        each=float(self._printed) / 2,
                        moved=float(self._moved) + inexact,
                        largest=2.0 * self.max_rows,
                    ),
                    grid=self.product.unit / 8 if self.logistic else self.product.unit,
                ),
                Release(
                    name="model",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Derived("coefficients"),
                    form=Array((width,)),
                ),
            ),
            adversary="a coordinator that works with no party (it deals), and readers of the model; no other party",
            claim=CLAIM,
            exposed="every other party, which reads exact sums of products of its columns with yours",
        )

    # The scale of the noise.

    @cached_property
    def _printed(self) -> Fraction:
        return printed_sensitivity(self.encoding.width, logistic=self.logistic)

    @cached_property
    def budgets(self) -> dict[Block, Fraction]:
        """The ε of each block that has coefficients; empty from the top down."""
        if not self.block_epsilon:
            return {}
        read = read_budgets(tuple(self.columns), self.block_epsilon)
        return {block: Fraction(str(epsilon)) for block, epsilon in read.items() if self.blocks.printed(block)}

    @cached_property
    def blocks(self) -> BlockSensitivities:
        features = {party: len(self._features(party)) for party in self.columns}
        return BlockSensitivities(features, self.design.label_at, self.logistic)

    @cached_property
    def _block_spreads(self) -> dict[Block, Fraction]:
        """The sensitivity that the noise of each block is for."""
        found = self.blocks.true if self.sensitivity == "tight" else self.blocks.printed
        return {block: found(block) for block in self.budgets}

    @cached_property
    def block_factors(self) -> dict[Block, Fraction]:
        """What coefficients of each block are multiplied by: its ε_j/Δ_j over the largest of these."""
        rates = {block: epsilon / self._block_spreads[block] for block, epsilon in self.budgets.items()}
        return {block: rate / max(rates.values()) for block, rate in rates.items()}

    @cached_property
    def _moved(self) -> Fraction:
        """The L1 sensitivity that noise is scaled for, of the coefficients as sent."""
        if self.budgets:
            return sum(
                (self.block_factors[block] * spread for block, spread in self._block_spreads.items()), Fraction(0)
            )
        if self.sensitivity == "tight":
            return self._true_moved(self.encoding.width, label=True)
        return self._printed

    def _true_moved(self, changing: int, *, label: bool) -> Fraction:
        return true_sensitivity(changing, self.encoding.width, logistic=self.logistic, label=label)

    def _charged(self, loss: Pure) -> Pure:
        """The loss of the coefficients: the study's, or the sum of the blocks' budgets."""
        if not self.budgets:
            return loss
        total = Pure(Decimal(str(float(sum(self.budgets.values())))))
        if total.epsilon > loss.epsilon:
            raise StudyError(
                f"vertical.block_epsilon comes to eps {total.epsilon} about whole records, found privacy.epsilon = "
                f"{loss.epsilon}; raise that, or lower the blocks",
                key="vertical.block_epsilon",
            )
        return total

    def _factors(self, party: str) -> Floats:
        """The factors of the coefficients that a party sends, in their order."""
        out = np.ones(max(self.coefficient_counts.values()))
        if not self.budgets:
            return out
        factors = {frozenset(block): float(factor) for block, factor in self.block_factors.items()}
        owner = {int(place): one for one in self.columns for place in self._features(one)}
        beside = [owner[place] for place in range(self.encoding.width)]
        own = len(self._features(party))
        second = np.tile([factors[frozenset((party, other))] for other in beside], own) if own else np.zeros(0)
        first = np.full(own, factors[frozenset((party, self.design.label_at))]) if own else np.zeros(0)
        found = np.concatenate([second, first])
        out[: len(found)] = found
        if party == self.design.label_at and not self.logistic:
            out[len(found)] = factors[frozenset((party,))]
        return out

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        shared = self.agree_on_rows(parties)
        self.product.coordinate_products(parties, shared)
        parties.ask(self.open_sums)
        got = parties.ask(self.perturb)
        release = self.declare(parties.consortium)["coefficients"]
        scale = release.scale(parties.consortium)
        width = self.encoding.width
        second, first = np.zeros((width, width)), np.zeros(width)
        for party, values in got.items():
            own = self._features(party)
            noisy = values["coefficients"] * scale.grid / self._factors(party)
            second[own] = noisy[: len(own) * width].reshape(len(own), width)
            first[own] = noisy[len(own) * width : len(own) * (width + 1)]
        polynomial = np.concatenate([second.reshape(-1), first])
        largest = 1 / min(map(float, self.block_factors.values()), default=1.0)
        deviation = release.deviation(scale) * scale.grid * largest
        return {"model": minimise_polynomial(polynomial, width, deviation, self.repair)}

    # Indices of columns and coefficients.

    @cached_property
    def _places(self) -> dict[str, slice]:
        """The columns of each party among those of all parties, in the parties' order."""
        starts = np.cumsum([0, *self.widths.values()]).tolist()
        return {party: slice(start, start + self.widths[party]) for party, start in zip(self.widths, starts)}

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], int]:
        """Places of the encoded whole row's entries, the constant last if there is one, and of the label."""
        place, label = {}, 0
        for party, own in self._places.items():
            for group in self.encoding_of(party).bounds.groups:
                place[group.column] = list(range(own.start + group.start, own.start + group.stop))
            if party == self.design.label_at:
                place["(intercept)"], label = [own.stop - 2] if self.intercept else [], own.stop - 1
        names = [*(column.name for column in self.schema.columns), "(intercept)"]
        return np.array([at for name in names for at in place[name]], np.int64), label

    def _features(self, party: str) -> NDArray[np.int64]:
        """Places of a party's features, a constant among them, in the encoded whole row."""
        at, own = self._order[0], self._places[party]
        return np.flatnonzero((at >= own.start) & (at < own.stop))

    @cached_property
    def coefficient_counts(self) -> dict[str, int]:
        """How many coefficients each party sends: d + 1 for each of its features, and the constant of squared loss."""
        width, constant_at = self.encoding.width, None if self.logistic else self.design.label_at
        return {party: len(self._features(party)) * (width + 1) + (party == constant_at) for party in self.columns}

    @property
    def inner_products(self) -> int:
        """How many inner products across parties line 11 computes, each once for both orders."""
        every = sum(self.widths.values())
        return (every**2 - sum(width**2 for width in self.widths.values())) // 2

    def allocate_coefficients(self, party: str, sums: Floats) -> Floats:
        """The coefficients that a party sends, without noise, from the `sums` of products of its own columns (rows)
        with all columns; padded with zeros to the longest such vector."""
        at, label = self._order
        own = at[self._features(party)] - self._places[party].start
        out = np.zeros(max(self.coefficient_counts.values()))
        found = coefficients(sums[np.ix_(own, at)], sums[own, label], logistic=self.logistic)
        out[: len(found)] = found
        if party == self.design.label_at and not self.logistic:
            out[len(found)] = sums[label - self._places[party].start, label]
        return out

    # What a site does.

    @step()
    def open_sums(self, site: Site) -> None:
        """Line 11: a pair of parties decrypts jointly. Each sends the other its shares of their products."""
        for pair, share in self.product.shares(site, site.dims["rows"]).items():
            (peer,) = (party for party in pair if party != site.party)
            site.send(peer, "sums", share)

    @step(sends="coefficients")
    def perturb(self, site: Site) -> None:
        """Lines 6 to 8, 12 and 13: noise on the party's own coefficients and on those that it opened with others."""
        found = self.allocate_coefficients(site.party, self._sums(site))
        site.contribute(found * self._factors(site.party))

    def _sums(self, site: Site) -> Floats:
        """Exact sums of products of this party's columns with all columns."""
        own = self._places[site.party]
        units = np.zeros((self.widths[site.party], sum(self.widths.values())))
        units[:, own] = self.product.own_sums(site)
        for pair, share in self.product.shares(site, site.dims["rows"]).items():
            (peer,) = (party for party in pair if party != site.party)
            theirs = site.received("sums", [peer]).get(peer)
            if theirs is None or theirs.shape != share.shape:
                raise Malformed(f"shares of {share.shape} sums were expected from {peer}", code="form", key="sums")
            bits = self.product.bits
            whole = lower_from_word(raise_to_word(share + theirs, bits), bits).astype(np.float64)
            units[:, self._places[peer]] = whole if pair[0] == site.party else whole.T
        return np.asarray(units * self.product.unit, np.float64)

    # What the plan says.

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """proof.md, 6."""
        assert isinstance(consortium.loss, Pure)
        # Numbers attain the figures, one-hot columns do not; and no record attains the sums of several blocks.
        one_hot = any(g.one_hot for party in self.columns for g in self.encoding_of(party).bounds.groups)
        most = "at most " * (one_hot or bool(self.budgets))
        sees = "everyone who sees the coefficients or the model"
        record = self._claimed_and_true(consortium.loss)
        found = [TrueLoss("a record", sees, str(record[0]), f"{most}{record[1]}", self._why_record)]
        for party in self.columns:
            claimed, true = self._claimed_and_true(consortium.loss, party)
            why = "the printed formula counts products with other parties once, and they move twice"
            if true.epsilon <= claimed.epsilon:
                why = "the printed sensitivity is at least the distance that these columns can make"
            found.append(TrueLoss(f"the columns of {party}", sees, str(claimed), f"{most}{true}", why))
        why = "it reads the exact sums of products of its columns with those of every other party"
        found.append(TrueLoss("a record", "each other party", str(record[0]), INFINITE, why))
        return tuple(found)

    def _claimed_and_true(self, loss: Pure, party: str | None = None) -> tuple[Pure, Pure]:
        """About a record, or about the columns of one party with all others fixed."""
        if self.budgets:
            return self._claimed_and_true_of_blocks(party)
        width, label = self.encoding.width, party is None or party == self.design.label_at
        changing = width if party is None else self.encoding_of(party).width
        claimed = Fraction(1)
        if party is not None:
            own = len(self._features(party))
            claimed = printed_share(own, width, logistic=self.logistic, label=label)
        return loss.scaled(claimed), loss.scaled(self._true_moved(changing, label=label) / self._moved)

    def _claimed_and_true_of_blocks(self, party: str | None) -> tuple[Pure, Pure]:
        """Corollary 1 and ε^(k) = ε^k + Σ ε^kl as printed; and what the blocks that move lose together: the sum of
        their losses, or what all coefficients lose under the smallest noise of a block."""
        printed = {block: self.blocks.printed(block) for block in self.budgets}
        moving = {block: epsilon for block, epsilon in self.budgets.items() if party is None or party in block}
        claimed = corollary_1(moving, printed) if party is None else sum(moving.values(), Fraction(0))
        spreads, one = self._block_spreads, Pure(1)
        added = sum(
            (self.blocks.true(block) / spreads[block] * epsilon for block, epsilon in moving.items()), Fraction(0)
        )
        finest = max(epsilon / spreads[block] for block, epsilon in self.budgets.items())
        label = party is None or party == self.design.label_at
        changing = self.encoding.width if party is None else self.encoding_of(party).width
        return one.scaled(claimed), one.scaled(min(added, finest * self._true_moved(changing, label=label)))

    @property
    def _why_record(self) -> str:
        if self.budgets:
            return "Corollary 1 multiplies each budget by a ratio of sensitivities that is in its noise already"
        if self.sensitivity == "tight":
            return "the noise is scaled for the L1 distance that a record can make"
        return "the printed sensitivity is about twice the L1 distance that a record can make"

    def expectation(self, consortium: Consortium) -> str:
        release = self.declare(consortium)["coefficients"]
        scale = release.scale(consortium)
        spread = release.deviation(scale) * scale.grid
        largest = 1 / min(map(float, self.block_factors.values()), default=1.0)
        count = sum(self.coefficient_counts.values())
        noise = f"{spread:.3g}" if largest == 1 else f"{spread:.3g} to {spread * largest:.3g}"
        return (
            f"each of {count} coefficients carries noise of deviation {noise}, where one record counts at most "
            f"{0.5 if self.logistic else 2}; "
            f"{_SOLUTION[self.repair]}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        return (describe_prediction(consortium),) if consortium.colluders else ()

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        return self.make_model(np.asarray(released["model"], np.float64))
