"""Without the extra `compiler`: four default methods give the same bits, the others are refused before a run starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from comity import compiled
from comity.cli import main
from comity.errors import BadInput
from comity.federation.protocol import Protocol
from comity.site.approval import preview_approval
from tests.support.sites import Sites

_KERNELS = """
import hashlib, sys
if sys.argv[1] == "without":
    sys.modules["numba"] = None
import numpy as np
from comity.compiled import has_compiler
from comity.crypto import psi_keyed
from comity.data import encoding
from comity.methods.synthetic import synthesis
assert has_compiler() == (sys.argv[1] == "with")
numbers = np.random.default_rng(3)
out = np.empty(5_000)
digest = hashlib.sha256()
scales = ((0.1, 0.3, 0.5, 1.7), (-1e-300, 1e300, 0.0, 3.0), (18.0, 72.0, 0.5, 2.6457513110645907))
for low, length, middle, root in scales:
    values = numbers.normal(size=5_000) * length
    values[:3] = np.nan, np.inf, -0.0
    encoding.scale_column(values, out, low, length, middle, root)
    digest.update(out.tobytes())
cells = numbers.integers(0, 4, (400, 5)) + 4 * np.arange(5)
groups, gap = numbers.integers(0, 3, 400), numbers.normal(size=(20, 20)) * 30
gap += gap.T
for k in range(5):
    order = np.lexsort((numbers.integers(0, 2**62, 400), groups))
    synthesis._exchange(cells, groups, order, k, np.arange(5), gap)
digest.update(cells.tobytes() + gap.tobytes())
ids = psi_keyed.Packed.of([b"%d" % k for k in range(psi_keyed.COMPILED_FROM + 1)])
digest.update(psi_keyed.make_pseudonyms(bytes(32), ids).tobytes())
print(digest.hexdigest())
"""


def test_kernels_have_the_same_bits_without_the_compiler() -> None:
    found = [
        subprocess.run([sys.executable, "-c", _KERNELS, how], capture_output=True, text=True, timeout=120)
        for how in ("with", "without")
    ]
    assert [one.returncode for one in found] == [0, 0], [one.stderr for one in found]
    assert found[0].stdout == found[1].stdout and len(found[0].stdout.strip()) == 64


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "has_compiler", lambda: False)


@pytest.mark.usefixtures("no_compiler")
def test_a_kernel_without_an_equivalent_names_the_extra() -> None:

    def step(x: int) -> int:
        return x + 2

    kernel = compiled.compiled(step)
    with pytest.raises(BadInput, match=r"needs the extra compiler .*pip install 'comity\[compiler\]'"):
        kernel(1)
    assert compiled.compiled_or(lambda x: x + 1)(step)(1) == 2
    assert compiled.compiled_or_interpreted(step)(1) == 3


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("protocol", "variant"), [("vertical", "default"), ("synthetic", "published")])
def test_a_study_that_needs_it_plans_and_is_refused_before_it_runs(
    protocol: str, variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    assert main(["new", str(folder), "--protocol", protocol, "--variant", variant]) == 0
    assert main(["plan", str(folder / "study.toml")]) == 0
    assert main(["run", str(folder / "study.toml"), "--seed", "7"]) == 3
    assert "pip install 'comity[compiler]'" in " ".join(capsys.readouterr().err.split())
    assert not list(folder.glob("runs/*/ledgers/*"))


def test_an_owner_reads_it_before_approving(sites: Sites, monkeypatch: pytest.MonkeyPatch, no_compiler: None) -> None:
    service, study = sites.services()["north"], sites.study()
    dataset = next(iter(service.site.data))
    preview_approval(service.site, service.site.owner(), study, dataset=dataset, runs=1)
    monkeypatch.setattr(Protocol, "needs_compiler", True)
    with pytest.raises(BadInput, match="extra compiler"):
        preview_approval(service.site, service.site.owner(), study, dataset=dataset, runs=1)
