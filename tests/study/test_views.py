"""Who saw what: every release stands in the view of each of its receivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Noised, Perturbed, Sealed
from comity.federation.declare.release import Array
from comity.federation.lifecycle import Lifecycle
from comity.federation.sum.site import SecureSum
from comity.privacy.loss import ZCDP, Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.study.results.views import list_views
from tests.report.small_studies import CASES, refusal, small_study


def covered(declaration: Declaration, consortium: Consortium) -> None:
    found = list_views(declaration, consortium)
    assert len({view.participant for view in found}) == len(found)
    labels = {view.participant: {seen.release.partition(" x")[0] for seen in view.seen} for view in found}
    for name in ("coordinator", *consortium.parties):
        expected = {release.name for release in declaration.releases if consortium.includes(release.to, name)}
        assert shown_to(name, labels, consortium) == expected, name


def shown_to(name: str, labels: dict[str, set[str]], consortium: Consortium) -> set[str]:
    """The rows that a reader of the page takes for this participant's."""
    for label, seen in labels.items():
        if name in [part.partition(" (")[0] for part in label.split(", ")]:
            return seen
    return labels["each party"] if "each party" in labels else labels["each other party"]


@pytest.mark.parametrize("case", CASES)
def test_every_release_of_every_method_stands_in_the_view_of_each_receiver(case: Any, tmp_path: Path) -> None:
    if refusal(case, tmp_path) is not None:
        # Nothing is declared. Which cases may be refused is in test_released.py.
        return
    study = small_study(case, tmp_path)
    consortium = study.consortium
    covered(study.protocol.declare(consortium), consortium)
    for part in (Lifecycle(), SecureSum(), *study.protocol.parts.values()):
        covered(part.declare(consortium), consortium)


def release(name: Any, source: Any, to: Any, protection: Any = None, **options: Any) -> Release:
    how = protection or Sealed("it")
    return Release(name=name, source=source, to=to, protection=how, form=Array((1,)), **options)


@pytest.mark.parametrize(
    "releases",
    [
        [release("key", "a", "every party")],
        [release("key", "b", "every party"), release("back", "every party", "b")],
        [release("all", "every party", "everyone")],
        [release("own", "coordinator", "coordinator", Perturbed(Gaussian(ZCDP(1)), of="x"))],
        [release("model", "coordinator", "everyone", Derived("own"), times=3)],
        [release("answer", "consumer", "consumer"), release("to_role", "a", "consumer")],
        [release("from_role", "consumer", "every party"), release("single", "c", "d")],
        [release("self", "a", "a")],
    ],
    ids=lambda releases: " ".join(one.name for one in releases),
)
@pytest.mark.parametrize("parties", [("a",), ("a", "b"), ("a", "b", "c", "d", "e")], ids=len)
@pytest.mark.parametrize("consumers", [(), ("a",), ("a", "b"), ("c", "d")], ids=" ".join)
def test_odd_declarations_leave_nobody_out(releases: Any, parties: Any, consumers: Any) -> None:
    roles = {"consumer": tuple(name for name in consumers if name in parties)} if consumers else {}
    consortium = Consortium(parties=parties, loss=Pure(1), roles=roles, colluders=0)
    covered(Declaration(tuple(releases), adversary="nobody"), consortium)


def test_parties_that_receive_the_same_share_a_view_even_where_one_of_them_sends() -> None:
    consortium = Consortium(parties=("a", "b"), loss=Approx(1, 1e-6))
    declaration = Declaration((release("alignment_key", "a", "every party"),), adversary="nobody")
    assert [(view.participant, len(view.seen)) for view in list_views(declaration, consortium)] == [
        ("coordinator", 0),
        ("each party", 1),
    ]


def test_what_is_made_of_an_exact_value_is_shown_as_unprotected() -> None:
    exact = release("records", "a", "coordinator", Disclosed("all of it", "records_may_leave"))
    made = release("summary", "coordinator", "b", Derived("records"))
    noisy = release("sum", "coordinator", "b", Derived("other"))
    other = release("other", "a", "coordinator", Noised(Gaussian(ZCDP(1))))
    consortium = Consortium(parties=("a", "b"), loss=Approx(1, 1e-6))
    seen = {
        one.release: one.unprotected
        for view in list_views(Declaration((exact, made, noisy, other), "x"), consortium)
        for one in view.seen
    }
    assert seen == {"records": True, "other": False, "summary": True, "sum": False}
