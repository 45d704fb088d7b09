"""The members of a consumer group, which come and go while faults strike the cluster."""

from __future__ import annotations

import random
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Final

from logboom.client import Client, connect
from logboom.wire.errors import LogboomError, RetryableError
from tests.chaos import fates
from tests.chaos.group_ledger import unmended
from tests.chaos.group_member import GROUP, KINDS
from tests.chaos.ledger import Verdict
from tests.chaos.payload import parse
from tests.chaos.plan import Plan
from tests.chaos.record import RETRIES, Committed, Consumed, Dead, Fate, Writer, load
from tests.chaos.rig import TOPIC, Rig
from tests.chaos.workers import Worker
from tests.sim.judges.group_ledger import UNCONSUMED
from tests.sim.judges.logs import Stream

RETRY_TOPIC: Final = f"%RETRY%{GROUP}"
DEAD_TOPIC: Final = f"%DLQ%{GROUP}"
STATIC: Final = "static"
"""The one member that has a name of its own, which it keeps over restarts."""
LOOK_S: Final = 0.5
"""Between two looks at the committed offsets."""
REST_S: Final = (0.5, 4.0)
"""Between two things that happen to members."""
ASK_S: Final = 5.0
CATCH_UP_S: Final = 120.0
"""A group that is not at the end by then has missed something."""
REPLACED: Final = 0.7
"""How often a static member that was stopped has a successor when it goes on."""


def is_static(member: Worker) -> bool:
    """Whether a member has the name that outlives processes."""
    return member.name.startswith(STATIC)


class Crew:
    """Members of one group, each in a process of its own, and what befalls them."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._rng = random.Random(plan.seed + 1)
        self._numbers = count(1)
        self._members: list[Worker] = []
        self._gone: list[Worker] = []
        """Killed, and to be forgotten."""
        self._writer = Writer(plan.records / "crew.jsonl")
        self._writing = threading.Lock()
        self._stopping = threading.Event()
        self._dead: set[tuple[Stream, int]] = set()
        """Messages among the dead letters."""
        self._dead_to = 0
        """So far the dead letters were read."""
        self._verdict = Verdict()
        """What is found in our own thread."""
        self._threads = ThreadPoolExecutor(2, "crew")
        self._tasks: list[Future[None]] = []

    def begin(self) -> None:
        """Let all join, and then things happen to them."""
        self._start(STATIC)
        for _ in range(self._plan.members - 1):
            self._start()
        for member in self._members:
            member.wait_ready()
        self._tasks = [self._threads.submit(work) for work in (self._live, self._watch)]

    def _start(self, instance: str = "") -> None:
        number = next(self._numbers)
        name = f"{instance}.{number}" if instance else f"member-{number}"
        words = ["--session-ms", str(self._plan.session_ms), "--instance", instance]
        kind = KINDS[number % len(KINDS)]
        member = Worker(self._plan, self._rig, "group_member", [*words, kind], name)
        self._members.append(member)

    def _note(self, member: Worker, what: str) -> None:
        with self._writing:
            self._writer.write(Fate(member.name, what, time.monotonic()))

    # -- what happens to members --------------------------------------------------------------

    def _live(self) -> None:
        """Everything once, then at random."""
        happenings = [self._kill, self._leave, self._stop_for_long, self._restart_all, self._vary]
        waiting = list(happenings)
        while not self._rest(*REST_S):
            (waiting.pop(0) if waiting else self._rng.choice(happenings))()

    def _rest(self, least: float, most: float) -> bool:
        """Wait; True if the end has come."""
        return self._stopping.wait(self._rng.uniform(least, most))

    def _kill(self) -> None:
        """kill -9; another takes its place, at once or after a while."""
        member = self._rng.choice(self._members)
        member.process.kill()
        self._note(member, fates.KILLED)
        self._members.remove(member)
        self._gone.append(member)
        # In most cases a static member is back before its session is over.
        if self._rng.random() < 0.5:
            self._rest(0.0, 3.0)
        self._succeed(member)

    def _leave(self) -> None:
        """One leaves in good order, another comes."""
        member = self._rng.choice(self._members)
        member.tell_to_end()
        member.wait(self._verdict)
        self._members.remove(member)
        self._succeed(member)

    def _succeed(self, member: Worker) -> None:
        self._start(STATIC if is_static(member) else "")

    def _stop_for_long(self) -> None:
        """SIGSTOP beyond the session: it wakes up believing that it has its queues."""
        member = self._rng.choice(self._members)
        replaced = is_static(member) and self._rng.random() < REPLACED
        if replaced:
            # Stopped on its way into the group it would come later than its successor, and replace it.
            member.wait_ready()
        member.process.send_signal(signal.SIGSTOP)
        self._note(member, fates.PAUSED)
        session = self._plan.session_ms / 1000
        first = self._rng.uniform(0.2, session)
        self._rest(first, first)
        if replaced:
            self._start(STATIC)
        self._rest(session - first + 0.5, session - first + 3.0)
        self._note(member, fates.WOKEN)
        member.process.send_signal(signal.SIGCONT)
        if replaced:
            # It finds that its name is another's, and ends by itself.
            self._members.remove(member)
            member.wait(self._verdict)

    def _restart_all(self) -> None:
        """A rolling restart, as for a new version."""
        for member in list(self._members):
            if self._stopping.is_set():
                return
            member.tell_to_end()
            member.wait(self._verdict)
            self._members.remove(member)
            self._succeed(member)
            self._rest(0.0, 0.5)

    def _vary(self) -> None:
        """One more, or one less."""
        if len(self._members) <= self._plan.members:
            self._start()
            return
        member = next(member for member in self._members if not is_static(member))
        member.tell_to_end()
        member.wait(self._verdict)
        self._members.remove(member)

    # -- what the name servers say ------------------------------------------------------------

    def _watch(self) -> None:
        with connect(self._rig.endpoints, timeout_s=ASK_S) as boom:
            while not self._stopping.wait(LOOK_S):
                self._look(boom)

    def _look(self, boom: Client) -> dict[int, int]:
        """The committed offsets; {} if nobody answers."""
        try:
            told = boom.admin.committed(GROUP, TOPIC)
            copies = boom.admin.committed(GROUP, RETRY_TOPIC)
        except LogboomError:
            return {}  # as long as faults are in force
        offsets = {queue: offset or 0 for queue, offset in told.items()}
        # One queue; and none before anything failed.
        offsets[RETRIES] = copies.get(0) or 0
        now = time.monotonic()
        with self._writing:
            for queue, offset in offsets.items():
                self._writer.write(Committed(queue, offset, now))
        return offsets

    # -- the end ------------------------------------------------------------------------------

    def rest(self) -> None:
        """Nothing more happens to members; whoever was stopped goes on."""
        self._stopping.set()
        for task in self._tasks:
            task.result()
        self._tasks.clear()

    def finish(self, ends: dict[int, int], verdict: Verdict) -> None:
        """Wait until the group has consumed everything, and let all leave.

        Args:
            ends: queue → offset after its last message.
            verdict: what is wrong goes in there.
        """
        self.rest()
        for name, details in self._verdict.details.items():
            for detail in details:
                verdict.found(name, detail)
        with connect(self._rig.endpoints, timeout_s=ASK_S) as boom:
            if not self._rig.wait(
                lambda: self._caught_up(boom, ends), CATCH_UP_S * self._plan.busy
            ):
                verdict.found(UNCONSUMED, f"at {self._look(boom)} of {ends}")
            for member in self._members:
                member.tell_to_end()
            for member in self._members:
                member.wait(verdict)
            self._look(boom)
        self._members.clear()

    def _caught_up(self, boom: Client, ends: dict[int, int]) -> bool:
        """Whether everything is committed, and all that failed was done by somebody at last."""
        if {queue: at for queue, at in self._look(boom).items() if queue != RETRIES} != ends:
            return False
        try:
            self._read_dead(boom)
            records = load(self._plan.records)
            given = [record for record in records if isinstance(record, Consumed)]
            if unmended(given, self._dead):
                return False
            end = boom.admin.offsets(RETRY_TOPIC)[0][1]
        except RetryableError:
            return False
        return self._look(boom).get(RETRIES) == end

    def _read_dead(self, boom: Client) -> None:
        """Write down what has come to the dead letters since."""
        while True:
            found = boom.pull(DEAD_TOPIC, 0, self._dead_to, 500)
            for message in found.messages:
                stream, number = parse(message.value or b"")
                with self._writing:
                    self._writer.write(Dead(*stream, number, time.monotonic()))
                self._dead.add((stream, number))
            if found.next_offset <= self._dead_to:
                return
            self._dead_to = found.next_offset

    def kill(self) -> None:
        """End whoever still runs."""
        self._stopping.set()
        for member in [*self._members, *self._gone]:
            member.kill()
        self._threads.shutdown()
        for member in self._members:
            member.kill()
        self._writer.close()
