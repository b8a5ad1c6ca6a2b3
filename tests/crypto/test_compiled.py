"""Kernels: the compiler is loaded by the first call, in whatever thread that is, and kernels see each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_BY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from comity.crypto.products import fixed_point, inner_products, negacyclic, rlwe
from comity.crypto import psi_keyed
assert "numba" not in sys.modules
ids = psi_keyed.Packed.of([b"%d" % k for k in range(psi_keyed.COMPILED_FROM)])
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda _: psi_keyed.make_pseudonyms(bytes(32), ids).tobytes(), range(8)))
assert "numba" in sys.modules
assert len(set(found)) == 1
assert found[0] == psi_keyed._plain(bytes(32), ids).tobytes()[: len(found[0])]
"""


def test_the_compiler_is_loaded_with_the_first_call_also_from_many_threads() -> None:
    done = subprocess.run([sys.executable, "-c", _BY_THREADS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


_REPORTED = """
import numpy as np
from comity.compiled import report_compiling
from comity.crypto import psi_keyed
ids = psi_keyed.Packed.of([b"%d" % k for k in range(psi_keyed.COMPILED_FROM)])
said = []
with report_compiling(lambda: said.append("compiling")):
    psi_keyed.make_pseudonyms(bytes(32), ids)
print(len(said))
"""


def test_people_are_told_of_a_compilation_and_not_of_a_kernel_that_is_on_disk(tmp_path: Path) -> None:
    def run() -> int:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", _REPORTED], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert run() > 0
    assert run() == 0
