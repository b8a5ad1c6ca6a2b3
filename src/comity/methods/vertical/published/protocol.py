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

Differences from the paper: products are computed on shares that a dealer prepared instead of under BGN encryption, with
the same result at the same two parties; the label's holder also has a constant feature; eigenvalues below the deviation
of the noise are raised to it, since the paper does not say what happens where the noisy polynomial has no minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.data import Schema
from comity.errors import Malformed, StudyError
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
from comity.methods.vertical.design import Design, scale_target
from comity.methods.vertical.method import ColumnRegression
from comity.methods.vertical.prediction import describe_prediction
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
_PLACES = 14
"""Binary places of an entry: 2^24 products of two entries add up below 2^53, exactly, in floating point."""


def printed_sensitivity(features: int, *, logistic: bool) -> Fraction:
    """Δ of all coefficients, as printed."""
    d = Fraction(features)
    return d * d / 4 + d if logistic else 2 * (1 + 2 * d + d * d)


def printed_share(own: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """Theorem 2: the share of ε that a party with `own` features loses about its columns, as printed. The holder of
    the label counts it among its columns."""
    d, k = Fraction(features), Fraction(own)
    if logistic:
        moved = (d if label else k) + k * (2 * d - k) / 4
    else:
        moved = 2 * (1 + 2 * d + k * d) if label else 2 * (2 * k + k * d)
    return moved / printed_sensitivity(features, logistic=logistic)


def true_record_share(features: int, *, logistic: bool) -> Fraction:
    """The true share of ε that a whole record loses: half for squared loss, little more for logistic loss."""
    return true_share(features, features, logistic=logistic, label=True)


def true_share(changing: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """The true share of ε that a party loses about its columns alone, the others' being fixed: `changing` of its
    features may change (the constant never does), and the label too if it holds the `label`."""
    moved = _logistic(changing, features, label) if logistic else _linear(changing + label, features + 1)
    return moved / printed_sensitivity(features, logistic=logistic)


def _linear(changing: int, every: int) -> Fraction:
    """Of `every` coordinates of (x, y), `changing` may move by T in the sense of the proof: 4·T·(N − T) at most."""
    moved = min(Fraction(changing), Fraction(every, 2))
    return 4 * moved * (every - moved)


def _logistic(changing: int, features: int, label: bool) -> Fraction:
    """S·T/2 + T where the label stays, S·T/2 + S where it changes, with S + T = d and T at most `changing`."""
    d = Fraction(features)
    stays = min(Fraction(changing), (d + 2) / 2)
    found = stays * (d + 2 - stays) / 2
    if label:
        turned = min(Fraction(changing), max(Fraction(0), (d - 2) / 2))
        found = max(found, (d - turned) * (turned + 2) / 2)
    return found


def coefficients(gram: Floats, moment: Floats, *, logistic: bool) -> Floats:
    """Of the polynomial in w, without its constant: those of degree two, then those of degree one.

    `gram` is Σ x xᵀ, or some rows of it; `moment` is Σ x y for squared loss and Σ x (y − ½) for logistic loss.
    """
    second, first = (gram / 8, -moment) if logistic else (gram, -2 * moment)
    return np.concatenate([second.reshape(-1), first])


def minimise_polynomial(polynomial: Floats, features: int, deviation: float) -> Floats:
    second = polynomial[: features**2].reshape(features, features)
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    inverse = (vectors / np.maximum(values, max(deviation, 1e-12))) @ vectors.T
    return np.asarray(-inverse @ polynomial[features**2 :] / 2, np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _EncodedProducts(ProductsWithOwnSums):
    """Products of encoded columns; the label's holder also has the constant and the label."""

    design: Design

    def matrix(self, site: Site, which: slice | NDArray[np.int64] = slice(None)) -> Floats:
        features, design = site.features[which], self.design
        if site.party == design.label_at:
            labels = site.labels[which]
            label = labels.astype(np.float64) - 0.5 if design.classes else scale_target(design.schema, labels)
            features = np.column_stack([features, np.ones(len(features)), label])
        return np.clip(np.nan_to_num(features), -self.bound, self.bound)

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
    Sensitivity  as printed, about twice the truth (`true_losses`).

    Rows are aligned as in the default where the schema has an identifier: the paper assumes aligned rows.
    """

    version: ClassVar[int] = 3
    variant: ClassVar[str] = "published"
    title: ClassVar[str] = "vertical (published functional mechanism)"

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    alignment: AlignmentMethod
    max_rows: MaxRows

    @cached_property
    def design(self) -> Design:
        return Design(self.schema, self.columns, centred=False, intercept=True, bins=False)

    @property
    def logistic(self) -> bool:
        return self.design.classes is not None

    @cached_property
    def widths(self) -> dict[str, int]:
        """Columns that each party multiplies: its features, and the constant and the label at the label's holder."""
        return {party: self.encoding_of(party).width + 2 * (party == self.design.label_at) for party in self.columns}

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
        width = self.encoding.width
        spread = float(printed_sensitivity(width, logistic=self.logistic))
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
                    protection=Noised(Laplace(consortium.loss)),
                    form=Array((max(self._sizes.values()),), "<i8"),
                    # Sums of integers are exact: nothing is added for floating point.
                    bound=EntrySum(each=spread / 2, moved=spread, largest=2.0 * self.max_rows),
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
            noisy = values["coefficients"] * scale.grid
            second[own] = noisy[: len(own) * width].reshape(len(own), width)
            first[own] = noisy[len(own) * width : len(own) * (width + 1)]
        polynomial = np.concatenate([second.reshape(-1), first])
        return {"model": minimise_polynomial(polynomial, width, release.deviation(scale) * scale.grid)}

    # Indices of columns and coefficients.

    @cached_property
    def _places(self) -> dict[str, slice]:
        """The columns of each party among those of all parties, in the parties' order."""
        starts = np.cumsum([0, *self.widths.values()]).tolist()
        return {party: slice(start, start + self.widths[party]) for party, start in zip(self.widths, starts)}

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], int]:
        """Places of the encoded whole row's entries, the constant last, and of the label."""
        place, label = {}, 0
        for party, own in self._places.items():
            for group in self.encoding_of(party).bounds.groups:
                place[group.column] = list(range(own.start + group.start, own.start + group.stop))
            if party == self.design.label_at:
                place["(intercept)"], label = [own.stop - 2], own.stop - 1
        names = [*(column.name for column in self.schema.columns), "(intercept)"]
        return np.array([at for name in names for at in place[name]]), label

    def _features(self, party: str) -> NDArray[np.int64]:
        """Places of a party's features, and of the constant, in the encoded whole row."""
        at, own = self._order[0], self._places[party]
        return np.flatnonzero((at >= own.start) & (at < own.stop))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """How many coefficients each party sends: d + 1 for each of its features, and the constant of squared loss."""
        width, constant_at = self.encoding.width, None if self.logistic else self.design.label_at
        return {party: len(self._features(party)) * (width + 1) + (party == constant_at) for party in self.columns}

    def allocate_coefficients(self, party: str, sums: Floats) -> Floats:
        """The coefficients that a party sends, without noise, from the `sums` of products of its own columns (rows)
        with all columns; padded with zeros to the longest such vector."""
        at, label = self._order
        own = at[self._features(party)] - self._places[party].start
        out = np.zeros(max(self._sizes.values()))
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
        site.contribute(self.allocate_coefficients(site.party, self._sums(site)))

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
            whole = (share + theirs).view(np.int64).astype(np.float64)
            units[:, self._places[peer]] = whole if pair[0] == site.party else whole.T
        return np.asarray(units * self.product.unit, np.float64)

    # What the plan says.

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """proof.md, 6."""
        assert isinstance(consortium.loss, Pure)
        # Numbers attain the figures, one-hot columns do not.
        most = "at most " * any(g.one_hot for party in self.columns for g in self.encoding_of(party).bounds.groups)
        width, kind, sees = (
            self.encoding.width,
            {"logistic": self.logistic},
            "everyone who sees the coefficients or the model",
        )
        found = [
            TrueLoss(
                about="a record",
                to=sees,
                claimed=str(consortium.loss),
                true=f"{most}{consortium.loss.scaled(true_record_share(width, **kind))}",
                why="the printed sensitivity is about twice the L1 distance that a record can make",
            )
        ]
        for party in self.columns:
            label = party == self.design.label_at
            changing = self.encoding_of(party).width
            claimed = printed_share(changing + label, width, label=label, **kind)
            true = true_share(changing, width, label=label, **kind)
            why = "the printed formula counts products with other parties once, and they move twice"
            if true <= claimed:
                why = "the printed sensitivity is larger than the distance that these columns can make"
            found.append(
                TrueLoss(
                    about=f"the columns of {party}",
                    to=sees,
                    claimed=str(consortium.loss.scaled(claimed)),
                    true=f"{most}{consortium.loss.scaled(true)}",
                    why=why,
                )
            )
        found.append(
            TrueLoss(
                about="a record",
                to="each other party",
                claimed=str(consortium.loss),
                true=INFINITE,
                why="it reads the exact sums of products of its columns with those of every other party",
            )
        )
        return tuple(found)

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        return (describe_prediction(consortium),) if consortium.colluders else ()

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier | LinearRegressor:
        return self.make_model(np.asarray(released["model"], np.float64))
