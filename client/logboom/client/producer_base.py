# Generated from aio/producer_base.py by `make generate`: do not edit.
"""The base of a producer: everything but sending, flushing and closing."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable

from logboom.client.bridge import run
from logboom.client.delays import Parking, recall_call, was_recalled
from logboom.client.futures import SendFuture
from logboom.client.io_thread import IoThread
from logboom.client.producer_options import ABANDON_S, ProducerOptions
from logboom.client.resource import Scope
from logboom.client.results import Message, SendResult
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.transaction import Transaction, TransactionPool, TransactionProducer
from logboom.client.transactional_sender import TransactionalSender
from logboom.client.transactions.transaction_work import transactional


class ProducerBase(Scope):
    """A producer without its sends."""

    def __init__(
        self,
        io: IoThread,
        buffer: SendBuffer[SendFuture],
        timeout_s: float,
        make: Callable[[ProducerOptions], TransactionProducer],
    ) -> None:
        """Create a producer.

        Args:
            make: creates another producer, for transactions and half messages.
        """
        self._io = io
        self._timeout_s = timeout_s
        self._buffer = buffer
        io.buffers.add(buffer)
        self._make = make
        self._pool = TransactionPool(io, buffer.options, timeout_s, make)
        self._senders: weakref.WeakSet[TransactionalSender] = weakref.WeakSet()
        self._closed = False

    def transaction(self, app_id: str | None = None, sequence: int | None = None) -> Transaction:
        """Begin a transaction: its messages are published all at once for each queue, and all or
        nothing across queues and topics. `with producer.transaction() as txn: txn.send(…)`
        commits at the end, and aborts after an exception. Without `with`, call its `commit`
        or `abort`.

        Args:
            app_id: the application id of the transaction. A process that begins one under the same
                id fences all others. None: an id that this producer makes up.
            sequence: the number of the transaction. Each is committed at most once, and must be
                greater than all committed before. If the outcome of one is unknown, repeat it:
                `duplicate` is true if it was committed. None: the next number.

        Raises:
            InvalidRequest: a transaction of this application id is open in this client, or an
                argument is invalid.
            Refused: FENCED: another process has taken the application id over.
            TimedOut: no name server answered.
        """
        self._check()
        return self._pool.begin(app_id, sequence)

    def transactional_sender(
        self, *, group: str, check: Callable[[Message], object]
    ) -> TransactionalSender:
        """Create a sender of half messages (RocketMQ's transactional messages): each is published
        or dropped by the result of a local transaction.

        Args:
            group: the producer group. Every sender of the group may be asked about any of its
                messages.
            check: called, in a thread of its own, with a message whose local transaction never
                reported its end. It returns "commit", "rollback", or "unknown" to be called again
                later.

        Raises:
            InvalidRequest: the name of the group is invalid.
        """
        self._check()
        inner = self._make(transactional(self._buffer.options))
        made = TransactionalSender(self._io, inner, group, check, self._timeout_s)
        self._senders.add(made)
        return made

    @property
    def buffer(self) -> SendBuffer[SendFuture]:
        """The messages that wait for acknowledgement."""
        return self._buffer

    @property
    def throttled_ms(self) -> int:
        """Milliseconds for which acknowledged batches have waited in all, because the user of this
        client is over its quota. It grows with each acknowledgement."""
        return self._buffer.throttled_ms

    def recall(self, sent: SendResult | Parking) -> bool:
        """Take back a delayed message, or all messages of a batch of `send_many`. Return False if
        it has been released already.

        Raises:
            InvalidRequest: the message was not delayed.
            UnknownResource: its topic was deleted, with the message.
            TimedOut: the leader of the queue did not answer in time: recall the message again.
        """
        parked = sent if isinstance(sent, Parking) else sent.parked
        answer, _ = run(self._io, recall_call(parked, self._timeout_s))
        return was_recalled(answer)

    @abstractmethod
    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close."""

    @abstractmethod
    def _check(self) -> None:
        """Check that neither the producer nor its client is closed."""

    def _leave(self, error: BaseException | None) -> None:
        self.close(None if error is None else ABANDON_S)
