"""What all three forms of the summary share: roles, public sizes, the form of records that are handed over, and what
curator and consumer are presented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context, Decimal
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval, MultipleOf
from numpy.typing import NDArray

from comity.data import Classes, Encoding, LocalRecords, Records, Schema
from comity.errors import Refused, StudyError
from comity.federation.constraints import Positive
from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.protection import Noised, Sealed
from comity.federation.declare.release import Array, Blob, Release
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.declared_records import Sizes, check_sizes, size_of, sum_sizes, warn_owner
from comity.methods.summary.features import LENGTH
from comity.privacy.loss import GDP
from comity.privacy.mechanisms import Gaussian
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.federation.evaluation.assessment import Assessment
    from comity.federation.evaluation.own_score import OwnScore
    from comity.methods.summary.artefact import Basis, Bought, BoughtRecords

Floats = NDArray[np.float64]

AtLeastOne = Annotated[int, Interval(ge=1)]
Features = Annotated[int, Interval(ge=2, le=2000), MultipleOf(2)]
"""Cosines and sines come in pairs."""
Payment = Annotated[float, Interval(ge=0, lt=inf)]
Labels = Literal["<i8", "<f8"]
"""The type of a record's label: a class, or a number."""

OWNER, CONSUMER = "owner", "consumer"
# Sums have room for parties with this many times their declared records; larger sums are shrunk. It decides the width
# of integers and moves no noise: a limit of size.
HEADROOM = 2
_KEY = "summary.sizes"


def release_wish(loss: GDP, width: int, bound: RecordSum) -> Release:
    """The noisy sum of the consumer's features, `width` of them."""
    return Release(
        name="wish",
        source=CONSUMER,
        to=COORDINATOR,
        protection=Noised(Gaussian(loss)),
        form=Array((width,), "<i8"),
        bound=bound,
    )


def release_seed() -> Release:
    """The seed of hashes, from the consumer to every owner."""
    return Release(
        name="seed",
        source=CONSUMER,
        to=OWNER,
        protection=Sealed("the seed of the hashes, which the curator does not know"),
        form=Blob(32),
    )


_SEED = "summary.hash_seed"


@dataclass(frozen=True, kw_only=True, eq=False)
class SummaryProtocol(Protocol):
    """Base of the one-shot summary and of both auctions.

    `columns` is the width of an encoded row. `labels` is the type of the labels, None where records have none. `gamma`
    is that of the kernel, and `width_from` says for the plan what it was chosen by.
    """

    name: ClassVar[str] = "summary"
    version: ClassVar[int] = 3
    roles: ClassVar[tuple[str, ...]] = (OWNER, CONSUMER)
    has_record_errors: ClassVar[bool] = False

    columns: int
    gamma: Positive
    sizes: Sizes
    records: AtLeastOne
    labels: Labels | None
    payment: Payment
    width_from: str
    image: tuple[int, int] | None
    encoding: Encoding | None = field(repr=False)

    @property
    def makes(self) -> str:
        return "a choice of records that resemble the consumer's"

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

    @property
    def stackable(self) -> bool:
        return False

    def count_owned(self, consortium: Consortium) -> int:
        """The declared records of all owners."""
        return sum_sizes(self.sizes, consortium.among(OWNER))

    def count_wished(self, consortium: Consortium) -> int:
        """The declared records of the consumer."""
        return size_of(self.sizes, find_consumer(consortium))

    def check_terms(self, consortium: Consortium, records: int) -> None:
        """Refuse terms on which no form of the method holds; `records` is how many the owners are to hand over."""
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'summary protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        if consortium.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                f'summary protects records that are replaced; found privacy.neighbours = "{consortium.neighbours}". '
                'Set privacy.neighbours = "replace": sizes are public, because they cap the quotas',
                key="privacy.neighbours",
            )
        find_consumer(consortium)
        if not self.sizes:
            raise StudyError(
                "summary.sizes is missing: the study must state how many records each owner and the consumer have; "
                "add [summary.sizes] with a line NAME = COUNT for each, or one number for all",
                key=_KEY,
            )
        check_sizes(self.sizes, consortium, _KEY)
        owned = self.count_owned(consortium)
        if records > owned:
            raise StudyError(
                f"summary.records = {records} is more than the owners have, {owned} by summary.sizes; lower it",
                key="summary.records",
            )

    # What a site does.

    def warn_owner(self, site: Site) -> None:
        """Log at the site where its records are far from the declared number."""
        warn_owner(site, size_of(self.sizes, site.party), _KEY)

    @step(times=1)
    def deal_seed(self, site: Site) -> None:
        """The consumer draws the seed of the hashes, keeps it, and sends it to the owners."""
        seed = site.secret()
        site.keep(_SEED, seed)
        site.deliver("hash_seed", seed)
        site.send_all(site.consortium.among(OWNER), "seed", seed)

    def seed_at(self, site: Site) -> bytes:
        """The seed of the hashes, at the consumer and at an owner."""
        kept = site.kept(_SEED)
        if kept is not None:
            return bytes(kept)
        seeds = site.received("seed")
        if len(seeds) != 1:
            raise Refused("the consumer has sent no seed for hashes", code="stopped")
        return bytes(next(iter(seeds.values())))

    # What comes out.

    def describe_purchase(
        self, attribution: Mapping[str, Any], consortium: Consortium, *, seen: int, basis: Basis
    ) -> Bought:
        """Who sold how much; `seen` is how many records, or hashes, the curator received."""
        from comity.methods.summary.artefact import Bought

        owners = tuple(consortium.among(OWNER))
        return Bought.of(owners, attribution, payment=self.payment, asked=self.records, seen=seen, basis=basis)

    def present_records(self, summary: Mapping[str, Any], bought: Bought, consortium: Consortium) -> BoughtRecords:
        from comity.methods.summary.artefact import BoughtRecords, RunSetting

        return BoughtRecords(
            summary["rows"],
            summary.get("labels"),
            summary["owners"],
            bought,
            self.presented_schema,
            self.image,
            RunSetting.of(self.gamma, consortium),
        )

    @property
    def presented_schema(self) -> Schema | None:
        """The schema without the identifier, which is neither encoded nor handed over."""
        return None if self.encoding is None else replace(self.encoding.schema, identifier=None)

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.summary.assessment import assess

        return assess(presented, train, test)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.summary.assessment import score_bought

        return score_bought(presented, records)

    # What the plan says.

    def declared_units(self, consortium: Consortium) -> int:
        return self.count_owned(consortium)

    def describe_kernel(self, dimensions: int) -> str:
        return f"kernel: exp(-{self.gamma:.4g} |x - y|^2), its width {self.width_from}; {dimensions} random features"


def find_consumer(consortium: Consortium) -> str:
    """The one consumer. Refuse a consortium with none or several, or with a party that has no role."""
    consumers = consortium.among(CONSUMER) if CONSUMER in consortium.roles else ()
    if len(consumers) != 1:
        raise StudyError(
            f"summary serves one consumer, and {len(consumers)} parties have that role; set [parties.NAME] "
            'role = "consumer" for one of them',
            key="parties",
        )
    idle = [party for party in consortium.parties if not consortium.includes((OWNER, CONSUMER), party)]
    if idle:
        raise StudyError(
            f'{idle[0]!r} has no role; set [parties.{idle[0]}] role = "owner" if it has records to hand over, or '
            '"consumer"',
            key="parties",
        )
    both = [party for party in consumers if party in consortium.roles.get(OWNER, ())]
    if both or len(consortium.among(OWNER)) < 1:
        raise StudyError("summary needs owners, and its consumer can't be one of them; add parties", key="parties")
    return str(consumers[0])


# The loss of an owner is divided over its releases, by μ².

ROUND_DOWN = Context(prec=50, rounding=ROUND_FLOOR)


def subtract_square(whole: GDP, spent: Decimal) -> GDP:
    """What is left of a loss once `spent` of its μ² is. A little less, so the parts never exceed the whole."""
    left = ROUND_DOWN.subtract(whole.square, spent)
    return GDP.squared(ROUND_DOWN.subtract(left, Decimal(1).scaleb(whole.square.adjusted() - 40)))


# The form of records that are handed over.

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Ranges:
    """Public intervals of the entries of rows and of labels; None where no schema declares any."""

    rows: Bounds | None = None
    labels: Bounds | None = None

    @classmethod
    def of(cls, encoding: Encoding | None, *, hashed: bool = False) -> Ranges:
        if encoding is None:
            return cls()
        target = encoding.schema.target
        labels: Bounds | None = None
        if isinstance(target, Classes):
            labels = 0.0, len(target.values) - 1.0
        elif target is not None:
            labels = target.low, target.high
        if hashed:
            return cls((-LENGTH, LENGTH), labels)
        return cls((0.0 if encoding.scaling == "unit" else -1.0, 1.0), labels)


@dataclass(frozen=True)
class ChosenRows:
    """Up to `most` rows of `width` finite numbers. Each has a label of type `labels` where the study has a target, and
    the index of its owner where rows are those of several `owners`.

    Rows and labels lie `within` the ranges that the schema declares. Otherwise a seller could hand over a class that
    does not exist, and readers would take it for an index.
    """

    width: int
    most: int
    labels: str | None
    owners: int = 0
    within: Ranges = Ranges()

    def __str__(self) -> str:
        labels = ", each with a label that the schema allows" if self.labels else ""
        return f"at most {self.most} rows of {self.width} numbers within the schema's bounds{labels}"

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        names = {"rows", *(("labels",) if self.labels else ()), *(("owners",) if self.owners else ())}
        if type(value) is not dict or set(value) != names:
            return False
        rows = value["rows"]
        if not _is_array(rows, "<f8") or rows.ndim != 2 or rows.shape[1] != self.width or len(rows) > self.most:
            return False
        if self.labels and not (_is_array(value["labels"], self.labels) and value["labels"].shape == (len(rows),)):
            return False
        if not _lies_in(rows, self.within.rows) or not _lies_in(value.get("labels"), self.within.labels):
            return False
        if not self.owners:
            return True
        owners = value["owners"]
        return bool(
            _is_array(owners, "<i8") and owners.shape == (len(rows),) and ((owners >= 0) & (owners < self.owners)).all()
        )


def _lies_in(values: Any, interval: Bounds | None) -> bool:
    return values is None or interval is None or bool(((values >= interval[0]) & (values <= interval[1])).all())


def _is_array(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.str == dtype and bool(np.isfinite(value).all())
