"""A user of a cluster with keys, by the command line and the client: let in, refused, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import Client, aio, connect
from logboom.deploy import embedded
from logboom.deploy.polling import ask_until
from logboom.wire.errors import Forbidden, LogboomError, Unauthenticated, UnknownResource
from tests.integration.cli.command import Done, complaint, logboom
from tests.integration.waiting import wait_until

ANSWER_S = 200.0


class SecureCluster:
    """A node with keys, its administrator, and the folder of the users' files."""

    def __init__(self, administrator: Path, folder: Path) -> None:
        self.administrator = administrator
        self.folder = folder

    def run(self, *words: str, user: Path | None = None) -> Done:
        """Run a command that must not fail, by default as the administrator."""
        done = self.try_(*words, user=user)
        assert done.code == 0, done.err
        return done

    def try_(self, *words: str, user: Path | None = None) -> Done:
        """Run a command."""
        file = self.administrator if user is None else user
        return logboom(*words, also={"LOGBOOM_CREDENTIALS": str(file)}, cwd=self.folder)

    def create(self, user: str) -> Path:
        """Create a user without rights, and return its credentials file."""
        self.run("user", "create", user)
        return self.folder / f"{user}.toml"

    def allow(self, user: str, *words: str) -> None:
        """Add a rule."""
        self.run("acl", "add", f"user:{user}", "allow", *words)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    folder = tmp_path_factory.mktemp("secure")
    with embedded(data=folder / "node", secure=True) as node:
        assert node.credentials is not None
        made = SecureCluster(node.credentials, folder)
        made.run("topic", "create", "orders", "--queues", "1")
        made.run("topic", "create", "others", "--queues", "1")
        yield made


def error_of_send(boom: Client, topic: str = "orders") -> LogboomError | None:
    """How a message is refused, if it is."""
    with boom.producer() as producer:
        try:
            producer.send(topic, b"x").result(ANSWER_S)
        except LogboomError as error:
            return error
    return None


def test_rights_come_with_rules_and_go_with_the_user(cluster: SecureCluster) -> None:
    file = cluster.create("alice")
    with connect(file) as boom:
        # Without a rule even the names are hidden.
        assert boom.admin.topics() == []
        assert isinstance(error_of_send(boom), UnknownResource)
        with pytest.raises(Forbidden, match="acl add"):
            boom.admin.create_topic("alices")
        asked = ("acl", "explain", "--user", "alice", "write", "topic", "orders")
        said = cluster.run(*asked, user=file).out.decode()
        assert said == "refused: no rule allows it\n"

        cluster.allow("alice", "describe", "topic", "orders")
        wait_until(lambda: isinstance(error_of_send(boom), Forbidden), "no such answer", ANSWER_S)
        assert [topic.name for topic in boom.admin.topics()] == ["orders"]

        cluster.allow("alice", "write", "topic", "or*")
        cluster.allow("alice", "read", "topic", "orders")
        wait_until(lambda: error_of_send(boom) is None, "no such answer", ANSWER_S)
        said = cluster.run(*asked, user=file).out.decode()
        assert said == "allowed: user:alice has: allow write topic or*\n"
        assert isinstance(error_of_send(boom, "others"), UnknownResource)

        with boom.consumer("orders") as consumer:
            assert consumer.poll(1, timeout_s=ANSWER_S)
            cluster.run("user", "disable", "alice")

            def cut_off() -> bool:
                try:
                    consumer.poll(100, timeout_s=1)
                except Unauthenticated:
                    return True
                return False

            wait_until(cut_off, "no such answer", ANSWER_S)
        assert isinstance(error_of_send(boom), Unauthenticated)
        with pytest.raises(Unauthenticated):
            boom.admin.topics()
        with pytest.raises(Unauthenticated, match="alice"):
            connect(file, timeout_s=ANSWER_S)
        assert "alice" in complaint(cluster.try_("topic", "list", user=file))

        # Enabled again, it goes on over the same client.
        cluster.run("user", "enable", "alice")
        wait_until(lambda: error_of_send(boom) is None, "no such answer", ANSWER_S)


def test_a_group_needs_both(cluster: SecureCluster) -> None:
    file = cluster.create("gus")
    cluster.allow("gus", "read", "topic", "orders")
    with connect(file) as boom:

        def joins() -> LogboomError | None:
            try:
                boom.consumer("orders", group="gus.bills").close()
            except LogboomError as error:
                return error
            return None

        assert isinstance(joins(), Forbidden)
        cluster.allow("gus", "read", "group", "gus.*")
        wait_until(lambda: joins() is None, "no such answer", ANSWER_S)


def test_a_removed_key_is_refused_and_the_other_counts(cluster: SecureCluster) -> None:
    first = cluster.create("kim")
    cluster.allow("kim", "write", "topic", "orders")
    cluster.run("user", "key", "add", "kim", "--label", "next")
    second = cluster.folder / "kim-next.toml"
    with connect(first) as old, connect(second) as new:
        wait_until(
            lambda: error_of_send(old) is None and error_of_send(new) is None,
            "no such answer",
            ANSWER_S,
        )
        cluster.run("user", "key", "remove", "kim", "first")
        wait_until(
            lambda: isinstance(error_of_send(old), Unauthenticated), "no such answer", ANSWER_S
        )
        assert error_of_send(new) is None


def test_users_do_not_administrate(cluster: SecureCluster) -> None:
    file = cluster.create("mel")
    for words in (
        ("user", "list"),
        ("user", "describe", "admin"),
        ("user", "create", "mels-friend"),
        ("acl", "add", "user:mel", "allow", "admin", "cluster"),
        ("acl", "explain", "--user", "admin", "admin", "cluster"),
    ):
        assert "admin" in complaint(cluster.try_(*words, user=file))
    assert not (cluster.folder / "mels-friend.toml").exists()
    # All nodes refuse it, which is told once; one that is slow to answer is told of by itself.
    refused = ask_until(
        lambda: cluster.try_("connections", "list", user=file),
        lambda done: done.err.startswith("broker-1, name-1: "),
        ANSWER_S,
    )
    assert refused.code == 1
    assert not refused.out
    (line,) = refused.err.splitlines()
    assert line.startswith("broker-1, name-1: user 'mel' may not describe the cluster")
    assert cluster.run("user", "describe", "mel", "-o", "json", user=file).json["name"] == "mel"


def test_asyncio_and_the_environment(
    cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGBOOM_CREDENTIALS", str(cluster.administrator))

    async def look() -> list[str]:
        async with aio.connect() as boom:
            return [topic.name for topic in await boom.admin.topics()]

    assert {"orders", "others"} <= set(asyncio.run(look()))


def test_the_doctor_sees_a_secure_cluster_as_its_administrator(cluster: SecureCluster) -> None:
    # A node that is slow to answer fails too.
    done = ask_until(
        lambda: cluster.try_("doctor", "-o", "json"), lambda done: done.code == 0, ANSWER_S
    )
    rows = {row["check"]: row["result"] for row in done.json}
    assert rows["raft leader"] == "ok"
    assert "failed" not in rows.values()
