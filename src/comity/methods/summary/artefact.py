"""What comes out: bought records, hashes of them, or weights for owners' records; and who is paid what."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.artefacts.arrays import read_arrays, write_arrays
from comity.artefacts.artefact import Card
from comity.artefacts.dataset import Dataset
from comity.artefacts.section import Bar, Bars, Grid, Pictures, Section
from comity.data import Encoding, Schema
from comity.errors import DataError, SchemaError
from comity.federation.declare.consortium import Consortium
from comity.methods.summary.features import FeatureMap, FourierFeatures
from comity.methods.summary.protocol import OWNER, find_consumer
from comity.methods.summary.published.hashes import PhasedCosines
from comity.methods.summary.ratio import Ratio, Spectrum
from comity.representation import html_frame, short_repr

_FORMAT: Final = "comity-bought-1"
_PAGE: Final = "bought.json"


Basis = Literal["masses", "bids"]


@dataclass(frozen=True)
class Bought:
    """Who sold how much. For each owner `quotas` has the number of records asked of it, and `shares` its share of the
    value, by noisy masses or winning bids (`basis`).

    `before` and `after` are MMD² between owners and consumer without and with the purchase, estimated from the
    releases; in an auction they are the distance of the consumer from zero and from the summary. `payment` is what is
    paid in all, `asked` the number of records that the study asks for, and `seen` the number of records or hashes that
    the curator received. `bids` are the winning bids of each owner added up, in an auction.
    """

    owners: tuple[str, ...]
    quotas: tuple[int, ...]
    shares: tuple[float, ...]
    before: float
    after: float
    payment: float
    asked: int
    seen: int
    basis: Basis = "masses"
    bids: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        owners: tuple[str, ...],
        released: Mapping[str, Any],
        *,
        payment: float,
        asked: int,
        seen: int,
        basis: Basis = "masses",
    ) -> Self:
        """`released` is the released attribution."""
        before, after = map(float, released["discrepancy"])
        return cls(
            owners,
            tuple(int(quota) for quota in released["quotas"]),
            tuple(float(share) for share in released["shares"]),
            before,
            after,
            payment,
            asked,
            seen,
            basis,
            tuple(float(bid) for bid in released.get("bids", ())),
        )

    @property
    def value(self) -> float:
        """How far the objective falls, estimated from the releases."""
        return self.before - self.after

    @property
    def parsimony(self) -> float:
        """Records that the curator received for each record asked for."""
        return self.seen / self.asked

    def payouts(self) -> tuple[float, ...]:
        """The payment divided by shares of the value, in hundredths that add up to the payment."""
        cents = [math.floor(share * self.payment * 100) for share in self.shares]
        remainders = [share * self.payment * 100 - whole for share, whole in zip(self.shares, cents)]
        left = round(self.payment * 100) - sum(cents)
        for place in sorted(range(len(cents)), key=lambda at: -remainders[at])[: max(0, left)]:
            cents[place] += 1
        return tuple(cent / 100 for cent in cents)

    def grid(self) -> Grid:
        paid = f"Of {self.payment:g} paid. {_BASIS_SENTENCES[self.basis]}"
        if self.bids:
            heads = ("owner", "records", "winning bids, added up", "share of the value", "payout")
            return Grid(heads, tuple(zip(self.owners, self.quotas, self.bids, self.shares, self.payouts())), paid)
        rows = tuple(
            (owner, quota, share, share * self.value, payout)
            for owner, quota, share, payout in zip(self.owners, self.quotas, self.shares, self.payouts())
        )
        return Grid(
            ("owner", "records", "share of the value", "MMD² that it takes away", "payout"),
            rows,
            paid,
        )

    def sentences(self) -> tuple[str, ...]:
        received = (
            f"The curator received {self.seen} records for {self.asked} that were asked for (parsimony "
            f"{self.parsimony:.2f})."
        )
        if self.basis == "bids":
            moves = "falls" if self.after <= self.before else "rises"
            return (
                f"Measured against the consumer's noisy mean, the objective {moves} from {self.before:.4f} without any "
                f"record to {self.after:.4f}.",
                received,
            )
        return (
            f"Estimated from the noisy releases, MMD² between owners and consumer falls from {self.before:.4f} to "
            f"{self.after:.4f} along the directions that noise does not hide.",
            received,
        )

    def save(self, folder: Path) -> None:
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / _PAGE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / _PAGE
        try:
            page = json.loads(path.read_text(encoding="utf-8"))
            if page.pop("format") != _FORMAT:
                raise ValueError("another format")
            owners, quotas, shares = page.pop("owners"), page.pop("quotas"), page.pop("shares")
            if not len(owners) == len(quotas) == len(shares) or not all(isinstance(name, str) for name in owners):
                raise ValueError("a quota and a share for each owner were expected")
            before, after, payment = (float(page.pop(key)) for key in ("before", "after", "payment"))
            asked, seen = (int(page.pop(key)) for key in ("asked", "seen"))
            basis, bids = page.pop("basis", "masses"), tuple(map(float, page.pop("bids", ())))
            if basis not in get_args(Basis):
                raise ValueError("shares are of masses or of bids")
            shares = tuple(map(float, shares))
            if len(bids) not in (0, len(owners)):
                raise ValueError("winning bids of each owner were expected")
            if page or not all(map(math.isfinite, (before, after, payment, *shares, *bids))) or asked < 1:
                raise ValueError("finite figures and no others were expected")
            figures = before, after, payment, asked, seen
            return cls(tuple(owners), tuple(map(int, quotas)), shares, *figures, basis, bids)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}: can't be read ({error!r}); fetch the folder again") from error


_BASIS_SENTENCES: Final[Mapping[Basis, str]] = {
    "masses": "Shares are those of the owners' noisy masses, which is all that is known of them.",
    "bids": "Shares are those of winning bids. Only curator and consumer know them; an owner that is paid by its share "
    "learns it exactly.",
}


Floats = NDArray[np.float64]

_ARRAYS = "arrays.npz"
# The most pictures on a page.
_MAX_PICTURES = 60


@dataclass(frozen=True, eq=False)
class RunSetting:
    """What an assessment needs to know of a run beside the releases: the kernel's gamma, and the indices of owners and
    consumer among the parties."""

    gamma: float
    owners: tuple[int, ...]
    consumer: int

    @classmethod
    def of(cls, gamma: float, consortium: Consortium) -> Self:
        places = {party: place for place, party in enumerate(consortium.parties)}
        owners = tuple(places[owner] for owner in consortium.among(OWNER))
        return cls(gamma, owners, places[find_consumer(consortium)])


@dataclass(frozen=True, eq=False)
class BoughtRows:
    """Rows that were bought, the index of each row's owner (`sellers`), and what was paid for them."""

    place: ClassVar[str] = "data"

    rows: Floats
    labels: NDArray[Any] | None
    sellers: NDArray[np.int64]
    bought: Bought

    def __len__(self) -> int:
        return len(self.rows)

    def save_rows(self, folder: Path, **others: NDArray[Any]) -> None:
        arrays = {"rows": self.rows, "sellers": self.sellers, **others}
        if self.labels is not None:
            arrays["labels"] = self.labels
        write_arrays(folder / _ARRAYS, arrays)
        self.bought.save(folder)


@dataclass(frozen=True, eq=False)
class BoughtRecords(BoughtRows):
    """Real records of the owners. `rows` are encoded.

    `setting` is known only right after a run, where a simulation measures the records.
    """

    __repr__ = short_repr

    kind: ClassVar[str] = "summary"

    schema: Schema | None = None
    image: tuple[int, int] | None = None
    setting: RunSetting | None = None

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records in the form of the schema; columns are numbered if there is none."""
        if self.schema is not None:
            return Encoding(self.schema, scaling="unit").decode(self.rows, self.labels)
        frame = pd.DataFrame(self.rows, columns=[f"x{place}" for place in range(self.rows.shape[1])])
        return frame if self.labels is None else frame.assign(label=self.labels)

    def _repr_html_(self) -> str:
        return html_frame(f"{len(self):,} records of {len(self.bought.owners)} owners", self.frame)

    @property
    def owners(self) -> list[str]:
        """The owner of each record."""
        return [self.bought.owners[place] for place in self.sellers]

    def save(self, folder: Path) -> None:
        self.save_rows(folder, image=np.array(self.image or (), np.int64))
        if self.schema is not None:
            (folder / "schema.toml").write_text(self.schema.to_toml(), encoding="utf-8")
        self.frame.assign(owner=self.owners).to_parquet(folder / "summary.parquet", index=False)

    @classmethod
    def load(cls, folder: Path) -> Self:
        arrays, bought = read_arrays(folder / _ARRAYS), Bought.load(folder)
        try:
            rows, labels, sellers = _read_rows(arrays)
            image = tuple(int(size) for size in arrays["image"])
            if len(rows) and not 0 <= sellers.min() <= sellers.max() < len(bought.owners):
                raise ValueError("sellers are indices of owners")
            schema = Schema.load(folder / "schema.toml") if (folder / "schema.toml").exists() else None
        except (KeyError, ValueError, TypeError, SchemaError) as error:
            raise DataError(f"{folder}: no summary can be read here ({error!r}); fetch the folder again") from error
        return cls(rows, labels, sellers, bought, schema, (image[0], image[1]) if len(image) == 2 else None)

    def card(self) -> Card:
        return Card(
            "summary",
            f"{len(self):,} real records of {len(self.bought.owners)} owners that together look like the consumer's",
            "bought",
            {
                "What it is": "Records as their owners have them, chosen by an exact function of each owner's data and "
                "handed to curator and consumer. Towards these two there is no differential privacy; the guarantee "
                "limits what the owners learn about each other and about the consumer.",
                "Who sold what": " ".join(self.bought.sentences()),
                "Files": "`summary.parquet` (records with their `owner`), `schema.toml`, `bought.json` (quotas and "
                "shares) and `arrays.npz` (encoded rows); opening them runs no code. Use: any program that reads "
                "tables, or `comity.load_artefact(folder)` in Python.",
            },
        )

    def section(self, noise: float | None = None) -> Section:
        plots: tuple[Any, ...] = (_bars(self.bought),)
        if self.image is not None:
            shown = self.rows[:_MAX_PICTURES].reshape(-1, *self.image)
            tiles = tuple(tuple(tuple(float(value) for value in line) for line in one) for one in shown)
            plots = (*plots, Pictures(f"The first {len(tiles)} chosen records", tiles))
        tables: tuple[Grid, ...] = (self.bought.grid(),)
        if self.schema is not None and self.image is None:
            tables = (*tables, *Dataset(self.frame, self.schema).section().tables)
        number = f"{len(self):,} records were bought, exactly as many from each owner as its quota says."
        return Section("What was bought from whom", (number, *self.bought.sentences()), plots, tables)


HashForm = Literal["pairs", "shifted", "cosines"]
"""Cosines and sines without phases, as folders of earlier versions have them; with phases; cosines alone with phases,
as the paper prints them. The order is that of the numbers in saved folders."""


@dataclass(frozen=True, eq=False)
class BoughtHashes(BoughtRows):
    """Features of the owners' records under a seed that the curator does not know, with labels.

    `with_seed` gives the map that made them. Owners and consumer have the seed and can hash their own records too.
    """

    __repr__ = short_repr

    kind: ClassVar[str] = "hashes"

    gamma: float
    columns: int
    form: HashForm = "pairs"

    def with_seed(self, seed: bytes) -> FeatureMap:
        """The map of the hashes; consumer and owners have the seed."""
        from comity.entropy import Stream

        if self.form == "cosines":
            return PhasedCosines.draw(self.columns, self.rows.shape[1], self.gamma, Stream(seed))
        shifted = self.form == "shifted"
        return FourierFeatures.draw(self.columns, self.rows.shape[1], self.gamma, Stream(seed), shifted=shifted)

    def linear_model(self, regularisation: float = 1.0) -> Any:
        """A linear classifier of hashes (scikit-learn's LinearSVC), which is a classifier of records with the Gaussian
        kernel. A curator that saw no record can train it, and anyone with the seed can use it."""
        from sklearn.svm import LinearSVC

        if self.labels is None or len(np.unique(self.labels)) < 2:
            raise DataError(
                "a classifier needs hashes of at least two classes; choose more records, or declare a target"
            )
        return LinearSVC(C=regularisation).fit(self.rows, self.labels)

    def save(self, folder: Path) -> None:
        form = np.array(get_args(HashForm).index(self.form))
        self.save_rows(folder, gamma=np.array(self.gamma), columns=np.array(self.columns), form=form)

    @classmethod
    def load(cls, folder: Path) -> Self:
        arrays, bought = read_arrays(folder / _ARRAYS), Bought.load(folder)
        try:
            rows, labels, sellers = _read_rows(arrays)
            gamma, columns = float(arrays["gamma"]), int(arrays["columns"])
            form = get_args(HashForm)[int(arrays.get("form", np.array(0)))]
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise DataError(f"{folder}: no hashes can be read here ({error!r}); fetch the folder again") from error
        return cls(rows, labels, sellers, bought, gamma, columns, form)

    def card(self) -> Card:
        return Card(
            "hashed summary",
            f"Hashes of {len(self):,} real records of {len(self.bought.owners)} owners",
            "bought",
            {
                "What it is": "Random features under a seed that owners and consumer share. Without the seed they tell "
                "labels and inner products, so the distances between records; with the seed anyone can compute the "
                "records. Towards curator and consumer there is no differential privacy.",
                "Who sold what": " ".join(self.bought.sentences()),
                "Files": "`arrays.npz` (hashes, labels, sellers) and `bought.json`; opening them runs no code. Use: "
                " `comity.load_artefact(folder).linear_model()` in Python.",
            },
        )

    def section(self, noise: float | None = None) -> Section:
        number = f"{len(self):,} hashes of {self.rows.shape[1]} numbers were bought, and no record."
        return Section(
            "What was bought from whom",
            (number, *self.bought.sentences()),
            (_bars(self.bought),),
            (self.bought.grid(),),
        )


@dataclass(frozen=True, eq=False)
class RatioWeights:
    """The released density ratio, which weighs an owner's records for the consumer. No record was handed over, and
    using the ratio costs nothing more."""

    kind: ClassVar[str] = "weights"
    place: ClassVar[str] = "weights"

    features: FourierFeatures
    spectrum: Spectrum
    theta: Floats
    bought: Bought
    schema: Schema | None = None
    setting: RunSetting | None = None

    def weights(self, records: pd.DataFrame | Floats) -> Floats:
        """(n,) importance weights of records or of encoded rows, for an owner's own training."""
        if isinstance(records, pd.DataFrame):
            if self.schema is None:
                raise DataError("this ratio has no schema to encode records with; give encoded rows")
            records = Encoding(self.schema, scaling="unit").encode_features(records)
        return Ratio(self.spectrum, self.theta)(self.features(records))

    def save(self, folder: Path) -> None:
        write_arrays(
            folder / _ARRAYS,
            {
                "frequencies": self.features.frequencies,
                "mean": self.spectrum.mean,
                "axes": self.spectrum.axes,
                "variances": self.spectrum.variances,
                "theta": self.theta,
            },
        )
        self.bought.save(folder)
        if self.schema is not None:
            (folder / "schema.toml").write_text(self.schema.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        arrays, bought = read_arrays(folder / _ARRAYS), Bought.load(folder)
        try:
            mean, axes, variances, theta, frequencies = (
                np.asarray(arrays[name], np.float64) for name in ("mean", "axes", "variances", "theta", "frequencies")
            )
            rank, width = len(variances), len(mean)
            shapes = (axes.shape, theta.shape, 2 * frequencies.shape[1])
            if shapes != ((width, rank), (1 + rank,), width) or not (variances > 0).all():
                raise ValueError("arrays of fitting shapes were expected")
            schema = Schema.load(folder / "schema.toml") if (folder / "schema.toml").exists() else None
        except (KeyError, ValueError, TypeError, IndexError, SchemaError) as error:
            raise DataError(f"{folder}: no weights can be read here ({error!r}); fetch the folder again") from error
        return cls(FourierFeatures(frequencies), Spectrum(mean, axes, variances), theta, bought, schema)

    def card(self) -> Card:
        return Card(
            "importance weights",
            f"A density ratio of consumer to owners along {self.spectrum.rank} directions",
            "learned",
            {
                "What it is": "A clipped linear function of random features, made from noisy releases alone; no record "
                "left its owner. To train for the consumer, multiply an owner's losses by it, at the owner or in a "
                "secure sum.",
                "Who holds what": self.bought.sentences()[0],
                "Files": "`arrays.npz`, `bought.json` and `schema.toml`; opening them runs no code. Use: "
                "`comity.load_artefact(folder).weights(frame)` in Python.",
            },
        )

    def section(self, noise: float | None = None) -> Section:
        directions = f"Weights along {self.spectrum.rank} directions; no record left its owner."
        sentences = (directions, self.bought.sentences()[0])
        return Section("Whose records count", sentences, (_bars(self.bought),), (self.bought.grid(),))


def _read_rows(arrays: Mapping[str, NDArray[Any]]) -> tuple[Floats, NDArray[Any] | None, NDArray[np.int64]]:
    rows, sellers = np.asarray(arrays["rows"], np.float64), np.asarray(arrays["sellers"], np.int64)
    labels = arrays.get("labels")
    if rows.ndim != 2 or sellers.shape != (len(rows),) or (labels is not None and len(labels) != len(rows)):
        raise ValueError("a seller, and a label if there are any, for each row were expected")
    return rows, labels, sellers


def _bars(bought: Bought) -> Bars:
    return Bars(
        "Share of the value by owner",
        "share of the value, estimated with noise" if bought.basis == "masses" else "share of winning bids",
        tuple(Bar(owner, share, ours=False) for owner, share in list(zip(bought.owners, bought.shares))[:20]),
    )
