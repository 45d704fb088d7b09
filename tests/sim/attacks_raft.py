"""Schedules of raft alone that chance hardly ever finds: every frame moves when the script says so."""

from __future__ import annotations

from typing import Final

from tests.sim.raft_world import BrokenPromiseError
from tests.sim.world.raft_group import STEP_S, Group

NAMES: Final = ("a", "b", "c", "d", "e")
PATIENCE: Final = 500
"""Steps within which somebody must be elected."""


class HeldGroup(Group):
    """A group in which some wires hold back what is on them, in order, as a slow link does."""

    def __init__(self, *names: str) -> None:
        self.held: set[tuple[str, str]] = set()
        super().__init__(*names)

    def deliver(self, sender: str, receiver: str, count: int | None = None) -> int:
        """Hand over what waits on a wire, unless it is held."""
        return 0 if (sender, receiver) in self.held else super().deliver(sender, receiver, count)

    def only(self, *pairs: tuple[str, str]) -> None:
        """Hold every wire but these, both ways."""
        free = {*pairs, *((other, one) for one, other in pairs)}
        self.held = {(s, r) for s in self.members for r in self.members} - free

    def choose(self, name: str) -> None:
        """Run, in turns of all, until this member leads; only it stands."""
        for _ in range(PATIENCE):
            self.time += STEP_S
            self.turn(name)
            if self.members[name].node.is_leader:
                return
            for other in self.members:
                if self.deliver(name, other):
                    self.reply(other, name)
                self.deliver(other, name)
        raise AssertionError(f"{name} was not elected")

    def reply(self, name: str, asker: str) -> None:
        """Let a member answer without a tick of its own, so that it does not stand."""
        node = self.members[name].node
        node.sync()
        for peer, frame in node.take_outbox():
            if peer == asker:
                self.wires[name, peer].append(frame)


def an_old_answer() -> None:
    """R10: an answer of the first term, "I hold up to 3", arrives in the third, when entry 3 is
    another and two of five hold it."""
    group = HeldGroup(*NAMES)
    first = group.elect("a")
    end = first.node.status()["last_index"]
    assert isinstance(end, int)
    # The leader of term one reaches only b, and b's answers are long under way.
    group.only(("a", "b"))
    group.held.add(("b", "a"))
    for command in (b"x", b"y"):
        first.submit(command)
        group.turn("a")
    group.deliver("a", "b")
    group.turn("b")
    # c is chosen by the others; its first entry takes the place of x, and y goes too.
    group.only(("c", "d"), ("c", "e"))
    group.choose("c")
    group.held = {("b", "a"), ("a", "b")}
    for _ in range(30):
        group.step()
    # a is chosen again, knows no more than the rest, and its first entry reaches d alone.
    group.only(("a", "d"), ("a", "e"), ("a", "c"))
    group.choose("a")
    group.only(("a", "d"))
    group.turn("a")
    group.deliver("a", "d")
    group.reply("d", "a")
    group.deliver("d", "a")
    group.turn("a")
    begun = first.node.status()["last_index"]
    assert begun == end + 2, "the entry that b once said it held, in the place of y"
    committed = first.node.commit_index
    assert committed == end + 1
    # Now b's answer arrives.
    group.only(("b", "a"))
    assert group.deliver("b", "a")
    group.turn("a")
    if first.node.commit_index > committed:
        raise BrokenPromiseError(f"entry {begun} acknowledged on 2 of 5")
