"""Changes of settings: checked where they are proposed, and followed by the name servers."""

from __future__ import annotations

import pytest

from logboom.wire.messages import Propose
from logboom.wire.operation_commands import AlterSettings
from logboom.wire.view import SettingView
from tests.unit.metadata.name_servers import Group
from tests.unit.metadata.test_name_server import beat, topic


@pytest.fixture(name="group")
def _group() -> Group:
    group = Group()
    group.register("broker-1")
    return group


@pytest.mark.parametrize(
    ("scope", "values", "said"),
    [
        ("", {"move_bytes": "1"}, "did you mean move_bytes_per_s"),
        ("", {"half_checks": "many"}, "a whole number"),
        ("", {}, "no setting was given"),
        ("broker-1", {"balance_mode": "off"}, "whole cluster"),
        ("broker-9", {"half_checks": "1"}, "there is no node 'broker-9'"),
        ("name-1", {"half_checks": "1"}, "no name server goes by half_checks"),
    ],
)
def test_what_is_wrong_never_enters_the_log(
    group: Group, scope: str, values: dict[str, str | None], said: str
) -> None:
    version = group.core(group.leader()).state.version
    command = Propose(0, 5_000, "", 0, AlterSettings(scope, values, 0))
    assert said in str(group.ask(group.leader(), command, "operator"))
    assert group.core(group.leader()).state.version == version


def test_what_is_right_is_stored_in_one_form_and_all_name_servers_go_by_it(group: Group) -> None:
    group.propose(AlterSettings("", {"rebalance_after_s": " 7.0"}, 0), "operator")
    group.propose(AlterSettings("name-1", {"log_level.metadata": "debug"}, 0), "operator")
    group.propose(AlterSettings("broker-1", {"half_checks": "07"}, 0), "operator")
    group.run(1.0)
    for name in group.processes:
        core = group.core(name)
        assert core.settings.rebalance_after_s == 7.0
        levels = {"logboom.metadata": "debug"} if name == "name-1" else {}
        assert core.settings.logger_levels == levels
    assert group.view("name-1").settings == [
        SettingView("", "rebalance_after_s", "7"),
        SettingView("broker-1", "half_checks", "7"),
        SettingView("name-1", "log_level.metadata", "debug"),
    ]
    # From the journal, too.
    group.kill("name-1")
    assert group.start("name-1").settings.rebalance_after_s == 0.0
    group.run(2.0)
    assert group.core("name-1").settings.rebalance_after_s == 7.0


def test_a_value_of_a_node_that_is_gone_can_be_unset(group: Group) -> None:
    group.propose(AlterSettings("broker-9", {"half_checks": None}, 0), "operator")


def test_leaderships_return_once_the_setting_says_so() -> None:
    group = Group(rebalance_after_s=0.0)
    epochs = {broker: group.register(broker) for broker in "abc"}
    group.propose(topic(queues=3, replicas=3))
    epochs["a"] = group.register("a")
    beat(group, epochs, 12)

    def leaders() -> set[str | None]:
        return {queue.leader for queue in group.view(group.leader()).topics[0].queues}

    assert "a" not in leaders()
    group.propose(AlterSettings("", {"rebalance_after_s": "1"}, 0), "operator")
    beat(group, epochs, 4)
    assert "a" in leaders()
