"""The rules R1 to R15 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from logboom.metadata import name_server
from logboom.metadata.duties.leader_duties import LeaderDuties
from logboom.metadata.duties.liveness import Liveness
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft import (
    engine_adapter,
    journal,
    log_matching,
    message_handler,
    peer_outboxes,
)
from logboom.metadata.raft.log_commands import GoOnAlone
from logboom.metadata.raft.log_matching import MatchedAppend, at_the_end
from logboom.metadata.raft.membership_changes import MembershipChanges
from logboom.metadata.raft.pre_vote import VoteTally
from logboom.metadata.raft.raft_entries import pack_change
from logboom.metadata.raft.raft_frames import AppendResponse, SnapshotChunk
from logboom.metadata.raft.raft_links import RaftLinks
from logboom.metadata.raft.raft_log import RaftLog
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_snapshot import decode_snapshot
from logboom.metadata.state import (
    broker_commands,
    elections,
    leadership_commands,
    recovery_commands,
    state_machine,
)
from logboom.metadata.tables.cluster_state import VERSIONS, ClusterState
from logboom.metadata.tables.command_outcome import DONE
from logboom.metadata.tables.transaction_table import PendingDecision, TransactionTable
from logboom.metadata.watch import watch_handler
from logboom.nodes import broker_context
from logboom.nodes.disk.data_folder import DataFolder
from logboom.nodes.replication.tail_reports import TailReports
from logboom.wire import acceptor
from logboom.wire.commands import FenceBroker, RemoveBroker
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from logboom.metadata.raft.journal_store import StoredJournal
    from logboom.metadata.raft.newcomers import OnEnd
    from logboom.metadata.raft.raft_config import Refusal
    from logboom.metadata.raft.raft_entries import MembershipChange
    from logboom.metadata.raft.raft_frames import AppendEntries
    from logboom.metadata.raft.raft_snapshot import RaftSnapshot
    from logboom.metadata.tables.cluster_state import Queue
    from logboom.metadata.tables.command_outcome import CommandOutcome
    from logboom.metadata.tables.replica_set import Reports
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.acceptor import PeerSession
    from logboom.wire.actor import Effects
    from logboom.wire.commands import QueueTail
    from logboom.wire.frames import Frame
    from logboom.wire.messages import AddNameServer, RaftFrame, Watch
    from logboom.wire.transactions import ParkedBatches
    from logboom.wire.view import View
    from tests.sim.breaks.queues import Patch


def gaps_go_unseen(patch: Patch) -> None:
    """R1: a lost frame does not end the stream."""
    taken = RaftLinks.from_peer

    def any_number(
        self: RaftLinks, message: RaftFrame, batches: Sequence[Frame], out: Effects, now: float
    ) -> None:
        link = vars(self)["_links"].get(message.sender)
        if link is not None and message.session == link.theirs:
            message.number = link.expected
        taken(self, message, batches, out, now)

    patch.setattr(RaftLinks, "from_peer", any_number)


def appends_cut_every_overlap(patch: Patch) -> None:
    """R2: an append truncates everything after its beginning, as in PySyncObj as shipped."""

    def on_append(
        self: message_handler.RaftMessageHandler, peer: str, append: AppendEntries
    ) -> None:
        own: Any = self
        state = own._state  # noqa: SLF001 - it stands in for a method
        if not own._is_current(peer, append.term):  # noqa: SLF001 - it stands in for a method
            return
        log, engine = state.log, state.engine
        if log.term_at(append.previous_index) != append.previous_term:
            wanted = max(engine.commit_index, engine.last_applied) + 1
            placed = at_the_end(log, engine.commit_index, wanted=wanted)
        else:
            last = append.entries[-1][1] if append.entries else append.previous_index
            placed = MatchedAppend(
                append.previous_index,
                append.previous_term,
                append.entries,
                min(append.commit_index, last),
                last,
            )
        own._follow(peer, append, placed)  # noqa: SLF001 - same

    patch.setattr(message_handler.RaftMessageHandler, "_on_append", on_append)


def rejections_step_back(patch: Patch) -> None:
    """R3: a rejected append steps back by one entry per heartbeat."""

    def follow(
        self: message_handler.RaftMessageHandler,
        peer: str,
        said: AppendEntries | SnapshotChunk,
        placed: MatchedAppend,
    ) -> None:
        if placed.wanted and not isinstance(said, SnapshotChunk):
            placed = _asking(placed, max(2, said.previous_index))
        shipped(self, peer, said, placed)

    shipped = vars(message_handler.RaftMessageHandler)["_follow"]
    patch.setattr(message_handler.RaftMessageHandler, "_follow", follow)


def _asking(placed: MatchedAppend, wanted: int) -> MatchedAppend:
    return MatchedAppend(
        placed.previous_index, placed.previous_term, [], placed.commit_index, wanted=wanted
    )


def hints_ask_for_the_first(patch: Patch) -> None:
    """R11: a rejected append asks for the very first entry, whatever the log has."""

    def rejected(log: RaftLog, commit_index: int, _applied: int) -> MatchedAppend:
        return at_the_end(log, commit_index, wanted=2)

    patch.setattr(log_matching, "_rejected", rejected)


def commits_are_forgotten(patch: Patch) -> None:
    """R11: the commit index is not journalled."""
    patch.setattr(RaftLog, "setRaftCommitIndex", lambda _self, _index: None)


def votes_are_forgotten(patch: Patch) -> None:
    """R4: term and vote are not journalled."""

    def in_memory(self: RaftLog, term: int, voted_for: str | None) -> None:
        vars(self)["_term"], vars(self)["_voted_for"] = term, voted_for

    patch.setattr(RaftLog, "setCurrentTerm", in_memory)


def commits_wait_for_the_heartbeat(patch: Patch) -> None:
    """R5: submitted commands leave with the next heartbeat."""
    shipped = engine_adapter.EngineAdapter.ship_submitted

    def later(self: engine_adapter.EngineAdapter) -> None:
        engine = vars(self)["_state"].engine
        send, engine.send_appends = engine.send_appends, lambda: None
        shipped(self)
        engine.send_appends = send

    patch.setattr(engine_adapter.EngineAdapter, "ship_submitted", later)


def every_snapshot_is_installed(patch: Patch) -> None:
    """R6: an older snapshot rolls the state back."""

    def on_chunk(self: message_handler.RaftMessageHandler, peer: str, chunk: SnapshotChunk) -> None:
        own: Any = self
        state = own._state  # noqa: SLF001 - it stands in for a method
        if not own._is_current(peer, chunk.term):  # noqa: SLF001 - it stands in for a method
            return
        data = state.outboxes.collector(peer).add(chunk)
        if data is None:
            own._follow(peer, chunk, at_the_end(state.log, state.commit_index))  # noqa: SLF001 - same
            return
        snapshot = decode_snapshot(data)
        index = snapshot.last[1]
        state.incoming = data
        state.answer = AppendResponse(chunk.term, chunk.sent_at, matched=index)
        message = {"type": "append_entries", "term": chunk.term, "commit_index": index}
        state.engine.deliver(peer, message | {"serialized": snapshot})
        state.follow_membership()

    patch.setattr(message_handler.RaftMessageHandler, "_on_snapshot_chunk", on_chunk)


def openings_wipe_the_journal(patch: Patch) -> None:
    """R7: a start with a snapshot clears the journal, as PySyncObj does for lists."""

    def wiped(self: RaftLog, snapshot: RaftSnapshot, _stored: StoredJournal) -> None:
        vars(self)["_members_before"] = frozenset(snapshot.members)
        vars(RaftLog)["_restart"](self, snapshot.before, snapshot.last)
        vars(self)["_commit"] = snapshot.last[1]

    patch.setattr(RaftLog, "_open_after", wiped)


def messages_leave_before_the_sync(patch: Patch) -> None:
    """R8: messages and answers leave before the sync, which runs now and then."""

    def tick(self: RaftNode, now: float) -> None:
        own: Any = self
        own._begin(now)  # noqa: SLF001 - it stands in for a method
        state = own._state  # noqa: SLF001 - same
        state.engine.doTick(0.0)
        if state.rng.random() < 0.3:
            state.disk.sync()

    patch.setattr(RaftNode, "tick", tick)
    patch.setattr(RaftNode, "sync", lambda self: self._state.submissions.give_out())
    patch.setattr(RaftNode, "take_outbox", lambda self: self._state.outboxes.take())


def an_empty_folder_is_taken(patch: Patch) -> None:
    """R9: a name server with an empty folder starts again under its old raft id."""
    claim = vars(journal)["_claim"]

    def any_folder(path: Path, wanted: object, former: object, *, create: bool) -> object:
        return claim(path, wanted, former, create=True)

    patch.setattr(journal, "_claim", any_folder)


def who_joined_once_joins_again(patch: Patch) -> None:
    """R9: a member counts with whatever folder it comes back, as one that joins does."""
    patch.setattr(name_server, "has_joined", lambda _cluster, raft: raft.node_id in raft.members)
    patch.setattr(message_handler, "_STANDING", ())
    patch.setattr(name_server, "is_foreign", lambda _cluster, _raft: False)
    patch.setattr(name_server, "noted_journal", lambda _cluster, _raft, _name: "")


def newcomers_know_only_their_own_log(patch: Patch) -> None:
    """R9: who asks a newcomer for its vote does not tell which journal its log names."""
    patch.setattr(name_server, "named_journal", lambda _cluster, _raft, _name: "")


def processes_of_one_name_server_look_alike(patch: Patch) -> None:
    """R9: two live processes with one Raft id take the links from each other for ever."""
    patch.setattr(RaftLinks, "_is_rival", lambda *_: False)


def answers_of_any_term_count(patch: Patch) -> None:
    """R10: an answer counts whatever term it was given in."""
    counted = vars(message_handler.RaftMessageHandler)["_on_response"]

    def on_answer(
        self: message_handler.RaftMessageHandler, peer: str, answer: AppendResponse
    ) -> None:
        said = AppendResponse(
            vars(self)["_state"].term, answer.sent_at, answer.matched, answer.wanted
        )
        counted(self, peer, said)

    patch.setattr(message_handler.RaftMessageHandler, "_on_response", on_answer)


def votes_count_as_often_as_they_come(patch: Patch) -> None:
    """R10: a member that votes twice counts twice."""
    patch.setattr(VoteTally, "count", lambda _self, _term, _voter: True)


def old_sessions_are_heard(patch: Patch) -> None:
    """R10: frames of an older session are accepted in the new one."""
    up = peer_outboxes.PeerOutboxes.is_up

    def any_session(
        self: peer_outboxes.PeerOutboxes, peer: str, _number: int | None = None
    ) -> bool:
        return up(self, peer)

    patch.setattr(peer_outboxes.PeerOutboxes, "is_up", any_session)


def changes_name_one_name_each(patch: Patch) -> None:
    """R12: an entry names the member that is added or removed, not all that count from then on."""

    def as_asked(_self: engine_adapter.EngineAdapter, change: MembershipChange) -> bytes:
        return pack_change(change)

    patch.setattr(engine_adapter.EngineAdapter, "_change_entry", as_asked)


def added_name_servers_are_forgotten(patch: Patch) -> None:
    """R12: a broker that starts again asks only the name servers that its configuration lists."""
    patch.setattr(
        broker_context, "NameServers", lambda founding, _remembered: NameServers(founding)
    )


def learned_name_servers_are_not_noted(patch: Patch) -> None:
    """R12: a broker's folder does not take the name servers that were added."""
    patch.setattr(DataFolder, "remember", lambda *_: None)


def anybody_changes_members(patch: Patch) -> None:
    """R12: clients without the cluster key may change the membership."""
    patch.setattr(acceptor, "OPERATORS_ONLY", ())
    patch.setattr(acceptor, "OPERATOR_COMMANDS", ())
    patch.setattr(acceptor, "CLIENT_COMMANDS", (*acceptor.CLIENT_COMMANDS, RemoveBroker))


def nobody_asks_newcomers(patch: Patch) -> None:
    """R12: a name server is added before it has answered."""

    def unasked(_self: NameServer, _request: AddNameServer, on_end: OnEnd) -> None:
        on_end(None, "")

    patch.setattr(NameServer, "ask_newcomer", unasked)


def majorities_are_not_minded(patch: Patch) -> None:
    """R12: a member is removed although too few of the others can be reached."""
    patch.setattr(MembershipChanges, "_stranded", lambda _self, _members, _newcomers: None)


def changes_come_all_at_once(patch: Patch) -> None:
    """R12: a membership change does not wait for the previous one."""
    refusal = vars(engine_adapter.EngineAdapter)["_refusal_of"]

    def never_pending(
        self: engine_adapter.EngineAdapter, change: MembershipChange
    ) -> Refusal | None:
        found: Refusal | None = refusal(self, change)
        return None if found is not None and found.name == "CHANGE_PENDING" else found

    patch.setattr(engine_adapter.EngineAdapter, "_refusal_of", never_pending)


def the_silence_is_the_brokers(patch: Patch) -> None:
    """R13: a Raft leader that is new, or was paused, fences brokers for its own silence."""

    def wake(self: LeaderDuties, now: float) -> None:
        vars(self)["_now"] = now

    patch.setattr(LeaderDuties, "wake", wake)
    grant = Liveness.grant_all

    def past(self: Liveness, brokers: Any, now: float) -> None:
        grant(self, brokers, now - 60)

    patch.setattr(Liveness, "grant_all", past)


def fences_of_any_term(patch: Patch) -> None:
    """R13: a fence is applied although another leader has been elected."""

    def always(cluster: ClusterState, command: FenceBroker) -> CommandOutcome:
        now = FenceBroker(command.broker, command.instance_epoch, cluster.term, command.time_ms)
        return broker_commands.fence_broker(cluster, now)

    patch.setitem(vars(state_machine)["_HANDLERS"], FenceBroker, always)


def watches_answer_older(patch: Patch) -> None:
    """R14: a name server that is behind answers WATCH with its older version."""

    def take(
        self: watch_handler.WatchHandler,
        peer: PeerSession,
        message: Watch,
        out: Effects,
        now: float,
    ) -> None:
        if vars(self)["_shown"] < message.version:
            message.version = -1
        taken(self, peer, message, out, now)

    taken = watch_handler.WatchHandler.take
    patch.setattr(watch_handler.WatchHandler, "take", take)


def older_views_are_followed(patch: Patch) -> None:
    """R14, the other half, which that covers: a view is taken although a newer one is known."""
    update = Routes.update

    def back(self: Routes, view: View) -> list[str]:
        if view.full:
            self.version = -1
        return update(self, view)

    patch.setattr(Routes, "update", back)


def metadata_goes_back(patch: Patch) -> None:
    """R14: such an answer is applied, although a newer view is known."""
    watches_answer_older(patch)
    older_views_are_followed(patch)


def survivors_go_on_as_if_nothing_was_lost(patch: Patch) -> None:
    """R15: a survivor that goes on alone raises nothing and doubts nothing."""
    handlers = vars(state_machine)["_HANDLERS"]

    def only_count(cluster: ClusterState, _command: GoOnAlone) -> CommandOutcome:
        cluster.recoveries += 1
        return DONE

    patch.setitem(handlers, GoOnAlone, only_count)


def what_is_unknown_is_deleted(patch: Patch) -> None:
    """R15: a broker deletes the replicas of topics that the metadata does not contain."""
    patch.setattr(Routes, "was_deleted", lambda self, topic_id: topic_id not in self.names)


def survivors_elect_whom_they_know(patch: Patch) -> None:
    """R15: a survivor takes its own ISRs for the newest, and awaits no log ends."""
    go_on = recovery_commands.go_on_alone

    def elect(cluster: ClusterState, command: GoOnAlone) -> CommandOutcome:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(recovery_commands, "_doubt", _begin_anew)
            return go_on(cluster, command)

    patch.setitem(vars(state_machine)["_HANDLERS"], GoOnAlone, elect)


def log_ends_are_told_too_early(patch: Patch) -> None:
    """R15: a broker tells how far its logs go before all of them have their roles."""
    report = TailReports.report

    def early(self: TailReports, topics: Sequence[str], turn: BrokerTurn) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(vars(self)["_applied"], "version", vars(self)["_routes"].version)
            report(self, topics, turn)

    patch.setattr(TailReports, "report", early)


def parts_of_log_ends_are_complete(patch: Patch) -> None:
    """R15: a broker says with each part of its report that it has told of all its logs."""
    report = vars(TailReports)["_report"]

    def whole(
        self: TailReports, tails: list[QueueTail], turn: BrokerTurn, *, complete: bool
    ) -> None:
        report(self, tails, turn, complete=complete or bool(tails))

    patch.setattr(TailReports, "_report", whole)


def groups_go_on_in_their_epochs(patch: Patch) -> None:
    """R15: a survivor goes on with the epochs of groups that it knows."""
    patch.setattr(recovery_commands, "_renew_groups", lambda _cluster: None)


def names_stay_with_whom_a_survivor_knows(patch: Patch) -> None:
    """R15: a process whose start was lost finds its name taken by the one before it."""
    patch.setattr(ClusterState, "recovered_at", 0)


def former_replicas_are_counted_on(patch: Patch) -> None:
    """R15: a replica that was moved away stands for one of those that have whatever was committed."""
    join = vars(leadership_commands)["_join_doubted"]

    def count(cluster: ClusterState, queue: Queue, broker: str) -> None:
        where = queue.topic.id, queue.index
        enough = cluster.doubted[where]
        join(cluster, queue, broker)
        cluster.doubted[where] = enough

    patch.setattr(leadership_commands, "_join_doubted", count)


def lost_moves_are_not_awaited(patch: Patch) -> None:
    """R15: a queue is led before those were heard that a lost move may have brought."""

    def reports(cluster: ClusterState, queue: Queue) -> Reports:
        return cluster.doubted.get((queue.topic.id, queue.index), 0), not cluster.unheard

    patch.setattr(elections, "_reports", reports)


def decisions_are_numbered_as_before(patch: Patch) -> None:
    """R15: a survivor numbers decisions as if no lost entry had numbered any."""

    def decide(
        self: TransactionTable,
        app_id: str,
        sequence: int,
        attempt: int,
        parked: Iterable[ParkedBatches],
        *,
        commit: bool,
    ) -> int:
        queues = {(p.topic_id, p.queue): p.places if commit else [] for p in parked}
        if not queues:
            return 0
        version = self._bump()
        number = version % VERSIONS
        self.add(PendingDecision(number, app_id, sequence, attempt, commit, queues))
        # It is told to all the same.
        self.changes.touch(number, version)
        return number

    patch.setattr(TransactionTable, "decide", decide)


def _begin_anew(cluster: ClusterState, queue: Queue) -> None:
    queue.epoch = max(queue.epoch + 1, cluster.first_epoch)
    queue.version += recovery_commands.NUMBERS
    cluster.touch_topic(queue.topic)
