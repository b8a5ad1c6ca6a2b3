"""The five papers, and where the functions are that compute their tables and figures again."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from experiments.papers.exhibit import Exhibit


class Compute(Protocol):
    """Computes some tables or figures that share their work. `out` takes pictures."""

    __name__: str

    def __call__(self, *, quick: bool, out: Path) -> tuple[Exhibit, ...]: ...


@dataclass(frozen=True)
class Headline:
    """A line that stands for a paper in the summary of the page: a case of one of its tables or figures."""

    exhibit: str
    case: str


@dataclass(frozen=True)
class Publication:
    """A paper. `home` is the module whose `EXHIBITS` compute its tables and figures, in the paper's order."""

    method: str
    citation: str
    home: str
    headlines: tuple[Headline, ...] = ()

    def computations(self) -> tuple[Compute, ...]:
        found: tuple[Compute, ...] = import_module(self.home).EXHIBITS
        return found


PUBLICATIONS: Final = (
    Publication(
        "synthetic",
        "F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019",
        "experiments.papers.synthetic.exhibits",
        (
            Headline("Table 2, Census Income", "Census Income, Log. Reg., eps 1, PFDS"),
            Headline("Table 2, Diabetes", "Diabetes, Log. Reg., eps 1, PFDS"),
        ),
    ),
    Publication(
        "averaging",
        "M. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, "
        "NIPS 2010",
        "experiments.papers.averaging.exhibits",
        (
            Headline("Figure 2", "10 % split, mean of losses, epsilon 1"),
            Headline("Figure 2", "10 % split, sum of losses, epsilon 1"),
        ),
    ),
    Publication(
        "vertical",
        "D. Xu, S. Yuan, X. Wu, Achieving Differential Privacy in Vertically Partitioned Multiparty Learning, 2019",
        "experiments.papers.vertical.exhibits",
        (
            Headline("Table 3", "Adult, eps 1, FM as printed"),
            Headline("Table 3", "Adult, eps 1, FM, Zhang's repair"),
        ),
    ),
    Publication(
        "softlabel",
        "J. Hamm, Y. Cao, M. Belkin, Learning Privately from Multiparty Data, ICML 2016",
        "experiments.papers.softlabel.exhibits",
        (
            Headline("Figure 2", "soft M=1000 1/eps=1"),
            Headline("Figure 3", "soft M=20000 1/eps=1"),
        ),
    ),
    Publication(
        "summary",
        "K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, "
        "NeurIPS 2019",
        "experiments.papers.summary.exhibits",
        (
            Headline("Figure 1, bottom", "private greedy, p = 100"),
            Headline("Appendix G, accuracy", "private greedy, p = 100"),
        ),
    ),
)
