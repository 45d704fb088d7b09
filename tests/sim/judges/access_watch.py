"""Holds every node's decisions against the model, at exactly the version that the node has.

It looks on where nodes admit connections and requests, and where they send what was asked for. What
nodes do not know yet they cannot decide by: so a decision is wrong if it differs from the model's
at the metadata version that the node has at that moment, and not if that version is old.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logboom.metadata.name_server import NameServer
from logboom.metadata.raft.log_commands import ForgetNameServer, LogEntry
from logboom.metadata.state.state_machine import StateMachine
from logboom.nodes.broker import Broker
from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.access.access_commands import AccessCommand
from logboom.wire.access.access_rules import RoleView, UserView, user_of
from logboom.wire.actor import Address, Effects, PeerAddress, Send
from logboom.wire.commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    NewTerm,
    RemoveBroker,
    StepDown,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import Frame, decode
from logboom.wire.group_messages import GroupJoin
from logboom.wire.messages import (
    AnyMessage,
    Failure,
    GroupsListed,
    Heartbeat,
    Hello,
    ListGroups,
    NeedHello,
    Offsets,
    Produce,
    Propose,
    Pull,
    RaftFrame,
    Replicate,
    Stats,
    Watch,
    WatchResult,
    Welcome,
)
from logboom.wire.operation_commands import RaiseFeatures
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Subscribe,
    SubscriptionsDescribed,
)
from logboom.wire.view import View
from tests.sim.judges.access_model import AccessModel, Need, Standing
from tests.sim.world.network import Admission, Frames, Host, Passed
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    import pytest

    from tests.sim.world.process import Process
    from tests.sim.world.world import World

DECISIONS: Final = "requests are decided by the rules that the node has"
IDENTITIES: Final = "nobody is served as another"
FORWARD: Final = "nobody is decided on by older rules than before"
HIDDEN: Final = "nobody is shown what it may not see"
TABLES: Final = "users and rules are what was decided"
_PULLED: Final = b"\xa6pulled"
_GROUPS: Final = b"\xacgroups"
_SUBSCRIPTIONS: Final = b"\xb6subscr"
_WATCH_RESULT: Final = b"\xabwatchr"
_CHANGES: Final = (
    *AccessCommand.__args__,
    *(RemoveBroker, ForgetNameServer, NewTerm, RaiseFeatures),
)


class _Opened(NamedTuple):
    """A connection as it was opened."""

    public: str
    version: int
    """Of the node at that time."""


class _Asked(NamedTuple):
    """A request that a node took, and may answer later."""

    user: str
    public: str
    message: Pull | Watch | ListGroups | DescribeSubscriptions
    version: int
    """Of the node when it took the request."""


def needs_of(message: AnyMessage) -> list[Need] | None:
    """What a request asks for; None: it is none of those that are judged."""
    match message:
        case Produce(topic=topic):
            return [("write", "topic", topic)]
        case Pull(topic=topic, group=group):
            return [("read", "topic", topic), *([("read", "group", group)] if group else ())]
        case Offsets(topic=topic):
            return [("describe", "topic", topic)]
        case GroupJoin(group=group, subscription=topics):
            return [("read", "group", group), *(("read", "topic", topic) for topic in topics)]
        case Propose(command=CreateTopic() | AlterTopic() | DeleteTopic() as command):
            return [("manage", "topic", command.name)]
        case Subscribe(topic=topic, subscription=name):
            return [("read", "topic", topic), ("read", "subscription", f"{topic}/{name}")]
        case AlterSubscription(topic=topic, subscription=name):
            return [("describe", "topic", topic), ("manage", "subscription", f"{topic}/{name}")]
        case DescribeSubscriptions(topic=topic, subscription=""):
            return [("describe", "topic", topic)]
        case Propose(command=command) if isinstance(command, AccessCommand):
            return [("admin", "cluster", "cluster")]
        case Stats():
            return [("describe", "cluster", "cluster")]
        case Heartbeat() | Replicate() | RaftFrame() | Propose(command=StepDown() | FenceBroker()):
            return [("act", "node", "")]  # No rule gives that to a user.
        case _:
            return None


def _creates(message: AnyMessage) -> bool:
    """Whether what it names need not exist."""
    if isinstance(message, Propose):
        return isinstance(message.command, CreateTopic)
    return isinstance(message, GroupJoin | Subscribe)


class AccessWatch:
    """What the nodes of one world decide, and what they show."""

    def __init__(self, world: World, keys: Mapping[str, str]) -> None:
        """`keys`: machine → the public key that it connects with now."""
        self.model = AccessModel()
        self._world = world
        self._keys = keys
        self._opened: dict[tuple[str, PeerAddress, str | None], _Opened] = {}
        self._seen: dict[tuple[str, int], int] = {}
        """(node, its life) → the version by which it decided last."""
        self._ended: dict[str, int] = {}
        """Node → its version when its last turn ended."""
        self._asked: dict[tuple[str, PeerAddress, int], _Asked] = {}
        """(node, peer, number) → requests for messages and metadata that it took."""
        self._fault: BrokenProperty | None = None
        """Found where nothing may be raised."""
        world.network.on_connect = self._connected
        world.network.on_departure = self._left
        turned = world.on_broker_turn

        def turn(core: Broker) -> None:
            turned(core)
            self._ended[core.context.me] = core.routes.version

        world.on_broker_turn = turn

    def look_on(self, patch: pytest.MonkeyPatch) -> None:
        """Follow commands and requests from now on."""
        apply, admit = vars(StateMachine)["_apply"], Acceptor.admit
        propose = vars(NameServer)["_propose"]

        def applied(machine: StateMachine, entry: LogEntry, *words: Any) -> Any:
            outcome = apply(machine, entry, *words)
            if isinstance(entry.command, _CHANGES) and not outcome.code:
                self._decided(machine, entry)
            return outcome

        def admitted(
            acceptor: Acceptor,
            address: PeerAddress,
            frames: Sequence[Frame],
            out: Effects,
            now: float,
            principal: str | None = None,
        ) -> Any:
            before = len(out.sends)
            found = admit(acceptor, address, frames, out, now, principal)
            self._look(acceptor.node_id, address, frames, principal, found, out.sends[before:])
            return found

        def proposed(server: NameServer, peer: PeerSession, message: Propose, out: Effects) -> None:
            before = len(out.sends)
            propose(server, peer, message, out)
            said = [send for send in out.sends[before:] if send.peer == peer.address]
            self._look_at_command(server.config.id, peer, message, said)

        patch.setattr(StateMachine, "_apply", applied)
        patch.setattr(Acceptor, "admit", admitted)
        patch.setattr(NameServer, "_propose", proposed)

    # -- what is decided --------------------------------------------------------------------

    def _decided(self, machine: StateMachine, entry: LogEntry) -> None:
        cluster = machine.cluster
        if cluster.version <= self.model.version:
            return
        before = self.model.newest
        self.model.take(entry.command, cluster.version, cluster.clock_ms)
        if self.model.newest is not before:
            self._world.trace.count(f"access: {type(entry.command).__name__}")
        if self._fault is None:
            self._fault = self._difference(cluster.access.users, cluster.access.roles)

    def _difference(
        self, users: Mapping[str, UserView], roles: Mapping[str, RoleView]
    ) -> BrokenProperty | None:
        wanted, found = _plain(self.model.newest), _plain_views(users, roles)
        if wanted == found:
            return None
        wrong = {
            name: (found.get(name), wanted.get(name))
            for name in {*found, *wanted}
            if found.get(name) != wanted.get(name)
        }
        return BrokenProperty(TABLES, f"version {self.model.version} has (is, should be) {wrong}")

    def lagging(self) -> list[str]:
        """Nodes that do not have the newest rules; raises `BrokenProperty` if one has wrong ones."""
        late = []
        for machine in self._world.nodes():
            core = machine.process.core if machine.process is not None else None
            if isinstance(core, NameServer):
                book = core.cluster.access.book
            elif isinstance(core, Broker):
                book = core.routes.access
            else:
                continue
            if self._version(machine.name) < self.model.version:
                late.append(machine.name)
                continue
            fault = self._difference(book.users, book.roles)
            if fault is not None:
                raise BrokenProperty(TABLES, f"{machine.name}: {fault.detail}")
        return late

    # -- who comes --------------------------------------------------------------------------

    def admission(
        self, process: Process, listener: str, dialler: Host, admission: Admission
    ) -> Admission:
        """Judge what a node made of a connection."""
        public, version = self._keys[dialler.name], self._version(process.name)
        owner = self.model.at(version).owner(public)
        if dialler.name in {machine.name for machine in self._world.nodes()}:
            return admission  # A node's key may stand in the configuration of a name server.
        shown = f"{process.name} at version {version} admits {dialler.name} as {admission}"
        if isinstance(admission, Passed):
            if owner is None or admission.principal is None:
                raise BrokenProperty(DECISIONS, f"{shown}, whose key nobody has")
            if user_of(admission.principal) != owner[0]:
                raise BrokenProperty(IDENTITIES, f"{shown}, who is {owner[0]}")
            if listener == "raft":
                raise BrokenProperty(DECISIONS, f"{shown}, who is no name server, at {listener}")
        elif admission == "refused" and owner is not None and listener != "raft":
            raise BrokenProperty(DECISIONS, f"{shown}, which is {owner[0]}'s key")
        if admission == "refused":
            self._world.trace.count("connections refused")
        return admission

    def _connected(self, host: Host, peer: PeerAddress, dialler: Host) -> None:
        opened = _Opened(self._keys[dialler.name], self._version(host.name))
        principal = self._world.network.principal_of(host, peer)
        self._opened[host.name, peer, principal] = opened

    # -- what is asked ----------------------------------------------------------------------

    def _version(self, node: str) -> int:
        process = self._world.machines[node].process
        core = process.core if process is not None else None
        if isinstance(core, NameServer):
            return core.cluster.version
        return core.routes.version if isinstance(core, Broker) else -1

    def _look(
        self,
        node: str,
        address: PeerAddress,
        frames: Sequence[Frame],
        principal: str | None,
        found: tuple[Any, AnyMessage, Sequence[Frame]] | None,
        said: Sequence[Send],
    ) -> None:
        if self._fault is not None:
            raise self._fault
        if principal is None:
            raise BrokenProperty(IDENTITIES, f"{node} took a message of nobody at {address}")
        user = user_of(principal)
        if found is not None:
            session = found[0]
            if session.principal != principal:
                detail = f"{node} served {principal} at {address} as {session.principal}"
                raise BrokenProperty(IDENTITIES, detail)
            if session.kind != "client" and user != f"node:{session.client_id}":
                detail = f"{node} served {principal} as {session.kind} {session.client_id}"
                raise BrokenProperty(IDENTITIES, detail)
        if user.startswith("node:"):
            return
        message = found[1] if found is not None else _decoded(frames)
        answer = _decoded(said[-1].frames) if said else None
        opened = self._opened[node, address, principal]
        version = self._forward(node)
        owner = self.model.at(version).owner(opened.public)
        if isinstance(message, Hello):
            self._world.trace.count("greetings refused", isinstance(answer, Failure))
            if isinstance(answer, Welcome) and owner is None:
                raise BrokenProperty(
                    DECISIONS, f"{node} at version {version} welcomed {principal}, who is nobody"
                )
            return
        if found is not None and isinstance(
            message, Pull | Watch | ListGroups | DescribeSubscriptions
        ):
            self._asked[node, address, message.id] = _Asked(user, opened.public, message, version)
        needs = needs_of(message) if message is not None else None
        if needs is None or isinstance(answer, NeedHello):
            return
        assert message is not None
        if found is not None and isinstance(message, Propose):
            return  # Its command is looked at later.
        self._decision(node, version, principal, opened, message, needs, found is not None, answer)

    def _look_at_command(
        self, node: str, peer: PeerSession, message: Propose, said: Sequence[Send]
    ) -> None:
        needs = needs_of(message)
        if needs is None or peer.principal is None or peer.user.startswith("node:"):
            return
        opened = self._opened[node, peer.address, peer.principal]
        answer = _decoded(said[-1].frames) if said else None
        self._decision(
            node, self._forward(node), peer.principal, opened, message, needs, not said, answer
        )

    def _forward(self, node: str) -> int:
        version = self._version(node)
        life = (node, self._world.machines[node].starts)
        if version < self._seen.get(life, -1):
            raise BrokenProperty(FORWARD, f"{node} decides by {version} after {self._seen[life]}")
        self._seen[life] = version
        return version

    def _decision(
        self,
        node: str,
        version: int,
        principal: str,
        opened: _Opened,
        message: AnyMessage,
        needs: Sequence[Need],
        served: bool,
        answer: AnyMessage | None,
    ) -> None:
        standing, user = self.model.at(version), user_of(principal)
        owner = standing.owner(opened.public)
        current = owner is not None and owner[0] == user
        lacking = [need for need in needs if not standing.may(user, need)]
        allowed = current and not lacking
        code = answer.code if isinstance(answer, Failure) else ""
        shown = f"{node} at version {version}, {principal}: {type(message).__name__} {needs}"
        count = self._world.trace.count
        if served and not allowed:
            raise BrokenProperty(DECISIONS, f"{shown} was allowed, key current: {current}")
        if served:
            count("requests allowed")
            return
        if code not in ("UNAUTHENTICATED", "FORBIDDEN") and not code.startswith("UNKNOWN_"):
            return  # It is refused for another reason.
        if allowed:
            # A key that was removed and given again opens new connections only.
            assert owner is not None
            if owner[1].since <= opened.version:
                raise BrokenProperty(DECISIONS, f"{shown} was refused: {answer}")
            return
        count("requests of nobody" if not current else "requests forbidden")
        if not current and code != "UNAUTHENTICATED":
            raise BrokenProperty(DECISIONS, f"{shown} is not told that its key has gone: {answer}")
        if current and lacking and code == "FORBIDDEN" and not _creates(message):
            told = [n for n in lacking if standing.may(user, ("describe", *n[1:]))]
            if not told and lacking[0][1] not in ("cluster", "node"):
                raise BrokenProperty(HIDDEN, f"{shown} is told that it exists: {answer}")

    # -- what is sent -----------------------------------------------------------------------

    def _left(self, host: Host, peer: Address, frames: Frames) -> None:
        if not isinstance(peer, PeerAddress):
            return
        head = frames[0][1:8]
        if head in (_WATCH_RESULT, _GROUPS, _SUBSCRIPTIONS) or (
            head == _PULLED and len(frames) > 1
        ):
            message = decode(frames)
            asked = self._asked.pop((host.name, peer, message.id), None)
            if asked is not None and isinstance(message, WatchResult):
                self._shown(host.name, asked, message.view)
            elif asked is not None and isinstance(message, GroupsListed):
                self._listed(host.name, asked, message)
            elif asked is not None and isinstance(message, SubscriptionsDescribed):
                self._described(host.name, asked, message)
            elif asked is not None:
                self._served(host.name, asked)

    def _served(self, node: str, asked: _Asked) -> None:
        """Messages leave: their reader may have them at some moment of this turn."""
        version = self._version(node)
        needs = needs_of(asked.message) or []
        standings = self.model.between(self._ended.get(node, version), version)
        if not any(
            _holds(standing, asked) and all(standing.may(asked.user, need) for need in needs)
            for standing in standings
        ):
            detail = f"{node} at version {version} sent {asked.user} messages: {needs}"
            raise BrokenProperty(DECISIONS, detail)

    def _listed(self, node: str, asked: _Asked, message: GroupsListed) -> None:
        """A list of groups leaves: it is of some moment since it was asked for."""
        version = self._version(node)
        standings = [s for s in self.model.between(asked.version, version) if _holds(s, asked)]
        for group in message.groups:
            named = [("group", group.name), *(("topic", topic) for topic in group.topics)]
            for kind, name in named:
                if not any(_describes(asked.user, kind, each, name) for each in standings):
                    detail = f"{node} at version {version} listed {kind} {name} for {asked.user}"
                    raise BrokenProperty(HIDDEN, detail)
        self._world.trace.count("groups listed", len(message.groups))

    def _described(self, node: str, asked: _Asked, message: SubscriptionsDescribed) -> None:
        """A list of subscriptions leaves, in the turn in which it was asked for."""
        assert isinstance(asked.message, DescribeSubscriptions)
        version = self._version(node)
        standings = [s for s in self.model.between(asked.version, version) if _holds(s, asked)]
        for each in message.subscriptions:
            name = f"{asked.message.topic}/{each.name}"
            if not any(_describes(asked.user, "subscription", s, name) for s in standings):
                detail = f"{node} at version {version} listed subscription {name} for {asked.user}"
                raise BrokenProperty(HIDDEN, detail)
        self._world.trace.count("subscriptions listed", len(message.subscriptions))

    def _shown(self, node: str, asked: _Asked, view: View) -> None:
        """Metadata leaves: names that its user may see at the version of the view."""
        assert isinstance(asked.message, Watch)
        standing, user, since = self.model.at(view.version), asked.user, asked.message.version
        before = self.model.between(since, view.version)

        def hidden(kind: str, names: Iterable[str], at: Iterable[Standing]) -> list[str]:
            holding = [each for each in at if _holds(each, asked)]
            need = partial(_describes, user, kind)
            return [name for name in names if not any(need(each, name) for each in holding)]

        wrong = hidden("topic", [topic.name for topic in view.topics], [standing])
        wrong += hidden("group", [group.name for group in view.groups], [standing])
        for group in view.groups:
            wrong += hidden("topic", group.subscription, [standing])
        wrong += hidden("topic", view.deleted, before)
        wrong += hidden("group", view.deleted_groups, before)
        if wrong:
            detail = f"{node} at version {view.version} showed {user} {wrong}, after {since}"
            raise BrokenProperty(HIDDEN, f"{detail}, full: {view.full}")
        count = self._world.trace.count
        count("views", 1)
        count("names shown", len(view.topics) + len(view.groups))


def _holds(standing: Standing, asked: _Asked) -> bool:
    """Whether the key by which was asked opens connections."""
    owner = standing.owner(asked.public)
    return owner is not None and owner[0] == asked.user


def _describes(user: str, kind: str, standing: Standing, name: str) -> bool:
    return standing.may(user, ("describe", kind, name))


def _decoded(frames: Sequence[Frame]) -> AnyMessage | None:
    try:
        return decode(frames)
    except InvalidRequest:
        return None


def _plain(standing: Standing) -> dict[str, Any]:
    people = {
        f"user:{name}": (
            person.disabled,
            person.roles,
            person.rules,
            {(key.label, key.public, key.ended) for key in person.keys},
        )
        for name, person in standing.people.items()
    }
    return {**people, **{f"role:{name}": rules for name, rules in standing.roles.items()}}


def _plain_views(users: Mapping[str, UserView], roles: Mapping[str, RoleView]) -> dict[str, Any]:
    people = {
        f"user:{user.name}": (
            user.disabled,
            frozenset(user.roles),
            frozenset(user.rules),
            {(key.label, key.public, key.ended) for key in user.keys},
        )
        for user in users.values()
    }
    return {**people, **{f"role:{role.name}": frozenset(role.rules) for role in roles.values()}}
