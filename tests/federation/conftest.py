from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.children import end_children


@pytest.fixture(autouse=True)
def children_end_with_their_test() -> Iterator[None]:
    yield
    end_children()
