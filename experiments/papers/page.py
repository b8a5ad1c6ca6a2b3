"""Plots and tables of a reproduction in one page that asks nobody for anything: pictures are in it, scripts are not."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "figure{margin:2rem 0}img{max-width:100%;height:auto}figcaption{color:#555}"
    "table{border-collapse:collapse;font-size:.85rem}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;"
    "text-align:left}.wide{overflow-x:auto}"
)


@dataclass(frozen=True)
class Figure:
    """An SVG file with what it shows, which is also what a reader who can't see it is told."""

    path: Path
    caption: str


def write_page(
    path: Path, *, title: str, said: Sequence[str], figures: Sequence[Figure], rows: Sequence[Mapping[str, Any]]
) -> Path:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    body = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(sentence)}</p>" for sentence in said)]
    body += [html_figure(one) for one in figures]
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(_cell(row.get(head)))}</td>" for head in heads) for row in rows]
    body.append('<div class="wide"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>")
    path.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n",
        encoding="utf-8",
    )
    return path


def html_figure(one: Figure) -> str:
    picture = b64encode(one.path.read_bytes()).decode("ascii")
    told = escape(one.caption, quote=True)
    return (
        f'<figure><img alt="{told}" src="data:image/svg+xml;base64,{picture}"><figcaption>{told}</figcaption></figure>'
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
