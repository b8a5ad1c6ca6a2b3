"""A site's figures for Prometheus, for a program that knows the token of a file.

Promise    Without the token the figures are not served, and without a token file there is no such page. A session does
           not open it: a program has no browser.
Against    Other programs and people who can reach the console's address.
"""

from __future__ import annotations

import hmac
import stat
from functools import partial
from pathlib import Path

from starlette.responses import PlainTextResponse, Response

from comity.console.site_view import SiteView
from comity.console.visit import Page, Visit
from comity.errors import BadInput
from comity.site.metrics import CONTENT_TYPE, collect_figures, render_metrics

MIN_TOKEN_CHARACTERS = 32
_BEARER = "Bearer "


def load_token(path: Path) -> str:
    """The token in a file that its owner alone can read."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise BadInput(f"{path}: others can read this token; run: chmod 600 {path}", key="metrics-token")
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: can't be read as a token ({error}); write one: openssl rand -hex 32", key="metrics-token"
        ) from error
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise BadInput(
            f"{path}: expected a token of at least {MIN_TOKEN_CHARACTERS} characters, found {len(token)}; write one: "
            "openssl rand -hex 32",
            key="metrics-token",
        )
    return token


def metrics_pages(view: SiteView, token: str | None) -> list[Page]:
    return [] if token is None else [Page("/metrics", partial(show_metrics, view, token), None)]


def show_metrics(view: SiteView, token: str, visit: Visit) -> Response:
    given = visit.request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), f"{_BEARER}{token}".encode()):
        return PlainTextResponse("This page is for programs that know its token.\n", 401)
    figures = collect_figures(view.current().site)
    return Response(render_metrics(figures), headers={"content-type": CONTENT_TYPE})
