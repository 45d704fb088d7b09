"""A broker is killed, and started again, while pages are open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logboom.client import connect
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.site import ConsoleSettings
from logboom.deploy import Cluster
from tests.integration.console.browsing import open_surfer
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module", autouse=True)
def patience() -> None:
    """Here a console waits no longer than it does for users: a broker that is gone never answers."""


def test_open_pages_tell_of_a_killed_broker_and_go_on(browser: Any, tmp_path: Path) -> None:
    with (
        Cluster(name_servers=1, brokers=2) as cluster,
        connect(cluster.endpoints, timeout_s=60) as boom,
        console_thread(
            ConsoleServer(ConsoleSettings("127.0.0.1", 0), cluster.endpoints, None, tmp_path)
        ) as console,
        open_surfer(browser, console) as overview,
        open_surfer(browser, console) as tail,
        boom.producer() as producer,
    ):
        boom.admin.create_topic("river", queues=2, replicas=2, min_in_sync=1)
        overview.open("/")
        tail.open("/topics/river?live=1")
        for tab in (overview, tail):
            # While nobody leads a queue, some answers are errors.
            tab.allowed += ["503", "404"]
        sent = 0

        def rows() -> int:
            nonlocal sent
            for queue in (0, 1):
                producer.send("river", b"m%d" % sent, queue=queue)
                sent += 1
            tail.page.wait_for_timeout(100)
            return int(tail.page.locator("#rows tr").count())

        def told(text: str) -> bool:
            overview.page.wait_for_timeout(200)
            return text in overview.page.inner_text("#overview")

        wait_until(lambda: rows() > 4, "rows come")
        cluster.kill("broker-2")
        wait_until(lambda: told("node broker-2"), "the overview names the broker")
        assert overview.page.get_by_role("link", name="node broker-2").count() == 1
        before = rows()
        wait_until(lambda: rows() > before + 8, "rows come from the other broker")
        cluster.start("broker-2")
        wait_until(lambda: told("All is well"), "all is well again")
        before = rows()
        wait_until(lambda: rows() > before + 8, "rows still come")
        overview.check()
