"""Every public name has its asyncio twin, called with the same words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logboom import client
from logboom.client import admin, aio

PAIRS: list[tuple[type, type]] = [
    (admin.Admin, aio.Admin),
    (client.App, aio.App),
    (client.Client, aio.Client),
    (client.Consumer, aio.Consumer),
    (client.GroupConsumer, aio.GroupConsumer),
    (client.Producer, aio.Producer),
    (client.PushConsumer, aio.PushConsumer),
    (client.Transaction, aio.Transaction),
    (client.SubscriptionConsumer, aio.SubscriptionConsumer),
    (client.TransactionalSender, aio.TransactionalSender),
]


def public(kind: type) -> set[str]:
    """Names without an underscore."""
    return {name for name in dir(kind) if not name.startswith("_")}


def methods() -> Iterator[tuple[str, str, Callable[..., Any], Callable[..., Any]]]:
    """All methods that both of a pair have."""
    for threads, loop in PAIRS:
        for name in sorted(public(threads) & public(loop)):
            one, other = getattr(threads, name), getattr(loop, name)
            if callable(one):
                yield threads.__name__, name, one, other


@pytest.mark.parametrize(("threads", "loop"), PAIRS)
def test_both_have_the_same_names(threads: type, loop: type) -> None:
    assert public(threads) == public(loop)


def test_both_are_called_with_the_same_words() -> None:
    seen = 0
    for kind, name, one, other in methods():
        words = inspect.signature(one).parameters
        wanted = [(word, str(p.default)) for word, p in words.items()]
        found = [(w, str(p.default)) for w, p in inspect.signature(other).parameters.items()]
        assert found == wanted, f"{kind}.{name}"
        seen += 1
    assert seen > 60


def test_connect_has_the_same_words() -> None:
    ours = inspect.signature(client.connect).parameters
    assert list(inspect.signature(aio.connect).parameters) == list(ours)
