"""What the Raft leader does for users, on three name servers."""

from __future__ import annotations

import copy

import pytest

from logboom.metadata.access.initial_keys import InitialKeys
from logboom.metadata.config import NameServerConfig, NameServerListener
from logboom.metadata.name_server import NameServer
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.access_table import AccessTable
from logboom.wire.access.access_commands import (
    AddRule,
    AddUserKey,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteUser,
    RemoveRule,
    RemoveUserKey,
)
from logboom.wire.access.access_rules import ADMINISTRATOR, user_of
from logboom.wire.actor import Effects
from logboom.wire.authenticator import REFUSED
from tests.unit.metadata.access.access_states import READ, key, public_key
from tests.unit.metadata.name_servers import Group

ROOT, NODE, OTHER = public_key(1), public_key(2), public_key(3)


def tables(group: Group) -> list[AccessTable]:
    """Those of all name servers, once they agree."""
    group.run(1.0)
    found = [group.core(name).cluster.access for name in group.processes]
    snapshots = {group.core(name).state.snapshot() for name in group.processes}
    assert len(snapshots) == 1
    return found


def restart(group: Group) -> None:
    """All name servers end, and start with the configuration as it is now."""
    for name in list(group.processes):
        group.kill(name)
    for member in group.members:
        group.start(member.id)
    group.leader()


def test_users_of_the_configuration_are_admitted_once_and_everywhere() -> None:
    group = Group(administrators={"root": ROOT}, initial_nodes={"name-1": NODE})
    group.leader()
    for table in tables(group):
        assert list(table.administrators) == ["root"]
        assert set(table.users) == {"root", "node:name-1"}
    applied = group.core(group.leader()).cluster.version
    restart(group)
    tables(group)
    assert group.core(group.leader()).cluster.version == applied


def test_a_removed_key_stays_out_and_a_new_one_lets_in_who_was_lost() -> None:
    group = Group(administrators={"root": ROOT})
    group.leader()
    group.run(0.5)
    group.propose(CreateUser("boss", [key("first", 9)], [ADMINISTRATOR], 0), "operator")
    group.propose(DeleteUser("root"), "operator")
    restart(group)
    assert set(tables(group)[0].users) == {"boss"}
    # The only administrator loses its key: a new one stands in the configuration.
    group.administrators["boss"] = OTHER
    restart(group)
    boss = tables(group)[0].users["boss"]
    assert [each.public for each in boss.keys] == [public_key(9), OTHER]
    assert set(tables(group)[0].users) == {"boss"}
    group.propose(RemoveUserKey("boss", "initial"), "operator")
    restart(group)
    assert [each.public for each in tables(group)[0].users["boss"].keys] == [public_key(9)]


def test_keys_end_on_every_name_server_by_the_logs_clock() -> None:
    group = Group()
    # Of the name servers' clocks some are years ahead, others behind.
    for years, process in zip((-30, 0, 30), group.processes.values(), strict=True):
        process.clock.wall_ahead_ms = years * 365 * 86_400_000
    group.propose(CreateUser("alice", [key("first", 2)], [], 0), "operator")
    # By the clock of who adds the key it is the year 33658; it shall live for 5 s.
    added = 10**15
    group.propose(AddUserKey("alice", key("short", 3, added, added + 5_000)), "operator")
    group.run(4.5)
    assert all(
        group.core(name).cluster.access.book.principal_of(public_key(3)) for name in group.processes
    )
    group.run(1.0)
    for table in tables(group):
        assert table.book.principal_of(public_key(3)) is None
        assert table.book.principal_of(public_key(2)) is not None
        assert table.users["alice"].keys[1].ended


def test_a_key_ends_after_a_change_of_the_leader_too() -> None:
    group = Group()
    group.propose(CreateUser("alice", [key("first", 2)], [], 0), "operator")
    group.propose(AddUserKey("alice", key("short", 3, 0, 5_000)), "operator")
    group.run(2.0)
    group.kill(group.leader())
    group.leader()
    group.run(6.0)
    assert tables(group)[0].users["alice"].keys[1].ended


def test_a_name_server_restored_from_an_old_disk_catches_up() -> None:
    group = Group()
    group.propose(CreateUser("alice", [key("first", 2)], [], 0), "operator")
    group.propose(AddRule("user:alice", READ), "operator")
    group.run(1.0)
    follower = group.followers()[0]
    old = copy.deepcopy(group.disks[follower])
    group.propose(RemoveRule("user:alice", READ), "operator")
    group.propose(AddUserKey("alice", key("second", 3)), "operator")
    group.propose(RemoveUserKey("alice", "first"), "operator")
    for number in range(60):  # Beyond what the log keeps: the rest comes as a snapshot.
        group.propose(CreateRole(f"r{number}"), "operator")
    group.kill(follower)
    group.disks[follower] = old
    book = group.start(follower).cluster.access.book
    for table in tables(group):
        assert not table.book.decide("alice", "read", "topic", "orders").allowed
        assert table.book.public_keys_of("alice") == [public_key(3)]
    assert group.core(follower).cluster.access.book is book


def test_nodes_of_the_configuration_may_connect_before_there_is_a_leader() -> None:
    keys = InitialKeys(
        NameServerConfig(id="name-1", administrators={"root": ROOT}, initial_nodes={"name-2": NODE})
    )
    cluster = StateMachine().cluster
    principal = keys.principal_of(NODE, cluster)
    assert principal is not None
    assert principal.startswith("node:name-2/initial")
    assert keys.is_current(principal, cluster)
    assert keys.principal_of(ROOT, cluster) is None, "administrators wait for a leader"
    assert keys.principal_of(OTHER, cluster) is None
    # From its admission on the replicated state alone counts.
    group = Group(size=1, initial_nodes={"name-2": NODE})
    group.leader()
    group.run(0.5)
    cluster = group.core("name-1").cluster
    assert keys.principal_of(NODE, cluster) == cluster.access.book.principal_of(NODE) == principal
    assert keys.is_current(principal, cluster)
    group.propose(DeleteUser("node:name-2"), "operator")
    assert keys.principal_of(NODE, cluster) is None
    assert not keys.is_current(principal, cluster)


def test_a_key_that_the_configuration_does_not_list_ends_with_its_user() -> None:
    group = Group(size=1)
    group.propose(CreateUser("alice", [key("first", 3)], [], 0), "operator")
    cluster = group.core(group.leader()).cluster
    keys = InitialKeys(NameServerConfig(id="name-1", initial_nodes={"name-2": NODE}))
    principal = keys.principal_of(OTHER, cluster)
    assert principal is not None
    assert keys.is_current(principal, cluster)
    group.propose(DeleteUser("alice"), "operator")
    assert keys.is_current(principal, cluster) is False
    assert keys.principal_of(OTHER, cluster) is None


def knowing_old_keys() -> Group:
    """Name servers that know root and name-2, each with a key that has been followed by another
    since."""
    group = Group()
    for user, number in (("root", 1), ("node:name-2", 2)):
        group.propose(CreateUser(user, [key("first", number)], [], 0), "operator")
    return group


def with_new_keys(group: Group) -> NameServer:
    """All end, and name-1 starts with a configuration that lists newer keys, of name-2 and name-4;
    it knows what its disk tells, and hears nobody."""
    group.run(2.0)
    for name in list(group.processes):
        group.kill(name)
    group.administrators = {"root": public_key(8)}
    group.initial_nodes = {"name-2": OTHER, "name-4": public_key(4)}
    core = group.start(
        "name-1",
        listeners=[
            NameServerListener(
                name=name,
                listen=f"name-1:{port}",
                advertise=f"name-1:{port}",
                security="curve",
                for_raft=name == "raft",
            )
            for name, port in (("main", 7801), ("raft", 7821))
        ],
    )
    group.run(0.2)
    assert "node:name-2" in core.cluster.access.users
    return core


@pytest.mark.parametrize("listener", ["main", "raft"])
def test_an_old_disk_does_not_keep_out_nodes_whose_newer_keys_are_in_the_configuration(
    listener: str,
) -> None:
    core = with_new_keys(knowing_old_keys())
    for public, user in ((NODE, "name-2"), (OTHER, "name-2"), (public_key(4), "name-4")):
        verdict = core.authenticate(public, "10.0.0.1", listener)
        assert verdict.principal is not None
        assert user_of(verdict.principal) == f"node:{user}"
        assert core.authorizer.is_current(verdict.principal)
    assert core.authenticate(public_key(8), "10.0.0.1", listener) is REFUSED, (
        "nobody's but a node's"
    )


def test_a_name_server_dials_nodes_with_the_keys_of_its_configuration_too() -> None:
    group = knowing_old_keys()
    core = with_new_keys(group)
    core.links.set_peers({"name-2": "name-2:7821", "name-9": "name-9:7821"}, Effects(), 0.0, ())
    assert [*core.server_keys("name-2:7821")] == [NODE, OTHER]
    assert [*core.server_keys("name-9:7821")] == []
    assert [*core.server_keys("elsewhere:7821")] == []


def test_s4_a_disabled_node_stays_out_whatever_the_configuration_lists() -> None:
    group = knowing_old_keys()
    group.propose(AlterUser("node:name-2", True, None, None, 1), "operator")
    core = with_new_keys(group)
    assert core.authenticate(OTHER, "10.0.0.1", "raft") is REFUSED
    restart(group)
    group.run(1.0)
    core = group.core(group.leader())
    # The leader admits the other keys of the configuration, and enables nobody by this one.
    assert set(core.cluster.access.users) == {"root", "node:name-2", "node:name-4"}
    assert core.cluster.access.users["node:name-2"].disabled
    assert core.authenticate(OTHER, "10.0.0.1", "raft") is REFUSED
    group.propose(AlterUser("node:name-2", False, None, None, 1), "operator")
    group.run(1.0)
    assert core.cluster.access.book.public_keys_of("node:name-2") == [NODE, OTHER]


def test_a_connection_goes_on_when_the_state_learns_its_key_under_another_label() -> None:
    group = knowing_old_keys()
    group.run(1.0)
    cluster = group.core("name-1").cluster
    keys = InitialKeys(NameServerConfig(id="name-1", initial_nodes={"name-2": OTHER}))
    principal = keys.principal_of(OTHER, cluster)
    assert principal is not None
    group.propose(AddUserKey("node:name-2", key("second", 3)), "operator")
    group.run(1.0)
    cluster = group.core("name-1").cluster
    assert keys.principal_of(OTHER, cluster) != principal
    assert keys.is_current(principal, cluster)
    group.propose(AlterUser("node:name-2", True, None, None, 1), "operator")
    group.run(1.0)
    assert not keys.is_current(principal, group.core("name-1").cluster)


def test_a_connection_ends_when_the_state_gives_its_key_to_another_user() -> None:
    group = knowing_old_keys()
    group.run(1.0)
    keys = InitialKeys(NameServerConfig(id="name-1", initial_nodes={"name-2": OTHER}))
    principal = keys.principal_of(OTHER, group.core("name-1").cluster)
    assert principal is not None
    group.propose(CreateUser("node:name-3", [key("first", 3)], [], 0), "operator")
    group.run(1.0)
    assert not keys.is_current(principal, group.core("name-1").cluster)


def test_a_key_that_the_state_knows_is_decided_on_by_the_state() -> None:
    group = knowing_old_keys()
    group.run(1.0)
    cluster = group.core("name-1").cluster
    config = NameServerConfig(id="name-1", initial_nodes={"name-3": NODE, "name-9": OTHER})
    keys = InitialKeys(config)
    principal = keys.principal_of(NODE, cluster)
    assert principal is not None
    assert user_of(principal) == "node:name-2", "the key is that of another node"
    assert keys.public_keys_of("name-3", cluster) == []
    assert keys.principal_of(OTHER, cluster) is not None
    cluster.former_name_servers["name-9"] = None
    assert keys.principal_of(OTHER, cluster) is None, "a removed name server does not come back"
    assert [user.name for user in keys.fresh(cluster)] == ["node:name-3"]
