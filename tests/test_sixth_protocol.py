"""A sixth method is a folder and a line: made from CONTRIBUTING in a copy of the package, and used as any other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"^```python file=(\w+\.py)\n(.*?)^```", re.S | re.M)
PROTOCOL = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
LINE = re.compile(r"^```python line\n(.*?)^```", re.S | re.M)

USED = """
import contextlib, io, json, sys
from comity.cli import main

def said(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(list(words))
    return [code, out.getvalue()]

print(json.dumps({
    "help": said("new", "--help"),
    "other": said("new", "other", "--protocol", "nothing"),
    "new": said("new", "first", "--protocol", "mean-record"),
    "plan": said("plan", "first/study.toml"),
    "run": said("run", "first/study.toml", "--seed", "7", "--json"),
}))
"""


def test_a_folder_and_a_line_make_a_method(tmp_path: Path) -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    copied = tmp_path / "package" / "comity"
    shutil.copytree(ROOT / "src" / "comity", copied, ignore=shutil.ignore_patterns("__pycache__"))
    folder = copied / "methods" / "mean_record"
    folder.mkdir()
    files = {"__init__.py": "", "protocol.py": PROTOCOL.findall(told)[0], **dict(FILE.findall(told))}
    assert set(files) == {"__init__.py", "protocol.py", "method.py", "starter.py", "entry.py"}
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    listed = copied / "methods" / "__init__.py"
    last = '    "vertical": "comity.methods.vertical.entry",\n'
    before = listed.read_text("utf-8")
    (line,) = LINE.findall(told)
    assert before.count(last) == 1 and line.count("\n") == 1
    listed.write_text(before.replace(last, last + line), "utf-8")
    place = {**os.environ, "PYTHONPATH": str(copied.parent), "COMITY_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", USED], cwd=tmp_path, env=place, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert "mean-record" in found["help"][1] and found["help"][0] == 0
    assert "summary, synthetic, vertical, mean-record" in found["other"][1]
    assert [found[name][0] for name in ("new", "plan", "run")] == [0, 0, 0], found
    assert "centre" in found["plan"][1]
    ran = json.loads(found["run"][1])
    assert ran["protocol"] == "mean-record" and ran["guarantee"]["claim"] == "private"
