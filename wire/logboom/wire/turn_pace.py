"""How many messages a turn of a node takes: fewer after turns that lasted.

No bound of requests says what many of them cost together. Connections take turns with their
messages, so whoever sends a cheap request beside many costly ones waits for a short turn or two.
"""

from __future__ import annotations

from typing import Final

LONG_S: Final = 0.02
"""Processor time of a turn after which the next takes half as many messages."""
SHORT_S: Final = 0.01
"""Processor time of a turn after which the next may take twice as many."""
LEAST: Final = 8
"""Messages that any turn may take: a turn may last by itself, whatever its messages cost."""


class TurnPace:
    """The number of messages of the next turn."""

    def __init__(self, most: int) -> None:
        """Begin with the most messages of a turn."""
        self._most = most
        self.messages = most

    def took(self, messages: int, spent_s: float) -> None:
        """Note how many messages the last turn had, and the processor time that it took."""
        if spent_s > LONG_S:
            self.messages = max(LEAST, min(messages, self.messages) // 2)
        elif spent_s < SHORT_S or messages < self.messages:
            self.messages = min(self._most, 2 * self.messages)
