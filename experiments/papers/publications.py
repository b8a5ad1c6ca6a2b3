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
class Publication:
    """A paper. `home` is the module whose `EXHIBITS` compute its tables and figures, in the paper's order."""

    method: str
    citation: str
    home: str

    def computations(self) -> tuple[Compute, ...]:
        found: tuple[Compute, ...] = import_module(self.home).EXHIBITS
        return found


PUBLICATIONS: Final = (
    Publication(
        "synthetic",
        "F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019",
        "experiments.papers.synthetic.exhibits",
    ),
    Publication(
        "averaging",
        "M. Pathak, S. Rane, B. Raj, Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers, "
        "NIPS 2010",
        "experiments.papers.averaging.exhibits",
    ),
    Publication(
        "vertical",
        "D. Xu, S. Yuan, X. Wu, Achieving Differential Privacy in Vertically Partitioned Multiparty Learning, 2019",
        "experiments.papers.vertical.exhibits",
    ),
    Publication(
        "softlabel",
        "J. Hamm, Y. Cao, M. Belkin, Learning Privately from Multiparty Data, ICML 2016",
        "experiments.papers.softlabel.exhibits",
    ),
    Publication(
        "summary",
        "K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, "
        "NeurIPS 2019",
        "experiments.papers.summary.exhibits",
    ),
)
