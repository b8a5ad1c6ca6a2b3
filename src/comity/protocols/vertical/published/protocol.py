"""The functional mechanism over columns of several parties, as published, for comparison.

D. Xu, S. Yuan, X. Wu, Achieving differential privacy in vertically partitioned multiparty learning (2019). Every
coefficient of the objective gets Laplace noise of scale Δ/ε with Δ = 2(1 + 2d + d²) for squared loss and d²/4 + d for
logistic loss, one draw per ordered pair of features. Cross-party coefficients are decrypted first and noised then, so
that exact sums of products are seen before any noise: there is no privacy between the participants, and the
declaration says so. The paper minimises the noisy polynomial without saying what happens when it has no minimum; here
eigenvalues below the deviation of the noise are raised to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.data import Schema
from comity.errors import StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declaring.bounds import Opened
from comity.federation.declaring.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declaring.declaration import Declaration, Release
from comity.federation.declaring.forms import Array
from comity.federation.declaring.protection import Derived, Entrusted, Perturbed
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.federation.subprotocols.alignment import ROWS
from comity.federation.subprotocols.product import Products
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.by_columns import rows
from comity.protocols.by_columns.terms import check_parties
from comity.protocols.vertical.budgets import published_share, shown_up
from comity.protocols.vertical.column_regression import ColumnRegression
from comity.protocols.vertical.layout import Layout, scaled_target
from comity.protocols.vertical.prediction import ways_to_predict

if TYPE_CHECKING:
    from comity.learn.released.classifiers import LinearClassifier
    from comity.learn.released.regressor import LinearRegressor

Floats = NDArray[np.float64]

CLAIM = (
    "not private as claimed: sums of products across parties are decrypted before noise is added, so that there is no "
    "privacy between the participants"
)
_PLACES = 16


def published_sensitivity(features: int, *, logistic: bool) -> float:
    """Δ as printed. For squared loss it is twice the truth; proof.md, 6 has the corrected constants."""
    d = features
    return d * d / 4 + d if logistic else 2.0 * (1 + 2 * d + d * d)


def coefficients(gram: Floats, moment: Floats, *, logistic: bool) -> Floats:
    """Of the polynomial in w, without its constant: d² of degree two, then d of degree one.

    `gram` is Σ x xᵀ; `moment` is Σ x y for squared loss and Σ x (y − ½) for logistic loss.
    """
    second, first = (gram / 8, -moment) if logistic else (gram, -2 * moment)
    return np.concatenate([second.reshape(-1), first])


def minimiser(polynomial: Floats, features: int, deviation: float) -> Floats:
    second = polynomial[: features**2].reshape(features, features)
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    inverse = (vectors / np.maximum(values, max(deviation, 1e-12))) @ vectors.T
    return np.asarray(-inverse @ polynomial[features**2 :] / 2, np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plain(Products):
    """Products of encoded columns as they are; the label's holder has the constant and the label too."""

    layout: Layout

    def matrix(self, site: Site, which: slice | NDArray[np.int64] = slice(None)) -> Floats:
        features, layout = site.features[which], self.layout
        if site.party == layout.label_at:
            labels = site.labels[which]
            label = labels.astype(np.float64) - 0.5 if layout.classes else scaled_target(layout.schema, labels)
            features = np.column_stack([features, np.ones(len(features)), label])
        return np.clip(np.nan_to_num(features), -self.bound, self.bound)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedVertical(ColumnRegression):
    """The published method as a run: noise after decryption, by a coordinator that sees every exact coefficient.

    Adversary    whoever sees the released model alone; no participant.
    Unit         a record, replaced.

    Rows are aligned as in the default, where the schema has an identifier: the paper takes them to be.
    """

    variant: ClassVar[str] = "published"
    title: ClassVar[str] = "vertical (published functional mechanism)"

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    alignment: rows.Way = "none"
    most: rows.Most = 1 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        rows.check(self.name, self.alignment, self.schema)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.schema, self.columns, centred=False, intercept=True)

    @property
    def logistic(self) -> bool:
        return self.layout.classes is not None

    @cached_property
    def widths(self) -> dict[str, int]:
        return {party: self.encoding_of(party).width + 2 * (party == self.layout.label_at) for party in self.columns}

    @cached_property
    def product(self) -> _Plain:
        return _Plain(columns=self.widths, places=_PLACES, method="dealer", most=self.most, layout=self.layout)

    def declare(self, who: Consortium) -> Declaration:
        if not isinstance(who.loss, Pure) or who.unit is not Unit.RECORD or who.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                "the published vertical method has Laplace noise for a record that may be replaced; set privacy.delta "
                'to 0, privacy.unit to "record" and privacy.neighbours to "replace"',
                key="privacy.unit" if isinstance(who.loss, Pure) else "privacy.delta",
            )
        check_parties(self.name, self.columns, who)
        total, width = sum(self.widths.values()), self.encoding.width
        noise = Laplace(who.loss)
        spread = published_sensitivity(width, logistic=self.logistic)
        return Declaration(
            (
                *self.declared_by_parts(who),
                Release(
                    name="sums",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Entrusted(noise),
                    form=Array((total, total), "<i8"),
                    bound=Opened(l2=spread, l1=spread, limit=float(self.most)),
                    grid=self.product.unit,
                ),
                Release(
                    name="polynomial",
                    source=COORDINATOR,
                    to=COORDINATOR,
                    protection=Perturbed(noise, of="sums"),
                    form=Array((width * width + width,)),
                    bound=Opened(l2=spread, l1=spread, limit=2.0 * self.most),
                ),
                Release(
                    name="model",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Derived("polynomial"),
                    form=Array((width,)),
                ),
            ),
            adversary="whoever sees the model alone; coordinator and parties see exact sums",
            claim=CLAIM,
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        shared = rows.agreed(self.name, parties, self.aligned, self.count, self.most)
        self.product.coordinate_products(parties, shared)
        sums = parties.sum(self.decrypt).value
        whole = np.triu(sums) + np.triu(sums, 1).T
        at, label = self._order()
        polynomial = coefficients(whole[np.ix_(at, at)], whole[at, label], logistic=self.logistic)
        noisy = parties.perturb("polynomial", polynomial)
        deviation = self.declare(parties.consortium)["polynomial"].opened_deviation(parties.consortium)
        return {"model": minimiser(noisy, len(at), deviation)}

    def _order(self) -> tuple[NDArray[np.int64], int]:
        """Places of the encoded whole row's entries, the constant last, and of the label, in the parties' order."""
        place, start, label = {}, 0, 0
        for party, width in self.widths.items():
            for group in self.encoding_of(party).bounds.groups:
                place[group.column] = list(range(start + group.start, start + group.stop))
            if party == self.layout.label_at:
                place["(intercept)"], label = [start + width - 2], start + width - 1
            start += width
        names = [*(column.name for column in self.schema.columns), "(intercept)"]
        return np.array([at for name in names for at in place[name]]), label

    @step(sends="sums")
    def decrypt(self, site: Site) -> None:
        """Gives up the shares as they are: what the paper's joint decryption comes to."""
        total = sum(self.widths.values())
        starts = dict(zip(self.widths, np.cumsum([0, *self.widths.values()]).tolist()))
        out = np.zeros((total, total), np.uint64)

        def places(party: str) -> slice:
            return slice(starts[party], starts[party] + self.widths[party])

        order = site.kept(ROWS)
        matrix = self.product.matrix(site) if order is None else self.product.matrix(site, order)
        own = self.product.form.encode(matrix).astype(np.float64)
        out[places(site.party), places(site.party)] = (own.T @ own).astype(np.int64).view(np.uint64)
        for (earlier, later), share in self.product.shares(site, site.dims["rows"]).items():
            out[places(earlier), places(later)] = share
        site.contribute(share=out)

    def expectation(self, who: Consortium) -> str:
        """What the paper says a party loses about its own columns, corrected."""
        width = self.encoding.width
        losses = []
        for party in self.columns:
            own = self.widths[party] - (party == self.layout.label_at)
            coordinates = own + (party == self.layout.label_at)
            assert isinstance(who.loss, Pure)
            losses.append(f"{party} {shown_up(float(who.loss.epsilon) * published_share(coordinates, width))}")
        return f"eps about a party's own columns alone, corrected, to who sees the model only: {', '.join(losses)}"

    def notes(self, who: Consortium) -> tuple[str, ...]:
        return (ways_to_predict(who),) if who.colluders else ()

    def present(self, released: Mapping[str, Any], who: Consortium) -> LinearClassifier | LinearRegressor:
        return self.model(np.asarray(released["model"], np.float64))
