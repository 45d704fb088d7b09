"""Queue commits per second that are acknowledged, through coordinators and three name servers.

The members speak the wire protocol and read nothing. Each commits all its queues again and again,
one offset further, and reports that it has processed them. A queue commit is one queue's offset in
the log of the name servers, with its own result code.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared, percentile
from bench.idle import cpu_seconds
from bench.references import PYTHON
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import LogboomError, NotLeader, RetryableError
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import (
    GroupAssigned,
    GroupCommit,
    GroupCommitted,
    GroupHeartbeat,
    GroupJoin,
    GroupJoined,
)
from logboom.wire.group_view import GroupConfig

if TYPE_CHECKING:
    from logboom.wire.base import WireMessage
    from logboom.wire.group_view import OwnedQueue
    from logboom.wire.messages import AnyMessage

GROUPS: Final = 6
"""Groups of one member each. Their coordinators are spread over the brokers."""
QUEUES: Final = 500
TOPIC: Final = "commits"
WITHIN_S: Final = 10.0
AGAIN_S: Final = 0.05
COMMITS: Final = 0.043


class WireMember(threading.Thread):
    """The only member of its group, which joins, gets all queues and commits them until `end`."""

    def __init__(self, group: str, endpoint: str) -> None:
        super().__init__(daemon=True)
        self._group = group
        self._endpoint = endpoint
        self._asker = NodeClient()
        self._epoch = 0
        self._owned: list[OwnedQueue] = []
        self._ended = threading.Event()
        self.ready = threading.Event()
        self.committed = 0
        """The number of acknowledged queue commits."""
        self.times_ms: list[float] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run until `end`."""
        try:
            with self._asker:
                self._join()
                self.ready.set()
                offset = 0
                while not self._ended.is_set():
                    offset += 1
                    self._commit(offset)
        except (LogboomError, AssertionError) as error:
            self.failure = error
            self.ready.set()

    def end(self) -> None:
        """Stop and wait.

        Raises:
            LogboomError, AssertionError: an error ended it earlier.
        """
        self._ended.set()
        self.join(2 * WITHIN_S)
        if self.failure is not None:
            raise self.failure

    def _ask(self, message: WireMessage) -> AnyMessage:
        end = time.monotonic() + 3 * WITHIN_S
        while True:
            answer = self._asker.ask({self._endpoint: message}, WITHIN_S)[self._endpoint]
            if not isinstance(answer, LogboomError):
                return answer
            if not isinstance(answer, RetryableError) or time.monotonic() > end:
                raise answer
            elsewhere = answer.fields.get("endpoint")
            if isinstance(answer, NotLeader) and isinstance(elsewhere, str):
                self._endpoint = elsewhere
            # The pace of retries: an error here means that there is no coordinator yet.
            time.sleep(AGAIN_S)

    def _join(self) -> None:
        wait = int(WITHIN_S * 1000)
        config = GroupConfig(session_ms=60_000)
        subscription = {TOPIC: "*"}
        joined = self._ask(
            GroupJoin(0, wait, self._group, "one", "", "", subscription, False, config)
        )
        assert isinstance(joined, GroupJoined), joined
        self._epoch, seen = joined.epoch, -1
        while len(self._owned) < QUEUES:
            beat = GroupHeartbeat(0, wait, self._group, "one", self._epoch, seen, 1_000)
            told = self._ask(beat)
            assert isinstance(told, GroupAssigned), told
            seen = told.version
            self._owned = [each for each in told.queues if told.topics[each.topic_id] == TOPIC]

    def _commit(self, offset: int) -> None:
        queues = [
            QueueCommit(each.topic_id, each.queue, each.owner_epoch, offset, offset)
            for each in self._owned
        ]
        wait = int(WITHIN_S * 1000)
        began = time.monotonic()
        answer = self._ask(GroupCommit(0, wait, self._group, "one", self._epoch, queues))
        self.times_ms.append(1000 * (time.monotonic() - began))
        assert isinstance(answer, GroupCommitted), answer
        assert not any(answer.codes), set(answer.codes)
        self.committed += len(queues)


def rows(seconds: float, rounds: int) -> list[Figure]:
    """Return the median rate of some spans, and the processor time of nodes in another one."""
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic(TOPIC, queues=QUEUES, replicas=1)
        endpoints = [cluster.endpoint(f"broker-{1 + number % 3}") for number in range(GROUPS)]
        members = [WireMember(f"group-{n}", endpoint) for n, endpoint in enumerate(endpoints)]
        for member in members:
            member.start()
        for member in members:
            member.ready.wait(6 * WITHIN_S)
        (rate,) = PYTHON.beside(rounds, lambda _: [_rate(members, seconds)])
        nodes = {name: cluster.pid(name) for name in cluster.nodes}
        before = {name: cpu_seconds(pid) for name, pid in nodes.items()}
        began = time.monotonic()
        # The measured span of processor time.
        time.sleep(seconds)
        took = time.monotonic() - began
        shares = {n: 100 * (cpu_seconds(pid) - before[n]) / took for n, pid in nodes.items()}
        for member in members:
            member.end()
    times = [each for member in members for each in member.times_ms]
    size = f"{GROUPS} groups x {QUEUES} queues"
    return [
        compared(f"queue commits, {size}, 3 name servers", rate, "/s", COMMITS),
        Figure("  … of one request, p50", percentile(times, 0.5), "ms"),
        Figure("  … busiest name server, of a core", _busiest(shares, "name-"), "%"),
        Figure("  … busiest coordinator, of a core", _busiest(shares, "broker-"), "%"),
    ]


def _rate(members: list[WireMember], seconds: float) -> float:
    """Return queue commits per second that all members had acknowledged."""
    before, began = sum(member.committed for member in members), time.monotonic()
    # The measured span.
    time.sleep(seconds)
    committed = sum(member.committed for member in members) - before
    return committed / (time.monotonic() - began)


def _busiest(shares: dict[str, float], prefix: str) -> float:
    return max(share for node, share in shares.items() if node.startswith(prefix))
