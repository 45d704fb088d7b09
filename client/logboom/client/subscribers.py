"""The subscribers of an app, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logboom.client.push.listener_task import Context
from logboom.client.typed_values import Codec, Handler


class SubscriberFunction:
    """One function, and what it is called for."""

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
        """For `push_consumer`."""
        self.watchers: list[Callable[[Any, BaseException | None], None]] = []
        """Called after each call with what was given and what was raised; for tests."""

    def listener(self, given: Any, context: Context) -> Any:
        """What the push consumer calls."""
        try:
            result = self.handler(given, context)
        # Raised again; a test wants to know of everything that ended the call.
        except BaseException as error:
            self.told(given, error)
            raise
        self.told(given, None)
        return result

    async def async_listener(self, given: Any, context: Context) -> Any:
        """The same of asyncio; the function may be async or not."""
        try:
            result = self.handler(given, context)
            if self.handler.is_async:
                result = await result
        # Raised again; a test wants to know of everything that ended the call.
        except BaseException as error:
            self.told(given, error)
            raise
        self.told(given, None)
        return result

    def told(self, given: Any, error: BaseException | None) -> None:
        """Let the watchers know."""
        for watcher in self.watchers:
            watcher(given, error)


class Subscribers:
    """All of one app."""

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
            InvalidRequest: nothing is known for one of its parameters.
        """
        handler = Handler(function, codec, batch=options.get("batch", 1) > 1)
        names = [topics] if isinstance(topics, str) else list(topics)
        found = SubscriberFunction(handler, names, group, options)
        self.all.append(found)
        return found

    def of(self, function: Callable[..., Any]) -> list[SubscriberFunction]:
        """Those of one function: it may be declared more than once."""
        return [each for each in self.all if each.handler.function is function]
