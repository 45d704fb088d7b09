"""The consumers of subscriptions, which come and go while faults strike the cluster."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Final

from logboom.client import connect
from logboom.wire.errors import LogboomError
from tests.chaos import fates
from tests.chaos.ledger import Verdict
from tests.chaos.plan import Plan
from tests.chaos.record import Befell, Writer
from tests.chaos.rig import TOPIC, Rig
from tests.chaos.subscriber import TYPES
from tests.chaos.workers import Worker
from tests.sim.judges.subscription_ledger import UNCONSUMED

EACH: Final = 2
"""Consumers of each subscription."""
REST_S: Final = (1.0, 5.0)
"""Between two things that happen to consumers."""
ASK_S: Final = 5.0
CATCH_UP_S: Final = 120.0
"""A subscription that has not acknowledged everything by then has missed something."""


class Squad:
    """Consumers of a shared and of a key-shared subscription, each in a process of its own."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._rng = random.Random(plan.seed + 2)
        self._numbers = count(1)
        self._consumers: dict[Worker, str] = {}
        """Process → its subscription."""
        self._gone: list[Worker] = []
        self._writer = Writer(plan.records / "squad.jsonl")
        self._stopping = threading.Event()
        self._verdict = Verdict()
        """What is found in our own thread."""
        self._threads = ThreadPoolExecutor(1, "squad")
        self._task: Future[None] | None = None

    def begin(self) -> None:
        """Let all subscribe, and then things happen to them."""
        for kind in TYPES * EACH:
            self._start(kind)
        for consumer in self._consumers:
            consumer.wait_ready()
        self._task = self._threads.submit(self._live)

    def _start(self, kind: str) -> None:
        name = f"{kind.replace('_', '-')}-{next(self._numbers)}"
        words = ["--session-ms", str(self._plan.session_ms), kind]
        self._consumers[Worker(self._plan, self._rig, "subscriber", words, name)] = kind

    def _note(self, consumer: Worker, what: str) -> None:
        self._writer.write(Befell(consumer.name, what, time.monotonic()))

    # -- what happens to consumers ------------------------------------------------------------

    def _live(self) -> None:
        """Everything once, then at random."""
        happenings: list[Callable[[Worker], None]] = [self._kill, self._leave, self._stop_for_long]
        waiting = list(happenings)
        while not self._stopping.wait(self._rng.uniform(*REST_S)):
            consumer = self._rng.choice(list(self._consumers))
            (waiting.pop(0) if waiting else self._rng.choice(happenings))(consumer)

    def _kill(self, consumer: Worker) -> None:
        """kill -9; another comes."""
        consumer.process.kill()
        self._note(consumer, fates.KILLED)
        self._gone.append(consumer)
        self._start(self._consumers.pop(consumer))

    def _leave(self, consumer: Worker) -> None:
        """One leaves in good order, another comes."""
        consumer.tell_to_end()
        consumer.wait(self._verdict)
        self._note(consumer, fates.LEFT)
        self._start(self._consumers.pop(consumer))

    def _stop_for_long(self, consumer: Worker) -> None:
        """SIGSTOP beyond the session: it wakes up believing that it has its messages."""
        consumer.process.send_signal(signal.SIGSTOP)
        self._note(consumer, fates.PAUSED)
        self._stopping.wait(self._plan.session_ms / 1000 + self._rng.uniform(0.5, 3.0))
        self._note(consumer, fates.WOKEN)
        consumer.process.send_signal(signal.SIGCONT)

    # -- the end ------------------------------------------------------------------------------

    def rest(self) -> None:
        """Nothing more happens to consumers."""
        self._stopping.set()
        if self._task is not None:
            self._task.result()

    def finish(self, verdict: Verdict) -> None:
        """Wait until everything is acknowledged, and let all leave; what is wrong goes into
        `verdict`."""
        self.rest()
        for name, details in self._verdict.details.items():
            for detail in details:
                verdict.found(name, detail)
        with connect(self._rig.endpoints, timeout_s=ASK_S) as boom:

            def left() -> dict[str, int]:
                return {
                    f"{name}/{each.queue}": each.state.unacked
                    for name in TYPES
                    for each in boom.admin.subscriptions.describe(TOPIC, name)
                    if each.state.unacked
                }

            told: dict[str, int] = {}

            def done() -> bool:
                try:
                    told.clear()
                    told.update(left())
                except LogboomError:
                    return False  # leaders move once more when all is healed
                return not told

            if not self._rig.wait(done, CATCH_UP_S * self._plan.busy):
                verdict.found(UNCONSUMED, f"not acknowledged: {told}")
        for consumer in self._consumers:
            consumer.tell_to_end()
        for consumer in self._consumers:
            consumer.wait(verdict)
        self._consumers.clear()

    def kill(self) -> None:
        """End whoever still runs."""
        self._stopping.set()
        self._threads.shutdown()
        for consumer in [*self._consumers, *self._gone]:
            consumer.kill()
        self._writer.close()
