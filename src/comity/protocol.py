"""Everything that a new method is written with, and `simulate`, which runs it on this machine.

    from comity.protocol import COORDINATOR, EVERY_PARTY, Array, Ball, Declaration, Protocol, Release, Summed, step

CONTRIBUTING.md writes a whole method with these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.artefacts.dataset import Dataset as Dataset
    from comity.artefacts.table import Table as Table
    from comity.data import Encoding as Encoding
    from comity.data import Records as Records
    from comity.data import Schema as Schema
    from comity.federation.coordinator.parties import Parties as Parties
    from comity.federation.coordinator.released import Total as Total
    from comity.federation.coordinator.released import perturb as perturb
    from comity.federation.declare.bounds import Ball as Ball
    from comity.federation.declare.bounds import Counts as Counts
    from comity.federation.declare.bounds import EntrySum as EntrySum
    from comity.federation.declare.bounds import RecordSum as RecordSum
    from comity.federation.declare.bounds import Simplex as Simplex
    from comity.federation.declare.consortium import COORDINATOR as COORDINATOR
    from comity.federation.declare.consortium import EVERY_PARTY as EVERY_PARTY
    from comity.federation.declare.consortium import EVERYONE as EVERYONE
    from comity.federation.declare.consortium import ITSELF as ITSELF
    from comity.federation.declare.consortium import Consortium as Consortium
    from comity.federation.declare.declaration import Declaration as Declaration
    from comity.federation.declare.protection import Computed as Computed
    from comity.federation.declare.protection import Derived as Derived
    from comity.federation.declare.protection import Disclosed as Disclosed
    from comity.federation.declare.protection import Noised as Noised
    from comity.federation.declare.protection import Public as Public
    from comity.federation.declare.protection import Summed as Summed
    from comity.federation.declare.release import Array as Array
    from comity.federation.declare.release import Count as Count
    from comity.federation.declare.release import Release as Release
    from comity.federation.evaluation.assessment import Assessment as Assessment
    from comity.federation.evaluation.assessment import Baseline as Baseline
    from comity.federation.evaluation.assessment import Figure as Figure
    from comity.federation.evaluation.assessment import auc as auc
    from comity.federation.evaluation.assessment import log_loss as log_loss
    from comity.federation.owner.site import Site as Site
    from comity.federation.part import step as step
    from comity.federation.protocol import Protocol as Protocol
    from comity.privacy.accounting import budget_to_rho as budget_to_rho
    from comity.privacy.loss import Approx as Approx
    from comity.privacy.loss import Loss as Loss
    from comity.privacy.loss import Pure as Pure
    from comity.privacy.mechanisms import Gaussian as Gaussian
    from comity.privacy.mechanisms import Laplace as Laplace
    from comity.privacy.unit import Neighbours as Neighbours
    from comity.privacy.unit import Unit as Unit
    from comity.study.local.cohort import Block as Block
    from comity.study.local.cohort import Cohort as Cohort
    from comity.study.local.cohort import stack_parties as stack_parties
    from comity.study.local.stacks import NumberedParties as NumberedParties
    from comity.study.results.result import Result as Result
    from comity.study.simulation.simulate import RunOptions as RunOptions
    from comity.study.simulation.simulate import Terms as Terms
    from comity.study.simulation.simulate import simulate as simulate

__all__ = [
    "COORDINATOR",
    "EVERYONE",
    "EVERY_PARTY",
    "ITSELF",
    "Approx",
    "Array",
    "Assessment",
    "Ball",
    "Baseline",
    "Block",
    "Cohort",
    "Computed",
    "Consortium",
    "Count",
    "Counts",
    "Dataset",
    "Declaration",
    "Derived",
    "Disclosed",
    "Encoding",
    "EntrySum",
    "Figure",
    "Gaussian",
    "Laplace",
    "Loss",
    "Neighbours",
    "Noised",
    "NumberedParties",
    "Parties",
    "Protocol",
    "Public",
    "Pure",
    "RecordSum",
    "Records",
    "Release",
    "Result",
    "RunOptions",
    "Schema",
    "Simplex",
    "Site",
    "Summed",
    "Table",
    "Terms",
    "Total",
    "Unit",
    "auc",
    "budget_to_rho",
    "log_loss",
    "perturb",
    "simulate",
    "stack_parties",
    "step",
]

_HOMES = {
    "COORDINATOR": "comity.federation.declare.consortium",
    "EVERYONE": "comity.federation.declare.consortium",
    "EVERY_PARTY": "comity.federation.declare.consortium",
    "ITSELF": "comity.federation.declare.consortium",
    "Approx": "comity.privacy.loss",
    "Array": "comity.federation.declare.release",
    "Assessment": "comity.federation.evaluation.assessment",
    "Ball": "comity.federation.declare.bounds",
    "Baseline": "comity.federation.evaluation.assessment",
    "Block": "comity.study.local.cohort",
    "Cohort": "comity.study.local.cohort",
    "Computed": "comity.federation.declare.protection",
    "Consortium": "comity.federation.declare.consortium",
    "Count": "comity.federation.declare.release",
    "Counts": "comity.federation.declare.bounds",
    "Dataset": "comity.artefacts.dataset",
    "Declaration": "comity.federation.declare.declaration",
    "Derived": "comity.federation.declare.protection",
    "Disclosed": "comity.federation.declare.protection",
    "Encoding": "comity.data",
    "EntrySum": "comity.federation.declare.bounds",
    "Figure": "comity.federation.evaluation.assessment",
    "Gaussian": "comity.privacy.mechanisms",
    "Laplace": "comity.privacy.mechanisms",
    "Loss": "comity.privacy.loss",
    "Neighbours": "comity.privacy.unit",
    "Noised": "comity.federation.declare.protection",
    "NumberedParties": "comity.study.local.stacks",
    "Parties": "comity.federation.coordinator.parties",
    "Protocol": "comity.federation.protocol",
    "Public": "comity.federation.declare.protection",
    "Pure": "comity.privacy.loss",
    "RecordSum": "comity.federation.declare.bounds",
    "Records": "comity.data",
    "Release": "comity.federation.declare.release",
    "Result": "comity.study.results.result",
    "RunOptions": "comity.study.simulation.simulate",
    "Schema": "comity.data",
    "Simplex": "comity.federation.declare.bounds",
    "Site": "comity.federation.owner.site",
    "Summed": "comity.federation.declare.protection",
    "Table": "comity.artefacts.table",
    "Terms": "comity.study.simulation.simulate",
    "Total": "comity.federation.coordinator.released",
    "Unit": "comity.privacy.unit",
    "auc": "comity.federation.evaluation.assessment",
    "log_loss": "comity.federation.evaluation.assessment",
    "budget_to_rho": "comity.privacy.accounting",
    "perturb": "comity.federation.coordinator.released",
    "simulate": "comity.study.simulation.simulate",
    "stack_parties": "comity.study.local.cohort",
    "step": "comity.federation.part",
}

__getattr__, __dir__ = export_lazily(globals(), _HOMES)
