"""Reports to the name servers on whether this broker's disk accepts writes.

A full disk is reported at once: other replicas take over the leaderships of this broker and no
longer wait for it. The report is repeated for as long as the disk is full, because it moves only what
others can lead by then: new queues may have been placed on this broker for want of others, or another
replica may have room since. Free space is reported only after it has lasted for a while. Otherwise a
nearly full disk would enter and leave the ISRs several times a second.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.disk.disk_space import SpaceGauge
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.actor import Note, note
from logboom.wire.commands import CommandResult, ReportRoom

ROOM_S: Final = 5.0
"""Seconds for which there must have been free space before it is reported."""
CHECK_S: Final = 0.5
"""Seconds between two checks of the disk. Producers are refused as soon as it is full."""
REPEAT_S: Final = 5.0
"""Seconds after which a full disk is reported again."""
RETRY_S: Final = 5.0
"""Seconds before a refused report is repeated: older name servers do not know it."""


class RoomReports(Service):
    """The reports of one broker."""

    def __init__(
        self, me: str, space: SpaceGauge, registration: Registration, proposals: ProposalQueue
    ) -> None:
        self._me = me
        self._space = space
        self._registration = registration
        self._proposals = proposals
        self._check_at = float("-inf")
        self._was_full = False
        self._since = float("-inf")
        """Time at which the disk became full, or free again."""
        self._reported = False
        """True if the name servers know the disk as full."""
        self._asking = False
        self._retry_at = float("-inf")
        self._repeat_at = float("-inf")

    def registered(self) -> None:
        """Start over after a registration: the name servers now assume free space."""
        self._asking = self._reported = False
        self._retry_at = float("-inf")

    def step(self, turn: BrokerTurn) -> None:
        """Check the disk, report a change, and repeat that the disk is full."""
        if turn.mono >= self._check_at:
            self._check_at = turn.mono + CHECK_S
            full = self._space.check(turn.mono)
            if full != self._was_full:
                self._was_full, self._since = full, turn.mono
                turn.out.notes.append(self._note(full))
        if self._asking or not self._registration.registered or turn.mono < self._retry_at:
            return
        wanted = self._wanted(turn.mono)
        if wanted != self._reported or (self._was_full and turn.mono >= self._repeat_at):
            self._report(wanted, turn)

    def figures(self, now: float) -> Figures:
        """Return how much room the disk has."""
        self._space.check(now)
        return {
            "free_bytes": self._space.free,
            "disk_bytes": self._space.total,
            "reserve_bytes": self._space.reserve,
            "disk_bytes.free": max(0, self._space.free),
            "disk_bytes.used": self._space.total - max(0, self._space.free),
            "disk_bytes.reserve": self._space.reserve,
            "disk_full": int(self._space.full),
        }

    def _wanted(self, now: float) -> bool:
        """Return what the name servers should know."""
        return self._was_full or (self._reported and now < self._since + ROOM_S)

    def _report(self, full: bool, turn: BrokerTurn) -> None:
        self._asking = True
        epoch = self._registration.instance_epoch
        command = ReportRoom(self._me, epoch, full, turn.now.wall_ms)

        def decided(result: CommandResult, later: BrokerTurn) -> None:
            if epoch != self._registration.instance_epoch:
                return
            self._asking = False
            if result.code:
                self._retry_at = later.mono + RETRY_S
            else:
                self._reported = full
                self._repeat_at = later.mono + REPEAT_S

        self._proposals.propose(command, decided, turn)

    def _note(self, full: bool) -> Note:
        free_bytes = max(0, self._space.free)
        if not full:
            return note("disk_has_room", free_bytes=free_bytes)
        then = "what this broker leads moves to replicas that have room, where there are enough"
        text = f"{self._space.refusal().text}; {then}"
        reserve_bytes = self._space.reserve
        return note("disk_full", free_bytes=free_bytes, reserve_bytes=reserve_bytes, text=text)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        report_at = float("inf")
        if self._asking or not self._registration.registered:
            pass
        elif self._reported and not self._was_full:
            report_at = max(self._since + ROOM_S, self._retry_at)
        elif self._was_full and not self._reported:
            report_at = self._retry_at
        elif self._was_full:
            report_at = max(self._repeat_at, self._retry_at)
        return min(self._check_at, report_at)
