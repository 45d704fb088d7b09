"""The subscriber functions of an app, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logboom.client.push.listener_task import Context
from logboom.client.typed_values import Codec, Handler
from logboom.wire.errors import LogboomError, RetryableError


class SubscriberFunction:
    """A declared function, with its topics, group and options."""

    def __init__(
        self,
        handler: Handler,
        topics: list[str],
        group: str,
        options: Mapping[str, Any],
    ) -> None:
        self.handler = handler
        self.topics = topics
        self.group = group
        self.options = dict(options)
        """Options for `push_consumer`."""
        self.watchers: list[Callable[[Any, BaseException | None], None]] = []
        """Functions for tests, called after each call with its argument and its exception."""

    def listener(self, given: Any, context: Context) -> Any:
        """Call the function; this is the listener of the push consumer."""
        try:
            result = self.handler(given, context)
        # Tests must see everything that ends a call. It is raised again.
        except BaseException as error:
            self.told(given, error)
            raise
        self.told(given, None)
        return result

    async def async_listener(self, given: Any, context: Context) -> Any:
        """Call the function, which may be a coroutine function; this is the listener in asyncio."""
        try:
            result = self.handler(given, context)
            if self.handler.is_async:
                result = await result
        # Tests must see everything that ends a call. It is raised again.
        except BaseException as error:
            self.told(given, error)
            raise
        self.told(given, None)
        return result

    def told(self, given: Any, error: BaseException | None) -> None:
        """Call the watchers."""
        for watcher in self.watchers:
            watcher(given, error)


class Subscribers:
    """The declared functions of one app."""

    def __init__(self) -> None:
        self.all: list[SubscriberFunction] = []

    def add(
        self,
        function: Callable[..., Any],
        topics: str | Sequence[str],
        group: str,
        codec: Codec,
        options: Mapping[str, Any],
    ) -> SubscriberFunction:
        """Declare a function.

        Raises:
            InvalidRequest: the function has an unsupported parameter.
        """
        handler = Handler(function, codec, batch=options.get("batch", 1) > 1)
        names = [topics] if isinstance(topics, str) else list(topics)
        found = SubscriberFunction(handler, names, group, options)
        self.all.append(found)
        return found

    def of(self, function: Callable[..., Any]) -> list[SubscriberFunction]:
        """Return the declarations of a function, which may be declared more than once."""
        return [each for each in self.all if each.handler.function is function]


def may_begin_later(error: BaseException) -> bool:
    """Return True if an app whose start failed so may start once its cluster is up.

    Name servers answer before the first broker has registered.
    """
    if isinstance(error, RetryableError):
        return True
    return isinstance(error, LogboomError) and error.code == "TOO_FEW_BROKERS"
