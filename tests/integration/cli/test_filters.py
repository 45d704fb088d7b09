"""`produce` and `consume` as filters, `message get` and `find`."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from tests.integration.cli.command import environment, fail, succeed


def test_lines_go_in_and_come_out(servers: str) -> None:
    succeed("topic", "create", "lines", "--queues", 1, servers=servers)
    done = succeed("produce", "lines", servers=servers, stdin=b"one\ntwo\n\nfour without newline")
    assert done.err == "sent 4\n"
    read = succeed("consume", "lines", "--exit", servers=servers)
    assert read.out == b"one\ntwo\n\nfour without newline\n"


def test_keys_formats_and_places(servers: str) -> None:
    succeed("topic", "create", "keyed", "--queues", 1, servers=servers)
    lines = b"".join(b"UA:%d\n" % n for n in range(20))
    succeed("produce", "keyed", "-K", ":", "--tag", "late", servers=servers, stdin=lines)
    form = "%t[%q]@%o %k=%s (%g)\\n"
    last = succeed("consume", "keyed", "-o", "-2", "-e", "-f", form, servers=servers)
    assert last.lines == ["keyed[0]@18 UA=18 (late)", "keyed[0]@19 UA=19 (late)"]
    one = succeed("consume", "keyed", "-o", 5, "-c", 1, servers=servers)
    assert one.lines == ["5"]
    recent = succeed("consume", "keyed", "--since", "1h", "-e", servers=servers)
    assert len(recent.lines) == 20


def test_only_what_a_filter_lets_through(servers: str) -> None:
    succeed("topic", "create", "picked", "--queues", 2, servers=servers)
    for price in range(6):
        header = ["--header", f"price={price}", "--tag", f"t{price % 2}"]
        succeed("produce", "picked", str(price), "--queue", 0, *header, servers=servers)
    dear = ["--filter", "price BETWEEN 1 AND 3", "--exit"]
    assert succeed("consume", "picked", *dear, servers=servers).lines == ["1", "2", "3"]
    odd = succeed("consume", "picked", *dear, "--tags", "t1", servers=servers)
    assert odd.lines == ["1", "3"]
    assert succeed("consume", "picked", "--tags", "none", "-e", servers=servers).lines == []
    wrong = fail("consume", "picked", "--filter", "price BETWEEN 1", servers=servers)
    assert "at character 16" in wrong


def test_the_life_of_a_message(servers: str) -> None:
    succeed("topic", "create", "lived", "--queues", 1, servers=servers)
    succeed("produce", "lived", "a", "--key", "k", servers=servers)
    read = ["-g", "readers", "--count", "1"]
    succeed("consume", "lived", *read, servers=servers)
    told = succeed("message", "trace", "lived", 0, 0, servers=servers).out.decode()
    assert "lived/0/0: stored; the queue holds 0 to 0" in told
    assert "by producer " in told
    assert "Not known:" in told
    life = succeed("message", "trace", "lived", 0, 0, "-o", "json", servers=servers).json
    assert (life["message"]["value"], life["origin"]["sequence"]) == ("a", 0)
    (reader,) = life["readers"]
    assert (reader["name"], reader["state"]) == ("readers", "finished")
    assert "has queues 0 to 0" in fail("message", "trace", "lived", 7, 0, servers=servers)


def test_json_lines_copy_a_topic(servers: str) -> None:
    succeed("topic", "create", "original", "--queues", 1, servers=servers)
    succeed("topic", "create", "copy", "--queues", 1, servers=servers)
    header = ["--header", "source=tower"]
    succeed("produce", "original", "a", "b", "--key", "k", *header, servers=servers)
    written = succeed("consume", "original", "--json", "--exit", servers=servers)
    succeed("produce", "copy", "--json", servers=servers, stdin=written.out)
    copied = succeed("consume", "copy", "--json", "--exit", servers=servers)
    assert copied.out == written.out.replace(b'"original"', b'"copy"')
    assert b'"headers":{"source":"tower"}' in written.out


def test_one_message_by_offset_and_many_by_key(servers: str) -> None:
    succeed("topic", "create", "found", "--queues", 2, servers=servers)
    for value in ("first", "second", "third"):
        succeed("produce", "found", value, "--key", "needle", "--queue", 1, servers=servers)
    succeed("produce", "found", "other", "--key", "hay", "--queue", 1, servers=servers)
    got = succeed("message", "get", "found", 1, 1, "-o", "json", servers=servers).json
    assert (got["key"], got["value"], got["offset"]) == ("needle", "second", 1)
    assert "second" in succeed("message", "get", "found", 1, 1, servers=servers).out.decode()
    found = succeed("message", "find", "found", "-k", "needle", "-o", "json", servers=servers).json
    assert sorted(row["value"] for row in found) == ["first", "second", "third"]
    cut = succeed("message", "find", "found", "-k", "needle", "-n", 1, servers=servers)
    assert "third" in cut.out.decode()
    assert "there are more" in cut.err


def test_a_reader_that_goes_away_ends_it_quietly(servers: str) -> None:
    succeed("topic", "create", "long", "--queues", 1, servers=servers)
    succeed("produce", "long", servers=servers, stdin=b"x" * 99 + b"\n" + b"y\n" * 100_000)
    command = f"{sys.executable} -m logboom.cli consume long | head -c 100"
    done = subprocess.run(
        ["sh", "-c", command],
        env=environment(servers),
        capture_output=True,
        check=True,
        timeout=200,
    )
    assert done.stdout == b"x" * 99 + b"\n"
    assert done.stderr == b""


def test_delayed_lines_come_at_their_time(servers: str) -> None:
    succeed("topic", "create", "later", "--queues", 1, servers=servers)
    succeed("produce", "later", "never in this test", "--delay", "40d", servers=servers)
    succeed("produce", "later", "past", "--deliver-at", "2001-01-01T00:00:00Z", servers=servers)
    succeed("produce", "later", "soon", "--delay", "300ms", servers=servers)
    came = succeed("consume", "later", "-c", 2, "--json", servers=servers)
    first, second = map(msgspec.json.decode, came.lines)
    assert (first["value"], second["value"]) == ("past", "soon")
    for option, value, told in (
        ("--delay", "41d", "40 days"),
        ("--delay", "ever", "40d is the longest"),
        ("--delay", "-5s", "not a duration"),
        ("--deliver-at", "tomorrow", "2026-11-21T10:00:00Z"),
        ("--deliver-at", "2199-01-01T00:00:00Z", "the maximum is 40"),
    ):
        assert told in fail("produce", "later", "x", f"{option}={value}", servers=servers)
    both = ("--delay", "1s", "--deliver-at", "2026-11-21T10:00:00Z")
    assert "give one of them" in fail("produce", "later", "x", *both, servers=servers)


def test_a_topic_is_created_only_if_asked(servers: str) -> None:
    assert "does not exist" in fail("produce", "fresh", "hello", servers=servers)
    succeed("produce", "fresh", "hello", "--create", servers=servers)
    assert succeed("consume", "fresh", "--exit", servers=servers).lines == ["hello"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_quietly(servers: str, number: signal.Signals, code: int) -> None:
    succeed("produce", "waited", "hello", "--create", servers=servers)
    with subprocess.Popen(
        [sys.executable, "-m", "logboom.cli", "consume", "waited"],
        env=environment(servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"hello\n"
        os.kill(reader.pid, number)
        _, said = reader.communicate(timeout=200)
        assert reader.returncode == code
        assert said == b""


def test_a_bad_line_is_named(servers: str) -> None:
    succeed("topic", "create", "strict", "--queues", 1, servers=servers)
    lines = b'{"value": "good"}\nbad\n'
    assert "line 2: not a JSON message" in fail(
        "produce", "strict", "--json", servers=servers, stdin=lines
    )
