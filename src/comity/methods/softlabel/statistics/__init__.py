"""Statistics of soft-label transfer: what parties contribute, and the model that the noisy sum gives."""

from comity.methods.softlabel.statistics.cells import Cells
from comity.methods.softlabel.statistics.class_sums import ClassSums
from comity.methods.softlabel.statistics.histograms import Histograms
from comity.methods.softlabel.statistics.models import Models
from comity.methods.softlabel.statistics.named_class import NamedClass
from comity.methods.softlabel.statistics.statistic import RecordTotal, Statistic
from comity.methods.softlabel.statistics.votes import Votes

__all__ = ["Cells", "ClassSums", "Histograms", "Models", "NamedClass", "RecordTotal", "Statistic", "Votes"]
