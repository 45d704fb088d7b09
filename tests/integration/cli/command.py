"""Runs the `logboom` command as a shell would, and looks at what it printed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.forked import COMMAND, run_forked


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return msgspec.json.decode(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines that it printed."""
        return self.out.decode().splitlines()


def environment(servers: str | None = None) -> Mapping[str, str]:
    """The environment of a command, with the cluster it talks to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOGBOOM_")}
    # Nowhere can anything be written: the clusters of tests are not this user's.
    kept["XDG_STATE_HOME"] = "/dev/null"
    return kept | ({"LOGBOOM_SERVERS": servers} if servers is not None else {})


def _word(argument: str | bytes | int | Path) -> str:
    return os.fsdecode(argument) if isinstance(argument, bytes) else str(argument)


def logboom(
    *arguments: str | bytes | int | Path,
    servers: str | None = None,
    stdin: bytes = b"",
    cwd: Path | None = None,
    also: Mapping[str, str] | None = None,
    timeout_s: float = 200.0,
) -> Done:
    """Run the command to its end; `also` in its environment."""
    words = [COMMAND, *map(_word, arguments)]
    return Done(*run_forked(words, {**environment(servers), **(also or {})}, cwd, stdin, timeout_s))


def succeed(
    *arguments: str | bytes | int | Path, servers: str | None = None, stdin: bytes = b""
) -> Done:
    """Run a command that must not fail."""
    done = logboom(*arguments, servers=servers, stdin=stdin)
    assert done.code == 0, done.err
    return done


def fail(
    *arguments: str | bytes | int | Path, servers: str | None = None, stdin: bytes = b""
) -> str:
    """Run a command that must fail as promised: one line that says what, no traceback."""
    done = logboom(*arguments, servers=servers, stdin=stdin)
    return complaint(done)


def complaint(done: Done) -> str:
    """The one line of a command that failed."""
    assert done.code != 0, f"it was taken: {done.out!r}"
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert len(lines) == 1, done.err
    assert lines[0].startswith("logboom: "), lines[0]
    assert "Traceback" not in done.err
    return lines[0].removeprefix("logboom: ")
