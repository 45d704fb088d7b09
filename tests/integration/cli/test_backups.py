"""`logboom backup` in a shell: create, list, show, verify, restore, prune."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.backup.backup_format import MANIFEST
from logboom.client import connect
from logboom.deploy import embedded
from logboom.deploy.layout import KEY_FILE
from tests.integration.cli.command import Done, logboom


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, Path]]:
    """Where a node listens that has a topic with ten messages, and its key file."""
    with embedded() as node:
        with connect(node.endpoints) as boom:
            boom.admin.create_topic("flights", queues=2)
            with boom.producer() as producer:
                producer.send_many("flights", [b"v"] * 10, queue=0).result(60)
        yield ",".join(node.endpoints), node.data / KEY_FILE


def create(cluster: tuple[str, Path], url: Path, *more: str) -> Done:
    """Run `backup create`."""
    servers, key = cluster
    return logboom("backup", "create", url, "--key-file", key, *more, servers=servers)


def test_backups_are_made_looked_at_and_pruned(cluster: tuple[str, Path], tmp_path: Path) -> None:
    first = create(cluster, tmp_path)
    assert first.code == 0, first.err
    assert "1 topic, 10 messages" in first.lines[0]
    second = create(cluster, tmp_path, "--rate", "50m", "-o", "json")
    assert second.code == 0, second.err
    assert second.json["base"] == first.lines[0].split()[1].rstrip(":")
    found = logboom("backup", "list", tmp_path, "-o", "json").json
    assert [row["state"] for row in found] == ["finished", "finished"]
    assert found[1]["id"] == second.json["id"]
    shown = logboom("backup", "show", tmp_path)
    assert shown.code == 0, shown.err
    assert any(line.split()[:3] == ["flights", "2", "10"] for line in shown.lines)
    assert logboom("backup", "show", tmp_path, "-o", "json").json["topics"][0]["messages"] == 10
    checked = logboom("backup", "verify", tmp_path)
    assert (checked.code, checked.lines[-1].endswith("all sound")) == (0, True)
    third = create(cluster, tmp_path, "--base", "none", "--topics", "fl*", "-o", "json").json
    assert third["base"] is None
    planned = logboom("backup", "prune", tmp_path, "--keep", "1")
    assert "would be removed" in planned.lines[0]
    assert len(list(tmp_path.iterdir())) == 3
    done = logboom("backup", "prune", tmp_path, "--keep", "1", "--yes")
    assert done.lines[0].startswith("removed: ")
    assert [path.name for path in tmp_path.iterdir()] == [third["id"]]
    assert logboom("backup", "verify", tmp_path, third["id"]).code == 0


def test_faults_are_named_and_fail_the_command(cluster: tuple[str, Path], tmp_path: Path) -> None:
    made = create(cluster, tmp_path, "-o", "json").json
    folder = tmp_path / made["id"]
    (segment,) = folder.rglob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[:-1])
    checked = logboom("backup", "verify", tmp_path)
    assert checked.code == 1
    assert str(segment) in checked.lines[0]
    assert "truncated" in checked.lines[0]
    assert logboom("backup", "verify", tmp_path, "-o", "json").json["faults"]
    (folder / MANIFEST).write_bytes(b'{"format": 99}')
    newer = logboom("backup", "verify", tmp_path)
    assert newer.code == 1
    assert "newer one" in newer.err
    assert "damaged" in logboom("backup", "list", tmp_path).lines[1]


def test_bad_input_ends_in_one_line_that_helps(cluster: tuple[str, Path], tmp_path: Path) -> None:
    servers, _ = cluster
    for words, text in (
        (["create", tmp_path / "b", "--rate", "fast"], "is not a size"),
        (["create", tmp_path / "b", "--rate", "0"], "would never end"),
        (["create", "s3://bucket/b"], "pip install s3fs"),
        (["create", tmp_path / "b"], "--key-file"),
        (["show", tmp_path / "b"], "logboom backup create"),
        (["verify", tmp_path / "b"], "logboom backup create"),
        (["prune", tmp_path / "b", "--keep", "0"], "at least one"),
    ):
        done = logboom("backup", *words, servers=servers)
        assert done.code == 1
        assert text in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "b").exists()
    assert logboom("backup", "list", tmp_path / "b").code == 0


def test_a_backup_is_restored_beside_what_is_there(
    cluster: tuple[str, Path], tmp_path: Path
) -> None:
    servers, key = cluster
    made = create(cluster, tmp_path, "-o", "json").json

    def restore(*more: str) -> Done:
        return logboom("backup", "restore", tmp_path, "--key-file", key, *more, servers=servers)

    taken = restore()
    assert taken.code == 1
    assert "exist already: flights" in taken.err
    wanted = ("--topic", "flights", "--as", "flights-2")
    planned = restore(*wanted)
    assert planned.code == 0, planned.err
    assert "would be restored" in planned.lines[0]
    assert any(line.split()[:2] == ["flights", "flights-2"] for line in planned.lines)
    assert restore(*wanted, "-o", "json").json["backup"] == made["id"]
    done = restore(*wanted, "--yes")
    assert done.code == 0, done.err
    assert "1 topic, 10 messages" in done.lines[0]
    with connect(servers) as boom:
        assert boom.admin.offsets("flights-2") == boom.admin.offsets("flights")
        boom.admin.delete_topic("flights-2")
    nothing = restore("--abandon", "--yes")
    assert nothing.lines[0] == "deleted: nothing"
    assert restore("--prefix", "old-", "--users", "--yes", "-o", "json").json["users"] == []
