"""Every figure of Sarpatwar et al. (2019), the totals of section 4, Theorem 2 and section F, computed again."""

from __future__ import annotations

from experiments.papers.summary.figures import appendix_g, figure_1
from experiments.papers.summary.section4 import section_4
from experiments.papers.summary.section_f import section_f
from experiments.papers.summary.theorem2 import theorem_2

EXHIBITS = (figure_1, section_4, theorem_2, section_f, appendix_g)
