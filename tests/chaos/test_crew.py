"""What befalls the members of a group means what the crew takes it to mean."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from logboom.client import connect
from logboom.deploy import embedded
from tests.chaos import crew as crew_module
from tests.chaos.crew import STATIC, Crew
from tests.chaos.links import Links, ProxyLinks
from tests.chaos.plan import Plan
from tests.chaos.rig import TOPIC, Rig


class OneNode:
    """A rig of one node, to which nothing happens."""

    def __init__(self, endpoints: list[str], links: Links) -> None:
        self.endpoints = endpoints
        self.links = links


def test_who_is_stopped_and_gets_a_successor_is_the_one_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seed 7001 stopped a member on its way into the group: it came in after its successor, which ended,
    # and the crew waited for the wrong one.
    monkeypatch.setattr(crew_module, "REPLACED", 1.0)
    plan = Plan(1, 0.0, (), 0.0, tmp_path, queues=1, members=1, session_ms=10_000)
    plan.records.mkdir()
    with closing(ProxyLinks()) as links, embedded() as node, connect(node.endpoints) as boom:
        boom.admin.create_topic(TOPIC, queues=plan.queues)
        crew = Crew(plan, cast("Rig", OneNode(node.endpoints, links)))
        try:
            crew._start(STATIC)  # noqa: SLF001 - one thing that happens, without all the others
            (first,) = crew._members  # noqa: SLF001 - whom it has chosen among
            crew._stop_for_long()  # noqa: SLF001 - drawn at random otherwise
            (second,) = crew._members  # noqa: SLF001 - who is left
            assert first.process.returncode == 0
            assert second.process.poll() is None
            for _ in range(2):  # It says so once.
                second.wait_ready()
        finally:
            crew.kill()
