"""Consumer groups at work while faults strike, as a guest of a scenario.

Members join, take their time, leave, are killed, stop for a while and come back, all by the seed,
while brokers and name servers have their own troubles. `GroupLedger` judges what they see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from logboom.wire.actor import Call
from tests.sim.cast.group_member import GroupMember, Membership, Poison
from tests.sim.cast.group_operator import GROUPS, GroupOperator, config_of, queues_of
from tests.sim.judges.group_ledger import GroupLedger
from tests.sim.judges.group_watch import GroupWatch
from tests.sim.judges.history import History
from tests.sim.world.machine import Machine
from tests.sim.world.scheduler import EPOCH_MS
from tests.sim.world.world import World

HANG_S: Final = 7.0
"""Longer than a drain may take."""


class Groups:
    """Some groups and their members."""

    def __init__(
        self,
        world: World,
        history: History,
        endpoints: list[str],
        rng: random.Random,
        *,
        calm: bool = False,
        operated: bool = True,
        topics: Mapping[str, list[str]] | None = None,
    ) -> None:
        """`calm`: members come and leave in good order, and nothing befalls them. `operated`: operators
        reset offsets and change strategies, and a group may start at the end. `topics`: group → its
        topics; None: some of the usual groups, as the seed has it."""
        self._world = world
        self._history = history
        self._endpoints = endpoints
        self._rng = rng
        self._calm = calm
        self._operated = operated
        self._working = self._over = False
        self._gap = rng.choice((0.8, 1.5, 3.0))
        """Seconds between what members do, on average."""
        self._begun: set[str] = set()
        """Groups that start at the end and have begun."""
        self.ledger = GroupLedger(history, world.trace)
        if topics is None:
            known = list(GROUPS) if operated else ["billing", "audit"]
            names = [name for name in known if name == "billing" or rng.random() < 0.5]
            topics = {name: GROUPS[name] for name in names}
        self.topics = topics
        self._members: dict[str, Membership] = {}
        self._spares: dict[str, str] = {}
        """Machine → another whose process has the same name in the group, and one at a time works."""
        self._cores: dict[str, GroupMember] = {}
        """The process that a machine's member has now."""
        self.watch = GroupWatch(world, self.ledger, self._cores)
        self._operator = GroupOperator(world, self.ledger, rng, topics)
        poisoned = not calm and rng.random() < 0.4
        self._poison = Poison(rng.randint(5, 80)) if poisoned else None
        number = 0
        for group in topics:
            for _ in range(rng.choice((2, 3, 4))):
                number += 1
                self._add(f"member-{number}", group)

    def _add(self, name: str, group: str) -> None:
        rng = self._rng
        handling: list[float] = [0.0, 0.0, 0.01, 0.05, 0.3] * 4
        if not self._calm and rng.random() < 0.3:
            handling += [HANG_S]
        of = Membership(
            name,
            group,
            self.topics[group],
            config_of(group),
            instance=name if rng.random() < 0.3 else "",
            handling_s=handling,
            failing=0.03 if group == "billing" else 0.0,
            poison=self._poison if group == "billing" else None,
            max_poll_interval_ms=0 if self._calm else rng.choice((0, 1_500, 4_000)),
        )
        self._install(of)
        self._machine(name).idle = group == "late"
        if of.instance and not self._calm and group != "late":
            spare = f"{name}-spare"
            self._install(replace(of, name=spare))
            self._spares |= {name: spare, spare: name}
            self._machine(spare).idle = True

    def _machine(self, name: str) -> Machine:
        return self._world.machines[name]

    def _install(self, of: Membership) -> None:
        self._members[of.name] = of
        self._world.add(of.name, "client", {}, lambda: self._make(of))

    def _make(self, of: Membership) -> GroupMember:
        number = self._world.machines[of.name].starts
        core = GroupMember(
            of,
            f"{of.name}.{number}",
            self._endpoints,
            random.Random(self._rng.random()),
            self.ledger,
            self._date_ms,
        )
        core.hurry = self._over
        core.replaced = partial(self._replaced, of.name)
        core.poisoned = partial(self._poisoned, of.name)
        core.went_away = partial(self._world.trace.count, "members went away")
        self._cores[of.name] = core
        return core

    def _date_ms(self) -> int:
        return EPOCH_MS + int(self._world.scheduler.now * 1000)

    # -- the guest --------------------------------------------------------------------------

    def begin(self) -> None:
        """Members come one after the other, and then their troubles."""
        self._working = True
        for name, of in self._members.items():
            wait = self._rng.uniform(0.0, 4.0)
            if of.group == "late":
                self._later(8.0 + wait, partial(self._boot_late, of))
            else:
                self._later(wait, partial(self._boot, name))
        self._later(self._rng.expovariate(1 / self._gap) + 2.0, self._strike)
        self.watch.begin()

    def rest(self) -> None:
        """Everybody comes back, stays, and catches up."""
        self._working, self._over = False, True
        for machine in self._world.nodes("broker"):
            # Delays are by date: it is set right, or retries would wait for as long as it is wrong.
            machine.clock.wall_ahead_ms = 0
        for core in self._cores.values():
            core.hurry = True
            core.wake()
        for group in self.topics:
            self._operator.rest(group)
        for name in self._members:
            process = self._world.machines[name].process
            if process is None and self._members[name].group == "late":
                self._boot_late(self._members[name])
            elif process is None:
                self._boot(name)
            elif process.paused:
                process.resume()

    def settled(self) -> bool:
        """Everything is consumed and committed, and queues are with whom they shall be."""
        return not self._why()

    def why_not(self) -> str:
        """What `settled` waits for."""
        return f"groups: {self._why()}"

    def _why(self) -> str:
        cluster = self._world.newest_state()
        if cluster is None:
            return "no name server runs"
        for name, topics in self.topics.items():
            group = cluster.groups.by_name.get(name)
            if group is None:
                return f"group {name} does not exist"
            if group.group_epoch != group.target_epoch:
                return f"{name} is not allocated"
            for known in group.topics.values():
                if known.subscribed and known.owners != known.targets:
                    pairs = zip(known.owners, known.targets, strict=True)
                    held = [(owner and owner.id, to and to.id) for owner, to in pairs]
                    return f"{name} moves queues of topic {known.id}: {held}"
            for queue in queues_of(topics):
                end, committed = self._history.known_end(queue), self.ledger.committed(name, queue)
                if committed < end:
                    return f"{name} is at {committed} of {end} in {queue}"
            if left := self.ledger.missing(name, topics):
                return f"{left} messages are not consumed by {name}, retries included"
        return ""

    def compare(self) -> None:
        """Every group has consumed everything, but for what was given up."""
        if self._poison is not None:
            self._world.trace.count("messages given up", self._poison.buried)
        for name, topics in self.topics.items():
            self.ledger.compare(name, topics)

    # -- what members do --------------------------------------------------------------------

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.scheduler.after(seconds, action)

    def _boot(self, name: str) -> None:
        self._world.boot(name)

    def _boot_late(self, of: Membership) -> None:
        """The first of a group that starts at the end."""
        if of.group not in self._begun:
            self._begun.add(of.group)
            for queue in queues_of(of.topics):
                self.ledger.begin(of.group, queue)
        self._machine(of.name).idle = False
        self._boot(of.name)

    def _strike(self) -> None:
        if not self._working:
            return
        self._later(self._rng.expovariate(1 / self._gap), self._strike)
        if self._operated and self._rng.random() < 0.1:
            self._operator.strike(self._rng.choice(list(self.topics)))
            return
        name = self._rng.choice(list(self._members))
        process = self._world.machines[name].process
        if process is None or process.paused:
            return
        acts = [self._leave]
        if not self._calm:
            acts += [self._kill, self._pause, self._hang]
        self._rng.choice(acts)(name)

    def _leave(self, name: str) -> None:
        """In good order; a new process comes soon."""
        process, core = self._world.machines[name].process, self._cores[name]
        if process is None or core.leaving:
            return
        self._world.trace.note(name, "leaves its group")
        self._world.trace.count("members left")

        def left() -> None:
            self._later(0.001, gone)

        def gone() -> None:
            machine = self._world.machines[name]
            if self._is_member(core):
                # Nobody heard its farewell in time: what it did last may not be committed.
                self.ledger.lost(core.id, "left unheard")
            elif core.left_out():
                self.ledger.lost(core.id, "left with commits that found no room in its farewell")
            if machine.process is process:
                process.kill()
                machine.process = None
                self._come_back(name)

        process.deliver(Call(partial(core.leave, left)))

    def _is_member(self, core: GroupMember) -> bool:
        """Whether the name servers may still count this process as a member."""
        cluster = self._world.newest_state()
        if cluster is None or cluster.version < core.member.epoch:
            # Those that know of its joining are down.
            return True
        group = cluster.groups.by_name.get(core.of.group)
        return group is not None and core.id in group.members

    def _kill(self, name: str) -> None:
        self.ledger.lost(self._cores[name].id, "killed")
        self._world.kill(name)
        self._world.trace.count("members killed")
        self._come_back(name)

    def _poisoned(self, name: str) -> None:
        """A message ends the process that handles it."""
        process, core = self._world.machines[name].process, self._cores[name]
        self.ledger.lost(core.id, "ended by a message")

        def gone() -> None:
            machine = self._world.machines[name]
            if process is not None and machine.process is process:
                self._world.kill(name)
                self._world.trace.count("members ended by a message")
                self._come_back(name)

        self._later(0.0001, gone)

    def _come_back(self, name: str) -> None:
        wait = self._rng.choice((0.1, 0.5, 2.0, 5.0))
        if self._working:
            self._later(wait, partial(self._boot, name))
        else:
            self._boot(name)

    def _pause(self, name: str) -> None:
        process = self._world.machines[name].process
        assert process is not None
        self._world.trace.note(name, "paused")
        self._world.trace.count("members paused")
        process.pause()
        lasts = self._rng.choice((0.4, 1.5, 3.5, 6.0))
        self._later(lasts, process.resume)
        if name in self._spares and self._rng.random() < 0.5:
            self._later(self._rng.uniform(0.0, lasts), partial(self._take_over, name))

    def _hang(self, name: str) -> None:
        """Its program asks for nothing any more, while its core goes on."""
        self._world.trace.note(name, "hangs")
        self._world.trace.count("members hung")
        self._cores[name].hang(self._rng.choice((1.0, 3.0, 8.0)))

    def _take_over(self, name: str) -> None:
        """Somebody takes a silent member for dead, and starts another process of its name."""
        spare = self._spares[name]
        if not self._working or self._machine(name).idle or self._machine(spare).process:
            return
        self.ledger.lost(self._cores[name].id, "replaced")
        self._world.trace.note(name, f"{spare} takes over its name")
        self._world.trace.count("members replaced")
        self._machine(name).idle, self._machine(spare).idle = True, False
        self._boot(spare)

    def _replaced(self, name: str) -> None:
        """A process was told that its name is another's: it ends."""
        process = self._world.machines[name].process

        def gone() -> None:
            machine = self._world.machines[name]
            if process is not None and machine.process is process:
                process.kill()
                machine.process = None
                self._world.trace.count("members found their names taken")

        self._later(0.001, gone)
