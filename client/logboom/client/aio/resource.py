"""The bases of everything that is opened, used and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Scope(ABC):
    """An object for `async with`."""

    async def _enter(self) -> None:
        """Begin the block."""
        return

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None:
        """End the block; `error` is the exception that ended it."""

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)


class Resource(Scope):
    """A scope that can also be opened and closed by calls."""

    async def open(self) -> None:
        """Begin to work, unless it has begun."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Stop working. A second call does nothing."""

    def abandon(self) -> None:
        """Give everything back without waiting, because the object is no longer used."""
        return

    async def _enter(self) -> None:
        await self.open()

    async def _leave(self, error: BaseException | None) -> None:
        await self.close()
