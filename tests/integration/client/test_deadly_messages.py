"""A message that ends the process of whoever handles it: counted, and given up in the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from logboom.client import connect
from logboom.deploy import embedded

PROGRAM = """
import os, sys
from logboom.client import connect

with connect(sys.argv[1]) as boom, boom.consumer(
    "orders", group="billing", start="first", session_ms=5_000, heartbeat_ms=500, max_attempts=3,
    subscription="replace",
) as consumer:
    while True:
        for message in consumer.poll(max_messages=50, timeout_s=0.5):
            with open(sys.argv[2], "a") as log:
                log.write(f"{message.offset} {message.attempt}\\n")
            if message.value == b"deadly":
                os._exit(3)
            consumer.ack(message)
            if message.value == b"last":
                consumer.commit(sync=True)
                sys.exit(0)
"""


def test_after_max_attempts_it_is_a_dead_letter(tmp_path: Path) -> None:
    log = tmp_path / "seen"
    with embedded() as node, connect(node.endpoints, create_topics=True) as boom:
        boom.admin.create_topic("orders", queues=1)
        values = [b"deadly" if number == 20 else b"%d" % number for number in range(40)]
        with boom.producer() as producer:
            producer.send_many("orders", [*values, b"last"]).result()
        command = [sys.executable, "-c", PROGRAM, node.endpoints[0], str(log)]
        ends = 0
        while subprocess.run(command, check=False).returncode == 3:
            ends += 1
            assert ends < 12, "it is given up in the end"
        seen = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
        tries = [attempt for offset, attempt in seen if offset == 20]
        assert (tries[0], tries[-1]) == (1, 3)
        assert tries == sorted(tries)
        assert {offset for offset, _ in seen} == set(range(41)), "all others are handled"
        (dead,) = boom.pull("%DLQ%billing", 0, 0).messages
        assert dead.value == b"deadly"
        assert dead.headers is not None
        assert dead.headers["boom-attempt"] == b"3"
        assert dead.headers["boom-cause"] == (
            b"its consumer's process ended 3 times with this message, without leaving group 'billing'"
        )
        assert boom.admin.committed("billing", "orders") == {0: 41}
