"""Which of several scores is largest, by coins that are exact: permute-and-flip (McKenna and Sheldon 2020), row by row.

Candidates come in random order, and each is taken with probability exp(−gap/b), its gap being that to the best score.
As all coins are independent, that is to toss one for every candidate and to take one of those with heads, each with
the same chance; the best one always has heads.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from comity.privacy.sampling.lazy_words import SLACK, LazyWords, exponential_between

Integers = NDArray[np.int64]

_BLOCK = 1 << 17


def permute_and_flip(scores: Integers, scale: float, words: LazyWords) -> Integers:
    """The winner of each row of integer scores, for coins exp(−gap/scale)."""
    rows, width = scores.shape
    step = max(1, _BLOCK // width)
    return np.concatenate([_winners(scores[start : start + step], scale, words) for start in range(0, rows, step)])


def _winners(scores: Integers, scale: float, words: LazyWords) -> Integers:
    gaps = (scores.max(axis=1, keepdims=True) - scores).ravel()
    start, (uniforms,) = words.take(1, gaps.size)
    margins = np.exp(gaps / -scale) - uniforms * 2.0**-64
    heads = margins > 0
    for index in np.flatnonzero((np.abs(margins) <= SLACK) & (gaps > 0)).tolist():
        x = Fraction(int(gaps[index])) / Fraction(scale)
        heads[index] = words.below(start + index, int(uniforms[index]), partial(exponential_between, x, x))
    heads |= gaps == 0
    return _one_of_each(heads.reshape(scores.shape), words)


def _one_of_each(heads: NDArray[np.bool_], words: LazyWords) -> Integers:
    """One of the marked places of each row, each of them equally likely: the largest key, drawn anew where two tie."""
    winners = np.empty(len(heads), np.int64)
    waiting = np.arange(len(heads))
    while waiting.size:
        marked = heads[waiting]
        _, keys = words.take(*marked.shape)
        keys = np.where(marked, keys | np.uint64(1), np.uint64(0))
        top = keys.max(axis=1, keepdims=True)
        winners[waiting] = keys.argmax(axis=1)
        waiting = waiting[(keys == top).sum(axis=1) > 1]
    return winners
