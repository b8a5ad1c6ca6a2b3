"""Simulation only: the result as each owner would adapt it to its own records, and every owner's three errors.

In a deployment each site does this for its owner alone (`comity.site.results`). Here one machine has all records, and
shows which owner gains least by joining."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comity.data import LocalRecords
from comity.federation.evaluation.adaptation import Adaptation, owners_section
from comity.federation.evaluation.assessment import Assessment
from comity.federation.protocol import Protocol
from comity.study.results.result import Result

ADAPTED = "adapted"
"""What the adapted model of an owner is called among what the owner keeps (`Result.kept`)."""


def adapt_owners(
    protocol: Protocol, records: Mapping[str, LocalRecords], presented: Mapping[str, Any]
) -> dict[str, Adaptation]:
    """The adaptations of owners that received a result and whose records can adapt it."""
    tried = {
        party: protocol.adapt_own(one, records[party], party) for party, one in presented.items() if one is not None
    }
    return {party: one for party, one in tried.items() if one is not None}


def add_adaptations(
    result: Result, assessment: Assessment, adapted: Mapping[str, Adaptation]
) -> tuple[Result, Assessment]:
    """The result with each owner's adapted model among what the owner keeps, and the assessment with a section."""
    if not adapted:
        return result, assessment
    kept = {party: {**result.kept.get(party, {}), ADAPTED: one.model} for party, one in adapted.items()}
    section = owners_section({party: one.comparison for party, one in adapted.items()})
    assessment = replace(assessment, sections=(*assessment.sections, section))
    return replace(result, kept={**result.kept, **kept}), assessment
