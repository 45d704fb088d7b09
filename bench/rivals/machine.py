"""What the machine is, and what else it did while it was measured."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def describe() -> dict[str, str]:
    """Return the processor, its cores, the memory and the software."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "processor": cpu[1] if cpu else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def busy_s() -> float:
    """Return the seconds that all cores were busy or taken by the hypervisor since the start."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    user, nice, system, _, _, interrupts, soft, stolen = fields
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


class ForeignLoad:
    """The cores that processes other than ours take, from its making until `cores`."""

    def __init__(self, own_s: Callable[[], float]) -> None:
        """Begin.

        Args:
            own_s: Returns the processor seconds of all our processes so far.
        """
        self._own_s = own_s
        self._began, self._busy, self._own = time.monotonic(), busy_s(), own_s()

    def cores(self) -> float:
        """Return the mean since the beginning."""
        busy = busy_s() - self._busy
        own = self._own_s() - self._own
        return max(0.0, busy - own) / (time.monotonic() - self._began)
