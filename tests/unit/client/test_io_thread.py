"""The client's own thread: if it fails, nobody waits for ever, and everybody learns why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import pytest

from logboom.client.aio.bridge import run as run_async
from logboom.client.calls import Connect, CoreCall
from logboom.client.futures import _run_callback, wait
from logboom.client.io_thread import IoThread
from logboom.client.lookout import Lookout
from logboom.wire.actor import Call, Effects, Event, Instant
from logboom.wire.errors import InternalError
from logboom.wire.sockets import Sockets

NOBODY = ("127.0.0.1:1",)
FAULTS = [ZeroDivisionError("a bug"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.fixture
def io() -> Iterator[IoThread]:
    made = IoThread(NOBODY, "c", create_topics=False)
    yield made
    made.stop()


class Bug(CoreCall):
    """A call on which the core fails."""

    __slots__ = ("fault",)

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault


def break_down(io: IoThread, fault: BaseException) -> None:
    """Let the core raise in its next turn."""
    handle = io.core.handle

    def fail(events: Sequence[Event], now: Instant) -> Effects:
        for event in events:
            if isinstance(event, Call) and isinstance(event.request, Bug):
                raise event.request.fault
        return handle(events, now)

    vars(io.core)["handle"] = fail
    io.submit(Bug(fault))


def error_in_thread(work: Callable[[], object]) -> BaseException | None:
    """What some work in another thread raises; a thread that hangs holds up nobody."""
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to whoever waits for the outcome
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.exception(60)


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_failure_of_the_core_fails_every_waiting_and_every_later_call(
    io: IoThread, fault: BaseException
) -> None:
    waiting = Connect(1_000.0)
    io.expect(waiting.outcome)
    io.submit(waiting)
    break_down(io, fault)
    found = [error_in_thread(lambda: io.run(Connect(1_000.0)))]
    with pytest.raises(InternalError) as caught:
        asyncio.run(run_async(io, Connect(1_000.0)))
    found.append(error_in_thread(lambda: io.submit(CoreCall())))
    found.append(error_in_thread(lambda: Lookout(io).wait({}, 1_000.0)))
    for error in (caught.value, waiting.outcome.error, *found):
        assert isinstance(error, InternalError)
        assert repr(fault) in error.text
        assert error.__cause__ is fault
    assert wait(io.ended, 60)  # calls fail before the sockets are closed
    assert not io.running


def test_a_lookout_that_waits_learns_of_it(io: IoThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.client.lookout.LOOK_AGAIN_S", 0.001)
    looked = threading.Event()
    lookout = Lookout(io)
    monkeypatch.setattr(lookout, "_look", lambda *_: looked.set())

    def fail_then() -> None:
        looked.wait(60)
        break_down(io, ZeroDivisionError("a bug"))

    threading.Thread(target=fail_then, daemon=True).start()
    error = error_in_thread(lambda: lookout.wait({("t", 0): 0}, 1_000.0))
    assert isinstance(error, InternalError)


def test_sockets_that_do_not_close_hold_up_nobody(
    io: IoThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, gate = Sockets.close, threading.Event()

    def slow(sockets: Sockets, flush_ms: int = 0) -> None:
        gate.wait(60)
        close(sockets, flush_ms)

    monkeypatch.setattr(Sockets, "close", slow)
    waiting = Connect(1_000.0)
    io.expect(waiting.outcome)
    io.submit(waiting)
    break_down(io, ZeroDivisionError("a bug"))
    error = error_in_thread(lambda: io.run(Connect(1_000.0)))
    assert isinstance(error, InternalError)
    assert isinstance(waiting.outcome.error, InternalError)
    gate.set()


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_callback_of_the_user_ends_no_thread_of_ours(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(_future: object) -> None:
        raise fault

    _run_callback(callback, "a future")
    assert "a callback of 'a future' raised" in caplog.text


def test_a_secret_name_has_nothing_of_the_names_that_others_are_shown(io: IoThread) -> None:
    names = {io.secret_name() for _ in range(100)}
    assert len(names) == 100
    shown = io.core.config.client_id.rpartition("-")[2]
    assert not [name for name in names if len(name) < 32 or shown in name]
