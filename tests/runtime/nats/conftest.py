from __future__ import annotations

import pytest

from .relays import Loopback, NatsLine

NAMES = ("ash", "birch", "cedar", "doum", *(f"site-{number}" for number in range(40)))


@pytest.fixture(scope="session")
def loopback(tmp_path_factory):
    made = Loopback.make(tmp_path_factory.mktemp("consortium"), NAMES)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def line(loopback):
    made = NatsLine(loopback)
    yield made
    made.end()
