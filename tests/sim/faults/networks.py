"""Partitions, broken connections and links that are slow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Final

from tests.sim.faults.hand import Fault, Hand

APART: Final = (0.3, 9.0)
"""Seconds that a partition lasts: short ones let messages arrive late, long ones break."""
GOING_HOME: Final = (2.5, 6.0)
"""Seconds after its end when a broker that came back at once gets its leaderships back."""
LOST_INSIDE: Final = (7.0, 9.0)
"""Seconds without a broker that clients still reach: who waits for its end waits too long."""
LAG: Final = (0.1, 4.0)
"""Seconds that messages take longer: up to well beyond every request's time-out, so that answers
come after their request was given up and sent again, also over a connection of before."""
LAGGING: Final = (0.5, 6.0)
"""Seconds that a lag lasts."""


class NetworkFaults:
    """What befalls links."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def weights(self) -> dict[Fault, float]:
        """How often each should come, relative to the others."""
        return {
            self.isolate: 2.5,
            self.split: 2,
            self.one_way: 1.5,
            self.cut_apart: 1,
            self.deafen: 0.5,
            self.cut_going_home: 0.5,
            self.break_connections: 2,
            self.lag: 2,
            self.half_open: 1,
            self.half_open_followers: 0.5,
        }

    def isolate(self) -> bool:
        """One node alone."""
        return self.cut_off(self._hand.victim().name)

    def cut_off(self, name: str) -> bool:
        """This machine alone."""
        return self.part([name], self._hand.others([name]))

    def split(self) -> bool:
        """Two halves, not always equal."""
        hand = self._hand
        names = hand.others(())
        hand.rng.shuffle(names)
        cut = hand.rng.randint(1, len(names) - 1)
        return self.part(names[:cut], names[cut:])

    def one_way(self) -> bool:
        """A node is heard but does not hear, or the other way round."""
        hand = self._hand
        alone = hand.victim().name
        rest = hand.others([alone])
        towards = hand.rng.sample(rest, hand.rng.randint(1, len(rest)))
        sides = ([alone], towards) if hand.rng.random() < 0.5 else (towards, [alone])
        return self.part(*sides, both=False)

    def cut_apart(self) -> bool:
        """Two brokers hear each other no more; everybody else hears both."""
        one, other = self._hand.rng.sample(self._hand.names("broker"), 2)
        return self.part([one], [other])

    def deafen(self) -> bool:
        """One broker hears another no more, which hears it still."""
        one, other = self._hand.rng.sample(self._hand.names("broker"), 2)
        return self.part([one], [other], both=False)

    def cut_going_home(self) -> bool:
        """A broker was away; about when its leaderships go home, another cannot hear it."""
        hand, rng = self._hand, self._hand.rng
        home, other = rng.sample(hand.names("broker"), 2)
        both = rng.random() < 0.7
        ways = ([home], [other]) if rng.random() < 0.5 else ([other], [home])
        wait, seconds = rng.uniform(*GOING_HOME), rng.uniform(4.0, APART[1])
        hand.later(wait, lambda: self.part(*ways, both=both, seconds=seconds))
        return hand.down(home, 0.2)

    def cut_from_nodes(self) -> bool:
        """A broker and all other nodes hear each other no more; clients hear everybody."""
        return self._lost_inside(both=True)

    def unheard_by_nodes(self) -> bool:
        """All other nodes hear a broker no more, which hears them; clients hear everybody."""
        return self._lost_inside(both=False)

    def _lost_inside(self, *, both: bool) -> bool:
        hand = self._hand
        broker = hand.rng.choice(hand.names("broker"))
        others = [name for name in hand.names() if name != broker]
        return self.part([broker], others, both=both, seconds=hand.rng.uniform(*LOST_INSIDE))

    def part(
        self,
        these: Iterable[str],
        those: Iterable[str],
        *,
        both: bool = True,
        seconds: float | None = None,
    ) -> bool:
        """Nothing passes from these to those (nor back), for a while."""
        hand, network = self._hand, self._hand.world.network
        these, those = list(these), list(those)
        arrow = "<x>" if both else "x>"
        hand.note("network", f"{','.join(these)} {arrow} {','.join(those)}")
        hand.count("partitions")
        ways = [(one, other) for one in these for other in those]
        if both:
            ways += [(other, one) for one, other in ways]
        for way in ways:
            network.block(*way)
        wait = hand.rng.uniform(*APART) if seconds is None else seconds
        hand.later(wait, lambda: network.unblock(ways))
        return True

    def break_connections(self) -> bool:
        """Connections of two machines drop and come back."""
        hand = self._hand
        one, other = hand.rng.sample(hand.others(()), 2)
        broken = hand.world.network.break_between(one, other)
        hand.note("network", f"{broken} connections of {one} and {other} break")
        return broken > 0

    def half_open(self) -> bool:
        """What a machine dialled at another leads nowhere from now on; it sends on."""
        pairs = list(permutations(self._hand.others(()), 2))
        self._hand.rng.shuffle(pairs)
        return any(self._half_open(*pair) for pair in pairs)

    def half_open_followers(self) -> bool:
        """What the others dialled at a broker leads nowhere, when it needs them for its HW."""
        brokers = self._hand.names("broker")
        leader = self._hand.rng.choice(brokers)
        struck = [self._half_open(name, leader) for name in brokers if name != leader]
        return any(struck)

    def _half_open(self, dialler: str, listener: str) -> bool:
        count = self._hand.world.network.half_open(dialler, listener)
        if count:
            self._hand.note(
                "network", f"{count} connections of {dialler} to {listener} lead nowhere"
            )
        return count > 0

    def lag(self) -> bool:
        """What a node says to some, or hears of them, comes late; maybe a connection breaks too."""
        hand, rng = self._hand, self._hand.rng
        name = hand.victim().name
        rest = hand.others([name])
        peers = rng.sample(rest, rng.randint(1, len(rest)))
        seconds = rng.uniform(*LAG)
        says = rng.random() < 0.5
        lags = hand.world.network.lags
        ways = [(name, peer) if says else (peer, name) for peer in peers]
        lags.update(dict.fromkeys(ways, seconds))
        how = "says to" if says else "hears of"
        hand.note("network", f"what {name} {how} {','.join(peers)} takes {seconds:.1f} s longer")
        hand.count("lags")
        if rng.random() < 0.3:
            hand.later(rng.uniform(0, seconds), lambda: self._break(name, peers))
        hand.later(rng.uniform(*LAGGING), lambda: self._hasten(ways))
        return True

    def _hasten(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self._hand.world.network.lags.pop(way, None)

    def _break(self, name: str, peers: list[str]) -> None:
        for peer in peers:
            self._hand.world.network.break_between(name, peer)
