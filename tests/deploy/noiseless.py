"""A site that adds no noise, for comparing a deployed run with a local one. It is in the tests only: the product has no
switch for it.

    python -m tests.deploy.noiseless SITE_FILE      serves like `comity site serve`
"""

from __future__ import annotations

import sys
from dataclasses import replace

from comity.site.service import SiteService, open_endpoint
from tests.support.noise import NoNoise


class NoiselessService(SiteService):
    """An owner's service that adds no noise."""

    def _open(self) -> None:
        super()._open()
        self._owner = replace(self._owner, noise=NoNoise())


if __name__ == "__main__":
    served = NoiselessService(sys.argv[1])
    open_endpoint(served.site).serve(served)
