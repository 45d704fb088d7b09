"""Processes that go by one consumer's name, at leaders that know nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.subscriptions.active_subscription import ConsumerSession

QUEUES = 3
PROCESSES = 3


@dataclass
class Process:
    """A client, as it attaches to all queues."""

    owner: int
    opened: bool = False
    ended: bool = False
    attached: set[int] = field(default_factory=set)
    """As it believes."""


class Contest:
    """The leaders of all queues, and who goes by the name."""

    def __init__(self, owners: list[int]) -> None:
        self.leaders: dict[int, ConsumerSession] = {}
        self.processes = [Process(owner) for owner in owners]
        self.moves = 0

    def attach(self, process: Process, queue: int) -> None:
        """Subscribe in a queue; whoever had all queues and is refused, or cut off, ends."""
        if process.ended:
            return
        held = self.leaders.get(queue)
        if held is not None and held.is_foreign_to("", process.owner):
            if not held.yields_to("", process.owner, again=process.opened):
                if process.opened:
                    self.end(process)
                return
            self.moves += 1
            (loser,) = (each for each in self.processes if each.owner == held.owner)
            if loser.opened:
                self.end(loser)
        self.leaders[queue] = ConsumerSession(1, 0.0, process.owner, settled=process.opened)
        process.attached.add(queue)
        if not process.opened and len(process.attached) == QUEUES:
            process.opened = True
            for session in self.leaders.values():
                # Its Receives; where another one was first, it attaches anew.
                session.settled = session.settled or session.owner == process.owner

    def end(self, process: Process) -> None:
        """A process lets go of all queues."""
        process.ended = True
        for queue in [q for q, held in self.leaders.items() if held.owner == process.owner]:
            del self.leaders[queue]

    def lapse(self, queue: int) -> None:
        """The leader changes, or has not heard of who is attached."""
        self.leaders.pop(queue, None)


STEPS = st.lists(
    st.tuples(st.integers(0, PROCESSES), st.integers(0, QUEUES - 1)), min_size=1, max_size=60
)


@given(STEPS, st.permutations([3, 5, 9]))
def test_one_process_stays_and_the_contest_ends(
    steps: list[tuple[int, int]], owners: list[int]
) -> None:
    contest = Contest(owners)
    for who, queue in steps:
        if who == PROCESSES:
            contest.lapse(queue)
        else:
            contest.attach(contest.processes[who], queue)
    # Nothing happens to the leaders any more, and everybody tries again and again.
    for _ in range(10):
        before = contest.moves
        for process in contest.processes:
            for queue in range(QUEUES):
                contest.attach(process, queue)
    assert contest.moves == before
    (owner,) = {held.owner for held in contest.leaders.values()}
    assert len(contest.leaders) == QUEUES
    stays = [each.owner for each in contest.processes if each.opened and not each.ended]
    assert stays == [owner]
