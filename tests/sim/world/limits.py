"""The limits of one run: how much an answer, a page, a turn or a cache holds, drawn from its seed.

Batches of the simulation are small against the limits that the program is shipped with. So every
run makes some of these as small as a batch or two, or smaller, each by itself: then what one limit
cuts off meets what another lets through. Each limit has dice of its own, so that a new one leaves
all else that a seed does as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pytest

from logboom.nodes.config import BrokerConfig

BYTES: Final = (1, 150, 300, 500, 900, 1_700, 5_000)
"""A batch of the simulation has 100 to 250 bytes, most of them."""
FEW: Final = (1, 2, 3, 7, 20)
SHARES: Final = (0.0, 0.2, 0.5, 0.8)
"""Of the limits of a run, how many are small; each run has one of these."""
BROKER: Final[Mapping[str, tuple[int, ...]]] = {
    "fetch_bytes": BYTES,
    "cache_bytes": (1, 500, 900, 1_400, 1_900, 3_000, 9_000),  # 320 for each entry
    "max_unsynced_bytes": BYTES,
    "memory_bytes": (1, 1_000, 10_000),
    "scrub_bytes_per_s": (20_000, 200_000),
    "compaction_messages_per_s": (200, 2_000),
}
"""Settings of brokers."""
RAFT: Final[Mapping[str, tuple[int, ...]]] = {
    "compact_entries": (5, 12, 60),
    "compact_bytes": (500, 5_000),
    "snapshot_chunk_bytes": (50, 300),
}
"""Settings of the raft group. (An entry of its log always fits into one append.)"""
NODES: Final = "logboom.nodes."
METADATA: Final = "logboom.metadata."
CLIENT: Final = "logboom.client."
CONSTANTS: Final[Mapping[str, tuple[int, ...]]] = {
    NODES + "broker.DECISIONS_AT_ONCE": FEW,
    NODES + "broker.GROUP_COMMANDS_AT_ONCE": FEW,
    NODES + "broker.INDEXED_AT_ONCE": FEW,
    NODES + "broker.LOOKED_AT_ONCE": FEW,
    NODES + "broker.REPORTED_AT_ONCE": FEW,
    NODES + "compaction.changes.MOST_THINNED": FEW,
    NODES + "compaction.compacting.TURN_UNITS": FEW,
    NODES + "compaction.copies.PAGE_BYTES": BYTES,
    NODES + "compaction.copies.PAGE_MESSAGES": FEW,
    NODES + "compaction.copies.WINDOW_BYTES": BYTES,
    NODES + "compaction.copies.WINDOW_MESSAGES": FEW,
    NODES + "compaction.survivor_copies.TURN_UNITS": FEW,
    NODES + "disk.opening.TAIL_BYTES": BYTES,
    NODES + "disk.opening.TAIL_ENTRIES": FEW,
    NODES + "groups.coordinator.EXPIRED_AT_ONCE": FEW,
    NODES + "groups.starts.ASKED_AT_ONCE": FEW,
    NODES + "groups.starts.SAID_AT_ONCE": FEW,
    NODES + "log.index.BLOCK_BYTES": BYTES,
    NODES + "log.index.BLOCK_ENTRIES": FEW,
    NODES + "log.index.CONTROLS": FEW,
    NODES + "log.index.LOOKUPS": FEW,
    NODES + "log.index.LOOKUP_BYTES": BYTES,
    NODES + "log.index.READ_BYTES": BYTES,
    NODES + "log.index.STEP_BYTES": BYTES,
    NODES + "log.index._NOTED": FEW,
    NODES + "log.index_rows.LOOKUP_BLOCKS": FEW,
    NODES + "log.index.RUN_BLOCKS": FEW,
    NODES + "log.queues.SNAPSHOT_BYTES": BYTES,
    NODES + "log.retention.STEPS": (20, 60),
    NODES + "parked.carry.BATCHES_AT_ONCE": FEW,
    NODES + "parked.carry.BYTES_AT_ONCE": BYTES,
    NODES + "parked.parked.APPLIED_AT_ONCE": FEW,
    NODES + "parked.parked.DROPPED_AT_ONCE": FEW,
    NODES + "parked.release.BATCHES_AT_ONCE": FEW,
    NODES + "parked.release.BYTES_AT_ONCE": BYTES,
    NODES + "parked.release.LOOKED_AT_ONCE": FEW,
    NODES + "replication.damages.REPORTED_AT_ONCE": FEW,
    NODES + "replication.isr.ROOM": BYTES,
    NODES + "replica_roles.QUEUES_AT_ONCE": FEW,
    NODES + "replication.replica_fetcher.NAMED_AT_ONCE": FEW,
    NODES + "replication.replicate_handler.GATHERED_AT_ONCE": FEW,
    NODES + "replication.scrub.NOTE_EVERY": BYTES,
    NODES + "replication.scrub.TURN_BYTES": BYTES,
    NODES + "requests.pulling.MOST_BYTES": BYTES,
    NODES + "requests.pulling.TURN_BYTES": BYTES,
    NODES + "requests.scanning.SLICE_BYTES": BYTES,
    NODES + "requests.scanning.SLICE_UNITS": (200, 1_000, 5_000),
    NODES + "requests.scanning.TURN_BYTES": BYTES,
    NODES + "requests.scanning.TURN_UNITS": (200, 1_000, 5_000),
    NODES + "requests.sieves.OPENED_BYTES": BYTES,
    NODES + "requests.sieves.OPENED_MESSAGES": FEW,
    NODES + "requests.sieves.PULL_UNITS": (200, 1_000, 5_000),
    NODES + "subscriptions.dispatch_shelf.SHELF_BYTES": BYTES,
    NODES + "subscriptions.dispatcher.READ_BATCHES": FEW,
    NODES + "subscriptions.dispatcher.READ_BYTES": BYTES,
    NODES + "subscriptions.dispatch_keys.READ_BATCHES": FEW,
    NODES + "subscriptions.key_shared_dispatcher.PIECE": FEW,
    NODES + "subscriptions.slot_reader.PIECE": FEW,
    NODES + "subscriptions.dispatch_keys.READ_BYTES": BYTES,
    NODES + "subscriptions.settlement_queue.PART_OFFSETS": FEW,
    NODES + "subscriptions.settlement_queue.PART_SPANS": FEW,
    NODES + "subscriptions.settlement_queue.PEER_UNITS": FEW,
    NODES + "subscriptions.source.CONTROLS": FEW,
    # A command in half a second: one decision in each is slower than the transactions of a run.
    NODES + "transactions.deciding_reports.AT_ONCE": (7, 20),
    NODES + "transactions.deciding_reports.UNDER_WAY": FEW,
    NODES + "transactions.halves.ASKED_AT_ONCE": FEW,
    NODES + "transactions.halves.BYTES_AT_ONCE": BYTES,
    NODES + "transactions.orphans.ASKED_AT_ONCE": FEW,
    NODES + "transactions.orphans.LOOKED_AT": FEW,
    NODES + "upkeep.SHARE": (5, 20),
    METADATA + "duties.rebalance.MAX_MOVES": FEW,
    METADATA + "groups.targets.MAX_PER_TURN": FEW,
    METADATA + "transactions.transactions.ENDED_AT_ONCE": FEW,
    CLIENT + "cluster.proposals.WINDOW": FEW,
    CLIENT + "groups.committing.MAX_ROUND_BYTES": BYTES,
    CLIENT + "groups.copies.MOST": FEW,
    CLIENT + "reading.inbox.PULL_BYTES": BYTES,
    CLIENT + "reading.message_flows.PULL_BYTES": BYTES,
    CLIENT + "sending.send_buffer.MAX_PILE_COUNT": FEW,
    CLIENT + "sending.sending.MAX_FLYING": (1, 2, 3, 4),
    CLIENT + "subscriptions.subscriber.WINDOW_BYTES": BYTES,
    "tests.sim.api_client.BATCH_BYTES": (1_500, 20_000),
    "tests.sim.api_client.SHARE_BYTES": (1, 300, 20_000),
    "tests.sim.process.TURN_EVENTS": FEW,
}
"""Constants of modules, under the names by which these look them up."""
MOVED: Final[Mapping[str, str]] = {
    NODES + "broker.DECISIONS_AT_ONCE": NODES + "broker_parts.DECISIONS_AT_ONCE",
    NODES + "broker.GROUP_COMMANDS_AT_ONCE": NODES + "groups.group_coordinator.COMMANDS_AT_ONCE",
    NODES + "broker.INDEXED_AT_ONCE": NODES + "settlement.INDEXED_AT_ONCE",
    NODES + "broker.LOOKED_AT_ONCE": NODES + "settlement.MAX_INDEX_CHECKS",
    NODES + "broker.REPORTED_AT_ONCE": NODES + "replication.replica_repair.TAILS_AT_ONCE",
    NODES + "compaction.changes.MOST_THINNED": NODES + "replica.compaction_update.MOST_THINNED",
    NODES + "compaction.compacting.TURN_UNITS": NODES + "compaction.compactor.TURN_UNITS",
    NODES + "compaction.copies.PAGE_BYTES": NODES + "compaction.survivor_copies.PAGE_BYTES",
    NODES + "compaction.copies.PAGE_MESSAGES": NODES + "compaction.survivor_copies.PAGE_MESSAGES",
    NODES + "compaction.copies.WINDOW_BYTES": NODES + "replica.compaction_update.COPY_BYTES",
    NODES + "compaction.copies.WINDOW_MESSAGES": NODES + "replica.compaction_update.COPY_MESSAGES",
    NODES + "disk.opening.TAIL_BYTES": NODES + "log.recovery.TAIL_BYTES",
    NODES + "disk.opening.TAIL_ENTRIES": NODES + "log.recovery.TAIL_ENTRIES",
    NODES + "groups.coordinator.EXPIRED_AT_ONCE": NODES
    + "groups.group_coordinator.EXPIRED_AT_ONCE",
    NODES + "groups.starts.ASKED_AT_ONCE": NODES + "groups.start_offsets.ASKED_AT_ONCE",
    NODES + "groups.starts.SAID_AT_ONCE": NODES + "groups.start_offsets.SAID_AT_ONCE",
    NODES + "log.queues.SNAPSHOT_BYTES": NODES + "replica.replica_table.SNAPSHOT_BYTES",
    NODES + "parked.carry.BATCHES_AT_ONCE": NODES + "parking.relocation.BATCHES_AT_ONCE",
    NODES + "parked.carry.BYTES_AT_ONCE": NODES + "parking.relocation.BYTES_AT_ONCE",
    NODES + "parked.parked.APPLIED_AT_ONCE": NODES + "replica.parked_queue.APPLIED_AT_ONCE",
    NODES + "parked.parked.DROPPED_AT_ONCE": NODES + "replica.parked_queue.DROPPED_AT_ONCE",
    NODES + "parked.release.BATCHES_AT_ONCE": NODES + "parking.release_scheduler.BATCHES_AT_ONCE",
    NODES + "parked.release.BYTES_AT_ONCE": NODES + "parking.release_scheduler.BYTES_AT_ONCE",
    NODES + "parked.release.LOOKED_AT_ONCE": NODES + "parking.release_scheduler.LOOKED_AT_ONCE",
    NODES + "replication.damages.REPORTED_AT_ONCE": NODES
    + "replication.replica_repair.REPORTED_AT_ONCE",
    NODES + "replication.scrub.NOTE_EVERY": NODES + "replication.scrubber.NOTE_EVERY",
    NODES + "replication.scrub.TURN_BYTES": NODES + "replication.scrubber.TURN_BYTES",
    NODES + "requests.pulling.MOST_BYTES": NODES + "requests.pull_handler.MOST_BYTES",
    NODES + "requests.pulling.TURN_BYTES": NODES + "requests.pull_handler.TURN_BYTES",
    NODES + "requests.scanning.SLICE_BYTES": NODES + "requests.scan_scheduler.SLICE_BYTES",
    NODES + "requests.scanning.SLICE_UNITS": NODES + "requests.scan_scheduler.SLICE_UNITS",
    NODES + "requests.scanning.TURN_BYTES": NODES + "requests.scan_scheduler.TURN_BYTES",
    NODES + "requests.scanning.TURN_UNITS": NODES + "requests.scan_scheduler.TURN_UNITS",
    NODES + "requests.sieves.OPENED_BYTES": NODES + "replica.pull_filter.OPENED_BYTES",
    NODES + "requests.sieves.OPENED_MESSAGES": NODES + "replica.pull_filter.OPENED_MESSAGES",
    NODES + "requests.sieves.PULL_UNITS": NODES + "replica.pull_filter.PULL_UNITS",
    NODES + "subscriptions.dispatch_shelf.SHELF_BYTES": NODES
    + "subscriptions.entry_source.MAX_CACHE_BYTES",
    NODES + "subscriptions.dispatch_keys.READ_BATCHES": NODES
    + "subscriptions.key_shared_dispatcher.READ_BATCHES",
    NODES + "subscriptions.dispatch_keys.READ_BYTES": NODES
    + "subscriptions.key_shared_dispatcher.READ_BYTES",
    NODES + "subscriptions.source.CONTROLS": NODES + "subscriptions.entry_source.CONTROLS",
    NODES + "transactions.deciding_reports.AT_ONCE": NODES
    + "transactions.decision_reports.AT_ONCE",
    NODES + "transactions.deciding_reports.UNDER_WAY": NODES
    + "transactions.decision_reports.UNDER_WAY",
    NODES + "transactions.halves.ASKED_AT_ONCE": NODES
    + "transactions.half_message_handlers.ASKED_AT_ONCE",
    NODES + "transactions.halves.BYTES_AT_ONCE": NODES
    + "transactions.half_message_handlers.BYTES_AT_ONCE",
    NODES + "transactions.orphans.ASKED_AT_ONCE": NODES
    + "transactions.orphan_aborter.ASKED_AT_ONCE",
    NODES + "transactions.orphans.LOOKED_AT": NODES + "transactions.orphan_aborter.LOOKED_AT",
    NODES + "upkeep.SHARE": NODES + "maintenance.SHARE",
    METADATA + "duties.rebalance.MAX_MOVES": METADATA + "duties.leader_balancer.MAX_MOVES",
    METADATA + "groups.targets.MAX_PER_TURN": METADATA + "groups.group_targets.MAX_PER_TURN",
    METADATA + "transactions.transactions.ENDED_AT_ONCE": METADATA
    + "tables.transaction_table.ENDED_AT_ONCE",
    CLIENT + "cluster.proposals.WINDOW": CLIENT + "cluster.proposal_sender.WINDOW",
    CLIENT + "groups.committing.MAX_ROUND_BYTES": CLIENT
    + "groups.offset_committer.MAX_ROUND_BYTES",
    CLIENT + "reading.inbox.PULL_BYTES": CLIENT + "fetch.fetch_buffer.PULL_BYTES",
    CLIENT + "reading.message_flows.PULL_BYTES": CLIENT + "fetch.message_flows.PULL_BYTES",
    CLIENT + "sending.send_buffer.MAX_PILE_COUNT": CLIENT + "send.send_buffer.MAX_BATCH_COUNT",
    CLIENT + "sending.sending.MAX_FLYING": CLIENT + "send.queue_sender.MAX_IN_FLIGHT",
    CLIENT + "subscriptions.subscriber.WINDOW_BYTES": CLIENT
    + "subscriptions.subscriber_state.WINDOW_BYTES",
    NODES + "replication.isr.ROOM": NODES + "replication.isr_keeper.MAX_REQUEST_BYTES",
    CLIENT + "groups.copies.MOST": CLIENT + "retry_publisher.MAX_COPIES_AT_ONCE",
    "tests.sim.api_client.BATCH_BYTES": "tests.sim.cast.api_client.BATCH_BYTES",
    "tests.sim.api_client.SHARE_BYTES": "tests.sim.cast.api_client.SHARE_BYTES",
    "tests.sim.process.TURN_EVENTS": "tests.sim.world.process.TURN_EVENTS",
    NODES + "subscriptions.settlement_queue.PEER_UNITS": NODES
    + "requests.long_requests.PEER_UNITS",
}
"""Where a constant is now, if not where it was: its dice keep the name, so that seeds stay what they
were."""


class Limits:
    """What a run is limited to."""

    def __init__(self, seed: int) -> None:
        share = random.Random(f"limits of {seed}").choice(SHARES)

        def small(choices: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
            dice = {name: random.Random(f"limit {name} of {seed}") for name in choices}
            return {
                name: dice[name].choice(values)
                for name, values in choices.items()
                if dice[name].random() < share
            }

        self.settings: Mapping[str, int] = small(BROKER)
        self.raft: Mapping[str, int] = small(RAFT)
        self.constants: Mapping[str, int] = small(CONSTANTS)

    def broker(self, config: BrokerConfig) -> BrokerConfig:
        """A broker's settings within these limits."""
        settings: dict[str, Any] = dict(self.settings)
        return msgspec.structs.replace(config, **settings)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """All modules are limited so until the block ends."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.constants.items():
                patch.setattr(MOVED.get(name, name), value)
            yield

    def __str__(self) -> str:
        both = {**self.settings, **self.raft, **self.constants}
        return ", ".join(f"{name.rpartition('logboom.')[2]}={both[name]}" for name in both)
