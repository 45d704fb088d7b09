"""Calls to a listener, and the meaning of its results.

None or True finishes a message; anything that fails is retried.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from logboom.client.delays import check_delay
from logboom.client.fetch.retry_copies import DEAD
from logboom.client.push.listener_task import Context, Dead, Done, Later, ListenerTask
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest, describe_exception

LOG = logging.getLogger("logboom.client")

RAISED: Final = "the listener raised for %s"
REFUSED: Final = "the listener returned False"


def takes_context(listener: Callable[..., object]) -> bool:
    """True if a listener has a second parameter, for the Context.

    Raises:
        InvalidRequest: it cannot be called with one or two arguments.
    """
    if not callable(listener):
        raise InvalidRequest(f"a listener must be a function of a message, not {listener!r:.80}")
    try:
        signature = inspect.signature(listener)
    except ValueError:
        return False  # a builtin without a signature
    try:
        signature.bind(None)
    except TypeError:
        pass
    else:
        return False
    try:
        signature.bind(None, None)
    except TypeError:
        text = "a listener takes a message (or a list), or these and a context"
        raise InvalidRequest(text) from None
    return True


def apply_result(work: ListenerTask, messages: list[Message], result: object) -> None:
    """Apply what a listener returned for these messages."""
    if result is None or result is True:
        return
    delay_s, cause = None, REFUSED
    if isinstance(result, Dead):
        delay_s, cause = DEAD, str(result.cause)
    elif isinstance(result, (Done, Later)):
        cause = f"the listener returned {result!r}"
        try:
            if result.delay_s is not None:
                delay_s = check_delay(result.delay_s)
        except InvalidRequest as error:
            cause = str(error)
        if isinstance(result, Done):
            messages = messages[result.count :]
    elif result is not False:
        return  # any other result belongs to the application
    for message in messages:
        work.fail(message, delay_s, cause)


def fail_raised(work: ListenerTask, messages: list[Message], error: BaseException) -> None:
    """Fail the messages of a listener that raised."""
    cause = describe_exception(error)
    for message in messages:
        work.fail(message, None, cause)


def place(message: Message) -> str:
    """Describe the position of a message for the log."""
    return f"{message.topic}/{message.queue} at {message.offset} (attempt {message.attempt})"


class ListenerRunner:
    """Runs a listener over the messages that a worker has taken."""

    def __init__(
        self,
        listener: Callable[..., object],
        clock: Callable[[], float],
        *,
        batch: bool,
        orderly: bool,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._batch = batch
        self._orderly = orderly
        self._with_context = takes_context(listener)

    def run(self, work: ListenerTask) -> None:
        """Call the listener for each message, or for all at once."""
        context: tuple[Any, ...] = (Context(work),) if self._with_context else ()
        if self._batch:
            messages = list(work.rest)
            work.current, work.began = messages[0], self._clock()
            work.rest.clear()
            self._call(work, messages, messages, context)
        elif context or self._orderly:
            self._one_by_one(work, context)
        else:
            self._fast(work)
        work.current = None

    def _fast(self, work: ListenerTask) -> None:
        """Do the same as `_one_by_one`, with less work per message."""
        holding, take = work.lane.holding, work.rest.popleft
        listener, clock = self._listener, self._clock
        while holding.state == "reading":
            try:
                message = take()
            except IndexError:
                return
            work.current = message
            work.began = clock()
            try:
                result = listener(message)
                if result is not None and result is not True:
                    apply_result(work, [message], result)
            # Application code may raise anything, time-outs of gevent and trio and a cancellation
            # of `asyncio.run` too, and return what cannot be applied; then the message has failed.
            except BaseException as error:
                LOG.exception(RAISED, place(message))
                fail_raised(work, [message], error)

    def _one_by_one(self, work: ListenerTask, context: tuple[Any, ...]) -> None:
        while not work.stopped and not (self._orderly and work.failed):
            try:
                message = work.rest.popleft()
            except IndexError:
                return
            work.current, work.began = message, self._clock()
            self._call(work, message, [message], context)

    def _call(
        self, work: ListenerTask, given: object, messages: list[Message], context: tuple[Any, ...]
    ) -> None:
        try:
            apply_result(work, messages, self._listener(given, *context))
        # As in `_fast`.
        except BaseException as error:
            LOG.exception(RAISED, place(messages[0]))
            fail_raised(work, messages, error)
