"""`embedded()`: ready quickly, keeps what it acknowledged, leaves nothing behind."""

import sys
import threading
import time
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import embedded
from logboom.nodes.server import BrokerProcess
from logboom.wire.errors import StartError


def test_it_serves_and_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    begun = time.monotonic()
    with embedded() as node:
        with capsys.disabled():
            sys.stderr.write(f"\nembedded: ready after {time.monotonic() - begun:.2f} s\n")
        with connect(node.endpoints) as boom:
            boom.admin.create_topic("flights", queues=2)
            with boom.producer() as producer:
                sent = producer.send("flights", b"hello", queue=1).result()
            result = boom.pull("flights", queue=1, offset=sent.offset)
            assert [message.value for message in result.messages] == [b"hello"]
        folder = node.data
    # One of an earlier test may have ended meanwhile.
    assert set(threading.enumerate()) <= before
    assert not folder.exists()


def test_a_large_body_of_lz4_is_opened_by_a_thread_that_ends_with_the_broker() -> None:
    def openers() -> list[str]:
        names = [each.name for each in threading.enumerate()]
        return [name for name in names if name.startswith("logboom-bodies")]

    with embedded() as node, connect(node.endpoints) as boom:
        boom.admin.create_topic("flights", queues=1)
        with boom.producer(compression="lz4") as producer:
            for key in (b"a", b"b"):
                producer.send("flights", bytes(1 << 20), key=key, queue=0).result()
        assert not openers()
        found = boom.pull("flights", queue=0, offset=0, filter="KEYS = 'b'")
        assert [message.offset for message in found.messages] == [1]
        assert openers()
    assert not openers()


def test_it_encrypts_and_knows_its_administrator() -> None:
    with embedded(secure=True) as node, node.connect() as boom:
        assert [user.name for user in boom.admin.users() if ":" not in user.name] == ["admin"]
        with boom.producer() as producer:
            assert producer.send("new", b"hello").result().offset == 0


def test_a_stop_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    with embedded() as node, node.connect() as boom:
        boom.admin.create_topic("t", queues=2)
        caplog.clear()
    # A busy machine may stall a loop just then.
    said = [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    assert [text for text in said if "loop_stalled" not in text] == []


def test_topics_are_created_on_first_use_by_its_own_client() -> None:
    with embedded() as node, node.connect() as boom:
        with boom.producer() as producer:
            sent = producer.send("new", b"hello").result()
        assert (sent.topic, sent.offset) == ("new", 0)


def test_data_stays_in_a_folder_that_was_given(tmp_path: Path) -> None:
    with embedded(tmp_path) as node, node.connect() as boom, boom.producer() as producer:
        sent = producer.send("kept", b"hello").result()
    with embedded(tmp_path) as node, node.connect() as boom:
        result = boom.pull("kept", queue=sent.queue, offset=sent.offset, wait_ms=60_000)
        assert [message.value for message in result.messages] == [b"hello"]


def test_two_live_side_by_side() -> None:
    with embedded() as one, embedded() as other:
        assert one.endpoints != other.endpoints
        with one.connect() as boom, boom.producer() as producer:
            producer.send("only-here", b"hello").result()
        with connect(other.endpoints) as boom:
            assert [topic.name for topic in boom.admin.topics()] == []


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with embedded() as node, pytest.raises(StartError, match="in use"):
        embedded(tmp_path, ports=int(node.endpoints[0].rpartition(":")[2]))
    # One of an earlier test may have ended meanwhile.
    assert set(threading.enumerate()) <= before


def test_close_may_be_called_twice() -> None:
    node = embedded()
    node.close()
    node.close()


def test_wait_ends_with_the_error_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StartError("the broker broke")

    with embedded() as node:
        monkeypatch.setattr(BrokerProcess, "_wait", fail)
        with pytest.raises(StartError, match="the broker broke"):
            node.wait()
