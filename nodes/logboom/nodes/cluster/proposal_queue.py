"""The commands that this broker proposes."""

from __future__ import annotations

from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.command_queue import CommandQueue


class ProposalQueue(CommandQueue[BrokerTurn], Service):
    """A queue of commands; `decided` gets the result and the turn in which it arrived.

    All are dropped when the instance epoch of this broker ends: they would be refused.
    """
