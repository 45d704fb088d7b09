# Generated from aio/resource.py by `make generate`: do not edit.
"""The bases of everything that is opened, used and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Scope(ABC):
    """An object for `with`."""

    def _enter(self) -> None:
        """Begin the block."""
        return

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """End the block; `error` is the exception that ended it."""

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)


class Resource(Scope):
    """A scope that can also be opened and closed by calls."""

    def open(self) -> None:
        """Begin to work, unless it has begun."""
        return

    @abstractmethod
    def close(self) -> None:
        """Stop working. A second call does nothing."""

    def abandon(self) -> None:
        """Give everything back without waiting, because the object is no longer used."""
        return

    def _enter(self) -> None:
        self.open()

    def _leave(self, error: BaseException | None) -> None:
        self.close()
