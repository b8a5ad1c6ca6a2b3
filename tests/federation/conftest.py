from __future__ import annotations

import pytest

from .children import end_children


@pytest.fixture(autouse=True)
def children_end_with_their_test():
    yield
    end_children()
