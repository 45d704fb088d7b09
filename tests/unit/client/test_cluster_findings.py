"""What is found about queues, given what nodes answer."""

from __future__ import annotations

import pytest

from logboom.client.checks.cluster_checks import cluster_findings
from logboom.client.checks.cluster_health import ClusterStatus
from logboom.wire.messages import StatsResult
from logboom.wire.view import QueueView, TopicConfig, TopicView, View

WANTED = "queues have the wanted number of replicas"


@pytest.mark.parametrize(
    ("replicas", "removing", "wanted", "found"),
    [
        (["a", "b"], [], 3, "not 1: t/0"),
        (["a", "b", "c"], ["c"], 3, "not 1: t/0"),
        (["a", "b", "c"], [], 3, "all"),
        (["a", "b", "c"], ["c"], 2, "all"),
        # An older name server does not say.
        (["a", "b"], [], 0, "all"),
    ],
)
def test_queues_with_fewer_replicas_than_wanted_are_reported(
    replicas: list[str], removing: list[str], wanted: int, found: str
) -> None:
    queue = QueueView(replicas, "a", 1, 1, replicas, [], removing=removing)
    topic = TopicView("t", 1, TopicConfig(), [queue], 1, replicas=wanted)
    view = View(1, True, "c", [], [topic], [], [], [], None)
    (finding,) = [
        each for each in cluster_findings(ClusterStatus(view, {})) if each.check == WANTED
    ]
    assert (finding.found, finding.result) == (found, "ok" if found == "all" else "warning")
    assert found == "all" or "--replicas" in finding.fix


def test_a_second_process_with_a_brokers_id_is_reported() -> None:
    stats = StatsResult(0, "b", "broker", {"rival": "c:1", "lease": 1})
    view = View(1, True, "c", [], [], [], [], [], None)
    found = {each.check: each for each in cluster_findings(ClusterStatus(view, {"b": stats}))}
    finding = found["identity of b"]
    assert finding.result == "failed"
    assert "c:1" in finding.found
    assert "`id`" in finding.fix


def test_a_node_that_accepts_two_cluster_keys_is_reported() -> None:
    view = View(1, True, "c", [], [], [], [], [], None)
    for other, is_told in (("0ther", True), ("", False)):
        stats = StatsResult(
            0, "b", "broker", {"cluster_key": "f1rst", "other_cluster_key": other, "lease": 1}
        )
        found = {each.check: each for each in cluster_findings(ClusterStatus(view, {"b": stats}))}
        assert ("cluster key of b" in found) is is_told
        assert not is_told or "f1rst and accepts 0ther" in found["cluster key of b"].found


def test_figures_that_everybody_reads_are_reported_whether_they_are_encrypted_or_not() -> None:
    counters: dict[str, int | float | str] = {
        "metrics_exposed": 1,
        "metrics_endpoint": "10.0.0.1:9711",
        "lease": 1,
    }
    view = View(1, True, "c", [], [], [], [], [], None)
    standing = ClusterStatus(view, {"b": StatsResult(0, "b", "broker", counters)})
    found = {each.check: each for each in cluster_findings(standing)}["metrics of b"].found
    assert found == "10.0.0.1:9711 asks nobody who it is: whoever reaches it reads the figures"


def test_a_data_folder_that_others_can_look_into_is_reported_with_the_remedy() -> None:
    stats = StatsResult(0, "b", "broker", {"data_exposed": "/srv/our data", "lease": 1})
    view = View(1, True, "c", [], [], [], [], [], None)
    found = {each.check: each for each in cluster_findings(ClusterStatus(view, {"b": stats}))}
    finding = found["data folder of b"]
    assert finding.result == "warning"
    assert "/srv/our data" in finding.found
    assert "chmod 700 '/srv/our data'" in finding.fix
    private = StatsResult(0, "b", "broker", {"data_exposed": "", "lease": 1})
    checks = {each.check for each in cluster_findings(ClusterStatus(view, {"b": private}))}
    assert "data folder of b" not in checks
