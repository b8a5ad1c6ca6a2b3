"""What a study's author says about it: purpose, contact, legal basis and retention.

The texts are part of what the participants agree on, so the study's hash covers those that are given. Nothing checks
whether they are true. Another organisation may have written them: each is one short line, and every place that shows
one escapes it (`comity.untrusted.text`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from comity.representation import short_repr


@dataclass(frozen=True)
class About:
    """A text is empty where the author gave none."""

    __repr__ = short_repr

    purpose: str = ""
    contact: str = ""
    legal_basis: str = ""
    retention: str = ""

    def given(self) -> dict[str, str]:
        """The texts that the author gave, by the keys of `[study]`."""
        return {key: text for key, text in asdict(self).items() if text}


UNSTATED = About()
