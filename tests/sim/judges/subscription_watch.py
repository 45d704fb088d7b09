"""Looking at simulated subscriptions from outside: what goes over the wire between consumers and
leaders, and what each dispatcher takes and gives, held against `DispatchModel`."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Final

import pytest

from logboom.nodes.subscriptions.active_subscription import ActiveSubscription
from logboom.nodes.subscriptions.dispatch_events import DispatchEffects, DispatchEvent
from logboom.nodes.subscriptions.dispatcher import RETURN_UNITS, SLICE_UNITS, Dispatcher
from logboom.wire.actor import Address
from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.frames import decode
from logboom.wire.subscription_messages import Delivered, Receive, Settled, SettleMessages
from tests.sim.judges.history import Queue
from tests.sim.judges.subscription_ledger import SubscriptionLedger
from tests.sim.judges.subscription_model import DispatchModel, SeenQueue
from tests.sim.world.network import Frames, Host, Watcher
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

_ASKED: Final = (b"receive", b"settlem")
"""How requests of consumers begin, behind the bytes of the tag's length."""
_ANSWERS: Final = (b"deliver", b"settled")

Request = tuple[Host, Address, int]
"""A request: who got it, whose it is, its number."""


class SubscriptionWatch:
    """Overhears all subscriptions of a world."""

    def __init__(self, world: World, ledger: SubscriptionLedger) -> None:
        self._world = world
        self._ledger = ledger
        self._asked: dict[Request, Receive] = {}
        self._settling: dict[Request, tuple[SettleMessages, dict[int, int]]] = {}
        self._permits: Counter[tuple[str, Queue, str, int]] = Counter()
        """(subscription, queue, consumer, session) → permits on the wire, each asking once."""
        self._counted: set[tuple[Host, str, Queue, str, int, int]] = set()
        self._models: dict[Dispatcher, DispatchModel] = {}
        self._seen: defaultdict[Queue, SeenQueue] = defaultdict(SeenQueue)
        network = world.network
        network.on_arrival = partial(self._arrived, network.on_arrival)
        network.on_departure = partial(self._departed, network.on_departure)

    # -- the wire ---------------------------------------------------------------------------

    def _arrived(self, then: Watcher, host: Host, peer: Address, frames: Frames) -> None:
        if frames[0][2:9] in _ASKED:
            message = decode(frames)
            if isinstance(message, Receive):
                self._asked[host, peer, message.id] = message
                self._count_permits(host, message)
            elif isinstance(message, SettleMessages):
                known = self._ledger.ask(message)
                self._settling.setdefault((host, peer, message.id), (message, known))
        then(host, peer, frames)

    def _count_permits(self, host: Host, message: Receive) -> None:
        who = message.subscription, _queue_of(message), message.consumer, message.session
        asking = (host, *who, message.number)
        if asking not in self._counted:
            self._counted.add(asking)
            self._permits[who] += message.messages

    def _departed(self, then: Watcher, host: Host, peer: Address, frames: Frames) -> None:
        if frames[0][2:9] in _ANSWERS:
            message = decode(frames)
            request = host, peer, message.id
            if isinstance(message, Delivered) and request in self._asked:
                self._delivered(message, self._asked.pop(request), frames[1:])
            elif isinstance(message, Settled) and request in self._settling:
                refused = {offset for span in message.refused for offset in range(*span)}
                settling, attempts = self._settling.pop(request)
                self._ledger.settled(settling, refused, attempts)
        then(host, peer, frames)

    def _delivered(self, message: Delivered, asked: Receive, batches: Frames) -> None:
        attempts = dict(message.attempts)
        found = []
        for chosen, frame in zip(message.chosen, batches, strict=True):
            head = validate_batch(frame)
            bits = int.from_bytes(chosen, "little") if chosen else (1 << head.count) - 1
            for place, value in enumerate(open_batch(frame, head).values()):
                if bits >> place & 1:
                    offset = head.base_offset + place
                    found.append((offset, bytes(value or b""), attempts.get(offset, 0)))
        who = asked.consumer, asked.session
        self._ledger.send(asked.subscription, _queue_of(asked), who, found)

    # -- dispatchers ------------------------------------------------------------------------

    def look_on(self, patch: pytest.MonkeyPatch) -> None:
        """Follow every dispatcher from now on."""
        handle = Dispatcher.handle

        def watched(
            dispatcher: Dispatcher,
            event: DispatchEvent,
            now: float,
            units: int = SLICE_UNITS,
            return_units: int = RETURN_UNITS,
        ) -> DispatchEffects:
            model = self._models.get(dispatcher)
            if model is None:
                model = self._models[dispatcher] = DispatchModel(dispatcher)
            # What is refused changes nothing.
            effects = handle(dispatcher, event, now, units, return_units)
            if not model.where:
                self._place(model, dispatcher)
            model.took(event, effects, now)
            self._hold_against_wire(model)
            return effects

        patch.setattr(Dispatcher, "handle", watched)

    def _place(self, model: DispatchModel, dispatcher: Dispatcher) -> None:
        """Find out which subscription a dispatcher serves; at first it serves nobody."""
        served = self._served(dispatcher)
        if served is not None:
            queue = Queue(served.replica.topic, served.replica.queue)
            model.serve(served.name, queue, self._seen[queue])
            self._world.trace.count("dispatchers")

    def _served(self, dispatcher: Dispatcher) -> ActiveSubscription | None:
        for machine in self._world.nodes("broker"):
            broker = self._world.broker(machine.name)
            for served in broker.parts.subscriptions.served.values() if broker is not None else ():
                if served.dispatcher is dispatcher:
                    return served
        return None

    def _hold_against_wire(self, model: DispatchModel) -> None:
        """No permit counts twice."""
        for (consumer, session), granted in model.granted().items():
            who = model.name, model.queue, consumer, session
            if granted > self._permits[who]:
                detail = f"{model.where}: {consumer} gave {self._permits[who]}, counted {granted}"
                raise BrokenProperty("permits count once", detail)


def _queue_of(message: Receive | SettleMessages) -> Queue:
    return Queue(message.topic, message.queue)
