"""Rules of the ledger and of shared noise for which weaker ones might pass: each test fails when its rule is weaker."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused, StudyError
from comity.privacy.accounting import convert
from comity.privacy.chain import FIELDS, next_head
from comity.privacy.ledger import Draw, Ledger, verify_export
from comity.privacy.loss import ZCDP, Approx, Loss, Pure
from comity.privacy.mechanisms import gaussian
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.unit import Neighbours, Unit

RECORD = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))


def chained(exported: dict[str, Any]) -> dict[str, Any]:
    """The export with its chain computed anew: an owner who rewrites the whole file."""
    head = exported["entries"][0]["note"]
    for entry in exported["entries"]:
        head = entry["head"] = next_head(head, tuple(entry[name] for name in FIELDS[:-1]))
    return {**exported, "head": head}


@pytest.mark.parametrize(("field", "value"), [("loss", "pure:0.01"), ("release", "other"), ("index", 1), ("run", "r2")])
def test_a_debit_is_of_what_was_reserved(tmp_path: Path, field: str, value: object) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="patients", grant=Pure(3), **RECORD)
    ledger.reserve(study="s", run="r1", draws=[Draw("votes", 0, Pure("0.5"), "discrete laplace", 1)], **RECORD)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    exported = ledger.export()
    verify_export(chained(ledger.export()))
    (debit,) = (entry for entry in exported["entries"] if entry["kind"] == "draw")
    debit[field] = value
    with pytest.raises(Refused, match="does not follow"):
        verify_export(chained(exported))


@pytest.mark.parametrize(
    ("loss", "twice"),
    [(Pure("0.3"), Pure("0.6")), (ZCDP("0.3"), ZCDP("1.2")), (Approx("0.3", 0), Approx("0.6", 0))],
    ids=["pure", "zCDP", "approximate"],
)
def test_a_replacement_is_a_removal_and_an_addition(loss: Loss, twice: Loss) -> None:
    """Of Gaussian noise: twice as far is four times the rho, as (2Δ)²/2σ² = 4·Δ²/2σ²."""
    add, replace = Neighbours.ADD_REMOVE, Neighbours.REPLACE
    assert convert(loss, Unit.RECORD, add, Unit.RECORD, replace) == twice
    assert convert(loss, Unit.PARTY, add, Unit.RECORD, add) == twice
    assert convert(loss, Unit.PARTY, replace, Unit.RECORD, replace) == loss


def test_parts_a_little_below_two_units_are_refused() -> None:
    """On a grid twice as coarse parts are half as wide, up to rounding: so one of these grids gives 1 to 2 units."""
    noise, widths = Gaussian(ZCDP(2)), []
    for power in range(4, -8, -1):
        try:
            widths.append(noise.scale(sensitivity=10.0, shape=(1,), parts=9, grid=2.0**power).part)
        except StudyError as refused:
            assert refused.key == "grid"
    assert 2.0 <= min(widths) < 4.0
    for sensitivity in (1.80, 1.85, 1.90, 1.95):
        # σ = (Δ + 1)/sqrt(2ρ) units over nine parts.
        rho = ((sensitivity * 3 * 2 + 1) / (3 * sensitivity)) ** 2 / 2
        with pytest.raises(StudyError, match="at least 2 are needed"):
            Gaussian(ZCDP(rho)).scale(sensitivity=sensitivity * 3 * 2, shape=(1,), parts=9, grid=1.0)


def test_the_distance_of_summed_parts_from_a_gaussian_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From two units on it is beyond the digits of a double; the rule holds for any width, so narrower ones show it."""
    monkeypatch.setattr(gaussian, "SMALLEST_PART", 0.5)
    rho, size, parts = 8.0, 4, 3
    scale = Gaussian(ZCDP(rho)).scale(sensitivity=4.0, shape=(size,), parts=parts, grid=1.0)
    assert 0.5 < scale.part < 1.5 and scale.tau > 1e-6
    with localcontext(prec=50):
        steps = Decimal(4) + Decimal(size).sqrt()
        lost = steps / Decimal(scale.total) + Decimal(scale.tau) * Decimal(size).sqrt()
        assert lost <= (2 * Decimal(rho)).sqrt()
    assert scale.tau >= 10 * sum(math.exp(-2 * math.pi**2 * scale.part**2 * k / (k + 1)) for k in range(1, parts))
