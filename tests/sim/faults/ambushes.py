"""Faults that wait for the moment that hurts, and short plots taken from SAFETY's schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.faults.hand import Fault, Hand
from tests.sim.faults.networks import NetworkFaults
from tests.sim.faults.nodes import NodeFaults
from tests.sim.world.moments import Moment

AT_ONCE: Final = (0.005, 0.1)
"""Seconds of a restart that is over before anybody has noticed."""
LONG: Final = (3.5, 8.0)
"""Seconds: longer than a broker's session."""
MOMENTS: Final[dict[Moment, float]] = {
    "read": 2,
    "copied": 3,
    "registering": 2,
    "decided": 2,
    "isr asked": 3,
    "damage reported": 1,
    "snapshot": 2,
    "elected": 3,
    "isr changed": 2,
}
"""How often each is lain in wait for; an ack has its own fault."""


class Ambushes:
    """Blows that fall at a moment."""

    def __init__(self, hand: Hand, nodes: NodeFaults, network: NetworkFaults) -> None:
        self._hand = hand
        self._nodes = nodes
        self._network = network

    def weights(self) -> dict[Fault, float]:
        """How often each should come, relative to the others."""
        return {
            self.after_ack: 5,
            self.ambush: 6,
            self.lose_growth: 1,
            self.leave_alone: 1,
            self.restart_unseen: 1.5,
        }

    def after_ack(self) -> bool:
        """Somebody dies right after a client got its ack."""
        blow = self._hand.rng.choice(
            [self._it, self._it, self._its_followers, self._brokers, self._everybody, self._some]
        )

        def act(broker: str) -> None:
            self._hand.strike("after ack")
            self._hand.count("crashes after an ack")
            blow(broker)

        self._hand.await_moment("ack", act)
        return False

    def ambush(self) -> bool:
        """Something befalls the node concerned, or the others, at one of `MOMENTS`."""
        hand = self._hand
        (moment,) = hand.rng.choices(list(MOMENTS), list(MOMENTS.values()))
        blow: Callable[[str], object] = hand.rng.choice(
            [
                self._it,
                self._it,
                self._it_at_once,
                self._its_followers,
                self._raft_leader,
                self._it_and_raft_leader,
                self._everybody,
                self._some,
                self._network.cut_off,
                self._nodes.freeze,
                self._deaf,
            ]
        )

        def act(who: str) -> None:
            hand.note("ambush", f"{moment}: {who}")
            hand.strike("ambush")
            hand.count(f"ambush: {moment}")
            blow(who)

        hand.await_moment(moment, act)
        return False

    # -- blows ------------------------------------------------------------------------------

    def _it(self, who: str) -> None:
        self._hand.down(who)

    def _it_at_once(self, who: str) -> None:
        self._hand.down(who, self._hand.rng.uniform(*AT_ONCE))

    def _its_followers(self, who: str) -> None:
        for name in self._hand.names("broker"):
            if name != who:
                self._hand.down(name)

    def _brokers(self, _who: str) -> None:
        for name in self._hand.names("broker"):
            self._hand.down(name)

    def _everybody(self, _who: str) -> None:
        self._nodes.blackout()

    def _some(self, who: str) -> None:
        every = self._hand.names()
        for name in self._hand.rng.sample(every, self._hand.rng.randint(1, len(every))):
            self._hand.down(name)
        self._hand.down(who)

    def _raft_leader(self, _who: str) -> None:
        leader = self._hand.world.observer.raft_leader
        if leader in self._hand.names("name-server"):
            self._hand.down(leader)

    def _it_and_raft_leader(self, who: str) -> None:
        self._raft_leader(who)
        self._it_at_once(who)

    def _deaf(self, who: str) -> None:
        """It no longer hears the name servers: their answer is lost."""
        self._network.part(self._hand.names("name-server"), [who], both=False)

    # -- plots ------------------------------------------------------------------------------

    def lose_growth(self) -> bool:
        """Q6: a follower is added, the leader does not hear of it; they part, somebody gets an
        ack, and all but the added one are gone for long."""
        hand = self._hand

        def asked(leader: str) -> None:
            hand.strike("lose growth")
            self._deaf(leader)
            others = [name for name in hand.names("broker") if name != leader]
            apart = hand.rng.choice(others)
            self._network.part([leader], [apart], seconds=hand.rng.uniform(*LONG))
            hand.later(hand.rng.uniform(0.1, 2.0), lambda: all_but(apart))

        def all_but(one: str) -> None:
            for name in hand.names("broker"):
                if name != one:
                    hand.down(name, hand.rng.uniform(*LONG))

        hand.await_moment("isr asked", asked)
        return False

    def leave_alone(self) -> bool:
        """Q7: a leader's ISR shrinks to itself; then it is gone for long and the others are back."""
        hand = self._hand
        leader = hand.victim("broker").name
        others = [name for name in hand.names("broker") if name != leader]
        seconds = hand.rng.uniform(4.0, 6.0)
        self._network.part([leader], others, seconds=seconds)
        hand.later(
            seconds - hand.rng.uniform(0.0, 0.5),
            lambda: hand.down(leader, hand.rng.uniform(*LONG)),
        )
        return True

    def restart_unseen(self) -> bool:
        """Q2: a leader loses what a follower has copied, and is back before anybody has noticed."""
        hand = self._hand

        def copied(leader: str) -> None:
            hand.strike("restart unseen")
            if hand.rng.random() < 0.6:
                self._raft_leader(leader)
            self._it_at_once(leader)

        hand.await_moment("copied", copied)
        return False
