"""An owner's view depends on the others only through the declared noisy releases.

Two runs whose other parties hold entirely different records, and whose noisy releases are made to be the same: what one
owner is asked, receives and keeps is the same, byte for byte.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.data import Records
from comity.federation.declare.protection import Derived
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.study.simulation.simulate import RunOptions, Terms, simulate

from .consortia import CONSUMER, OWNERS, ROLES, build_one_shot, make_consortium, make_records


def run(records: Any, monkeypatch: pytest.MonkeyPatch, *, seen: Any = None) -> Any:
    """A run in which the noisy values of the others are those of `seen`; what ash was sent, by step."""
    asked: dict[str, object] = {}
    contribute = Site.contribute

    def contributing(self: Any, value: Any = None, *, share: Any = None) -> None:
        # The first run's contributions, noise included, stand in for the others' own: only they may matter.
        contribute(self, value, share=share)
        name = self._sends
        key = f"out:{name}/0"
        kept = found.setdefault((self.party, name), (self.effects.state.get(key), self.contribution))
        if seen is not None and self.party != "ash":
            state, contribution = seen[self.party, name]
            if state is None:
                self.contribution = contribution
            else:
                # Under this run's masks.
                moved = decode(state) - decode(self.effects.state[key])
                self.contribution = self.contribution + moved.view("<u8").astype(self.contribution.dtype)
        assert kept is not None

    found: dict[tuple[str, str], tuple[object, object]] = {}
    with monkeypatch.context() as patch:
        patch.setattr(Site, "contribute", contributing)
        for name in ("weigh", "choose"):
            original = getattr(type(build_one_shot()), name)

            def watched(self: Any, site: Any, *args: Any, _of: Any = original, **values: Any) -> Any:
                if site.party == "ash":
                    asked[_of.spec.name] = values
                return _of(self, site, *args, **values)

            watched.__dict__["spec"] = original.spec
            patch.setattr(type(build_one_shot()), name, watched)
        outcome = simulate(
            build_one_shot(make_records()),
            parties=records,
            epsilon=4,
            delta=1e-5,
            unit="record",
            seed=3,
            terms=Terms(roles=ROLES, name="view", hash="00" * 32),
            options=RunOptions(run_id="run"),
        )
    return asked, outcome.received["ash"], found


def same(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def test_an_owners_view_is_a_function_of_the_declared_noisy_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_records()
    others = {
        name: one if name == "ash" else Records(1 - one.features[::-1], cast(Any, one.labels)[::-1])
        for name, one in first.items()
    }
    asked, received, found = run(first, monkeypatch)
    again, received_again, _ = run(others, monkeypatch, seen=found)
    assert set(asked) == {"weigh", "choose"}
    assert same(asked, again) and same(dict(received.releases), dict(received_again.releases))
    # Control: without the same noisy releases it is another view.
    apart, _, _ = run(others, monkeypatch)
    assert not same(asked, apart)


def test_whatever_reaches_an_owner_is_made_from_noisy_releases_alone() -> None:
    consortium = make_consortium()
    declared = build_one_shot().declare(consortium).accept(consortium)
    paid = {release.name for release in declared.releases if release.loss is not None}
    for owner in OWNERS:
        for release in declared.seen_by(owner, consortium):
            assert isinstance(release.protection, Derived) and set(release.protection.of) <= paid
    assert {release.name for release in declared.seen_by(CONSUMER, consortium)} == {
        "spectrum",
        "ratio",
        "attribution",
        "summary",
    }
