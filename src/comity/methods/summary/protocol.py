"""Summaries in one shot, the default: a density ratio from two noisy releases, and records chosen by it at home.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
where a curator broadcasts a running summary and owners bid record by record. Here owners open noisy moments of their
features once, the consumer one noisy mean in the few directions that they leave, and everything else follows from
those. Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.data import Encoding, LocalRecords, Records
from comity.data.row_products import clipped
from comity.entropy import Stream
from comity.errors import Malformed, Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import DISCLOSING, PRIVATE, Declaration, Release
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.declared_records import tell_owner
from comity.methods.summary import dimensions as rule
from comity.methods.summary import home, moments, ratio, spectrum
from comity.methods.summary.constraints import AtLeastOne, Features, Payment
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.forms import Within
from comity.methods.summary.quotas import quotas
from comity.methods.summary.releases import handed_over, noisy_releases
from comity.methods.summary.sizes import CONSUMER, OWNER, check_terms, consumer_of
from comity.privacy.accounting import gaussian_budget

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore

Floats = NDArray[np.float64]
Deliver = Literal["records", "hashes", "weights"]

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
    sizes: Mapping[str, int] = field(default_factory=dict)
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

    def width(self, who: Consortium) -> int:
        """D: how many features, by the study or by a public rule."""
        if self.dimensions is not None:
            return self.dimensions
        return rule.dimensions(self.held(who), float(gaussian_budget(who.loss).square))

    def held(self, who: Consortium) -> int:
        """The records of all owners, as the study says."""
        return sum(self.sizes[party] for party in who.among(OWNER))

    def features(self, who: Consortium) -> FourierFeatures:
        """The public map; its seed is a label that everybody knows."""
        return self._drawn(self.width(who))

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

    def titled(self, who: Consortium) -> str:
        return f"summary (one-shot, {self.width(who)} features, delivers {self.deliver})"

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        check_terms(who, self.sizes, 0 if self.deliver == "weights" else self.records)
        releases = (*noisy_releases(self.sizes, self.width(who), who), *self._handed_over(len(who.among(OWNER))))
        return Declaration(releases, adversary=self._adversary(who), claim=DISCLOSING if self._discloses else PRIVATE)

    @property
    def _discloses(self) -> bool:
        return self.deliver != "weights"

    def _handed_over(self, owners: int) -> tuple[Release, ...]:
        if not self._discloses:
            return ()
        hashed = self.deliver == "hashes"
        width = self.hash_dimensions if hashed else self.columns
        within = Within.of(self.encoding, hashed=hashed)
        return handed_over(width, self.records, self.labels, owners, within=within, hashed=hashed)

    def _adversary(self, who: Consortium) -> str:
        owners = len(who.among(OWNER))
        if not self._discloses:
            return (
                f"whoever sees the noisy releases, curator and consumer included, with up to {who.colluders} of "
                f"{owners} owners"
            )
        return (
            f"up to {who.colluders} of {owners} owners that pool what they saw, and the consumer's records against "
            "them and the curator; towards curator and consumer there is no differential privacy for the "
            f"{'records' if self.deliver == 'records' else 'hashes of records'} that an owner hands over"
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        who = parties.consortium
        owners = who.among(OWNER)
        total = parties.sum(self.moments)
        seen = self._spectrum(total.value, total.names or owners, who)
        sent = _sent(seen)
        wish = parties.sum(self.wish, spectrum=sent).value[: seen.rank]
        mean, variance = self._wished(seen, wish, who)
        theta = ratio.fitted(mean, variance)
        padded = np.zeros(1 + spectrum.MOST)
        padded[: len(theta)] = theta
        masses = self._masses(parties, sent, padded)
        released: dict[str, Any] = {"spectrum": sent, "ratio": padded}
        shares = {owner: max(0.0, mass) for owner, mass in masses.items()}
        whole = sum(shares.values())
        dealt: dict[str, int] = {}
        if self.deliver != "weights":
            dealt = quotas(masses, {owner: self.sizes[owner] for owner in masses}, self._asked(masses))
            released["summary"] = self._summary(parties, dealt, owners)
        released["attribution"] = {
            "quotas": np.array([dealt.get(owner, 0) for owner in owners], "<i8"),
            "shares": np.array([shares.get(owner, 0.0) / whole if whole else 1 / len(owners) for owner in owners]),
            "discrepancy": np.array(ratio.discrepancies(seen, theta, mean, variance)),
        }
        return released

    def _asked(self, masses: Mapping[str, float]) -> int:
        """As many as the study says, or as the owners that are left have by its figures."""
        return min(self.records, sum(self.sizes[owner] for owner in masses))

    def _spectrum(self, total: Floats, names: Sequence[str], who: Consortium) -> spectrum.Spectrum:
        """Divided by the public sizes of the owners in the sum."""
        width, count = self.width(who), sum(self.sizes[name] for name in names)
        product, mean = moments.opened(total, width)
        deviation = self._moment_deviation(who, len(names)) / sqrt(2)
        return spectrum.denoised(product / count, mean / count, deviation / count)

    def _moment_deviation(self, who: Consortium, owners: int) -> float:
        """Of the noise on the diagonal of Σφφᵀ."""
        return self.declared(who).accept(who)["moments"].opened_deviation(who, owners)

    def _wished(self, seen: spectrum.Spectrum, wish: Floats, who: Consortium) -> tuple[Floats, Floats]:
        """The consumer's mean in whitened coordinates, and the variance of its noise in each."""
        count = self.sizes[consumer_of(who)]
        deviation = np.full(seen.rank, self.declared(who)["wish"].opened_deviation(who) / count)
        return seen.from_ball(wish / count), seen.from_ball(deviation) ** 2

    def _masses(self, parties: Parties, sent: Mapping[str, Floats], theta: Floats) -> dict[str, float]:
        who = parties.consortium
        release = parties.declaration["mass"]
        grid = release.spacing(who)
        asked = [owner for owner in who.among(OWNER) if owner in parties.alive]
        got = parties.ask(self.weigh, to=asked, need=release.min_parties(who), spectrum=sent, ratio=theta)
        return {owner: float(values["mass"][0] * grid) for owner, values in got.items()}

    def _summary(self, parties: Parties, dealt: Mapping[str, int], owners: Sequence[str]) -> dict[str, Any]:
        who = parties.consortium
        if self.deliver == "hashes":
            parties.ask(self.deal_seed, to=[consumer_of(who)])

        def counted(owner: str, values: Mapping[str, Any]) -> None:
            if len(values["chosen"]["rows"]) != dealt[owner]:
                raise Malformed(f"{owner} was asked for {dealt[owner]} records and sent another number", code="form")

        each = {owner: {"quota": quota} for owner, quota in dealt.items()}
        got = parties.ask(self.choose, each=each, need=max(1, len(each) - who.dropouts), valid=counted)
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
        site.contribute(site.total(lambda rows: moments.summed(rows.features, features)))

    def _enough(self, site: Site) -> None:
        """Before anything is drawn: an owner that has fewer records than the study says could not fill its quota."""
        declared = self.sizes[site.party]
        tell_owner(site, declared, "summary.sizes")
        if self.deliver != "weights" and len(site.records) < min(declared, self.records):
            raise Refused(
                f"{site.party} has {len(site.records)} records, and summary.sizes says {declared}: it could be asked "
                "for more than it has; have the study corrected",
                code="stopped",
            )

    @step(sends="wish")
    def wish(self, site: Site, spectrum: Mapping[str, Floats]) -> None:
        tell_owner(site, self.sizes[site.party], "summary.sizes")
        seen, features = _read(spectrum), self.features(site.consortium)

        def wished(rows: Floats) -> Floats:
            total = np.zeros(_MOST)
            for start in range(0, len(rows), _ROWS):
                total[: seen.rank] += seen.in_ball(features(rows[start : start + _ROWS])).sum(axis=0)
            return total

        site.contribute(site.total(lambda rows: wished(rows.features)))

    @step(sends="mass")
    def weigh(self, site: Site, spectrum: Mapping[str, Floats], ratio: Floats) -> None:
        weights = self._ratio(site, _read(spectrum), ratio)
        site.keep("weighed", {"spectrum": dict(spectrum), "ratio": ratio})
        if self.deliver == "weights":
            site.deliver("weights", weights)
        site.contribute(np.array([float(weights @ weights)]))

    def _ratio(self, site: Site, seen: spectrum.Spectrum, theta: Floats) -> Floats:
        """r of each of this owner's records."""
        found, features = _ratio_of(seen, theta), self.features(site.consortium)
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
        rows, seen = site.features, _read(weighed["spectrum"])
        places = home.chosen(
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

    def present(self, released: Mapping[str, Any], who: Consortium) -> Any:
        from comity.methods.summary.artefact import presented

        return presented(self, released, who)

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.summary.assessment import assess

        return assess(presented, train, test)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.summary.own_score import score_bought

        return score_bought(presented, records)

    # What the plan says.

    def protected(self, who: Consortium) -> int:
        return self.held(who)

    def expectation(self, who: Consortium) -> str:
        width, count = self.width(who), self.held(who)
        noise = self._moment_deviation(who, len(who.among(OWNER))) / sqrt(2) * sqrt(width) / count
        wished = self.declared(who)["wish"].opened_deviation(who) / self.sizes[consumer_of(who)]
        useless = (
            ", so expect hardly more than a uniform sample: raise epsilon or bring more records"
            if spectrum.EDGE * noise > 0.1 or wished > 0.5
            else ""
        )
        return (
            f"directions with less than {spectrum.EDGE * noise:.2g} of the features' variance, which is below 1, are "
            f"lost in noise; the consumer's mean carries {wished:.2g} in each direction, of a ball of radius 1{useless}"
        )

    def notes(self, who: Consortium) -> tuple[str, ...]:
        found = [
            f"kernel: exp(-{self.gamma:.4g} |x - y|^2), its width {self.width_from}; {self.width(who)} random features"
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


_MOST = spectrum.MOST


def _sent(seen: spectrum.Spectrum) -> dict[str, Floats]:
    """A spectrum in its declared form, directions that are not kept being zero."""
    axes, variances = np.zeros((len(seen.mean), _MOST)), np.zeros(_MOST)
    axes[:, : seen.rank], variances[: seen.rank] = seen.axes, seen.variances
    return {"mean": seen.mean, "axes": axes, "variances": variances}


def _read(sent: Mapping[str, Floats]) -> spectrum.Spectrum:
    """Whatever a coordinator sends, in public ranges: what a site makes of it is bounded record by record."""
    kept = sent["variances"] > 0
    return spectrum.Spectrum(sent["mean"], sent["axes"][:, kept], sent["variances"][kept]).in_range()


def _ratio_of(seen: spectrum.Spectrum, theta: Floats) -> ratio.Ratio:
    return ratio.Ratio(seen, clipped(theta[: 1 + seen.rank]))
