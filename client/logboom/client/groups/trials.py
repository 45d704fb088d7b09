"""The first messages of a queue whose last owner ended without leaving: one of them may be what ended it.

The first one is handed out alone, and the group is told before, in a commit that does not move the
commit point: so whoever has the queue next knows that its process ended with this message, and how
many did. Of all queues of a member one such message is tried at a time, so that no other is counted
for what one of them did. Those behind it go out in steps, 1, 2, 4 …, each once the last is finished and committed:
wherever the message stands that ends its consumers, the commit point comes at least half as near
with each of them, and soon stands at it. Past all that was there when the queue came, nothing is
different from ever.
"""

from __future__ import annotations

from typing import Final

SAY_S: Final = 5.0
"""Seconds after which a message is handed out although the group could not be told."""
STEP_S: Final = 5.0
"""Seconds that a step is waited for: who finishes many at once would wait for ever, and commits
come as often anyway."""
LARGEST: Final = 1 << 20
"""Messages of the largest step."""


class Trial:
    """What is known of the first message, and which others may be out."""

    __slots__ = (
        "end",
        "ends",
        "given",
        "kept",
        "limit",
        "most",
        "offset",
        "over",
        "said",
        "size",
        "until",
        "wanted",
        "woken",
    )

    def __init__(self, offset: int, kept: int, most: int, *, ended: bool) -> None:
        """`kept`: owners that said they had begun with it; `ended`: the last one ended without
        leaving, whether it had begun or not."""
        self.offset = offset
        """The commit point when the queue came."""
        self.kept = kept
        self.ends = max(kept, int(ended))
        """Processes that are taken to have ended with it."""
        self.most = most
        """The group's `max_attempts`."""
        self.over = False
        """So many have that it is a dead letter."""
        self.wanted = False
        """It is here, and the group is to be told."""
        self.said = kept
        """What the group was told last."""
        self.given = False
        """It was handed out."""
        self.until: float | None = None
        """When what it waits for, or what waits for it, is waited for no longer."""
        self.woken = -1
        """The commit point that the core was last asked to tell of."""
        self.size = 1
        self.limit = offset + 1
        """Only what is below may be out."""
        self.end = -1
        """Where the queue ended when its messages began to come; -1: they have not."""

    @property
    def trying(self) -> int:
        """What commits say while the commit point stands there."""
        return self.ends + 1 if self.wanted else self.kept

    @property
    def is_said(self) -> bool:
        """Whether the group knows that the message is about to be handed out."""
        return self.said == self.trying

    def found(self, attempt: int) -> int:
        """The message is here, in this attempt by its own account; which one it really is, or was
        the last."""
        # What nobody said may be chance: an idle queue, a process that never came to read.
        self.over = bool(self.kept) and attempt - 1 + self.kept >= self.most
        return attempt + self.ends - self.over

    def step(self, offset: int, now: float) -> bool:
        """All that was out is committed: more may be, from `offset` on; False: without a limit."""
        self.size *= 2
        self.limit = offset + self.size
        self.until = now + STEP_S
        return self.limit < self.end and self.size < LARGEST

    def cause(self, group: str) -> str:
        """Why it is a dead letter."""
        times = "once" if self.ends == 1 else f"{self.ends} times"
        return f"its consumer's process ended {times} with this message, without leaving group {group!r}"
