"""What the system says of this process: memory, processor time, file descriptors."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

PROCESS_FOLDER: Final = Path("/proc/self")


class ProcessFigures:
    """The figures of this process, for STATS."""

    def __init__(self) -> None:
        """Note the time of the start."""
        self._started_s = time.time()
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> dict[str, int | float]:
        """Return the figures as they are now, within some microseconds.

        What the system does not tell is left out.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, int | float] = {
            "start_time_seconds": self._started_s,
            "process_cpu_seconds": usage.ru_utime + usage.ru_stime,
            "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        }
        try:
            pages = int((PROCESS_FOLDER / "statm").read_text(encoding="ascii").split()[1])
            found["process_resident_memory_bytes"] = pages * self._page_bytes
            folder = PROCESS_FOLDER / "fd"
            # Since Linux 6.2 the folder's size is the number of its entries.
            found["process_open_fds"] = folder.stat().st_size or len([*folder.iterdir()])
        except OSError:
            pass
        return found
