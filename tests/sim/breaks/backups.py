"""The rules K1 to K6 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from logboom.backup import backup_format, backup_pruning, backup_writer
from logboom.backup.backup_format import SegmentReader
from logboom.backup.backup_reader import BackupReader
from logboom.metadata.state import state_machine
from logboom.metadata.tables.command_outcome import DONE
from logboom.nodes.cluster.lease import Lease
from logboom.nodes.log.keys import Position
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.requests import backup_handler, produce_handler, pull_handler, restore_handler
from logboom.wire.commands import RestoreCounters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logboom.backup.backup_format import Manifest, QueueRecord
    from logboom.nodes.replica.leadership import Leadership
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.backup_messages import RestoreEntries
    from logboom.wire.view import TopicView
    from tests.sim.breaks.queues import Patch


def backups_need_no_lease(patch: Patch) -> None:
    """K1: a leader answers a backup that may have been replaced."""
    patch.setattr(Lease, "holds", lambda _self, _now: True)


def backups_trust_new_leaders(patch: Patch) -> None:
    """K1: a new leader answers before it knows what was acknowledged."""
    find = vars(backup_handler)["find_led_replica"]

    class Certain:
        """A leadership that began with nothing."""

        election_end = Position(0, -1)

    def found(*arguments: Any) -> tuple[Replica, Leadership]:
        replica, _ = find(*arguments)
        certain: Any = Certain()
        return replica, certain

    patch.setattr(backup_handler, "find_led_replica", found)


def gaps_are_passed_over(patch: Patch) -> None:
    """K1: where retention was faster, what is left is appended to what there is."""
    patch.setattr(
        backup_handler.BackupHandler, "_holds", lambda _self, _replica, _at, _last_epoch: True
    )


def later_decisions_are_copied(patch: Patch) -> None:
    """K2: a decision is copied whenever it was made."""
    patch.setattr(backup_handler, "_is_later", lambda _entry, _version: False)


def late_acknowledgements_count(patch: Patch) -> None:
    """K3: all acknowledgements of subscriptions in the log are restored."""
    entries = BackupReader.entries

    def all_of(
        self: BackupReader, topic_id: int, queue: QueueRecord, begin: Any = None
    ) -> Iterator[Any]:
        queue = msgspec.structs.replace(queue, cursors_end=queue.end)
        return entries(self, topic_id, queue, begin)

    patch.setattr(BackupReader, "entries", all_of)


def blocks_are_not_checked(patch: Patch) -> None:
    """K4: a block is restored whatever its checksum is."""
    check = SegmentReader.blocks

    def unchecked(self: SegmentReader) -> Iterator[bytes]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(backup_format, "crc32c", lambda _data: _Anything())
            yield from check(self)

    patch.setattr(SegmentReader, "blocks", unchecked)


class _Anything(int):
    """A checksum that equals every other."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = int.__hash__


def bases_are_pruned(patch: Patch) -> None:
    """K4: a kept backup's own folder is all that it needs."""

    class Alone:
        """A manifest that names the files of its own folder only."""

        def __init__(self, manifest: Manifest) -> None:
            self.id = manifest.id
            self._manifest = manifest

        def records(self) -> Iterator[Any]:
            """Its own files."""
            return (each for each in self._manifest.records() if each[2].backup == self.id)

    plan = backup_pruning.plan_pruning

    def wrong(manifests: Any, files: Any, keep: int) -> Any:
        return plan([Alone(each) for each in manifests], files, keep)  # type: ignore[misc] # a stand-in

    patch.setattr(backup_pruning, "plan_pruning", wrong)


def what_is_written_is_pruned(patch: Patch) -> None:
    """K4: to prune leaves out of account what unfinished backups refer to."""
    patch.setattr(backup_pruning, "_held", lambda _staying, _finished: set())


def old_plans_are_carried_out(patch: Patch) -> None:
    """K4: to prune removes files by a plan, without another look at what others have begun since."""

    def survey(reader: BackupReader, keep: int, _now: float, of: Any) -> Any:
        files = {name: reader.store.files(name) for name in of}
        return backup_pruning.plan_pruning(reader.manifests(), files, keep)

    patch.setattr(backup_pruning, "survey_pruning", survey)


def broken_bases_are_continued(patch: Patch) -> None:
    """K4: a backup refers to the files of its base without a look at them."""
    patch.setattr(backup_writer.BackupWriter, "_is_there", lambda _self, _record: True)
    patch.setattr(backup_writer.BackupWriter, "_check_files", lambda _self, _manifest: None)


def folders_are_shared(patch: Patch) -> None:
    """K4: of two processes that begin a backup in the same folder, both write there."""

    def take(self: backup_writer.BackupWriter, folder: str, _seen: object) -> bool:
        self.id = folder
        self._write_progress(owner=self._owner)
        return True

    patch.setattr(backup_writer.BackupWriter, "_claim", take)


def restoring_topics_are_used(patch: Patch) -> None:
    """K5: a topic that is being restored takes and gives messages."""
    for module in (produce_handler, pull_handler):
        patch.setattr(module, "check_restored", lambda _replica: None)


def restoring_topics_release(patch: Patch) -> None:
    """K5: retention, releases and decisions go on while a topic is being restored."""
    find = vars(restore_handler.RestoreHandler)["_find"]

    def apply(self: ReplicaRoles, topic: TopicView, queues: range, turn: BrokerTurn) -> None:
        _apply(self, msgspec.structs.replace(topic, restoring=""), queues, turn)

    def found(
        self: restore_handler.RestoreHandler, message: RestoreEntries
    ) -> tuple[Replica, Leadership]:
        replica = self._queues.by_name[message.topic, message.queue]
        replica.restoring = message.backup
        try:
            answer: tuple[Replica, Leadership] = find(self, message)
        finally:
            replica.restoring = ""
        return answer

    _apply = vars(ReplicaRoles)["_apply_topic"]
    patch.setattr(ReplicaRoles, "_apply_topic", apply)
    patch.setattr(restore_handler.RestoreHandler, "_find", found)


def other_backups_are_mixed_in(patch: Patch) -> None:
    """K5: a queue that is being restored takes entries of any backup."""
    find = vars(restore_handler.RestoreHandler)["_find"]

    def found(
        self: restore_handler.RestoreHandler, message: RestoreEntries
    ) -> tuple[Replica, Leadership]:
        replica = self._queues.by_name[message.topic, message.queue]
        same = msgspec.structs.replace(message, backup=replica.restoring)
        answer: tuple[Replica, Leadership] = find(self, same)
        return answer

    patch.setattr(restore_handler.RestoreHandler, "_find", found)


def undecided_transactions_are_listed_early(patch: Patch) -> None:
    """K6: a restored queue counts as whole before it is known what waits in it for a decision."""
    whole = vars(restore_handler)["_is_whole"]

    def early(replica: Replica, leading: Leadership) -> bool:
        applied, replica.applied = replica.applied, replica.hw
        try:
            found: bool = whole(replica, leading)
        finally:
            replica.applied = applied
        return found

    patch.setattr(restore_handler, "_is_whole", early)


def counters_begin_anew(patch: Patch) -> None:
    """K6: a restored cluster counts as if there had been none before."""
    patch.setitem(
        vars(state_machine)["_HANDLERS"], RestoreCounters, lambda _cluster, _command: DONE
    )
