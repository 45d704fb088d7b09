"""Who may back up a secure cluster: somebody who administers it and sees all topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.client import connect
from logboom.deploy import embedded
from logboom.wire.errors import Forbidden
from tests.integration.backup.backup_contents import BackupContents
from tests.integration.users import new_credentials
from tests.integration.waiting import wait_until


def test_a_user_for_backups_sees_all_topics_or_is_refused(tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path / "backups"))
    with embedded(secure=True) as node:
        mine = new_credentials(node, "backup")
        with connect(str(node.credentials)) as boom:
            boom.admin.create_topic("flights", queues=2)
            boom.admin.create_user("backup", mine.key_pair.public)
            with boom.producer() as producer:
                producer.send_many("flights", [b"v"] * 5, queue=0).result(60)
            with boom.consumer("flights", group="readers") as consumer:
                wait_until(lambda: bool(consumer.poll(10)), "the group reads")
            with connect(node.endpoints, credentials=mine) as own:

                def back_up() -> None:
                    BackupWriter(own, store, BackupOptions()).create()

                with pytest.raises(Forbidden, match="admin cluster"):
                    back_up()
                boom.admin.add_rule("user:backup", "allow", "admin", "cluster")
                with pytest.raises(Forbidden, match="is hidden from this user"):
                    back_up()
                assert store.folders() == []
                boom.admin.add_rule("user:backup", "allow", "describe", "topic", "*")
                with pytest.raises(Forbidden, match="is hidden from this user"):
                    back_up()
                boom.admin.add_rule("user:backup", "allow", "describe", "group", "*")

                def may() -> bool:
                    try:
                        back_up()
                    except Forbidden:
                        return False
                    return True

                # The broker hears of a rule a moment later.
                wait_until(may, "the user may not make a backup")
    contents = BackupContents(BackupReader(store))
    assert contents.values("flights") == {b"v": 5}
    assert [each.group.name for each in contents.state.groups] == ["readers"]
    assert "backup" in [user.name for user in contents.state.users]
    assert not [user for user in contents.state.users if user.name.startswith("node:")]
