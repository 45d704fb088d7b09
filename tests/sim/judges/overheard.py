"""What brokers ask of the name servers, heard in the network: their changes of ISRs.

A change begins when it first reaches a name server, and ends when its answer reaches the broker:
both lie within the time in which the broker waits, so nothing sound is accused.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from logboom.wire.actor import Address
from logboom.wire.commands import AlterIsr, IsrChange
from logboom.wire.frames import decode
from logboom.wire.messages import Propose, Proposed
from tests.sim.judges.operations import Operations
from tests.sim.world.network import Frames, Host
from tests.sim.world.world import World

_PROPOSE: Final = b"\xa7propos"
_PROPOSED: Final = b"\xa8propos"
_Asked: TypeAlias = tuple[str, int]
"""Proposer, which each process of a broker has of its own, and number."""


class Overheard:
    """Writes down the compare-and-sets of all brokers of a world."""

    def __init__(self, world: World, history: Operations) -> None:
        self._world = world
        self._history = history
        self._waiting: dict[_Asked, list[str]] = {}
        """Proposals without an answer → a process for each of their changes."""
        self._heard: set[_Asked] = set()
        self._answers: dict[tuple[str, str, int], _Asked | None] = {}
        """Broker, name server's endpoint and request id → which proposal that answers."""
        self._before = world.network.on_arrival
        world.network.on_arrival = self._arrived

    def _arrived(self, host: Host, peer: Address, frames: Frames) -> None:
        self._before(host, peer, frames)
        head = frames[0][1:8]
        if head == _PROPOSE:
            message = decode(frames)
            if isinstance(message, Propose):
                self._asked(self._world.machines[host.name].listeners["main"], message)
        elif head == _PROPOSED and isinstance(peer, str):
            answer = decode(frames)
            asked = self._answers.pop((host.name, peer, answer.id), None)
            if asked is not None and isinstance(answer, Proposed):
                self._answered(asked, answer)

    def _asked(self, endpoint: str, message: Propose) -> None:
        command = message.command
        broker, _, process = message.proposer.partition("/")
        if not process:
            return
        asked = (message.proposer, message.number)
        changes = command.changes if isinstance(command, AlterIsr) else []
        # Of other commands too: a restarted broker counts its requests from the beginning.
        self._answers[broker, endpoint, message.id] = asked if changes else None
        if not changes or asked in self._heard:
            return
        self._heard.add(asked)
        self._waiting[asked] = [self._begin(asked, n, c) for n, c in enumerate(changes)]

    def _begin(self, asked: _Asked, number: int, change: IsrChange) -> str:
        process = f"{asked[0]}.{asked[1]}.{number}"
        value = {
            "expected": change.version,
            "epoch": change.leader_epoch,
            "before": [],
            "isr": sorted(member for member, _ in change.isr),
        }
        key = f"{change.topic_id}/{change.queue}"
        self._history.invoke(process, "cas", key, value, self._world.scheduler.now)
        return process

    def _answered(self, asked: _Asked, message: Proposed) -> None:
        result = message.result
        processes = self._waiting.pop(asked, None)
        if processes is None:
            # Asked of two name servers, for want of an answer, and now both have answered.
            return
        codes = result.value if isinstance(result.value, list) else [result.code] * len(processes)
        for process, code in zip(processes, codes, strict=True):
            answer = {"code": code, "version": result.version}
            self._history.end(process, "ok", answer, self._world.scheduler.now)
