"""The `[softlabel]` table of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.federation.constraints import Positive
from comity.federation.protocol import Protocol
from comity.methods.method import Method, Only, Setting
from comity.methods.softlabel.protocol import SoftLabel
from comity.methods.softlabel.published.protocol import (
    WHY_NOT_AT_HOME,
    AuxiliaryPrivacy,
    Constants,
    LearnsFrom,
    PublishedSoftLabel,
    read_private,
)
from comity.methods.softlabel.rule import Map, Name


class SoftLabelParameters(Method):
    """Local classifiers vote on public records; a global classifier learns from the votes."""

    table: ClassVar[str] = "softlabel"

    variant: Literal["default", "published"] = Field(
        "default", description="parties sum a noisy statistic securely; or the method of Hamm, Cao and Belkin (2016)"
    )
    auxiliary: str = Field(description="file of public, unlabelled records, beside the study")
    rows: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    intercept: bool = Field(True, description="append a constant feature, regularised like any other")
    statistic: Annotated[Name, Only(variant="default")] = Field(
        "auto", description="what is summed; auto chooses from public quantities and the plan says why"
    )
    records_per_party: Annotated[int | None, Only(variant="default")] = Field(
        None, ge=1, description="how many records a party has, declared, never counted; 1 where one may hold one class"
    )
    feature_map: Annotated[Map, Only(variant="default")] = Field(
        "none", description="map for votes and histograms, fitted on the public auxiliary records"
    )
    dimensions: Annotated[int | None, Only(variant="default", feature_map=("pca", "random"))] = Field(
        None, ge=1, description="of the pca or random feature map"
    )
    local_l2: Annotated[Positive, Only(variant="default")] = Field(
        1e-4, description="regularisation of the built-in local classifier"
    )
    method: Annotated[LearnsFrom, Only(variant="published")] = Field(
        "soft", description="published: what the coordinator learns from"
    )
    l2: Annotated[Positive, Only(variant="published")] = Field(
        1e-2, description="published: regularisation; the noise is scaled by its inverse"
    )
    constants: Annotated[Constants, Only(variant="published")] = Field(
        "tight", description="published: sensitivity as derived, or as printed"
    )
    auxiliary_privacy: Annotated[AuxiliaryPrivacy, Only(variant="published", why=WHY_NOT_AT_HOME)] = Field(
        "public", description="published, soft: private records stay with the coordinator, who votes on them"
    )
    auxiliary_records: Annotated[
        int | None,
        Only(variant="published", auxiliary_privacy="private", why="public records are counted in their file"),
    ] = Field(None, ge=1, description="published: how many private auxiliary records there are; their number is public")

    def files(self) -> Mapping[str, str]:
        # What the content of a private file hashes to would be a release.
        return {} if self.auxiliary_privacy == "private" else {"softlabel.auxiliary": self.auxiliary}

    def declared_records(self, party: str) -> int | None:
        # 1 says that a party may hold a single class, not that it holds a single record.
        return None if self.records_per_party == 1 else self.records_per_party

    def built(self, setting: Setting) -> Protocol:
        target = setting.schema.target
        if not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: softlabel learns classes; declare [target] with classes in the schema",
                key="target",
            )
        encoding = Encoding(setting.schema, scaling="symmetric", rows=self.rows, intercept=self.intercept)
        if self.auxiliary_privacy == "private":
            auxiliary = read_private(setting, self.auxiliary, self.auxiliary_records, encoding)
        else:
            frame = setting.read(self.auxiliary, "softlabel.auxiliary")
            auxiliary = encoding.encode_features(frame, where=f"{setting.where}: softlabel.auxiliary: {self.auxiliary}")
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
