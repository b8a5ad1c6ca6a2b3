"""Learning from the votes of local classifiers (Hamm, Cao, Belkin 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.softlabel.baselines import fit_baselines as fit_baselines
    from comity.methods.softlabel.choice import StatisticName as StatisticName
    from comity.methods.softlabel.method import SoftLabel as SoftLabel
    from comity.methods.softlabel.method import SoftLabelProtocol as SoftLabelProtocol
    from comity.methods.softlabel.published.method import PublishedSoftLabel as PublishedSoftLabel
    from comity.methods.softlabel.statistic import Statistic as Statistic

__all__ = [
    "PublishedSoftLabel",
    "SoftLabel",
    "SoftLabelProtocol",
    "Statistic",
    "StatisticName",
    "fit_baselines",
]

_HOMES = {
    "PublishedSoftLabel": "comity.methods.softlabel.published.method",
    "SoftLabel": "comity.methods.softlabel.method",
    "SoftLabelProtocol": "comity.methods.softlabel.method",
    "Statistic": "comity.methods.softlabel.statistic",
    "StatisticName": "comity.methods.softlabel.choice",
    "fit_baselines": "comity.methods.softlabel.baselines",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
