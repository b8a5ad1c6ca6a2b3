"""Summaries in one shot, the default: two noisy releases give a density ratio, and each owner chooses records by it.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
where a curator broadcasts a running summary and owners bid record by record. Here the owners release noisy moments of
their features once, and the consumer releases one noisy mean along the few directions that stand out of the noise.
Everything else follows from these two. Derivations: `proof.md`. The auction: `auction/`, and as in the paper
`published/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Classes, Encoding, Schema
from comity.data.row_products import clip_received
from comity.entropy import Stream
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import DISCLOSING, PRIVATE, Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Noised, Summed
from comity.federation.declare.release import Array, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.constants import Constant
from comity.methods.declared_records import size_of, sum_sizes
from comity.methods.method import Method, Only, Setting
from comity.methods.summary.auction.market import FEATURES
from comity.methods.summary.auction.method import AskShare, AuctionSummary, Missed
from comity.methods.summary.features import (
    MOMENT_LENGTH,
    MOMENT_SENSITIVITY,
    FourierFeatures,
    count_moments,
    gamma_of_records,
    gamma_of_schema,
    public_features,
    split_moments,
    sum_moments,
)
from comity.methods.summary.herding import choose_records
from comity.methods.summary.protocol import (
    CONSUMER,
    HEADROOM,
    OWNER,
    ROUND_DOWN,
    AtLeastOne,
    ChosenRows,
    Features,
    Labels,
    Payment,
    Ranges,
    SummaryProtocol,
    find_consumer,
    release_seed,
    release_wish,
    subtract_square,
)
from comity.methods.summary.published.constants import PAPER
from comity.methods.summary.published.method import (
    Bid,
    Constants,
    Hash,
    Iterations,
    PrintedEpsilon,
    PublishedSummary,
    Spacing,
)
from comity.methods.summary.ratio import (
    MAX_RANK,
    MAX_RATIO,
    NOISE_EDGE,
    Ratio,
    Spectrum,
    allot_quotas,
    denoise_spectrum,
    estimate_discrepancies,
    fit_ratio,
)
from comity.methods.tables import validate
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP
from comity.privacy.mechanisms.gaussian import Gaussian

Floats = NDArray[np.float64]
Deliver = Literal["records", "hashes", "weights"]

# Options.

_PUBLISHED_ONLY = ("features", "epsilon_v", "epsilon_first", "epsilon_l", "t_init", "t_sub", "eta")


class Summary(Method):
    """Records of many owners, chosen so that together they look like a consumer's.

        method = comity.Summary(schema, records=100, sizes=400, auxiliary=public_records)
        print(method.plan(["north", "south", "clinic"], consumer="clinic", epsilon=1, delta=1e-5))
        bought = method.simulate(frames, consumer="clinic", epsilon=1, delta=1e-5).presented

    It protects each record of an owner against the other owners, and each record of the consumer against owners and
    curator. The records that owners hand over have no differential privacy towards curator and consumer; with
    `deliver="weights"` no record is handed over. `variant="published"` is the auction of Sarpatwar et al. (2019), with
    the guarantee that it has.
    """

    table: ClassVar[str] = "summary"
    counts_sizes: ClassVar[bool] = True
    paper: ClassVar[Mapping[str, Constant]] = PAPER

    variant: Literal["default", "published"] = Field(
        "default",
        description="default: as `selection` says; published: the paper's auction, not private as claimed, to compare",
    )
    selection: Annotated[Literal["one-shot", "auction"], Only(variant="default")] = Field(
        "one-shot",
        description="one-shot: all records at once, by a density ratio from noisy moments; auction: record by record "
        "from the owner with the best bid",
    )
    sizes: dict[str, int] | int = Field(
        default_factory=dict, description="records of each owner and of the consumer, or one number for all; public"
    )
    records: AtLeastOne = Field(100, description="how many records the owners hand over in all")
    deliver: Deliver = Field(
        "records",
        description="what curator and consumer get: the chosen records, hashes of them under a seed that the curator "
        "does not know, or only the released weights",
    )
    auxiliary: str | None = Field(
        None,
        description="file of public records beside the study, for the width of the kernel; the published auction also "
        "starts its summary with them",
    )
    gamma: Positive | Literal["auto"] | None = Field(
        None,
        description="of the kernel exp(-gamma |x - y|^2); auto, or left out: from auxiliary records or the schema; "
        "published: 0.1 if left out",
    )
    dimensions: int | Literal["auto"] = Field(
        "auto", description="number of random features; auto: by a public rule, 140 in an auction"
    )
    hash_dimensions: Annotated[Features, Only(variant="default", selection="one-shot", deliver="hashes")] = Field(
        140, description="numbers in a hash"
    )
    payment: Payment = Field(100.0, description="the sum that the payout table divides")
    image: Annotated[tuple[int, int] | None, Only(deliver="records")] = Field(
        None, description="rows and columns if a record is a picture: the page then shows chosen ones"
    )
    bid_sign: Annotated[Bid, Only(variant="published")] = Field(
        "corrected", description="published only: bids as printed, sign reversed, or by the objective's marginal gain"
    )
    features: Annotated[Hash, Only(variant="published")] = Field(
        "printed", description="published only: cosines with random phases as printed, or pairs of cosine and sine"
    )
    epsilon_v: Annotated[PrintedEpsilon, Only(variant="published")] = Field(
        0.01,
        description="published only: printed epsilon of an iteration for the consumer's mean; study: from "
        "privacy.epsilon by the paper's formula",
    )
    epsilon_first: Annotated[Positive, Only(variant="published")] = Field(
        0.05, description="published only: printed epsilon of an iteration for the first broadcast, of public seeds"
    )
    epsilon_l: Annotated[PrintedEpsilon, Only(variant="published")] = Field(
        0.01,
        description="published only: an iteration of a later broadcast has epsilon_l / sqrt(records t_sub); study: "
        "from privacy.epsilon by the paper's formula",
    )
    t_init: Annotated[Iterations, Only(variant="published")] = Field(
        "d^1.5", description="published only: iterations for the consumer's mean and for the first broadcast"
    )
    t_sub: Annotated[AtLeastOne, Only(variant="published")] = Field(
        5, description="published only: iterations for each later broadcast"
    )
    eta: Annotated[Spacing, Only(variant="published")] = Field(
        "1/d", description="published only: spacing of the grid on [-1, 1] that features are rounded to"
    )
    tau: Annotated[AtLeastOne, Only(variant="published")] = Field(
        5, description="published only: after this many rounds as its owner's choice a record is asked for anyway"
    )
    auction_epsilon: Annotated[Positive, Only(variant="published")] = Field(
        0.5, description="published only: rank i is asked with probability exp(-auction_epsilon (i - 1))"
    )
    missed: Annotated[Missed, Only(variant="default", selection="auction")] = Field(
        0.05, description="auction only: the probability that the best bidder of a round is not asked"
    )
    ask_share: Annotated[AskShare, Only(variant="default", selection="auction")] = Field(
        0.1, description="auction only: the part of an owner's loss that is spent on whom the curator asks"
    )

    if TYPE_CHECKING:
        # For type checkers, which else derive one from the fields alone.
        def __init__(
            self, schema: Schema | None = None, /, *, columns: Mapping[str, Sequence[str]] | None = None, **options: Any
        ) -> None: ...

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        return {"unit": "record", "neighbours": "replace", **super().privacy(setting)}

    def files(self) -> Mapping[str, str]:
        return {} if self.auxiliary is None else {"summary.auxiliary": self.auxiliary}

    def options_for_hash(self) -> dict[str, Any]:
        found = super().options_for_hash()
        if self.variant == "default":
            # Studies from before these options keep their hash.
            found = {key: value for key, value in found.items() if key not in _PUBLISHED_ONLY}
        # Hashes under a secret seed have random phases: participants without them must not agree on the study.
        return {**found, "hash_phases": True} if self.deliver == "hashes" else found

    def declared_records(self, party: str) -> int | None:
        return self.sizes.get(party) if isinstance(self.sizes, dict) else self.sizes

    def study(
        self,
        parties: Sequence[str],
        *,
        epsilon: float,
        delta: float = 0.0,
        consumer: str | None = None,
        **terms: Any,
    ) -> Any:
        """As for every method. `consumer` names the party that buys; all others are owners."""
        if consumer is not None:
            terms["roles"] = {CONSUMER: [consumer], OWNER: [party for party in parties if party != consumer]}
        return super().study(parties, epsilon=epsilon, delta=delta, **terms)

    def make_protocol(self, setting: Setting) -> OneShotSummary | AuctionSummary | PublishedSummary:
        if self.deliver == "weights" and (self.variant, self.selection) != ("default", "one-shot"):
            raise StudyError(
                f'{setting.where}: summary.deliver = "weights" needs the default variant with selection = "one-shot": '
                "an auction hands over records or hashes; leave one of them out",
                key="summary.deliver",
            )
        encoding = Encoding(setting.schema, scaling="unit")
        target = setting.schema.target
        public = self._read_auxiliary(setting, encoding)
        gamma, why = self._choose_gamma(encoding, public)
        return self._over(
            columns=encoding.width,
            gamma=gamma,
            width_from=why,
            labels=None if target is None else "<i8" if isinstance(target, Classes) else "<f8",
            seeds=public,
            encoding=encoding,
        )

    @classmethod
    def over_rows(
        cls,
        *,
        columns: int,
        gamma: float,
        labels: Labels | None = None,
        seeds: Floats | None = None,
        encoding: Encoding | None = None,
        **options: Any,
    ) -> OneShotSummary | AuctionSummary | PublishedSummary:
        """The protocol over rows that are encoded already. `seeds` are encoded public records."""
        method = validate(cls, {"gamma": gamma, **options}, cls.__name__, f"{cls.table}.")
        return method._over(
            columns=columns, gamma=gamma, width_from="given", labels=labels, seeds=seeds, encoding=encoding
        )

    def _over(self, *, seeds: Floats | None, **rows: Any) -> OneShotSummary | AuctionSummary | PublishedSummary:
        common = {"sizes": self.sizes, "records": self.records, "payment": self.payment, "image": self.image, **rows}
        if self.variant == "default" and self.selection == "one-shot":
            return OneShotSummary(
                deliver=self.deliver,
                dimensions=None if self.dimensions == "auto" else self.dimensions,
                hash_dimensions=self.hash_dimensions,
                **common,
            )
        dimensions = FEATURES if self.dimensions == "auto" else self.dimensions
        common = {"dimensions": dimensions, "deliver": self.deliver, **common}
        if self.variant == "default":
            return AuctionSummary(missed=self.missed, ask_share=self.ask_share, **common)
        return PublishedSummary(
            seeds=np.zeros((0, rows["columns"])) if seeds is None else seeds,
            bid_sign=self.bid_sign,
            hash_features=self.features,
            tau=self.tau,
            auction_epsilon=self.auction_epsilon,
            constants=Constants(self.epsilon_v, self.epsilon_first, self.epsilon_l, self.t_init, self.t_sub, self.eta),
            **common,
        )

    def _read_auxiliary(self, setting: Setting, encoding: Encoding) -> Floats | None:
        if self.auxiliary is None:
            return None
        frame = setting.read(self.auxiliary, "summary.auxiliary")
        return encoding.encode_features(frame, where=f"{setting.where}: summary.auxiliary: {self.auxiliary}")

    def _choose_gamma(self, encoding: Encoding, public: Floats | None) -> tuple[float, str]:
        """The kernel's gamma, and what it was chosen by."""
        if isinstance(self.gamma, float):
            printed = self.variant == "published" and "gamma" not in self.model_fields_set
            return self.gamma, "as in the paper" if printed else "by the study"
        if public is None:
            return gamma_of_schema(encoding), "by the schema alone; public records of the kind give a better one"
        return gamma_of_records(public), f"by {len(public)} public records"


# What runs.

# An owner's loss is divided over two releases, its part of the moments and its mass. The consumer spends its whole loss
# on one.

MASS_SHARE = Decimal("0.05")
"""The part of μ² for an owner's mass, one number that needs few digits. Settled on MNIST."""


@dataclass(frozen=True)
class Budget:
    moments: GDP
    mass: GDP
    wish: GDP

    @classmethod
    def of(cls, consortium: Consortium) -> Budget:
        whole = gaussian_budget(consortium.loss)
        mass = ROUND_DOWN.multiply(whole.square, MASS_SHARE)
        return cls(subtract_square(whole, mass), GDP.squared(mass), whole)


# Settled on MNIST at two budgets (400 features at epsilon 1, 140 at 0.3, for 13,500 records); other data may want other
# values.
MAX_FEATURES, MIN_FEATURES = 400, 40
_PER_RHO, _PER_RECORD = 1.76, 0.0115


def choose_dimensions(records: int, square: float) -> int:
    """An even number of features, for this many records of all owners and a budget of μ² = `square`.

    Noise on D × D moments has eigenvalues up to about D^½·N⁻¹·ρ^−½. The number of features that keeps it below the
    directions that matter grows as ρ·N², until more features would show nothing new.
    """
    wanted = _PER_RHO * (square / 2) * (_PER_RECORD * records) ** 2
    return max(MIN_FEATURES, 2 * int(min(MAX_FEATURES, wanted) / 2))


# The most rows in memory at once as features: a limit of size.
_BLOCK_ROWS = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class OneShotSummary(SummaryProtocol):
    """`records` records of all owners that together look like the consumer's, or the weights that would make them so.

    Adversary    up to `colluders` owners that pool what they saw, and everyone who sees noisy releases. The records, or
                 hashes of them, that owners hand over have no differential privacy towards curator and consumer.
    Unit         a record, replaced: sizes are public.
    Learned      owners and consumer: the spectrum of noisy moments, the ratio, noisy shares. Curator and consumer:
                 exactly p_i chosen records of owner i, or their hashes.
    Sensitivity  √2·(1 + c²/2) for the sum of (φφᵀ, cφ), 2 for the consumer's sum in the unit ball, B² for an owner's
                 Σ r² (proof.md, 1 to 3).

    `deliver` says what is handed over. Where `dimensions` is None, a public rule chooses the number of features.
    """

    deliver: Deliver
    dimensions: Features | None
    hash_dimensions: Features

    # What the study fixes.

    @property
    def discloses(self) -> bool:
        """Whether owners hand over records or hashes."""
        return self.deliver != "weights"

    def width(self, consortium: Consortium) -> int:
        """D: the number of features, by the study or by a public rule."""
        if self.dimensions is not None:
            return self.dimensions
        return choose_dimensions(self.count_owned(consortium), float(gaussian_budget(consortium.loss).square))

    def features(self, consortium: Consortium) -> FourierFeatures:
        return public_features(self.columns, self.width(consortium), self.gamma)

    def hash_features(self, seed: bytes) -> FourierFeatures:
        """The map of hashes. Owners and consumer keep its seed from the curator."""
        return FourierFeatures.draw(self.columns, self.hash_dimensions, self.gamma, Stream(seed), shifted=True)

    def title_in(self, consortium: Consortium) -> str:
        return f"summary (one-shot, {self.width(consortium)} features, delivers {self.deliver})"

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        self.check_terms(consortium, self.records if self.discloses else 0)
        owners = len(consortium.among(OWNER))
        handed_over = self._declare_chosen(owners) if self.discloses else ()
        return Declaration(
            (*self._declare_noisy(consortium, owners), *handed_over),
            adversary=self._adversary(consortium, owners),
            claim=DISCLOSING if self.discloses else PRIVATE,
        )

    def _declare_noisy(self, consortium: Consortium, owners: int) -> tuple[Release, ...]:
        """The moments of all owners, the consumer's mean in their directions, each owner's mass, and what follows from
        these alone."""
        budget, width = Budget.of(consortium), self.width(consortium)
        most = HEADROOM * max(size_of(self.sizes, party) for party in consortium.among(OWNER))
        wished = HEADROOM * self.count_wished(consortium)
        return (
            Release(
                name="moments",
                source=OWNER,
                to=COORDINATOR,
                protection=Summed(Gaussian(budget.moments)),
                form=Array((count_moments(width),), "<i8"),
                bound=RecordSum(MOMENT_SENSITIVITY, MOMENT_LENGTH * most, most),
            ),
            Release(
                name="spectrum",
                source=COORDINATOR,
                to=EVERYONE,
                protection=Derived("moments"),
                form=Fields(
                    {
                        "mean": Array((width,)),
                        "axes": Array((width, MAX_RANK)),
                        "variances": Array((MAX_RANK,)),
                    }
                ),
            ),
            release_wish(budget.wish, MAX_RANK, RecordSum(2.0, float(wished), wished)),
            Release(
                name="ratio",
                source=COORDINATOR,
                to=EVERYONE,
                protection=Derived("moments", "wish"),
                form=Array((1 + MAX_RANK,)),
            ),
            Release(
                name="mass",
                source=OWNER,
                to=COORDINATOR,
                protection=Noised(Gaussian(budget.mass)),
                form=Array((1,), "<i8"),
                bound=RecordSum(MAX_RATIO**2, MAX_RATIO**2 * most, most),
            ),
            Release(
                name="attribution",
                source=COORDINATOR,
                to=EVERYONE,
                protection=Derived("moments", "wish", "mass"),
                form=Fields(
                    {
                        "quotas": Array((owners,), "<i8"),
                        "shares": Array((owners,)),
                        "discrepancy": Array((2,)),
                    }
                ),
            ),
        )

    def _declare_chosen(self, owners: int) -> tuple[Release, ...]:
        """The records of all owners, or hashes of them, without differential privacy towards their readers."""
        hashed = self.deliver == "hashes"
        width, within = self.hash_dimensions if hashed else self.columns, Ranges.of(self.encoding, hashed=hashed)
        what = (
            "hashes of its chosen records, from which inner products and so distances follow" if hashed else "records"
        )
        quota = Release(
            name="quota", source=COORDINATOR, to=OWNER, protection=Derived("mass"), form=Count(self.records)
        )
        chosen = Release(
            name="chosen",
            source=OWNER,
            to=COORDINATOR,
            protection=Disclosed(
                f"exactly as many {what} as its quota; no differential privacy towards curator and consumer",
                "records_may_leave",
                sealed=True,
            ),
            form=ChosenRows(width, self.records, self.labels, within=within),
        )
        summary = Release(
            name="summary",
            source=COORDINATOR,
            to=(COORDINATOR, CONSUMER),
            protection=Derived("chosen"),
            form=ChosenRows(width, self.records, self.labels, owners, within),
        )
        if not hashed:
            return quota, chosen, summary
        return release_seed(), quota, chosen, summary

    def _adversary(self, consortium: Consortium, owners: int) -> str:
        if not self.discloses:
            return (
                "everyone who sees the noisy releases, including curator and consumer, with up to "
                f"{consortium.colluders} of {owners} owners"
            )
        return (
            f"up to {consortium.colluders} of {owners} owners that pool what they saw; for the consumer's records, "
            "also the curator. Towards curator and consumer there is no differential privacy for the "
            f"{'records' if self.deliver == 'records' else 'hashes of records'} that an owner hands over"
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium = parties.consortium
        owners = consortium.among(OWNER)
        moments = parties.sum(self.moments)
        spectrum = self._denoise(moments.value, moments.names or owners, consortium)
        sent = _pad_spectrum(spectrum)
        wish = parties.sum(self.wish, spectrum=sent).value[: spectrum.rank]
        mean, variance = self._wished_mean(spectrum, wish, consortium)
        theta = fit_ratio(mean, variance)
        ratio = np.zeros(1 + MAX_RANK)
        ratio[: len(theta)] = theta
        masses = self._ask_masses(parties, sent, ratio)
        released: dict[str, Any] = {"spectrum": sent, "ratio": ratio}
        quotas: dict[str, int] = {}
        if self.discloses:
            sizes = {owner: size_of(self.sizes, owner) for owner in masses}
            # Owners that are left may have fewer records, by the study's figures, than it asks for.
            quotas = allot_quotas(masses, sizes, min(self.records, sum(sizes.values())))
            released["summary"] = self._buy(parties, quotas, owners)
        positive = {owner: max(0.0, mass) for owner, mass in masses.items()}
        whole = sum(positive.values())
        released["attribution"] = {
            "quotas": np.array([quotas.get(owner, 0) for owner in owners], "<i8"),
            "shares": np.array([positive.get(owner, 0.0) / whole if whole else 1 / len(owners) for owner in owners]),
            "discrepancy": np.array(estimate_discrepancies(spectrum, theta, mean, variance)),
        }
        return released

    def _denoise(self, total: Floats, names: Sequence[str], consortium: Consortium) -> Spectrum:
        """The spectrum of the moments, divided by the declared sizes of the owners in the sum."""
        width, count = self.width(consortium), sum_sizes(self.sizes, names)
        product, mean = split_moments(total, width)
        deviation = self._moment_deviation(consortium, len(names)) / sqrt(2)
        return denoise_spectrum(product / count, mean / count, deviation / count)

    def _moment_deviation(self, consortium: Consortium, owners: int) -> float:
        """The deviation of the noise on the diagonal of Σφφᵀ."""
        return self.declared(consortium).accept(consortium)["moments"].opened_deviation(consortium, owners)

    def _wished_mean(self, spectrum: Spectrum, wish: Floats, consortium: Consortium) -> tuple[Floats, Floats]:
        """The consumer's mean in whitened coordinates, and the variance of its noise in each."""
        count = self.count_wished(consortium)
        deviation = np.full(spectrum.rank, self.declared(consortium)["wish"].opened_deviation(consortium) / count)
        return spectrum.from_ball(wish / count), spectrum.from_ball(deviation) ** 2

    def _ask_masses(self, parties: Parties, spectrum: Mapping[str, Floats], ratio: Floats) -> dict[str, float]:
        consortium = parties.consortium
        release = parties.declaration["mass"]
        grid = release.spacing(consortium)
        asked = [owner for owner in consortium.among(OWNER) if owner in parties.alive]
        got = parties.ask(self.weigh, to=asked, need=release.min_parties(consortium), spectrum=spectrum, ratio=ratio)
        return {owner: float(values["mass"][0] * grid) for owner, values in got.items()}

    def _buy(self, parties: Parties, quotas: Mapping[str, int], owners: Sequence[str]) -> dict[str, Any]:
        consortium = parties.consortium
        if self.deliver == "hashes":
            parties.ask(self.deal_seed, to=[find_consumer(consortium)])

        def check_number(owner: str, values: Mapping[str, Any]) -> None:
            if len(values["chosen"]["rows"]) != quotas[owner]:
                raise Malformed(f"{owner} was asked for {quotas[owner]} records and sent another number", code="form")

        each = {owner: {"quota": quota} for owner, quota in quotas.items()}
        got = parties.ask(self.choose, each=each, need=max(1, len(each) - consortium.dropouts), valid=check_number)
        places = {owner: place for place, owner in enumerate(owners)}
        chosen = {owner: values["chosen"] for owner, values in got.items()}
        summary = {"rows": np.concatenate([one["rows"] for one in chosen.values()])}
        if self.labels:
            summary["labels"] = np.concatenate([one["labels"] for one in chosen.values()])
        summary["owners"] = np.concatenate(
            [np.full(len(one["rows"]), places[owner], "<i8") for owner, one in chosen.items()]
        )
        return summary

    # What a site does.

    @step(sends="moments")
    def moments(self, site: Site) -> None:
        self._check_quota(site)
        features = self.features(site.consortium)
        site.contribute(site.total(lambda rows: sum_moments(rows.features, features)))

    def _check_quota(self, site: Site) -> None:
        """Refuse, before anything is drawn, where the owner has fewer records than declared: it could not fill its
        quota."""
        self.warn_owner(site)
        declared = size_of(self.sizes, site.party)
        if self.discloses and len(site.records) < min(declared, self.records):
            raise Refused(
                f"{site.party} has {len(site.records)} records, and summary.sizes says {declared}: it could be asked "
                "for more than it has; have the study corrected",
                code="stopped",
            )

    @step(sends="wish")
    def wish(self, site: Site, spectrum: Mapping[str, Floats]) -> None:
        self.warn_owner(site)
        received, features = _read_spectrum(spectrum), self.features(site.consortium)

        def sum_in_ball(rows: Floats) -> Floats:
            total = np.zeros(MAX_RANK)
            for start in range(0, len(rows), _BLOCK_ROWS):
                total[: received.rank] += received.in_ball(features(rows[start : start + _BLOCK_ROWS])).sum(axis=0)
            return total

        site.contribute(site.total(lambda rows: sum_in_ball(rows.features)))

    @step(sends="mass")
    def weigh(self, site: Site, spectrum: Mapping[str, Floats], ratio: Floats) -> None:
        weights = self._weigh_records(site, _read_spectrum(spectrum), ratio)
        site.keep("weighed", {"spectrum": dict(spectrum), "ratio": ratio})
        if not self.discloses:
            site.deliver("weights", weights)
        site.contribute(np.array([float(weights @ weights)]))

    def _weigh_records(self, site: Site, spectrum: Spectrum, theta: Floats) -> Floats:
        """r of each of this owner's records."""
        ratio, features = Ratio(spectrum, clip_received(theta[: 1 + spectrum.rank])), self.features(site.consortium)
        rows = site.features
        parts = [ratio(features(rows[start : start + _BLOCK_ROWS])) for start in range(0, len(rows), _BLOCK_ROWS)]
        return np.concatenate([np.zeros(0), *parts])

    @step(gives=("chosen",))
    def choose(self, site: Site, quota: int) -> dict[str, Any]:
        weighed = site.kept("weighed")
        if weighed is None:
            raise Refused("records are chosen after they were weighed", code="undeclared")
        rows, spectrum = site.features, _read_spectrum(weighed["spectrum"])
        places = choose_records(
            rows,
            self._weigh_records(site, spectrum, weighed["ratio"]),
            quota,
            features=self.features(site.consortium),
            spectrum=spectrum,
            gamma=self.gamma,
            stream=Stream(site.secret()),
            classes=np.asarray(site.labels, np.int64) if self.labels == "<i8" else None,
        )
        sent = np.ascontiguousarray(rows[places], "<f8")
        if self.deliver == "hashes":
            sent = self.hash_features(self.seed_at(site))(sent)
        chosen: dict[str, Any] = {"rows": sent}
        if self.labels:
            chosen["labels"] = np.ascontiguousarray(site.labels[places], self.labels)
        return {"chosen": chosen}

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """What the study delivers; KeyError for a receiver that was not sent it."""
        from comity.methods.summary.artefact import BoughtHashes, RatioWeights, RunSetting

        summary: Mapping[str, Any] = released["summary"] if self.discloses else {"rows": ()}
        seen = len(summary["rows"])
        bought = self.describe_purchase(released["attribution"], consortium, seen=seen, basis="masses")
        if self.deliver == "hashes":
            rows, sellers = summary["rows"], summary["owners"]
            return BoughtHashes(rows, summary.get("labels"), sellers, bought, self.gamma, self.columns, "shifted")
        if self.discloses:
            return self.present_records(summary, bought, consortium)
        spectrum = _drop_padding(released["spectrum"])
        theta = np.asarray(released["ratio"][: 1 + spectrum.rank], np.float64)
        setting = RunSetting.of(self.gamma, consortium)
        return RatioWeights(self.features(consortium), spectrum, theta, bought, self.presented_schema, setting)

    # What the plan says.

    def expectation(self, consortium: Consortium) -> str:
        width, count = self.width(consortium), self.count_owned(consortium)
        noise = self._moment_deviation(consortium, len(consortium.among(OWNER))) / sqrt(2) * sqrt(width) / count
        wished = self.declared(consortium)["wish"].opened_deviation(consortium) / self.count_wished(consortium)
        useless = (
            ", so expect hardly more than a uniform sample: raise epsilon or bring more records"
            if NOISE_EDGE * noise > 0.1 or wished > 0.5
            else ""
        )
        return (
            f"noise hides directions with less than {NOISE_EDGE * noise:.2g} of the features' variance, which is below "
            f"1; the consumer's mean carries noise of deviation {wished:.2g} in each direction, in a ball of radius 1"
            f"{useless}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        notes = [self.describe_kernel(self.width(consortium))]
        if not self.discloses:
            return (
                *notes,
                "no record leaves: owners keep the weights of their own records, and everyone has the ratio",
            )
        notes.append(
            f"the curator sees exactly the {self.records} records that are asked for (parsimony 1); an owner sends its "
            "quota to the record, and the quota of an owner that drops out is not given to others"
        )
        if self.deliver == "hashes":
            notes.append(
                "hashes are made under a seed that consumer and owners share. The curator learns the labels and the "
                "inner products of the chosen records' features, so their distances; anyone with the seed can compute "
                "the records"
            )
        return tuple(notes)


def _pad_spectrum(spectrum: Spectrum) -> dict[str, Floats]:
    """A spectrum in its declared form, with zeros for directions that were not kept."""
    axes, variances = np.zeros((len(spectrum.mean), MAX_RANK)), np.zeros(MAX_RANK)
    axes[:, : spectrum.rank], variances[: spectrum.rank] = spectrum.axes, spectrum.variances
    return {"mean": spectrum.mean, "axes": axes, "variances": variances}


def _drop_padding(padded: Mapping[str, Floats]) -> Spectrum:
    kept = padded["variances"] > 0
    return Spectrum(padded["mean"], padded["axes"][:, kept], padded["variances"][kept])


def _read_spectrum(received: Mapping[str, Floats]) -> Spectrum:
    """The spectrum that a coordinator sent, clip_received to public ranges: a site's values are then bounded record by
    record, whatever was sent."""
    return _drop_padding(received).in_range()
