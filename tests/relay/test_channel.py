"""The channel over the relay keeps the suite that every channel keeps, on a real server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.federation.channel_conformance import ChannelConformance
from tests.support.relays import needs_server

pytestmark = needs_server


class TestOverNats(ChannelConformance):
    @pytest.fixture
    def line(self, line: Any) -> Any:
        return line
