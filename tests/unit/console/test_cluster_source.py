"""Answers that viewers share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from logboom.client.aio import Client
from logboom.console import cluster_source
from logboom.console.cluster_source import IDLE_S, ClusterSource, ClusterSources
from logboom.console.viewers import Viewer
from logboom.wire.errors import Unavailable


class _Admin:
    async def stats(self) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def nothing(*_: Any, **__: Any) -> Any:
            raise Unavailable("this cluster answers nothing else")

        return nothing


class _Client:
    """As much of a client as samples need."""

    admin = _Admin()

    async def close(self) -> None:
        return


def run(check: Callable[[ClusterSource], Awaitable[None]]) -> None:
    async def main() -> None:
        source = ClusterSource(cast("Client", _Client()))
        try:
            await check(source)
        finally:
            await source.close()

    asyncio.run(main())


def test_ten_viewers_cost_one() -> None:
    asked = 0

    async def make() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        return asked

    async def check(source: ClusterSource) -> None:
        answers = await asyncio.gather(*[source.cached("a", make, 60.0) for _ in range(10)])
        assert answers == [1] * 10
        assert await source.cached("b", make, 60.0) == 2
        assert await source.cached("a", make, 60.0) == 1
        source.forget()
        assert await source.cached("a", make, 60.0) == 3

    run(check)


def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    asked = 0

    async def make() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        if asked == 1:
            raise Unavailable("not now")
        return asked

    async def check(source: ClusterSource) -> None:
        calls = [source.cached("a", make, 60.0) for _ in range(3)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in answers] == [Unavailable] * 3
        assert await source.cached("a", make, 60.0) == 2

    run(check)


def test_a_viewer_who_goes_away_cancels_nothing_for_others() -> None:
    async def make() -> str:
        await asyncio.sleep(0.05)
        return "made"

    async def check(source: ClusterSource) -> None:
        first = asyncio.ensure_future(source.cached("a", make))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(source.cached("a", make))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "made"

    run(check)


def test_what_is_asked_for_as_something_changes_is_asked_for_again() -> None:
    answers = iter(("before", "after"))

    async def make() -> str:
        answer = next(answers)
        await asyncio.sleep(0.05)
        return answer

    async def check(source: ClusterSource) -> None:
        first = asyncio.ensure_future(source.cached("a", make, 60.0))
        await asyncio.sleep(0)
        source.forget()
        assert await source.cached("a", make, 60.0) == "after"
        assert await first == "before"
        assert await source.cached("a", make, 60.0) == "after"

    run(check)


def test_a_client_that_is_used_or_works_is_not_closed_as_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    class Named(_Client):
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    async def connect(_: Any, *, credentials: Path, **__: Any) -> Any:
        return Named(str(credentials))

    def viewer(name: str) -> Viewer:
        return Viewer(name, credentials=name)

    async def check() -> None:
        sources = ClusterSources((), None)
        try:
            idle, working, back = [await sources.of(viewer(name)) for name in ("a", "b", "c")]
            working.jobs.start("a redrive", "b", 1, lambda _: asyncio.sleep(60, 0))
            for source in (idle, working, back):
                source.used_mono_s -= 2 * IDLE_S
            # Whoever comes back after that time gets the client that is there.
            assert await sources.of(viewer("c")) is back
            assert closed == ["a"]
            assert await sources.of(viewer("b")) is working
        finally:
            await sources.close()

    monkeypatch.setattr(cluster_source, "connect", connect)
    asyncio.run(check())


def test_what_is_old_is_shown_once_more_and_asked_for_anew() -> None:
    asked = 0
    failing = False

    async def make() -> int:
        nonlocal asked
        asked += 1
        if failing:
            raise Unavailable("not now")
        return asked

    async def check(source: ClusterSource) -> None:
        nonlocal failing

        async def ask() -> int:
            return await source.cached("a", make, max_age_s=0.0, stale_s=60.0)

        assert await ask() == 1
        await asyncio.sleep(0.01)
        assert await ask() == 1
        await asyncio.sleep(0.01)
        assert await ask() == 2
        # The renewal that this has begun fails, so that the last answer stays.
        failing = True
        await asyncio.sleep(0.01)
        assert await ask() == 2
        await asyncio.sleep(0.01)
        source.forget()
        # After a change nothing old is shown.
        with pytest.raises(Unavailable):
            await ask()

    run(check)


def test_questions_are_asked_together_and_answered_in_order() -> None:
    async def answer(number: int) -> int:
        await asyncio.sleep(0.01 * (5 - number))
        if number == 9:
            raise Unavailable("not now")
        return number

    async def check(source: ClusterSource) -> None:
        assert await source.together([answer(number) for number in range(5)]) == [*range(5)]
        with pytest.raises(Unavailable):
            await source.together([answer(number) for number in (0, 9, 1)])

    run(check)
