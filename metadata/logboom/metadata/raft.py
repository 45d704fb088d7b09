"""The raft node: PySyncObj 0.3.17 wrapped so that it keeps what it commits (SAFETY R1-R13).

Bytes in, effects out: no socket, disk, clock, thread or randomness of its own. The skin's turn is

    for each frame:            node.receive(peer, frame, session)
    for each client command:   node.submit(command, on_result)      # leader only
    node.tick(now)                                                  # elections, commits, applies
    node.sync()                                                     # one fsync; then on_result calls
    for peer, frame in node.take_outbox(): send                     # never before sync (R8)

and it sleeps until `node.deadline` or until a frame or a command arrives. After a tick that
leaves `deadline <= now`, take another turn at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from logboom.metadata.raft_config import RaftConfig, SubmitOutcome

if TYPE_CHECKING:
    import random

    from logboom.metadata.journal_store import JournalStore

OnResult = Callable[[SubmitOutcome], None]


class RaftNode:
    """One member of the raft group. Not thread-safe: one loop owns it.

    Any `RaftError` raised out of a method is final: the process must stop (R9).
    """

    def __init__(
        self,
        node_id: str,
        members: Iterable[str],
        disk: JournalStore,
        *,
        apply: Callable[[bytes], bytes],
        snapshot: Callable[[], bytes],
        restore: Callable[[bytes], None],
        clock: Callable[[], float],
        rng: random.Random,
        config: RaftConfig | None = None,
    ) -> None:
        """Open the journal and restore the newest snapshot; committed entries follow at `tick`.

        Args:
            node_id: this member's raft id.
            members: raft ids of the founding members. A node that is not among them joins: it
                follows, but neither stands nor counts until `add_member` reached it. Once the
                log or a snapshot knows the membership, that knowledge wins.
            disk: its journal; raises `JournalError` from here if it is damaged (R9).
            apply: applies one command; deterministic and never raises. While it runs,
                `applying_index` and `applying_term` tell the entry.
            snapshot: the whole state, canonical: equal states give equal bytes (hash compare).
            restore: replaces the whole state by a snapshot's.
            clock: monotonic seconds.
            rng: the source of election time-outs.
        """
        raise NotImplementedError

    # -- the turn ---------------------------------------------------------------------------

    def receive(self, peer: str, frame: bytes, session: int | None = None) -> bool:
        """Take one frame of a peer. False: the frame is malformed, restart the session (R1).

        Dropped without a word: frames of another session, of peers not up, of non-members.
        """
        raise NotImplementedError

    def submit(self, command: bytes, on_result: OnResult) -> None:
        """Ask for a command to be committed; leader only, else REFUSED (R13).

        The commands of a turn share one raft entry (R11). `on_result` is called once, out of
        `sync`: APPLIED, REFUSED or UNKNOWN.
        """
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """One PySyncObj tick: elections, commit, apply, ship what was submitted, compaction."""
        raise NotImplementedError

    @property
    def needs_sync(self) -> bool:
        """Whether something journalled waits for its fsync."""
        raise NotImplementedError

    def sync(self) -> None:
        """End the turn: fsync what was journalled, then call every `on_result` that is due."""
        raise NotImplementedError

    def take_outbox(self) -> list[tuple[str, bytes]]:
        """The (peer, frame) pairs to send now, in order. Raises `RaftError` before `sync` (R8)."""
        raise NotImplementedError

    @property
    def deadline(self) -> float:
        """When the next tick is due at the latest, monotonic seconds; at once if <= now."""
        raise NotImplementedError

    # -- peers ------------------------------------------------------------------------------

    def peer_up(self, peer: str, session: int) -> None:
        """A fresh FIFO session with a peer: whatever was queued for it is dropped (R10)."""
        raise NotImplementedError

    def peer_down(self, peer: str) -> None:
        """The session ended, fell silent or lost a frame (R1)."""
        raise NotImplementedError

    # -- membership (R12) -------------------------------------------------------------------

    def add_member(self, node_id: str, on_result: OnResult) -> None:
        """Add one member through the log; REFUSED while another change is not applied."""
        raise NotImplementedError

    def remove_member(self, node_id: str, on_result: OnResult) -> None:
        """Remove one member other than the leader through the log; REFUSED as `add_member`."""
        raise NotImplementedError

    def transfer_leadership(self) -> bool:
        """Ask the most caught-up follower to stand at once; False if none is caught up."""
        raise NotImplementedError

    # -- what is known ----------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """This member's raft id."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Whether this node believes to lead."""
        raise NotImplementedError

    def leads_at(self, now: float) -> bool:
        """Whether it leads and a majority answered appends *sent* in the last leader_fallback_s.

        Grant leases only under this (Q11, R13): a leader that was paused answers False.
        """
        raise NotImplementedError

    @property
    def leader(self) -> str | None:
        """The leader of the current term as far as known."""
        raise NotImplementedError

    @property
    def term(self) -> int:
        """The current raft term."""
        raise NotImplementedError

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        raise NotImplementedError

    @property
    def applied_index(self) -> int:
        """The last entry applied to the state."""
        raise NotImplementedError

    @property
    def applying_index(self) -> int:
        """Index of the entry that `apply` is called for."""
        raise NotImplementedError

    @property
    def applying_term(self) -> int:
        """Term of the entry that `apply` is called for: commands that carry a term compare (R13)."""
        raise NotImplementedError

    @property
    def members(self) -> frozenset[str]:
        """Raft ids of the voting members, the newest membership entry in the log counting (R12)."""
        raise NotImplementedError

    def status(self) -> dict[str, int | float | str]:
        """Flat figures for STATS."""
        raise NotImplementedError

    def close(self) -> None:
        """Sync and close the journal. Idempotent."""
        raise NotImplementedError
