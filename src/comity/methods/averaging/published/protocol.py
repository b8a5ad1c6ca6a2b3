"""Averaged classifiers as published: a secure average with the noise of the smallest party, which nobody knows.

M. A. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, 2010.
K parties with n_j records each, and an untrusted curator, here the coordinator:

    1  the place of the smallest database in a secret order       (`smallest`)
    2  that party's noise under encryption, obliviously           (`oblivious_noise`)
    3  additive shares of the noisy sum of models, published      (`shares`)

Two parties have a role beside being parties, by a public rule: the first is the *mixer*, who keeps the order, ends the
chain of stage 2 and blinds its product; the last is the *keyholder*, whose Paillier key hides the sizes in stage 1 and
who compares with the curator. The curator's own key hides the index in stage 2. What is not as printed, and why, is in
`published/proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.crypto.paillier.cryptosystem import SIZES, PrivateKey, PublicKey
from comity.crypto.products.fixed_point import split_values
from comity.data import Encoding, Records
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive, Why
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import INFINITE, Declaration, TrueLoss
from comity.federation.evaluation.assessment import Baseline
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.learn.fits import fit_logistic
from comity.learn.norm_bound import vector_radius
from comity.methods.averaging.published import oblivious_noise as selection
from comity.methods.averaging.published import smallest
from comity.methods.averaging.published.declaration import (
    CURATOR,
    MOST_PARTIES,
    chain_of,
    check,
    declared,
    ends,
)
from comity.methods.averaging.published.noise import TOLERANCE, Kind, PublishedNoise, pure_epsilon
from comity.methods.averaging.published.shares import PublishedShares, Share, Terms, Words, mean_of
from comity.privacy.loss import Pure

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.learn.classifiers import LinearClassifier


Most = Annotated[int, Interval(ge=1, le=1 << 40)]


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedAveraging(Protocol):
    """The mean of local logistic models with noise for the party that has the fewest records.

    Adversary    each participant by itself, honest but curious; no two of them together. Whoever sees the model is
                 met with ε, except the smallest party: it drew the noise, finds out by taking it off, and then knows
                 the sum of the models, of two parties the other's model. The claim says so.
    Unit         a record, replaced. Sizes are secret and the same for neighbours: the scale of the noise says something
                 of the smallest one.
    Learned      everyone: the shares, and so the noisy mean. Each party: whether it is the smallest. Nobody: a size, or
                 whose noise it is where it is another's.
    Sensitivity  2/(n λ) for each model in L2, for records in the unit ball; noise is scaled for it as if one model were
                 released instead of the mean of K, as published (`noise`).

    `width` is the number of features, `most` a public bound on a party's records, beyond which they are not counted.
    """

    name: ClassVar[str] = "averaging"
    version: ClassVar[int] = 3
    variant: ClassVar[str] = "published"

    width: int
    classes: tuple[str, ...] = ("0", "1")
    l2: Annotated[Positive, Why("the noise is scaled by 1/l2")] = 1e-2
    noise: Kind = "spherical"
    key_bits: int = 2048
    most: Most = 1 << 20
    encoding: Encoding | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.classes) != 2:
            raise StudyError(
                f"averaging.variant = published learns two classes, found {len(self.classes)}; the default learns more",
                key="target",
            )
        if self.key_bits not in SIZES:
            raise StudyError(
                f"averaging.key_bits must be one of {SIZES}, found {self.key_bits}", key="averaging.key_bits"
            )
        if self.width < 1 or (self.encoding is not None and self.encoding.width != self.width):
            raise StudyError(f"a positive width, that of the encoding, was expected, found {self.width}")

    @property
    def title(self) -> str:
        return f"averaging ({self.noise} noise, published)"

    @property
    def comparisons(self) -> smallest.Comparisons:
        return smallest.Comparisons(self.most)

    @property
    def parts(self) -> Mapping[str, Part]:
        return {"argmin": self.comparisons}

    @property
    def radius(self) -> float:
        return vector_radius(self.l2)

    def scaled(self, consortium: Consortium) -> PublishedNoise:
        return PublishedNoise(
            self.noise, consortium.size, self.width, self.l2, pure_epsilon(consortium.loss), self.most
        )

    # What may leave.

    def declare(self, consortium: Consortium) -> Declaration:
        check(consortium)
        return declared(
            consortium, self.scaled(consortium), self.comparisons, radius=self.radius, key_bits=self.key_bits
        )

    # The curator.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        seed = parties.once("curator seed", fresh_seed)
        place = self.place_of_smallest(parties, Stream(derive(seed, "smallest")))
        noise = self.noise_at(parties, place)
        return {"shares": self.published(parties, noise)}

    def place_of_smallest(self, parties: Parties, stream: Stream) -> int:
        """Stage 1. In the mixer's order, which the curator does not know."""
        mixer, keyholder = ends(parties.consortium)
        raw = parties.ask(self.make_key, to=[keyholder])[keyholder]["key_for_curator"]
        parties.ask(self.make_order, to=[mixer])
        parties.ask(self.split)
        given = parties.ask(self.shuffle, to=[mixer])[mixer]["shuffled"]
        masked = smallest.mask(self._key(raw), given["shares"], given["encrypted"], stream)
        parties.ask(self.unmask, to=[keyholder], masked=masked.sent)
        return int(masked.order[self.comparisons.coordinate_argmin(parties, masked.shares, "argmin")])

    def noise_at(self, parties: Parties, place: int) -> Words:
        """Stage 2. η + s modulo 2^64, where η is the noise of the party at this place and s the mixer's."""
        chain = chain_of(parties.consortium)
        private = PrivateKey.from_bytes(parties.once("curator key", self._new_key))
        key = private.public
        indicated = parties.once("indicator", lambda: selection.indicator(key, place, len(chain)))
        values: dict[str, Any] = {}
        for turn, party in enumerate(chain):
            asked = parties.ask(self.select, to=[party], label=turn, curator_key=key.to_bytes(), indicator=indicated)
            values = asked[party]
        packing = selection.slots(key, len(chain))
        return selection.opened(packing, private, values["blinded"], self.width)

    def published(self, parties: Parties, noise: Words) -> dict[str, Words]:
        """Stage 3. Every participant's share of the noisy sum."""
        names = list(parties.consortium.parties)
        own = parties.once("curator pieces", lambda: np.stack(_pieces(noise, len(names) + 1)))
        got = parties.ask(self.divide)
        each = {name: {"piece_of_curator": own[j]} for j, name in enumerate(names)}
        shares = {name: values["share"] for name, values in parties.ask(self.publish, each=each).items()}
        pieces = [values["piece_for_curator"] for values in got.values()]
        return {**shares, CURATOR: np.asarray(sum(pieces, own[-1]), "<u8")}

    # Stage 1, at the parties.

    @step(gives=("key_for_curator",))
    def make_key(self, site: Site) -> dict[str, Any]:
        if site.party != ends(site.consortium)[1]:
            raise Refused("this party does not hold the key", code="no-step")
        raw = self._new_key()
        key = PrivateKey.from_bytes(raw).public.to_bytes()
        site.keep("averaging.private", raw)
        site.keep("averaging.key", key)
        for party in site.consortium.parties[:-1]:
            site.send(party, "key", key)
        return {"key_for_curator": key}

    @step()
    def make_order(self, site: Site) -> None:
        if site.party != ends(site.consortium)[0]:
            raise Refused("this party keeps no order", code="no-step")
        places = Stream(site.secret()).permutation(site.consortium.size)
        site.keep("averaging.places", places)
        for party, place in zip(site.consortium.parties, places):
            if party != site.party:
                site.send(party, "place", int(place))

    @step()
    def split(self, site: Site) -> None:
        """Fit, so that nothing is drawn if the records can't be used; then share the number of records."""
        site.keep("averaging.weights", self.model(site))
        mixer, key = ends(site.consortium)[0], self._parties_key(site)
        counted = min(max(len(site.records), 1), self.most)
        share, encrypted = smallest.split_size(counted, key, Stream(site.secret()))
        pair = {"share": share, "encrypted": encrypted}
        if site.party == mixer:
            site.keep("averaging.size", pair)
        else:
            site.send(mixer, "size", pair)

    def model(self, site: Site) -> NDArray[np.int64]:
        """This party's model on the grid of the sum. Records are brought into the unit ball, whatever made them."""
        if site.features.shape[1] != self.width:
            raise Refused(f"records of {self.width} features were expected, found others", code="stopped")
        rows = Ball(1.0).enforce(site.features, (self.width,))
        fit = fit_logistic(rows, site.labels.astype(np.float64), self.l2, tol=TOLERANCE)
        if not bool(fit.converged):
            # A neutral model in its place would be further from a neighbour's than the noise is scaled for.
            raise Refused(f"{site.party}: the local fit did not come within {TOLERANCE}", code="stopped")
        inside = Ball(self.radius).enforce(fit.weights, (self.width,))
        return np.rint(inside / self.scaled(site.consortium).grid).astype("<i8")

    @step(gives=("shuffled",))
    def shuffle(self, site: Site) -> dict[str, Any]:
        key, places = self._parties_key(site), _kept(site, "averaging.places")
        others = site.consortium.parties[1:]
        received = site.received("size", others)
        if len(received) != len(others):
            raise Refused("the shares of some sizes did not arrive", code="missing")
        pairs = [_kept(site, "averaging.size"), *(received[party] for party in others)]
        shares, encrypted = smallest.shuffle(key, [(p["share"], p["encrypted"]) for p in pairs], places)
        return {"shuffled": {"shares": shares, "encrypted": encrypted}}

    @step()
    def unmask(self, site: Site, masked: bytes) -> None:
        private = PrivateKey.from_bytes(_kept(site, "averaging.private"))
        self.comparisons.hold(site, smallest.unmask(private, masked, site.consortium.size))

    # Stage 2.

    @step(times=MOST_PARTIES, may_give=("blinded",))
    def select(self, site: Site, curator_key: bytes, indicator: bytes) -> dict[str, Any] | None:
        """This party's noise times its own bit of the indicator, under encryption, onto what the chain has so far."""
        consortium, key = site.consortium, self._key(curator_key)
        chain = chain_of(consortium)
        turn = chain.index(site.party)
        if int(site.label) != turn:
            raise Refused(f"this party is number {turn} of the chain", code="too-often")
        before = None if turn == 0 else _received(site, "product", chain[turn - 1])
        element = smallest.read_all(key, indicator, consortium.size)[self._place(site)]
        packing = selection.slots(key, consortium.size)
        if before is not None:
            packing.read(before, self.width, turn)
        # From here on there is no way back: everything that came in was looked at.
        noise = site.draw("noise", sensitivity=self.scaled(consortium).sensitivity(len(site.records)))
        product = selection.chained(packing, selection.raised(packing, element, noise), before, turn)
        if turn + 1 < len(chain):
            site.send(chain[turn + 1], "product", packing.write(product))
            return None
        blinded, blind = selection.blind(packing, product, Stream(site.secret()))
        site.keep("averaging.blind", blind)
        return {"blinded": blinded}

    def _place(self, site: Site) -> int:
        mixer = ends(site.consortium)[0]
        if site.party == mixer:
            return int(_kept(site, "averaging.places")[0])
        return int(_received(site, "place", mixer))

    # Stage 3.

    @step(gives=("piece_for_curator",))
    def divide(self, site: Site) -> dict[str, Any]:
        """Fresh shares of this party's model, the mixer's without the blind, one for every participant."""
        consortium, mixer = site.consortium, ends(site.consortium)[0]
        summand = _kept(site, "averaging.weights").view("<u8")
        if site.party == mixer:
            summand = summand - _kept(site, "averaging.blind")
        pieces = _pieces(summand, consortium.size + 1)
        for party, piece in zip(consortium.parties, pieces):
            if party == site.party:
                site.keep("averaging.piece", piece)
            else:
                site.send(party, "piece", piece)
        return {"piece_for_curator": pieces[-1]}

    @step(gives=("share",))
    def publish(self, site: Site, piece_of_curator: Words) -> dict[str, Any]:
        received = site.received("piece")
        if len(received) != site.consortium.size - 1:
            raise Refused("the pieces of some parties did not arrive", code="missing")
        pieces = [_kept(site, "averaging.piece"), *received.values()]
        return {"share": np.asarray(sum(pieces, piece_of_curator), "<u8")}

    # Keys.

    def _new_key(self) -> bytes:
        return PrivateKey.generate(self.key_bits).to_bytes()

    def _key(self, raw: bytes) -> PublicKey:
        key = smallest.public_key(raw)
        if key.bits != self.key_bits:
            raise Malformed(f"a key of {self.key_bits} bits was declared, found {key.bits}", code="key-size")
        return key

    def _parties_key(self, site: Site) -> PublicKey:
        keyholder = ends(site.consortium)[1]
        own = site.party == keyholder
        return self._key(_kept(site, "averaging.key") if own else _received(site, "key", keyholder))

    # What is made of the shares.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier:
        from comity.learn.classifiers import LinearClassifier

        coef = mean_of(released["shares"], consortium.size, self.scaled(consortium).grid)
        return LinearClassifier(coef[None, :], classes=self.classes, encoding=self.encoding)

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """What each participant published, to be added up by anybody."""
        shares = released["shares"]
        terms = Terms(
            study, run, tuple(shares), consortium.size, self.scaled(consortium).grid, self.classes, self.encoding
        )
        return {"shares": PublishedShares(tuple(Share(name, words, terms) for name, words in shares.items()))}

    def score(self, model: LinearClassifier, test: Records) -> float:
        return _error(model.weights[0], test)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        filled = [records for records in train if len(records)]
        if not filled or test.labels is None:
            return []
        local = [self._fit(records.features, np.asarray(records.labels)) for records in filled]
        features = np.concatenate([records.features for records in filled])
        labels = np.concatenate([np.asarray(records.labels) for records in filled])
        alone = [_error(weights, test) for weights in local]
        return [
            Baseline("constant", float(np.mean(test.labels != (labels.mean() > 0.5))), note="the most frequent class"),
            Baseline("own data", float(np.mean(alone)), float(np.std(alone)), note="mean of the parties, each alone"),
            Baseline("pooled", _error(self._fit(features, labels), test), note="all records in one place, no privacy"),
            Baseline("without noise", _error(np.mean(local, axis=0), test), note="the mean of the local models"),
        ]

    def _fit(self, features: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
        rows = Ball(1.0).enforce(features, (self.width,))
        return np.asarray(fit_logistic(rows, labels.astype(np.float64), self.l2, tol=TOLERANCE).weights)

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 2."""
        claimed, true, models = str(consortium.loss), Pure(self.scaled(consortium).true_epsilon), consortium.size
        why = f"the noise is scaled for one model, and the sum of {models} models moves no further than one of them"
        if self.noise == "literal":
            why += "; the bound in L2 is taken for one in L1"
        return (
            TrueLoss("a record", "whoever sees the model and did not draw its noise", claimed, f"at most {true}", why),
            TrueLoss(
                about="a record of another party",
                to="the party with the fewest records",
                claimed=claimed,
                true=INFINITE,
                why="it drew the noise, and takes it off what is published",
            ),
        )

    def expectation(self, consortium: Consortium) -> str:
        epsilon = pure_epsilon(consortium.loss)
        # The norm of the noise in a mean: d·β for the spherical one, about sqrt(2d)·b for the literal one.
        stretch = self.width if self.noise == "spherical" else sqrt(2 * self.width)
        needed = stretch * 2.0 / (epsilon * self.l2 * self.radius)
        return (
            f"the smallest party needs {needed:.3g} records for noise as long as the longest model of this penalty "
            f"({self.radius:.3g}); with half of them it is twice as long"
        )


def _pieces(summand: Words, count: int) -> list[Words]:
    return [np.asarray(piece, "<u8") for piece in split_values(summand.view("<i8"), count)]


def _kept(site: Site, name: str) -> Any:
    value = site.kept(name)
    if value is None:
        raise Refused("the steps of the published average come one after the other", code="too-early")
    return value


def _received(site: Site, name: str, sender: str) -> Any:
    found = site.received(name, [sender])
    if sender not in found:
        raise Refused(f"what {sender} sends as {name} did not arrive", code="missing")
    return found[sender]


def _error(weights: NDArray[np.float64], test: Records) -> float:
    assert test.labels is not None
    return float(np.mean((test.features @ weights > 0) != (test.labels > 0)))
