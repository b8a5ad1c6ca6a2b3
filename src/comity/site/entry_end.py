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
    if site.relay is None:
        return None
    from comity.relay.certificates import CERTIFICATE, load_certificate

    try:
        return load_certificate(site.home / (site.relay.certificate or f"relay/{CERTIFICATE}")).not_valid_after_utc
    except ComityError:
        return None
