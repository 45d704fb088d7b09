"""Numbers at their extremes, in every field of every request and command that name servers take.

Each is refused, or harms nobody: the name servers go on, count on from where they were, and what they
keep can be stored and read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import msgspec
import pytest

from logboom.metadata.state.restore_commands import MAX_COUNTER
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.acceptor import CLIENT_COMMANDS, OPERATOR_COMMANDS
from logboom.wire.access.access_commands import CreateUser
from logboom.wire.access.access_rules import Quota, UserKey, UserView
from logboom.wire.base import Request
from logboom.wire.commands import AllocateProducerIds, CreateTopic
from logboom.wire.features import FEATURES
from logboom.wire.frames import decode
from logboom.wire.group_commands import JoinGroup
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import NODES_ONLY, Propose
from logboom.wire.transactions import OpenApplication
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group
from tests.unit.wire.kept_numbers import EXTREMES, Number, numbers

NUMBERS: Final = [each for each in numbers() if issubclass(each.request, Request)]
OWNERS: Final = {name: list(of) for name, of in groupby(NUMBERS, lambda each: each.owner)}
GROUP: Final = "billing"
COUNTED: Final = 1 << 20
"""More than these tests count anything up to."""
BY_CLIENTS: Final = {str(each.__struct_config__.tag) for each in CLIENT_COMMANDS}
BY_OPERATORS: Final = {str(each.__struct_config__.tag) for each in OPERATOR_COMMANDS}


def ints(value: Any) -> Iterator[int]:
    """All integers within lists and maps."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from ints(each)
    elif isinstance(value, dict):
        yield from ints([*value, *value.values()])
    elif isinstance(value, int):
        yield value


class Bench:
    """A name server with brokers, a topic and a group with a member."""

    def __init__(self) -> None:
        self.group = Group(size=1)
        self.epochs = {name: self.group.register(name) for name in ("a", "b", "c")}
        self.made = self.tried = 0
        self.create("flights")
        self.group.propose(CreateUser("ann", [UserKey("laptop", "1" * 40, 0)], [], 0), "operator")
        self.joined = self.group.propose(self.joining("member"), "broker").value
        owned = self.state.cluster.groups.by_name[GROUP].topics[1].owner_epochs[0]
        self.usual: dict[str, Any] = {
            "acked": [],
            "app_id": "app",
            "backup": "backup",
            "broker": "a",
            "change": "reset",
            "command.config": GroupConfig(),
            "commit": True,
            "consumed": [],
            "coordinator": self.coordinator.coordinator,
            "coordinator_epoch": self.coordinator.coordinator_epoch,
            "epoch": self.joined,
            "decide.epoch": -1,
            "group": GROUP,
            "instance_epoch": self.epochs["a"],
            "joingroup.member": "other",
            "leader_epoch": self.state.cluster.topics["flights"].queues[0].epoch,
            "member": "member",
            "setbrokermode.mode": "maintenance",
            "name": "flights",
            "createtopic.name": "other",
            "restoretopic.name": "restored",
            "restoregroup.group": "restored",
            "offset": 0,
            "owner_epoch": owned,
            "parked": [],
            "prefer": None,
            "proposer": "",
            "queue": 0,
            "createtopic.queues": 1,
            "createtopic.replicas": 1,
            "room": "",
            "session": 1,
            "strategy": "sticky",
            "altergroup.subscription": {"flights": "*"},
            "groupjoin.subscription": {"flights": "*"},
            "joingroup.subscription": {"flights": "*"},
            "timeout_ms": 1_000,
            "topic": "flights",
            "topic_id": 1,
            "describeaccess.user": "ann",
            "roles": [],
            "rules": [],
            "quota": Quota(),
            "setdefaultquota.seen": None,
            "settlemessages.again": [],
            "registerbroker.endpoint": "d:7711",
            "registerbroker.features": FEATURES,
            "heartbeat.features": FEATURES,
            "alteruser.name": "ann",
            "adduserkey.name": "ann",
            "wait_ms": 0,
        }

    @property
    def state(self) -> StateMachine:
        """What the name server keeps."""
        return self.group.core(self.group.leader()).state

    @property
    def users(self) -> list[UserView]:
        """All users, as administrators are told of them."""
        return list(self.state.cluster.access.book.users.values())

    @property
    def coordinator(self) -> Any:
        """The group as it is kept."""
        return self.state.cluster.groups.by_name[GROUP]

    def create(self, name: str) -> int:
        """A topic; its id."""
        value = self.group.propose(CreateTopic(name, 1, 1, TopicConfig(), 0)).value
        assert isinstance(value, int)
        return value

    def joining(self, member: str) -> JoinGroup:
        """How a member joins, by its coordinator."""
        known = self.state.cluster.groups.by_name.get(GROUP)
        epoch = 0 if known is None else known.coordinator_epoch
        names = (GROUP, member, "", "client", "")
        return JoinGroup(*names, {"flights": "*"}, False, GroupConfig(), epoch, 0)

    def try_out(self, number: Number, value: int) -> Any:
        """Send the request with this number, as who may send it."""
        self.tried += 1
        fresh: dict[str, Any] = {
            "createtopic.name": f"t-{self.tried}",
            "createuser.name": f"u-{self.tried}",
            "label": f"key-{self.tried}",
            "public": f"{self.tried:0>40}",
        }
        if number.owner == "joingroup":
            # Its settings count for a new group alone.
            fresh |= {"group": f"g-{self.tried}", "coordinator_epoch": 0}
        message = decode([number.request_with(value, {**self.usual, **fresh})])
        assert isinstance(message, Request)
        kind: Any = "client" if number.owner in BY_CLIENTS else "operator"
        of_nodes = isinstance(message, Propose) and number.owner not in BY_CLIENTS | BY_OPERATORS
        if of_nodes or isinstance(message, NODES_ONLY):
            kind = "broker"
        message.timeout_ms = min(max(message.timeout_ms, 100), 1_000)
        return self.group.wait(self.group.begin(self.group.leader(), message, kind, 1.0), 2.0)

    def check(self, counted: int = COUNTED) -> None:
        """Everybody else is served, and nothing is kept that cannot be."""
        assert not self.group.ended
        self.made += 1
        assert self.create(f"fresh-{self.made}") < counted
        first = self.group.propose(AllocateProducerIds(1)).value
        assert isinstance(first, int)
        assert 0 <= first < counted
        opened = self.group.propose(OpenApplication(f"fresh-{self.made}", 0)).value
        assert isinstance(opened, list)
        assert int(opened[0]) < counted
        assert self.state.version < counted
        view = view_since(self.state.cluster, -1, None, [], None, None, "")
        told = [*ints(msgspec.to_builtins(view)), *ints(msgspec.to_builtins(self.users))]
        assert all(-(1 << 63) <= each < 1 << 63 for each in told), (
            "clients in other languages read it"
        )
        assert 0 <= self.state.cluster.clock_ms < counted
        again, snapshot = StateMachine(), self.state.snapshot()
        again.restore(snapshot)
        assert again.snapshot() == snapshot


@pytest.mark.parametrize("owner", OWNERS)
def test_numbers_at_their_extremes_harm_nobody_else(owner: str) -> None:
    bench = Bench()
    for number in OWNERS[owner]:
        for value in EXTREMES:
            answer = bench.try_out(number, value)
            code = getattr(getattr(answer, "result", answer), "code", "")
            assert code != "INTERNAL", (number.name, value, answer)
        bench.check(MAX_COUNTER if owner == "restorecounters" else COUNTED)
