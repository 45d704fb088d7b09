"""Flows for the settings of a running cluster."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.admin_flows import setting_flows
from logboom.client.calls import AskAll, AskNode, AskRaftLeader, LoadMetadata, ProposeCommand
from logboom.client.flows import run_flow
from logboom.client.results import NodeConfig
from logboom.wire.commands import Barrier, CommandResult
from logboom.wire.errors import Forbidden, InvalidRequest, TimedOut, Unavailable, UnknownResource
from logboom.wire.messages import ConfigDescribed, ConfigEntry, DescribeConfig, Watch, WatchResult
from logboom.wire.operation_commands import AlterSettings
from logboom.wire.view import BrokerView, NameServerView, SettingView, View

ENTRY = ConfigEntry("zone", "z", "", "file", True)


class Cluster:
    """What the nodes answer."""

    def __init__(self, settings: list[SettingView] | None = None, behind: int = 0) -> None:
        self.settings = settings
        self.behind = behind
        """How often the asked name server is behind the barrier."""
        self.proposed: list[Any] = []

    def answer(self, call: Any) -> Any:
        if isinstance(call, ProposeCommand):
            self.proposed.append(call.command)
            return CommandResult(9)
        if isinstance(call, LoadMetadata):
            return self._view(9)
        if isinstance(call, AskAll):
            for each in call.calls:
                assert isinstance(each, AskNode)
                assert isinstance(each.message, DescribeConfig)
                if each.endpoint == "b2:1":
                    each.outcome.fail(TimedOut("it is down"))
                else:
                    told = ConfigDescribed(0, each.endpoint, "broker", [ENTRY])
                    each.outcome.resolve((told, []))
            return None
        assert isinstance(call, AskRaftLeader)
        message = call.message(100)
        assert isinstance(message, Watch)
        assert (message.version, message.topics, message.wait_ms) == (-1, [], 0)
        self.behind -= 1
        return WatchResult(0, self._view(8 if self.behind >= 0 else 9)), []

    def _view(self, version: int) -> View:
        brokers = [BrokerView(f"broker-{n}", f"b{n}:1", "", 1, n == 1, 1) for n in (1, 2)]
        servers = [NameServerView("name-1", "n1:1")]
        return View(version, True, "c", brokers, [], [], [], servers, None, settings=self.settings)


def test_settings_are_listed_as_of_the_last_change() -> None:
    rows = [SettingView("b", "x", "1"), SettingView("", "y", "2")]
    cluster = Cluster(rows, behind=2)
    assert run_flow(setting_flows.list_settings(1.0), cluster.answer) == rows[::-1]
    assert cluster.proposed == [Barrier()]


def test_who_may_not_see_them_is_told_so() -> None:
    with pytest.raises(Forbidden, match="describe the cluster"):
        run_flow(setting_flows.list_settings(1.0), Cluster(None).answer)


def test_name_servers_that_stay_behind_are_given_up() -> None:
    with pytest.raises(Unavailable, match="try again"):
        run_flow(setting_flows.list_settings(1.0), Cluster([], behind=1_000).answer)


def test_values_are_checked_before_anything_is_asked_and_sent_in_one_form() -> None:
    cluster = Cluster()
    with pytest.raises(InvalidRequest, match="did you mean half_checks"):
        run_flow(setting_flows.alter_settings({"half_check": 1}, "", 7, 1.0), cluster.answer)
    assert cluster.proposed == []
    values = {"replace_after_s": 900.0, "half_checks": None, "balance_mode": "off"}
    run_flow(setting_flows.alter_settings(values, "", 7, 1.0), cluster.answer)
    stored = {"replace_after_s": "900", "half_checks": None, "balance_mode": "off"}
    assert cluster.proposed == [AlterSettings("", stored, 7)]


def test_every_node_is_asked_for_its_settings_and_one_that_is_down_named() -> None:
    found = run_flow(setting_flows.describe_config("", 1.0), Cluster().answer)
    assert found == [
        NodeConfig("broker-1", "broker", [ENTRY]),
        NodeConfig("broker-2", "", [], "it is down"),
        NodeConfig("name-1", "broker", [ENTRY]),
    ]
    only = run_flow(setting_flows.describe_config("broker-1", 1.0), Cluster().answer)
    assert [each.node for each in only] == ["broker-1"]
    with pytest.raises(UnknownResource, match="broker-9"):
        run_flow(setting_flows.describe_config("broker-9", 1.0), Cluster().answer)
