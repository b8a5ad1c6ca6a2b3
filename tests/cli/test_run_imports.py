"""A run imports what it computes with: libraries of models and of plots are no part of a soft-label study."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from comity.cli import main

_SCRIPT = """
import json, sys
from comity.cli import main
code = main(["run", "study.toml", "--seed", "7", "--quiet", "--set", "parties.count=12"])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


@pytest.fixture
def study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["new", str(tmp_path / "study"), "--protocol", "softlabel"]) == 0
    text = (tmp_path / "study" / "study.toml").read_text()
    changed = text.replace('split = "by-column"', 'split = "even"').replace('column = "clinic"', "")
    (tmp_path / "study" / "study.toml").write_text(changed)
    return tmp_path / "study"


def test_a_run_of_soft_labels_imports_no_library_of_models_or_plots(study: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], cwd=study, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not set(modules) & {"sklearn", "scipy.stats", "matplotlib"}
