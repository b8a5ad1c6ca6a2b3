"""How Sphinx builds the documentation: `make docs`. It reads this checkout only, and its pages load nothing from
elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.reference import write_reference

from comity import __version__

project = "Comity"
author = "The Comity authors"
release = version = __version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["comity.css"]
html_title = f"Comity {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

_ROOT = Path(__file__).parents[1]


_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")


def _name_repository_files(app: Any, name: str, source: list[str]) -> None:
    """A link to a file of the checkout that is no page, such as a proof beside its code, shows the file's path."""
    here = (Path(app.srcdir) / name).parent

    def shown(link: re.Match[str]) -> str:
        found = (here / link[2]).resolve()
        if found.is_relative_to(_ROOT / "docs") or not found.exists():
            return link[0]
        path = str(found.relative_to(_ROOT))
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    source[0] = _LINK.sub(shown, source[0])


def setup(app: Any) -> None:
    app.connect("builder-inited", lambda app: write_reference(Path(app.srcdir) / "reference"))
    app.connect("source-read", _name_repository_files)
