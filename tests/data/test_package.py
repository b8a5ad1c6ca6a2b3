"""What `comity.data` names is found when it is first used, whatever was imported before."""

from __future__ import annotations

from typing import Any

import pytest

import comity.data
import comity.learn


@pytest.mark.parametrize("package", [comity.data, comity.learn], ids=lambda package: package.__name__)
def test_no_name_is_hidden_by_a_module(package: Any) -> None:
    homes: dict[str, str] = package._HOMES
    assert homes
    hidden = [name for name, home in homes.items() if home.rpartition(".")[2] == name]
    assert not hidden, "importing the module would put it in the place of what it defines"
    for name in homes:
        assert getattr(package, name).__class__.__name__ != "module"
