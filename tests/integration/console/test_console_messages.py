"""Messages, their pages and actions in Chromium, over an embedded cluster."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from logboom.client import Client, connect
from logboom.console.server import ConsoleServer
from logboom.deploy.embedded import Embedded
from tests.integration.console.browsing import Surfer, open_surfer
from tests.integration.waiting import wait_until
from tests.thorough import few_of

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture(scope="module", autouse=True)
def messages(node: Embedded) -> None:
    """A topic with messages of every kind."""
    with connect(node.endpoints) as boom:
        boom.admin.create_topic("flights", queues=2, retention_ms=86_400_000)
        boom.admin.create_topic("strange", queues=1)
        with boom.producer() as producer:
            for number in range(120):
                producer.send(
                    "flights",
                    b'{"number": %d}' % number,
                    key=b"k%d" % (number % 7),
                    tag="late" if number % 10 == 0 else None,
                    headers={"price": b"%d" % number},
                )
            for value in (None, b"", EVIL.encode(), b"\x00\xff", msgspec.msgpack.encode({"a": 1})):
                producer.send("strange", value, key=EVIL.encode(), headers={EVIL: EVIL.encode()})


def rows(surfer: Surfer) -> Any:
    return surfer.page.locator("#rows tr")


@pytest.mark.parametrize(
    "path",
    few_of(
        [
            "/topics/flights",
            "/topics/flights?live=1",
            "/topics/flights/queues",
            "/topics/flights/groups",
            "/topics/flights/settings",
            "/topics/flights/0/3",
            "/actions/topic.create",
            "/actions/topic.alter?topic=flights",
            "/actions/message.produce?topic=flights",
        ],
        ["/topics/flights", "/topics/flights/0/3", "/actions/message.produce?topic=flights"],
    ),
)
def test_a_page_of_a_topic_is_whole_accessible_and_fits(surfer: Surfer, path: str) -> None:
    surfer.check_page(path)


def test_messages_are_found_by_offset_time_key_filter_and_tag(surfer: Surfer) -> None:
    for path, count in (
        ("?limit=200", 120),
        ("", 50),
        ("?from=oldest", 50),
        ("?from=time&at=1h&limit=200", 120),
        ("?filter=price+%3E%3D+100&limit=200", 20),
        ("?tags=late", 12),
        ("?filter=price+%3E%3D+100&tags=late", 2),
    ):
        surfer.open(f"/topics/flights{path}")
        assert rows(surfer).count() == count, path
    surfer.open("/topics/flights?from=key&at=k3&limit=200")
    keys = surfer.page.locator("#rows .key .code").all_inner_texts()
    assert len(keys) == 17
    assert set(keys) == {"k3"}
    surfer.open("/topics/flights?from=offset&at=5&queue=1&limit=100")
    offsets = [int(text) for text in surfer.page.locator("#rows td:nth-child(3)").all_inner_texts()]
    assert min(offsets) == 5
    assert set(surfer.page.locator("#rows td:nth-child(2)").all_inner_texts()) == {"1"}


def test_older_and_newer_pages_lead_through_every_message_once(surfer: Surfer) -> None:
    surfer.open("/topics/flights")
    seen: list[str] = []
    while True:
        seen += surfer.page.locator("#rows .when a").evaluate_all("all => all.map(a => a.pathname)")
        older = surfer.page.get_by_role("link", name="Older")
        if not older.count():
            break
        before = surfer.page.url
        older.click()
        surfer.page.wait_for_url(lambda url, before=before: url != before)
    assert len(seen) == len(set(seen)) == 120


def test_a_wrong_filter_is_told_and_leads_back(surfer: Surfer) -> None:
    surfer.allowed.append("400")
    surfer.open("/topics/flights?filter=price+%3E")
    assert "This cannot be done" in surfer.page.locator("h1").inner_text()
    assert surfer.page.get_by_role("link", name="Try again").count() == 1


def test_strange_contents_are_text_and_never_markup(surfer: Surfer) -> None:
    surfer.open("/topics/strange")
    assert rows(surfer).count() == 5
    assert surfer.page.locator("main script, main img").count() == 0
    assert EVIL in surfer.page.locator("#rows").inner_text()
    for offset in range(5):
        surfer.open(f"/topics/strange/0/{offset}")
        assert surfer.page.locator("main script, main img").count() == 0
        assert EVIL in surfer.page.locator(".headers").inner_text()
    surfer.open("/topics/strange/0/4?as=hex")
    assert "81 a1 61 01" in surfer.page.locator(".value-text").inner_text()
    surfer.open("/topics/strange/0/4?as=json")
    assert surfer.page.get_by_text("this is no JSON").count() == 1


def test_a_value_is_downloaded_and_never_shown_by_itself(console: ConsoleServer) -> None:
    with urlopen(f"{console.url}topics/strange/0/2?format=raw") as answer:
        assert answer.read() == EVIL.encode()
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")


def test_messages_are_also_csv_and_json(console: ConsoleServer) -> None:
    with urlopen(f"{console.url}topics/flights?format=json&limit=200") as answer:
        found = json.load(answer)
    assert len(found) == 120
    assert {row["key"] for row in found} == {f"k{number}" for number in range(7)}


def test_a_message_is_produced_and_its_page_tells_its_life(surfer: Surfer, boom: Client) -> None:
    page = surfer.page
    surfer.open("/topics/flights")
    page.get_by_role("link", name="Produce", exact=True).click()
    page.wait_for_url("**/actions/message.produce*")
    page.get_by_label("Key").fill("mine")
    page.get_by_label("Value", exact=True).fill("first line\nsecond line")
    page.get_by_label("Headers").fill("source=console")
    # The command follows what is filled in.
    page.wait_for_function(
        "() => document.querySelector('.command code').textContent.includes('--header source=console')"
    )
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Send this message to flights?").wait_for()
    page.get_by_role("button", name="Produce").click()
    page.get_by_text("is stored.").wait_for()
    page.wait_for_load_state()
    queue, offset = page.url.rsplit("/", 2)[1:]
    stored = boom.admin.get_message("flights", int(queue), int(offset))
    assert (stored.key, stored.value) == (b"mine", b"first line\nsecond line")
    assert stored.headers == {"source": b"console"}
    assert "produced" in page.locator(".life").inner_text()
    assert page.get_by_role("link", name="Produce again").count() == 1


def test_two_tails_show_what_comes_and_a_pause_keeps_it(
    browser: Any, surfer: Surfer, console: ConsoleServer, boom: Client
) -> None:
    boom.admin.create_topic("river", queues=2)
    with open_surfer(browser, console) as other, boom.producer() as producer:
        surfer.open("/topics/river?live=1")
        other.open("/topics/river?live=1&filter=price+%3E+5")
        sent = 0

        def flowing() -> bool:
            nonlocal sent
            for _ in range(10):
                price = b"%d" % (sent % 10)
                producer.send("river", b"m%d" % sent, headers={"price": price}).result()
                sent += 1
            surfer.page.wait_for_timeout(200)
            return bool(rows(surfer).count() >= 20 and rows(other).count() >= 8)

        wait_until(flowing, "rows come")

        def told() -> str:
            return str(surfer.page.inner_text("[data-live]"))

        surfer.page.get_by_role("button", name="Pause").click()
        wait_until(lambda: flowing() and "came meanwhile" in told(), "what comes is counted")
        # Now also what came right before the pause is shown.
        shown, counted = rows(surfer).count(), told()
        wait_until(lambda: flowing() and told() != counted, "more is counted")
        assert rows(surfer).count() == shown
        surfer.page.get_by_role("button", name="Go on").click()
        wait_until(lambda: flowing() and rows(surfer).count() > shown, "rows come again")
        prices = other.page.locator("#rows .headers dd").all_text_contents()
        assert prices
        assert all(int(price) > 5 for price in prices)


def test_a_tail_follows_also_if_a_script_comes_late(surfer: Surfer, boom: Client) -> None:
    # htmx looks for extensions once, so it must not begin before all scripts are there.
    def hold(route: Any) -> None:
        surfer.page.wait_for_timeout(300)
        route.continue_()

    boom.admin.create_topic("late", queues=1)
    surfer.page.route("**/hx-sse.min.js*", hold)
    surfer.open("/topics/late?live=1")
    with boom.producer() as producer:
        producer.send("late", b"hello").result()
    rows(surfer).first.wait_for()


def test_a_topic_is_created_changed_and_deleted_with_the_keyboard_alone(
    surfer: Surfer, boom: Client
) -> None:
    page = surfer.page
    surfer.open("/topics")
    page.get_by_role("link", name="Create a topic").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Name").focus()
    page.keyboard.type("typed")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.get_by_text("Create typed?").wait_for()
    assert "logboom topic create typed --queues 2" in page.locator(".command code").inner_text()
    page.get_by_role("button", name="Create the topic").focus()
    page.keyboard.press("Enter")
    page.get_by_text("typed is created.").wait_for()
    assert len(boom.admin.describe_topic("typed").queues) == 2

    surfer.open("/actions/topic.alter?topic=typed")
    page.get_by_label("Retention", exact=True).fill("1h")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Change the topic").click()
    page.get_by_text("typed is altered.").wait_for()
    assert boom.admin.describe_topic("typed").config.retention_ms == 3_600_000

    surfer.open("/topics/typed")
    page.get_by_role("link", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete the topic").click()
    page.get_by_text("typed is deleted.").wait_for()
    assert "typed" not in [topic.name for topic in boom.admin.topics()]


def test_a_wrong_form_keeps_what_was_filled_in(surfer: Surfer) -> None:
    surfer.allowed.append("400")
    page = surfer.page
    surfer.open("/actions/topic.create")
    page.get_by_label("Name").fill("no spaces")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Create the topic").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_label("Name").input_value() == "no spaces"


def test_the_leader_of_a_queue_is_elected(surfer: Surfer) -> None:
    page = surfer.page
    surfer.open("/topics/flights/queues")
    page.get_by_role("link", name="Elect").first.click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Elect").click()
    page.get_by_text("leads flights queue 0").wait_for()
