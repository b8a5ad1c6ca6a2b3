"""What `comity.data` names is found when it is first used, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import comity.data
import comity.learn

PLAN = """
import sys
sys.argv = ["comity", "plan", sys.argv[1]]
from comity.cli import main
code = main(sys.argv[1:])
print(code, [name for name in ("pandas", "pyarrow", "opendp", "sklearn", "numba") if name in sys.modules])
"""


@pytest.mark.parametrize("package", [comity.data, comity.learn], ids=lambda package: package.__name__)
def test_no_name_is_hidden_by_a_module(package: Any) -> None:
    homes: dict[str, str] = package._HOMES
    assert homes
    hidden = [name for name, home in homes.items() if home.rpartition(".")[2] == name]
    assert not hidden, "importing the module would put it in the place of what it defines"
    for name in homes:
        assert getattr(package, name).__class__.__name__ != "module"


@pytest.mark.parametrize("protocol", ["averaging", "vertical"])
def test_a_plan_imports_nothing_that_reads_tables_or_draws(
    protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    made = [sys.executable, "-m", "comity", "new", "study", "--protocol", protocol]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    ran = subprocess.run(
        [sys.executable, "-c", PLAN, "study/study.toml"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert ran.stdout.splitlines()[-1] == "0 []"
