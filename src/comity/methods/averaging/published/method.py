"""Averaged classifiers as published: a secure average with the noise of the smallest party, which nobody else knows.

M. A. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, 2010.
K parties with n_j records each, and an untrusted curator, here the coordinator:

    1  the place of the smallest database in a secret order       (`selection`)
    2  that party's noise under encryption, obliviously           (`selection`)
    3  additive shares of the noisy sum of models, published      (`shares`)

Two parties have a second role, by a public rule. The first is the *mixer*: it keeps the order, ends the chain of stage
2 and blinds its product. The last is the *keyholder*: its Paillier key hides the sizes in stage 1, and it compares with
the curator. The curator's own key hides the index in stage 2. `published/proof.md` lists what differs from the printed
protocol, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.crypto.paillier.cryptosystem import SIZES, PrivateKey, PublicKey
from comity.crypto.products.fixed_point import split_values
from comity.data import Encoding, Records
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive, Why
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball, OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import INFINITE, Declaration, Release, TrueLoss
from comity.federation.declare.protection import Derived, Protection, Public, Sealed, Selected
from comity.federation.declare.release import Array, Blob, Count, Each, Fields, Form
from comity.federation.evaluation.assessment import Baseline
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.learn.fits import fit_logistic
from comity.learn.norm_bound import vector_radius
from comity.methods.averaging.published import selection
from comity.methods.averaging.published.constants import MaxRecords
from comity.methods.averaging.published.noise import TOLERANCE, Kind, PublishedNoise, literal_claim, pure_epsilon
from comity.methods.averaging.published.shares import PublishedShares, Share, Terms, Words, average_shares
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.learn.classifiers import LinearClassifier

MAX_PARTIES = 1000
CURATOR = "curator"

# What remains of the published sum without the noise of this party has the length of models, which tells it that the
# noise was its own.
SMALLEST = "the party with the fewest records, which knows the noise that hides the others' models"
EXPOSED = f"not private against {SMALLEST}"

_SHUFFLED = "shares of the sizes in a secret order: uniform ones, and others under the keyholder's key"
_ADVERSARY = (
    "everyone who sees the model except the party with the fewest records, who drew its noise; for sizes and models, "
    "each participant alone, honest but curious"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedAveraging(Protocol):
    """The mean of local logistic models with noise for the party that has the fewest records.

    Adversary    each participant alone, honest but curious; no two of them together. ε holds against everyone who sees
                 the model, except the smallest party: it drew the noise, notices that by subtracting it, and then knows
                 the sum of the models; of two parties, the other's model. The claim says so.
    Unit         a record, replaced. Sizes are secret and the same for neighbours: the scale of the noise says something
                 about the smallest one.
    Learned      everyone: the shares, and so the noisy mean. Each party: whether it is the smallest. Nobody: a size, or
                 which other party drew the noise.
    Sensitivity  2/(n λ) for each model in L2, for records in the unit ball; noise is scaled for it as if one model were
                 released instead of the mean of K, as published (`noise`).

    `width` is the number of features. `most` is a public bound on a party's records; further records are not counted.
    """

    name: ClassVar[str] = "averaging"
    version: ClassVar[int] = 4
    variant: ClassVar[str] = "published"

    width: int
    classes: tuple[str, ...]
    l2: Annotated[Positive, Why("the noise is scaled by 1/l2")]
    noise: Kind
    key_bits: int
    most: MaxRecords
    encoding: Encoding | None = field(repr=False)

    @property
    def makes(self) -> str:
        return "the average of the parties' logistic models, in shares"

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
    def comparisons(self) -> selection.Comparisons:
        return selection.Comparisons(self.most)

    @property
    def parts(self) -> Mapping[str, Part]:
        return {"argmin": self.comparisons}

    @property
    def radius(self) -> float:
        return vector_radius(self.l2)

    def noise_for(self, consortium: Consortium) -> PublishedNoise:
        epsilon = pure_epsilon(consortium.loss)
        return PublishedNoise(self.noise, consortium.size, self.width, self.l2, epsilon, self.most)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        """Every message of the three stages. Each party draws noise and is charged for it, though only one draw is
        opened: who pays must not tell whose it is."""
        _check_terms(consortium)
        noise, (mixer, keyholder) = self.noise_for(consortium), roles(consortium)
        ciphertext = self.key_bits // 4
        key, many = Blob(ciphertext + 4), Blob(ciphertext * max(consortium.size, self.width))
        words = Array((self.width,), "<u8")
        pair = Fields({"share": Array((1,), "<u8"), "encrypted": Blob(ciphertext)})
        pairs = Fields({"shares": Array((consortium.size,), "<u8"), "encrypted": many})
        run_key, uniform = Public("a public key of this run"), Sealed("a uniform share")
        largest = noise.sensitivity(1)

        def release(name: str, source: str, to: str, protection: Protection, form: Form) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=form)

        place = Count(consortium.size - 1)
        return Declaration(
            (
                release("key", keyholder, EVERY_PARTY, Sealed(run_key.why), key),
                release("key_for_curator", keyholder, COORDINATOR, run_key, key),
                release("place", mixer, EVERY_PARTY, Sealed("its own place in a random order"), place),
                release("size", EVERY_PARTY, mixer, Sealed("a uniform share, and an encrypted one"), pair),
                release("shuffled", mixer, COORDINATOR, Sealed(_SHUFFLED), pairs),
                release("masked", COORDINATOR, keyholder, Public("uniform numbers, encrypted"), many),
                *self.comparisons.declare(consortium).releases,
                release("curator_key", COORDINATOR, EVERY_PARTY, run_key, key),
                release("indicator", COORDINATOR, EVERY_PARTY, Public("encrypted under the curator's key"), many),
                Release(
                    name="noise",
                    source=EVERY_PARTY,
                    to=EVERYONE,
                    protection=Selected(noise.mechanism),
                    form=Array((self.width,), "<i8"),
                    bound=OpenedValue(l2=largest, l1=largest, limit=self.radius),
                    grid=noise.grid,
                ),
                release("product", EVERY_PARTY, EVERY_PARTY, Sealed("noise under the curator's key"), many),
                release("blinded", mixer, COORDINATOR, Public("noise under a uniform mask"), many),
                release("piece", EVERY_PARTY, EVERY_PARTY, uniform, words),
                release("piece_for_curator", EVERY_PARTY, COORDINATOR, uniform, words),
                release("piece_of_curator", COORDINATOR, EVERY_PARTY, uniform, words),
                release("share", EVERY_PARTY, COORDINATOR, Derived("noise"), words),
                release("shares", COORDINATOR, EVERYONE, Derived("noise"), Each(words, keys="participants")),
            ),
            adversary=_ADVERSARY,
            claim=EXPOSED if self.noise == "spherical" else f"{literal_claim(noise)}; and {EXPOSED}",
            exposed=SMALLEST,
        )

    # What the curator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        seed = parties.once("curator seed", fresh_seed)
        place = self.find_smallest(parties, Stream(derive(seed, "smallest")))
        noise = self.select_noise(parties, place)
        return {"shares": self.collect_shares(parties, noise)}

    def find_smallest(self, parties: Parties, stream: Stream) -> int:
        """Stage 1. In the mixer's order, which the curator does not know."""
        mixer, keyholder = roles(parties.consortium)
        raw = parties.ask(self.make_key, to=[keyholder])[keyholder]["key_for_curator"]
        parties.ask(self.make_order, to=[mixer])
        parties.ask(self.split)
        given = parties.ask(self.shuffle, to=[mixer])[mixer]["shuffled"]
        masked = selection.mask(self._key(raw), given["shares"], given["encrypted"], stream)
        parties.ask(self.unmask, to=[keyholder], masked=masked.sent)
        return int(masked.order[self.comparisons.coordinate_argmin(parties, masked.shares, "argmin")])

    def select_noise(self, parties: Parties, place: int) -> Words:
        """Stage 2. η + s modulo 2^64, where η is the noise of the party at this place and s the mixer's."""
        chain = chain_order(parties.consortium)
        private = PrivateKey.from_bytes(parties.once("curator key", self._new_key))
        key = private.public
        indicated = parties.once("indicator", lambda: selection.encrypt_indicator(key, place, len(chain)))
        values: dict[str, Any] = {}
        for turn, party in enumerate(chain):
            asked = parties.ask(self.select, to=[party], label=turn, curator_key=key.to_bytes(), indicator=indicated)
            values = asked[party]
        packing = selection.make_slots(key, len(chain))
        return selection.open_blinded(packing, private, values["blinded"], self.width)

    def collect_shares(self, parties: Parties, noise: Words) -> dict[str, Words]:
        """Stage 3. Every participant's share of the noisy sum."""
        names = list(parties.consortium.parties)
        own = parties.once("curator pieces", lambda: np.stack(_split_words(noise, len(names) + 1)))
        got = parties.ask(self.divide)
        each = {name: {"piece_of_curator": own[j]} for j, name in enumerate(names)}
        shares = {name: values["share"] for name, values in parties.ask(self.publish, each=each).items()}
        pieces = [values["piece_for_curator"] for values in got.values()]
        return {**shares, CURATOR: np.asarray(sum(pieces, own[-1]), "<u8")}

    # Stage 1, at the parties.

    @step(gives=("key_for_curator",))
    def make_key(self, site: Site) -> dict[str, Any]:
        if site.party != roles(site.consortium)[1]:
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
        if site.party != roles(site.consortium)[0]:
            raise Refused("this party keeps no order", code="no-step")
        places = Stream(site.secret()).permutation(site.consortium.size)
        site.keep("averaging.places", places)
        for party, place in zip(site.consortium.parties, places):
            if party != site.party:
                site.send(party, "place", int(place))

    @step()
    def split(self, site: Site) -> None:
        """Fit first, so nothing is drawn if the records can't be used; then share the number of records."""
        site.keep("averaging.weights", self.model(site))
        mixer, key = roles(site.consortium)[0], self._parties_key(site)
        counted = min(max(len(site.records), 1), self.most)
        share, encrypted = selection.split_size(counted, key, Stream(site.secret()))
        pair = {"share": share, "encrypted": encrypted}
        if site.party == mixer:
            site.keep("averaging.size", pair)
        else:
            site.send(mixer, "size", pair)

    def model(self, site: Site) -> NDArray[np.int64]:
        """This party's model on the grid of the sum. Records are projected on the unit ball."""
        if site.features.shape[1] != self.width:
            raise Refused(f"records of {self.width} features were expected, found others", code="stopped")
        rows = Ball(1.0).enforce(site.features, (self.width,))
        fit = fit_logistic(rows, site.labels.astype(np.float64), self.l2, tol=TOLERANCE)
        if not bool(fit.converged):
            # A neutral model could be further from a neighbour's than the noise is scaled for.
            raise Refused(f"{site.party}: the local fit did not come within {TOLERANCE}", code="stopped")
        inside = Ball(self.radius).enforce(fit.weights, (self.width,))
        return np.rint(inside / self.noise_for(site.consortium).grid).astype("<i8")

    @step(gives=("shuffled",))
    def shuffle(self, site: Site) -> dict[str, Any]:
        key, places = self._parties_key(site), _require_kept(site, "averaging.places")
        others = site.consortium.parties[1:]
        received = site.received("size", others)
        if len(received) != len(others):
            raise Refused("the shares of some sizes did not arrive", code="missing")
        pairs = [_require_kept(site, "averaging.size"), *(received[party] for party in others)]
        shares, encrypted = selection.shuffle(key, [(p["share"], p["encrypted"]) for p in pairs], places)
        return {"shuffled": {"shares": shares, "encrypted": encrypted}}

    @step()
    def unmask(self, site: Site, masked: bytes) -> None:
        private = PrivateKey.from_bytes(_require_kept(site, "averaging.private"))
        self.comparisons.hold(site, selection.unmask(private, masked, site.consortium.size))

    # Stage 2.

    @step(times=MAX_PARTIES, may_give=("blinded",))
    def select(self, site: Site, curator_key: bytes, indicator: bytes) -> dict[str, Any] | None:
        """This party's noise times its own bit of the indicator, under encryption, times the chain so far."""
        consortium, key = site.consortium, self._key(curator_key)
        chain = chain_order(consortium)
        turn = chain.index(site.party)
        if int(site.label) != turn:
            raise Refused(f"this party is number {turn} of the chain", code="too-often")
        before = None if turn == 0 else _require_received(site, "product", chain[turn - 1])
        element = selection.read_ciphertexts(key, indicator, consortium.size)[self._place(site)]
        packing = selection.make_slots(key, consortium.size)
        if before is not None:
            packing.read(before, self.width, turn)
        # The draw is the debit: everything received was checked before it.
        noise = site.draw("noise", sensitivity=self.noise_for(consortium).sensitivity(len(site.records)))
        product = selection.extend_chain(packing, selection.select(packing, element, noise), before, turn)
        if turn + 1 < len(chain):
            site.send(chain[turn + 1], "product", packing.write(product))
            return None
        blinded, blind = selection.blind(packing, product, Stream(site.secret()))
        site.keep("averaging.blind", blind)
        return {"blinded": blinded}

    def _place(self, site: Site) -> int:
        mixer = roles(site.consortium)[0]
        if site.party == mixer:
            return int(_require_kept(site, "averaging.places")[0])
        return int(_require_received(site, "place", mixer))

    # Stage 3.

    @step(gives=("piece_for_curator",))
    def divide(self, site: Site) -> dict[str, Any]:
        """Fresh shares of this party's model, one for every participant; the mixer subtracts s from its own first."""
        consortium, mixer = site.consortium, roles(site.consortium)[0]
        summand = _require_kept(site, "averaging.weights").view("<u8")
        if site.party == mixer:
            summand = summand - _require_kept(site, "averaging.blind")
        pieces = _split_words(summand, consortium.size + 1)
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
        pieces = [_require_kept(site, "averaging.piece"), *received.values()]
        return {"share": np.asarray(sum(pieces, piece_of_curator), "<u8")}

    # Keys.

    def _new_key(self) -> bytes:
        return PrivateKey.generate(self.key_bits).to_bytes()

    def _key(self, raw: bytes) -> PublicKey:
        key = selection.read_public_key(raw)
        if key.bits != self.key_bits:
            raise Malformed(f"a key of {self.key_bits} bits was declared, found {key.bits}", code="key-size")
        return key

    def _parties_key(self, site: Site) -> PublicKey:
        keyholder = roles(site.consortium)[1]
        own = site.party == keyholder
        return self._key(_require_kept(site, "averaging.key") if own else _require_received(site, "key", keyholder))

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> LinearClassifier:
        from comity.learn.classifiers import LinearClassifier

        coef = average_shares(released["shares"], consortium.size, self.noise_for(consortium).grid)
        return LinearClassifier(coef[None, :], classes=self.classes, encoding=self.encoding)

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """The shares that the participants published; anybody can add them up."""
        shares = released["shares"]
        terms = Terms(
            study, run, tuple(shares), consortium.size, self.noise_for(consortium).grid, self.classes, self.encoding
        )
        return {"shares": PublishedShares(tuple(Share(name, words, terms) for name, words in shares.items()))}

    def score(self, model: LinearClassifier, test: Records) -> float:
        return _measure_error(model.weights[0], test)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        filled = [records for records in train if len(records)]
        if not filled or test.labels is None:
            return []
        local = [self._fit(records.features, np.asarray(records.labels)) for records in filled]
        features = np.concatenate([records.features for records in filled])
        labels = np.concatenate([np.asarray(records.labels) for records in filled])
        alone = [_measure_error(weights, test) for weights in local]
        return [
            Baseline("constant", float(np.mean(test.labels != (labels.mean() > 0.5))), note="the most frequent class"),
            Baseline.of_parties(alone, "mean of the parties, each alone"),
            Baseline(
                "pooled", _measure_error(self._fit(features, labels), test), note="all records in one place, no privacy"
            ),
            Baseline(
                "without noise", _measure_error(np.mean(local, axis=0), test), note="the mean of the local models"
            ),
        ]

    def _fit(self, features: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
        rows = Ball(1.0).enforce(features, (self.width,))
        return np.asarray(fit_logistic(rows, labels.astype(np.float64), self.l2, tol=TOLERANCE).weights)

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 2."""
        claimed, true, models = str(consortium.loss), Pure(self.noise_for(consortium).true_epsilon), consortium.size
        why = f"the noise is scaled for one model, and the sum of {models} models moves no further than one of them"
        if self.noise == "literal":
            why += "; the bound in L2 is taken for one in L1"
        return (
            TrueLoss(
                "a record", "anyone who sees the model and did not draw its noise", claimed, f"at most {true}", why
            ),
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


def roles(consortium: Consortium) -> tuple[str, str]:
    """The mixer and the keyholder."""
    return consortium.parties[0], consortium.parties[-1]


def chain_order(consortium: Consortium) -> tuple[str, ...]:
    """The order of the parties in stage 2: the mixer, who blinds the product, is the last."""
    return (*consortium.parties[1:], consortium.parties[0])


def _check_terms(consortium: Consortium) -> None:
    """Refuse terms on which the published proof says nothing."""
    if consortium.unit is not Unit.RECORD or consortium.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"the published average protects a record, replaced; found unit = {consortium.unit}, neighbours = "
            f'{consortium.neighbours}. Set privacy.unit = "record" and privacy.neighbours = "replace": its noise '
            "depends on secret sizes, which adding or removing a record would change",
            key="privacy.unit",
        )
    if consortium.colluders:
        raise StudyError(
            f"the published average holds against no collusion, found privacy.colluders = {consortium.colluders}: the "
            "curator and a party with a role learn sizes, or whose noise it is. Set it to 0, or choose the default "
            "variant",
            key="privacy.colluders",
        )
    if consortium.dropouts:
        raise StudyError(
            f"the published average needs every party to the end, found privacy.dropouts = {consortium.dropouts}. Set "
            "it to 0, or choose the default variant",
            key="privacy.dropouts",
        )
    if not 2 <= consortium.size <= MAX_PARTIES or CURATOR in consortium.parties:
        raise StudyError(
            f"the published average needs 2 to {MAX_PARTIES} parties, none named {CURATOR!r}; found {consortium.size}",
            key="parties",
        )
    pure_epsilon(consortium.loss)


def _split_words(summand: Words, count: int) -> list[Words]:
    return [np.asarray(piece, "<u8") for piece in split_values(summand.view("<i8"), count)]


def _require_kept(site: Site, name: str) -> Any:
    value = site.kept(name)
    if value is None:
        raise Refused("the steps of the published average come one after the other", code="too-early")
    return value


def _require_received(site: Site, name: str, sender: str) -> Any:
    found = site.received(name, [sender])
    if sender not in found:
        raise Refused(f"what {sender} sends as {name} did not arrive", code="missing")
    return found[sender]


def _measure_error(weights: NDArray[np.float64], test: Records) -> float:
    assert test.labels is not None
    return float(np.mean((test.features @ weights > 0) != (test.labels > 0)))
