"""Kernels: the compiler is loaded by the first call, in whatever thread that is, and kernels see each other."""

from __future__ import annotations

import subprocess
import sys

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
