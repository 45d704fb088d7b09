"""The results that are kept for repeated commands, when the table of proposers is full."""

from __future__ import annotations

from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result, encode_entry, entry_of
from logboom.metadata.state.proposal_dedup import KEPT_MS, Dedup, owner_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.commands import AllocateProducerIds, Barrier
from logboom.wire.features import FEATURES, RESULTS_BY_OWNER
from logboom.wire.operation_commands import RaiseFeatures

MAX_TABLE_PROPOSERS = 8


class Group:
    """Two state machines; the second one began with a snapshot of the first."""

    def __init__(self, level: int = FEATURES) -> None:
        self.state = StateMachine()
        self.state.dedup = Dedup(MAX_TABLE_PROPOSERS)
        self.other = self.state
        self.propose("", RaiseFeatures(level, 0))
        assert self.state.cluster.features == level

    def propose(
        self, proposer: str, command: AnyLogCommand, number: int = 1, time_ms: int = 1
    ) -> int:
        """Apply a command on both; return its value."""
        entry = encode_entry(entry_of(proposer, number, time_ms, command))
        result = self.state.apply(entry)
        if self.other is not self.state:
            assert self.other.apply(entry) == result
        value = decode_result(result).value
        return value if isinstance(value, int) else 0

    def part(self) -> None:
        """Let the second one begin with a snapshot."""
        self.other = StateMachine()
        self.other.restore(self.state.snapshot())
        self.other.dedup.max_proposers = MAX_TABLE_PROPOSERS


def allocate(group: Group, proposer: str) -> int:
    return group.propose(proposer, AllocateProducerIds(10))


def test_a5_results_of_who_has_fewer_proposers_stay() -> None:
    group = Group()
    first = allocate(group, "user:alice:laptop")
    nodes = allocate(group, "broker-1/7/isr")
    group.part()
    for number in range(3 * MAX_TABLE_PROPOSERS):
        group.propose(f"user:mallory:{number}", Barrier(), time_ms=2 + number)
    assert allocate(group, "user:alice:laptop") == first
    assert allocate(group, "broker-1/7/isr") == nodes
    assert len(group.state.dedup.windows) == MAX_TABLE_PROPOSERS
    assert group.state.snapshot() == group.other.snapshot()


def test_a5_users_with_a_fair_share_keep_it_against_several_others() -> None:
    group = Group()
    firsts = {name: allocate(group, f"user:{name}:x") for name in ("alice", "bob")}
    for number in range(3 * MAX_TABLE_PROPOSERS):
        group.propose(f"user:mallory-{number % 3}:{number}", Barrier())
    assert {name: allocate(group, f"user:{name}:x") for name in firsts} == firsts


def test_who_has_most_proposers_loses_its_oldest_also_to_who_has_fewer() -> None:
    group = Group()
    first = allocate(group, "user:alice:0")
    for number in range(1, MAX_TABLE_PROPOSERS):
        group.propose(f"user:alice:{number}", Barrier())
    assert allocate(group, "user:alice:0") == first
    group.propose("user:bob:x", Barrier())
    assert allocate(group, "user:alice:0") != first, "it is forgotten, so it runs again"


def test_clients_without_a_key_are_one_owner() -> None:
    group = Group()
    first = allocate(group, "user:alice:laptop")
    for number in range(3 * MAX_TABLE_PROPOSERS):
        group.propose(f"client:{number}", Barrier())
    assert allocate(group, "user:alice:laptop") == first


def test_of_equals_the_one_that_was_silent_longest_goes() -> None:
    group = Group()
    for number in range(MAX_TABLE_PROPOSERS + 1):
        group.propose(f"user:u{(5 * number) % 9}:x", Barrier(), time_ms=1 + number)
        group.part()
    assert "user:u0:x" not in group.state.dedup.windows
    assert len(group.state.dedup.windows) == MAX_TABLE_PROPOSERS


def test_below_the_level_the_oldest_of_all_goes_as_older_name_servers_do() -> None:
    group = Group(RESULTS_BY_OWNER - 1)
    allocate(group, "user:alice:laptop")
    for number in range(MAX_TABLE_PROPOSERS):
        group.propose(f"user:mallory:{number}", Barrier())
    assert "user:alice:laptop" not in group.state.dedup.windows


def test_what_has_expired_goes_whoever_owns_it() -> None:
    dedup = Dedup()
    dedup.keep("user:alice:x", 1, b"", 0, by_owner=True)
    dedup.keep("user:bob:x", 1, b"", KEPT_MS + 1, by_owner=True)
    assert list(dedup.windows) == ["user:bob:x"]


def test_an_owner_is_read_from_the_prefix_alone() -> None:
    owners = [owner_of(each) for each in ("user:a:user:b:c", "client:user:b", "broker-1/3/isr")]
    assert owners == ["user:a", "client", ""]
