"""A loop of ordinary Python, as a measure of a processor: `python -m bench.python_loop SECONDS`.

It prints "ready", begins at a line on its standard input, and prints its steps per second.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

STEPS: Final = 10_000


def turn() -> int:
    """Do `STEPS` steps: calls, tuples, bytes, and a table that grows."""
    table: dict[bytes, tuple[int, bytes]] = {}
    total = 0
    for number in range(STEPS):
        key = b"%d" % number
        table[key] = (number, key + b"x")
        total += len(table[key][1])
    return total


def processor_ms() -> float:
    """Return the ms of this process's processor time for a turn, the median of some."""
    spent = []
    for _ in range(15):
        began = time.process_time()
        turn()
        spent.append(1_000 * (time.process_time() - began))
    return sorted(spent)[len(spent) // 2]


def steps_s(processes: int, seconds: float) -> float:
    """Return steps per second of this many processes at once."""
    command = [sys.executable, "-m", "bench.python_loop", str(seconds)]
    loops = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for loop in loops:
        assert loop.stdout is not None
        if loop.stdout.readline() != "ready\n":
            raise RuntimeError("a loop did not start: see its error above")
    for loop in loops:
        assert loop.stdin is not None
        loop.stdin.write("go\n")
        loop.stdin.flush()
    return sum(float(loop.communicate(timeout=60)[0]) for loop in loops)


def main() -> None:
    """Wait for the start, run, and print the rate."""
    seconds, turns = float(sys.argv[1]), 0
    turn()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    while (spent := time.monotonic() - began) < seconds:
        turn()
        turns += 1
    print(turns * STEPS / spent)


if __name__ == "__main__":
    main()
