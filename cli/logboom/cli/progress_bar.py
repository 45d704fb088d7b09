"""Progress bars on standard error: shown on a terminal, hidden in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class ProgressBar(Protocol):
    """A progress bar."""

    def to(self, done: int) -> None:
        """Show that this much is done."""

    def expect(self, total: int) -> None:
        """Change what the whole is."""

    def say(self, text: str) -> None:
        """Change the words before the bar."""


class _NoBar:
    def to(self, done: int) -> None:
        """Do nothing."""

    def expect(self, total: int) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


@contextmanager
def progress(
    text: str, total: int | None, *, hidden: bool = False, in_bytes: bool = False
) -> Iterator[ProgressBar]:
    """Show a bar for the block. `total` is None if the end is not known.

    Args:
        hidden: show no bar, because something else needs the terminal.
        in_bytes: show sizes, the rate and the time left.
    """
    if hidden or not sys.stderr.isatty():
        yield _NoBar()
        return
    # Imported here: it takes a while, and pipes do not need it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *([MofNCompleteColumn()] if total is not None and not in_bytes else []),
        *([DownloadColumn(binary_units=True), TransferSpeedColumn()] if in_bytes else []),
        TimeElapsedColumn() if not in_bytes else TimeRemainingColumn(),
    ]
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(text, total=total)

        class RichBar:
            """The bar of the block."""

            def to(self, done: int) -> None:
                """Move the bar."""
                bars.update(task, completed=done)

            def expect(self, total: int) -> None:
                """Change the whole."""
                bars.update(task, total=total)

            def say(self, text: str) -> None:
                """Rename the bar."""
                bars.update(task, description=text)

        yield RichBar()
