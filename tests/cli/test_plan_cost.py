"""A plan is made in a moment: it imports the study's own method, and nothing that fits or draws."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comity.methods import PROTOCOLS, entry_of, load_object

MEASURED = """
import json, resource, sys
from comity.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print("\\n" + json.dumps([code, used.ru_utime + used.ru_stime, sorted(sys.modules)]))
"""


def measured(*arguments: str) -> tuple[int, float, set[str]]:
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True)
    code, seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return code, seconds, set(modules)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_plan_imports_its_own_method_and_no_library_of_models(name: Any, tmp_path: Path) -> None:
    load_object(entry_of(name).starter)(tmp_path)
    code, seconds, modules = measured("plan", str(tmp_path / "study.toml"))
    assert code == 0
    assert entry_of(name).method.partition(":")[0] in modules
    assert not modules & {"sklearn", "scipy.stats", "scipy.optimize", "matplotlib", "duckdb", "sqlalchemy"}
    # Nor what opens a ledger, reads records, runs a study between processes, or belongs to another command.
    unused = ("privacy.ledger.storage", "data.tables.sql", "data.tables.spark", "federation.owner.host", "cli.site")
    assert not modules & {f"comity.{one}" for one in unused}
    if name in ("averaging", "vertical"):
        assert not modules & {"pandas", "pyarrow", "opendp", "numba"}
    others = [f"comity.methods.{other}" for other in PROTOCOLS if other != name]
    assert not [one for one in modules if one.startswith(tuple(others))]
    # Vertical alignment is laid out with compiled kernels, whose module is imported; the others have none.
    assert "numba" not in modules or name == "vertical"
    assert seconds < 2


def test_help_imports_neither_numbers_nor_tables() -> None:
    code, seconds, modules = measured("--help")
    assert code == 0 and not modules & {"numpy", "pandas", "scipy", "pydantic", "cryptography"}
    assert seconds < 1
