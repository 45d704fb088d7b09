"""The pages and actions of groups in Chromium, over an embedded cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from logboom.client import Client
from logboom.console.server import ConsoleServer, console_thread
from logboom.deploy.embedded import Embedded
from logboom.deploy.polling import ask_until
from tests.integration.console.browsing import Surfer, open_surfer
from tests.integration.console.conftest import new_console
from tests.integration.console.consumer_stage import consumer_stage, settled
from tests.thorough import few_of


@pytest.fixture(scope="module", autouse=True)
def stage(node: Embedded) -> Iterator[Client]:
    """Groups, some with members."""
    with consumer_stage(node) as boom:
        settled(boom)
        yield boom


def committed(boom: Client, group: str, topic: str) -> dict[int, int | None]:
    return boom.admin.committed(group, topic)


@pytest.mark.parametrize(
    "path",
    few_of(
        ["/groups", "/groups?state=stuck", "/groups/billing", "/groups/shipping"],
        ["/groups/billing"],
    ),
)
def test_a_page_is_whole_accessible_and_fits(surfer: Surfer, stage: Client, path: str) -> None:
    surfer.check_page(path)


def test_the_list_tells_states_and_lags(console: ConsoleServer, stage: Client) -> None:
    def survey() -> dict[str, dict[str, Any]]:
        with urlopen(f"{console.url}groups?format=json") as answer:
            return {row["name"]: row for row in json.load(answer)}

    def is_whole(rows: dict[str, dict[str, Any]]) -> bool:
        """A member that was too slow joins again; a broker that answered too late is asked again."""
        known = all(rows[name]["lag"] is not None for name in ("ledger", "recommender", "shipping"))
        return known and rows["billing"]["state"] == "stable"

    rows = ask_until(survey, is_whole, 200.0)
    assert rows["fraud-detection"]["state"] == "paused"
    assert (rows["shipping"]["state"], rows["shipping"]["members"]) == ("empty", 0)
    assert (rows["billing"]["state"], rows["billing"]["members"]) == ("stable", 2)
    assert rows["ledger"]["lag"] == rows["recommender"]["lag"] == 0
    assert rows["shipping"]["lag"] == 500
    assert rows["shipping"]["age_ms"] > 0


def test_a_group_that_nobody_serves_says_so(surfer: Surfer, stage: Client) -> None:
    surfer.open("/groups")
    page = surfer.page
    page.get_by_role("link", name="Behind without members").click()
    page.get_by_role("link", name="shipping").click()
    page.get_by_text("Stuck: the group has no member").wait_for()
    assert page.locator("#table-main tbody tr").count() >= 6


def test_a_group_is_paused_and_resumed_by_the_keyboard_alone(surfer: Surfer, stage: Client) -> None:
    surfer.open("/groups/ledger")
    page = surfer.page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.textContent") == "Pause":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/actions/group.pause**")
    assert "logboom group alter ledger --paused" in page.locator(".command").inner_text()
    # The button that acts has the focus, which the browser gives it a moment after the page is there.
    page.locator("form.answer button:focus").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("ledger is paused").wait_for()
    assert stage.admin.describe_group("ledger").config.paused
    page.get_by_role("link", name="Resume").click()
    page.get_by_role("button", name="Resume the group").click()
    page.get_by_text("ledger goes on").wait_for()
    assert not stage.admin.describe_group("ledger").config.paused


def test_a_reset_shows_its_plan_before_it_is_carried_out(surfer: Surfer, stage: Client) -> None:
    before = committed(stage, "ledger", "payments")
    surfer.open("/groups/ledger")
    page = surfer.page
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("To", exact=True).select_option("shift")
    page.get_by_label("Which").fill("-5")
    surfer.check_accessible()
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("15 messages").wait_for()
    surfer.see_question()
    assert page.locator("#table-plan tbody tr").count() == 3
    surfer.check_accessible()
    surfer.check_widths()
    assert "logboom group reset ledger --shift -5 --yes" in page.locator(".command").inner_text()
    assert committed(stage, "ledger", "payments") == before
    page.get_by_role("button", name="Reset the offsets").click()
    page.get_by_text("3 queues of ledger were reset").wait_for()
    after = committed(stage, "ledger", "payments")
    assert after == {queue: (offset or 0) - 5 for queue, offset in before.items()}


def test_a_target_that_is_none_is_told_in_the_form(surfer: Surfer, stage: Client) -> None:
    surfer.allowed.append("400")
    surfer.open("/actions/group.reset?group=ledger&way=time&target=yesterday")
    page = surfer.page
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("alert").wait_for()
    assert "yesterday" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Which").input_value() == "yesterday"


def test_settings_are_changed_and_the_command_names_only_those(
    surfer: Surfer, stage: Client
) -> None:
    surfer.open("/groups/shipping")
    page = surfer.page
    page.get_by_role("link", name="Change settings").click()
    assert page.get_by_label("Session").input_value() == "10s"
    page.get_by_label("Deliveries before a dead letter").fill("5")
    page.get_by_label("Subscription").fill("orders=late || lost\nshipments")
    command = page.locator(".command code")
    expected = (
        "logboom group alter shipping --subscribe 'orders=late || lost' --subscribe shipments "
        "--max-attempts 5"
    )
    page.wait_for_function(
        "wanted => document.querySelector('.command code').textContent.startsWith(wanted)",
        arg=expected,
    )
    assert command.inner_text().startswith(expected)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Change the settings").click()
    page.get_by_text("shipping is changed").wait_for()
    group = stage.admin.describe_group("shipping")
    assert group.config.max_attempts == 5
    assert group.subscription == {"orders": "late || lost", "shipments": "*"}


def test_a_group_is_created_and_deleted(surfer: Surfer, stage: Client) -> None:
    surfer.open("/groups")
    page = surfer.page
    page.get_by_role("link", name="Create a group").click()
    page.get_by_label("Name").fill("new-one")
    page.get_by_label("Subscription").fill("orders")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Create the group").click()
    page.get_by_text("new-one is created").wait_for()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Queues whose offsets are forgotten").wait_for()
    page.get_by_role("button", name="Delete the group").click()
    page.get_by_text("new-one is deleted").wait_for()
    # The list shows it at once, although it is surveyed.
    assert page.get_by_role("link", name="new-one").count() == 0
    assert "new-one" not in [group.name for group in stage.admin.groups()]


def test_a_group_that_is_not_there_is_told(surfer: Surfer) -> None:
    surfer.allowed.append("404")
    surfer.open(f"/groups/{quote('no<b>alert(1)')}")
    assert "no<b>alert" in surfer.page.locator("main").inner_text()


def test_a_read_only_console_offers_and_does_nothing(
    browser: Any, node: Embedded, stage: Client, tmp_path: Path
) -> None:
    with (
        console_thread(new_console(node, tmp_path, read_only=True)) as server,
        open_surfer(browser, server) as tab,
    ):
        tab.open("/groups/ledger")
        assert tab.page.get_by_role("link", name="Delete").count() == 0
        assert tab.page.get_by_role("link", name="Reset offsets").count() == 0
        tab.allowed.append("403")
        tab.open("/actions/group.delete?group=ledger")
        tab.page.get_by_text("read-only: nothing can be changed").wait_for()
    assert "ledger" in [group.name for group in stage.admin.groups()]
