"""A leader is killed while a producer sends: no error, nothing lost, doubled or out of order."""

from __future__ import annotations

import threading
import time
from itertools import count

from logboom.client import SendFuture, connect
from logboom.deploy import Cluster


def test_a_killed_leader_costs_nothing_but_time() -> None:
    with Cluster(name_servers=1, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("flights", queues=2, replicas=3)
        sent: list[SendFuture] = []
        stop = threading.Event()

        def send() -> None:
            with boom.producer() as producer:
                for n in count():
                    sent.append(producer.send("flights", b"%07d" % n, queue=n % 2))
                    if stop.is_set():
                        return
                    # The pace: about 2,000 a second, so that some are under way at the kill.
                    time.sleep(0.0005)

        sender = threading.Thread(target=send)
        sender.start()
        # Writes as usual for a while before the kill.
        time.sleep(1)
        cluster.kill(cluster.leader("flights", 0))
        began, before = time.monotonic(), len(sent)
        while len(sent) < before + 2:
            # The other thread's list: its next sends come within a millisecond.
            time.sleep(0.001)
        # The first message for queue 0 after the kill tells when writes have resumed.
        sent[before + before % 2].result(200)
        resumed_s = time.monotonic() - began
        # Writes to the new leader for a while after it: what is sent then must be stored too.
        time.sleep(0.5)
        stop.set()
        sender.join(200)
        assert not sender.is_alive()
        results = [future.result(0) for future in sent]
        seen: dict[int, list[bytes | None]] = {0: [], 1: []}
        with boom.consumer("flights") as consumer:
            while sum(map(len, seen.values())) < len(sent):
                messages = consumer.poll(5_000, 200)
                assert messages
                for message in messages:
                    assert message.offset == len(seen[message.queue])
                    seen[message.queue].append(message.value)
            assert consumer.poll(10, 0.5) == []
        for queue in range(2):
            assert seen[queue] == [b"%07d" % n for n in range(queue, len(sent), 2)]
            assert [r.offset for r in results[queue::2]] == list(range(len(seen[queue])))
        # About 4 s; the rest is for a busy machine.
        assert resumed_s < 100
