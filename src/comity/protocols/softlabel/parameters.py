"""The `[softlabel]` table of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.federation.protocol import Protocol
from comity.protocols.parameters import Parameters, Setting
from comity.protocols.softlabel.private_auxiliary import WHY_NOT_AT_HOME, read_private
from comity.protocols.softlabel.protocol import SoftLabel
from comity.protocols.softlabel.published import PublishedSoftLabel

# Keys that only one of the two variants has.
_OF_PUBLISHED = ("method", "l2", "constants", "auxiliary_privacy", "auxiliary_records")
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
    auxiliary_privacy: Literal["public", "private"] = Field(
        "public", description="published, soft: private records stay with the coordinator, who votes on them"
    )
    auxiliary_records: int | None = Field(
        None, ge=1, description="published: how many private auxiliary records there are; their number is public"
    )

    def public_files(self) -> tuple[str, ...]:
        # What the content of a private file hashes to would be a release.
        return () if self.auxiliary_privacy == "private" else (self.auxiliary,)

    def declared_records(self, party: str) -> int | None:
        # 1 says that a party may hold a single class, not that it holds a single record.
        return None if self.records_per_party == 1 else self.records_per_party

    def build(self, setting: Setting) -> Protocol:
        target = setting.schema.target
        if not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: softlabel learns classes; declare [target] with classes in the schema",
                key="target",
            )
        hidden = self.auxiliary_privacy == "private"
        if hidden and self.variant == "default":
            raise StudyError(
                f'{setting.where}: softlabel.auxiliary_privacy = "private" is not for variant = "default": '
                f"{WHY_NOT_AT_HOME}",
                key="softlabel.auxiliary_privacy",
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
        if hidden:
            auxiliary = read_private(setting, self.auxiliary, self.auxiliary_records, encoding)
        elif self.auxiliary_records is not None:
            raise StudyError(
                f"{setting.where}: softlabel.auxiliary_records is for private auxiliary records; public ones are "
                "counted in their file. Leave it out",
                key="softlabel.auxiliary_records",
            )
        else:
            auxiliary = encoding.encode_features(setting.read(self.auxiliary), where=self.auxiliary)
        if self.variant == "published":
            return PublishedSoftLabel(
                auxiliary=auxiliary,
                classes=target.values,
                method=self.method,
                l2=self.l2,
                constants=self.constants,
                auxiliary_privacy=self.auxiliary_privacy,
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
