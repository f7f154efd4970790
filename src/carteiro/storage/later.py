"""Answers that are read later, so that several statements share one exchange with the server."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """The answer to statements that have been sent in a pipeline; awaiting it waits for them, and may raise what they
    raised. Outside of a pipeline it is there at once.
    """

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read

    def __await__(self) -> Generator[Any, Any, T]:
        return self._read().__await__()
