"""The taxonomy of Adult, written from the meaning of its categories."""

from __future__ import annotations

from importlib.resources import files

from comity.methods.synthetic.published import Attributes
from comity.methods.synthetic.published.baselines import Taxonomy, taxonomy_of


def adult_taxonomy(attributes: Attributes) -> Taxonomy:
    text = files("experiments.papers.synthetic").joinpath("adult_taxonomy.toml").read_text(encoding="utf-8")
    return taxonomy_of(attributes, text, "adult_taxonomy.toml")
