"""Three name server processes: killed one by one and all at once, they keep what they answered."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.deploy.layout import Layout, lay_out
from logboom.deploy.node_client import NodeClient
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess
from logboom.metadata.config import NameServerConfig
from logboom.metadata.server import NameServerProcess
from logboom.wire.commands import AllocateProducerIds, AnyCommand, Barrier, CommandResult
from logboom.wire.errors import StartError
from logboom.wire.messages import Propose, Proposed
from tests.integration.waiting import wait_until


class Trio:
    """Three name servers and a client that proposes."""

    def __init__(self, folder: Path) -> None:
        self.ports = Ports("free")
        self.layout: Layout = lay_out(folder, 3, 1, self.ports)
        self.specs = {spec.id: spec for spec in self.layout.name_servers}
        self.running: dict[str, NodeProcess] = {}
        self.asker = NodeClient()
        self.number = 0
        for name in self.specs:
            self.start(name, create=True)

    def start(self, name: str, *, create: bool = False) -> None:
        self.running[name] = NodeProcess.start(self.specs[name], attached=True, create=create)
        self.running[name].wait_listening()

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def close(self) -> None:
        self.asker.close()
        for name in list(self.running):
            self.kill(name)
        self.ports.release()

    def propose(self, command: AnyCommand, number: int, within_s: float = 200.0) -> CommandResult:
        """Have a command applied; the same number is sent until some leader answers."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            for name in self.running:
                endpoint = self.specs[name].endpoint
                question = Propose(0, 1_000, "the test", number, command)
                answer = self.asker.ask({endpoint: question}, 1.0)[endpoint]
                if isinstance(answer, Proposed):
                    return answer.result
            # Nobody leads yet, and an election calls nobody: ask again.
            time.sleep(0.02)
        raise AssertionError(f"no name server took the proposal in {within_s} s")

    def allocate(self, count: int) -> int:
        """Reserve ids; the first of them."""
        self.number += 1
        value = self.propose(AllocateProducerIds(count), self.number).value
        assert isinstance(value, int)
        return value

    def leader(self) -> str:
        """The raft leader, as it says itself."""
        deadline = time.monotonic() + 200.0
        while time.monotonic() < deadline:
            endpoints = [self.specs[name].endpoint for name in self.running]
            for stats in self.asker.stats(endpoints, 1.0).values():
                if stats.role == "raft leader":
                    return stats.node
            # As above.
            time.sleep(0.02)
        raise AssertionError("no raft leader in 200 s")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    """Three running name servers."""
    made = Trio(tmp_path)
    yield made
    made.close()


def test_killed_one_by_one_and_all_at_once_they_keep_what_they_answered(trio: Trio) -> None:
    given = [trio.allocate(10)]
    for victim in list(trio.specs):
        trio.kill(victim)
        begun = time.monotonic()
        given.append(trio.allocate(10))
        sys.stderr.write(f"\n{victim} killed: next answer after {time.monotonic() - begun:.2f} s")
        trio.start(victim)
    trio.kill(trio.leader())
    given += [trio.allocate(10) for _ in range(20)]
    for name in trio.specs:
        if name in trio.running:
            trio.kill(name)
    for name in trio.specs:
        trio.start(name)
    begun = time.monotonic()
    given.append(trio.allocate(10))
    sys.stderr.write(f"\nall killed: next answer after {time.monotonic() - begun:.2f} s\n")
    assert given == list(range(1, 10 * len(given), 10)), "each id once, none lost, none skipped"


def test_a_proposal_sent_again_after_a_crash_gets_the_first_result(trio: Trio) -> None:
    first = trio.propose(AllocateProducerIds(7), 1)
    for name in trio.specs:
        trio.kill(name)
    for name in trio.specs:
        trio.start(name)
    assert trio.propose(AllocateProducerIds(7), 1) == first
    assert trio.propose(AllocateProducerIds(7), 2).value == 8


def test_idle_it_takes_little(trio: Trio) -> None:
    trio.propose(Barrier(), 1)

    def takes_little() -> bool:
        before = {name: _cpu_seconds(node.pid) for name, node in trio.running.items()}
        begun = time.monotonic()
        # The span that is measured.
        time.sleep(3.0)
        passed_s = time.monotonic() - begun
        shares = []
        for name, node in trio.running.items():
            shares.append((_cpu_seconds(node.pid) - before[name]) / passed_s)
            resident = _resident_mb(node.pid)
            sys.stderr.write(f"\n{name}: {shares[-1]:.1%} of a core, {resident:.0f} MB\n")
            assert resident < 80
        # The bar is 2 %; a busy machine and ticks of 10 ms leave room for noise.
        return max(shares) < 0.05

    # What the start, or an election, left to do ebbs away; that it is over is no event.
    wait_until(takes_little, "idle it takes much", 60.0)


def test_a_wiped_member_is_not_let_back_in(trio: Trio, tmp_path: Path) -> None:
    trio.allocate(1)
    trio.kill("name-2")
    trio.specs["name-2"].data_path.rename(tmp_path / "gone")
    with pytest.raises(StartError, match="new raft id"):
        trio.start("name-2")
    trio.running.pop("name-2").kill()


def _config(folder: Path, name: str = "name-1", listen: str = "127.0.0.1:0") -> NameServerConfig:
    raft_listen = "127.0.0.1:0"
    return NameServerConfig(
        id=name, data=str(folder), listen=listen, raft_listen=raft_listen, create=True
    )


def test_the_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    NameServerProcess(_config(tmp_path / "n"), b"key").abandon()
    with pytest.raises(StartError, match="of node name-1, not name-2"):
        NameServerProcess(_config(tmp_path / "n", "name-2"), b"key")
    with pytest.raises(StartError, match="of cluster"):
        NameServerProcess(_config(tmp_path / "n"), b"another key")


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    first = NameServerProcess(_config(tmp_path / "a"), b"key")
    with pytest.raises(StartError, match="in use") as caught:
        NameServerProcess(_config(tmp_path / "b", listen=first.endpoint), b"key")
    assert caught.value.code == "PORT_IN_USE"
    assert "\n" not in str(caught.value)
    first.abandon()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
