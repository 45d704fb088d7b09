"""The cluster key while it is changed: its file, and what greets whom with which key."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

from logboom.wire.cluster_keys import LOOK_S, ClusterKeyFile, key_mark, read_cluster_keys
from logboom.wire.errors import StartError
from tests.unit.wire.test_session import Line, node

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
STEPS = ((OLD,), (OLD, NEW), (NEW, OLD), (NEW,))
"""What the nodes' files hold, one after the other."""


def put(path: Path, *keys: bytes) -> None:
    """Write a key file as an operator does, in one step."""
    new = path.with_suffix(".new")
    new.write_bytes(b"\n".join(keys) + b"\n")
    new.chmod(0o600)
    new.replace(path)


def test_a_file_has_one_key_or_two(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    for keys in STEPS:
        put(path, *keys)
        assert read_cluster_keys(path) == keys
    put(path, OLD, NEW, OTHER)
    with pytest.raises(StartError, match="more than 2 keys"):
        read_cluster_keys(path)
    for short in ([b"short"], [OLD, b"short"], []):
        put(path, *short)
        with pytest.raises(StartError, match="shorter"):
            read_cluster_keys(path)


def test_without_a_file_the_setting_is_named() -> None:
    with pytest.raises(StartError, match="no cluster_key_file in the config"):
        read_cluster_keys("")


def test_a_changed_file_is_followed_and_a_bad_one_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cluster.key"
    put(path, OLD)
    file = ClusterKeyFile(str(path), OLD)
    times = itertools.count(0.0, LOOK_S)
    assert not file.has_changed(next(times))
    assert file.figures() == {"cluster_key": key_mark(OLD), "other_cluster_key": ""}
    put(path, OLD, NEW)
    now = next(times)
    assert file.has_changed(now)
    assert [*file.keys] == [OLD, NEW]
    assert file.figures()["other_cluster_key"] == key_mark(NEW)
    put(path, NEW)
    assert not file.has_changed(now + LOOK_S / 2), "a look is not due"
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert not any(file.has_changed(next(times)) for _ in range(3))
    assert len(caplog.records) == 1
    assert len(file.keys) == 2
    assert OLD.decode() not in caplog.text
    path.chmod(0o600)
    assert file.has_changed(next(times))
    assert [*file.keys] == [NEW]


def test_without_a_file_the_key_stays() -> None:
    file = ClusterKeyFile("", OLD)
    assert not file.has_changed(0.0)
    assert file.keys == (OLD,)


@pytest.mark.parametrize("dialling", range(4))
@pytest.mark.parametrize("listening", range(4))
def test_nodes_of_neighbouring_steps_greet_each_other(dialling: int, listening: int) -> None:
    line = Line(node(STEPS[dialling][0]))
    line.session.identity.take_cluster_keys(STEPS[dialling])
    line.gate.take_cluster_keys(STEPS[listening])
    line.ask()
    line.run()
    if abs(dialling - listening) <= 1:
        assert [reply.error for reply in line.replies] == [None]
        assert len(line.gate) == 1
    else:
        shares = set(STEPS[dialling]) >= {STEPS[listening][0]}
        assert bool(len(line.gate)) is shares
        assert shares or line.session.state == "refused"


def test_sessions_of_a_key_that_is_gone_end_and_begin_again_with_the_new_one() -> None:
    line = Line(node(OLD), OLD)
    line.ask()
    line.run()
    line.session.identity.take_cluster_keys((NEW, OLD))
    line.gate.take_cluster_keys((NEW, OLD))
    assert len(line.gate) == 1, "both count"
    line.gate.take_cluster_keys((NEW,))
    assert len(line.gate) == 0
    line.ask()
    line.run()
    assert [reply.error for reply in line.replies] == [None, None]
    assert len(line.gate) == 1
    line.gate.take_cluster_keys((NEW,))
    assert len(line.gate) == 1, "it has been proven by the new key"


def test_whoever_has_only_the_former_key_is_shut_out() -> None:
    line = Line(node(OLD), OLD)
    line.ask()
    line.run()
    line.gate.take_cluster_keys((NEW,))
    line.ask()
    line.run()
    refusal = line.session.refusal
    assert refusal is not None
    assert refusal.code == "UNAUTHENTICATED"
    assert len(line.gate) == 0


def test_clients_without_a_cluster_key_keep_their_sessions() -> None:
    line = Line(node(OLD), OLD)
    line.session.identity.kind = "client"
    line.session.identity.take_cluster_keys((b"",))
    line.ask()
    line.run()
    line.gate.take_cluster_keys((NEW,))
    assert len(line.gate) == 1
