"""Somebody who may read a group's queues, and pulls with owner epochs that are invented."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Pull
from logboom.wire.owner_proofs import PROOF_BYTES
from tests.sim.cast.group_operator import GROUPS, queues_of
from tests.sim.cast.wire_client import WireClient
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

REST_S: Final = 0.2
LARGE: Final = (2**31, 2**62, 2**63 - 1)


class Claimer(WireClient):
    """A client that claims queues which no coordinator gave it, and looks at what leaders kept."""

    def __init__(
        self, name: str, endpoints: list[str], rng: random.Random, *, world: World
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._world = world
        self._working = False

    def changed(self, topics: Sequence[str]) -> None:
        """Begin once there are topics."""
        if not self._working:
            self._working = True
            self._claim()

    def _claim(self) -> None:
        self.later(self.rng.expovariate(1 / REST_S), self._claim)
        group = self.rng.choice(list(GROUPS))
        topic, queue = self.rng.choice(queues_of(GROUPS[group]))
        leader = self.routes.leader(topic, queue) if topic in self.routes.topics else None
        if leader is None:
            return
        # An epoch is a version of the metadata: the newest ones look like real ones.
        version = self.routes.version
        epoch = self.rng.choice((0, version, version, version - 1, *LARGE))
        proof = self.rng.choice((b"", self.rng.randbytes(PROOF_BYTES)))

        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if error is not None and error.code == "STALE_EPOCH":
                kept = error.fields["owner_epoch"]
                assert isinstance(kept, int)
                self._judge(group, topic, queue, kept)
            elif message is not None:
                self._world.trace.count("owner epochs invented")

        message = Pull(0, 1_000, topic, queue, 0, 1, 0)
        message.group, message.owner_epoch, message.owner_proof = group, epoch, proof
        self.request(leader[1], message, answered, 1.0)

    def _judge(self, group: str, topic: str, queue: int, kept: int) -> None:
        """What a leader kept is an epoch that the name servers have given."""
        cluster = self._world.newest_state()
        if cluster is None or cluster.version < kept < min(LARGE):
            return  # those that gave it are down
        known, named = cluster.groups.by_name.get(group), cluster.topics.get(topic)
        of_topic = None if known is None or named is None else known.topics.get(named.id)
        given = 0 if of_topic is None else of_topic.owner_epochs[queue]
        if kept > given:
            detail = (
                f"{group} {topic}/{queue}: {kept} was kept, and {given} is the last that was given"
            )
            raise BrokenProperty("invented owner epochs lock nobody out", detail)
        self._world.trace.count("claims of former owners refused")
