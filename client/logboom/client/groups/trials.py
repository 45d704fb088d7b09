"""Trials of messages that may have crashed their consumer.

If the last owner of a queue ended without leaving, one of the queue's first messages may be the
cause. The first one is handed out alone, and the group is told before, in a commit that does not
move the commit point. The next owner then knows that the process ended with this message, and how
many did. Only one queue of a member tries a message at a time, so that no other message is blamed
for it.

The messages behind it are handed out in steps of 1, 2, 4 …, each after the last step is finished
and committed. Wherever the harmful message is, the distance between it and the commit point at
least halves with each owner, and the commit point soon reaches it. Beyond the messages that existed
when the queue was assigned, nothing is different.
"""

from __future__ import annotations

from typing import Final

SAY_S: Final = 5.0
"""Seconds after which a message is handed out even if the group could not be told."""
STEP_S: Final = 5.0
"""Seconds for which a step is awaited. An application that finishes many messages at once would
otherwise wait for ever, and commits are at least as frequent."""
LARGEST: Final = 1 << 20
"""Messages of the largest step."""


class Trial:
    """The trial of a queue's first message, and the limit of what may be handed out behind it."""

    __slots__ = (
        "end",
        "ends",
        "given",
        "in_doubt",
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
        """Start a trial.

        Args:
            offset: the commit point when the queue was assigned.
            kept: number of owners that reported that they had started the message.
            most: the group's `max_attempts`.
            ended: True if the last owner ended without leaving, whether it had started or not.
        """
        self.offset = offset
        """The commit point when the queue was assigned."""
        self.kept = kept
        self.ends = max(kept, int(ended))
        """Number of processes that are taken to have ended with the message."""
        self.most = most
        """The group's `max_attempts`."""
        self.over = False
        """True if so many processes have ended that the message is a dead letter."""
        self.wanted = False
        """True if the message has arrived and the group has to be told."""
        self.said = kept
        """What the group is known to have been told last."""
        self.in_doubt = False
        """True if it may have been told something else since, and nothing newer is known."""
        self.given = False
        """True once the message was handed out."""
        self.until: float | None = None
        """Time after which neither side of the trial is awaited any longer."""
        self.woken = -1
        """The commit point that the core was last asked to report."""
        self.size = 1
        self.limit = offset + 1
        """Only messages below this offset may be out."""
        self.end = -1
        """The end of the queue when its messages began to arrive; -1: none has."""

    @property
    def trying(self) -> int:
        """The count that commits carry while the commit point stays at the message."""
        return self.ends + 1 if self.wanted else self.kept

    @property
    def is_said(self) -> bool:
        """True if the group knows that the message is about to be handed out."""
        return self.said == self.trying

    def found(self, attempt: int) -> int:
        """Note that the message has arrived; return its actual attempt.

        Args:
            attempt: the attempt that the message itself shows.
        """
        # A silent end may be chance: an idle queue, or a process that never came to read.
        self.over = bool(self.kept) and attempt - 1 + self.kept >= self.most
        return attempt + self.ends - self.over

    def step(self, offset: int, now: float) -> bool:
        """Allow more messages from `offset` on, once all that were out are committed.

        Returns False if there is no limit any longer.
        """
        self.size *= 2
        self.limit = offset + self.size
        self.until = now + STEP_S
        return self.limit < self.end and self.size < LARGEST

    def cause(self, group: str) -> str:
        """Explain why the message is a dead letter."""
        times = "once" if self.ends == 1 else f"{self.ends} times"
        return f"its consumer's process ended {times} with this message, without leaving group {group!r}"
