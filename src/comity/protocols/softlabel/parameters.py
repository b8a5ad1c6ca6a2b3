"""The `[softlabel]` table of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.federation.protocol import Protocol
from comity.protocols.parameters import Parameters, Setting
from comity.protocols.softlabel.protocol import SoftLabel
from comity.protocols.softlabel.published import PublishedSoftLabel

# Keys that only one of the two variants has.
_OF_PUBLISHED = ("method", "l2", "constants")
_OF_DEFAULT = ("statistic", "records_per_party", "feature_map", "dimensions", "local_l2")


class SoftLabelParameters(Parameters):
    """Local classifiers vote on public records; a global classifier learns from the votes."""

    variant: Literal["default", "published"] = Field(
        "default", description="parties sum a noisy statistic securely; or the method of Hamm, Cao and Belkin (2016)"
    )
    auxiliary: str = Field(description="file of public, unlabelled records, beside the study")
    rows: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    intercept: bool = Field(True, description="append a constant feature, regularised like any other")
    statistic: Literal["auto", "votes", "histograms", "class-sums", "cells", "models"] = Field(
        "auto", description="what is summed; auto chooses from public quantities and the plan says why"
    )
    records_per_party: int | None = Field(
        None, ge=1, description="how many records a party has, declared, never counted; 1 where one may hold one class"
    )
    feature_map: Literal["none", "scaling", "pca", "random"] = Field(
        "none", description="map for votes and histograms, fitted on the public auxiliary records"
    )
    dimensions: int | None = Field(None, ge=1, description="of the pca or random feature map")
    local_l2: float = Field(1e-4, gt=0, description="regularisation of the built-in local classifier")
    method: Literal["vote", "soft", "avg"] = Field("soft", description="published: what the coordinator learns from")
    l2: float = Field(1e-2, gt=0, description="published: regularisation; the noise is scaled by its inverse")
    constants: Literal["tight", "paper"] = Field(
        "tight", description="published: sensitivity as derived, or as printed"
    )

    def public_files(self) -> tuple[str, ...]:
        return (self.auxiliary,)

    def build(self, setting: Setting) -> Protocol:
        target = setting.schema.target
        if not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: softlabel learns classes; declare [target] with classes in the schema",
                key="target",
            )
        foreign = _OF_DEFAULT if self.variant == "published" else _OF_PUBLISHED
        misplaced = [name for name in foreign if name in self.model_fields_set]
        if misplaced:
            other = "default" if self.variant == "published" else "published"
            raise StudyError(
                f'{setting.where}: softlabel.{misplaced[0]} belongs to variant = "{other}", found variant = '
                f'"{self.variant}"; leave one of them out',
                key=f"softlabel.{misplaced[0]}",
            )
        encoding = Encoding(setting.schema, scaling="symmetric", rows=self.rows, intercept=self.intercept)
        auxiliary = encoding.encode_features(setting.read(self.auxiliary), where=self.auxiliary)
        if self.variant == "published":
            return PublishedSoftLabel(
                auxiliary=auxiliary,
                classes=target.values,
                method=self.method,
                l2=self.l2,
                constants=self.constants,
                encoding=encoding,
            )
        return SoftLabel(
            auxiliary=auxiliary,
            classes=target.values,
            statistic=self.statistic,
            records_per_party=self.records_per_party,
            feature_map=self.feature_map,
            dimensions=self.dimensions,
            local_l2=self.local_l2,
            encoding=encoding,
        )
