"""A curator that receives hashes alone, in both auctions: what it gets, what hashes tell without their seed and with
it, and what phases are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.methods.summary.artefact import BoughtHashes
from comity.methods.summary.features import LENGTH, FourierFeatures, Unchanged
from comity.methods.summary.published.hashes import PhasedCosines
from comity.methods.summary.published.method import PublishedSummary

from .auctions import build_auction, build_published, run_seeded
from .consortia import CONSUMER, OWNERS, make_records

BOTH = pytest.mark.parametrize(
    ("made", "form"), [(build_auction, "shifted"), (build_published, "cosines")], ids=["auction", "published"]
)


@BOTH
def test_the_curator_receives_hashes_of_the_owners_records_and_no_seed(made: Any, form: str, tmp_path: Path) -> None:
    outcome, records = run_seeded(made(deliver="hashes")), make_records()
    bought = outcome.presented
    assert isinstance(bought, BoughtHashes) and bought.form == form and bought.rows.shape == (8, 20)
    seed = outcome.received[CONSUMER].own["hash_seed"]
    hashed = bought.with_seed(seed)
    for row, seller in zip(bought.rows, bought.sellers):
        apart = np.abs(hashed(records[OWNERS[seller]].features) - row).max(axis=1)
        assert apart.min() < 1e-9
    assert "seed" not in outcome.released and "hash_seed" not in outcome.released
    seen = {release.name for release in outcome.declaration.seen_by("coordinator", outcome.consortium)}
    assert "seed" not in seen and "offer" in seen
    assert sum(bought.bought.quotas) == 8 and bought.bought.basis == "bids"
    bought.save(tmp_path)
    again = BoughtHashes.load(tmp_path)
    assert again.form == form and np.array_equal(again.with_seed(seed)(bought.rows[:, :4]), hashed(bought.rows[:, :4]))


def test_a_curator_of_hashes_hashes_no_public_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would know records with their hashes, and so the seed. Random hashes start the summary instead."""

    def refuse(self: Any) -> Any:
        raise AssertionError("the curator has no map of records")

    monkeypatch.setattr(PublishedSummary, "features", property(refuse))
    assert len(run_seeded(build_published(deliver="hashes")).presented) == 8
    assert len(run_seeded(build_published(deliver="hashes", seeds=None)).presented) == 8
    with pytest.raises(AssertionError, match="no map"):
        run_seeded(build_published())


def test_folders_of_earlier_versions_have_pairs_without_phases(tmp_path: Path) -> None:
    bought = run_seeded(build_auction(deliver="hashes")).presented
    bought.save(tmp_path)
    arrays = dict(np.load(tmp_path / "arrays.npz"))
    del arrays["form"]
    np.savez(tmp_path / "arrays.npz", **arrays)
    old = BoughtHashes.load(tmp_path)
    assert old.form == "pairs" and getattr(old.with_seed(bytes(32)), "phases", 0) is None


def test_a_hash_that_is_too_long_moves_the_curators_sum_no_further_than_a_record() -> None:
    """A seller can hash as it likes, and the loss of other owners' records counts on this length."""
    rows = np.array([[3.0, 4.0, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])
    found = Unchanged(4, LENGTH)(rows)
    assert np.linalg.norm(found[0]) == pytest.approx(LENGTH) and np.array_equal(found[1], rows[1])
    assert build_auction(deliver="hashes").curator_map == Unchanged(20, LENGTH)
    assert build_published(deliver="hashes").curator_map == Unchanged(20, 2 * LENGTH)


def moved_map(one: PhasedCosines, rotation: np.ndarray, shift: np.ndarray) -> PhasedCosines:
    """The map that gives a moved record Rx + c the hash that `one` gives x: frequencies Rω, phases b − Rω·c."""
    turned = rotation @ one.frequencies
    return PhasedCosines(turned, np.mod(one.phases - shift @ turned, 2 * np.pi))


def test_the_law_of_printed_hashes_depends_on_distances_alone() -> None:
    """Records that are rotated and shifted together have the same hashes under another map, and the two maps have the
    same law: Rω is normal as ω is, and a uniform phase that is shifted by an independent angle is uniform."""
    chance = np.random.default_rng(5)
    rows, shift = chance.random((12, 4)), 3 * chance.normal(size=4)
    rotation = np.linalg.qr(chance.normal(size=(4, 4)))[0]
    one = PhasedCosines.draw(4, 60, 0.7, Stream(bytes(32)))
    assert moved_map(one, rotation, shift)(rows @ rotation.T + shift) == pytest.approx(one(rows), abs=1e-5)
    phases = np.concatenate(
        [
            moved_map(PhasedCosines.draw(4, 60, 0.7, Stream.public("law", number)), rotation, shift).phases
            for number in range(200)
        ]
    )
    assert np.histogram(phases, 8, (0, 2 * np.pi))[0] == pytest.approx(np.full(8, 1500), abs=200)


def norms_by_hashes(draw: Any) -> float:
    """How well a curator that does not know the seed tells the lengths of records from the means of their hashes."""
    chance, found = np.random.default_rng(6), []
    rows = chance.normal(size=(200, 4))
    rows *= (chance.uniform(0.1, 1.5, 200) / np.linalg.norm(rows, axis=1))[:, None]
    for number in range(8):
        hashes = draw(Stream.public("norms", number))(rows)
        guess = hashes[:, : hashes.shape[1] // 2].sum(axis=1)
        found.append(abs(np.corrcoef(guess, (rows**2).sum(axis=1))[0, 1]))
    return float(np.median(found))


def test_without_phases_hashes_would_tell_how_far_a_record_is_from_the_origin() -> None:
    assert norms_by_hashes(lambda stream: FourierFeatures.draw(4, 140, 1.0, stream)) > 0.9
    assert norms_by_hashes(lambda stream: FourierFeatures.draw(4, 140, 1.0, stream, shifted=True)) < 0.6
    assert norms_by_hashes(lambda stream: PhasedCosines.draw(4, 140, 1.0, stream)) < 0.6


def test_phases_do_not_change_products_of_pairs() -> None:
    rows = np.random.default_rng(7).random((20, 4))
    plain, shifted = (FourierFeatures.draw(4, 140, 1.0, Stream(bytes(32)), shifted=one)(rows) for one in (False, True))
    assert shifted @ shifted.T == pytest.approx(plain @ plain.T, abs=1e-5) and np.abs(plain - shifted).max() > 0.05


def test_the_curator_computes_distances_from_hashes_and_a_guess_is_tested_with_the_seed() -> None:
    """What hashes tell: distances, to the accuracy of the features; and with the seed, whether a guess is right."""
    outcome, records = run_seeded(build_published(deliver="hashes", dimensions=140)), make_records()
    bought = outcome.presented
    hashed = bought.with_seed(outcome.received[CONSUMER].own["hash_seed"])
    every = np.concatenate([records[owner].features for owner in OWNERS])
    nearest = [int(np.abs(hashed(every) - row).max(axis=1).argmin()) for row in bought.rows]
    rows = every[nearest]
    kernel = np.exp(-3.0 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    assert np.abs(bought.rows @ bought.rows.T - kernel).max() < 0.35
    assert np.abs(hashed(rows) - bought.rows).max() < 1e-9 < 1e-3 < np.abs(hashed(rows + 0.01) - bought.rows).max()
