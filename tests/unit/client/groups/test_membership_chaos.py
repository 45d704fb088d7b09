"""Members on a network that loses and delays, with a coordinator that gives, takes and fences.

Whatever happens, nothing is committed that was not finished (or another would never read it), and
as long as nobody is fenced and nothing is reset, nothing is handed out twice.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from logboom.client.groups.offset_tracker import decode_ranges
from logboom.client.push.listener_task import ListenerTask
from logboom.client.results import Message
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import GroupHeartbeat
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import AnyMessage, Failure
from tests.thorough import seeds
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill
from tests.unit.client.push.test_push_dispatcher import Push
from tests.unit.client.scripted import BROKERS

QUEUES: Final = 3
STEPS: Final = 300


class Chaos:
    """A cluster that misbehaves by a seed, and what the member was seen to finish."""

    def __init__(self, seed: int, *, violent: bool) -> None:
        self.rng = random.Random(seed)
        self.cluster = GroupCluster(seed, QUEUES)
        self.violent = violent
        self.finished: set[tuple[int, int]] = set()
        self.handed: Counter[tuple[int, int]] = Counter()
        self.next = [0] * QUEUES
        self.checked = 0
        for queue in range(QUEUES):
            self.produce(queue)
            self.cluster.give(queue)

    def begin(self) -> None:
        """From now on the network misbehaves."""
        self.cluster.delay = lambda: self.rng.choice((0.001, 0.001, 0.003, 0.05))
        self.cluster.intercept = self.misbehave

    def misbehave(self, endpoint: str, message: AnyMessage) -> Failure | bool | None:
        chance = self.rng.random()
        if chance < 0.03:
            return self.rng.random() < 0.5
        if chance < 0.06 and not isinstance(message, GroupHeartbeat):
            return Failure(0, "UNAVAILABLE", "not now", retryable=True)
        return None

    def produce(self, queue: int) -> None:
        count = self.rng.randrange(1, 40)
        fill(self.cluster, queue, self.next[queue], count, batch=self.rng.randrange(1, 9))
        self.next[queue] += count

    def disturb(self) -> None:
        """One thing that may happen in a group."""
        cluster, rng = self.cluster, self.rng
        queue = rng.randrange(QUEUES)
        match rng.randrange(8):
            case 0 | 1:
                self.produce(queue)
            case 2 if queue in cluster.owned:
                cluster.revoke(queue, revoking=not cluster.owned[queue].revoking)
            case 3 if queue not in cluster.owned:
                self.give_back(queue)
            case 4:
                cluster.coordinator = rng.choice(BROKERS)
                cluster.coordinator_epoch += 1
            case 5 if self.violent and rng.random() < 0.3:
                cluster.fence()
            case 6 if self.violent and queue in cluster.owned:
                self.give_back(queue)
            case _:
                pass

    def give_back(self, queue: int) -> None:
        """The member gets a queue where the group is in it."""
        known = self.cluster.commits.get(queue)
        if known is None:
            self.cluster.give(queue)
        else:
            self.cluster.give(queue, known.offset, known.ranges)

    def check(self) -> None:
        """Every new commit covers finished messages only."""
        for commit in self.cluster.log_of_commits[self.checked :]:
            self.check_commit(commit)
        self.checked = len(self.cluster.log_of_commits)
        if not self.violent:
            assert max(self.handed.values(), default=1) == 1

    def check_commit(self, commit: QueueCommit) -> None:
        for offset in range(commit.offset):
            assert (commit.queue, offset) in self.finished
        for start, stop in decode_ranges(commit.offset, commit.ranges):
            for offset in range(start, stop):
                assert (commit.queue, offset) in self.finished

    def settle(self) -> None:
        """The end: a calm network, and the member has everything."""
        self.cluster.intercept = lambda *_: None
        for queue in range(QUEUES):
            if queue not in self.cluster.owned:
                self.give_back(queue)
            elif self.cluster.owned[queue].revoking:
                self.cluster.revoke(queue, revoking=False)

    @property
    def all_committed(self) -> bool:
        offsets = {queue: commit.offset for queue, commit in self.cluster.commits.items()}
        return offsets == dict(enumerate(self.next))

    @property
    def everything(self) -> set[tuple[int, int]]:
        return {(queue, n) for queue in range(QUEUES) for n in range(self.next[queue])}


@pytest.mark.parametrize("violent", [False, True])
@pytest.mark.parametrize("seed", seeds(12))
def test_who_acknowledges(seed: int, violent: bool) -> None:
    chaos = Chaos(seed, violent=violent)
    cluster, rng = chaos.cluster, chaos.rng
    reader = Reader(cluster, commit_every_s=1.0)

    def step(share: float) -> None:
        messages = reader.intake.take(rng.randrange(1, 12), cluster.now)
        chaos.handed.update((m.queue, m.offset) for m in messages)
        for message in messages:
            if rng.random() < share:
                chaos.finished.add((message.queue, message.offset))
                reader.intake.ack(message)
            else:
                held.append(message)
        # Never so slow that a drain is given up.
        while held and (rng.random() < 0.4 or len(held) > 12):
            message = held.pop(0 if len(held) > 12 else rng.randrange(len(held)))
            chaos.finished.add((message.queue, message.offset))
            reader.intake.ack(message)

    held = reader.read(0)
    chaos.begin()
    for _ in range(STEPS):
        if rng.random() < 0.15:
            chaos.disturb()
        step(0.7)
        cluster.run(rng.choice((0.01, 0.1, 0.5)))
        chaos.check()
    for _ in range(400):
        chaos.settle()
        step(1.0)
        cluster.run(0.2)
        if chaos.all_committed:
            break
    chaos.check()
    assert chaos.all_committed, sorted(chaos.everything - chaos.finished)[:10]


@pytest.mark.parametrize("violent", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("seed", seeds(8))
def test_who_listens(seed: int, orderly: bool, violent: bool) -> None:
    chaos = Chaos(1_000 + seed, violent=violent)
    cluster, rng = chaos.cluster, chaos.rng

    def listener(message: Message) -> bool:
        place = (message.queue, message.offset)
        if rng.random() < 0.1:
            return False
        chaos.handed[place] += 1
        chaos.finished.add(place)
        return True

    cluster.config_of_group = GroupConfig(
        retry="exponential", retry_first_ms=500, retry_last_ms=1_000
    )
    push = Push(cluster, listener, orderly=orderly)
    works: list[ListenerTask] = []
    chaos.begin()

    def step() -> None:
        if len(works) < 4 and (work := push.take()) is not None:
            works.append(work)
        if works and rng.random() < 0.6:
            work = works.pop(rng.randrange(len(works)))
            push.runner.run(work)
            push.dispatcher.done(work, cluster.now)

    for _ in range(STEPS):
        if rng.random() < 0.15:
            chaos.disturb()
        step()
        cluster.run(rng.choice((0.01, 0.1, 0.5)))
        chaos.check()
    for _ in range(2_000):
        chaos.settle()
        step()
        cluster.run(0.05)
        if chaos.all_committed:
            break
    chaos.check()
    assert chaos.all_committed, sorted(chaos.everything - chaos.finished)[:10]
