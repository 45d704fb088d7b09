"""Apps on a stage: what `logboom.deploy.testing` gives to its users' tests."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.client import App, Context, Message, aio, connect
from logboom.deploy import Cluster
from logboom.deploy.embedded import Embedded, embedded
from logboom.deploy.testing import Stage
from logboom.wire.errors import InvalidRequest, TimedOut, UnknownResource
from tests.thorough import few_of

PATIENCE_S = 200.0
"""Seconds that a stage waits; a busy machine may take some of them."""


class Order(msgspec.Struct):
    """What is ordered."""

    item: str
    price: int = 1


@dataclass
class Receipt:
    """What is paid."""

    item: str


def test_an_app_gets_typed_values_and_publishes_others(node: Embedded) -> None:
    app = App()

    @app.subscriber("orders", group="charging", filter="kind = 'paid'")
    def charge(order: Order, message: Message) -> None:
        app.publish("receipts", Receipt(order.item), key=message.key).result()

    @app.subscriber("receipts", group="filing", batch=10)
    def file(receipts: list[Receipt]) -> None:
        """Nothing to do."""

    with Stage(app, node=node, wait_s=PATIENCE_S) as stage:
        stage.send("orders", Order("ink"), headers={"kind": b"free"})
        sent = stage.send("orders", Order("pen"), key=b"k", headers={"kind": b"paid"})
        ((message, error),) = stage.calls(charge)
        assert isinstance(message, Message)
        assert (message.queue, message.offset, error) == (sent.queue, sent.offset, None)
        assert stage.values("receipts", Receipt, 1) == [Receipt("pen")]
        ((batch, _),) = stage.calls(file)
        assert isinstance(batch, list)
        assert [each.key for each in batch] == [b"k"]
        stage.wait_caught_up("charging")
        stage.wait_caught_up("filing")
        stage.reset()
        stage.send("orders", Order("nib"), headers={"kind": b"paid"})
        assert len(stage.calls(charge)) == 1
        assert stage.dead_letters("charging") == []


def test_what_fails_comes_again_and_then_is_a_dead_letter(node: Embedded) -> None:
    app = App()
    hasty: dict[str, Any] = {
        "max_attempts": 2,
        "retry": "exponential",
        "retry_first_ms": 1,
        "retry_last_ms": 1,
    }

    @app.subscriber("trials", group="trying", **hasty)
    def attempt(order: Order, message: Message, context: Context) -> None:
        assert not context.cancelled
        if message.attempt == 1:
            raise OSError("not now")

    with Stage(app, node=node, wait_s=PATIENCE_S) as stage:
        stage.send("trials", Order("pen"))
        first, second = stage.calls(attempt, 2)
        assert isinstance(first.error, OSError)
        assert second.error is None
        stage.send("trials", "no order")
        (dead,) = stage.dead_letters("trying", 1)
        assert dead.value == b"no order"
        assert dead.headers is not None
        assert b"BadValue" in b" ".join(dead.headers.values())


def test_retries_come_soon_on_a_stage(node: Embedded) -> None:
    app = App()

    @app.subscriber("errands", group="running")
    def run(message: Message) -> None:
        if message.attempt < 4:
            raise OSError("not now")

    with Stage(app, node=node, wait_s=PATIENCE_S) as stage:
        stage.send("errands", b"x")
        calls = stage.calls(run, 4)
        assert [call.error is None for call in calls] == [False, False, False, True]


def test_a_stage_says_what_did_not_come(node: Embedded) -> None:
    app = App()

    @app.subscriber("silent", group="waiting", threads=1)
    def wait(order: Order) -> None:
        """Is never called here."""

    with Stage(app, node=node, topics={"others": 1}, wait_s=0.2) as stage:
        with pytest.raises(TimedOut, match="0 of 1 calls"):
            stage.calls(wait)
        with pytest.raises(TimedOut, match="0 of 3 messages"):
            stage.messages("silent", 3)
        assert stage.messages("others") == []
        with pytest.raises(UnknownResource):
            stage.messages("nowhere")
        with pytest.raises(InvalidRequest, match="no subscriber"):
            stage.calls(len)
        with pytest.raises(InvalidRequest, match="runs already"):
            app.start()
    with pytest.raises(InvalidRequest, match="does not run"):
        app.publish("silent", b"")


def test_an_app_of_coroutines(node: Embedded) -> None:
    app = aio.App(node.endpoints, create_topics=True)
    seen: list[str] = []

    @app.subscriber("letters", group="reading", commit_every_s=0.05)
    async def read(order: Order) -> None:
        await asyncio.sleep(0)
        seen.append(order.item)
        if len(seen) == 2:
            app.stop()

    @app.subscriber("letters", group="skimming")
    def skim(message: Message) -> None:
        """A plain function does as well."""

    async def play() -> None:
        running = asyncio.create_task(app.run())
        with Stage(node=node, wait_s=PATIENCE_S) as stage:
            for item in ("a", "b"):
                await asyncio.to_thread(stage.send, "letters", Order(item))
            await asyncio.wait_for(running, PATIENCE_S)
            await asyncio.to_thread(stage.wait_caught_up, "reading")

    asyncio.run(play())
    assert sorted(seen) == ["a", "b"]


def free_port() -> int:
    """A first port of a node, where nobody listens now. It is below those that the system gives
    away: other tests beside this one take one of these at any moment."""
    while True:
        port = random.SystemRandom().randrange(12_000, 30_000)
        with ExitStack() as stack:
            try:
                for each in (port, port + 10, port + 20):
                    found = stack.enter_context(closing(socket.socket()))
                    found.bind(("127.0.0.1", each))
            except OSError:
                continue
        return port


@pytest.mark.parametrize("number", few_of([signal.SIGTERM, None], [signal.SIGTERM]))
@pytest.mark.parametrize("awaited", [False, True])
def test_an_app_waits_for_its_cluster(
    tmp_path: Path, awaited: bool, number: signal.Signals | None
) -> None:
    port = free_port()
    shop = tmp_path / "shop.py"
    script = SHOP.replace("create_topics=True", "create_topics=True, timeout_s=1.0")
    if awaited:
        script = script.replace("logboom.client", "logboom.client.aio")
        script = script.replace("app.run()", "import asyncio; asyncio.run(app.run())")
    shop.write_text(script)
    command = [sys.executable, "-W", "error", str(shop), f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert running.stdout is not None
        try:
            for _ in range(2):
                assert b"waits for its cluster: no node answered" in running.stderr.readline()
            if number is not None:
                running.send_signal(number)
                assert running.wait(200) == 0
                return
            with embedded(ports=port) as late, connect(late.endpoints, create_topics=True) as boom:
                with boom.producer() as producer:
                    producer.send("parcels", b"late").result()
                line = running.stdout.readline()
                assert line == b"late\n", running.stderr.read()
                running.send_signal(signal.SIGTERM)
                assert running.wait(200) == 0
        finally:
            running.kill()


@pytest.mark.parametrize("awaited", few_of([False, True], [True]))
def test_an_app_waits_for_the_first_broker(tmp_path: Path, awaited: bool) -> None:
    shop = tmp_path / "shop.py"
    script = SHOP
    if awaited:
        script = script.replace("logboom.client", "logboom.client.aio")
        script = script.replace("app.run()", "import asyncio; asyncio.run(app.run())")
    shop.write_text(script)
    with Cluster(name_servers=1, brokers=1) as cluster:
        cluster.stop("broker-1")
        known = ",".join(cluster.name_server_endpoints)
        command = [sys.executable, "-W", "error", str(shop), known]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            try:
                line = running.stderr.readline()
                assert b"waits for its cluster: " in line
                assert b"no broker is" in line
                cluster.start("broker-1")
                brokers = cluster.endpoints
                with connect(brokers, create_topics=True) as boom, boom.producer() as producer:
                    producer.send("parcels", b"late").result()
                assert running.stdout.readline() == b"late\n", running.stderr.read()
                running.send_signal(signal.SIGTERM)
                assert running.wait(200) == 0
            finally:
                running.kill()


SHOP = """
import sys
from logboom.client import App

app = App(sys.argv[1], create_topics=True)

@app.subscriber("parcels", group="sending")
def send(value: bytes) -> None:
    print(value.decode(), flush=True)

app.run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_app_leaves_in_good_order(
    node: Embedded, tmp_path: Path, number: signal.Signals
) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    with Stage(node=node, topics={"parcels": 2}, wait_s=PATIENCE_S) as stage:
        command = [sys.executable, str(shop), ",".join(node.endpoints)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as running:
            assert running.stdout is not None
            stage.send("parcels", number.name)
            assert running.stdout.readline().decode().strip() == number.name
            running.send_signal(number)
            assert running.wait(200) == 0
        stage.wait_caught_up("sending")
        assert stage.client.admin.describe_group("sending").members == []
