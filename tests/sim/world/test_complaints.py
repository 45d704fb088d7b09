"""A handler that fails on every name server alike is noticed, though all states stay equal."""

from __future__ import annotations

import logging
from typing import Never

import pytest

from logboom.metadata.state import state_machine
from logboom.wire.commands import RegisterBroker
from tests.sim.judges.verdict import Failed
from tests.sim.scenario import Scenario
from tests.sim.world.complaints import Complaints
from tests.sim.world.trace import BrokenProperty


def test_a_name_server_that_fails_on_a_command_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register = vars(state_machine)["_HANDLERS"][RegisterBroker]
    calls: list[object] = []

    def now_and_then(*asked: object) -> object:
        calls.append(asked)
        if len(calls) % 12 == 0:
            raise KeyError("a queue that is gone")
        return register(*asked)

    monkeypatch.setitem(vars(state_machine)["_HANDLERS"], RegisterBroker, now_and_then)
    with pytest.raises(Failed, match="no handler fails") as found:
        Scenario(6).run()
    text = "command_failed command=RegisterBroker error=\"KeyError('a queue that is gone')\""
    assert text in str(found.value)


def test_nothing_is_listened_to_when_a_run_is_over() -> None:
    logger = logging.getLogger("logboom")
    before = list(logger.handlers)
    with Complaints():
        assert len(logger.handlers) == len(before) + 1
    assert logger.handlers == before


def failing() -> Never:
    raise ValueError("it")


@pytest.mark.parametrize(
    ("name", "wrong"), [("logboom.metadata.raft.raft", True), ("logboom.client", False)]
)
def test_name_servers_must_find_nothing_wrong_and_clients_may_tell(name: str, wrong: bool) -> None:
    complaints = Complaints()
    with complaints:
        logging.getLogger(name).error("%s: it differs", "name-1")
    if wrong:
        with pytest.raises(BrokenProperty, match="name-1: it differs"):
            complaints.judge()
    else:
        complaints.judge()


def test_an_exception_is_wrong_wherever_it_comes_from() -> None:
    complaints = Complaints()
    with complaints:
        try:
            failing()
        except ValueError:
            logging.getLogger("logboom.client").exception("a callback raised")
    with pytest.raises(BrokenProperty, match="a callback raised: ValueError"):
        complaints.judge()
