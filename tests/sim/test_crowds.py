"""A starved cluster with many queues recovers by itself, while it is starved and once it is not.

Taking over thousands of queues once took longer than a session: the broker was fenced meanwhile, and
all began anew. 1,000 queues at a hundredth of the speed are as much work as 10,000 at a tenth.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim.crowd_scenario import TOPICS, a_crowd_appears, starved
from tests.thorough import few_of

SIZES: Final = ((TOPICS, 100.0), (2_500, 10.0))
"""Topics of four queues, and how slow all nodes are."""
FEW: Final = SIZES[:1]
AWAY_S: Final = 8.0
STANDSTILL_S: Final = 4.0
WHOLE_S: Final = 30.0
"""Within this all queues are in sync again, the nodes still being slow."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("topics", "slowness"), few_of(SIZES, FEW))
def test_a_broker_that_was_killed_is_back_though_all_are_starved(
    topics: int, slowness: float
) -> None:
    crowd = starved(topics, slowness)
    crowd.kill("broker-1", AWAY_S)
    crowd.run(1.0)
    assert not crowd.whole()
    crowd.until("a starved cluster is whole again", WHOLE_S, crowd.whole)
    crowd.keep_sessions()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("topics", "slowness"), few_of(SIZES, FEW))
def test_brokers_that_stood_still_together_are_not_fenced(topics: int, slowness: float) -> None:
    crowd = starved(topics, slowness)
    crowd.pause_brokers(STANDSTILL_S)
    crowd.until("a starved cluster is whole again", WHOLE_S, crowd.whole)
    crowd.run(5.0)
    assert crowd.whole()
    crowd.keep_sessions()


def test_a_cluster_that_could_not_recover_is_whole_once_the_load_has_gone() -> None:
    crowd = starved(TOPICS, 200.0)
    crowd.kill("broker-1", AWAY_S)
    crowd.run(20.0)
    crowd.slow_down(10.0)
    crowd.until("a cluster is whole once the load has gone", WHOLE_S, crowd.whole)


def test_queues_that_appear_at_once_cost_no_broker_its_session() -> None:
    a_crowd_appears()
