"""Whatever frames come to either port, a name server goes on and keeps its cluster."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logboom.wire.actor import Effects, Instant, PeerAddress, Received
from logboom.wire.commands import Barrier
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity, PeerKind
from logboom.wire.session import Session
from tests.thorough import examples
from tests.unit.metadata.name_servers import KEY, Group
from tests.unit.wire.hostile import frames

WHO: tuple[tuple[str, PeerKind | None], ...] = (
    ("a stranger", None),
    ("a client", "client"),
    ("broker-1", "broker"),
    ("name-2", "name-server"),
)


class Intruder:
    """Someone who has said HELLO, perhaps even with the key, and then sends what it likes."""

    def __init__(
        self, group: Group, name: str, listener: str, who: str, kind: PeerKind | None
    ) -> None:
        self.group, self.core = group, group.core(name)
        self.address = PeerAddress(listener, who.encode())
        if kind is not None:
            self._greet(Identity(who, kind, 0, b"" if kind == "client" else KEY))

    def send(self, sent: list[Frame]) -> Effects:
        """One turn of the name server with these frames."""
        now = Instant(100.0 + self.group.scheduler.now, 0)
        return self.core.handle([Received(self.address, sent)], now)

    def _greet(self, identity: Identity) -> None:
        session = Session("name:1", identity, self.group.rng, self.group.scheduler.now)
        out = Effects()
        session.open(out, self.group.scheduler.now)
        while out.sends:
            sends, out = out.sends, Effects()
            for send in sends:
                for answer in self.send(list(send.frames)).sends:
                    if answer.peer == self.address:
                        session.receive(answer.frames, out, self.group.scheduler.now)
        assert session.state == "open"


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(WHO),
    st.sampled_from(("main", "raft")),
    st.lists(st.tuples(frames, st.booleans()), max_size=12),
)
def test_a_name_server_takes_any_frames(
    who: tuple[str, PeerKind | None], listener: str, acts: list[tuple[list[Frame], bool]]
) -> None:
    group = Group()
    leader = group.leader()
    group.register("broker-1")
    intruder = Intruder(group, leader, listener, *who)
    for sent, waits in acts:
        assert intruder.send(sent).stop is None
        if waits:
            group.run(0.05)
    group.run(1.0)
    assert not group.ended
    assert group.propose(Barrier(), "broker").code == ""
