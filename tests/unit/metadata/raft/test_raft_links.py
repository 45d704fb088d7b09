"""Raft links over a network that breaks: in order within one session, or not at all (R1, R10)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from logboom.metadata.raft.raft_links import GUEST_SILENCE, SILENCE, RaftLinks
from logboom.wire.acceptor import Acceptor
from logboom.wire.actor import Effects, Event, HandshakeFailed, Instant, PeerAddress, Received
from logboom.wire.frames import encode
from logboom.wire.hello import Identity
from logboom.wire.messages import RaftFrame
from tests.sim.world.network import Network
from tests.sim.world.process import Process
from tests.sim.world.scheduler import Clock, Scheduler
from tests.sim.world.trace import Trace
from tests.thorough import seeds

KEY = b"the key"
NAMES = ("name-1", "name-2", "name-3")


class Talker:
    """A core that sends numbered frames on every link that is up, and checks what it hears."""

    def __init__(self, name: str, rng: random.Random, now: float, key: bytes = KEY) -> None:
        self.name = name
        self.links = RaftLinks(Identity(name, "name-server", cluster_key=key), self, rng)
        self.gate = Acceptor(name, key, rng)
        self.up: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.heard: dict[str, tuple[bytes, int]] = {}
        """Peer → (its session's mark, next number), while up."""
        self.frames = 0
        self.ups = 0
        self.malformed = 0
        """So many of the next frames are called malformed."""
        self._peers = {other: f"{other}:7721" for other in NAMES if other != name}
        self._began = False
        self._next = now

    def peer_up(self, peer: str, session: int) -> None:
        """A link is up."""
        assert peer not in self.up, "up twice without down"
        self.up[peer] = session
        self.sent[peer] = 0
        self.heard.pop(peer, None)
        self.ups += 1

    def peer_down(self, peer: str) -> None:
        """A link is down."""
        del self.up[peer]

    def receive(self, peer: str, frame: bytes, session: int | None = None) -> bool:
        """A frame arrives: the next of the session that began when the link came up."""
        assert session == self.up[peer], "a frame of another session"
        mark, number = frame.split(b" ")
        known = self.heard.get(peer)
        if known is None:
            assert number == b"0", "the session's first frames are lost"
        else:
            assert known == (mark, int(number)), "out of order, or of two sessions"
        self.heard[peer] = (mark, int(number) + 1)
        self.frames += 1
        if self.malformed:
            self.malformed -= 1
            return False
        return True

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn."""
        out = Effects()
        if not self._began:
            self._began = True
            self.links.set_peers(self._peers, out, now.mono)
        for event in events:
            assert isinstance(event, Received)
            if isinstance(event.peer, str):
                assert self.links.from_dialled(event.peer, event.frames, out, now.mono)
                continue
            admitted = self.gate.admit(event.peer, event.frames, out, now.mono)
            if admitted is not None and isinstance(admitted[1], RaftFrame):
                self.links.from_peer(admitted[1], admitted[2], out, now.mono)
        self.links.tick(out, now.mono)
        if now.mono >= self._next:
            self._next = now.mono + 0.05
            for peer, session in list(self.up.items()):
                mark = f"{self.name}/{session}".encode()
                self.links.send(peer, b"%s %d" % (mark, self.sent[peer]), out, now.mono)
                self.sent[peer] += 1
        return out

    def deadline(self) -> float | None:
        """The earlier of the next numbered frames and what the links want."""
        wanted = self.links.deadline()
        return self._next if wanted is None else min(wanted, self._next)


class Trio:
    """Three talkers on a simulated network."""

    def __init__(self, seed: int, keys: Sequence[bytes] = (KEY, KEY, KEY)) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, random.Random(seed + 1))
        self.talkers: dict[str, Talker] = {}
        self.processes: dict[str, Process] = {}
        for name, key in zip(NAMES, keys, strict=True):
            self.start(name, key)

    def start(self, name: str, key: bytes = KEY) -> None:
        clock = Clock(self.scheduler, 100.0, 1.0, 0)
        talker = Talker(name, random.Random(self.rng.random()), clock.mono(), key)
        process = Process(
            name,
            talker,
            clock,
            self.scheduler,
            self.network,
            random.Random(self.rng.random()),
            Trace(lambda: self.scheduler.now),
            lambda process, reason: None,
        )
        self.talkers[name], self.processes[name] = talker, process
        self.network.listen(process, "raft", f"{name}:7721")

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + seconds)

    def all_up(self) -> bool:
        return all(talker.links.up_count() == 2 for talker in self.talkers.values())


def test_links_come_up_and_stay_up() -> None:
    trio = Trio(1)
    trio.run(1.0)
    assert trio.all_up()
    trio.run(20.0)
    assert [talker.ups for talker in trio.talkers.values()] == [2, 2, 2]
    assert all(talker.frames > 600 for talker in trio.talkers.values())


@pytest.mark.parametrize("seed", seeds(12))
def test_r1_r10_whatever_breaks_frames_are_whole_sessions_in_order(seed: int) -> None:
    trio = Trio(seed)
    trio.run(1.0)
    for _ in range(25):
        one, other = trio.rng.sample(NAMES, 2)
        match trio.rng.randrange(5):
            case 0:
                trio.network.break_between(one, other)
            case 1:
                trio.network.block(one, other)
            case 2:
                trio.network.heal()
            case 3:
                trio.processes[one].kill()
                trio.start(one)
            case _:
                trio.talkers[one].malformed = 1
        trio.run(trio.rng.uniform(0.0, 3.0))
    trio.network.heal()
    trio.run(10.0)
    assert trio.all_up(), "healed links come up again"
    assert max(talker.ups for talker in trio.talkers.values()) > 4, "links did end"


def test_r1_silence_one_way_ends_the_link_on_both_sides() -> None:
    trio = Trio(2)
    trio.run(1.0)
    trio.network.block("name-1", "name-2")
    trio.run(SILENCE + 2.0)
    assert not trio.talkers["name-2"].links.is_up("name-1")
    assert not trio.talkers["name-1"].links.is_up("name-2")
    assert trio.talkers["name-3"].links.up_count() == 2


class Face:
    """name-2 by hand, face to face with a talker called name-1."""

    def __init__(self) -> None:
        self.talker = Talker("name-1", random.Random(8), 1e9)
        self.gate = Acceptor("name-2", KEY, random.Random(9))
        self.now = 100.0
        self.heard: list[RaftFrame] = []
        self.turn(0.0)

    def turn(self, seconds: float) -> None:
        """Let the talker act after so many seconds, and answer its greeting."""
        self.now += seconds
        out = self.talker.handle([], Instant(self.now, 0))
        while sends := [send for send in out.sends if send.peer == "name-2:7721"]:
            answers = Effects()
            here = PeerAddress("raft", b"name-1")
            for send in sends:
                admitted = self.gate.admit(here, send.frames, answers, self.now)
                if admitted is not None and isinstance(admitted[1], RaftFrame):
                    self.heard.append(admitted[1])
            events = [Received("name-2:7721", send.frames) for send in answers.sends]
            out = self.talker.handle(events, Instant(self.now, 0))

    def say(self, session: int, number: int, echo: int, *payload: bytes) -> None:
        """A frame of name-2 arrives at the talker."""
        frame = RaftFrame(0, "name-2", session, number, echo)
        self.talker.links.from_peer(frame, payload, Effects(), self.now)

    @property
    def theirs(self) -> int:
        """The talker's session, as name-2 hears it."""
        return self.heard[-1].session


def test_r1_nothing_behind_a_gap_is_delivered() -> None:
    face = Face()
    face.say(5, 0, face.theirs)
    face.say(5, 1, face.theirs, b"m 0")
    assert face.talker.heard["name-2"] == (b"m", 1)
    face.say(5, 3, face.theirs, b"m 1")
    assert face.talker.heard["name-2"] == (b"m", 1)
    assert "name-2" not in face.talker.up
    before = face.theirs
    face.turn(1.0)
    assert face.theirs != before, "a new session tells the peer to begin anew"


def test_r1_silence_ends_the_link_though_the_connection_we_dial_is_well() -> None:
    face = Face()
    face.say(5, 0, face.theirs)
    while face.now < 100.0 + SILENCE - 0.2:
        face.turn(0.1)
        assert "name-2" in face.talker.up
    for _ in range(4):
        face.turn(0.1)
    assert "name-2" not in face.talker.up


def test_r10_what_was_said_to_an_earlier_session_of_ours_is_dropped() -> None:
    face = Face()
    face.say(5, 0, face.theirs)
    assert "name-2" in face.talker.up
    face.say(5, 1, face.theirs + 2, b"m 0")
    assert "name-2" not in face.talker.heard
    face.say(5, 2, face.theirs, b"m 0")
    assert face.talker.heard["name-2"] == (b"m", 1)


def test_r10_a_session_without_its_beginning_is_not_taken_up() -> None:
    face = Face()
    face.say(5, 4, face.theirs, b"m 0")
    face.say(5, 5, face.theirs, b"m 1")
    assert not face.talker.up
    assert not face.talker.heard


def test_a_frame_under_another_name_than_proven_is_of_no_peer() -> None:
    rng = random.Random(3)
    talker = Talker("name-1", rng, 0.0)
    out = talker.handle([], Instant(0.0, 0))
    before = len(out.sends)
    talker.links.from_peer(RaftFrame(0, "stranger", 5, 0, 0), (), out, 0.0)
    assert len(out.sends) == before
    assert not talker.up


def unaware(former: Sequence[str] = ()) -> tuple[Trio, RaftLinks]:
    """Three talkers of which name-2 has not heard that there is a name-1; and name-2's links."""
    trio = Trio(7)
    talkers = trio.talkers
    talkers["name-1"].links.endpoint = "name-1:7721"
    vars(talkers["name-2"])["_began"] = True
    links = talkers["name-2"].links
    links.set_peers({"name-3": "name-3:7721"}, Effects(), 100.0, former)
    trio.run(1.0)
    return trio, links


def test_a_name_server_added_meanwhile_introduces_itself() -> None:
    # Else a member that was down cannot hear a leader that was added after it went.
    trio, links = unaware()
    assert links.is_up("name-1")
    assert trio.talkers["name-1"].links.is_up("name-2")
    out = Effects()
    links.set_peers({"name-3": "name-3:7721"}, out, trio.scheduler.now + 100.0)
    assert links.is_up("name-1"), "what is still unknown stays a guest"
    links.set_peers({"name-1": "name-1:7721", "name-3": "name-3:7721"}, out, 101.0)
    assert links.is_up("name-1"), "known at last"
    assert not out.hangups
    links.set_peers({"name-3": "name-3:7721"}, out, 101.0)
    assert out.hangups == ["name-1:7721"]


def test_a_removed_name_server_is_no_guest() -> None:
    _, links = unaware(["name-1"])
    assert not links.is_up("name-1")
    _, links = unaware()
    out = Effects()
    links.set_peers({"name-3": "name-3:7721"}, out, 101.0, ["name-1"])
    assert out.hangups == ["name-1:7721"]


def test_a_silent_guest_is_forgotten() -> None:
    trio, links = unaware()
    trio.processes["name-1"].kill()
    trio.run(GUEST_SILENCE + 1)
    out = Effects()
    links.set_peers({"name-3": "name-3:7721"}, out, 200.0, ["name-1"])
    assert out.hangups == []


def test_another_name_server_at_the_same_endpoint_is_dialled_anew() -> None:
    talker = Talker("name-1", random.Random(6), 0.0)
    talker.handle([], Instant(0.0, 0))
    out = Effects()
    talker.links.set_peers({"name-3": "name-3:7721", "name-4": "name-2:7721"}, out, 1.0)
    assert (out.redials, out.hangups) == (["name-2:7721"], [])


def test_peers_with_another_key_refuse_and_the_refusal_is_known() -> None:
    trio = Trio(4, keys=(b"another key", KEY, KEY))
    trio.run(3.0)
    refusal = trio.talkers["name-1"].links.refusal()
    assert refusal is not None
    assert refusal.code == "UNAUTHENTICATED"
    assert trio.talkers["name-2"].links.refusal() is None, "name-3 takes it"
    assert trio.talkers["name-2"].links.is_up("name-3")


def test_a_member_is_not_refused_by_peers_that_do_not_know_its_key_yet() -> None:
    talker = Talker("name-1", random.Random(4), 0.0)
    talker.handle([], Instant(0.0, 0))
    for tenths in range(50):
        now = tenths / 10
        out = Effects()
        talker.links.tick(out, now)
        for endpoint in ("name-2:7721", "name-3:7721"):
            talker.links.handshake_failed(HandshakeFailed(endpoint, "key"), out, now)
    assert talker.links.refusal() is not None
    assert talker.links.refusal(belongs=True) is None


def test_a_frame_from_a_connection_without_session_is_not_admitted() -> None:
    talker = Talker("name-1", random.Random(5), 0.0)
    frames = encode(RaftFrame(0, "name-2", 5, 0, 0))
    out = talker.handle([Received(PeerAddress("raft", b"x"), frames)], Instant(0.0, 0))
    assert not talker.up
    assert b"needhello" in bytes(out.sends[-1].frames[0])


def test_removed_peers_are_hung_up_and_new_ones_dialled() -> None:
    talker = Talker("name-1", random.Random(6), 0.0)
    talker.handle([], Instant(0.0, 0))
    out = Effects()
    talker.links.set_peers({"name-2": "name-2:7721", "name-4": "elsewhere:1"}, out, 1.0)
    assert out.hangups == ["name-3:7721"]
    assert [send.peer for send in out.sends] == ["elsewhere:1"]
