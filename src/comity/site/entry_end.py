"""When a site's membership of its consortium ends."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from comity.errors import ComityError

if TYPE_CHECKING:
    from comity.site.site_file import SiteFile


def entry_end(site: SiteFile) -> datetime | None:
    """The end of the site's entry, as its own files say; None where it has none or they can't be read, which
    `comity doctor --site` explains."""
    if site.invitation is None:
        return None
    from comity.relay.invitation import Invitation

    try:
        invitation = Invitation.load(site.invitation)
        entry = invitation.members.get(site.party)
        return None if entry is None else min(entry.until, invitation.valid_until)
    except ComityError:
        return None
