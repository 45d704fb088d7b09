"""Words for tests of transactions at a broker."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.wire.batch import open_batch
from logboom.wire.messages import Produce, Produced, Pulled
from logboom.wire.transactions import DecisionView, EntryPosition, ParkedBatches, TransactionId
from tests.unit.nodes.rig import Peer, Rig, batch, pull

APP = "app"


def alone() -> tuple[Rig, Peer]:
    """A broker that leads a queue of one replica, and a client; a minute makes an orphan."""
    rig = Rig(transaction_timeout_ms=60_000)
    rig.lead()
    return rig, rig.client()


def of(sequence: int = 0, attempt: int = 0, app_id: str = APP) -> TransactionId:
    """A transaction."""
    return TransactionId(app_id, sequence, attempt)


def park_request(transaction: TransactionId) -> Produce:
    """A PRODUCE in a transaction."""
    return Produce(0, 30_000, "flights", 0, "all", transaction=transaction)


def park(client: Peer, value: bytes, transaction: TransactionId | None = None) -> EntryPosition:
    """Park one message in a transaction; where."""
    client.ask(park_request(transaction or of()), [batch(value=value)])
    answer = client.answer()
    assert isinstance(answer, Produced)
    assert answer.side >= 0
    return answer.base_offset, answer.side


def commit(
    number: int, *places: EntryPosition, sequence: int = 0, attempt: int = 0, app_id: str = APP
) -> DecisionView:
    """A decision that releases these places of queue 0."""
    queues = [ParkedBatches(1, 0, list(places))]
    return DecisionView(number, app_id, sequence, attempt, True, queues)


def abort(number: int, sequence: int = 0, attempt: int = 0) -> DecisionView:
    """A decision that ends one attempt on queue 0."""
    return DecisionView(number, APP, sequence, attempt, False, [ParkedBatches(1, 0, [])])


def read(client: Peer, offset: int = 0, *, uncommitted: bool = False) -> list[bytes | None]:
    """All values that can be read from an offset on."""
    message = pull(offset)
    message.uncommitted = uncommitted
    replies = client.ask(message)
    assert len(replies) == 1
    assert isinstance(replies[0].message, Pulled), replies[0].error
    return [value for entry in replies[0].batches for value in open_batch(entry).values()]


def letters(rig: Rig) -> list[bytes]:
    """Which kinds of rows the queue has, in order."""
    return [key[8:9] for key in rig.storage.content("parked")]


def places_of(entries: Sequence[DecisionView]) -> list[EntryPosition]:
    """All places that decisions name."""
    return [place for view in entries for parked in view.queues for place in parked.places]
