"""Decisions: about what was shown, one after the other, in a record that shows every edit."""

from __future__ import annotations

import pytest

from comity.errors import Refused
from comity.privacy.loss import Approx
from comity.site.approval import preview_approval
from comity.site.decisions import (
    RECORD,
    Changed,
    approve_study,
    digest_of_shown,
    read_decisions,
    refuse_study,
)
from tests.support.sites import Sites


def test_what_changed_while_it_was_read_is_not_approved(sites: Sites) -> None:
    service = sites.services()["north"]
    arrival, site = service.take_in(sites.pack(sites.study())), service.site
    owner, study = site.owner(), service.inbox.study(arrival.study)
    shown = digest_of_shown(preview_approval(site, owner, study, dataset="patients", runs=1), arrival)
    owner.ledger.grant_more(Approx(0.5, 0), "more")
    with pytest.raises(Changed, match="something changed"):
        approve_study(site, owner, arrival.study, dataset="patients", runs=1, by="ada", shown=shown)
    assert service.inbox.find(arrival.study).decision is None
    again = digest_of_shown(preview_approval(site, owner, study, dataset="patients", runs=1), arrival)
    approve_study(site, owner, arrival.study, dataset="patients", runs=1, by="ada", shown=again)
    assert service.inbox.find(arrival.study).approval is not None


def test_the_record_is_signed_and_shows_every_edit(sites: Sites) -> None:
    service = sites.services()["north"]
    arrival, site = service.take_in(sites.pack(sites.study())), service.site
    owner = site.owner()
    approve_study(site, owner, arrival.study, dataset="patients", runs=1, by="ada")
    refuse_study(site, owner, arrival.study, why="withdrawn", by="bea")
    approve_study(site, owner, arrival.study, dataset="patients", runs=1, by="ada")
    key, path = owner.keys.public, site.home / "studies" / RECORD
    assert [one.decision.by for one in read_decisions(site.home, key)] == ["ada", "bea", "ada"]
    lines = path.read_text().splitlines()
    edits = [
        [lines[0], lines[2]],
        [lines[1], lines[0], lines[2]],
        [lines[0], lines[1], lines[2].replace('"ada"', '"eve"')],
        [*lines, lines[-1]],
        lines[1:],
    ]
    for edited in edits:
        path.write_text("\n".join(edited) + "\n")
        with pytest.raises(Refused, match="is not as this site signed it"):
            read_decisions(site.home, key)


def test_a_policy_that_decides_is_recorded_too(sites: Sites) -> None:
    pins = "\n".join(f'{name} = "{text}"' for name, text in sites.identity("south").public.to_texts().items())
    sites.write("north", policy='approval = "within-policy"')
    path = sites.site("north")
    path.write_text(f"{path.read_text()}\n[pinned.south]\n{pins}\n")
    service = sites.services()["north"]
    arrival = service.take_in(sites.pack(sites.study()))
    assert arrival.approval is not None
    (made,) = read_decisions(service.site.home, sites.identity("north").public)
    assert made.decision == arrival.decision
