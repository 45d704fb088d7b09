"""Runs a node that logs at DEBUG, and ends on SIGUSR1 by an error that shows all there is to show.

    python talkative_node.py python -m logboom.deploy.node …

Before the error it logs every object of logboom in the process. The traceback has all local variables.
"""

from __future__ import annotations

import gc
import logging
import runpy
import signal
import sys
import traceback
from types import FrameType, TracebackType


def show_everything() -> None:
    """Log every object of logboom with `%r`, and what it holds."""
    log = logging.getLogger("everything")
    for each in gc.get_objects():
        if str(type(each).__module__).startswith("logboom."):
            log.debug("%r holds %r", each, held(each))


def held(each: object) -> dict[str, object]:
    """What an object has in its attributes."""
    names = {name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())}
    found = {name: getattr(each, name) for name in names if hasattr(each, name)}
    return found | getattr(each, "__dict__", {})


def _end(_number: int, _frame: FrameType | None) -> None:
    show_everything()
    raise RuntimeError("provoked")


def _write(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    shown = traceback.TracebackException(kind, error, trace, capture_locals=True)
    sys.stderr.writelines(shown.format())


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    signal.signal(signal.SIGUSR1, _end)
    sys.excepthook = _write
    del sys.argv[:3]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
