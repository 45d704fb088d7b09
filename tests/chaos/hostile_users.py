"""Two users with few rights send all they can: `python -m tests.chaos.hostile_users --minutes 10`.

One has no rule, the other `read` on one topic. Both send every request and every command, with each
field at its extremes, to every node of a secure cluster, while a client sends and pulls. It ends with
1 and the reason if a node ends or logs a fault, a broker is fenced, anything has changed that they have
no right to, a node has grown, or (`--slower`) the client was held up.

`--slower` compares with the client alone. The attackers would have machines of their own, so the client
and the nodes get real-time priorities for it: a kernel without preemption lets a process that was woken
wait up to a tick (4 ms) for one that matters less, on whatever cluster that one works.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from bench.figures import percentile
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.base import WireMessage
from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame, encode
from logboom.wire.messages import Produce
from logboom.wire.sockets import make_key_pair
from tests.chaos.memory import Memory
from tests.chaos.node_logs import faults
from tests.integration.security.requests import build, requests_about
from tests.integration.security.strangers import Keys, is_session, stranger
from tests.unit.wire.hostile import BATCHES, HUGE, NUMBERS
from tests.unit.wire.largest_requests import Field, fields, fullest

SECRET: Final = "secret"
"""A topic, a group and a subscription that neither user may see."""
OPEN: Final = "open"
"""A topic that the user "reader" may read."""
BUSY: Final = "busy"
"""The topic of the client that is to notice nothing."""
NAMES: Final = (SECRET, OPEN, "absent", "", f"%RETRY%{SECRET}", f"%DLQ%{OPEN}%s", "node:broker-1")
USERS: Final = ("nobody", "reader")
GROWTH_MB: Final = 64
"""What a node may have at most beyond what it had before."""
CACHE_BYTES: Final = 1024 * 1024
"""Of brokers: at 32 MiB they grow by some 500 bytes with each message of the client, which is no growth
that the attackers cause."""
WAITING: Final = 64
"""Requests of one connection whose answers are waited for, but for those that a node holds."""
PATIENT_MS: Final = 5
"""How long an attacker waits for answers before it sends more."""
CONNECTION: Final = 2_000
"""Requests that an attacker sends by one connection."""
PACE_S: Final = 0.01
"""Of the client, between two messages: the probe must not be the load."""


@dataclass
class Report:
    """What was seen of one run."""

    sent: dict[str, int] = field(default_factory=dict)
    """Attacker → requests that it has sent in sessions."""
    alone_ms: list[float] = field(default_factory=list)
    """How long the client waited for an acknowledgement or a message before they attacked, …"""
    beside_ms: list[float] = field(default_factory=list)
    """… and while they did."""
    grown_mb: dict[str, float] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def slower(self) -> float:
        """How many times as long the client's p99 was beside the attackers."""
        return percentile(self.beside_ms, 0.99) / percentile(self.alone_ms, 0.99)

    def __str__(self) -> str:
        grown = ", ".join(f"{node} {mb:+.0f} MiB" for node, mb in self.grown_mb.items())
        p99 = f"p99 of a client beside them {percentile(self.beside_ms, 0.99):.1f} ms"
        if self.alone_ms:
            p99 += f", alone {percentile(self.alone_ms, 0.99):.1f} ms ({self.slower:.2f} times)"
        return f"{sum(self.sent.values()):,} requests; {p99}; {grown}"


def requests(chooser: random.Random) -> Iterator[list[Frame]]:
    """Every request and command: plausible, with odd numbers, and each field as full as it may be."""
    made: list[Callable[[], list[list[Frame]]]] = [partial(_full, each) for each in fields()]
    for name in NAMES:
        made.append(partial(_batches, name))
        made += [
            partial(_plausible, message, batches, chooser)
            for _, message, batches in requests_about(name)
        ]
    chooser.shuffle(made)
    return chain.from_iterable(each() for each in made)


def _full(one: Field) -> list[list[Frame]]:
    return [[one.whole(each)] for each in fullest(one, one.request.FRAME_BYTES)]


def _batches(topic: str) -> list[list[Frame]]:
    return [encode(build(Produce, topic), [each]) for each in BATCHES]


def _plausible(
    message: WireMessage, batches: list[Frame], chooser: random.Random
) -> list[list[Frame]]:
    odd = [chooser.choice(BATCHES)] if batches else []
    return [encode(message, batches), encode(_odd(message, chooser), odd)]


def _odd(record: Any, chooser: random.Random) -> Any:
    """The same message, command or part of one with numbers that nobody expects."""
    changes: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, msgspec.Struct):
            changes[name] = _odd(value, chooser)
        elif isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
            changes[name] = [_odd(value[0], chooser)] * chooser.choice((0, 1, 100))
        elif type(value) is int and name != "id":
            changes[name] = chooser.choice((*NUMBERS, *HUGE))
    return msgspec.structs.replace(record, **changes)


def attack(endpoint: str, keys: Keys, seed: int, seconds: float, sent: Synchronized[int]) -> None:
    """Send requests by one connection after another until the time is over; a process of its own."""
    # As from another machine: what the nodes and the client need comes first.
    os.nice(15)
    chooser, until = random.Random(seed), time.monotonic() + seconds
    queue = requests(chooser)
    while time.monotonic() < until:
        with stranger(endpoint, keys) as peer:
            if not (peer.let_in() and is_session(peer.greet(f"attacker {seed}"))):
                continue
            _send(peer.socket, queue, until, sent)
        queue = requests(chooser) if next(queue, None) is None else queue


def _send(
    socket: zmq.Socket[bytes], queue: Iterator[list[Frame]], until: float, sent: Synchronized[int]
) -> None:
    waiting = 0
    for _ in range(CONNECTION):
        frames = next(queue, None)
        if frames is None or time.monotonic() > until:
            return
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return
        waiting += 1
        with sent.get_lock():
            sent.value += 1
        while socket.poll(PATIENT_MS if waiting > WAITING else 0):
            socket.recv_multipart()
            waiting -= 1
        waiting = min(waiting, WAITING)


class Target:
    """A secure cluster with something to hide, and the clients that look at it."""

    def __init__(self, stack: ExitStack, nodes: int) -> None:
        settings = {"cache_bytes": CACHE_BYTES}
        self.cluster = stack.enter_context(
            Cluster(name_servers=nodes, brokers=nodes, broker_settings=settings, secure=True)
        )
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.root = stack.enter_context(connect(str(self.cluster.credentials)))
        self._fill()
        self.keys = {user: self._new_user(user) for user in USERS}
        admin = self.root.admin
        admin.add_rule("user:reader", "allow", "read", "topic", OPEN)
        # It does not poll again, and stays a member all the same.
        member = self.root.consumer(
            SECRET, group=SECRET, start="first", max_poll_interval_ms=86_400_000
        )
        self._group = stack.enter_context(member)
        self._subscriber = stack.enter_context(
            self.root.subscribe(SECRET, subscription=SECRET, start="first")
        )
        for consumer in (self._group, self._subscriber):
            while not (found := consumer.poll(1)):
                pass
            consumer.ack(found[0])
        self._group.commit()
        self._subscriber.flush()
        self.said = 0
        """Messages of the client."""

    def _fill(self) -> None:
        for topic in (SECRET, OPEN, BUSY):
            self.root.admin.create_topic(topic, queues=1)
        with self.root.producer() as producer:
            for each in [producer.send(t, b"x" * 1_000) for t in (SECRET, OPEN) for _ in range(20)]:
                each.result(60)

    def _new_user(self, user: str) -> Credentials:
        admin = self.cluster.credentials
        assert admin is not None
        known = read_credentials(admin)
        made = Credentials(user, known.cluster_id, make_key_pair(), known.servers)
        write_credentials(self._folder / f"{user}.toml", made)
        self.root.admin.create_user(user, made.key_pair.public)
        return made

    def keys_for(self, user: str, node: str) -> Keys:
        """The key pair of a user, to dial a node with."""
        pair = self.keys[user].key_pair
        (server,) = (each for each in self.keys[user].servers if each.node == node)
        return Keys(pair.public.encode(), pair.secret.reveal().encode(), server.public_key.encode())

    def state(self) -> dict[str, Any]:
        """All that neither user has a right to change."""
        admin = self.root.admin
        found: dict[str, Any] = msgspec.to_builtins(
            {
                "topics": [
                    (each.name, each.config, len(each.queues), each.replicas, each.owner)
                    for each in sorted(admin.topics(), key=attrgetter("name"))
                ],
                "users": admin.users(),
                "roles": admin.roles(),
                "quota": admin.default_quota(),
                "settings": admin.list_settings(),
                "level": admin.versions().features,
                "group": admin.describe_group(SECRET).config,
                "groups": [
                    (each.name, each.member_count, each.group_epoch) for each in admin.groups()
                ],
                "committed": sorted(admin.committed(SECRET, SECRET).items()),
                "subscriptions": [
                    (topic, each.queue, each.state.name, each.state.floor)
                    for topic in (SECRET, OPEN)
                    for each in admin.subscriptions.all(topic)
                ],
                "brokers": [
                    (each.id, each.instance_epoch, each.alive, each.mode)
                    for each in admin.brokers()
                ],
                "name servers": sorted(each.id for each in admin.name_servers()),
                "messages": [sorted(admin.offsets(topic).items()) for topic in (SECRET, OPEN)],
                "transactions": admin.transactions().transactions,
                "delayed": admin.delayed(),
            }
        )
        return found

    def put_first(self) -> None:
        """Let the nodes, and before them the client, run before all other processes.

        Raises:
            PermissionError: it takes a right that root has.
        """
        nodes = [self.cluster.pid(node) for node in self.cluster.nodes]
        for process, priority in ((os.getpid(), 2), *((node, 1) for node in nodes)):
            for thread in Path(f"/proc/{process}/task").iterdir():
                policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))

    def serve(self, seconds: float) -> list[float]:
        """Send and pull one message after another; return how long each took, in ms."""
        took: list[float] = []
        until = time.monotonic() + seconds
        with self.root.producer(linger_ms=0) as producer:
            while time.monotonic() < until:
                began = time.monotonic()
                offset = producer.send(BUSY, b"x" * 100).result(60).offset
                sent = time.monotonic()
                self.said += 1
                pulled = self.root.pull(BUSY, queue=0, offset=offset, wait_ms=0)
                assert pulled.messages, f"{BUSY} has no message at {offset}"
                took += [1_000 * (sent - began), 1_000 * (time.monotonic() - sent)]
                # The pace: nothing is waited for.
                time.sleep(PACE_S)
        return took

    def troubles(self, before: dict[str, Any]) -> Iterator[str]:
        """Everything that must not be so."""
        for node in self.cluster.nodes:
            if not self.cluster.running(node):
                yield f"{node} ended:\n{self.cluster.log(node)[-2_000:]}"
            log = self.cluster.log(node)
            yield from (f"{node} logged a fault:\n{each.text}" for each in faults(log.encode()))
            yield from (
                f"{node} says:\n{line}"
                for line in log.splitlines()
                if "broker_fenced" in line or "lease_lost" in line
            )
        try:
            after, end = self.state(), self.root.admin.offsets(BUSY)[0][1]
        except LogboomError as error:
            yield f"what was there is not found any more: {error}"
            return
        yield from (
            f"{what} changed:\n{before[what]}\n{after[what]}"
            for what in before
            if before[what] != after[what]
        )
        if end != self.said:
            yield f"the client sent {self.said:,} messages, the log ends at {end:,}"


def run(
    seconds: float, seed: int = 0, nodes: int = 1, growth_mb: float = GROWTH_MB, alone_s: float = 0
) -> Report:
    """Attack a cluster with `nodes` name servers and brokers for so long, and report.

    With `alone_s`, the client is served alone for so long before, for comparison.

    Raises:
        PermissionError: to compare takes the right to real-time priorities.
    """
    report = Report()
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        target = Target(stack, nodes)
        target.serve(3.0)
        if alone_s:
            target.put_first()
            report.alone_ms = target.serve(alone_s)
        before = target.state()
        memory = {node: Memory(target.cluster.pid(node)) for node in target.cluster.nodes}
        sent: dict[str, Synchronized[int]] = {}
        attackers: list[SpawnProcess] = []
        for number, (user, node) in enumerate(product(USERS, target.cluster.nodes)):
            counter = sent[f"{user} at {node}"] = spawn.Value("q", 0)
            of = target.cluster.endpoint(node), target.keys_for(user, node)
            arguments = (*of, 1_000 * seed + number, seconds, counter)
            attackers.append(spawn.Process(target=attack, args=arguments, daemon=True))
        for each in attackers:
            each.start()
        try:
            while any(each.is_alive() for each in attackers):
                report.beside_ms += target.serve(1.0)
        except LogboomError as error:
            report.troubles.append(f"the client is not served: {error}")
            for each in attackers:
                each.terminate()
        report.troubles += target.troubles(before)
        for each in attackers:
            each.join()
            if each.exitcode:
                report.troubles.append(f"an attacker ended with {each.exitcode}")
        report.sent = {attacker: counter.value for attacker, counter in sent.items()}
        alive = {node: each for node, each in memory.items() if target.cluster.running(node)}
        report.grown_mb = {node: each.grown for node, each in alive.items()}
        report.troubles += [
            f"{node} grew by {mb:.0f} MiB" for node, mb in report.grown_mb.items() if mb > growth_mb
        ]
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long they attack")
    parser.add_argument("--seed", type=int, default=0, help="of what they send")
    parser.add_argument("--nodes", type=int, default=1, help="name servers, and brokers: 1, 3 or 5")
    parser.add_argument(
        "--slower",
        type=float,
        help="how many times as long the client may wait (p99) as before they attack; takes root",
    )
    chosen = parser.parse_args(arguments)
    seconds = chosen.minutes * 60
    alone_s = 0 if chosen.slower is None else min(60.0, seconds)
    try:
        report = run(seconds, chosen.seed, chosen.nodes, alone_s=alone_s)
    except PermissionError as error:
        parser.error(f"--slower sets real-time priorities ({error}): run it as root")
    sys.stdout.write(f"{report}\n")
    if chosen.slower is not None and report.slower > chosen.slower:
        report.troubles.append(f"the client waited more than {chosen.slower:g} times as long")
    for each in report.troubles:
        sys.stdout.write(f"{each}\n")
    return int(bool(report.troubles))


if __name__ == "__main__":
    sys.exit(main())
