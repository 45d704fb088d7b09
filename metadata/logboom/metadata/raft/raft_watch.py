"""The events of the Raft group as one of its members sees them: leaderships and lost contact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.wire.actor import Note, note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logboom.metadata.raft.raft_node import RaftNode

CONTACT_S: Final = 5.0
"""Seconds without a leader that are no event: an election takes less."""


def rival_text(name: str) -> str:
    """Return what to do about a second process of a name server."""
    return (
        f"another process is {name}, and answers at its address, and this one has a copy of its data "
        "folder: stop the wrong one; each name server has an id and a folder of its own"
    )


class RaftWatch:
    """Compares what a member saw at the end of its last turn with what it sees now."""

    def __init__(self, node_id: str, now: float) -> None:
        """Begin to look; until now there was no leader."""
        self._id = node_id
        self._led_term = 0
        """Term in which this node leads; 0 if it does not."""
        self._touched_at = now
        """When a leader was heard last."""
        self._lost = False
        self._refused: dict[str, str] = {}
        self._rivals: dict[str, int] = {}

    def refused(self, strangers: Mapping[str, str]) -> list[Note]:
        """Return what has happened to those that came back with another journal (R9)."""
        new = {name for name, journal in strangers.items() if self._refused.get(name) != journal}
        self._refused = dict(strangers)
        return [
            note(
                "raft_member_refused",
                name_server=name,
                text="it has lost its disk, or two run under one id: bring its folder back, or remove "
                f"it with `logboom name-server remove {name}` and add a new one under a new id",
            )
            for name in sorted(new)
        ]

    def rivals(self, rivals: Mapping[str, int]) -> list[Note]:
        """Return which second processes of a name server were refused."""
        new = {name for name, process in rivals.items() if self._rivals.get(name) != process}
        self._rivals = dict(rivals)
        return [
            note("raft_member_refused", name_server=name, text=rival_text(name))
            for name in sorted(new)
        ]

    def look(self, raft: RaftNode, now: float, *, in_touch: bool) -> list[Note]:
        """Return what has happened since the last look; `in_touch`: a leader is heard now."""
        notes: list[Note] = []
        term = raft.term if raft.is_leader else 0
        if term != self._led_term:
            if self._led_term and not term:
                leader = raft.leader if raft.leader != self._id else None
                notes.append(note("raft_leadership_lost", term=self._led_term, leader=leader))
            if term:
                notes.append(note("raft_leader_elected", term=term))
            self._led_term = term
        silent_s = now - self._touched_at
        if in_touch:
            self._touched_at = now
            if self._lost:
                self._lost = False
                leader, seconds = raft.leader, round(silent_s, 1)
                notes.append(
                    note("raft_contact_regained", term=raft.term, leader=leader, seconds=seconds)
                )
        elif silent_s >= CONTACT_S and not self._lost:
            self._lost = True
            text = "without a majority of name servers nothing can be changed: `logboom doctor`"
            notes.append(
                note("raft_contact_lost", term=raft.term, seconds=round(silent_s, 1), text=text)
            )
        return notes
