"""What a study is likely to give, before any private record is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comity.study.study import Study

_METHODS = ("averaging", "softlabel", "synthetic", "vertical")


def has_forecast(study: Study) -> bool:
    """Whether the study's result has an error that can be forecast.

    The value of a summary depends on how the consumer's records differ from the owners'; published variants are for
    comparisons."""
    return study.protocol_name in _METHODS and getattr(study.method, "variant", "default") == "default"
