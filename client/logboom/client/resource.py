# Generated from aio/resource.py by client/generate_blocking.py: do not edit, run `make generate`.
"""What a client gives out to be opened, used and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Scope(ABC):
    """Something that `with` enters and leaves."""

    def _enter(self) -> None:
        """Begin, unless it has begun."""
        return

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """End; `error` is the exception that ended the block."""

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
    """A scope that may also be opened and closed by calls."""

    def open(self) -> None:
        """Begin to work, unless it has begun."""
        return

    @abstractmethod
    def close(self) -> None:
        """End; a second call does nothing."""

    def abandon(self) -> None:
        """Give back everything without waiting: nobody holds this object any longer."""
        return

    def _enter(self) -> None:
        self.open()

    def _leave(self, error: BaseException | None) -> None:
        self.close()
