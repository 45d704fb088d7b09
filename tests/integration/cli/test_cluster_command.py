"""`logboom cluster`: up, status, logs, down; what runs stays, what is down comes back; and commands
find what runs, and nothing else."""

import atexit
import os
import random
import re
import shlex
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from logboom.deploy import detached
from logboom.deploy.identity import start_ticks
from logboom.deploy.polling import ask_until
from logboom.wire.errors import StartError
from tests.integration.cli.command import Done, complaint, logboom, succeed

_RESERVED: Final[list[socket.socket]] = []
"""Sockets that are bound and never listen: what they reserve, no other test gets."""


@atexit.register
def _release() -> None:
    for each in _RESERVED:
        each.close()


def free_base() -> int:
    """A port with free ones for all nodes of a test, below those that the system gives to others."""
    while True:
        base = random.randrange(10_000, 31_000)
        nodes = (base, *range(base + 10, base + 14), *range(base + 20, base + 24))
        # Each node's metrics are 1,000 above its own port.
        held = [socket.socket() for _ in range(2 * len(nodes))]
        try:
            for each, port in zip(held, (*nodes, *(at + 1_000 for at in nodes)), strict=True):
                each.bind(("127.0.0.1", port))
                # Only now, or two that reserve would share a port; the node may still listen there.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            for each in held:
                each.close()
            continue
        _RESERVED.extend(held)
        return base


def rows_once(
    ask: Callable[[], Done], holds: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """What `cluster status` shows once it holds: a node that is slow to answer is not up."""

    def rows() -> list[dict[str, Any]]:
        done = ask()
        return list(done.json) if done.code == 0 else []

    return ask_until(rows, lambda found: bool(found) and holds(found), 200.0)


def all_up(rows: list[dict[str, Any]]) -> bool:
    """True if all nodes answer."""
    return {row["state"] for row in rows} == {"up"}


def test_a_cluster_that_encrypts_grows_and_opens_again(tmp_path: Path) -> None:
    base = free_base()
    size = ["-n", "1", "-p", str(base), "-d", str(tmp_path)]
    states = ("cluster", "status", "-d", tmp_path, "-o", "json")
    up = succeed("cluster", "up", *size, "-b", "1", "--secure")
    assert str(tmp_path / "admin.toml") in up.err
    try:
        as_admin = ("--credentials", tmp_path / "admin.toml")
        succeed("topic", "create", "kept", "-q", 1, *as_admin)
        succeed("produce", "kept", "hello", *as_admin)
        # The running name server lets another broker in.
        grown = succeed("cluster", "up", *size, "-b", "2", "-o", "json").json
        assert len(grown) == 3
        assert all_up(rows_once(lambda: logboom(*states), all_up))
        afar = ("cluster", "status", "--servers", f"127.0.0.1:{base + 10}", "-o", "json")
        assert all_up(rows_once(lambda: logboom(*afar, *as_admin), all_up))
        assert "no answer" in complaint(logboom(*afar))
        refusal = complaint(logboom("cluster", "up", *size, "-b", "2", "--no-secure"))
        assert "runs with encryption" in refusal
    finally:
        succeed("cluster", "down", "-d", tmp_path)
    succeed("cluster", "up", *size, "-b", "2", "--no-secure")
    try:
        assert all_up(rows_once(lambda: logboom(*states), all_up))
        read = succeed("consume", "kept", "-c", 1, servers=f"127.0.0.1:{base + 10}")
        assert read.lines == ["hello"]
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_a_cluster_that_encrypts_comes_back_after_most_of_its_name_servers_died(
    tmp_path: Path,
) -> None:
    size = ["-n", "3", "-b", "1", "-p", str(free_base()), "-d", str(tmp_path), "-o", "json"]
    pids = {r["node"]: r["pid"] for r in succeed("cluster", "up", *size, "--secure").json}
    try:
        for name in ("name-2", "name-3"):
            os.kill(pids[name], signal.SIGKILL)
            while start_ticks(pids[name]) is not None:
                pass
        again = {r["node"]: r["pid"] for r in succeed("cluster", "up", *size).json}
        assert {name for name in pids if pids[name] != again[name]} == {"name-2", "name-3"}
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_a_cluster_starts_again_without_the_name_server_that_was_removed(tmp_path: Path) -> None:
    base = free_base()
    size = ["-n", "3", "-b", "1", "-p", str(base), "-d", str(tmp_path), "-o", "json"]
    succeed("cluster", "up", *size)
    where = {"LOGBOOM_DATA": str(tmp_path)}
    try:
        members = logboom("name-server", "list", "-o", "json", also=where).json
        lost = next(each["name_server"] for each in members if each["role"] != "raft leader")
        removed = logboom("name-server", "remove", lost, "-y", also=where)
        assert str(tmp_path / lost) in removed.err
    finally:
        succeed("cluster", "down", "-d", tmp_path)
    again = succeed("cluster", "up", "-d", tmp_path, "-o", "json").json
    try:
        left = {f"name-{number}" for number in (1, 2, 3)} - {lost}
        assert {row["node"] for row in again} == {*left, "broker-1"}
        check = logboom("cluster", "restart-check", "broker-1", "-o", "json", also=where)
        assert (check.code, check.json) == (0, [])
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_from_up_to_down(tmp_path: Path) -> None:
    base = free_base()
    size = ["-n", "1", "-b", "1", "-p", str(base), "-d", str(tmp_path)]
    up = succeed("cluster", "up", *size, "-o", "json")
    pids = {row["node"]: row["pid"] for row in up.json}
    try:
        assert set(pids) == {"name-1", "broker-1"}
        assert f"127.0.0.1:{base + 10}" in up.err
        states = ("cluster", "status", "-d", tmp_path, "-o", "json")
        rows = rows_once(
            lambda: logboom(*states), lambda rows: [row["leads"] for row in rows] == ["raft", 0]
        )
        assert {row["node"]: row["state"] for row in rows} == {"name-1": "up", "broker-1": "up"}
        assert [row["leads"] for row in rows] == ["raft", 0]
        servers = f"127.0.0.1:{base + 10}"
        succeed("topic", "create", "kept", "-q", 1, servers=servers)
        succeed("produce", "kept", "hello", servers=servers)
        assert "broker-1" in succeed("cluster", "logs", "-d", tmp_path).out.decode()

        # A node that died is seen, and comes back with the next `up`; the other stays.
        os.kill(pids["broker-1"], signal.SIGKILL)
        while start_ticks(pids["broker-1"]) is not None:
            pass
        rows = rows_once(lambda: logboom(*states), lambda rows: rows[0]["state"] == "up")
        assert {row["node"]: row["state"] for row in rows} == {"name-1": "up", "broker-1": "down"}
        again = {r["node"]: r["pid"] for r in succeed("cluster", "up", *size, "-o", "json").json}
        assert again["name-1"] == pids["name-1"]
        assert again["broker-1"] != pids["broker-1"]
        pids = again
    finally:
        down = succeed("cluster", "down", "-d", tmp_path)
    assert "broker-1" in down.err
    assert [start_ticks(pid) for pid in pids.values()] == [None, None]
    assert "no cluster runs" in complaint(logboom("cluster", "status", "-d", tmp_path))
    assert "no cluster" in succeed("cluster", "down", "-d", tmp_path).err

    # All of it is there again after a full stop.
    succeed("cluster", "up", *size)
    try:
        read = succeed("consume", "kept", "-c", 1, servers=servers)
        assert read.lines == ["hello"]
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_a_folder_of_other_numbers_is_refused(tmp_path: Path) -> None:
    base = free_base()
    size = ["-b", "1", "-p", str(base), "-d", str(tmp_path)]
    succeed("cluster", "up", "-n", 1, *size)
    try:
        line = complaint(logboom("cluster", "up", "-n", 3, *size))
        assert "holds a cluster of 1 name servers, not 3" in line
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_several_brokers_of_one_machine(tmp_path: Path) -> None:
    base = free_base()
    size = ["-n", "1", "-p", str(base), "-d", str(tmp_path)]
    up = succeed("cluster", "up", *size, "--brokers-per-host", 2, "-o", "json")
    servers = f"127.0.0.1:{base + 10}"
    try:
        assert [row["node"] for row in up.json] == ["name-1", "broker-1", "broker-2"]
        succeed("topic", "create", "alone", "-q", 4, servers=servers)
        rows = succeed("topic", "describe", "alone", "-o", "json", servers=servers).json
        assert [len(row["replicas"]) for row in rows["queues"]] == [1] * 4
        assert {row["leader"] for row in rows["queues"]} == {"broker-1", "broker-2"}
        line = complaint(logboom("topic", "create", "two", "-r", 2, servers=servers))
        assert "2 replicas need 2 machines, the 2 live brokers are on 1" in line
        # Two more are another host. What runs keeps its own.
        succeed("cluster", "up", *size, "--brokers", 4)
        succeed("topic", "create", "two", "-q", 8, "-r", 2, servers=servers)
        rows = succeed("topic", "describe", "two", "-o", "json", servers=servers).json
        for row in rows["queues"]:
            assert len({broker in ("broker-1", "broker-2") for broker in row["replicas"]}) == 2
        line = complaint(logboom("cluster", "up", *size, "--brokers-per-host", 4))
        assert "runs with 2 brokers per host, not 4 brokers: stop it first" in line
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_an_unreadable_state_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    assert "cluster.json" in complaint(logboom("cluster", "status", "-d", tmp_path))


class Somebody:
    """A user with a home, who gives commands in some folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "work"
        self.folder.mkdir()

    def tries(self, *words: str | int | Path, **variables: str) -> Done:
        """A command, however it ends."""
        also = {"XDG_STATE_HOME": str(self.home / "state"), **variables}
        return logboom(*words, cwd=self.folder, also=also)

    def does(self, *words: str | int | Path, **variables: str) -> Done:
        """A command that must not fail."""
        done = self.tries(*words, **variables)
        assert done.code == 0, done.err
        return done

    def topics(self, **variables: str) -> list[str]:
        """The topics of the cluster that he talks to."""
        rows = self.does("topic", "list", "-o", "json", **variables).json
        return [row["name"] for row in rows]

    def follows(self, text: str, command: str) -> Done:
        """Does as a text says: the command in backticks, as it stands there."""
        (said,) = re.findall(f"`logboom ({command}[^`]*)`", text)
        return self.does(*shlex.split(said))


@pytest.fixture
def somebody(tmp_path: Path) -> Somebody:
    """A user."""
    return Somebody(tmp_path)


@pytest.mark.thorough
def test_commands_find_the_cluster_that_runs(somebody: Somebody) -> None:
    first, second = somebody.home / "first of two", somebody.home / "second"
    ports = {first: free_base(), second: free_base()}
    size = ["-n", "1", "-b", "1"]
    try:
        up = somebody.does("cluster", "up", *size, "-p", ports[first], "--data", first)
        # Wherever one is, while there is only one.
        somebody.does("topic", "create", "in-first", "-q", 1)
        assert somebody.topics() == ["in-first"]
        assert somebody.topics(LOGBOOM_DATA=str(first)) == ["in-first"]
        assert all_up(rows_once(lambda: somebody.does("cluster", "status", "-o", "json"), all_up))
        assert "broker-1" in somebody.does("cluster", "logs").out.decode()

        # A port that another has: told before anything is made.
        said = complaint(somebody.tries("cluster", "up", "-p", ports[first], "--data", second))
        assert str(first) in said
        assert "--port" in said
        assert not second.exists()

        somebody.does("cluster", "up", *size, "-p", ports[second], "--data", second)
        for command in (["topic", "list"], ["cluster", "status"], ["cluster", "down"], ["doctor"]):
            said = complaint(somebody.tries(*command))
            assert str(first) in said
            assert str(second) in said
            assert "LOGBOOM_DATA" in said
        assert somebody.topics(LOGBOOM_DATA=str(first)) == ["in-first"]
        assert somebody.topics(LOGBOOM_DATA=str(second)) == []
        servers = f"127.0.0.1:{ports[first] + 10}"
        assert somebody.topics(LOGBOOM_DATA=str(second), LOGBOOM_SERVERS=servers) == ["in-first"]

        # What it advised works.
        assert "stopped name-1, broker-1" in somebody.follows(up.err, "cluster down").err
        for data in (first, somebody.home / "nowhere"):
            said = complaint(somebody.tries("topic", "list", LOGBOOM_DATA=str(data)))
            assert str(data) in said
            assert "does not run" in said
        assert somebody.topics() == []  # of the second: it is the only one now

        # Neither how many nodes it has nor their ports need to be said again.
        said = complaint(somebody.tries("topic", "list", LOGBOOM_DATA=str(first)))
        again = somebody.follows(said, "cluster up")
        assert f"'127.0.0.1:{ports[first] + 10}'" in again.err
        assert somebody.topics(LOGBOOM_DATA=str(first)) == ["in-first"]
        said = complaint(somebody.tries("cluster", "up", "-n", 3, "--data", first))
        assert "1 name servers, not 3" in said
    finally:
        for data in (first, second):
            somebody.does("cluster", "down", "--data", data)
    said = complaint(somebody.tries("cluster", "up", "-n", 3, "--data", first))
    assert "1 name servers, not 3" in said, "also when it is down"


@pytest.mark.thorough
def test_a_cluster_that_lost_its_ports_is_not_taken_for_the_winner(somebody: Somebody) -> None:
    base = free_base()
    here = somebody.folder / ".logboom"
    size = ["-n", "1", "-b", "1", "-p", str(base)]
    (somebody.home / "other").mkdir()
    winner = Somebody(somebody.home / "other")
    try:
        winner.does("cluster", "up", *size)
        winner.does("topic", "create", "the-winners", "-q", 1)
        # Another user, who does not know of the first.
        assert "in use" in complaint(somebody.tries("cluster", "up", *size))
        for variables in ({}, {"LOGBOOM_DATA": str(here)}):
            said = complaint(somebody.tries("topic", "create", "ours", "-q", 1, **variables))
            assert "does not run" in said
        assert winner.topics() == ["the-winners"]
        assert somebody.topics(LOGBOOM_SERVERS=f"127.0.0.1:{base + 10}") == ["the-winners"]
    finally:
        winner.does("cluster", "down")


def test_two_that_start_one_cluster_at_once(somebody: Somebody) -> None:
    size = ["-n", "1", "-b", "1", "-p", str(free_base()), "-o", "json"]
    try:
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(somebody.does, "cluster", "up", *size) for _ in range(2)]
            one, other = (each.result().json for each in both)
        assert one == other
        assert all(start_ticks(row["pid"]) is not None for row in one)
    finally:
        somebody.does("cluster", "down")
    assert all(start_ticks(row["pid"]) is None for row in one)


def test_a_node_that_ends_while_the_cluster_starts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")

    def progress(step: str) -> None:
        if step.startswith("waiting"):
            (broker,) = (p for p in detached.processes(tmp_path) if p.spec.id == "broker-1")
            broker.kill()

    with pytest.raises(StartError, match="broker-1 ended"):
        detached.up(tmp_path, 1, 1, free_base(), progress)
    assert detached.endpoints(tmp_path) == []


def test_a_first_start_that_failed_is_tried_again(somebody: Somebody) -> None:
    base = free_base()
    size = ["-n", "1", "-b", "1"]
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", base + 10))
        taker.listen()
        assert "in use" in complaint(somebody.tries("cluster", "up", *size, "-p", base))
        # The name server may have begun its journal.
        assert "1 name servers, not 3" in complaint(
            somebody.tries("cluster", "up", "-n", 3, "-p", base)
        )
    try:
        rows = somebody.does("cluster", "up", "-p", base, "-o", "json").json
        assert [row["node"] for row in rows] == ["name-1", "broker-1"]
    finally:
        somebody.does("cluster", "down")
