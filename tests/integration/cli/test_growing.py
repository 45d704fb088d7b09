"""A cluster grows, shrinks and loses a broker by commands alone, as docs/OPERATING.md says."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.cli.command import Done, complaint, environment, logboom, succeed
from tests.integration.cli.test_cluster_command import free_base
from tests.integration.waiting import wait_until

WAIT = ("--yes", "--wait", "--timeout", 400)
SLOW = 512
"""A `move_bytes_per_s` with which no move of a test ends by itself."""


class Shell:
    """Commands to one cluster of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._up = ("cluster", "up", "-n", 1, "-p", free_base(), "-d", folder, "-o", "json")

    def up(self, brokers: int) -> dict[str, int]:
        """Start so many brokers; return the process of each node."""
        return {row["node"]: row["pid"] for row in self.do(*self._up, "-b", brokers).json}

    def call(self, *words: str | int | Path) -> Done:
        """Run a command."""
        return logboom(*words, also={"LOGBOOM_DATA": str(self.folder)})

    def do(self, *words: str | int | Path) -> Done:
        """Run one that must not fail."""
        done = self.call(*words)
        assert done.code == 0, done.err
        return done

    def refused(self, *words: str | int | Path) -> str:
        """Run one that must fail, and return its line."""
        return complaint(self.call(*words))

    def brokers(self) -> dict[str, dict[str, object]]:
        """What `broker list` says."""
        return {row["broker"]: row for row in self.do("broker", "list", "-o", "json").json}

    def end(self, pid: int, broker: str, number: signal.Signals) -> None:
        """End a broker, and return when the others know."""
        os.kill(pid, number)
        wait_until(lambda: self.brokers()[broker]["state"] == "down", "it is not seen as gone")


@pytest.fixture(name="shell")
def shell_of_a_cluster(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose cluster ends with the test."""
    try:
        yield Shell(tmp_path)
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_a_wait_that_is_interrupted_leaves_the_work_to_go_on(shell: Shell) -> None:
    shell.up(2)
    # An answer takes at least one entry, and what is over the rate is paid for by a wait: with several
    # entries and small answers the drain ends only once the test says so.
    shell.do("config", "set", "move_bytes_per_s", SLOW)
    shell.do("config", "set", "fetch_bytes", 65_536)
    shell.do("topic", "create", "flights", "-q", 1, "-r", 1)
    for seed in range(4):
        shell.do("produce", "flights", random.Random(seed).randbytes(30_000).hex())
    (queue,) = shell.do("queue", "list", "-o", "json").json
    giver = queue["leader"]
    words = [sys.executable, "-m", "logboom.cli", "broker", "drain", giver, "--yes", "--wait"]
    environ = {**environment(), "LOGBOOM_DATA": str(shell.folder)}
    # On a terminal it tells when it waits; before, an interruption is of something else.
    ours, its = pty.openpty()
    try:
        with subprocess.Popen(
            words,
            env=environ | {"TERM": "xterm", "COLUMNS": "200"},
            stdout=subprocess.DEVNULL,
            stderr=its,
        ) as waiting:
            os.close(its)
            try:
                wait_until(
                    lambda: shell.do("queue", "list", "--moving", "-o", "json").json, "no move"
                )
                shown = b""
                while b"draining" not in shown:
                    shown += os.read(ours, 10_000)
            finally:
                waiting.send_signal(signal.SIGINT)
            # Once it has ended, the terminal ends with an error.
            with suppress(OSError):
                while True:
                    shown += os.read(ours, 10_000)
    finally:
        os.close(ours)
    told = shown.decode()
    assert waiting.returncode == 130
    assert "The draining goes on" in told
    assert f"end it with `logboom broker undrain {giver}`" in told
    assert shell.brokers()[giver]["mode"] == "draining"
    shell.do("config", "unset", "move_bytes_per_s")
    wait_until(lambda: shell.brokers()[giver]["mode"] == "drained", "the drain does not go on")


def test_a_cluster_grows_and_a_broker_is_drained_and_removed(shell: Shell) -> None:
    shell.up(2)
    shell.do("topic", "create", "flights", "-q", 2, "-r", 2)
    shell.do("produce", "flights", "one", "two", "three", "four")
    # Nobody could take what a broker holds, and nothing has changed.
    assert "nowhere to go" in shell.refused("broker", "drain", "broker-1", "--yes")
    assert shell.brokers()["broker-1"]["mode"] == "active"

    pids = shell.up(3)
    drained = shell.do("broker", "drain", "broker-1", *WAIT, "-o", "json").json
    assert (drained["state"], drained["stranded"]) == ("done", [])
    row = shell.brokers()["broker-1"]
    assert (row["mode"], row["replicas"]) == ("drained", 0)
    assert "alive: stop it" in shell.refused("broker", "remove", "broker-1", "--yes")
    shell.end(pids["broker-1"], "broker-1", signal.SIGTERM)
    removed = shell.do("broker", "remove", "broker-1", "--yes")
    assert f"Its folder {shell.folder / 'broker-1'} is needed no more" in removed.err
    assert set(shell.brokers()) == {"broker-2", "broker-3"}
    # It is no node of this cluster any more: it is neither waited for nor started again.
    shell.do("cluster", "up", "-d", shell.folder)
    rows = shell.do("cluster", "status", "-d", shell.folder, "-o", "json").json
    assert [row["node"] for row in rows] == ["name-1", "broker-2", "broker-3"]
    assert [row["pid"] for row in rows] == [pids[row["node"]] for row in rows]
    roll = ("cluster", "roll", "-d", shell.folder, "--accept-unavailable", "--yes")
    rolled = shell.do(*roll, "--only", "name-servers")
    assert "broker-1" not in rolled.err
    assert set(shell.up(3)) == {"name-1", "broker-2", "broker-3", "broker-4"}
    read = shell.do("consume", "flights", "--count", 4)
    assert sorted(read.lines) == ["four", "one", "three", "two"]


@pytest.mark.thorough
def test_replicas_moves_maintenance_and_balance(shell: Shell) -> None:
    shell.up(3)
    shell.do("topic", "create", "flights", "-q", 2, "-r", 1)
    shell.do("produce", "flights", "one", "two", "three", "four")
    alter = ("topic", "alter", "flights")
    assert "4 machines" in shell.refused(*alter, "-r", 4, "--yes")
    assert "nobody can be asked" in shell.refused(*alter, "-r", 2, "-o", "json")
    wide = shell.do(*alter, "-r", 2, *WAIT)
    assert wide.lines[0] == "flights: 1 → 2 replicas of each of 2 queues"
    assert "replicas follow" not in shell.do(*alter, "-r", 2, "--yes").err
    assert "--min-in-sync 1" in shell.refused(*alter, "-r", 1, "--min-in-sync", 2, "--yes")

    (first, *_) = shell.do("queue", "list", "-t", "flights", "-o", "json").json
    (other,) = {"broker-1", "broker-2", "broker-3"} - set(first["replicas"])
    kept = first["replicas"][0]
    there = {each["broker"] for each in shell.do("broker", "list", "-o", "json").json}
    assert all(name in shell.refused("broker", "drain", "b-9") for name in there)
    shell.do("queue", "move", "flights", 0, "-r", f"{other},{kept}", *WAIT)
    (first, *_) = shell.do("queue", "list", "-t", "flights", "-o", "json").json
    assert first["replicas"] == [other, kept]
    assert "is not moved" in shell.do("queue", "cancel", "flights", 0).err
    assert not shell.do("queue", "cancel", "flights", 0, "-o", "json").json["cancelled"]
    elected = shell.do("queue", "elect", "flights", 0, "--prefer", kept)
    assert f"{kept} leads flights queue 0" in elected.err
    assert "its queues are 0 to 1" in shell.refused("queue", "elect", "flights", 7)
    again = shell.do("queue", "elect", "flights", 0, "-p", kept, "-o", "json").json
    assert again["leader"] == kept

    mode = shell.do("broker", "maintenance", "on", other, "--wait", "-o", "json").json
    assert (mode["mode"], mode["leads"]) == ("maintenance", [])
    assert (shell.brokers()[other]["mode"], shell.brokers()[other]["leads"]) == ("maintenance", 0)
    move = ("queue", "move", "flights", 1, "-r", other, "--yes")
    (_, second) = shell.do("queue", "list", "-t", "flights", "-o", "json").json
    if other not in second["replicas"]:
        assert f"`logboom broker maintenance off {other}`" in shell.refused(*move)
    shell.do("broker", "maintenance", "off", other, "--wait")
    shell.do("balance", "on", "--mode", "continuous")
    status = shell.do("balance", "status", "-o", "json").json
    assert status["planner"]["reasons"]
    assert "→ off" in shell.do("balance", "off").err
    narrow = shell.do(*alter, "-r", 1, *WAIT)
    assert "given up: 2 replicas" in narrow.lines[1]


@pytest.mark.thorough
def test_a_dead_broker_is_removed_and_what_it_alone_holds_is_not_lost_by_mistake(
    shell: Shell,
) -> None:
    pids = shell.up(2)
    shell.do("topic", "create", "flights", "-q", 2, "-r", 2)
    shell.do("produce", "flights", "one", "two", "three", "four")
    shell.do("topic", "create", "single", "-q", 2, "-r", 1)
    shell.end(pids["broker-2"], "broker-2", signal.SIGKILL)
    refusal = shell.refused("broker", "remove", "broker-2", "--yes")
    assert "ALL MESSAGES ARE LOST of 1 queue" in refusal
    assert "single/" in refusal
    assert "--accept-loss" in refusal
    assert "broker-2" in shell.brokers()
    shell.do("broker", "remove", "broker-2", "--accept-loss", "--yes")
    assert set(shell.brokers()) == {"broker-1"}
    read = shell.do("consume", "flights", "--count", 4)
    assert sorted(read.lines) == ["four", "one", "three", "two"]


@pytest.mark.thorough
def test_a_run_of_balance_begins_no_more_than_may_move_at_once(shell: Shell) -> None:
    shell.up(2)
    shell.do("balance", "off")
    shell.do("topic", "create", "flights", "-q", 90, "-r", 1)
    shell.up(3)
    once = shell.do("balance", "run", "--yes", "-o", "json").json
    assert once["state"] == "begun"
    assert (once["begun"], once["waiting"]) == (20, len(once["moves"]) - 20)
    assert once["waiting"] > 0
    assert "done" in shell.do("balance", "run", *WAIT).err
    assert "even" in shell.do("balance", "run", "--dry-run").out.decode()
    assert all(row["replicas"] in range(28, 33) for row in shell.brokers().values())
