"""Published methods lose no more than their corrected loss, and more than their papers claim where that is false."""

from __future__ import annotations

import pytest

from comity.audit import published
from comity.audit.cases import published_cases
from comity.audit.claim import Effort
from comity.audit.published import PUBLISHED, corrected_loss, published_claims
from comity.audit.suite import audit_all

SURE = 0.9999
EFFORT = Effort(draws=20_000, pure_draws=180_000, spherical_draws=12_000)


@pytest.mark.long
def test_mechanisms_of_published_methods_lose_no_more_than_corrected_and_more_than_a_false_claim() -> None:
    claims = {claim.name: claim for claim in published_claims(EFFORT, SURE)}
    assert len(claims) == PUBLISHED and all(claim.held for claim in claims.values())
    for name, claim in claims.items():
        # Some noise is drawn one by one, and few draws show much less than the pair could.
        assert 0.4 * claim.claimed < claim.measured, name
        assert 0.95 * claim.claimed < claim.design <= claim.claimed * (1 + 1e-9), name
    papers = {name: [one for one in claim.controls if "the paper's" in one.name] for name, claim in claims.items()}
    assert {name for name, found in papers.items() if found} == {
        "averaging, published, literal noise",
        "synthetic, published, records replaced",
        "weights of the auction, published",
    }
    assert all(one.caught for found in papers.values() for one in found)


def test_a_corrected_loss_that_is_still_too_small_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "corrected_loss", lambda agreement: 0.6)
    # Few draws prove less than many, and are enough here.
    effort = Effort(draws=20_000, pure_draws=20_000, spherical_draws=4_000)
    trees = published._trees(effort, SURE, neighbours="add-remove")
    assert not trees.held
    monkeypatch.setattr("comity.audit.suite.corrected_loss", lambda agreement: 0.4)
    assert not audit_all(effort, only=["soft labels, published soft"]).passed


@pytest.mark.long
def test_runs_of_published_methods_lose_no_more_than_corrected() -> None:
    names = [case.name for case in published_cases()]
    found = audit_all(EFFORT, only=names)
    assert found.passed and [claim.name for claim in found.claims] == names
    share = {claim.name: claim.measured / claim.claimed for claim in found.claims}
    assert share.pop("soft labels, published avg") > 0.4
    assert min(share.values()) > 0.8, share
    assert {claim.name: claim.claimed for claim in found.claims}["vertical, published"] == 0.5953


def test_the_corrected_loss_is_the_one_that_a_plan_prints() -> None:
    for case in published_cases():
        agreement = case.study.agreement
        printed = agreement.protocol.true_losses(agreement.consortium)[0].true
        assert f"eps {corrected_loss(agreement):g}"[:7] in printed.replace("1.00", "1")
