"""Two live processes with one broker id, or one address: the second is refused.

The Raft leader judges a registration before it enters the log. A broker that was killed and starts
again is let in at once: it has the same store, or, with an empty disk, the same endpoint. A process
that was registered before the live one does not come back, or the two would take the id from each
other for ever. What is refused is told to the live one with its heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logboom.metadata.tables.cluster_state import BrokerRegistration
from logboom.wire.commands import RegisterBroker
from logboom.wire.errors import InvalidRequest

TOLD_S: Final = 15.0
"""Seconds for which the owner of an id is told of a process that was refused; it asks each second."""
TAKEN: Final = "BROKER_TAKEN"


class BrokerRivals:
    """The processes that were refused lately."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[str, float]] = {}
        """Broker that owns what was asked for → address of the other process, and when it asked."""

    def refuse(
        self, command: RegisterBroker, brokers: Mapping[str, BrokerRegistration], now: float
    ) -> InvalidRequest | None:
        """Return why a process may not be the broker that it would be, or None."""
        known = brokers.get(command.broker)
        error = None
        if known is not None and known.alive and known.incarnation != command.incarnation:
            error = _refuse_id(command, known)
        if error is None:
            known = _owner_of_address(command, brokers)
            if known is None:
                self._refused.pop(command.broker, None)
                return None
            text = (
                f"{command.broker} advertises {command.endpoint}, which is the address of "
                f"{known.id}, and that is alive: give each its own `advertise`"
            )
            error = InvalidRequest(text, TAKEN)
        assert known is not None
        self._refused[known.id] = (command.endpoint, now)
        return error

    def rival(self, broker: str, now: float) -> str:
        """Return the address of the process that was refused lately for this broker's sake, or ""."""
        endpoint, at = self._refused.get(broker, ("", 0.0))
        if endpoint and now - at > TOLD_S:
            del self._refused[broker]
            return ""
        return endpoint


def _refuse_id(command: RegisterBroker, known: BrokerRegistration) -> InvalidRequest | None:
    same_store = known.store_id == command.store_id
    if command.former_epoch < 0:
        if same_store or known.endpoint == command.endpoint:
            return None
        text = (
            f"{known.id} is alive at {known.endpoint}, with another data folder: stop one of the two, or "
            "give it an `id` of its own"
        )
        return InvalidRequest(text, TAKEN)
    if known.instance_epoch == command.former_epoch:
        return None
    if same_store:
        text = (
            f"another process is {known.id} now, at {known.endpoint}, with a copy of this data folder: "
            "stop the wrong one; to go on with this one, start it again"
        )
    else:
        text = f"another process is {known.id} now, at {known.endpoint}: stop the wrong one"
    return InvalidRequest(text, TAKEN, copied=int(same_store))


def _owner_of_address(
    command: RegisterBroker, brokers: Mapping[str, BrokerRegistration]
) -> BrokerRegistration | None:
    """Return another live broker that can be reached at an address of this one."""
    wanted = {command.endpoint, *(each.endpoint for each in command.listeners)}
    for broker in brokers.values():
        if broker.alive and broker.id != command.broker:
            has = {broker.endpoint, *(each.endpoint for each in broker.listeners)}
            if wanted & has:
                return broker
    return None
