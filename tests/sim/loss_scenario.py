"""A run with losses that an operator accepts: `python -m tests.sim.loss_scenario --seed 17`."""

from __future__ import annotations

import random
import sys
from functools import partial

import msgspec

from logboom.wire.commands import CreateTopic
from tests.sim.cast.losses import QUEUES, TOPIC, Losses
from tests.sim.hunting import hunt
from tests.sim.scenario import FOR_EVER, UP_S, Scenario


class LossScenario(Scenario):
    """A scenario in which queues lose their only copies; with `calm` nothing befalls members."""

    module = "tests.sim.loss_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        super().__init__(seed)
        self.options = " --calm" if calm else ""
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.losses = Losses(self, endpoints, calm=calm)
        self.guests.append(self.losses)

    def come_up(self) -> None:
        """Create the topic too; in every other run it accepts losses from the beginning."""
        super().come_up()
        accepts = random.Random(f"accepted losses of {self.seed}").random() < 0.5
        config = msgspec.structs.replace(FOR_EVER, unclean_election=accepts)
        command = CreateTopic(TOPIC, len(QUEUES), 1, config, 1)
        self._call("observer", partial(self._create, TOPIC, command))
        self._until("a topic of single copies is created", UP_S, self._placed)
        self.losses.place()

    def _placed(self) -> bool:
        topic = self.observer.routes.topics.get(TOPIC)
        return topic is not None and all(queue.leader is not None for queue in topic.queues)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(LossScenario, __doc__, ("calm", "nothing befalls the group's members"), arguments)


if __name__ == "__main__":
    sys.exit(main())
