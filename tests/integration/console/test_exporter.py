"""The exporter at a real cluster: what it shows is what clients did, and it outlives the cluster."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics import parser

from logboom.client import Client, connect
from logboom.client.aio import connect as connect_aio
from logboom.console.exporter.cluster_sampler import ClusterExporter
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import InvalidRequest
from logboom.wire.metric_table import METRICS, PREFIX
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until
from tests.promtool import needs_promtool
from tests.unit.wire.tls_pairs import FIRST, RENEWED, der, put_pair, trusting

parse_text: Any = parser.text_string_to_metric_families
ACCEPT = "application/openmetrics-text; version=1.0.0"
Values = dict[str, float]


def values_of(text: str) -> Values:
    """Series as `name{label=value,…}` → value; what the table does not have fails."""
    found: Values = {}
    for family in parse_text(text):
        for sample in family.samples:
            described = METRICS[sample.name.removeprefix(PREFIX)]
            assert set(sample.labels) == set(described.labels)
            labels = ",".join(f"{name}={sample.labels[name]}" for name in described.labels)
            found[f"{sample.name.removeprefix(PREFIX)}{{{labels}}}"] = sample.value
    return found


@contextmanager
def running(*arguments: str) -> Iterator[str]:
    """The command `logboom exporter` on a free port; its URL. Ctrl-C ends it."""
    command = [sys.executable, "-m", "logboom", "exporter", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert re.match(r"metrics at https?://127\.0\.0\.1:", line), line
            yield line.split()[2].rstrip(";")
            process.send_signal(signal.SIGINT)
            assert process.wait(200) in (0, 130)
        finally:
            process.kill()


def scrape(url: str, accept: str = ACCEPT) -> str:
    request = urllib.request.Request(url, headers={"accept": accept})
    context = trusting() if url.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        text: str = answer.read().decode()
    return text


def consume(boom: Client, group: str, count: int) -> None:
    """Let a group finish so many messages of "orders", and leave."""
    with boom.consumer(["orders"], group=group, start="first") as consumer:
        taken = 0
        while taken < count:
            for message in consumer.poll(count - taken, 10.0):
                consumer.ack(message)
                taken += 1
        consumer.commit()


def test_it_is_encrypted_and_a_renewed_certificate_needs_no_restart(
    node: Embedded, tmp_path: Path
) -> None:
    cert, key = map(str, put_pair(tmp_path))
    options = ("--tls-cert", cert, "--tls-key", key, "-s", ",".join(node.endpoints))
    with running(*options) as url:
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        end = place.hostname, place.port

        def shows(certificate: Path) -> bool:
            shown = ssl.get_server_certificate(end)
            return ssl.PEM_cert_to_DER_cert(shown) == der(certificate)

        assert shows(FIRST)
        put_pair(tmp_path, RENEWED)
        wait_until(lambda: shows(RENEWED), "the old certificate is shown")
        assert "logboom_exporter_errors_total" in scrape(url)
    done = logboom("exporter", "--tls-cert", cert, "-s", ",".join(node.endpoints))
    assert (done.code, "belong together" in done.err) == (1, True)


def test_what_is_shown_is_what_clients_did(node: Embedded, boom: Client) -> None:
    boom.admin.create_topic("orders", queues=2)
    with boom.producer() as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number).result(60)
    consume(boom, "billing", 5)
    with boom.subscribe("orders", subscription="audit", type="shared", start="first") as subscriber:
        held = subscriber.poll(3, 200.0)
        assert held
        with running("--queues", "-s", ",".join(node.endpoints)) as url:

            def whole() -> bool:
                # A member that leaves is there a little longer.
                found = values_of(scrape(url))
                return (
                    found.get("group_members{group=billing}") == 0
                    and "group_lag_seconds{group=billing,topic=orders}" in found
                    and "subscription_members{subscription=audit,topic=orders}" in found
                )

            wait_until(whole, "not all is shown")
            shown = values_of(scrape(url))
            assert scrape(url.removesuffix("metrics")).startswith("<!doctype html>")
            plain = scrape(url, "")
    described = boom.admin.describe_group("billing")
    lag = sum(each.lag or 0 for each in described.queues if each.topic == "orders")
    assert shown["group_lag{group=billing,topic=orders}"] == lag == 15
    assert 0 < shown["group_lag_seconds{group=billing,topic=orders}"] < 3_600
    assert shown["group_members{group=billing}"] == 0
    assert shown["subscription_lag{subscription=audit,topic=orders}"] == 20
    assert shown["subscription_members{subscription=audit,topic=orders}"] == 1
    assert shown["subscription_pending{subscription=audit,topic=orders}"] >= len(held)
    ends = boom.admin.offsets("orders")
    for queue, (first, end) in ends.items():
        assert shown[f"queue_start_offset{{topic=orders,queue={queue}}}"] == first
        assert shown[f"queue_end_offset{{topic=orders,queue={queue}}}"] == end
    assert shown["topic_bytes{topic=orders}"] > 0
    assert shown["transactions_open{}"] == 0
    assert shown["series_dropped{}"] == 0
    assert shown["exporter_errors_total{}"] == 0
    told = subprocess.run(
        [needs_promtool(), "check", "metrics"],
        input=plain,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_many_scrapes_ask_the_cluster_once(node: Embedded) -> None:
    async def go() -> None:
        async with connect_aio(node.endpoints) as boom:
            exporter = ClusterExporter(boom, interval_s=600.0, patience_s=200.0)
            assert exporter.sample is None
            await asyncio.gather(*(exporter.metrics() for _ in range(20)))
            first = exporter.sample
            assert first is not None
            await exporter.metrics(ACCEPT)
            assert exporter.sample is first
            quick = ClusterExporter(boom, interval_s=0.01, patience_s=200.0)
            await quick.metrics()
            before = quick.sample
            await asyncio.sleep(0.05)
            await quick.metrics()
            assert quick.sample is not before
            await exporter.aclose()
            await quick.aclose()

    asyncio.run(go())


def test_a_cluster_that_is_gone_is_shown_as_it_was() -> None:
    async def go(node: Embedded) -> None:
        async with connect_aio(node.endpoints) as patient:
            await patient.admin.create_topic("orders")
        # Each question that nobody answers takes so long.
        async with connect_aio(node.endpoints, timeout_s=5.0) as boom:
            exporter = ClusterExporter(boom, interval_s=0.01, patience_s=60.0)
            before: Values = {}
            while "topic_bytes{topic=orders}" not in before:  # its leader has just been elected
                before = values_of((await exporter.metrics(ACCEPT)).text.decode())
                await asyncio.sleep(0.05)
            await asyncio.to_thread(node.close)
            slow = ClusterExporter(boom, patience_s=0.01)
            began = time.monotonic()
            known = values_of((await slow.metrics(ACCEPT)).text.decode())
            assert time.monotonic() - began < 60
            assert set(known) == {
                "exporter_sample_age_seconds{}",
                "exporter_sample_seconds{}",
                "exporter_errors_total{}",
                "series_dropped{}",
            }
            after = values_of((await exporter.metrics(ACCEPT)).text.decode())
            assert after["exporter_errors_total{}"] > 0
            assert after["exporter_sample_age_seconds{}"] > 0
            assert set(before) == set(after)
            assert after["topic_bytes{topic=orders}"] == before["topic_bytes{topic=orders}"]
            await slow.aclose()
            await exporter.aclose()

    with embedded() as node:
        asyncio.run(go(node))


def test_too_many_series_are_left_out_and_named(
    node: Embedded, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        async with connect_aio(node.endpoints) as boom:
            await boom.admin.create_topic("wide", queues=200)
            # Once all of them have a leader that tells them.
            assert len(await boom.admin.offsets("wide")) == 200
            exporter = ClusterExporter(
                boom, queues=True, max_series=300, interval_s=0.01, patience_s=200.0
            )
            with caplog.at_level("WARNING"):
                for _ in range(3):
                    shown = values_of((await exporter.metrics(ACCEPT)).text.decode())
                    await asyncio.sleep(0.02)
            assert shown["series_dropped{}"] >= 200
            assert len(shown) <= 300
            assert not any(name.startswith("queue_start_offset") for name in shown)
            await exporter.aclose()

    asyncio.run(go())
    told = [each.message for each in caplog.records if "queue_start_offset" in each.message]
    assert len(told) == 1
    assert "--max-series" in told[0]


def test_a_user_who_may_only_look_at_some_sees_these(tmp_path: Path) -> None:
    with embedded(secure=True) as node:
        assert node.credentials is not None
        with connect(node.credentials) as boom:
            boom.admin.create_topic("orders")
            boom.admin.create_topic("secret")
        folder = str(tmp_path / "exporter.toml")
        by = ("--credentials", str(node.credentials))
        for command in (
            ("role", "create", "monitoring"),
            ("acl", "add", "role:monitoring", "allow", "describe", "cluster"),
            ("acl", "add", "role:monitoring", "allow", "describe", "topic", "o*"),
            ("acl", "add", "role:monitoring", "allow", "describe", "group", "*"),
            ("acl", "add", "role:monitoring", "allow", "describe", "transaction", "*"),
            ("user", "create", "exporter", "--role", "monitoring", "--file", folder),
        ):
            done = logboom(*command, *by)
            assert done.code == 0, done.err
        with running("--credentials", folder) as url:
            wait_until(lambda: "topic_bytes" in scrape(url), "no topic is shown")
            shown = values_of(scrape(url))
        assert {name for name in shown if name.startswith("topic_bytes")} == {
            "topic_bytes{topic=orders}"
        }
        assert shown["exporter_errors_total{}"] == 0
        assert shown["moves{state=running}"] == 0


def test_bad_options_say_what_to_write(node: Embedded) -> None:
    servers = ",".join(node.endpoints)
    wrong = logboom("exporter", "--listen", "9712", "-s", servers)
    assert "host:port" in wrong.err
    few = logboom("exporter", "--listen", "127.0.0.1:0", "--max-series", "1", "-s", servers)
    assert (few.code, "100 or more" in few.err) == (1, True)
    taken = logboom("exporter", "--listen", node.endpoints[0], "-s", servers)
    assert "--listen" in taken.err
    assert taken.code == 1
    dead = logboom("exporter", "--listen", "127.0.0.1:0", "-s", "127.0.0.1:1")
    assert dead.code == 1


def test_the_scrape_jobs_are_those_of_the_nodes(node: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    done = logboom("generate", "prometheus", "-s", ",".join(node.endpoints), "-o", str(file))
    assert done.code == 0, done.err
    assert "logboom-exporter" in file.read_text()
    given = logboom("generate", "prometheus", "--brokers", "a:1,b:2", "--name-servers", "c:3")
    assert json.dumps("b:2") in given.out.decode()
    assert "logboom-name-servers" in given.out.decode()


def test_files_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    done = logboom("generate", "grafana", "-o", str(tmp_path / "boards"))
    assert done.code == 0, done.err
    assert len(list((tmp_path / "boards").glob("logboom-*.json"))) == 5
    assert logboom("generate", "grafana").code == 1
    one = json.loads(logboom("generate", "grafana", "group").out)
    assert one["title"] == "logboom: group"
    rules = logboom("generate", "alerts", "--runbooks", "https://example.com/r").out.decode()
    assert "https://example.com/r#logboomdiskfull" in rules


def test_arguments_out_of_range_are_refused(node: Embedded) -> None:
    async def go() -> None:
        async with connect_aio(node.endpoints) as boom:
            with pytest.raises(InvalidRequest, match="100 or more"):
                ClusterExporter(boom, max_series=99)
            with pytest.raises(InvalidRequest, match="more than 0"):
                ClusterExporter(boom, interval_s=0)

    asyncio.run(go())
