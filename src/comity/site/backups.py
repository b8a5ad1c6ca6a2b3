"""How old the newest backup of a site is. Comity makes none: the owner names the folder that its tool writes to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import Field

from comity.methods.tables import Table

if TYPE_CHECKING:
    from comity.site.site_file import SiteFile


class BackupTable(Table):
    """Where copies of the site's folder are written, and how old the newest may be."""

    path: str = Field(min_length=1)
    max_days: int = Field(7, ge=1)


def newest_copy(site: SiteFile) -> datetime | None:
    """When the newest file in the folder of copies, or the named file itself, was written; None if there is none.
    That it can be restored is not checked."""
    if site.backup is None:
        return None
    place = site.home / site.backup.path
    try:
        files = [place] if place.is_file() else [one for one in place.rglob("*") if one.is_file()]
        times = [one.stat().st_mtime for one in files]
    except OSError:
        return None
    return datetime.fromtimestamp(max(times), UTC) if times else None
