"""The web console over 10,000 topics and 2,000 groups, and with ten live tails.

The console is a process of its own. A page is timed at the first visit, when the cluster is asked for
everything, and when its answers are some seconds old, so that they are shown while the cluster is
asked anew; the processor time that the console spends meanwhile is told too, since that does not
depend on what else the machine does. Tails are streams that are read and
thrown away; the reader beside them is a consumer of the same messages.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.request import urlopen

from bench.figures import Figure
from bench.idle import cpu_seconds, resident_mb
from logboom.client import connect
from logboom.console.routes.overview_routes import SHARED_S
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from logboom.client import Client

AT_ONCE: Final = 8
QUEUES: Final = 2
PAGE_S: Final = 0.3
USABLE_S: Final = 1.0
TAILS: Final = 10
RATE_PER_S: Final = 5_000
CORES: Final = 1.0
MEMORY_MB: Final = 300.0
OTHERS: Final = 0.95
START_S: Final = 60.0
"""Seconds that the console, and its streams, have to answer at first."""
CHROMIUM: Final = Path("/usr/bin/chromium")


def rows(topics: int, groups: int, rounds: int, seconds: float) -> list[Figure]:
    """Return the times of pages, and what ten live tails cost."""
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, timeout_s=60) as boom,
    ):
        boom.admin.create_topic("stream", queues=4)
        figures = _tails(boom, cluster.endpoints, seconds)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda n: boom.admin.create_topic(f"t{n:05}", QUEUES, 1), range(topics)))
            list(
                pool.map(
                    lambda n: boom.admin.alter_group(
                        f"g{n:05}", subscription={f"t{n % topics:05}": ""}, create=True
                    ),
                    range(groups),
                )
            )
        firsts: dict[str, list[float]] = {"": [], "topics": []}
        for path, walls in firsts.items():
            for _ in range(rounds):
                with _console(cluster.endpoints) as (url, _):
                    walls.append(_seconds(url + path))
        with _console(cluster.endpoints) as (url, process):
            of = f"{topics:,} topics, {groups:,} groups"
            for name, path in (("overview", ""), ("list of topics", "topics")):
                first = f"first visit {statistics.median(firsts[path]):.2f} s"
                figures += _page(f"{name}, {of}", url + path, process, rounds, first)
            figures += _usable(url, rounds)
    return figures


@contextlib.contextmanager
def _console(endpoints: list[str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the console as a process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "logboom.cli", "console", "-s", ",".join(endpoints)]
        words += ["--listen", f"127.0.0.1:{port}", "--audit-folder", folder]
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}/"

            def listens() -> bool:
                if process.poll() is not None:
                    raise RuntimeError(f"the console ended with {process.returncode}")
                with contextlib.suppress(URLError, ConnectionError):
                    urlopen(f"{url}static/mark.svg").close()
                    return True
                return False

            if not ask_until(listens, bool, START_S, pause_s=0.05):
                raise TimeoutError(f"the console does not listen after {START_S:.0f} s")
            yield url, process
        finally:
            process.terminate()
            process.wait()


def _page(
    name: str, url: str, process: subprocess.Popen[bytes], rounds: int, first: str
) -> Iterator[Figure]:
    """Time a page whose answers are too old to be shown again."""
    walls, works = [], []
    _seconds(url)
    for _ in range(rounds):
        _let_answers_age()
        work = cpu_seconds(process.pid)
        walls.append(_seconds(url))
        works.append(cpu_seconds(process.pid) - work)
    note = f"{first}; {statistics.median(works) * 1000:.0f} ms of processor time meanwhile"
    yield Figure(name, statistics.median(walls), "s", PAGE_S, "less", note)


def _let_answers_age() -> None:
    """Wait until what the console asked for last is too old to be shown again."""
    # An answer is shared for this long, by the clock alone: nothing tells when that is over.
    time.sleep(SHARED_S + 1)


def _seconds(url: str) -> float:
    """Return how long a page takes."""
    began = time.monotonic()
    with urlopen(url) as answer:
        answer.read()
    return time.monotonic() - began


def _usable(url: str, rounds: int) -> list[Figure]:
    """Time pages in Chromium until something can be clicked, if it is installed."""
    if not CHROMIUM.exists() or importlib.util.find_spec("playwright") is None:
        return []
    from playwright.sync_api import sync_playwright

    figures = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_default_timeout(300_000)
        for name, path, part in (
            ("overview, usable in Chromium", "", ".tile"),
            ("list of topics, usable in Chromium", "topics", "tbody a"),
        ):
            walls = []
            for _ in range(rounds):
                _let_answers_age()
                began = time.monotonic()
                page.goto(url + path, wait_until="domcontentloaded")
                page.locator(part).first.wait_for()
                walls.append(time.monotonic() - began)
            figures.append(Figure(name, statistics.median(walls), "s", USABLE_S, "less"))
        browser.close()
    return figures


def _tails(boom: Client, endpoints: list[str], seconds: float) -> list[Figure]:
    """Measure the console with ten live tails, and a consumer with them and without."""
    ended = threading.Event()
    producer = threading.Thread(target=_produce, args=(boom, ended))
    with _console(endpoints) as (url, process):
        producer.start()
        try:
            alone = _received(boom, seconds)
            opened = threading.Barrier(TAILS + 1, timeout=START_S)
            tails = [
                threading.Thread(target=_tail, args=(f"{url}topics/stream/tail", opened, ended))
                for _ in range(TAILS)
            ]
            for tail in tails:
                tail.start()
            opened.wait()
            work, began = cpu_seconds(process.pid), time.monotonic()
            beside = _received(boom, seconds)
            cores = (cpu_seconds(process.pid) - work) / (time.monotonic() - began)
            memory = resident_mb(process.pid)
        finally:
            ended.set()
            producer.join()
    of = f"{TAILS} live tails at {RATE_PER_S:,} msg/s"
    return [
        Figure(f"{of}: the console", cores, "cores", CORES, "less"),
        Figure(f"{of}: its memory", memory, "MB", MEMORY_MB, "less"),
        Figure(
            f"{of}: a reader beside",
            beside,
            "msg/s",
            OTHERS,
            reference="the same without",
            reference_value=alone,
            ratio=beside / alone,
        ),
    ]


def _produce(boom: Client, ended: threading.Event) -> None:
    """Produce at a steady rate."""
    with boom.producer(linger_ms=5) as producer:
        began, sent = time.monotonic(), 0
        while not ended.wait(0.02):
            due = int((time.monotonic() - began) * RATE_PER_S) - sent
            producer.send_many(
                "stream", [b'{"number": %d, "text": "%080d"}' % (n, n) for n in range(due)]
            )
            sent += due


def _received(boom: Client, seconds: float) -> float:
    """Return the messages a second that a consumer gets."""
    with boom.consumer("stream", start="last") as consumer:
        consumer.poll(timeout_s=5)
        began, count = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            count += len(consumer.poll(10_000, 0.2))
        return count / (time.monotonic() - began)


def _tail(url: str, opened: threading.Barrier, ended: threading.Event) -> None:
    """Read a stream and throw it away; its first bytes tell that it is open."""
    with urlopen(url) as stream:
        stream.read1(65_536)
        opened.wait()
        while not ended.is_set() and stream.read1(65_536):
            pass
