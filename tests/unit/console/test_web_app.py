"""Who may act, what asks before it acts, what the audit log tells, and when streams end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logboom.console import sign_in, web_app
from logboom.console.cluster_source import ClusterSources
from logboom.console.console_audit import ConsoleAudit
from logboom.console.console_session import ConsoleSession
from logboom.console.passwords import hash_password
from logboom.console.request_checks import HEADERS
from logboom.console.sign_in import MAX_WAITING, SignInRoutes
from logboom.console.sign_in_limits import FREE_FAILURES, FREE_PAIRS
from logboom.console.site import (
    ActionDone,
    ConsoleAction,
    ConsoleSettings,
    FileAnswer,
    FormField,
    PageRequest,
    PageRoute,
    StreamedPiece,
    StreamRoute,
    Subject,
)
from logboom.console.viewer_records import ViewerRecord
from logboom.console.viewers import LocalViewerBook, Viewer, ViewerBook
from logboom.console.viewers_file import ViewersFile, write_viewers
from logboom.console.web_app import ErrorModel, WebConsole
from logboom.console.widgets.data_table import TableColumn, TableModel, build_table
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import Forbidden, Refused
from tests.unit.console.console_visitor import ADDRESS, AppVisitor, started

EVIL = "\"'><script>alert(1)</script>"
HIDDEN = (FormField("thing", kind="hidden", required=True),)
TABLE = (TableColumn("name", "Name"),)


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page with two tables."""

    table: TableModel
    more: TableModel


class Book:
    """Viewers whom a test can send away."""

    must_sign_in = True

    def __init__(self, *viewers: Viewer) -> None:
        self.viewers = {each.name: each for each in viewers}

    def find(self, name: str) -> Viewer | None:
        """Return a viewer by name."""
        return self.viewers.get(name)


class Stage:
    """A console with a page, two actions and a stream, over a cluster that does nothing."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        book: ViewerBook | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.ran: list[FormValues] = []
        self.forgotten = 0
        self.failure: BaseException | None = None
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.asked: list[PageRequest] = []
        self.closed = 0
        monkeypatch.setattr(web_app, "SUBJECTS", (self._subject(),))
        sources = SimpleNamespace(of=self._of, close=self._nothing)
        self.console = WebConsole(
            ConsoleSettings("127.0.0.1", 8080, read_only=read_only),
            lambda: cast("ClusterSources", sources),
            book or LocalViewerBook(),
            ConsoleAudit(folder),
        )

    def visitor(self, viewer: str = "") -> AppVisitor:
        """Return somebody who is signed in."""
        signer = self.console.signer
        text = signer.session_text(ConsoleSession(f"session of {viewer}", viewer))
        return AppVisitor(self.console.app, {signer.session_cookie: text})

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the audit log."""
        text = self.console.audit.path.read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    async def _of(self, _: Viewer) -> Any:
        def forget() -> None:
            self.forgotten += 1

        return SimpleNamespace(forget=forget)

    async def _nothing(self) -> None:
        return

    def _subject(self) -> Subject:
        async def load(request: PageRequest) -> object:
            if request.query.text("as") == "file":
                return FileAnswer(b"<html>", 'a"b/../\r\nc.html')
            return ErrorModel(200, EVIL, EVIL)

        async def table(request: PageRequest) -> object:
            rows = [{"name": "first"}, {"name": "second"}]
            return TablePage(
                build_table(TABLE, rows, request.query),
                build_table(TABLE, rows[:1], request.query, name="more"),
            )

        async def ticks(request: PageRequest) -> AsyncIterator[StreamedPiece]:
            self.asked.append(request)
            try:
                while text := await self.news.get():
                    if text == "refused":
                        raise Forbidden("not for you")
                    yield StreamedPiece(
                        ErrorModel(200, "", text),
                        "stream_error.html",
                        text if text.isalpha() else "",
                    )
            finally:
                self.closed += 1

        async def run(request: PageRequest, values: FormValues) -> ActionDone:
            self.ran.append(values)
            if self.failure is not None:
                raise self.failure
            return ActionDone(f"{values.text('thing')} is done.")

        def action(name: str, *more: FormField) -> ConsoleAction:
            return ConsoleAction(
                name,
                "Change a thing",
                "Change it",
                lambda values: ("thing", "change", values.text("thing")),
                lambda values: f"Change {values.text('thing')}?",
                run,
                (*HIDDEN, *more),
            )

        return Subject(
            pages=(
                PageRoute("/", load, "error.html"),
                PageRoute("/things", load, "error.html"),
                PageRoute("/table", table, "error.html"),
            ),
            streams=(StreamRoute("/ticks", ticks),),
            actions=(action("thing.change"), action("thing.fill", FormField("value", "Value"))),
        )


def run(stage: Stage, check: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with started(stage.console.app):
            await check()

    asyncio.run(main())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A console without viewers."""
    return Stage(tmp_path, monkeypatch)


ALICE = Viewer("alice")
GUEST = Viewer("guest", read_only=True)


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Stage, Book]:
    """A console with viewers, and its book."""
    book = Book(ALICE, GUEST)
    return Stage(tmp_path, monkeypatch, book), book


# Actions.


def test_an_action_asks_before_it_acts(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        token = await visitor.token("/actions/thing.change?thing=a")
        # A link that says yes is a question all the same, and so is a form that does not.
        for path in ("?thing=a&confirmed=yes", f"?thing=a&confirmed=yes&token={token}"):
            answer = await visitor.get(f"/actions/thing.change{path}")
            assert "Change a?" in answer.text
            assert answer.text.count('name="confirmed"') == 1
            assert answer.text.count('name="token"') == 1
        for values in ({}, {"confirmed": ""}, {"confirmed": "no"}, {"confirmed": "on"}):
            answer = await visitor.post("/actions/thing.change", token, thing="a", **values)
            assert (answer.status, "Change a?" in answer.text) == (200, True)
        assert (stage.ran, stage.forgotten, stage.lines()) == ([], 0, [])
        answer = await visitor.post("/actions/thing.change", token, thing="a", confirmed="yes")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        assert [values.text("thing") for values in stage.ran] == ["a"]
        # What it changed is asked for anew.
        assert stage.forgotten == 1

    run(stage, check)


def test_the_audit_log_tells_who_did_what_from_where_and_no_contents(
    signed: tuple[Stage, Book],
) -> None:
    stage, _ = signed

    async def check() -> None:
        visitor = stage.visitor("alice")
        token = await visitor.token("/actions/thing.fill")
        sent = {"thing": "a", "value": "secret", "password": "hidden", "confirmed": "yes"}
        await visitor.post("/actions/thing.fill", token, back="/things", **sent)
        stage.failure = Refused("not now", "TOO_FEW_BROKERS")
        answer = await visitor.post("/actions/thing.fill", token, **sent)
        assert (answer.status, "not now" in answer.text) == (409, True)
        # The form is there again, with what was filled in.
        assert "secret" in answer.text
        first, second = stage.lines()
        for line, result in ((first, "ok"), (second, "TOO_FEW_BROKERS")):
            assert (line["event"], line["user"], line["address"]) == ("action", "alice", ADDRESS)
            assert (line["request"], line["result"]) == ("thing.fill", result)
            assert line["details"] == {"thing": "a"}
        text = stage.console.audit.path.read_text("utf-8")
        assert not [word for word in ("secret", "hidden", token) if word in text]

    run(stage, check)


def test_what_fails_unforeseen_is_in_the_audit_log_too(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        token = await visitor.token("/actions/thing.change?thing=a")
        stage.failure = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            await visitor.post("/actions/thing.change", token, thing="a", confirmed="yes")
        (line,) = stage.lines()
        assert (line["request"], line["result"]) == ("thing.change", "INTERNAL")

    run(stage, check)


@pytest.mark.parametrize("who", ["guest", "alice"])
def test_whoever_may_only_look_is_refused_with_any_form_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    stage = Stage(tmp_path, monkeypatch, Book(ALICE, GUEST), read_only=who == "alice")

    async def check() -> None:
        visitor = stage.visitor(who)
        token = stage.console.signer.form_token(ConsoleSession(f"session of {who}", who))
        answer = await visitor.post("/actions/thing.change", token, thing="a", confirmed="yes")
        assert (answer.status, "read-only" in answer.text) == (403, True)
        assert (await visitor.get("/actions/thing.change?thing=a")).status == 403
        assert stage.ran == []
        line = stage.lines()[0]
        assert (line["event"], line["user"], line["address"]) == ("refused", who, ADDRESS)
        assert (line["request"], line["result"]) == ("thing.change", "READ_ONLY")
        assert line["details"] == {"thing": "a"}

    run(stage, check)


def test_a_form_is_worth_something_in_its_own_session_alone(signed: tuple[Stage, Book]) -> None:
    stage, _ = signed

    async def check() -> None:
        visitor = stage.visitor("alice")
        theirs = await stage.visitor("guest").token("/things")
        for token in ("", "0" * 64, theirs):
            for more in ("", "/command"):
                path = f"/actions/thing.change{more}"
                answer = await visitor.post(path, token, thing="a", confirmed="yes")
                assert (answer.status, "session has ended" in answer.text) == (403, True)
        own = await visitor.token("/actions/thing.change?thing=a")
        answer = await visitor.post("/actions/thing.change/command", own, thing="a")
        assert answer.text == "logboom thing change a"
        sent = f"token={own}&thing=a&confirmed=yes".encode()
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": None},
            {"host": "evil.example"},
            {"content-type": "text/plain"},
            {"content-type": None},
        ):
            answer = await visitor.ask("POST", "/actions/thing.change", sent, **headers)
            assert answer.status in (403, 415, 421)
            assert {name: answer.headers.get(name) for name in HEADERS} == dict(HEADERS)
        assert stage.ran == []

    run(stage, check)


def test_nobody_is_led_away_after_an_action(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        token = await visitor.token("/actions/thing.change?thing=a")
        sent = {"thing": "a", "confirmed": "yes"}
        for back, to in (
            ("/things?find=x", "/things?find=x"),
            ("https://evil.example", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\tx", "/"),
        ):
            answer = await visitor.post("/actions/thing.change", token, back=back, **sent)
            assert answer.headers["location"] == to, back

    run(stage, check)


# Pages.


def test_a_message_is_shown_once_on_a_whole_page(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        token = await visitor.token("/actions/thing.change?thing=a")
        await visitor.post("/actions/thing.change", token, thing="a", confirmed="yes")
        # A part that renews itself leaves it to the page.
        assert "a is done." not in (await visitor.get("/things", hx_request="true")).text
        assert "a is done." in (await visitor.get("/things")).text
        assert "a is done." not in (await visitor.get("/things")).text

    run(stage, check)


def test_pages_escape_and_downloads_are_saved(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        answer = await visitor.get("/things")
        assert (EVIL in answer.text, "&lt;script&gt;alert(1)" in answer.text) == (False, True)
        answer = await visitor.get("/things?as=file")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == 'attachment; filename="a_b_..___c.html"'
        assert answer.headers["x-content-type-options"] == "nosniff"

    run(stage, check)


def test_tables_are_files_by_their_names(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        assert (await visitor.get("/table?format=csv")).text == "name\r\nfirst\r\nsecond\r\n"
        answer = await visitor.get("/table?format=json&table=more")
        assert json.loads(answer.text) == [{"name": "first"}]
        assert (await visitor.get("/table?format=csv&table=other")).status == 404

    run(stage, check)


def test_a_session_that_is_no_more_is_asked_to_sign_in(signed: tuple[Stage, Book]) -> None:
    stage, book = signed

    async def check() -> None:
        visitor = stage.visitor("alice")
        assert (await visitor.get("/things")).status == 200
        del book.viewers["alice"]
        answer = await visitor.get("/things?find=x")
        assert answer.headers["location"] == "/sign-in?next=%2Fthings%3Ffind%3Dx"
        book.viewers["alice"] = ALICE
        assert (await visitor.get("/things")).status == 200
        stage.console.ended.add("session of alice", 0.0)
        assert (await visitor.get("/things")).status == 303

    run(stage, check)


# Streams.


async def sent(visitor: AppVisitor, text: str) -> None:
    """Wait for a piece of a stream."""
    async with asyncio.timeout(60):
        while not any(text in piece for piece in visitor.pieces):
            visitor.came.clear()
            await visitor.came.wait()


async def ended(stream: asyncio.Future[Any]) -> Any:
    """Wait for the end of a stream."""
    async with asyncio.timeout(60):
        return await stream


def test_a_stream_goes_on_until_its_session_ends(signed: tuple[Stage, Book]) -> None:
    stage, book = signed

    async def ends_by(change: Callable[[], object]) -> None:
        visitor = stage.visitor("alice")
        stream = asyncio.ensure_future(visitor.get("/ticks"))
        await stage.news.put("before")
        await sent(visitor, "before")
        change()
        await stage.news.put("after")
        answer = await ended(stream)
        assert ("id: before" in answer.text, "after" in answer.text) == (True, False)

    async def check() -> None:
        await ends_by(lambda: book.viewers.pop("alice"))
        book.viewers["alice"] = ALICE
        # Who gets other credentials comes again, and sees what these allow.
        await ends_by(
            lambda: book.viewers.update(alice=Viewer("alice", credentials="/etc/alice.toml"))
        )
        book.viewers["alice"] = ALICE
        await ends_by(lambda: stage.console.ended.add("session of alice", 0.0))
        assert stage.closed == 3

    run(stage, check)


def test_streams_tell_errors_and_go_on_where_they_broke_off(stage: Stage) -> None:
    async def check() -> None:
        visitor = stage.visitor()
        await stage.news.put(EVIL)
        await stage.news.put("refused")
        answer = await ended(
            asyncio.ensure_future(visitor.get("/ticks?after=0%3A1", last_event_id="0:7"))
        )
        assert stage.asked[0].query.text("after") == "0:7"
        assert (EVIL in answer.text, "not for you" in answer.text) == (False, True)
        assert answer.headers["content-type"].startswith("text/event-stream")

    run(stage, check)


def test_streams_are_bounded_and_end_with_the_console(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_app, "MAX_STREAMS", 2)

    async def check() -> None:
        visitors = [stage.visitor() for _ in range(2)]
        streams = [asyncio.ensure_future(each.get("/ticks")) for each in visitors]
        for each in visitors:
            await sent(each, "begun")
        assert (await stage.visitor().get("/ticks")).status == 503
        stage.console.stop_streams()
        for stream in streams:
            assert (await ended(stream)).status == 200
        # Those that have ended make room.
        assert (await stage.visitor().get("/ticks")).status == 200

    run(stage, check)


# Signing in.

PASSWORD = "correct horse battery"


def with_sign_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str
) -> tuple[WebConsole, AppVisitor]:
    """Return a console with a file of viewers, and somebody who has not signed in."""
    path = folder / "viewers.toml"
    hashed = hash_password(PASSWORD)
    write_viewers(path, {name: ViewerRecord(hashed) for name in names})
    monkeypatch.setattr(web_app, "SUBJECTS", ())
    book = ViewersFile(path)
    sources = SimpleNamespace(of=None, close=None)
    console = WebConsole(
        ConsoleSettings("127.0.0.1", 8080),
        lambda: cast("ClusterSources", sources),
        book,
        ConsoleAudit(folder),
        SignInRoutes(book).routes,
    )
    return console, AppVisitor(console.app)


def test_whoever_signs_in_gets_a_session_that_nobody_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, visitor = with_sign_in(tmp_path, monkeypatch, "alice")
    cookie = console.signer.session_cookie

    async def check() -> None:
        token = await visitor.token("/sign-in")
        planted = console.signer.session_of(visitor.cookies[cookie])
        answer = await visitor.post("/sign-in", token, name="alice", password=PASSWORD)
        assert answer.status == 303
        session = console.signer.session_of(visitor.cookies[cookie])
        assert planted is not None
        assert session is not None
        assert session.id != planted.id
        assert session.viewer.startswith("alice/")

    asyncio.run(check())


def test_many_tries_at_once_are_no_way_around_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def is_password(_: str | None, password: str) -> bool:
        checked.append(password)
        return False

    console, visitor = with_sign_in(tmp_path, monkeypatch, "alice")
    monkeypatch.setattr(sign_in, "is_password", is_password)
    # As if there had been more failures: the wait is long, so that no slow machine sits it out.
    monkeypatch.setitem(FREE_FAILURES, "pair", -10)

    async def check() -> None:
        token = await visitor.token("/sign-in")
        tries = [
            AppVisitor(console.app, dict(visitor.cookies)).post(
                "/sign-in", token, name="alice", password=f"number {number}"
            )
            for number in range(12)
        ]
        answers = await asyncio.gather(*tries)
        assert sorted(each.status for each in answers) == [403, *[429] * 11]
        assert all(int(each.headers["retry-after"]) for each in answers if each.status == 429)
        assert len(checked) == 1

    asyncio.run(check())


def test_few_passwords_wait_to_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console, visitor = with_sign_in(tmp_path, monkeypatch, "alice")
    monkeypatch.setitem(FREE_PAIRS, "address", 1_000)
    monkeypatch.setattr(sign_in, "MAX_WAITING_OF_ADDRESS", MAX_WAITING)
    waiting = asyncio.Event()

    async def to_thread(*_: object) -> bool:
        await waiting.wait()
        return False

    monkeypatch.setattr("logboom.console.sign_in.asyncio.to_thread", to_thread)

    async def check() -> None:
        token = await visitor.token("/sign-in")
        tries = [
            asyncio.ensure_future(
                AppVisitor(console.app, dict(visitor.cookies)).post(
                    "/sign-in", token, name=f"viewer-{number}", password=PASSWORD
                )
            )
            for number in range(MAX_WAITING + 4)
        ]
        refused, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result().status for each in refused} == {429}
        waiting.set()
        answers = await asyncio.gather(*tries)
        assert sorted(each.status for each in answers) == [403] * MAX_WAITING + [429] * 4

    asyncio.run(check())
