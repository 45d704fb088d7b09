"""The broker's skin with real sockets and disks: what it does when the disk or the data is bad."""

import atexit
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from logboom.client import Client, connect
from logboom.deploy.ports import Ports
from logboom.metadata.config import NameServerConfig
from logboom.metadata.server import NameServerProcess
from logboom.nodes.config import BrokerConfig
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.server import BrokerProcess
from logboom.wire.errors import DataDamaged, LogboomError, StartError, TimedOut
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until

KEY = b"k" * 32
PORTS: Final = Ports("free")
"""Of brokers; they stay reserved while none listens, so that no other test takes them."""
atexit.register(PORTS.release)


class Running:
    """A node in a thread of this process, and why it ended."""

    def __init__(self, node: NameServerProcess | BrokerProcess) -> None:
        self.node = node
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.node.run()
        except LogboomError as error:
            self.error = error

    def stop(self) -> None:
        self.node.stop()
        self.wait()

    def wait(self) -> None:
        self.thread.join(200)
        assert not self.thread.is_alive()


@contextmanager
def name_server(folder: Path) -> Iterator[str]:
    config = NameServerConfig(
        id="name-1",
        data=str(folder / "name-1"),
        listen="127.0.0.1:0",
        raft_listen="127.0.0.1:0",
        create=True,
    )
    node = NameServerProcess(config, KEY)
    running = Running(node)
    try:
        yield node.endpoint
    finally:
        running.stop()
        assert running.error is None


def config_of(folder: Path, names: str) -> BrokerConfig:
    """One port for all starts, as a broker has; else clients ask for a while where it was."""
    return BrokerConfig(
        id="broker-1",
        data=str(folder / "broker-1"),
        listen=PORTS.broker(),
        name_servers=[names],
    )


@contextmanager
def broker(config: BrokerConfig) -> Iterator[tuple[Running, Client]]:
    """A broker with a client of it; whoever asks looks at why it ended."""
    node = BrokerProcess(config, KEY)
    running = Running(node)
    try:
        with connect(node.endpoint) as boom:
            wait_until(lambda: counters(boom).get("lease") == 1, "it has no lease", 200.0)
            yield running, boom
    finally:
        running.stop()


def values(boom: Client, topic: str = "t") -> list[bytes | None]:
    pulled = boom.pull(topic, queue=0, offset=0, max_messages=1000, wait_ms=0)
    return [message.value for message in pulled.messages]


def counters(boom: Client) -> dict[str, int | float | str]:
    """The broker's; none while the name server does not know it."""
    found = [node.counters for node in boom.admin.stats() if node.role == "broker"]
    return found[0] if found else {}


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with name_server(tmp_path) as names:
        config = config_of(tmp_path, names)
        with broker(config) as (running, boom), boom.producer() as producer:
            boom.admin.create_topic("t", queues=1)
            sent = [producer.send("t", b"%d" % number) for number in range(50)]
            assert [future.result(200).offset for future in sent] == list(range(50))
        assert running.error is None
        with broker(config) as (running, boom):
            assert values(boom) == [b"%d" % number for number in range(50)]
        assert running.error is None


def test_q14_a_disk_that_refuses_a_sync_ends_the_broker_without_an_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with name_server(tmp_path) as names, broker(config_of(tmp_path, names)) as (running, boom):
        boom.admin.create_topic("t", queues=1)
        with boom.producer() as producer:
            producer.send("t", b"good").result(200)

        def refuse(store: RocksStorage) -> None:
            raise DataDamaged("Input/output error")

        monkeypatch.setattr(RocksStorage, "sync", refuse)
        with boom.producer(delivery_timeout_s=2) as producer:

            def is_ended() -> bool:
                with pytest.raises(TimedOut):
                    producer.send("t", b"never acknowledged").result(200)
                return not running.thread.is_alive()

            # On a busy machine the time may be over before it is sent.
            wait_until(is_ended, "it goes on")
        running.wait()
        assert isinstance(running.error, DataDamaged)
        assert "Input/output error" in str(running.error)


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with name_server(tmp_path / "a") as names:
        config = config_of(tmp_path, names)
        with broker(config) as (running, boom):
            boom.admin.create_topic("t", queues=1)
        assert running.error is None
    with name_server(tmp_path / "b") as names:
        other = msgspec.structs.replace(config, name_servers=[names])
        running = Running(BrokerProcess(other, KEY))
        running.wait()
        assert isinstance(running.error, StartError)
        assert running.error.code == "WRONG_DATA_FOLDER"
        assert "belongs to cluster" in str(running.error)


def test_a_wrong_cluster_key_ends_the_broker_in_one_line(tmp_path: Path) -> None:
    with name_server(tmp_path) as names:
        running = Running(BrokerProcess(config_of(tmp_path, names), b"another key" * 3))
        running.wait()
        assert isinstance(running.error, StartError)
        assert "cluster key" in str(running.error)
        assert "\n" not in str(running.error)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with name_server(tmp_path) as names, broker(config_of(tmp_path, names)) as (running, boom):
        boom.admin.create_topic("t", queues=1)
        with boom.producer(delivery_timeout_s=200) as producer:
            producer.send("t", b"before").result(200)
            real = RocksStorage.space
            monkeypatch.setattr(RocksStorage, "space", lambda store: real(store)._replace(free=0))
            wait_until(lambda: counters(boom).get("disk_full") == 1, "it does not see it")
            waiting = producer.send("t", b"after")
            with pytest.raises(TimedOut):
                waiting.result(0.5)
            assert values(boom) == [b"before"]
            monkeypatch.setattr(RocksStorage, "space", real)
            assert waiting.result(200).offset == 1
        assert running.error is None


def test_a_slow_disk_holds_writers_back_and_not_the_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with name_server(tmp_path) as names:
        config = msgspec.structs.replace(config_of(tmp_path, names), max_unsynced_bytes=1)
        with broker(config) as (running, boom), boom.producer() as producer:
            boom.admin.create_topic("t", queues=1)
            producer.send("t", b"0").result(200)
            real = RocksStorage.sync

            def slow(store: RocksStorage) -> None:
                # Nothing is waited for: this is the slow disk.
                time.sleep(1.0)
                real(store)

            monkeypatch.setattr(RocksStorage, "sync", slow)
            for number in range(1, 4):
                assert producer.send("t", b"%d" % number).result(200).offset == number
            # Never fenced: its heartbeats went on while a sync took its second.
            assert figures(boom, "broker-1")["registrations"] == 1
            wait_until(lambda: counters(boom).get("lease") == 1, "it has no lease")
            monkeypatch.setattr(RocksStorage, "sync", real)
        assert running.error is None


def test_a_suspect_store_is_told_to_the_name_server_once(tmp_path: Path) -> None:
    with name_server(tmp_path) as names:
        config = config_of(tmp_path, names)
        with broker(config) as (running, boom):
            boom.admin.create_topic("t", queues=1)
            with boom.producer() as producer:
                producer.send("t", b"kept").result(200)
        marker = Path(config.data) / "suspect"
        marker.write_text("as after a damaged write-ahead log\n")
        with broker(config) as (running, boom):
            # The only replica: it leads again, with what it has.
            wait_until(lambda: values(boom) == [b"kept"], "the message is not there", 200.0)
            wait_until(lambda: not marker.exists(), "the marker stays", 200.0)
        assert running.error is None


def test_a_port_in_use_leaves_the_folder_alone(tmp_path: Path) -> None:
    with name_server(tmp_path) as names:
        config = msgspec.structs.replace(config_of(tmp_path, names), listen=names)
        with pytest.raises(StartError) as refused:
            BrokerProcess(config, KEY)
        assert refused.value.code == "PORT_IN_USE"
        assert not Path(config.data).exists()
