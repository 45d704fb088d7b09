"""A broker whose file system is full to the last byte goes on once there is room; nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rocksdict import Rdict

from logboom.client import Client
from logboom.deploy.polling import ask_until
from logboom.nodes.config import BrokerConfig
from logboom.nodes.disk.rocks_storage import RocksStorage
from tests.chaos.disk import SmallDisk
from tests.integration.cli.command import logboom
from tests.integration.nodes.figures import figures
from tests.integration.nodes.scraping import health, scrape
from tests.integration.nodes.test_server import broker, config_of, counters, name_server
from tests.integration.waiting import wait_until

ROOM_BYTES = 500 * 1024 * 1024
REFUSED = "IO error: No space left on device: While appending to file: 000008.log"
"""What RocksDB says of a full file system."""


class Filled:
    """The file system of a broker, which can be filled to the last byte."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.disk = SmallDisk(folder / "broker-1", ROOM_BYTES)
        self._patch = patch

    def fill(self) -> None:
        """Fill it; where we may not mount one of our own, RocksDB takes it to be full."""
        if self.disk.own:
            self.disk.fill(wholly=True)
            return

        def refuse(_self: Rdict, *_args: object) -> None:
            raise Exception(REFUSED)  # noqa: TRY002 - rocksdict raises nothing narrower

        real = RocksStorage.space
        self._patch.setattr(RocksStorage, "space", lambda store: real(store)._replace(free=0))
        self._patch.setattr(Rdict, "write", refuse)
        self._patch.setattr("logboom.nodes.server.has_room", lambda _path: False)

    def empty(self) -> None:
        """Make room again."""
        self._patch.undo()
        self.disk.empty()


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Filled]:
    """What the broker of `config` lies on."""
    made = Filled(tmp_path, monkeypatch)
    try:
        yield made
    finally:
        made.disk.close()


def config(folder: Path, names: str) -> BrokerConfig:
    """Without a reserve: it writes to the last byte."""
    return msgspec.structs.replace(
        config_of(folder, names),
        disk_reserve_bytes=0,
        disk_reserve_percent=0.0,
        metrics_listen="127.0.0.1:0",
    )


def everything(boom: Client) -> list[bytes | None]:
    """All values, in as many pulls as it takes."""
    found: list[bytes | None] = []
    while more := boom.pull("t", queue=0, offset=len(found), max_messages=1000).messages:
        found += [message.value for message in more]
    return found


def test_a_broker_goes_on_once_there_is_room_again(
    tmp_path: Path, filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    with name_server(tmp_path) as names, broker(config(tmp_path, names)) as (running, boom):
        boom.admin.create_topic("t", queues=1)
        first = figures(boom, "broker-1")["instance_epoch"]
        before = [b"%d " % number + bytes(50_000) for number in range(20)]
        with boom.producer(delivery_timeout_s=200) as producer:
            for value in before:
                producer.send("t", value).result(200)
            filled.fill()
            # More than the room that the journal has taken already.
            meanwhile = [b"meanwhile %d " % number + bytes(50_000) for number in range(60)]
            waiting = [producer.send("t", value) for value in meanwhile]
            wait_until(lambda: "full to the last byte" in caplog.text, "it wrote on", 200.0)
            assert running.thread.is_alive()
            metrics = running.node.metrics_endpoint
            text = scrape(metrics)[1]
            assert "logboom_disk_full 1.0" in text
            assert "logboom_registered 0.0" in text
            assert health(metrics, "/live")[0] == 200
            assert health(metrics, "/ready")[0] == 503
            assert health(metrics, "/restart")[0] == 200
            filled.empty()
            offsets = [future.result(200).offset for future in waiting]
            assert offsets == list(range(len(before), len(before) + len(meanwhile)))
        assert everything(boom) == [*before, *meanwhile]
        wait_until(lambda: counters(boom).get("lease") == 1, "it has no lease", 200.0)
        told = figures(boom, "broker-1")
        assert told["instance_epoch"] != first
        assert told["stores_set_aside"] == 0
        wait_until(lambda: health(metrics, "/ready")[0] == 200, "it is not ready", 200.0)
        running.stop()
        assert running.error is None


def test_a_broker_that_waits_for_room_can_be_stopped(
    tmp_path: Path, filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    with name_server(tmp_path) as names, broker(config(tmp_path, names)) as (running, boom):
        boom.admin.create_topic("t", queues=1)
        filled.fill()
        with boom.producer(delivery_timeout_s=60) as producer:
            for _ in range(60):
                producer.send("t", bytes(50_000))
            wait_until(lambda: "full to the last byte" in caplog.text, "it wrote on", 200.0)
            running.stop()
            producer.close(timeout_s=0)
        assert running.error is None


def test_a_small_disk_is_in_sync_with_the_default_reserve_and_doctor_tells_when_it_is_full(
    tmp_path: Path, filled: Filled
) -> None:
    with name_server(tmp_path) as names:
        small = config_of(tmp_path, names)
        large = msgspec.structs.replace(
            config_of(tmp_path, names), id="broker-2", data=str(tmp_path / "broker-2")
        )
        with broker(small) as (_, boom), broker(large):
            boom.admin.create_topic("t", queues=2, replicas=2)
            with boom.producer() as producer:
                for queue in (0, 1):
                    producer.send("t", b"kept", queue=queue).result(200)

            def in_sync() -> bool:
                return all(len(queue.isr) == 2 for queue in boom.admin.describe_topic("t").queues)

            wait_until(in_sync, "a small disk does not come into the ISR", 200.0)

            def disk() -> dict[str, str]:
                rows = logboom("doctor", "-o", "json", servers=small.listen).json
                found = [row for row in rows if row["check"] == "disk of broker-1"]
                # A busy broker may not answer within the two seconds that it is given.
                return found[0] if found else {"result": "unknown"}

            def wait_for(result: str, what: str) -> dict[str, str]:
                found = ask_until(disk, lambda row: row["result"] == result, 200.0)
                assert found["result"] == result, what
                return found

            wait_for("ok", "it is full already")
            filled.fill()
            assert "reserved" in wait_for("failed", "doctor does not see it")["found"]
            filled.empty()
            wait_for("ok", "it stays full")
