"""Subscriptions, dead letters, transactions and delayed messages in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from logboom.client import Client
from logboom.console.server import ConsoleServer
from logboom.deploy.embedded import Embedded
from tests.integration.console.browsing import Surfer
from tests.integration.console.consumer_stage import HOSTILE, bury, consumer_stage
from tests.integration.waiting import wait_until
from tests.thorough import few_of


@pytest.fixture(scope="module", autouse=True)
def stage(node: Embedded) -> Iterator[Client]:
    """Subscriptions, dead letters, and what is parked."""
    with consumer_stage(node) as boom:
        yield boom


def act(surfer: Surfer, button: str, told: str) -> None:
    """Answer the question of an action, and wait for its message."""
    surfer.page.get_by_role("button", name=button).click()
    surfer.see_answer(told)


@pytest.mark.parametrize(
    "path",
    few_of(
        [
            "/subscriptions",
            "/subscriptions/orders/invoices?peek=0",
            "/subscriptions/clicks/heatmap",
            "/dead-letters",
            "/dead-letters/billing",
            "/dead-letters/orders%25invoices?again=1",
            "/dead-letters/billing/0/2?as=hex",
            "/transactions",
            "/transactions/open?app=settlement&sequence=7&attempt=0",
            "/delayed",
            "/delayed?topic=orders",
            "/pipeline",
        ],
        [
            "/subscriptions/orders/invoices?peek=0",
            "/transactions/open?app=settlement&sequence=7&attempt=0",
            "/pipeline",
        ],
    ),
)
def test_pages_are_whole_accessible_and_fit(surfer: Surfer, stage: Client, path: str) -> None:
    surfer.check_page(path)


def test_lists_are_also_json(console: ConsoleServer, stage: Client) -> None:
    def rows(path: str) -> list[dict[str, object]]:
        with urlopen(f"{console.url}{path}format=json") as answer:
            found: list[dict[str, object]] = json.load(answer)
        return found

    (invoices,) = [row for row in rows("subscriptions?") if row["name"] == "invoices"]
    assert (invoices["topic"], invoices["unacked"], invoices["consumers"]) == ("orders", 380, 1)
    (billing,) = [row for row in rows("dead-letters?") if row["owner"] == "billing"]
    assert (billing["open"], billing["stored"], billing["kind"]) == (24, 24, "group")
    assert "the bank is closed (5)" in str(billing["causes"])
    assert {row["kind"] for row in rows("transactions?")} == {"transaction", "half"}
    assert len(rows("delayed?")) == 12
    assert len(rows("subscriptions/orders/invoices?table=consumers&")) == 4


def test_what_letters_hold_is_shown_and_never_run(surfer: Surfer, stage: Client) -> None:
    surfer.page.add_init_script("window.alert = () => { throw new Error('it ran') }")
    for path in (
        "/dead-letters",
        "/dead-letters/billing",
        "/dead-letters/billing/0/2",
        "/actions/dead-letter.edit?owner=billing&at=0/2",
        "/transactions/open?app=spark-6f1c2f7e-1d0a-4a53-9d1e-77f0d1a3c001&sequence=41&attempt=3",
    ):
        surfer.open(path)
        assert surfer.page.locator("main img, main script").count() == 0, path
        assert "onerror=alert(" in surfer.page.locator("main").inner_html(), path
    surfer.open("/dead-letters/billing/0/2")
    assert surfer.page.get_by_text(HOSTILE, exact=True).count() == 2


def test_a_value_is_shown_as_text_json_msgpack_and_hex(surfer: Surfer, stage: Client) -> None:
    surfer.open("/dead-letters/billing/0/5")
    page = surfer.page
    page.get_by_role("link", name="msgpack", exact=True).click()
    page.wait_for_url("**as=msgpack*")
    assert '"order": 7' in page.locator(".value-text").inner_text()
    page.get_by_role("link", name="hex", exact=True).click()
    page.wait_for_url("**as=hex*")
    assert page.locator(".value-text").inner_text().startswith("000000  82 a5 6f 72")
    page.get_by_role("link", name="Previous").click()
    page.wait_for_url("**/dead-letters/billing/0/4*")
    page.get_by_role("link", name="json", exact=True).click()
    page.wait_for_url("**as=json*")
    assert '"order": 4' in page.locator(".value-text").inner_text()


def test_letters_are_chosen_by_boxes_and_sent_again(surfer: Surfer, stage: Client) -> None:
    surfer.open("/dead-letters/billing")
    page = surfer.page
    page.get_by_label("Choose 0/0", exact=True).check()
    page.get_by_label("Choose 0/1", exact=True).check()
    page.get_by_role("button", name="Send the chosen again").click()
    surfer.see_question()
    command = page.locator(".command").inner_text()
    assert "logboom dlq redrive billing --at 0/0 --at 0/1 --yes" in command
    act(surfer, "Send them again", "2 messages were sent to billing again")
    assert stage.dead_letters.describe("billing").open == 22
    assert page.get_by_label("Choose 0/0", exact=True).count() == 0
    page.get_by_label("All on this page").check()
    assert page.locator("tbody input:checked").count() == 22


def test_a_letter_is_edited_and_sent_again(surfer: Surfer, stage: Client) -> None:
    surfer.open("/dead-letters/billing/0/2")
    page = surfer.page
    page.get_by_role("link", name="Edit and send").click()
    assert '"order": 2' in page.get_by_label("Value", exact=True).input_value()
    page.get_by_label("Value", exact=True).fill('{"order": 2,\n "iban": "NO93"}')
    surfer.check_accessible()
    page.get_by_role("button", name="Continue").click()
    act(surfer, "Send it with this value", "1 message was sent to billing with the new value")
    topic = "%RETRY%billing"

    def sent() -> list[bytes | None]:
        return [
            message.value
            for queue, (first, end) in stage.admin.offsets(topic).items()
            if end > first
            for message in stage.pull(topic, queue, first).messages
        ]

    assert b'{"order": 2,\n "iban": "NO93"}' in sent()


def test_letters_of_one_cause_are_counted_before_they_are_sent(
    surfer: Surfer, stage: Client
) -> None:
    surfer.open("/dead-letters/billing")
    page = surfer.page
    left = stage.dead_letters.count("billing", cause="KeyError")
    row = page.locator(".causes li", has_text="KeyError")
    assert row.locator(".number").inner_text() == str(left)
    row.get_by_role("link", name="Send these again").click()
    assert page.get_by_label("Only those with this text").input_value() == "KeyError: 'iban'"
    page.get_by_role("button", name="Continue").click()
    assert page.locator(".facts dd").first.inner_text() == str(left)
    act(surfer, "Send them again", f"{left} messages were sent to billing again")


@pytest.mark.thorough
def test_many_letters_are_sent_in_the_background_with_their_progress(
    surfer: Surfer, stage: Client
) -> None:
    stage.admin.alter_group("archive", subscription={"orders": ""}, create=True)
    wait_until(lambda: "%DLQ%archive" in [t.name for t in stage.admin.topics()], "its topic")
    # So many that they are not all sent before it is stopped.
    bury(stage, "archive", 200)
    surfer.open("/dead-letters/archive")
    page = surfer.page
    page.get_by_role("link", name="Send many again").click()
    page.get_by_label("At most so many per second").fill("2")
    page.get_by_role("button", name="Continue").click()
    surfer.see_question()
    assert "--rate 2" in page.locator(".command").inner_text()
    act(surfer, "Send them again", "200 messages are on their way to archive")
    page.get_by_text("under way").wait_for()
    surfer.check_accessible()
    # It counts while the page is open.
    page.wait_for_function("() => document.querySelector('progress').value >= 4")
    page.get_by_role("link", name="Stop").click()
    act(surfer, "Stop it", "It stops; what was sent stays sent.")
    page.get_by_text("stopped", exact=True).wait_for()
    left = stage.dead_letters.describe("archive").open
    assert 0 < left < 200


def test_a_subscription_is_reset_by_plan_skipped_and_deleted(surfer: Surfer, stage: Client) -> None:
    surfer.open("/subscriptions?state=alone")
    page = surfer.page
    page.get_by_role("link", name="heatmap").click()
    page.get_by_role("link", name="Reset", exact=True).click()
    page.get_by_label("To (required)").fill("last")
    page.get_by_role("button", name="Continue").click()
    page.locator("#table-plan").wait_for()
    assert "logboom subscription reset clicks heatmap --to last --yes" in (
        page.locator(".command").inner_text()
    )
    before = stage.admin.subscriptions.describe("clicks", "heatmap")
    assert sum(each.state.unacked for each in before) == 300
    act(surfer, "Reset the subscription", "6 queues of heatmap were moved")
    after = stage.admin.subscriptions.describe("clicks", "heatmap")
    assert sum(each.state.unacked for each in after) == 0
    surfer.open("/actions/subscription.reset?topic=clicks&subscription=heatmap&to=first")
    page.get_by_role("button", name="Continue").click()
    act(surfer, "Reset the subscription", "6 queues of heatmap were moved")
    page.get_by_role("link", name="Skip messages").click()
    page.get_by_label("Messages of each queue").fill("2")
    page.get_by_role("button", name="Continue").click()
    page.locator("#table-plan").wait_for()
    act(surfer, "Skip the messages", "6 queues of heatmap were moved")
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Continue").click()
    act(surfer, "Delete the subscription", "heatmap of clicks is deleted")
    names = {each.state.name for each in stage.admin.subscriptions.all("clicks")}
    assert "heatmap" not in names
    assert page.get_by_role("link", name="heatmap").count() == 0


def test_consumers_are_cut_off_only_with_force(surfer: Surfer, stage: Client) -> None:
    surfer.allowed.append("409")
    surfer.open("/actions/subscription.delete?topic=orders&subscription=invoices")
    page = surfer.page
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("the deletion is refused without force").wait_for()
    page.get_by_role("button", name="Delete the subscription").click()
    page.get_by_role("alert").wait_for()
    assert stage.admin.subscriptions.describe("orders", "invoices")


def test_a_transaction_is_shown_and_decided(surfer: Surfer, stage: Client) -> None:
    surfer.open("/transactions")
    page = surfer.page
    page.get_by_role("link", name="settlement").click()
    page.get_by_text("Its first messages").wait_for()
    page.wait_for_load_state()
    values = page.locator("#table-messages tbody tr td:nth-child(3)").all_inner_texts()
    assert values == ["a", "b", "c"]
    ends = stage.admin.offsets("payments")
    page.get_by_role("link", name="Commit").click()
    surfer.see_question()
    assert "logboom transaction commit settlement --sequence 7 --attempt 0 --yes" in (
        page.locator(".command").inner_text()
    )
    act(surfer, "Publish the messages", "3 messages were published")
    after = stage.admin.offsets("payments")
    assert sum(end for _, end in after.values()) == sum(end for _, end in ends.values()) + 3
    row = page.locator("tbody tr", has_text="shop")
    row.get_by_role("link", name="Abort").click()
    act(surfer, "Drop the messages", "1 message")
    assert [t for t in stage.admin.transactions().transactions if t.is_half] == []


def test_a_delayed_message_is_taken_back(surfer: Surfer, stage: Client) -> None:
    surfer.open("/transactions")
    page = surfer.page
    page.get_by_role("link", name="Delayed messages").click()
    page.wait_for_url("**/delayed*")
    first = page.locator("tbody tr").first
    place = first.locator("td").first.inner_text()
    first.get_by_role("link", name="Recall").click()
    surfer.see_question()
    assert f"logboom message recall {place} --yes" in page.locator(".command").inner_text()
    act(surfer, "Take it back", f"{place} is taken back")
    assert len(stage.admin.delayed("orders").batches) == 11
    assert page.get_by_text(place, exact=True).count() == 0


def test_what_was_decided_meanwhile_is_told(surfer: Surfer, stage: Client) -> None:
    surfer.allowed.append("404")
    surfer.open("/transactions/open?app=nobody&sequence=1&attempt=0")
    assert "it was decided" in surfer.page.locator("main").inner_text()
