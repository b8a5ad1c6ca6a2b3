"""Joint prediction: scores of new records whose columns different parties hold, without pooling the columns.

    align    (where the schema has an identifier) the common rows of all parties
    seeds    each pair of parties agrees on a fresh mask seed, sealed
    partial  each party sends its masked partial scores to the coordinator; the masks cancel in the sum

Adversary    an honest-but-curious coordinator with up to K − 2 parties, as far as single partial scores are concerned.
Learned      coordinator, and `receiver` where one is named: the exact score of every new record. It has no noise and is
             outside every guarantee; each party's policy must allow that many (`joint_predictions`). Of two parties,
             the one that learns a score knows the other's exact partial score. Every party: the model, of which its
             weights are a part; there is no joint prediction where the coordinator keeps the model to itself.

Without a joint prediction nobody learns a score of others: the model is released to everyone, and each applies it to
its own whole records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.table import Table
from comity.crypto import masks
from comity.data import Bounded, Classes, Encoding, Schema
from comity.errors import DataError, Refused, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import DISCLOSING, Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Public, Sealed
from comity.federation.declare.release import Array, Blob, Count
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.methods.by_columns.alignment import Alignment, common_positions
from comity.methods.by_columns.protocol import release_size

if TYPE_CHECKING:
    from comity.federation.messages.received import Received
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

_PLACES = 24
_LARGEST_SCORE = 2.0**20
MAX_ROWS = 1 << 20
SCORED = "scored"
"""The receiver's own list of the scored records' identifiers, in the order of the scores."""


def describe_prediction(consortium: Consortium) -> str:
    """The plan's sentence on who can apply the model to new records, and what a joint prediction would tell."""
    if not consortium.colluders:
        return (
            "prediction: the coordinator alone has the model and applies it to whole records; not jointly, since a "
            "party that read weights could take its part of the noise off them. privacy.colluders >= 1 gives the model "
            "to everyone"
        )
    exact = "and, of two parties, each one's exact part to the other"
    if consortium.size > 2:
        exact = (
            f"though no party's own part to a coordinator with up to {consortium.size - 2} of {consortium.size} parties"
        )
    return (
        "prediction: the whole model goes to everyone, who applies it to whole records at home; jointly, where parties "
        f"hold parts of a new record, it is NOT private: it tells exact scores, {exact}, and needs "
        "policy.joint_predictions"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class JointPrediction(Protocol):
    """Scores of a released linear model over columns that stay at their parties. `coef` belongs to encoded whole rows.

    `receiver` is a party that gets the scores as the coordinator does, and lists them with its identifiers.
    """

    version: ClassVar[int] = 3
    name: ClassVar[str] = "vertical"
    title: ClassVar[str] = "vertical (joint prediction)"
    needs_compiler: ClassVar[bool] = True

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    coef: Floats
    intercept: bool
    bins: bool
    alignment: str
    max_rows: int
    receiver: str | None = None

    @property
    def makes(self) -> str:
        return "exact scores of new records"

    def __post_init__(self) -> None:
        if len(self.columns) < 2:
            raise StudyError("a joint prediction needs the columns of two parties or more", key="parties")
        if not 1 <= self.max_rows <= MAX_ROWS:
            raise StudyError(f"a joint prediction scores 1 to {MAX_ROWS} new records, found {self.max_rows}")
        if self.coef.shape != (self.encoding.width,) or not np.isfinite(self.coef).all():
            raise StudyError(
                f"the model has weights of shape {self.coef.shape}, its schema encodes {self.encoding.width} features; "
                "give the model and the schema of one study"
            )

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.schema, scaling="symmetric", rows="none", intercept=self.intercept, bins=self.bins)

    def encoding_of(self, party: str) -> Encoding:
        """A party's columns of a new record, which has no label."""
        target = () if self.schema.target is None else (self.schema.target.name,)
        names = tuple(name for name in self.columns[party] if name not in target)
        held = self.schema.restrict(names) if names else replace(self.schema, columns=())
        return Encoding(replace(held, target=None), scaling="symmetric", rows="none", bins=self.bins)

    def weights_of(self, party: str) -> Floats:
        """The weights of a party's own encoded columns."""
        place = {group.column: slice(group.start, group.stop) for group in self.encoding.bounds.groups}
        found = [self.coef[place[group.column]] for group in self.encoding_of(party).bounds.groups]
        return np.concatenate(found) if found else np.zeros(0)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        return {} if self.alignment == "none" else {"align": Alignment(self.alignment)}

    def declare(self, consortium: Consortium) -> Declaration:
        if not consortium.colluders:
            raise Refused(
                "a joint prediction gives each party its weights, and a party that reads the model knows its part of "
                "the noise; the study counts with no colluders: run it again with privacy.colluders = 1 or more",
                code="colluders",
                key="privacy.colluders",
            )
        aligned = self.parts.get("align")
        before = (
            release_size(self.max_rows, "how many new records a party has"),
            Release(
                name="rows",
                source=COORDINATOR,
                to=EVERY_PARTY,
                protection=Public("how many new records there are"),
                form=Count(self.max_rows),
            ),
        )
        return Declaration(
            (
                *(before if aligned is None else aligned.declare(consortium).releases),
                Release(
                    name="mask_seed",
                    source=EVERY_PARTY,
                    to=EVERY_PARTY,
                    protection=Sealed("the seed of a mask"),
                    form=Blob(32),
                ),
                Release(
                    name="masked",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Disclosed(self._disclosure(consortium), "joint_predictions", self.max_rows, sealed=True),
                    form=Array(("rows",), "<u8"),
                ),
                Release(
                    name="scores",
                    source=COORDINATOR,
                    to=COORDINATOR if self.receiver is None else (COORDINATOR, self.receiver),
                    protection=Derived("masked"),
                    form=Array(("rows",)),
                ),
            ),
            adversary="nobody who learns a score; single partial scores hold against an honest-but-curious coordinator "
            f"with up to {consortium.size - 2} of {consortium.size} parties",
            claim=DISCLOSING,
        )

    def _disclosure(self, consortium: Consortium) -> str:
        readers = "the coordinator" if self.receiver is None else f"the coordinator and {self.receiver}"
        exact = f"the exact score of each new record to {readers}, once all parties' numbers are added"
        return exact + (
            ", and of two parties each one's exact partial score to the other" if consortium.size == 2 else ""
        )

    # The coordinator's side.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        aligned = self.parts.get("align")
        if isinstance(aligned, Alignment):
            rows = aligned.coordinate_alignment(parties)
        else:
            sizes = {values["size"] for values in parties.ask(self.count).values()}
            if len(sizes) != 1 or 0 in sizes:
                raise DataError(
                    "the parties have different numbers of new records, or none; give all the same rows in the same "
                    "order, or declare [identifier] in the schema to align them",
                    key="identifier",
                )
            rows = int(sizes.pop())
        parties.ask(self.seeds)
        masked = parties.ask(self.partial, rows=rows)
        total = np.zeros(rows, np.uint64)
        for values in masked.values():
            total += values["masked"]
        offset = self.coef[-1] if self.intercept else 0.0
        return {"scores": total.view(np.int64) * 2.0**-_PLACES + offset}

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Table:
        return self._table(released["scores"], None)

    def present_received(self, found: Received, consortium: Consortium) -> Table:
        """The receiver knows whose scores they are."""
        return self._table(found.releases["scores"], found.own.get(SCORED))

    def _table(self, scores: Floats, ids: list[str] | None) -> Table:
        columns = self._model().predict_table_from_scores(np.asarray(scores, np.float64))
        if ids is not None:
            columns = {str(self.schema.identifier): np.array(ids, object), **columns}
        rows = zip(*(column.tolist() for column in columns.values()))
        return Table(tuple(columns), tuple(rows), "Exact joint predictions, outside every guarantee")

    def _model(self) -> LinearClassifier | LinearRegressor:
        from comity.learn.classifiers import LinearClassifier
        from comity.learn.regressor import LinearRegressor

        target = self.schema.target
        if isinstance(target, Bounded):
            return LinearRegressor(self.coef, target.low, target.high, self.encoding)
        assert isinstance(target, Classes)
        return LinearClassifier(self.coef[None, :], classes=target.values, encoding=self.encoding)

    # At a site.

    @step(gives=("size",))
    def count(self, site: Site) -> dict[str, Any]:
        return {"size": len(site.records)}

    @step()
    def seeds(self, site: Site) -> None:
        for party in site.consortium.parties:
            if site.party < party:
                seed = site.secret()
                site.keep(f"mask.{party}", seed)
                site.send(party, "mask_seed", seed)

    @step(gives=("masked",))
    def partial(self, site: Site, rows: int) -> dict[str, Any]:
        positions = common_positions(site)
        order = None if positions is None else np.concatenate(list(positions))
        features = site.features if order is None else site.features[order]
        weights = self.weights_of(site.party)
        if rows > self.max_rows:
            raise Refused(f"up to {self.max_rows} new records were agreed on, found {rows}", code="policy")
        if features.shape != (rows, len(weights)):
            raise Refused("the new records have another shape than agreed on", code="stopped")
        scores = np.nan_to_num(np.clip(features, -1.0, 1.0)) @ weights
        units = (
            np.rint(np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE) * 2.0**_PLACES).astype(np.int64).view(np.uint64)
        )
        received = site.received("mask_seed")
        for party in site.consortium.parties:
            if party == site.party:
                continue
            seed = site.kept(f"mask.{party}") if site.party < party else received.get(party)
            if seed is None:
                raise Refused("the mask of this run did not arrive", code="sealed")
            (masks.add if site.party < party else masks.subtract)(units, seed)
        ids = site.records.ids if site.party == self.receiver else None
        if ids is not None:
            site.deliver(SCORED, [str(one) for one in (ids if order is None else ids[order])])
        return {"masked": units}
