"""Reading an HTML page as a browser would, without one: its text, its addresses, its tags, and which tables scroll."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

FETCHING = {"src", "href", "xlink:href", "action", "data", "poster", "srcset"}
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects text, addresses and tags, and notices tags that are not closed in order and tables that can't scroll."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.classes: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.folded: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.loose: list[Any] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in FETCHING]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "table" and "scroll" not in self.classes:
            self.loose.append(attrs)
        if tag not in VOID:
            self.open.append(tag)
            self.classes.append(dict(attrs).get("class", ""))

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in FETCHING]

    def handle_endtag(self, tag: str) -> None:
        self.classes.pop()
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        (self.folded if "details" in self.open else self.words).append(data)

    @property
    def text(self) -> str:
        """What is shown before anything is unfolded."""
        return " ".join(" ".join(self.words).split())


def check_page(text: str) -> Page:
    """A page that is whole, runs no script, fetches nothing, and cuts no table off on a narrow screen."""
    page = Page(text)
    assert not page.open and not page.wrong
    assert not page.loose, "a table outside of .scroll is cut off on a narrow screen"
    assert "script" not in page.tags and not page.handlers and "javascript:" not in text
    assert "iframe" not in page.tags and "object" not in page.tags and "@import" not in text and "url(http" not in text
    outside = [one for one in page.addresses if one != "data:," and not one.startswith("#")]
    assert all("//" not in one and not one.startswith("/") for one in outside), outside
    return page
