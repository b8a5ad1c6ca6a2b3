"""The `[softlabel]` table of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.protocols.parameters import Parameters, Setting
from comity.protocols.softlabel.published import PublishedSoftLabel


class SoftLabelParameters(Parameters):
    """Local classifiers vote on public records; a global classifier learns from the votes."""

    variant: Literal["published"] = Field("published", description="the method of Hamm, Cao and Belkin (2016)")
    method: Literal["vote", "soft", "avg"] = Field("soft", description="what the coordinator learns from")
    auxiliary: str = Field(description="file of public, unlabelled records, beside the study")
    l2: float = Field(1e-2, gt=0, description="regularisation; the noise is scaled by its inverse")
    constants: Literal["tight", "paper"] = Field("tight", description="sensitivity as derived, or as printed")
    rows: Literal["scaled", "clipped", "normalised"] = Field("scaled", description="how records enter the unit ball")
    intercept: bool = Field(True, description="append a constant feature, regularised like any other")

    def public_files(self) -> tuple[str, ...]:
        return (self.auxiliary,)

    def build(self, setting: Setting) -> PublishedSoftLabel:
        target = setting.schema.target
        if not isinstance(target, Classes):
            raise StudyError(
                f"{setting.where}: softlabel learns classes; declare [target] with classes in the schema",
                key="target",
            )
        encoding = Encoding(setting.schema, scaling="symmetric", rows=self.rows, intercept=self.intercept)
        auxiliary = encoding.encode_features(setting.read(self.auxiliary), where=self.auxiliary)
        return PublishedSoftLabel(
            auxiliary=auxiliary,
            classes=target.values,
            method=self.method,
            l2=self.l2,
            constants=self.constants,
            encoding=encoding,
        )
