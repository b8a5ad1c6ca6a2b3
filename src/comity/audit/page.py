"""The page of an audit: claimed and measured side by side, the curve of each attack, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from comity.audit.row import Audit, Claim
from comity.files import write_atomically
from comity.report.page import render
from comity.report.plots import DARK, GREY, INK, LINE, PALE, SIZE, Drawing

_WIDTH, _SIDE = 520.0, 190.0


def write_page(audit: Audit, path: Path) -> Path:
    """Write one file that asks no other machine for anything."""
    from comity._version import __version__

    cards = [{"claim": claim, "curve": curve_plot(claim)} for claim in audit.claims if claim.curve is not None]
    text = render(
        "audit.html.jinja",
        audit=audit,
        bars=Markup(bars_plot(audit.claims)),
        cards=cards,
        version=__version__,
    )
    write_atomically(path, text)
    return path


def bars_plot(claims: Sequence[Claim]) -> str:
    """Measured as a share of the claim, with a line at the claim itself."""
    shown = list(reversed(claims))
    top = max(1.1, *(claim.measured / claim.claimed for claim in shown)) * 1.2
    drawing = Drawing([claim.name for claim in shown], 0.0, top, width=_WIDTH, row=20.0)
    for place, claim in enumerate(shown):
        share, y = claim.measured / claim.claimed, drawing.y(place)
        drawing.box((drawing.x(0), drawing.x(claim.design / claim.claimed)), y, 13, fill=PALE)
        drawing.box((drawing.x(0), drawing.x(share)), y, 8, fill=DARK if claim.held else INK)
        # Behind the line of the claim, which would run through it.
        end = max(1.0, share, claim.design / claim.claimed)
        drawing.text(drawing.x(end) + 5, y + SIZE * 0.36, f"{share:.2f}")
    drawing.line((drawing.x(1), drawing.x(1)), (2, drawing.y(-0.5) + 2), width=1.4)
    said = ", ".join(f"{claim.name} {claim.measured / claim.claimed:.2f}" for claim in claims)
    return drawing.svg("measured epsilon as a share of the claimed one", f"Measured over claimed: {said}")


def curve_plot(claim: Claim) -> Markup:
    """The attack as a curve: neighbours recognised against false alarms, for the whole group."""
    assert claim.curve is not None
    points = " ".join(f"{20 + x * (_SIDE - 30):.1f},{_SIDE - 20 - y * (_SIDE - 30):.1f}" for x, y in claim.curve)
    far = _SIDE - 10
    about = f"{claim.name}: recognised against false alarms"
    return Markup(
        f'<svg viewBox="0 0 {_SIDE:.0f} {_SIDE:.0f}" role="img" aria-label="{{}}">'
        f'<rect x="20" y="10" width="{_SIDE - 30:.0f}" height="{_SIDE - 30:.0f}" fill="none" stroke="{LINE}"/>'
        f'<line x1="20" y1="{_SIDE - 20:.0f}" x2="{far:.0f}" y2="10" stroke="{GREY}" stroke-dasharray="3 3"/>'
        f'<polyline points="{points}" fill="none" stroke="{DARK}" stroke-width="1.8"/>'
        f'<text x="{_SIDE / 2:.0f}" y="{_SIDE - 5:.0f}" font-size="9" text-anchor="middle">false alarms</text>'
        f'<text x="12" y="{_SIDE / 2:.0f}" font-size="9" text-anchor="middle" '
        f'transform="rotate(-90 12 {_SIDE / 2:.0f})">recognised</text></svg>'
    ).format(about)
