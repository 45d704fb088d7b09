"""The seeds of tests: few for `make test`, the others for `make verify`, and those that once found
something."""

from __future__ import annotations

from typing import Final

SEEDS: Final = range(50)
"""Run by `make verify`."""
FEW: Final = (0, 1, 3, 7, 9, 10, 14, 16, 23, 28)
"""Of these, what `make test` runs; together they meet all that is counted, most of it twice."""
FOUND: Final[dict[int, str]] = {
    100: "a cut did not count: retention by bytes removed more than it may",
    227: "a producer's window went with the batches that retention removed",
    257: "a name server that was down could not hear members that were added meanwhile",
    293: "the same, with one of those as the raft leader",
    10_001_684: "one told by a name server long cut off followed a deposed leader: acked and lost",
    40_003_693: "a name server that joined counted a smaller group than the others",
    50_001_779: "nothing: a topic that had just been deleted was taken to be there by the check",
    90_000_476: "nothing: retention removed something between two looks of the check",
    100_001_806: "nothing: the check gave the only replica of a queue an empty disk",
    140_000_657: "the HW of a log that agreed with the leader's only below its start went back",
    250_000_561: "a clock that was set made name servers forget first results: done twice",
}
"""Seed → what it once broke; all of them run too. (A change of the simulation itself changes what
a seed does: then the note is what remains.)"""
COUNTED: Final = (
    "acked",
    "acked loosely",
    "read",
    "raft elections",
    "queue elections",
    "cuts",
    "ISR changes",
    "snapshots",
    "crashes",
    "crashes after an ack",
    "partitions",
    "pauses",
    "lags",
    "graceful stops",
    "folders of an older format",
    "failed syncs",
    "full disks",
    "damaged logs",
    "replaced disks",
    "idle disks replaced",
    "name servers replaced",
    "operations",
    "queues trimmed",
    "lookups by time",
    "lookups broken off",
    "readers behind retention",
    "ambush: copied",
    "ambush: elected",
    "ambush: isr asked",
    "ambush: isr changed",
    "ambush: registering",
    "ambush: snapshot",
    "fault: lose growth",
    "fault: leave alone",
    "fault: restart unseen",
    "fault: drift",
    "fault: strobe",
    "fault: jump",
)
"""What must have happened at least once over the few: else they prove nothing."""


def seed_range(text: str) -> range:
    """Read what `--seeds` takes: FIRST-LAST, or how many from 0 on."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))
