"""Which settings a session gets for where it runs."""

from __future__ import annotations

import pytest

from logboom.pipeline.spark_session import LOCAL, local_settings


@pytest.mark.parametrize("master", ["", "local", "local[2]", "local[*]"])
def test_what_runs_here_listens_on_the_loopback(master: str) -> None:
    assert local_settings(master, submitted=False) == LOCAL


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_a_cluster_must_reach_the_driver(master: str) -> None:
    assert local_settings(master, submitted=False) == {}


def test_what_is_submitted_goes_by_what_was_said_to_spark_submit() -> None:
    assert local_settings("", submitted=True) == {}


def test_executors_fit_into_the_workers_of_a_cluster_on_this_machine() -> None:
    found = local_settings("local-cluster[2, 1, 512]", submitted=False)
    assert found == {**LOCAL, "spark.executor.memory": "512m"}
