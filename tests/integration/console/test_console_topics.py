"""The overview and the topics in Chromium, over an embedded cluster."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logboom.client import Client, connect
from logboom.console.server import ConsoleServer, console_thread
from logboom.deploy.embedded import Embedded
from tests.integration.console.browsing import Surfer
from tests.integration.console.conftest import new_console
from tests.integration.waiting import wait_until
from tests.thorough import few_of


@pytest.fixture(scope="module", autouse=True)
def topics(node: Embedded) -> None:
    """Sixty topics, one with messages."""
    with connect(node.endpoints) as boom:
        for number in range(60):
            boom.admin.create_topic(f"topic-{number:02}", queues=1)
        with boom.producer() as producer:
            for number in range(100):
                producer.send("topic-00", b"%d" % number)


@pytest.mark.parametrize(
    "path",
    few_of(
        ["/", "/topics", "/topics?page=2&sort=-queues", "/topics?find=nothing+like+this"],
        ["/", "/topics?page=2&sort=-queues"],
    ),
)
def test_a_page_is_whole_accessible_and_fits(surfer: Surfer, path: str) -> None:
    surfer.check_page(path)


def test_the_list_is_searched_sorted_and_paged(surfer: Surfer) -> None:
    surfer.open("/topics")
    page = surfer.page
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**/topics?page=2")
    assert page.locator("tbody tr").count() == 10
    page.get_by_role("searchbox").fill("topic-4")
    # The script asks by itself, and the address keeps what was asked.
    page.wait_for_url("**find=topic-4*")
    # The page before has ten rows too.
    page.wait_for_function(
        "() => [...document.querySelectorAll('tbody tr')]"
        ".filter(row => row.innerText.startsWith('topic-4')).length === 10"
    )
    page.get_by_role("link", name="Topic", exact=True).click()
    page.wait_for_url("**sort=-name*")
    assert page.locator("tbody tr").first.locator("td").first.inner_text() == "topic-49"


def test_a_table_is_also_csv_and_json(console: ConsoleServer) -> None:
    with urlopen(f"{console.url}topics?find=topic-0&format=csv") as answer:
        rows = list(csv.DictReader(io.StringIO(answer.read().decode())))
    assert [row["name"] for row in rows] == [f"topic-{number:02}" for number in range(10)]
    with urlopen(f"{console.url}topics?format=json") as answer:
        assert len(json.load(answer)) == 60


def test_an_action_shows_its_command_asks_and_acts(
    surfer: Surfer, boom: Client, console: ConsoleServer
) -> None:
    boom.admin.create_topic("doomed", queues=1)
    surfer.open("/actions/topic.delete?topic=doomed&back=/topics")
    page = surfer.page
    assert "logboom topic delete doomed --yes" in page.locator(".command code").inner_text()
    surfer.check_accessible()
    assert "doomed" in [topic.name for topic in boom.admin.topics()]
    page.get_by_role("button", name="Delete the topic").click()
    page.get_by_text("doomed is deleted.").wait_for()
    assert "doomed" not in [topic.name for topic in boom.admin.topics()]
    # The message is shown once.
    page.reload()
    assert page.get_by_text("doomed is deleted.").count() == 0
    line = json.loads(console.audit_path.read_text(encoding="utf-8").splitlines()[-1])
    assert (line["event"], line["user"], line["request"]) == ("action", "local", "topic.delete")
    assert (line["result"], line["details"]) == ("ok", {"topic": "doomed"})


def test_the_theme_is_chosen_and_kept(surfer: Surfer) -> None:
    surfer.open("/")
    page = surfer.page
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_metrics_are_served_if_asked_for_and_only_then(
    node: Embedded, console: ConsoleServer, tmp_path: Path
) -> None:
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{console.url}metrics")
    with console_thread(new_console(node, tmp_path, metrics=True)) as server:

        def families() -> set[str]:
            with urlopen(f"{server.url}metrics") as answer:
                assert "set-cookie" not in answer.headers
                text = answer.read().decode()
            return {each.name for each in text_string_to_metric_families(text)}

        # A scrape does not wait for a slow cluster.
        wait_until(lambda: "logboom_topic_bytes" in families(), "the topics are not shown")
