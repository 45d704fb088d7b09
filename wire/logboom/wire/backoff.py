"""The pause before a failed request is sent again."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.02
LAST_S: Final = 0.5


def backoff(
    failures: int, rng: random.Random, first_s: float = FIRST_S, last_s: float = LAST_S
) -> float:
    """Return the seconds to wait after a number of failures.

    They begin with `first_s` and double with each failure up to `last_s`, with jitter between one
    half and one and a half.
    """
    delay: float = min(first_s * 2.0 ** min(failures, 10), last_s)
    return delay * (0.5 + rng.random())
