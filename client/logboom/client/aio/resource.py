"""What a client gives out to be opened, used and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Scope(ABC):
    """Something that `async with` enters and leaves."""

    async def _enter(self) -> None:
        """Begin, unless it has begun."""
        return

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None:
        """End; `error` is the exception that ended the block."""

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
    """A scope that may also be opened and closed by calls."""

    async def open(self) -> None:
        """Begin to work, unless it has begun."""
        return

    @abstractmethod
    async def close(self) -> None:
        """End; a second call does nothing."""

    def abandon(self) -> None:
        """Give back everything without waiting: nobody holds this object any longer."""
        return

    async def _enter(self) -> None:
        await self.open()

    async def _leave(self, error: BaseException | None) -> None:
        await self.close()
