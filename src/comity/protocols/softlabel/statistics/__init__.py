"""Statistics of soft-label transfer: what parties contribute, and the model that the noisy sum gives."""

from comity.protocols.softlabel.statistics.cells import Cells
from comity.protocols.softlabel.statistics.class_sums import ClassSums
from comity.protocols.softlabel.statistics.histograms import Histograms
from comity.protocols.softlabel.statistics.models import Models
from comity.protocols.softlabel.statistics.named_class import NamedClass
from comity.protocols.softlabel.statistics.statistic import RecordTotal, Statistic
from comity.protocols.softlabel.statistics.votes import Votes

__all__ = ["Cells", "ClassSums", "Histograms", "Models", "NamedClass", "RecordTotal", "Statistic", "Votes"]
