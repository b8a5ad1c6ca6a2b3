"""An owner with a program of its own: what public figures rule out ends the run, and what they allow is not noticed."""

from __future__ import annotations

import pytest

from .influence import HONEST, METHODS, ZEROS, attacked
from .studies import case


@pytest.mark.parametrize("method", METHODS)
def test_zeros_in_place_of_a_masked_vector_end_the_run(method: str) -> None:
    """The others' masks do not cancel: what is opened is uniform, and nothing like a sum."""
    found = attacked(case(method, 5), ZEROS)
    assert isinstance(found, str) and "lies outside of what public figures allow" in found


@pytest.mark.parametrize("method", METHODS)
def test_a_hundredfold_contribution_of_one_in_five_ends_the_run(method: str) -> None:
    found = attacked(case(method, 5), "flipped labels, × 100")
    assert isinstance(found, str) and "lies outside of what public figures allow" in found


@pytest.mark.parametrize("method", ["softlabel", "synthetic"])
def test_a_tenfold_contribution_is_not_noticed_and_makes_the_model_worse_than_a_constant(method: str) -> None:
    """What the check does not do, as docs/security.md states it: who lies within loose bounds turns a model round."""
    study = case(method, 5)
    honest, found = (attacked(study, lie) for lie in (HONEST, "flipped labels, × 10"))
    assert isinstance(honest, float) and isinstance(found, float)
    assert honest < study.constant < found
