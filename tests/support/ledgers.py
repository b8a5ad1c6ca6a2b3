"""What most ledgers of the tests protect: a record, which may be replaced."""

from __future__ import annotations

from typing import Any

from comity.privacy.unit import Neighbours, Unit

RECORD: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
