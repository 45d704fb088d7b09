"""One run of a restore against a cluster in memory: what it compares before topics are in use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from logboom.backup.backup_format import Manifest
from logboom.backup.backup_reader import BackupReader
from logboom.backup.restore import Restore
from logboom.backup.restore_plan import RestoreOptions, plan_restore
from logboom.client import Client
from logboom.wire.backup_messages import ClusterSnapshot, EntriesRestored
from logboom.wire.commands import CommandResult, FinishRestore, RestoreTopic
from logboom.wire.errors import DataDamaged
from logboom.wire.view import BrokerView
from tests.unit.backup.test_backup_writer import EMPTY, Leader, Noted, writer


class Target:
    """The administration of a cluster in which the log has all entries, with this last epoch."""

    def __init__(self, last_epoch: int, entries: int) -> None:
        self._last_epoch, self._entries = last_epoch, entries
        self.commands: list[Any] = []

    def restore(self, command: Any) -> CommandResult:
        """Note a command."""
        self.commands.append(command)
        return CommandResult(0, value=1 if isinstance(command, RestoreTopic) else None)

    def restore_entries(self, _wanted: object) -> EntriesRestored:
        """Tell that everything is there already."""
        return EntriesRestored(0, self._entries, 0, self._last_epoch, 0, -1, True, 0)

    def transactions(self, *, most: int) -> Any:
        """Nothing waits."""
        assert most > 0
        return SimpleNamespace(transactions=[])


def restore(last_epoch: int) -> list[Any]:
    """Restore a backup whose last entry has epoch 3; returns the commands."""
    store = Noted()
    manifest: Manifest = writer(Leader(), store).create()
    reader = BackupReader(store)
    state: ClusterSnapshot = reader.state(manifest)
    broker = BrokerView("a", "a:1", "", 1, True, 1)
    target = msgspec.structs.replace(EMPTY, brokers=[broker])
    plan = plan_restore(manifest, state, target, RestoreOptions(prefix="r-"))
    admin = Target(last_epoch, manifest.topics[0].queues[0].end[0])
    Restore(cast("Client", SimpleNamespace(admin=admin)), reader, manifest, state, plan).run()
    return admin.commands


def test_a_topic_is_in_use_once_its_log_is_that_of_the_backup() -> None:
    assert any(isinstance(command, FinishRestore) for command in restore(3))


def test_a_log_of_the_same_length_with_another_last_epoch_is_not_the_backups() -> None:
    with pytest.raises(DataDamaged, match="is not what the backup has"):
        restore(2)
