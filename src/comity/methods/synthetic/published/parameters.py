"""The keys of `[synthetic]` that belong to `variant = "published"`, and what they build."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from comity.federation.constraints import Positive
from comity.methods.parameters import Only, Parameters, Setting
from comity.methods.synthetic.published.predictor import Learner
from comity.methods.synthetic.published.protocol import (
    Candidates,
    Depth,
    Labelling,
    Leaves,
    Levels,
    PublishedSynthetic,
)


class PublishedKeys(Parameters):
    """Inherited by the table of the method, which has the key `variant`."""

    depth: Annotated[Depth, Only(variant="published")] = Field(
        8, description="published only: levels of a tree, that of the leaves included"
    )
    candidates: Annotated[Candidates, Only(variant="published")] = Field(
        10, description="published only: thresholds that a choice is made among"
    )
    levels: Annotated[Levels, Only(variant="published")] = Field(
        4, description="published only: levels that sizes are made consistent over, that of the leaves included"
    )
    leaves: Annotated[Leaves, Only(variant="published")] = Field(
        20_000, description="published only: most nodes of a level, by a rule that sees no record"
    )
    labelling: Annotated[Labelling, Only(variant="published")] = Field(
        "vote", description="published only: labels by the vote of all trees, or by the sharer's own"
    )
    consistency: Annotated[bool, Only(variant="published")] = Field(
        True, description="published only: false leaves the noisy sizes of leaves as they are, cut at zero"
    )
    learner: Annotated[Learner | None, Only(variant="published")] = Field(
        None, description="published only: what each owner fits and keeps; by the target if left out"
    )
    l2: Annotated[Positive, Only(variant="published")] = Field(
        1e-4, description="published only: penalty of the owners' own models"
    )
    seed: Annotated[int, Only(variant="published")] = Field(
        0, description="published only: names the public chance that the shapes of trees are drawn from"
    )

    def published(self, setting: Setting) -> PublishedSynthetic:
        return PublishedSynthetic(
            schema=setting.schema,
            depth=self.depth,
            candidates=self.candidates,
            levels=self.levels,
            leaves=self.leaves,
            labelling=self.labelling,
            consistency=self.consistency,
            learner=self.learner,
            l2=self.l2,
            seed=self.seed,
        )
