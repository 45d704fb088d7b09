"""The console's own audit log: who did what from which address, beside the cluster's, which names
the user that the console connects as."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from logboom.console.widgets.page_query import FormValues
from logboom.wire.actor import Instant
from logboom.wire.audit_file import AuditFile
from logboom.wire.audit_log import MAX_TEXT_CHARS, AuditEntry, AuditLog

NOT_TOLD: Final = frozenset({"token", "confirmed", "back", "value", "password", "public_key"})
"""Fields of forms that are not written: contents of messages and secrets."""


class ConsoleAudit:
    """The lines of one console, written at once."""

    def __init__(self, folder: Path) -> None:
        """Open the file.

        Raises:
            StartError: BAD_CONFIG, if the folder cannot be written.
        """
        self._log = AuditLog("console")
        self._file = AuditFile(folder, "console")

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def note(
        self, event: str, viewer: str, address: str, request: str, result: str, values: FormValues
    ) -> None:
        """Write one line.

        Args:
            event: action, refused, or authentication.
            result: ok, or the code of the error.
        """
        now = Instant(time.monotonic(), int(time.time() * 1000))
        self._log.begin(now)
        entry = AuditEntry(
            event=event,
            user=viewer,
            address=address,
            client="console",
            request=request,
            result=result,
            details={
                name: " ".join(values.all(name))[:MAX_TEXT_CHARS]
                for name, value in values.pairs()
                if value and name not in NOT_TOLD
            },
        )
        # Whoever is refused may go on trying: such lines must not push others out of the file.
        if event == "refused":
            self._log.refused(entry)
        elif event == "authentication" and result != "ok":
            self._log.refused(entry, known=False)
        else:
            self._log.managed(entry)
        self._file.write(self._log.take(), now)

    def close(self) -> None:
        """Append the numbers that were not told yet, and close the file."""
        self._log.flush()
        self._file.write(self._log.take(), self._log.now)
        self._file.close()
