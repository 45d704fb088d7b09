"""Users, keys, roles and rules that change while visitors work, as a scenario's guest.

A keeper (an administrator) makes one change after the other through the name servers. What it wishes
is drawn from what was decided so far, so that most of it is accepted.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from logboom.wire.access.access_commands import (
    AccessCommand,
    AddRule,
    AddUserKey,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteRole,
    DeleteUser,
    RemoveRule,
    RemoveUserKey,
)
from logboom.wire.access.access_rules import AccessRule, UserKey, node_user
from logboom.wire.actor import Call
from logboom.wire.commands import AnyCommand, CommandResult, CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.features import FEATURES, IDS_OF_USERS, SUBSCRIPTION_RIGHTS
from logboom.wire.hello import Identity
from logboom.wire.messages import AnyMessage, FinalizeUpgrade
from tests.sim.cast.access_thief import Thief
from tests.sim.cast.forger import Forger
from tests.sim.cast.visitor import KEPT, TOPICS, Visitor
from tests.sim.cast.wire_client import WireClient
from tests.sim.faults.hand import Hand
from tests.sim.judges.access_ledger import AccessLedger
from tests.sim.judges.access_model import Standing
from tests.sim.judges.access_watch import AccessWatch
from tests.sim.world.world import CLUSTER_KEY, World

KEEPER: Final = "keeper"
THIEF: Final = "thief"
IMPOSTOR: Final = "impostor"
FORGER: Final = "forger"
OWNERS: Final = {
    "guest-1": "ann",
    "guest-2": "ann",
    "guest-3": "bob",
    "guest-4": "cid",
    THIEF: "mallory",
    IMPOSTOR: "ivan",
}
"""Machine → the user whose key it begins with."""
PEOPLE: Final = ("ann", "bob", "cid")
"""Users whose rights change."""
ROLES: Final = ("clerk", "trader")
WORKER: Final = "worker"
WORKERS_MAY: Final = (
    AccessRule(True, "read", "topic", "*"),
    AccessRule(True, "write", "topic", "*"),
    AccessRule(True, "manage", "topic", "*"),
    AccessRule(True, "read", "group", "*"),
    AccessRule(True, "describe", "cluster", "cluster"),
)
RULES: Final = tuple(
    [
        AccessRule(allow, verb, "topic", pattern)
        for allow in (True, True, True, False)
        for verb in ("read", "read", "write", "write", "manage", "describe")
        for pattern in ("orders.*", "orders.eu", "stock.*", "secret.plans", "*")
    ]
    + [
        AccessRule(allow, verb, "group", pattern)
        for allow in (True, True, False)
        for verb in ("read", "describe")
        for pattern in ("orders.*", "stock.readers", "*")
    ]
    + [
        AccessRule(allow, verb, "subscription", pattern)
        for allow in (True, True, False)
        for verb in ("read", "manage", "describe")
        for pattern in ("orders.*", "orders.eu/bills", "stock.eu/*", "*")
    ]
    + [AccessRule(allow, "admin", "cluster", "cluster") for allow in (True, False)]
)
REST_S: Final = (0.1, 0.3, 0.8)
"""Between two changes, on average; each seed has one of these."""
SOON_MS: Final = (500, 4_000)
"""How long a key lasts that is given with an end."""
SILENCE_S: Final = (2.0, 6.0)
"""How long the name servers hear nothing of each other."""
KNOWN_AGAIN_S: Final = 0.2
"""After which the keeper looks again whether all name servers know a key."""

BEHIND_S: Final = 8.0
"""How long a name server is left behind: a broker needs half of it to turn to another one."""


def public_key(of: str) -> str:
    """A public key, as far as anybody here looks: 40 characters of Z85."""
    return hashlib.sha256(of.encode()).hexdigest()[:40]


class Access:
    """Everybody whom rules are about, and who makes them."""

    def __init__(
        self,
        world: World,
        endpoints: Sequence[str],
        rng: random.Random,
        keys: dict[str, str],
        hand: Hand,
        workers: Sequence[str],
        level: int,
    ) -> None:
        """`keys`: machine → public key; new keys of visitors are put here. `workers`: machines whose
        users may all that producers and readers do, from before to after everything else. `level`:
        the features level that the cluster begins with."""
        self._level = level
        self._world = world
        self._rng = rng
        self._keys = keys
        self._hand = hand
        self._workers = list(workers)
        self._rest_s = rng.choice(REST_S)
        self._working = False
        self._asking = False
        self._older_disk_due = False
        self._renewing = False
        """Whether name servers are still to learn the new key of a node."""
        self._renewed: set[str] = set()
        """Nodes with another key than they began with."""
        self._listed: dict[str, dict[str, str]] = {}
        """Name server → the keys of renewed nodes in its configuration. Only those that may come to
        know nothing of these keys by the replicated state have any: with an older disk, and new ones."""
        self._founders = {machine.name for machine in world.nodes("name-server")}
        self._made = 0
        self._then: Callable[[], None] = _nothing
        """What follows if the wish that is being made is granted."""
        self.watch = AccessWatch(world, keys)
        self.ledger = AccessLedger(world)
        self._keeper = WireClient(KEEPER, endpoints, random.Random(rng.random()))
        self._visitors = {
            name: Visitor(name, endpoints, random.Random(rng.random()), self.ledger)
            for name, user in OWNERS.items()
            if user in PEOPLE
        }
        impostor = WireClient(IMPOSTOR, endpoints, random.Random(rng.random()))
        # Somebody who has copied the cluster key from a broker, and not that broker's own key.
        impostor.identity = Identity("broker-1", "broker", cluster_key=CLUSTER_KEY)
        cores: list[WireClient] = [self._keeper, impostor, *self._visitors.values()]
        for name, core in zip((KEEPER, IMPOSTOR, *self._visitors), cores, strict=True):
            world.add(name, "client", {}, partial(_same, core))
        self._thief = Thief(THIEF, world, random.Random(rng.random()))
        # It has a place in the network, and no process of its own.
        world.add(THIEF, "client", {}, partial(_same, self._keeper)).idle = True
        # He may all that those may in whose names he sends.
        self._workers.append(FORGER)
        self._forger = Forger(
            FORGER, endpoints, random.Random(f"{FORGER} {rng.random()}"), world.trace
        )
        world.add(FORGER, "client", {}, partial(_same, self._forger))

    # -- before -----------------------------------------------------------------------------

    def prepare(self, then: Callable[[], None]) -> None:
        """Make the users that everything begins with, and topics for visitors."""
        commands: list[AnyCommand] = [CreateRole(WORKER)]
        commands += [AddRule(f"role:{WORKER}", rule) for rule in WORKERS_MAY]
        commands += [CreateRole(role) for role in ROLES]
        for machine in self._workers:
            key = UserKey("first", self._keys[machine], 1)
            commands.append(CreateUser(machine, [key], [WORKER], 1))
        for user in dict.fromkeys(OWNERS.values()):
            machines = [machine for machine, owner in OWNERS.items() if owner == user]
            keys = [UserKey(machine, self._keys[machine], 1) for machine in machines]
            roles = [self._rng.choice(ROLES)] if user in PEOPLE else []
            commands.append(CreateUser(user, keys, roles, 1))
        commands += [
            AddRule(f"user:{user}", rule) for user in PEOPLE for rule in self._first_rules()
        ]
        commands += [CreateTopic(topic, 1, self._rng.choice((2, 3)), KEPT, 1) for topic in TOPICS]
        self._prepare(commands, then)

    def _first_rules(self) -> list[AccessRule]:
        wide = [rule for rule in RULES if rule.allow and rule.pattern.endswith("*")]
        of_subscriptions = [rule for rule in wide if rule.kind == "subscription"]
        if self._level < SUBSCRIPTION_RIGHTS:
            wide = of_subscriptions = [rule for rule in wide if rule.kind == "topic"]
        found = self._rng.choices(wide, k=5) + self._rng.choices(of_subscriptions, k=2)
        return list(dict.fromkeys(found))

    def _prepare(self, commands: list[AnyCommand], then: Callable[[], None]) -> None:
        if not commands:
            then()
            return
        command = commands.pop(0)

        def done(result: CommandResult) -> None:
            if result.code == "TOO_FEW_BROKERS":
                self._keeper.later(0.3, lambda: self._keeper.propose(command, done))
                return
            assert not result.code, f"{command}: {result}"
            self._prepare(commands, then)

        self._propose(command, done)

    def _propose(self, command: AnyCommand, done: Callable[[CommandResult], None]) -> None:
        self._call(KEEPER, partial(self._keeper.propose, command, done))

    def _call(self, name: str, action: Callable[[], None]) -> None:
        process = self._world.machines[name].process
        assert process is not None, f"{name} runs"
        process.deliver(Call(action))

    # -- the guest --------------------------------------------------------------------------

    def begin(self) -> None:
        """Visitors work, and rights change."""
        self._working = True
        if self._level < FEATURES:
            self._world.scheduler.after(self._rng.uniform(2, 10), self._finalize)
        for name, visitor in self._visitors.items():
            self._call(name, visitor.start)
        self._thief.begin()
        if self._level >= IDS_OF_USERS:
            # Below that level whoever may write is believed.
            self._call(FORGER, self._forger.start)
        self._change()
        self._hand.later(self._rng.uniform(2, 12), self._silence)
        self._hand.later(self._rng.uniform(1, 14), self._leave_behind)
        victim = self._rng.choice(self._hand.names("name-server"))
        self._older_disk_due = True
        self._world.scheduler.after(self._rng.uniform(0, 8), lambda: self._back_up(victim))

    def rest(self) -> None:
        """Change nothing any more; visitors go on for a while."""
        self._working = False
        self._thief.rest()
        self._world.scheduler.after(3.0, self._stop)

    def _stop(self) -> None:
        self._call(FORGER, self._forger.stop)
        for name, visitor in self._visitors.items():
            self._call(name, visitor.stop)

    def settled(self) -> bool:
        """Whether all nodes, and all who may see them, know the newest rules."""
        return not self.why_not()

    def why_not(self) -> str:
        """What `settled` waits for."""
        if self._asking:
            return "the keeper waits for the outcome of a change"
        if self._level < FEATURES:
            return "the upgrade is not finalized"
        if self._renewing:
            return "a node waits for its new key"
        if self._older_disk_due:
            return "a name server is still to have an older disk"
        late = self.watch.lagging()
        if late:
            return f"{late} do not know the rules of version {self.watch.model.version}"
        state = self._world.newest_state()
        assert state is not None
        newest = self.watch.model.newest
        ending = [
            f"{name}/{key.label}"
            for name, person in newest.people.items()
            for key in person.keys
            if key.ends_ms and not key.ended
        ]
        if ending:
            return f"keys {ending} have not ended at {state.clock_ms}"
        for machine, visitor in self._visitors.items():
            owner = newest.owner(self._keys[machine])
            if owner is None:
                continue
            shown = set(visitor.routes.topics)
            may = {t for t in state.topics if newest.may(owner[0], ("describe", "topic", t))}
            if shown != may:
                wrong = sorted(shown ^ may)
                return f"{machine} ({owner[0]}) is shown {sorted(shown)}, differing in {wrong}"
        return ""

    def compare(self) -> None:
        """Hold the logs against what visitors were acknowledged."""
        self.ledger.compare()

    # -- one change -------------------------------------------------------------------------

    def _finalize(self) -> None:
        """Raise the features level, however many tries it takes until all nodes were heard."""

        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if answer is None:
                self._world.scheduler.after(0.5, self._finalize)
            else:
                self._level = FEATURES

        upgrade = FinalizeUpgrade(0, 1_000, FEATURES)
        self._call(KEEPER, partial(self._keeper.operate, upgrade, answered))

    def _silence(self) -> None:
        """No name server hears another: nobody leads, and no change is decided."""
        world = self._world
        names = self._hand.names("name-server")
        world.trace.note("network", "name servers hear nothing of each other")
        world.trace.count("name servers apart")
        self._part(names, names, self._rng.uniform(*SILENCE_S))

    def _leave_behind(self) -> None:
        """A name server hears nothing of the others, and later a broker hears nothing of these: it
        turns to the one that is left behind."""
        names = self._hand.names("name-server")
        behind = self._rng.choice([n for n in names if n != self._world.observer.raft_leader])
        others = [name for name in names if name != behind]
        broker = self._rng.choice(self._hand.names("broker"))
        self._world.trace.note("network", f"{behind} is left behind, and then has {broker}")
        self._part([behind], others, BEHIND_S)
        self._hand.later(1.0, lambda: self._part([broker], others, BEHIND_S - 1.0))

    def _part(self, these: Sequence[str], those: Sequence[str], seconds: float) -> None:
        network = self._world.network
        ways = [(one, other) for one in these for other in those if one != other]
        ways += [(other, one) for one, other in ways]
        for way in ways:
            network.block(*way)
        self._hand.later(seconds, lambda: network.unblock(ways))

    def _back_up(self, name: str) -> None:
        journal = self._world.machines[name].journal
        assert journal is not None
        journal.back_up()
        self._world.scheduler.after(self._rng.uniform(3, 8), lambda: self._restore(name))

    def _restore(self, name: str) -> None:
        """A name server comes back with an older disk, at a moment when no other one lacks anything
        that it had: a majority that forgets is beyond what the raft group promises."""
        world = self._world
        if not self._all_alike() and not world.machines[name].retired:
            world.scheduler.after(0.05, lambda: self._restore(name))
            return
        self._older_disk_due = False
        if world.machines[name].retired:
            return
        world.kill(name)
        journal = world.machines[name].journal
        assert journal is not None
        before = journal.last_index
        journal.restore()
        self._listed[name] = self._current()
        world.trace.note(name, f"has an older disk, up to {journal.last_index} of {before}")
        world.trace.count("older disks")
        world.boot_later(name, self._rng.uniform(0.1, 1.0))

    def _all_alike(self) -> bool:
        """Whether all name servers run, hear each other, follow one leader and have one log."""
        world = self._world
        machines = world.nodes("name-server")
        cores = [core for m in machines if (core := world.name_server(m.name)) is not None]
        paused = any(m.process is not None and m.process.paused for m in machines)
        if len(cores) < len(machines) or paused or not world.network.whole:
            return False
        logs = {
            (journal.last_index, journal.durable.term, journal.unsynced)
            for m in machines
            if (journal := m.journal) is not None
        }
        states = {(core.raft.leader, core.raft.applied_index) for core in cores}
        members = {frozenset(core.raft.applied_members) for core in cores}
        return (
            len(logs) == len(states) == 1
            and members == {frozenset(m.name for m in machines)}
            and all(core.raft.leader is not None for core in cores)
        )

    def _change(self) -> None:
        if not self._working:
            return
        self._world.scheduler.after(self._rng.expovariate(1 / self._rest_s), self._change)
        if self._asking:
            return
        self._then = _nothing
        command = self._wish(self.watch.model.newest)
        if command is None:
            return
        self._asking, then = True, self._then

        def done(result: CommandResult) -> None:
            self._asking = False
            if result.code:
                self._world.trace.count(f"keeper told {result.code}")
            else:
                self._world.trace.note(KEEPER, f"{command} at version {result.version}")
                then()

        self._propose(command, done)

    def _wish(self, now: Standing) -> AccessCommand | None:
        wishes: Mapping[Callable[[Standing], AccessCommand | None], float] = {
            self._add_rule: 5,
            self._remove_rule: 4,
            self._give_roles: 2,
            self._switch: 3,
            self._give_key: 5 if self._shut(now) else 2,
            self._take_key: 2,
            self._renew_node: 0.7,
            self._delete: 0.5,
            self._change_roles: 0.5,
        }
        (wish,) = self._rng.choices(list(wishes), list(wishes.values()))
        return wish(now)

    def _holder(self, now: Standing) -> str | None:
        holders = [f"user:{name}" for name in PEOPLE if name in now.people]
        holders += [f"role:{name}" for name in ROLES if name in now.roles]
        return self._rng.choice(holders) if holders else None

    def _add_rule(self, now: Standing) -> AccessCommand | None:
        holder = self._holder(now)
        return AddRule(holder, self._rng.choice(RULES)) if holder is not None else None

    def _remove_rule(self, now: Standing) -> AccessCommand | None:
        rules = [
            (f"user:{name}", r)
            for name in PEOPLE
            if name in now.people
            for r in now.people[name].rules
        ]
        rules += [
            (f"role:{name}", r) for name in ROLES if name in now.roles for r in now.roles[name]
        ]
        return RemoveRule(*self._rng.choice(sorted(rules))) if rules else None

    def _give_roles(self, now: Standing) -> AccessCommand:
        known = [role for role in ROLES if role in now.roles]
        roles = [role for role in known if self._rng.random() < 0.5]
        return AlterUser(self._rng.choice(PEOPLE), None, roles, None, 1)

    def _switch(self, now: Standing) -> AccessCommand:
        """Disable a user, or enable one that is disabled."""
        disabled = [name for name in PEOPLE if name in now.people and now.people[name].disabled]
        if disabled and self._rng.random() < 0.9:
            return AlterUser(self._rng.choice(disabled), False, None, None, 1)
        return AlterUser(self._rng.choice(PEOPLE), True, None, None, 1)

    def _shut(self, now: Standing) -> list[str]:
        """Machines whose key opens nothing."""
        return [name for name in self._visitors if now.owner(self._keys[name]) is None]

    def _give_key(self, now: Standing) -> AccessCommand | None:
        """A machine whose key opens nothing gets a new one, or its old one back."""
        machine = self._rng.choice(self._shut(now) or list(self._visitors))
        user = self._rng.choice((OWNERS[machine], OWNERS[machine], *PEOPLE))
        taken = {key.public for person in now.people.values() for key in person.keys}
        if self._keys[machine] in taken or self._rng.random() < 0.5:
            self._made += 1
            self._keys[machine] = public_key(f"{machine} {self._made}")
            # A program reads its credentials when it starts: it is nobody else on older connections.
            self._world.network.break_all(machine)
        self._made += 1
        now_ms = self._keeper.now.wall_ms
        end_ms = now_ms + self._rng.randint(*SOON_MS) if self._rng.random() < 0.4 else 0
        key = UserKey(f"{machine}-{self._made}", self._keys[machine], now_ms, end_ms)
        # Whoever runs the machine starts its program again, mostly.
        if self._rng.random() < 0.8:
            self._then = partial(self._world.network.break_all, machine)
        if user not in now.people:
            roles = [role for role in ROLES if role in now.roles]
            return CreateUser(user, [key], roles, 1)
        return AddUserKey(user, key)

    def _take_key(self, now: Standing) -> AccessCommand | None:
        keys = [
            (name, key.label)
            for name in PEOPLE
            if name in now.people
            for key in now.people[name].keys
        ]
        return RemoveUserKey(*self._rng.choice(keys)) if keys else None

    def _renew_node(self, now: Standing) -> AccessCommand | None:
        """A node gets a second key, is started with it, and loses its first one."""
        name = self._rng.choice([machine.name for machine in self._world.nodes()])
        user = node_user(name)
        if self._renewing or user not in now.people or len(now.people[user].live) > 1:
            return None
        self._made += 1
        public = public_key(f"{name} {self._made}")
        self._then = partial(self._await_knowledge, name, public, now.people[user].live[0].label)
        return AddUserKey(user, UserKey(f"renewed-{self._made}", public, 1))

    def _await_knowledge(self, name: str, public: str, old: str) -> None:
        """Wait until every name server knows the new key of a node: one that does not cannot hear it,
        and would not learn the key from it."""
        servers = self._world.nodes("name-server")
        running = all(machine.process is not None for machine in servers)
        if not running or self.watch.lagging():
            self._renewing = True
            again = partial(self._await_knowledge, name, public, old)
            self._world.scheduler.after(KNOWN_AGAIN_S, again)
            return
        self._renewing = False
        if not self._world.machines[name].retired:
            self._start_anew(name, public, old)

    def _current(self) -> dict[str, str]:
        return {node: self._keys[node] for node in self._renewed}

    def keys_listed_by(self, name_server: str) -> Mapping[str, str]:
        """Node → key that stands in the configuration of a name server that starts, in place of those
        that nodes begin with."""
        if name_server not in self._founders:
            self._listed.setdefault(name_server, self._current())
        return self._listed.get(name_server, {})

    def _start_anew(self, name: str, public: str, old: str) -> None:
        self._keys[name] = public
        self._renewed.add(name)
        self._hand.down(name, self._rng.uniform(0.1, 1.0))
        self._world.trace.count("keys of nodes renewed")
        wait = self._rng.uniform(0.05, 3.0)
        remove = RemoveUserKey(node_user(name), old)
        self._world.scheduler.after(wait, lambda: self._propose(remove, _ignore))

    def _delete(self, _now: Standing) -> AccessCommand:
        return DeleteUser(self._rng.choice(PEOPLE))

    def _change_roles(self, now: Standing) -> AccessCommand:
        role = self._rng.choice(ROLES)
        return DeleteRole(role) if role in now.roles else CreateRole(role)


def _nothing() -> None:
    return None


def _ignore(_result: CommandResult) -> None:
    return None


def _same(core: WireClient) -> WireClient:
    return core
