"""The simulated network breaks as ZeroMQ over TCP does, and only so."""

from __future__ import annotations

import random

from logboom.wire.actor import HandshakeFailed, PeerAddress, Received
from tests.sim.world.network import GIVE_UP, Admission, Network, Passed
from tests.sim.world.scheduler import Scheduler


class Box:
    """A process that keeps what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[Received] = []
        self.turned_away: list[HandshakeFailed] = []

    def deliver(self, event: Received | HandshakeFailed) -> None:
        if isinstance(event, Received):
            self.got.append(event)
        else:
            self.turned_away.append(event)

    def texts(self) -> list[bytes]:
        return [bytes(event.frames[0]) for event in self.got]


class Rig:
    """A listener "b:1" and a dialler."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, random.Random(seed))
        self.a, self.b = Box("a"), Box("b")
        self.network.listen(self.b, "main", "b:1")

    def say(self, *words: bytes) -> None:
        for word in words:
            self.network.send(self.a, "b:1", [word])

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + seconds)

    def address(self) -> PeerAddress:
        """Where the newest message came from."""
        peer = self.b.got[-1].peer
        assert isinstance(peer, PeerAddress)
        return peer


def test_messages_arrive_in_order_and_are_answered_by_routing_id() -> None:
    rig = Rig()
    words = [b"%d" % number for number in range(500)]
    rig.say(*words)
    rig.run(2)
    assert rig.b.texts() == words
    rig.network.send(rig.b, rig.address(), [b"answer"])
    rig.run(1)
    assert rig.a.got == [Received("b:1", (b"answer",))]


def test_what_is_sent_cannot_be_changed_afterwards() -> None:
    rig = Rig()
    buffer = bytearray(b"before")
    rig.network.send(rig.a, "b:1", [memoryview(buffer)])
    buffer[:] = b"after!"
    rig.run(1)
    assert rig.b.texts() == [b"before"]


def test_a_broken_connection_loses_what_is_under_way_and_comes_back_under_a_new_routing_id() -> (
    None
):
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    first = rig.address()
    rig.say(b"lost")
    assert rig.network.break_between("a", "b") == 1
    rig.say(b"waits")
    rig.network.send(rig.b, first, [b"to nobody"])
    rig.run(2)
    assert rig.b.texts() == [b"one", b"waits"]
    assert rig.address() != first
    assert rig.a.got == []


def test_a_half_open_connection_carries_into_the_void_until_the_dialler_gives_up() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    first = rig.address()
    assert rig.network.half_open("b", "a") == 0
    assert rig.network.half_open("a", "b") == 1
    rig.say(b"lost")
    rig.network.send(rig.b, first, [b"to nobody"])
    rig.run(GIVE_UP - 0.5)
    rig.say(b"lost too")
    rig.run(2)
    rig.say(b"two")
    rig.run(1)
    assert rig.b.texts() == [b"one", b"two"]
    assert rig.address() != first
    assert rig.a.got == []


def test_a_half_open_connection_ends_when_it_is_dialled_anew() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    rig.network.half_open("a", "b")
    rig.network.hang_up(rig.a, "b:1")
    rig.say(b"two")
    rig.run(GIVE_UP + 1)
    rig.say(b"three")
    rig.run(1)
    assert rig.b.texts() == [b"one", b"two", b"three"]


def test_a_short_partition_delivers_late_and_in_order() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    rig.network.block("a", "b")
    rig.say(b"two", b"three")
    rig.run(GIVE_UP - 1)
    assert rig.b.texts() == [b"one"]
    rig.network.heal()
    rig.run(1)
    assert rig.b.texts() == [b"one", b"two", b"three"]


def test_a_long_partition_breaks_the_connection() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    first = rig.address()
    rig.network.block("a", "b")
    rig.say(b"lost")
    rig.run(GIVE_UP + 1)
    rig.say(b"waits")
    rig.network.heal()
    rig.run(2)
    assert rig.b.texts() == [b"one", b"waits"]
    assert rig.address() != first


def test_a_one_way_partition_lets_the_other_way_pass() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    rig.network.block("a", "b")
    rig.say(b"held")
    rig.network.send(rig.b, rig.address(), [b"answer"])
    rig.run(1)
    assert rig.b.texts() == [b"one"]
    assert [event.frames for event in rig.a.got] == [(b"answer",)]


def test_a_listener_that_died_is_dialled_again_once_it_is_back() -> None:
    rig = Rig()
    rig.say(b"one")
    rig.run(1)
    rig.network.gone(rig.b)
    rig.say(b"two")
    rig.run(5)
    assert rig.b.texts() == [b"one"]
    again = Box("b")
    rig.network.listen(again, "main", "b:1")
    rig.run(2)
    assert again.texts() == [b"two"]


def test_a_redial_drops_what_waits() -> None:
    rig = Rig()
    rig.network.gone(rig.b)
    rig.say(b"dropped")
    rig.run(1)
    rig.network.hang_up(rig.a, "b:1")
    rig.say(b"new")
    rig.network.listen(rig.b, "main", "b:1")
    rig.run(2)
    assert rig.b.texts() == [b"new"]


def test_a_lag_delays_one_way_and_keeps_the_order() -> None:
    rig = Rig()
    rig.say(b"first")
    rig.run(1)
    rig.network.lags["a", "b"] = 2.0
    rig.say(b"late")
    rig.network.send(rig.b, rig.address(), [b"prompt"])
    rig.run(1)
    assert rig.b.texts() == [b"first"]
    assert rig.a.texts() == [b"prompt"]
    rig.network.lags.clear()
    rig.say(b"behind")
    rig.run(2)
    assert rig.b.texts() == [b"first", b"late", b"behind"]


def test_a_late_message_may_outlive_its_connection() -> None:
    left = set()
    for seed in range(20):
        rig = Rig(seed)
        rig.say(b"first")
        rig.run(1)
        before = rig.address()
        rig.network.lags["a", "b"] = 2.0
        rig.say(b"late")
        rig.network.break_between("a", "b")
        rig.network.lags.clear()
        rig.run(1)
        rig.say(b"again")
        rig.run(3)
        left.add(tuple(rig.b.texts()))
        late = [event.peer for event in rig.b.got if event.frames == (b"late",)]
        assert late in ([], [before])
    assert left == {(b"first", b"again"), (b"first", b"again", b"late")}


def test_one_partition_ends_without_the_others() -> None:
    rig = Rig()
    rig.say(b"first")
    rig.run(1)
    for way in (("a", "b"), ("c", "b")):
        rig.network.block(*way)
    rig.say(b"held")
    rig.run(1)
    rig.network.unblock([("c", "b")])
    rig.run(1)
    assert rig.b.texts() == [b"first"]
    rig.network.unblock([("a", "b")])
    rig.run(1)
    assert rig.b.texts() == [b"first", b"held"]


def test_messages_have_the_name_of_the_key_that_their_connection_was_opened_with() -> None:
    rig = Rig()
    names = {"a": "ann/one"}
    rig.network.doorkeeper = lambda _host, _listener, dialler: Passed(names[dialler.name])
    rig.say(b"one")
    rig.run(1)
    names["a"] = "ann/two"
    rig.say(b"two")
    rig.run(1)
    rig.network.break_between("a", "b")
    rig.say(b"three")
    rig.run(2)
    assert [event.principal for event in rig.b.got] == ["ann/one", "ann/one", "ann/two"]
    rig.network.send(rig.b, rig.address(), [b"answer"])
    rig.run(1)
    assert rig.a.got[-1].principal is None


def test_who_is_refused_is_told_once_and_dials_again_with_its_next_message() -> None:
    rig = Rig()
    admission: list[Admission] = ["refused"]
    rig.network.doorkeeper = lambda _host, _listener, _dialler: admission[0]
    rig.say(b"lost")
    rig.run(5)
    assert rig.a.turned_away == [HandshakeFailed("b:1", "key")]
    admission[0] = Passed("ann/one")
    rig.run(5)
    assert rig.b.got == []
    rig.say(b"arrives")
    rig.run(1)
    assert rig.b.texts() == [b"arrives"]


def test_who_is_put_off_dials_again_by_itself() -> None:
    rig = Rig()
    admission: list[Admission] = ["later"]
    rig.network.doorkeeper = lambda _host, _listener, _dialler: admission[0]
    rig.say(b"waits")
    rig.run(5)
    assert rig.b.got == []
    admission[0] = Passed("ann/one")
    rig.run(1)
    assert rig.b.texts() == [b"waits"]
    assert rig.a.turned_away == []


def test_the_routing_id_of_a_broken_connection_may_be_taken_and_no_other() -> None:
    rig = Rig()
    rig.network.doorkeeper = lambda _host, _listener, dialler: Passed(dialler.name)
    rig.say(b"one")
    rig.run(1)
    hers = rig.address()
    mallory = Box("m")
    rig.network.take_over(mallory, "b:1", hers)
    rig.network.send(mallory, "b:1", [b"too early"])
    rig.run(1)
    assert rig.address() != hers
    rig.network.break_between("a", "b")
    rig.network.hang_up(mallory, "b:1")
    rig.network.take_over(mallory, "b:1", hers)
    rig.network.send(mallory, "b:1", [b"taken"])
    rig.run(1)
    assert (rig.address(), rig.b.got[-1].principal) == (hers, "m")
