"""Progress of a run in a person's words: "round 7 of 24: gradient", with the share that is done.

A run reports the paths of its steps. A round is a step that sends a paid release; how many there are is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comity.study.study import Study

_PATH = re.compile(r"^(?P<step>[A-Za-z_][\w.-]*)\[[^\]]*\](?: (?P<done>\d+)/(?P<all>\d+))?$")
_COUNT = re.compile(r" \d+/\d+$")
_PHASES = {"run.ready": "asking who is there", "run.begin": "reserving the budget", "run.end": "handing out the result"}


_PARTS = {
    "align": "matching the parties' records",
    "argmin": "comparing encrypted numbers",
    "product": "multiplying encrypted columns",
    "rounds": "multiplying encrypted columns",
}
"""What the parts of a protocol do, by their names; steps of other parts are named as they are."""

_WORDS = {
    "bids": "which figures to measure next",
    "calibration": "how sure the model may be of its answers",
    "coefficients": "the weights of a model",
    "counts": "counts of records",
    "gradient": "a step towards a better model",
    "mass": "how many records each group has",
    "models": "the parties' own models",
    "moments": "sums and products of columns",
    "second_moment": "how columns vary together",
    "votes": "answers to the consumer's questions",
    "whitened_moment": "how columns vary together, more precisely",
    "wish": "which table to measure next",
}
"""What paid releases are, by their names; others are named as they are."""


class RunProgress:
    """Turns the paths of steps into words. `releases` are the paid releases by the steps that send them, `rounds` is
    how many values they send in all. Steps of secure sums belong to the round before them and change nothing."""

    def __init__(self, report: Callable[[str], None], releases: Mapping[str, str], rounds: int) -> None:
        self._report = report
        self._releases = releases
        self._rounds = rounds
        self._last = ""
        self._round = 0

    @classmethod
    def of(cls, study: Study, report: Callable[[str], None]) -> RunProgress:
        from comity.federation.part import steps_of

        consortium, declaration = study.consortium, study.agreement.accepted
        paid = {release.name: release.times for release in declaration.releases if release.loss is not None}
        steps = {one.name: one.sends for one in steps_of(study.protocol, consortium) if one.sends in paid}
        known = {step: name for step, name in steps.items() if name is not None}
        return cls(report, known, sum(paid[name] for name in set(known.values())))

    def __call__(self, words: str) -> None:
        found = _PATH.match(words)
        if found is None:
            self._report(words)
            return
        step = found["step"]
        if step in _PHASES:
            self._report(_PHASES[step])
        elif step in self._releases:
            path = words.partition("]")[0]
            self._round += path != self._last
            self._last = path
            rounds = max(self._rounds, self._round)
            self._report(f"round {self._round} of {rounds}: {self._releases[step]} {self._round}/{rounds}")
        elif not step.startswith("sum."):
            self._report(_PARTS.get(step.partition(".")[0], step.replace("_", " ")))


def describe_steps(study: Study, paths: Iterable[str]) -> list[str]:
    """The steps of a run so far, for people who know neither the method nor its releases; repeated words are said
    once."""
    said: list[str] = []

    def say(words: str) -> None:
        text, colon, release = _COUNT.sub("", words).partition(": ")
        said.append(f"{text}: {_WORDS.get(release, release.replace('_', ' '))}" if colon else text)

    report = RunProgress.of(study, say)
    for path in paths:
        report(path)
    return [words for words, before in zip(said, ["", *said]) if words != before]
