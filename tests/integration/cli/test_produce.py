"""`logboom produce`: a slip sends nothing, and what ends a load says how far it came."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.integration.cli.command import Done, complaint, environment, logboom, succeed
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def boom(servers: str) -> Iterator[Client]:
    """A client beside the command."""
    with connect(servers) as client:
        yield client


def held(boom: Client, topic: str) -> list[str]:
    """The values of a topic of one queue."""
    return [m.value.decode() for m in boom.pull(topic, 0, 0).messages if m.value is not None]


def test_a_slip_deletes_no_key(servers: str, boom: Client) -> None:
    succeed("topic", "create", "fruit", "-q", 1, "--compaction", "on", servers=servers)
    succeed("produce", "fruit", "4", "--key", "a", servers=servers)
    for line in (b'{"key":"a","Value":"5"}', b'{"key":"a"}'):
        said = complaint(logboom("produce", "fruit", "--json", servers=servers, stdin=line))
        assert "line 1" in said
    assert boom.admin.offsets("fruit") == {0: (0, 1)}
    null = b'{"key":"a","value":null}\n'
    assert "sent 1" in succeed("produce", "fruit", "--json", servers=servers, stdin=null).err
    lines = succeed("consume", "fruit", "--json", "-e", servers=servers).lines
    assert [json.loads(line)["value"] for line in lines] == ["4", None]
    # What `consume` writes can be sent as it is.
    copy = "\n".join(lines).encode()
    assert "sent 2" in succeed("produce", "fruit", "--json", servers=servers, stdin=copy).err


@pytest.mark.parametrize(
    ("bad", "said"), [("{", "not a JSON message"), (json.dumps({"value": "x" * 2_000}), "1024")]
)
def test_a_load_that_fails_goes_on_where_it_ended(
    servers: str, boom: Client, bad: str, said: str
) -> None:
    topic = f"load-{len(bad)}"
    boom.admin.create_topic(topic, queues=1, max_message_bytes=1_024)
    lines = [json.dumps({"value": str(number)}) for number in range(1, 7)]
    broken = "\n".join([*lines[:3], bad, *lines[4:]]).encode()
    line = complaint(logboom("produce", topic, "--json", servers=servers, stdin=broken))
    assert line.startswith("line 4: ")
    assert said in line
    assert "acknowledged: 3 messages" in line
    assert "--from-line 4" in line
    assert held(boom, topic) == ["1", "2", "3"]
    # Mended, it goes on without sending anything twice.
    mended = "\n".join(lines).encode()
    words = ["produce", topic, "--json", "--from-line", "4"]
    assert "sent 3" in succeed(*words, servers=servers, stdin=mended).err
    assert held(boom, topic) == ["1", "2", "3", "4", "5", "6"]


def test_a_first_line_that_is_not_there(servers: str, boom: Client) -> None:
    boom.admin.create_topic("short", queues=1)
    words = ["produce", "short", "--from-line"]
    assert "sent 0" in succeed(*words, "3", servers=servers, stdin=b"a\nb\n").err
    assert "2 lines" in complaint(logboom(*words, "4", servers=servers, stdin=b"a\nb\n"))
    assert "1" in complaint(logboom(*words, "0", servers=servers, stdin=b"a\nb\n"))
    assert held(boom, "short") == []


@contextmanager
def producing(topic: str, servers: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which waits for lines."""
    with subprocess.Popen(
        [sys.executable, "-m", "logboom", "produce", topic, *words],
        env=environment(servers),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as command:
        try:
            yield command
        finally:
            command.kill()


def give(command: subprocess.Popen[bytes], text: str) -> None:
    """Write lines to it."""
    assert command.stdin is not None
    command.stdin.write(text.encode())
    command.stdin.flush()


def ended(command: subprocess.Popen[bytes]) -> Done:
    """Its end, while its input stays open."""
    code = command.wait(200)
    assert command.stdout is not None
    assert command.stderr is not None
    return Done(code, command.stdout.read(), command.stderr.read().decode())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_load_that_is_interrupted_says_how_far_it_came(
    servers: str, boom: Client, number: signal.Signals, code: int
) -> None:
    topic = f"broken-off-{code}"
    boom.admin.create_topic(topic, queues=1)
    with producing(topic, servers) as command:
        give(command, "a\nb\nc\n")
        wait_until(lambda: len(held(boom, topic)) == 3, "they do not come", 200.0)
        command.send_signal(number)
        done = ended(command)
    assert done.code == code
    (line,) = done.err.splitlines()
    assert "acknowledged: 3 messages" in line
    assert "--from-line 4" in line


def test_what_is_not_acknowledged_is_not_counted() -> None:
    with Cluster(name_servers=1, brokers=2) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("halves", queues=2, replicas=1)
        leaders = [cluster.leader("halves", queue, 200.0) for queue in (0, 1)]
        assert leaders[0] != leaders[1]
        with boom.producer() as producer:
            keys = [str(number) for number in range(8)]
            sent = [producer.send("halves", b"", key=key.encode()) for key in keys]
            queue_of = {k: s.result().queue for k, s in zip(keys, sent, strict=True)}
        mine, other = (next(k for k in keys if queue_of[k] == queue) for queue in (0, 1))
        before = boom.admin.offsets("halves")[0][1]
        with producing("halves", cluster.endpoint(leaders[0]), "-K", ":") as command:
            give(command, f"{mine}:1\n{other}:2\n")
            wait_until(lambda: boom.admin.offsets("halves")[0][1] == before + 1, "it does not come")
            cluster.pause(leaders[1])
            give(command, f"{mine}:3\n{other}:4\n{other}:5\n{mine}:6\n{mine}:7\n")
            wait_until(lambda: boom.admin.offsets("halves", [0])[0][1] == before + 4, "nor these")
            command.send_signal(signal.SIGINT)
            done = ended(command)
        cluster.resume(leaders[1])
    assert done.code == 130
    (line,) = done.err.splitlines()
    told = re.search(
        r"acknowledged: (\d) messages, (\d) of them behind line (\d), (\d) more may be stored; "
        r"go on with --from-line (\d) .*twice",
        line,
    )
    assert told is not None, line
    acked, behind, last, more, first = map(int, told.groups())
    # Of what came before the broker stood still, its answer may have been on the way.
    assert first == last <= 4
    assert (acked, acked + more) == (first - 1 + behind, 7)
    assert acked <= 5


def test_nothing_is_drawn_into_the_line_that_is_typed(servers: str, boom: Client) -> None:
    boom.admin.create_topic("typed", queues=1)
    ours, its = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "logboom", "produce", "typed"],
            env={**environment(servers), "TERM": "xterm"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        ) as command:
            shown = b""
            # Who types before that is echoed in between.
            while not shown.endswith(b"\n"):
                shown += os.read(ours, 1_000)
            os.write(ours, b"first\nsecond\n")
            wait_until(
                lambda: held(boom, "typed") == ["first", "second"], "they do not come", 200.0
            )
            os.write(ours, b"\x04")
            assert command.wait(200) == 0
        os.set_blocking(ours, False)

        def whole() -> bool:
            nonlocal shown
            # What was written before its end may still be on its way through the kernel.
            with suppress(BlockingIOError):
                shown += os.read(ours, 10_000)
            return shown.endswith(b"sent 2\r\n")

        wait_until(whole, "it does not tell the end")
    finally:
        os.close(ours)
        os.close(its)
    lines = shown.decode().replace("\r", "").splitlines()
    # What was typed is echoed by the terminal.
    assert lines == ["one message a line; Ctrl-D ends", "first", "second", "sent 2"]


@pytest.mark.parametrize("separator", ["\\", ""])
def test_a_separator_that_is_none(servers: str, separator: str) -> None:
    said = complaint(logboom("produce", "x", "-K", separator, servers=servers, stdin=b"a:b\n"))
    assert "--key-separator" in said


def test_a_separator_of_any_letters(servers: str, boom: Client) -> None:
    boom.admin.create_topic("arrows", queues=1)
    for separator, line in (("→", "k→v"), ("ü", "küv"), ("\\t", "k\tv")):
        words = ["produce", "arrows", "-K", separator]
        succeed(*words, servers=servers, stdin=line.encode())
    assert [(m.key, m.value) for m in boom.pull("arrows", 0, 0).messages] == [(b"k", b"v")] * 3


def test_values_that_are_no_text(servers: str, boom: Client) -> None:
    boom.admin.create_topic("bytes", queues=1)
    succeed("produce", "bytes", b"\xff", "--key", b"\xfe", servers=servers)
    assert [(m.key, m.value) for m in boom.pull("bytes", 0, 0).messages] == [(b"\xfe", b"\xff")]
