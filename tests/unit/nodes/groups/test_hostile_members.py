"""Whatever members say, their coordinator goes on, and honest members are served."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logboom.wire.group_messages import GroupMessage
from tests.thorough import examples
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig
from tests.unit.wire.hostile import structs

NAMES = ("a", "b", "nobody", "", "x" * 5_000, "\0", "é%")
EPOCHS = (-1, 0, 1, 5, 8, 9, 10, 11, 12, 13, 20, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)


def _aimed(message: Any, group: str, member: str, epoch: int) -> Any:
    """The same message about a group, a member and an epoch that may exist."""
    wanted = {"group": group, "member": member, "epoch": epoch, "id": 5, "timeout_ms": 1_000}
    fields = set(message.__struct_fields__)
    return msgspec.structs.replace(message, **{k: v for k, v in wanted.items() if k in fields})


said = st.builds(
    _aimed,
    st.one_of([structs(kind) for kind in get_args(GroupMessage)]),
    st.sampled_from((GROUP, GROUP, GROUP, "other", "", "%", "x" * 5_000)),
    st.sampled_from(NAMES),
    st.sampled_from(EPOCHS),
)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(said, st.booleans()), max_size=8))
def test_a_coordinator_takes_whatever_members_say(acts: list[tuple[Any, bool]]) -> None:
    rig = GroupRig(2, brokers=1)
    honest = rig.join("a")
    honest.beat()
    stranger = rig.client("stranger")
    for message, waits in acts:
        stranger.ask(message)
        if waits:
            rig.settle(0.7)
    rig.settle(3.0)
    assert rig.stop is None
    # Who claims to be "a" may have put it out of the group, which is then joined again.
    again = rig.member("honest")
    assert again.join(replace=True).epoch > 0
    assert again.beat() is not None
    for queue in again.kept:
        assert again.commit(again.last(queue, 1)) == [""]
