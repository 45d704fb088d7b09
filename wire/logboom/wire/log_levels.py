"""The levels of this process's loggers, as the settings of its node want them."""

from __future__ import annotations

import logging
from collections.abc import Mapping


class LogLevels:
    """The levels that were set here. Without one, a logger goes by those above it."""

    def __init__(self) -> None:
        self._levels: Mapping[str, str] = {}

    def follow(self, levels: Mapping[str, str]) -> None:
        """Set these levels by logger name, and take back those that are not among them any more."""
        if levels == self._levels:
            return
        for name in self._levels.keys() - levels.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level.upper())
        self._levels = dict(levels)
