"""Pictures of the web console, for the README: `python -m demo.pictures` writes docs/pictures/*.png.

A cluster in this process gets topics, messages and groups, some of them in trouble; Chromium opens
the console on it. It needs the packages of the group `browser`, and Chromium: `sudo apt-get install
chromium`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import msgspec

from logboom.client import Client, connect
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.site import ConsoleSettings
from logboom.deploy.embedded import embedded

FOLDER: Final = Path(__file__).parent.parent / "docs/pictures"
CHROMIUM: Final = "/usr/bin/chromium"
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--force-color-profile=srgb")
CARRIERS: Final = ("UA", "AA", "DL", "B6", "WN", "EV")
TOPICS: Final = ("orders", "payments", "invoices", "clicks", "audit", "prices", "shipments")
PATIENCE_MS: Final = 300_000
"""How long a page may take on a machine that does other work."""
PICTURES: Final = (
    ("console-overview", "/", "light"),
    ("console-messages", "/topics/flights", "dark"),
)
"""Those of the README: name, page, theme."""


def fill(boom: Client) -> None:
    """Create topics, messages and groups."""
    boom.admin.create_topic("flights", queues=4, retention_ms=30 * 86_400_000)
    for number, name in enumerate(TOPICS):
        boom.admin.create_topic(name, queues=1 + number % 4, compaction=name == "prices")
    with boom.producer() as producer:
        for _ in range(300):
            producer.send("flights", _flight(), key=random.choice(CARRIERS).encode())
        for name in TOPICS:
            for number in range(random.randrange(20, 200)):
                producer.send(name, b'{"number": %d}' % number)


def _flight() -> bytes:
    return msgspec.json.encode(
        {
            "carrier": random.choice(CARRIERS),
            "flight": random.randrange(1, 6_000),
            "origin": random.choice(("EWR", "LGA", "JFK")),
            "dest": random.choice(("IAH", "MIA", "BQN", "ATL", "ORD", "FLL", "BOS")),
            "delay_min": random.randrange(-10, 90),
        }
    )


@contextmanager
def traffic(boom: Client) -> Iterator[None]:
    """Produce and consume in the background."""
    ended = threading.Event()

    def work() -> None:
        with (
            boom.producer() as producer,
            boom.consumer("flights", group="billing") as billing,
            boom.consumer("orders", group="warehouse") as warehouse,
        ):
            begun = time.monotonic()
            while not ended.wait(0.1):
                swing = 20 + int(15 * abs((time.monotonic() - begun) % 20 - 10) / 10)
                for _ in range(swing):
                    headers = {"source": b"tower", "region": b"us"}
                    key = random.choice(CARRIERS).encode()
                    producer.send("flights", _flight(), key=key, tag="live", headers=headers)
                    producer.send("orders", b'{"item": "pen"}')
                for message in billing.poll(max_messages=200, timeout_s=0):
                    billing.ack(message)
                for message in warehouse.poll(max_messages=200, timeout_s=0):
                    warehouse.ack(message)
            billing.commit()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def take(console: ConsoleServer, pictures: Any, folder: Path, width: int) -> None:
    """Open pages in Chromium, and save a picture of each."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        for name, path, theme in pictures:
            context = browser.new_context(
                viewport={"width": width, "height": 900 if width > 600 else 800},
                color_scheme=theme,
            )
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.on("console", lambda message: print(f"  {message.type}: {message.text}"))
            page.on("pageerror", lambda error: print(f"  {error}"))
            page.goto(console.url.rstrip("/") + path)
            # Charts are drawn, and a page that follows a topic has some rows.
            page.wait_for_timeout(1_500)
            page.screenshot(path=folder / f"{name}.png", timeout=PATIENCE_MS)
            context.close()
        browser.close()


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m demo.pictures")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write them")
    parser.add_argument("--pages", nargs="*", help="other pages, such as /topics?find=o")
    parser.add_argument("--width", type=int, default=1_280)
    parser.add_argument("--theme", default="light", choices=("light", "dark"))
    parser.add_argument("--seconds", type=float, default=60, help="of traffic before")
    given = parser.parse_args()
    pictures: Any = PICTURES
    if given.pages:
        pictures = [
            (f"page-{place}-{given.theme}-{given.width}", page, given.theme)
            for place, page in enumerate(given.pages)
        ]
    random.seed(7)
    given.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        node = stack.enter_context(embedded())
        boom = stack.enter_context(connect(node.endpoints, create_topics=True))
        fill(boom)
        stack.enter_context(traffic(boom))
        settings = ConsoleSettings("127.0.0.1", 0)
        console = stack.enter_context(
            console_thread(
                ConsoleServer(
                    settings,
                    node.endpoints,
                    None,
                    Path(temporary),
                    cluster_key=node.cluster_key,
                )
            )
        )
        # The console opens its client at the first request.
        time.sleep(1)
        urlopen(console.url).close()
        # Rates need samples.
        time.sleep(given.seconds)
        take(console, pictures, given.folder, given.width)
        print(f"written to {given.folder}")


if __name__ == "__main__":
    main()
