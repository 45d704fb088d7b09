"""Brokers, replicas, name servers, connections, users and settings in Chromium, over a secure cluster
of seven processes; and what their actions change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from logboom.client import Client, connect
from logboom.client.move_plans import broker_of
from logboom.console.pages.replicas_page import build_replicas
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.site import ConsoleSettings
from logboom.console.widgets.page_query import PageQuery
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until
from logboom.wire.sockets import make_key_pair
from tests.integration.console.browsing import Surfer, open_surfer
from tests.thorough import few_of

PATIENCE_S = 200.0
PAUSE_S = 0.1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four brokers in three zones, with users."""
    with Cluster(3, 4, secure=True, zones=("a", "b", "c")) as started:
        with connect(str(started.credentials)) as admin:
            for name in ("orders.eu", "orders.us", "flights"):
                admin.admin.create_topic(name, queues=4)
            admin.admin.create_role("team-orders")
            admin.admin.add_rule("role:team-orders", "allow", "write", "topic", "orders.*")
            admin.admin.add_rule("role:team-orders", "deny", "write", "topic", "orders.us")
            admin.admin.create_user("alice", make_key_pair().public, roles=["team-orders"])
            admin.admin.create_user("nightly", make_key_pair().public)
            with admin.producer() as producer:
                for number in range(400):
                    producer.send("flights", b"x" * 100, key=b"%d" % number)
        yield started


@pytest.fixture
def boom(cluster: Cluster) -> Iterator[Client]:
    """A client of the administrator."""
    with connect(str(cluster.credentials)) as client:
        yield client


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A console that acts as the administrator."""
    folder = tmp_path_factory.mktemp("console")
    server = ConsoleServer(
        ConsoleSettings("127.0.0.1", 0), cluster.endpoints, cluster.credentials, folder
    )
    with console_thread(server):
        yield server


@pytest.fixture
def surfer(browser: Any, console: ConsoleServer) -> Iterator[Surfer]:
    """A fresh tab on the console."""
    with open_surfer(browser, console) as tab:
        yield tab


PAGES = (
    "/brokers",
    "/brokers/broker-1",
    "/replicas",
    "/replicas?topic=orders.eu&show=wrong",
    "/name-servers",
    "/connections",
    "/connections?all=1&node=broker-1",
    "/users",
    "/users?nodes=1",
    "/users?tab=roles",
    "/users?tab=rules",
    "/users?tab=quotas",
    "/users?tab=explain&user=alice&verb=write&kind=topic&resource=orders.us",
    "/users/alice",
    "/roles/team-orders",
    "/settings",
    "/settings/broker-1",
    "/settings/name-1",
    "/actions/queue.move?topic=flights&queue=0",
    "/actions/balance.run",
    "/actions/user.create",
    "/actions/acl.add",
    "/actions/config.set?setting=move_bytes_per_s",
)


FEW = (
    "/replicas?topic=orders.eu&show=wrong",
    "/connections",
    "/users?tab=explain&user=alice&verb=write&kind=topic&resource=orders.us",
    "/settings/broker-1",
    "/actions/queue.move?topic=flights&queue=0",
)
"""Of these, what `make test` checks."""


@pytest.mark.parametrize("path", few_of(PAGES, FEW))
def test_a_page_is_whole_accessible_and_fits(surfer: Surfer, path: str) -> None:
    surfer.check_page(path)


def act(surfer: Surfer, action: str, told: str, link: dict[str, str], **fields: str | bool) -> str:
    """Carry out an action as a person does, and return the command that was shown."""
    page = surfer.page
    surfer.open(f"/actions/{action}?{urlencode({'back': '/brokers', **link})}")
    for name, value in fields.items():
        field = page.locator(f"[name={name}]:visible")
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    if page.get_by_role("button", name="Continue").count():
        page.get_by_role("button", name="Continue").click()
        page.locator(".question").wait_for()
    command = page.locator(".command code").inner_text()
    page.locator("form.answer button").click()
    surfer.see_answer(told)
    return str(command)


def wait_until(look: Callable[[], Any], what: Callable[[Any], bool]) -> None:
    assert what(ask_until(look, what, PATIENCE_S, PAUSE_S))


# Brokers.


def test_a_broker_is_taken_out_of_service_and_put_back(surfer: Surfer, boom: Client) -> None:
    surfer.open("/brokers")
    page = surfer.page
    row = page.locator("tr", has_text="broker-2").first
    row.get_by_role("link", name="Maintenance").click()
    surfer.see_question()
    assert "logboom broker maintenance on broker-2" in page.locator(".command").inner_text()
    page.get_by_role("button", name="Set the mode").click()
    page.get_by_text("broker-2 is in maintenance: its queues get other leaders.").wait_for()
    assert broker_of(boom.admin.describe_cluster(), "broker-2").mode == "maintenance"
    wait_until(
        lambda: broker_of(boom.admin.describe_cluster(), "broker-2").leading, lambda led: led == 0
    )
    page.get_by_text("broker-2 is in maintenance", exact=True).wait_for()
    act(surfer, "broker.maintenance", "active again", {"broker": "broker-2", "switch": "off"})
    assert broker_of(boom.admin.describe_cluster(), "broker-2").mode == "active"


def test_a_broker_is_drained_and_undrained(surfer: Surfer, boom: Client) -> None:
    # In one zone of three: its queues keep their zones on the other broker of it.
    command = act(surfer, "broker.drain", "is draining", {"broker": "broker-4"})
    assert command == "logboom broker drain broker-4 --yes"
    assert broker_of(boom.admin.describe_cluster(), "broker-4").mode in ("draining", "drained")
    wait_until(
        lambda: broker_of(boom.admin.describe_cluster(), "broker-4").mode,
        lambda mode: mode == "drained",
    )
    surfer.open("/brokers/broker-4")
    surfer.page.get_by_text("broker-4 holds no replica").wait_for()
    act(surfer, "broker.undrain", "active again", {"broker": "broker-4"})
    assert broker_of(boom.admin.describe_cluster(), "broker-4").mode == "active"


def test_what_cannot_be_drained_says_why(surfer: Surfer) -> None:
    surfer.allowed.append("409")
    surfer.open("/actions/broker.drain?broker=broker-2")
    surfer.page.get_by_text("fewer zones").wait_for()


def test_a_live_broker_is_not_removed(surfer: Surfer, boom: Client) -> None:
    surfer.allowed += ["400", "409"]
    surfer.open("/actions/broker.remove?broker=broker-1")
    surfer.page.get_by_role("button", name="Continue").click()
    surfer.page.get_by_text("broker-1 is alive").first.wait_for()
    assert len(boom.admin.brokers()) == 4


def test_a_queue_is_moved_and_gets_another_leader(surfer: Surfer, boom: Client) -> None:
    before = boom.admin.describe_topic("orders.us").queues[0].replicas
    target = [*before[1:], before[0]]
    link = {"topic": "orders.us", "queue": "0"}
    command = act(surfer, "queue.move", "is moved to", link, replicas=", ".join(target))
    assert command == f"logboom queue move orders.us 0 --replicas {','.join(target)} --yes"
    wait_until(
        lambda: boom.admin.describe_topic("orders.us").queues[0].replicas, lambda now: now == target
    )
    epoch = boom.admin.describe_topic("orders.us").queues[0].leader_epoch
    act(surfer, "queue.elect", "leads orders.us queue 0", link, prefer=target[-1])
    # The Raft leader may have given the leadership back to the preferred replica since.
    wait_until(
        lambda: boom.admin.describe_topic("orders.us").queues[0].leader_epoch,
        lambda now: now > epoch,
    )
    act(surfer, "queue.cancel", "is not moved", link)


def test_a_move_to_a_broker_that_there_is_not_is_refused_in_its_form(surfer: Surfer) -> None:
    surfer.allowed.append("404")
    surfer.open("/actions/queue.move?topic=flights&queue=0")
    surfer.page.locator("[name=replicas]").fill("broker-1, broker-9")
    surfer.page.get_by_role("button", name="Continue").click()
    surfer.page.get_by_role("alert").get_by_text("no broker 'broker-9'").wait_for()
    assert surfer.page.locator("[name=replicas]").input_value() == "broker-1, broker-9"


def test_balance_is_set_and_run(surfer: Surfer, boom: Client) -> None:
    command = act(surfer, "balance.set", "balance_mode is off", {}, mode="off")
    assert command == "logboom balance off"
    assert [each.value for each in boom.admin.list_settings() if each.name == "balance_mode"] == [
        "off"
    ]
    act(surfer, "balance.set", "balance_mode is new-broker", {}, mode="new-broker")
    surfer.open("/actions/balance.run")
    surfer.page.locator("form.answer button").click()
    surfer.page.get_by_role("status").get_by_text("move").wait_for()


def test_the_matrix_of_a_real_cluster_has_every_replica(boom: Client, surfer: Surfer) -> None:
    # While a queue is moved, it has one replica more.
    wait_until(lambda: boom.admin.describe_cluster().moves, lambda moves: not moves)
    topics = boom.admin.topics()
    model = build_replicas(boom.admin.describe_cluster(), topics, PageQuery("/replicas"))
    cells = [cell.state for row in model.rows for cell in row.cells if cell.state]
    assert len(cells) == sum(len(queue.replicas) for each in topics for queue in each.queues)
    surfer.open("/replicas?topic=flights")
    assert surfer.page.locator(".matrix tbody tr").count() == 4
    # The list of topics may be one of some seconds ago; the page renews itself.
    surfer.page.wait_for_function("() => document.querySelectorAll('.matrix .mark').length === 12")


# Users.


def test_a_user_is_created_disabled_and_deleted(
    surfer: Surfer, boom: Client, tmp_path: Path
) -> None:
    command = act(
        surfer,
        "user.create",
        "This is shown once",
        {},
        name="carol",
        roles="team-orders",
        end="90d",
    )
    assert command == "logboom user create carol --role team-orders --end 90d"
    file = tmp_path / "carol.toml"
    file.touch(0o600)
    file.write_text(surfer.page.locator("#secret").inner_text(), encoding="utf-8")
    with connect(file) as as_carol:
        assert as_carol.admin.describe_user("carol").roles == ["team-orders"]
    surfer.page.get_by_role("link", name="Done").click()
    surfer.page.get_by_role("heading", name="carol").wait_for()
    assert "secret_key" not in surfer.page.content()
    surfer.page.get_by_role("link", name="Disable").click()
    surfer.page.get_by_role("button", name="Disable the user").click()
    surfer.page.get_by_text("carol is disabled").wait_for()
    assert boom.admin.describe_user("carol").disabled
    act(surfer, "user.enable", "carol is enabled", {"user": "carol"})
    act(surfer, "key.add", "This is shown once", {"user": "carol"}, label="2027")
    act(
        surfer,
        "key.remove",
        "The key first of carol is removed",
        {"user": "carol", "label": "first"},
    )
    assert [key.label for key in boom.admin.describe_user("carol").keys] == ["2027"]
    act(surfer, "user.delete", "User carol is deleted", {"user": "carol"})
    assert "carol" not in [user.name for user in boom.admin.users()]


def test_roles_and_rules_are_changed_and_explained(surfer: Surfer, boom: Client) -> None:
    page = surfer.page
    act(surfer, "role.create", "Role night is created", {}, name="night")
    act(surfer, "role.grant", "nightly has night", {}, role="night", user="nightly")
    command = act(
        surfer,
        "acl.add",
        "It counts now",
        {"holder": "role:night"},
        effect="deny",
        verb="read",
        kind="topic",
        pattern="flights*",
    )
    assert command == "logboom acl add role:night deny read topic 'flights*'"
    act(surfer, "acl.add", "It counts now", {"holder": "user:nightly"}, pattern="*")
    surfer.open("/users?tab=explain")
    page.locator("[name=user]").fill("nightly")
    page.locator("[name=resource]").fill("flights")
    page.get_by_role("button", name="Explain").click()
    verdict = page.locator(".verdict")
    assert "Refused" in verdict.inner_text()
    assert "deny read topic flights*" in verdict.inner_text()
    page.locator("[name=resource]").fill("orders.eu")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("Allowed", exact=True).wait_for()
    rule = {"holder": "role:night", "effect": "deny", "verb": "read", "kind": "topic"}
    act(surfer, "acl.remove", "no longer deny read", rule | {"pattern": "flights*"})
    act(surfer, "role.revoke", "nightly has no roles", {"role": "night", "user": "nightly"})
    act(surfer, "role.delete", "Role night is deleted", {"role": "night"})
    assert "night" not in [role.name for role in boom.admin.roles()]


def test_limits_are_set(surfer: Surfer, boom: Client) -> None:
    command = act(
        surfer,
        "quota.set",
        "limits of nightly are set",
        {"user": "nightly"},
        produce="10m",
        topics="3",
    )
    assert command == "logboom quota set nightly --produce 10m --topics 3"
    quota = boom.admin.describe_user("nightly").quota
    assert (quota.produce_bytes_per_s, quota.topics) == (10 << 20, 3)
    act(surfer, "quota.default", "default limits are set", {}, connections="500")
    assert boom.admin.default_quota().connections == 500


# Settings and connections.


def test_a_setting_is_changed_and_forgotten(surfer: Surfer, boom: Client) -> None:
    link = {"setting": "move_bytes_per_s"}
    command = act(surfer, "config.set", "It counts now", link, new_value="20m")
    assert command == "logboom config set move_bytes_per_s 20971520"
    act(surfer, "config.set", "It counts now", link | {"node": "broker-1"}, new_value="5m")
    surfer.open("/settings")
    row = surfer.page.locator("tr", has_text="move_bytes_per_s").first
    assert "20.0 MiB/s" in row.inner_text()
    assert "broker-1: 5.0 MiB/s (node)" in row.inner_text()
    act(surfer, "config.unset", "not set any more", link | {"node": "broker-1"})
    act(surfer, "config.unset", "not set any more", link)
    assert boom.admin.list_settings() == [
        each for each in boom.admin.list_settings() if each.name != "move_bytes_per_s"
    ]
    act(
        surfer,
        "config.set",
        "It counts now",
        {"setting": "log_level.metadata.raft"},
        new_value="debug",
    )

    def level() -> str:
        surfer.open("/settings/name-1")
        levels = surfer.page.locator("#table-levels tr", has_text="metadata.raft")
        return str(levels.inner_text())

    # A node that does not lead hears of it a little later.
    wait_until(level, lambda text: "debug" in text)


def test_a_value_that_is_not_allowed_is_refused_in_its_form(surfer: Surfer) -> None:
    surfer.allowed.append("400")
    surfer.open("/actions/config.set?setting=retention_check_ms")
    surfer.page.locator("[name=new_value]").fill("1ms")
    surfer.page.get_by_role("button", name="Continue").click()
    surfer.page.get_by_role("alert").get_by_text("give a whole number of milliseconds").wait_for()


def test_a_connection_is_reset(surfer: Surfer, boom: Client) -> None:
    def of_brokers() -> list[str]:
        (found,) = boom.admin.connections("broker-1", limit=1_000)
        return [each.endpoint for each in found.connections if each.kind == "broker"]

    # That of a broker: it dials again, and no client of this test loses an answer.
    address = ask_until(of_brokers, bool, PATIENCE_S, PAUSE_S)[0]
    command = act(surfer, "connections.kick", "is reset", {"node": "broker-1", "address": address})
    assert command == f"logboom connections kick broker-1 {address}"
    wait_until(of_brokers, lambda after: bool(after) and address not in after)


def test_tables_are_also_json(console: ConsoleServer) -> None:
    def rows(path: str) -> Any:
        with urlopen(console.url + path) as answer:
            return json.load(answer)

    assert len(rows("brokers?format=json")) == 4
    # Those of the tests before end.
    wait_until(lambda: rows("brokers?format=json&table=moves"), lambda moves: moves == [])
    assert len(rows("replicas?format=json")) == 12
    assert len(rows("name-servers?format=json")) == 3
    wait_until(
        lambda: {row["user"] for row in rows("connections?format=json&all=1")},
        lambda users: users >= {"node:broker-1"},
    )
    assert "alice" in [row["name"] for row in rows("users?format=json")]


# What needs a cluster that lost something comes last.


@pytest.mark.thorough
def test_pages_stay_up_while_a_broker_dies_and_it_is_removed(
    surfer: Surfer, boom: Client, cluster: Cluster
) -> None:
    surfer.open("/brokers")
    page = surfer.page
    cluster.kill("broker-3")
    # The open page says so by itself.
    page.get_by_text("broker-3 is down").first.wait_for()
    surfer.check_accessible()
    wait_until(
        lambda: broker_of(boom.admin.describe_cluster(), "broker-3").alive, lambda alive: not alive
    )
    surfer.open("/replicas?show=wrong")
    page.locator(".matrix .tone-failed", has_text="down").first.wait_for()
    surfer.open("/actions/broker.remove?broker=broker-3")
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Remove broker-3 from the cluster for good?").wait_for()
    assert page.locator(".command code").inner_text() == "logboom broker remove broker-3 --yes"
    page.get_by_role("button", name="Remove the broker").click()
    page.get_by_text("broker-3 is removed.").wait_for()
    assert "broker-3" not in [each.id for each in boom.admin.brokers()]
