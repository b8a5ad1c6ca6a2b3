"""Known broken mechanisms are caught, and what they are broken twins of is not."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import comity
from comity.audit import controls
from comity.audit.claim import Effort
from comity.audit.mechanisms import lattice_checks, mechanism_claims

SURE = 0.9999


# With fewer draws an attack proves less: what is caught by a quarter of them is caught by all.
@pytest.mark.parametrize("draws", [10_000, pytest.param(40_000, marks=pytest.mark.long)])
def test_every_broken_mechanism_is_caught(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "_DRAWS", draws)
    found = controls.every_control(SURE)
    assert len(found) == len({control.name for control in found}) == 9
    assert [control.name for control in found if not control.caught] == []


def test_a_mechanism_that_is_not_broken_is_not_caught(monkeypatch: object) -> None:
    """Positive control of the controls: with the fault mended the same attack finds no more than the claim."""
    effort = Effort(draws=20_000, pure_draws=60_000, spherical_draws=2_000)
    claims = list(mechanism_claims(effort, SURE))
    assert all(claim.held for claim in claims)
    tight = {claim.name: claim.measured / claim.claimed for claim in claims if "spherical" not in claim.name}
    assert min(tight.values()) > 0.88, tight


def test_noise_lies_on_a_grid_that_no_record_chooses() -> None:
    checks = list(lattice_checks())
    assert len(checks) == 6 and all(check.held for check in checks)


def test_nothing_but_the_audit_imports_the_broken_mechanisms() -> None:
    root = Path(comity.__file__).parent
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "audit"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any("audit.controls" in name or "audit.capture" in name for name in names), path


def test_ranks_of_the_printed_auction_are_those_that_it_asks_by() -> None:
    asked = controls.printed_auction(SURE)
    assert asked.measured > 3 and np.isfinite(asked.measured)
