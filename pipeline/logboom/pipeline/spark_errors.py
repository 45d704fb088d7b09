"""Spark's errors in one line, because our errors arrive wrapped in tracebacks of two languages."""

from __future__ import annotations

import re

from logboom.wire.errors import LogboomError, StartError

_JAVAS = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
_OURS = re.compile(r"logboom\.wire\.errors\.\w+: (.+)")


def reason(error: BaseException) -> str:
    """Return the reason of an error: our own text, or the first line of Spark's."""
    text = str(error)
    ours = _OURS.findall(text) or _JAVAS.findall(text)[:1]
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else repr(error)


def job_failed(job: str, error: BaseException) -> LogboomError:
    """Return the error of a job for its user."""
    return LogboomError(f"{job}: {reason(error)}")


def no_session(master: str, error: BaseException) -> StartError:
    """Return the error of a session that could not be created."""
    where = f" at master {master!r}" if master else ""
    why = reason(error)
    if "JAVA_GATEWAY_EXITED" in str(error):
        needed = "Java 17 or newer (`java -version` tells), and a master such as spark://host:7077"
        why = f"what it said stands above; it needs {needed}"
    return StartError(f"Spark did not start{where}: {why}")
