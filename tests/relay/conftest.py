from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.site.conftest import pristine, sites
from tests.support.relays import Loopback, NatsLine

from .attacked import made

__all__ = ["pristine", "sites"]

NAMES = ("ash", "birch", "cedar", "doum", *(f"site-{number}" for number in range(40)))

# Of the suite that every channel keeps: what takes long over a relay, or tens of connections. `make test-deploy`.
LONG = (
    "test_messages_are_made_when_they_are_sent_and_not_held",
    "test_replies_that_nobody_takes_are_not_piled_up",
    "test_a_party_that_computes_shows_life_and_is_not_gone",
    "test_an_ask_is_cancelled_from_another_thread",
    "test_after_the_block_is_left_nothing_is_sent_and_nothing_is_heard",
    "test_a_bad_line_changes_nothing_that_is_heard[reordering]",
    "test_a_bad_line_changes_nothing_that_is_heard[slow]",
    "test_a_bad_line_changes_nothing_that_is_heard[all of it]",
    "test_a_line_that_breaks_in_the_middle_of_a_long_message_carries_it_all_the_same",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Any) -> None:
    for item in items:
        if item.name in LONG and item.path.parent.name == "relay":
            item.add_marker(pytest.mark.deploy)


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = Loopback.make(tmp_path_factory.mktemp("consortium"), NAMES)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def line(loopback: Any) -> Iterator[Any]:
    made = NatsLine(loopback)
    yield made
    made.end()


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Any:
    """The row of the security matrix that a test asserts."""
    return request.function.row


@pytest.fixture(scope="module")
def consortium_under_attack(pristine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with made(pristine, tmp_path_factory.mktemp("attacked")) as one:
        yield one


@pytest.fixture
def attacked(consortium_under_attack: Any, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Whatever is tried, no ledger has another entry after it, and what sites write down for their owners is in their
    logs too."""
    one = consortium_under_attack
    before, known = one.heads(), {name: len(one.noted(name)) for name in one.services}
    yield one
    assert one.heads() == before
    new = [sentence for name in one.services for sentence in one.noted(name)[known[name] :]]

    def missing() -> list[str]:
        # A site logs a sentence after it wrote it down, which may be when the test has ended.
        records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
        logged = "\n".join(record.getMessage() for record in records)
        return [sentence for sentence in new if sentence not in logged]

    ends = time.monotonic() + 5
    while missing() and time.monotonic() < ends:
        time.sleep(0.02)
    assert missing() == []
