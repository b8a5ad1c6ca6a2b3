"""How many features the budget carries: one rule from public figures, so that choosing is no release."""

from __future__ import annotations

# Settled on MNIST at two budgets (400 features at epsilon 1, 140 at 0.3, for 13,500 records); others may
# want others.
MOST, FEWEST = 400, 40
_PER_RHO, _PER_RECORD = 1.76, 0.0115


def dimensions(records: int, square: float) -> int:
    """An even number of features, for so many records of all owners and a budget of μ² = `square`.

    Noise on D × D moments has eigenvalues up to about D^½·N⁻¹·ρ^−½: the number that keeps it below the directions that
    matter grows as ρ·N², until more features would show nothing new.
    """
    wanted = _PER_RHO * (square / 2) * (_PER_RECORD * records) ** 2
    return max(FEWEST, 2 * int(min(MOST, wanted) / 2))
