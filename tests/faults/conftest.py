from __future__ import annotations

import pytest

from tests.faults.consortia import Folder, make


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The consortium that is made most quickly, of parties that must all be there; for copies."""
    return make(tmp_path_factory.mktemp("faults") / "pristine", "softlabel", runs=2)
