"""Every table and the figure of Xu, Yuan and Wu (2019), computed again."""

from __future__ import annotations

from experiments.papers.vertical.framework import figure_1
from experiments.papers.vertical.table_1 import table_1
from experiments.papers.vertical.table_2 import table_2
from experiments.papers.vertical.table_3 import table_3

EXHIBITS = (figure_1, table_1, table_2, table_3)
