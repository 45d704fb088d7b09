"""A simulated process does with effects what the skins do, in their order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from logboom.nodes.log.storage import WriteSet
from logboom.wire.actor import Call, Effects, Event, Instant, PeerAddress, Received, Send, Synced
from tests.sim.world.network import GIVE_UP, Network
from tests.sim.world.process import Process
from tests.sim.world.processor import Processor
from tests.sim.world.scheduler import Clock, Scheduler
from tests.sim.world.storage import SimulatedStorage
from tests.sim.world.trace import BrokenProperty, Trace


class Script:
    """A core that answers a Call with the effects in it, and keeps all it was handed."""

    def __init__(self) -> None:
        self.got: list[tuple[float, Event]] = []
        self.due: float | None = None
        self.turns = 0

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        self.turns += 1
        effects = Effects()
        for event in events:
            self.got.append((now.mono, event))
            if isinstance(event, Call):
                effects = event.request
        return effects

    def deadline(self) -> float | None:
        return self.due


class Rig:
    """Two processes, "a" with a store and "b" that listens."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now)
        self.network = Network(self.scheduler, random.Random(1))
        self.storage = SimulatedStorage("s")
        self.ends: list[str] = []
        self.script, self.other = Script(), Script()
        self.a, self.b = self.process("a", self.script, self.storage), self.process("b", self.other)
        self.network.listen(self.b, "main", "b:1")

    def process(self, name: str, core: Script, storage: SimulatedStorage | None = None) -> Process:
        clock = Clock(self.scheduler, 1_000.0, 1.0, 0)
        rng = random.Random(2)
        return Process(
            name,
            core,
            clock,
            self.scheduler,
            self.network,
            rng,
            self.trace,
            lambda _process, reason: self.ends.append(reason),
            storage,
        )

    def do(self, effects: Effects) -> None:
        self.a.deliver(Call(effects))
        self.run(0.0002)

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + seconds)

    def write(self, key: bytes, token: int) -> None:
        writes = WriteSet()
        writes.put("log", key, b"v")
        self.do(Effects(writes=writes, token=token))

    def tokens(self) -> list[int]:
        return [event.token for _, event in self.script.got if isinstance(event, Synced)]


def test_synced_comes_after_what_it_says_is_durable() -> None:
    rig = Rig()
    rig.write(b"a", 1)
    rig.write(b"b", 2)
    rig.run(0.1)
    assert rig.tokens()[-1] == 2
    rig.a.kill()
    assert rig.storage.crash(random.Random(1)) == 0
    assert set(rig.storage.content("log")) == {b"a", b"b"}


def test_a_write_during_a_sync_waits_for_the_next_one() -> None:
    rig = Rig()
    rig.write(b"a", 1)
    rig.write(b"b", 2)
    while not rig.tokens():
        rig.run(0.000_05)
    assert rig.tokens() == [1]
    rig.run(0.1)
    assert rig.tokens() == [1, 2]


def test_who_dialled_waits_while_too_much_is_unsynced() -> None:
    rig = Rig()
    vars(rig.a)["_max_unsynced_bytes"] = 1
    writes = WriteSet()
    writes.put("log", b"a", b"v")
    rig.a.deliver(Call(Effects(writes=writes, token=1)))
    rig.run(0.000_07)
    caller = PeerAddress("main", b"c")
    rig.a.deliver(Received(caller, [b"first"]))
    rig.a.deliver(Received("b:1", [b"an answer"]))
    rig.a.deliver(Received(caller, [b"second"]))
    rig.run(0.1)
    taken = [e.frames[0] if isinstance(e, Received) else e for _, e in rig.script.got[1:]]
    assert taken == [b"an answer", b"first", b"second", Synced(1)]


def test_a_killed_process_hears_of_no_sync_and_loses_its_writes() -> None:
    rig = Rig()
    writes = WriteSet()
    writes.put("log", b"a", b"v")
    rig.a.deliver(Call(Effects(writes=writes, token=1)))
    while not rig.storage.content("log"):
        rig.run(0.000_01)
    rig.a.kill()
    rig.run(1)
    assert rig.tokens() == []
    seed = next(seed for seed in range(100) if random.Random(seed).randint(0, 1) == 0)
    assert rig.storage.crash(random.Random(seed)) == 1
    assert rig.storage.content("log") == {}


def test_a_redial_comes_before_the_turn_s_sends() -> None:
    rig = Rig()
    rig.do(Effects(sends=[Send("b:1", [b"old"])]))
    rig.run(1)
    rig.do(Effects(sends=[Send("b:1", [b"hello"])], redials=["b:1"]))
    rig.run(1)
    heard = [event for _, event in rig.other.got if isinstance(event, Received)]
    assert [event.frames for event in heard] == [(b"old",), (b"hello",)]
    assert heard[0].peer != heard[1].peer


def test_a_deadline_is_kept_on_the_process_s_own_clock() -> None:
    rig = Rig()
    rig.script.due = 1_002.5
    rig.a.wake()
    rig.run(2.4)
    before = rig.script.turns
    rig.script.due = None
    rig.run(0.2)
    assert rig.script.turns == before + 1


def test_a_paused_process_takes_no_turn_and_catches_up() -> None:
    rig = Rig()
    rig.a.pause()
    rig.a.deliver(Call(Effects()))
    rig.run(GIVE_UP - 1)
    assert rig.script.got == []
    rig.a.resume()
    rig.run(0.1)
    assert len(rig.script.got) == 1


def test_a_core_that_ends_is_reported() -> None:
    rig = Rig()
    rig.do(Effects(stop="the disk refused"))
    assert rig.ends == ["the disk refused"]
    assert not rig.a.running


def test_a_core_that_never_sleeps_is_caught() -> None:
    rig = Rig()
    rig.script.due = 0.0
    rig.a.wake()
    with pytest.raises(BrokenProperty, match="idle nodes sleep"):
        rig.run(30)


def test_on_a_slow_processor_a_turn_lasts_as_long_as_its_work() -> None:
    rig = Rig()
    rig.run(0.1)
    rig.a.processor = Processor(slowness=1e6)
    rig.a.deliver(Call(Effects(sends=[Send("b:1", [b"said"])])))
    rig.a.deliver(Call(Effects()))
    rig.run(0.2)
    turns = rig.script.turns
    rig.a.deliver(Call(Effects()))
    rig.run(0.2)
    assert rig.script.turns == turns, "it is busy"
    assert not any(isinstance(event, Received) for _, event in rig.other.got)
    rig.run(30.0)
    assert rig.script.turns > turns


def test_what_a_slow_turn_says_leaves_at_its_end_and_a_pause_delays_it() -> None:
    rig = Rig()
    rig.run(0.1)
    rig.a.processor = Processor(slowness=1e5)
    rig.a.deliver(Call(Effects(sends=[Send("b:1", [b"said"])])))
    rig.run(0.01)
    rig.a.pause()
    rig.run(5.0)
    assert rig.other.got == []
    rig.a.resume()
    rig.run(5.0)
    assert [e.frames for _, e in rig.other.got if isinstance(e, Received)] == [(b"said",)]
