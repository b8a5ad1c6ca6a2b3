"""What a run was made with: versions of what computes, and the kind of machine; no host name, no paths."""

from __future__ import annotations

import platform
from importlib import metadata

from comity._version import __version__

_PACKAGES = ("numpy", "scipy", "scikit-learn", "opendp", "cryptography", "pandas", "pyarrow")


def versions() -> dict[str, str]:
    found = {"comity": __version__, "python": platform.python_version()}
    found |= {package: metadata.version(package) for package in _PACKAGES}
    return found | {"system": f"{platform.system()} {platform.machine()}"}
