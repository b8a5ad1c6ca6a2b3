"""Summaries in one shot, the default: a density ratio from two noisy releases, and records that each owner chooses by
it.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
where a curator broadcasts a running summary and owners bid record by record. Here the owners release noisy moments of
their features once, and the consumer releases one noisy mean in the few directions that the noise leaves. Everything
else follows from those two. Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from comity.data import Classes, Encoding, LocalRecords, Records, Schema
from comity.data.row_products import clip_received
from comity.entropy import Stream
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import DISCLOSING, PRIVATE, Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Noised, Sealed, Summed
from comity.federation.declare.release import Array, Blob, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.declared_records import Sizes, size_of, warn_owner
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
    split_moments,
    sum_moments,
)
from comity.methods.summary.herding import choose_records
from comity.methods.summary.published.method import Bid, PublishedSummary
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
from comity.methods.summary.terms import (
    CONSUMER,
    HEADROOM,
    OWNER,
    AtLeastOne,
    Chosen,
    Features,
    Payment,
    Within,
    check_terms,
    find_consumer,
)
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP
from comity.privacy.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore

# Options.

Deliver = Literal["records", "hashes", "weights"]


class Summary(Method):
    """Records of many owners, chosen so that together they look like a consumer's.

        method = comity.Summary(schema, records=100, auxiliary=public_records)
        print(method.plan(["north", "south", "clinic"], consumer="clinic", epsilon=1, delta=1e-5))
        bought = method.simulate(frames, consumer="clinic", epsilon=1, delta=1e-5).presented

    It protects each record against the other owners, and the consumer's records against owners and curator. Towards
    curator and consumer there is no differential privacy for the records that owners hand over, unless
    `deliver="weights"`. `variant="published"` is the auction of Sarpatwar et al. (2019), with the guarantee that it
    has."""

    table: ClassVar[str] = "summary"
    counts_sizes: ClassVar[bool] = True

    variant: Literal["default", "published"] = Field(
        "default",
        description="default: as `selection` says; published: an auction that is not private as claimed, to compare",
    )
    selection: Annotated[Literal["one-shot", "auction"], Only(variant="default")] = Field(
        "one-shot",
        description="by a density ratio from noisy moments, at once; or record by record from who bids best for it",
    )
    sizes: dict[str, int] | int = Field(
        default_factory=dict, description="records of each owner and of the consumer, or one number for all; public"
    )
    records: AtLeastOne = Field(100, description="how many are chosen in all")
    deliver: Deliver = Field(
        "records",
        description="what curator and consumer get: chosen records, hashes of them under a seed that the curator does "
        "not know, or nothing but the released weights",
    )
    auxiliary: str | None = Field(
        None,
        description="file of public records beside the study, for the width of the kernel; published: what the summary "
        "begins with, too",
    )
    gamma: Positive | None = Field(
        None, description="of the kernel exp(-gamma |x - y|^2); by auxiliary records or the schema if left out"
    )
    dimensions: int | Literal["auto"] = Field(
        "auto", description="random features; auto: by a public rule, 140 in an auction"
    )
    hash_dimensions: Annotated[Features, Only(deliver="hashes")] = Field(140, description="numbers of a hash")
    payment: Payment = Field(100.0, description="what the payout table divides")
    image: Annotated[tuple[int, int] | None, Only(deliver="records")] = Field(
        None, description="rows and columns where a record is a picture: chosen ones are shown on the page"
    )
    bid_sign: Annotated[Bid, Only(variant="published")] = Field(
        "corrected", description="published only: bids by the objective's marginal gain, or as printed, sign reversed"
    )
    tau: Annotated[AtLeastOne, Only(variant="published")] = Field(
        5, description="published only: rounds as its owner's choice after which a record is asked for anyway"
    )
    auction_epsilon: Annotated[Positive, Only(variant="published")] = Field(
        0.5, description="published only: rank i is asked with probability exp(-auction_epsilon (i - 1))"
    )
    missed: Annotated[Missed, Only(variant="default", selection="auction")] = Field(
        0.05, description="auction only: the chance that the best bidder of a round is not asked"
    )
    ask_share: Annotated[AskShare, Only(variant="default", selection="auction")] = Field(
        0.1, description="auction only: the part of an owner's loss that says whom the curator asks"
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
        encoding = Encoding(setting.schema, scaling="unit")
        target = setting.schema.target
        public = self._public(setting, encoding)
        gamma, why = self._gamma(encoding, public)
        common = Common(
            columns=encoding.width,
            gamma=gamma,
            sizes=self.sizes,
            records=self.records,
            labels=None if target is None else "<i8" if isinstance(target, Classes) else "<f8",
            payment=self.payment,
            width_from=why,
            image=self.image,
            encoding=encoding,
        )
        if self.variant == "default" and self.selection == "one-shot":
            return OneShotSummary(
                deliver=self.deliver,
                dimensions=None if self.dimensions == "auto" else self.dimensions,
                hash_dimensions=self.hash_dimensions,
                **common,
            )
        if self.deliver != "records":
            raise StudyError(
                f'{setting.where}: summary.deliver = "{self.deliver}" needs the default variant with selection = '
                '"one-shot": an auction hands over records; leave one of them out',
                key="summary.deliver",
            )
        dimensions = FEATURES if self.dimensions == "auto" else self.dimensions
        if self.variant == "default":
            return AuctionSummary(dimensions=dimensions, missed=self.missed, ask_share=self.ask_share, **common)
        return PublishedSummary(
            dimensions=dimensions,
            seeds=np.zeros((0, encoding.width)) if public is None else public,
            bid_sign=self.bid_sign,
            tau=self.tau,
            auction_epsilon=self.auction_epsilon,
            **common,
        )

    def _public(self, setting: Setting, encoding: Encoding) -> Floats | None:
        if self.auxiliary is None:
            return None
        frame = setting.read(self.auxiliary, "summary.auxiliary")
        return encoding.encode_features(frame, where=f"{setting.where}: summary.auxiliary: {self.auxiliary}")

    def _gamma(self, encoding: Encoding, public: Floats | None) -> tuple[float, str]:
        if self.gamma is not None:
            return self.gamma, "by the study"
        if public is None:
            return gamma_of_schema(encoding), "by the schema alone; public records of the kind give a better one"
        return gamma_of_records(public), f"by {len(public)} public records"


class Common(TypedDict):
    """What every form of the method is made from."""

    columns: int
    gamma: float
    sizes: Sizes
    records: int
    labels: Literal["<i8", "<f8"] | None
    payment: float
    width_from: str
    image: tuple[int, int] | None
    encoding: Encoding


# What runs.

# The owner's loss is divided over two releases. The consumer spends all of its loss on one.

MASS_SHARE = Decimal("0.05")
"""Part of μ² for an owner's mass: one number, which needs few digits. Settled on MNIST."""
_ROUND_DOWN = Context(prec=50, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Budget:
    moments: GDP
    mass: GDP
    wish: GDP

    @classmethod
    def of(cls, consortium: Consortium) -> Budget:
        whole = gaussian_budget(consortium.loss)
        mass = _ROUND_DOWN.multiply(whole.square, MASS_SHARE)
        # A little less, so that the parts never exceed the whole.
        left = _ROUND_DOWN.subtract(
            _ROUND_DOWN.subtract(whole.square, mass), Decimal(1).scaleb(whole.square.adjusted() - 40)
        )
        return cls(GDP.squared(left), GDP.squared(mass), whole)


# Settled on MNIST at two budgets (400 features at epsilon 1, 140 at 0.3, for 13,500 records); others may
# want others.
MAX_FEATURES, MIN_FEATURES = 400, 40
_PER_RHO, _PER_RECORD = 1.76, 0.0115


def choose_dimensions(records: int, square: float) -> int:
    """An even number of features, for so many records of all owners and a budget of μ² = `square`.

    Noise on D × D moments has eigenvalues up to about D^½·N⁻¹·ρ^−½: the number that keeps it below the directions that
    matter grows as ρ·N², until more features would show nothing new.
    """
    wanted = _PER_RHO * (square / 2) * (_PER_RECORD * records) ** 2
    return max(MIN_FEATURES, 2 * int(min(MAX_FEATURES, wanted) / 2))


def noisy_releases(sizes: Sizes, width: int, consortium: Consortium) -> tuple[Release, ...]:
    """Moments of `width` features over all owners, the consumer's mean in their directions, each owner's mass, and what
    follows from those alone."""
    budget, owners = Budget.of(consortium), len(consortium.among(OWNER))
    most = HEADROOM * max(size_of(sizes, party) for party in consortium.among(OWNER))
    wished = HEADROOM * size_of(sizes, find_consumer(consortium))
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
        Release(
            name="wish",
            source=CONSUMER,
            to=COORDINATOR,
            protection=Noised(Gaussian(budget.wish)),
            form=Array((MAX_RANK,), "<i8"),
            bound=RecordSum(2.0, float(wished), wished),
        ),
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


def disclosing_releases(
    width: int, records: int, labels: Literal["<i8", "<f8"] | None, owners: int, *, within: Within, hashed: bool
) -> tuple[Release, ...]:
    """`records` rows of `width` numbers of all owners together, without differential privacy towards their readers."""
    what = "hashes of its chosen records, from which inner products and so distances follow" if hashed else "records"
    quota = Release(name="quota", source=COORDINATOR, to=OWNER, protection=Derived("mass"), form=Count(records))
    chosen = Release(
        name="chosen",
        source=OWNER,
        to=COORDINATOR,
        protection=Disclosed(
            f"exactly as many {what} as its quota; no differential privacy towards curator and consumer",
            "records_may_leave",
            sealed=True,
        ),
        form=Chosen(width, records, labels, within=within),
    )
    summary = Release(
        name="summary",
        source=COORDINATOR,
        to=(COORDINATOR, CONSUMER),
        protection=Derived("chosen"),
        form=Chosen(width, records, labels, owners, within),
    )
    if not hashed:
        return quota, chosen, summary
    seed = Release(
        name="seed",
        source=CONSUMER,
        to=OWNER,
        protection=Sealed("the seed of the hashes, which the curator does not know"),
        form=Blob(32),
    )
    return seed, quota, chosen, summary


Floats = NDArray[np.float64]

# Rows at a time: a limit of memory.
_ROWS = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class OneShotSummary(Protocol):
    """`records` records of all owners that together look like the consumer's, or the weights that would make them.

    Adversary    up to `colluders` owners that pool what they saw, and whoever sees noisy releases. Towards curator and
                 consumer there is no differential privacy where records or hashes of them are handed over.
    Unit         a record, replaced: sizes are public.
    Learned      owners and consumer: noisy moments' spectrum, the ratio, noisy shares. Curator and consumer: exactly
                 p_i chosen records of owner i, or their hashes.
    Sensitivity  √2·(1 + c²/2) for the sum of (φφᵀ, cφ), 2 for the consumer's sum in the unit ball, B² for an owner's
                 Σ r² (proof.md, 1 to 3).

    `gamma` is the kernel's, by public records or by the schema. `deliver` says what is handed over. `dimensions` is
    left to a public rule where it is None; `payment` is what the payout table divides.
    """

    name: ClassVar[str] = "summary"
    version: ClassVar[int] = 3
    roles: ClassVar[tuple[str, ...]] = (OWNER, CONSUMER)

    columns: int
    gamma: Positive
    sizes: Sizes = field(default_factory=dict)
    records: AtLeastOne = 100
    deliver: Deliver = "records"
    labels: Literal["<i8", "<f8"] | None = None
    dimensions: Features | None = None
    hash_dimensions: Features = 140
    payment: Payment = 100.0
    width_from: str = "given"
    image: tuple[int, int] | None = None
    encoding: Encoding | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns < 1 or (self.encoding is not None and self.encoding.width != self.columns):
            raise StudyError(f"columns must be the width of an encoded row, at least 1, found {self.columns}")
        if self.image is not None and self.image[0] * self.image[1] != self.columns:
            raise StudyError(
                f"summary.image = {list(self.image)} is no picture of {self.columns} numbers: rows times columns must "
                "be the width of an encoded record",
                key="summary.image",
            )

    # What the study fixes.

    @property
    def stackable(self) -> bool:
        return False

    def width(self, consortium: Consortium) -> int:
        """D: how many features, by the study or by a public rule."""
        if self.dimensions is not None:
            return self.dimensions
        return choose_dimensions(self.held(consortium), float(gaussian_budget(consortium.loss).square))

    def held(self, consortium: Consortium) -> int:
        """The records of all owners, as the study says."""
        return sum(size_of(self.sizes, party) for party in consortium.among(OWNER))

    def features(self, consortium: Consortium) -> FourierFeatures:
        """The public map; its seed is a label that everybody knows."""
        return self._drawn(self.width(consortium))

    @cached_property
    def _maps(self) -> dict[int, FourierFeatures]:
        return {}

    def _drawn(self, width: int) -> FourierFeatures:
        if width not in self._maps:
            stream = Stream.public("summary features", self.columns, width)
            self._maps[width] = FourierFeatures.drawn(self.columns, width, self.gamma, stream)
        return self._maps[width]

    def hashing(self, seed: bytes) -> FourierFeatures:
        """The map of hashes, whose seed owners and consumer keep from the curator."""
        return FourierFeatures.drawn(self.columns, self.hash_dimensions, self.gamma, Stream(seed))

    def titled(self, consortium: Consortium) -> str:
        return f"summary (one-shot, {self.width(consortium)} features, delivers {self.deliver})"

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        check_terms(consortium, self.sizes, 0 if self.deliver == "weights" else self.records)
        releases = (
            *noisy_releases(self.sizes, self.width(consortium), consortium),
            *self._handed_over(len(consortium.among(OWNER))),
        )
        return Declaration(
            releases, adversary=self._adversary(consortium), claim=DISCLOSING if self._discloses else PRIVATE
        )

    @property
    def _discloses(self) -> bool:
        return self.deliver != "weights"

    def _handed_over(self, owners: int) -> tuple[Release, ...]:
        if not self._discloses:
            return ()
        hashed = self.deliver == "hashes"
        width = self.hash_dimensions if hashed else self.columns
        within = Within.of(self.encoding, hashed=hashed)
        return disclosing_releases(width, self.records, self.labels, owners, within=within, hashed=hashed)

    def _adversary(self, consortium: Consortium) -> str:
        owners = len(consortium.among(OWNER))
        if not self._discloses:
            return (
                f"whoever sees the noisy releases, curator and consumer included, with up to {consortium.colluders} of "
                f"{owners} owners"
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
        total = parties.sum(self.moments)
        seen = self._spectrum(total.value, total.names or owners, consortium)
        sent = _pad_spectrum(seen)
        wish = parties.sum(self.wish, spectrum=sent).value[: seen.rank]
        mean, variance = self._wished(seen, wish, consortium)
        theta = fit_ratio(mean, variance)
        padded = np.zeros(1 + MAX_RANK)
        padded[: len(theta)] = theta
        masses = self._masses(parties, sent, padded)
        released: dict[str, Any] = {"spectrum": sent, "ratio": padded}
        shares = {owner: max(0.0, mass) for owner, mass in masses.items()}
        whole = sum(shares.values())
        dealt: dict[str, int] = {}
        if self.deliver != "weights":
            dealt = allot_quotas(masses, {owner: size_of(self.sizes, owner) for owner in masses}, self._asked(masses))
            released["summary"] = self._summary(parties, dealt, owners)
        released["attribution"] = {
            "quotas": np.array([dealt.get(owner, 0) for owner in owners], "<i8"),
            "shares": np.array([shares.get(owner, 0.0) / whole if whole else 1 / len(owners) for owner in owners]),
            "discrepancy": np.array(estimate_discrepancies(seen, theta, mean, variance)),
        }
        return released

    def _asked(self, masses: Mapping[str, float]) -> int:
        """As many as the study says, or as the owners that are left have by its figures."""
        return min(self.records, sum(size_of(self.sizes, owner) for owner in masses))

    def _spectrum(self, total: Floats, names: Sequence[str], consortium: Consortium) -> Spectrum:
        """Divided by the public sizes of the owners in the sum."""
        width, count = self.width(consortium), sum(size_of(self.sizes, name) for name in names)
        product, mean = split_moments(total, width)
        deviation = self._moment_deviation(consortium, len(names)) / sqrt(2)
        return denoise_spectrum(product / count, mean / count, deviation / count)

    def _moment_deviation(self, consortium: Consortium, owners: int) -> float:
        """Of the noise on the diagonal of Σφφᵀ."""
        return self.declared(consortium).accept(consortium)["moments"].opened_deviation(consortium, owners)

    def _wished(self, seen: Spectrum, wish: Floats, consortium: Consortium) -> tuple[Floats, Floats]:
        """The consumer's mean in whitened coordinates, and the variance of its noise in each."""
        count = size_of(self.sizes, find_consumer(consortium))
        deviation = np.full(seen.rank, self.declared(consortium)["wish"].opened_deviation(consortium) / count)
        return seen.from_ball(wish / count), seen.from_ball(deviation) ** 2

    def _masses(self, parties: Parties, sent: Mapping[str, Floats], theta: Floats) -> dict[str, float]:
        consortium = parties.consortium
        release = parties.declaration["mass"]
        grid = release.spacing(consortium)
        asked = [owner for owner in consortium.among(OWNER) if owner in parties.alive]
        got = parties.ask(self.weigh, to=asked, need=release.min_parties(consortium), spectrum=sent, ratio=theta)
        return {owner: float(values["mass"][0] * grid) for owner, values in got.items()}

    def _summary(self, parties: Parties, dealt: Mapping[str, int], owners: Sequence[str]) -> dict[str, Any]:
        consortium = parties.consortium
        if self.deliver == "hashes":
            parties.ask(self.deal_seed, to=[find_consumer(consortium)])

        def counted(owner: str, values: Mapping[str, Any]) -> None:
            if len(values["chosen"]["rows"]) != dealt[owner]:
                raise Malformed(f"{owner} was asked for {dealt[owner]} records and sent another number", code="form")

        each = {owner: {"quota": quota} for owner, quota in dealt.items()}
        got = parties.ask(self.choose, each=each, need=max(1, len(each) - consortium.dropouts), valid=counted)
        places = {owner: place for place, owner in enumerate(owners)}
        found = {owner: values["chosen"] for owner, values in got.items()}
        made = {"rows": np.concatenate([one["rows"] for one in found.values()])}
        if self.labels:
            made["labels"] = np.concatenate([one["labels"] for one in found.values()])
        made["owners"] = np.concatenate(
            [np.full(len(one["rows"]), places[owner], "<i8") for owner, one in found.items()]
        )
        return made

    # What a site does.

    @step(sends="moments")
    def moments(self, site: Site) -> None:
        self._enough(site)
        features = self.features(site.consortium)
        site.contribute(site.total(lambda rows: sum_moments(rows.features, features)))

    def _enough(self, site: Site) -> None:
        """Before anything is drawn: an owner that has fewer records than the study says could not fill its quota."""
        declared = size_of(self.sizes, site.party)
        warn_owner(site, declared, "summary.sizes")
        if self.deliver != "weights" and len(site.records) < min(declared, self.records):
            raise Refused(
                f"{site.party} has {len(site.records)} records, and summary.sizes says {declared}: it could be asked "
                "for more than it has; have the study corrected",
                code="stopped",
            )

    @step(sends="wish")
    def wish(self, site: Site, spectrum: Mapping[str, Floats]) -> None:
        warn_owner(site, size_of(self.sizes, site.party), "summary.sizes")
        seen, features = _read_spectrum(spectrum), self.features(site.consortium)

        def wished(rows: Floats) -> Floats:
            total = np.zeros(_MOST)
            for start in range(0, len(rows), _ROWS):
                total[: seen.rank] += seen.in_ball(features(rows[start : start + _ROWS])).sum(axis=0)
            return total

        site.contribute(site.total(lambda rows: wished(rows.features)))

    @step(sends="mass")
    def weigh(self, site: Site, spectrum: Mapping[str, Floats], ratio: Floats) -> None:
        weights = self._ratio(site, _read_spectrum(spectrum), ratio)
        site.keep("weighed", {"spectrum": dict(spectrum), "ratio": ratio})
        if self.deliver == "weights":
            site.deliver("weights", weights)
        site.contribute(np.array([float(weights @ weights)]))

    def _ratio(self, site: Site, seen: Spectrum, theta: Floats) -> Floats:
        """r of each of this owner's records."""
        found, features = _read_ratio(seen, theta), self.features(site.consortium)
        rows = site.features
        parts = [found(features(rows[start : start + _ROWS])) for start in range(0, len(rows), _ROWS)]
        return np.concatenate([np.zeros(0), *parts])

    @step(times=1)
    def deal_seed(self, site: Site) -> None:
        seed = site.secret()
        site.deliver("hash_seed", seed)
        site.send_all(site.consortium.among(OWNER), "seed", seed)

    @step(gives=("chosen",))
    def choose(self, site: Site, quota: int) -> dict[str, Any]:
        weighed = site.kept("weighed")
        if weighed is None:
            raise Refused("records are chosen after they were weighed", code="undeclared")
        rows, seen = site.features, _read_spectrum(weighed["spectrum"])
        places = choose_records(
            rows,
            self._ratio(site, seen, weighed["ratio"]),
            quota,
            features=self.features(site.consortium),
            spectrum=seen,
            gamma=self.gamma,
            stream=Stream(site.secret()),
            classes=np.asarray(site.labels, np.int64) if self.labels == "<i8" else None,
        )
        given = np.ascontiguousarray(rows[places], "<f8")
        if self.deliver == "hashes":
            seeds = site.received("seed")
            if len(seeds) != 1:
                raise Refused("the consumer has sent no seed for hashes", code="stopped")
            given = self.hashing(next(iter(seeds.values())))(given)
        found: dict[str, Any] = {"rows": given}
        if self.labels:
            found["labels"] = np.ascontiguousarray(site.labels[places], self.labels)
        return {"chosen": found}

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """What the study delivers; KeyError for a receiver that was not sent it."""
        from comity.methods.summary.artefact import Bought, BoughtHashes, BoughtRecords, RatioWeights, RunSetting

        summary: dict[str, Any] = {"rows": ()} if self.deliver == "weights" else released["summary"]
        bought = Bought.of(
            tuple(consortium.among(OWNER)),
            released["attribution"],
            payment=self.payment,
            asked=self.records,
            seen=len(summary["rows"]),
        )
        setting = RunSetting.of(self.gamma, consortium)
        # Identifiers are neither encoded nor handed over.
        schema = None if self.encoding is None else replace(self.encoding.schema, identifier=None)
        if self.deliver == "weights":
            sent = released["spectrum"]
            kept = sent["variances"] > 0
            spectrum = Spectrum(sent["mean"], sent["axes"][:, kept], sent["variances"][kept])
            theta = np.asarray(released["ratio"][: 1 + spectrum.rank], np.float64)
            return RatioWeights(self.features(consortium), spectrum, theta, bought, schema, setting)
        rows, labels, sellers = summary["rows"], summary.get("labels"), summary["owners"]
        if self.deliver == "hashes":
            return BoughtHashes(rows, labels, sellers, bought, self.gamma, self.columns)
        return BoughtRecords(rows, labels, sellers, bought, schema, self.image, setting)

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.summary.assessment import assess

        return assess(presented, train, test)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.summary.assessment import score_bought

        return score_bought(presented, records)

    # What the plan says.

    def protected(self, consortium: Consortium) -> int:
        return self.held(consortium)

    def expectation(self, consortium: Consortium) -> str:
        width, count = self.width(consortium), self.held(consortium)
        noise = self._moment_deviation(consortium, len(consortium.among(OWNER))) / sqrt(2) * sqrt(width) / count
        wished = self.declared(consortium)["wish"].opened_deviation(consortium) / size_of(
            self.sizes, find_consumer(consortium)
        )
        useless = (
            ", so expect hardly more than a uniform sample: raise epsilon or bring more records"
            if NOISE_EDGE * noise > 0.1 or wished > 0.5
            else ""
        )
        return (
            f"directions with less than {NOISE_EDGE * noise:.2g} of the features' variance, which is below 1, are "
            f"lost in noise; the consumer's mean carries {wished:.2g} in each direction, of a ball of radius 1{useless}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        found = [
            f"kernel: exp(-{self.gamma:.4g} |x - y|^2), its width {self.width_from}; {self.width(consortium)} random "
            "features"
        ]
        if self.deliver == "weights":
            return (
                *found,
                "no record leaves: owners keep the weights of their own records, and everyone has the ratio",
            )
        found.append(
            f"the curator sees exactly {self.records} records, {self.records} are asked for (parsimony 1); an owner "
            "sends its quota to the record, and a shortage is never dealt again"
        )
        if self.deliver == "hashes":
            found.append(
                "hashes are made under a seed that consumer and owners share: the curator learns inner products of the "
                "chosen records' features, so their distances, and their labels; whoever has the seed has the records"
            )
        return tuple(found)


_MOST = MAX_RANK


def _pad_spectrum(seen: Spectrum) -> dict[str, Floats]:
    """A spectrum in its declared form, directions that are not kept being zero."""
    axes, variances = np.zeros((len(seen.mean), _MOST)), np.zeros(_MOST)
    axes[:, : seen.rank], variances[: seen.rank] = seen.axes, seen.variances
    return {"mean": seen.mean, "axes": axes, "variances": variances}


def _read_spectrum(sent: Mapping[str, Floats]) -> Spectrum:
    """Whatever a coordinator sends, in public ranges: what a site makes of it is bounded record by record."""
    kept = sent["variances"] > 0
    return Spectrum(sent["mean"], sent["axes"][:, kept], sent["variances"][kept]).in_range()


def _read_ratio(seen: Spectrum, theta: Floats) -> Ratio:
    return Ratio(seen, clip_received(theta[: 1 + seen.rank]))
