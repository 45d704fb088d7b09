"""Sessions with the other members: a numbered FIFO each, emptied when a new session begins (R10)."""

from __future__ import annotations

from logboom.metadata.raft.raft_frames import ChunkCollector


class _RaftSession:
    """The data that lasts as long as one connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.chunks = ChunkCollector()
        self.hinted_at = float("-inf")


class PeerOutboxes:
    """The outboxes of the peers that are up."""

    def __init__(self) -> None:
        self._up: dict[str, _RaftSession] = {}
        self._outbox: list[tuple[str, bytes]] = []

    def up(self, peer: str, number: int) -> None:
        """Begin a fresh session; nothing of an older one survives."""
        self.down(peer)
        self._up[peer] = _RaftSession(number)

    def down(self, peer: str) -> None:
        """End a session, and drop what was queued for it."""
        if self._up.pop(peer, None) is not None:
            self._outbox = [item for item in self._outbox if item[0] != peer]

    def is_up(self, peer: str, number: int | None = None) -> bool:
        """Return True if the peer has a session, and this one if a number is given."""
        session = self._up.get(peer)
        return session is not None and number in (None, session.number)

    def collector(self, peer: str) -> ChunkCollector:
        """Return the collector of this peer's snapshot chunks."""
        return self._up[peer].chunks

    def may_hint(self, peer: str, now: float, period_s: float) -> bool:
        """Return True if a hint is due: at most one per heartbeat and session (R11)."""
        session = self._up[peer]
        if now - session.hinted_at < period_s:
            return False
        session.hinted_at = now
        return True

    def queue(self, peer: str, frame: bytes) -> bool:
        """Queue a frame; False if the peer is not up."""
        if peer not in self._up:
            return False
        self._outbox.append((peer, frame))
        return True

    def take(self) -> list[tuple[str, bytes]]:
        """Return everything queued, in order, and empty the outboxes."""
        taken, self._outbox = self._outbox, []
        return taken

    def __len__(self) -> int:
        return len(self._up)
