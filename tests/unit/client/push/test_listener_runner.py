"""What a listener raises or returns: whatever it is, its message has failed, and the next one comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from logboom.client.push.listener_runner import ListenerRunner
from logboom.client.push.listener_task import Dead, Done, Later, ListenerTask
from logboom.client.push.process_queue import ProcessQueue
from logboom.client.results import Message


class Untold(BaseException):
    """An exception whose text cannot be made."""

    def __str__(self) -> NoReturn:
        raise Untold

    __repr__ = __str__


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (Untold(), "Untold"),
        (asyncio.CancelledError(), "CancelledError: "),
        (Later(cast("float", "soon")), "ValueError"),
        (Done(cast("int", 0.5)), "TypeError"),
        (Dead(cast("str", 5)), "5"),
    ],
)
def test_the_message_has_failed_and_the_next_one_comes(
    what: object, cause: str, *, orderly: bool
) -> None:
    seen: list[int] = []

    def listener(message: Message) -> object:
        seen.append(message.offset)
        if message.offset == 0 and isinstance(what, BaseException):
            raise what
        return what if message.offset == 0 else None

    messages = [Message("t", 0, offset, None, b"v", None, None, 1) for offset in range(2)]
    lane: Any = SimpleNamespace(holding=SimpleNamespace(state="reading"))
    work = ListenerTask(cast("ProcessQueue", lane), messages, 0.0)
    runner = ListenerRunner(listener, lambda: 0.0, batch=False, orderly=orderly)
    runner.run(work)
    if orderly:
        work.failed, failed = {}, work.failed
        runner.run(work)
    else:
        failed = work.failed
    assert seen == [0, 1]
    assert [text.startswith(cause) for _, text in failed.values()] == [True]
