"""Names of very many parties, without a string for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload


class Numbered(Sequence[str]):
    """p0, p1, …: each name is made when it is asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [f"p{k}" for k in range(self._count)[place]]
        return f"p{range(self._count)[place]}"

    def __iter__(self) -> Iterator[str]:
        return (f"p{k}" for k in range(self._count))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name[:1] == "p" and name[1:].isdecimal() and int(name[1:]) < self._count
