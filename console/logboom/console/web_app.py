"""The web application: Starlette routes made of the site's pages, streams and actions.

Everything that concerns security is here or in `request_checks.py`: no route is reached around
`RequestGuard`, no form is read but by `_form`, and no action runs but by `_act`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
import markupsafe
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logboom import __version__
from logboom.console.cluster_source import ClusterSource, ClusterSources
from logboom.console.console_audit import ConsoleAudit
from logboom.console.console_session import (
    MESSAGE_S,
    SESSION_S,
    ConsoleSession,
    SessionSigner,
    Told,
)
from logboom.console.http_listener import BoundedProtocol
from logboom.console.request_checks import HEADERS, MAX_BODY_BYTES, check_request
from logboom.console.routes.site_map import SUBJECTS
from logboom.console.site import (
    ActionPreview,
    ConsoleAction,
    ConsoleSettings,
    FileAnswer,
    FormField,
    PageRequest,
    PageRoute,
    SiteView,
    StreamedPiece,
    StreamRoute,
    command_text,
)
from logboom.console.viewer_records import EndedSessions
from logboom.console.viewers import LOCAL_VIEWER, Viewer, ViewerBook
from logboom.console.widgets import formats
from logboom.console.widgets.data_table import TableModel, csv_text, json_bytes
from logboom.console.widgets.page_query import FormValues, PageQuery, is_local, path_of
from logboom.wire.errors import (
    AlreadyExists,
    Forbidden,
    GroupError,
    InvalidRequest,
    LogboomError,
    Refused,
    TransactionError,
    Unauthenticated,
    error_for,
)

if TYPE_CHECKING:
    from logboom.console.exporter.cluster_sampler import ClusterExporter

FOLDER: Final = Path(__file__).parent
SIGN_IN: Final = "/sign-in"
METRICS: Final = "/metrics"
"""Served to whoever has not signed in, if it is served at all."""
KEEP_ALIVE_S: Final = 15.0
"""Seconds without news after which a stream sends a comment, so that no proxy closes it."""
BODY_S: Final = 60.0
"""Seconds that a form of a viewer may take to arrive; the listener gives others less."""
MAX_SIGN_IN_BYTES: Final = 8 * 1024
"""Bytes of a form of somebody who has not signed in."""
MAX_STREAMS: Final = 200
"""Streams at a time; further ones are refused."""
TITLES: Final = {
    400: "This cannot be done",
    403: "Not allowed",
    404: "Not found",
    409: "This cannot be done now",
}

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorModel:
    """The page of an error."""

    status: int
    title: str
    text: str
    code: str = ""
    url: str = ""
    """The page to try again."""


@dataclasses.dataclass(frozen=True, slots=True)
class ActionModel:
    """The form of an action, or its question."""

    action: ConsoleAction
    values: FormValues
    """What is filled in."""
    fields: tuple[FormField, ...]
    asks: bool
    """True if it shows the question, False for the form."""
    command: str
    back: str
    question: str = ""
    preview: ActionPreview | None = None
    error: str = ""
    secret: str = ""
    secret_name: str = ""

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the question sends on: all that was filled in."""
        return [
            (name, value)
            for name, value in self.values.pairs()
            if name not in ("token", "confirmed", "back")
        ]


class WebConsole:
    """The pages of a console over one cluster."""

    def __init__(
        self,
        settings: ConsoleSettings,
        sources: Callable[[], ClusterSources],
        viewers: ViewerBook,
        audit: ConsoleAudit,
        extra_routes: Sequence[BaseRoute] = (),
    ) -> None:
        """Make the application `app`.

        Args:
            sources: called within the loop.
            extra_routes: served under the same checks; they see `request.state.viewer`.
        """
        self.settings = settings
        self.signer = SessionSigner(secrets.token_bytes(32), settings.port)
        self.viewers = viewers
        self.ended = EndedSessions(SESSION_S)
        self.audit = audit
        self._make_sources = sources
        self._sources: ClusterSources | None = None
        self._streams = 0
        self._closing = asyncio.Event()
        self._static_version = _digest_of(FOLDER / "static")
        self._actions = {each.name: each for subject in SUBJECTS for each in subject.actions}
        self._navigation = sorted(
            (entry for subject in SUBJECTS for entry in subject.navigation),
            key=lambda entry: entry.place,
        )
        self._templates = _environment()
        routes: list[BaseRoute] = [*extra_routes]
        for subject in SUBJECTS:
            routes += [Route(page.path, self._page(page)) for page in subject.pages]
            routes += [Route(stream.path, self._stream(stream)) for stream in subject.streams]
        routes += [
            Route("/actions/{name}", self._form_page, methods=["GET"]),
            Route("/actions/{name}", self._act, methods=["POST"]),
            Route("/actions/{name}/command", self._command_line, methods=["POST"]),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ]
        self._exporter: ClusterExporter | None = None
        if settings.metrics:
            routes.append(Route(METRICS, self._metrics))
        inner = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={404: self._not_found, 405: self._not_found, 500: self._failed},
        )
        self.app: ASGIApp = RequestGuard(inner, self)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._sources = self._make_sources()
        connecting = asyncio.create_task(self._connect_early())
        try:
            yield
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            if self._exporter is not None:
                await self._exporter.aclose()
            await self._sources.close()

    async def _connect_early(self) -> None:
        """Connect to the cluster before the first viewer comes, unless each has a user of it."""
        if not self.viewers.must_sign_in:
            # A cluster that does not answer is told to the viewer.
            with contextlib.suppress(LogboomError):
                await self._source(LOCAL_VIEWER)

    async def _metrics(self, request: Request) -> Response:
        """Serve the metrics of the cluster, as the console's own user sees them."""
        # Imported here: few consoles are asked for metrics, and all start faster without.
        from logboom.console.exporter.cluster_sampler import ClusterExporter
        from logboom.console.exporter.scrape_app import scrape

        try:
            source = await self._source(LOCAL_VIEWER)
        except LogboomError as error:
            return PlainTextResponse(f"{error}\n", 503)
        if self._exporter is None:
            self._exporter = ClusterExporter(source.boom)
        return await scrape(self._exporter, request)

    def stop_streams(self) -> None:
        """End all streams: the console is about to close."""
        self._closing.set()

    # Requests.

    async def _source(self, viewer: Viewer) -> ClusterSource:
        if self._sources is None:
            raise RuntimeError("the application was not started")
        return await self._sources.of(viewer)

    def note_sign_in(self, request: Request, name: str, viewer: str, result: str) -> None:
        """Write a sign-in or sign-out to the audit log."""
        self.audit.note("authentication", viewer, address_of(request), name, result, FormValues())

    def session_of(self, request: Request) -> ConsoleSession | None:
        """Return the session of a browser, or None if it has none that counts."""
        cookie = request.cookies.get(self.signer.session_cookie)
        session = self.signer.session_of(cookie) if cookie else None
        return None if session is None or session.id in self.ended else session

    def set_session(self, request: Request, response: Response, session: ConsoleSession) -> None:
        """Give a browser a session."""
        self._set_cookie(
            request,
            response,
            self.signer.session_cookie,
            self.signer.session_text(session),
            SESSION_S,
        )

    def _set_cookie(
        self, request: Request, response: Response, name: str, value: str, max_age_s: int
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=max_age_s,
            httponly=True,
            # Not strict: a link from another site would come without it, and the answer would take
            # its place. What changes anything needs our origin and the form's token.
            samesite="lax",
            secure=request.url.scheme == "https",
        )

    def may_act(self, viewer: Viewer) -> bool:
        """True if a viewer may change anything."""
        return not (self.settings.read_only or viewer.read_only)

    async def page_request(self, request: Request) -> PageRequest:
        """Return what loaders get.

        Raises:
            LogboomError: the cluster does not answer.
        """
        viewer: Viewer = request.state.viewer
        return PageRequest(
            viewer=viewer,
            query=_query_of(request),
            cluster=await self._source(viewer),
            now_ms=_now_ms(),
            parts=dict(request.path_params),
            read_only=not self.may_act(viewer),
        )

    def _page(self, page: PageRoute) -> Endpoint:
        async def serve(request: Request) -> Response:
            try:
                asked = await self.page_request(request)
                model = await page.load(asked)
            except LogboomError as error:
                return self._error_page(request, error)
            if isinstance(model, FileAnswer):
                return _download(model)
            wanted = request.query_params.get("format")
            if wanted in ("csv", "json"):
                return _as_file(model, wanted, request.query_params.get("table", ""))
            return self.render(request, page.template, model)

        return serve

    def _stream(self, stream: StreamRoute) -> Endpoint:
        async def serve(request: Request) -> Response:
            if self._streams >= MAX_STREAMS:
                return PlainTextResponse("too many streams: close some pages\n", 503)
            try:
                asked = await self.page_request(request)
            except LogboomError as error:
                return PlainTextResponse(f"{error}\n", status_of(error))
            last = request.headers.get("last-event-id")
            if last:
                asked = dataclasses.replace(
                    asked,
                    query=PageQuery(asked.query.path, asked.query.values.changed({"after": last})),
                )
            pieces = stream.stream(asked)
            return StreamingResponse(
                self._events(request, pieces),
                media_type="text/event-stream",
                headers={"cache-control": "no-store", "x-accel-buffering": "no"},
            )

        return serve

    def _still_looks(self, request: Request) -> bool:
        """Return True while the session of a request counts, and its viewer is as it was."""
        if not self.viewers.must_sign_in:
            return True
        session = self.session_of(request)
        viewer: Viewer = request.state.viewer
        return session is not None and self.viewers.find(session.viewer) == viewer

    async def _events(
        self, request: Request, pieces: AsyncIterator[StreamedPiece]
    ) -> AsyncIterator[bytes]:
        """Yield the pieces as events, and comments between those that are far apart."""
        self._streams += 1
        closing = asyncio.ensure_future(self._closing.wait())
        following = asyncio.ensure_future(anext(pieces, None))
        try:
            yield b": begun\n\n"
            while True:
                await asyncio.wait(
                    {following, closing},
                    timeout=KEEP_ALIVE_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if closing.done():
                    return
                if not following.done():
                    yield b": still there\n\n"
                    continue
                try:
                    piece = following.result()
                except LogboomError as error:
                    piece = StreamedPiece(ErrorModel(status_of(error), "", error.text), "")
                    yield _event(self._render_part(request, "stream_error.html", piece.model))
                    return
                # Who was signed out meanwhile gets no more; who has other credentials comes again.
                if piece is None or not self._still_looks(request):
                    return
                following = asyncio.ensure_future(anext(pieces, None))
                if piece.template:
                    yield _event(self._render_part(request, piece.template, piece.model), piece.id)
        finally:
            self._streams -= 1
            closing.cancel()
            following.cancel()
            await asyncio.gather(closing, following, return_exceptions=True)
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    # Actions.

    def _action(self, request: Request) -> ConsoleAction | None:
        return self._actions.get(request.path_params["name"])

    async def _form_page(self, request: Request) -> Response:
        """Show the form of an action, or its question if there is nothing to fill in."""
        action = self._action(request)
        if action is None:
            return await self._not_found(request, None)
        if not self.may_act(request.state.viewer):
            return self._refuse(request, action, FormValues())
        values = FormValues(request.query_params.multi_items())
        try:
            asked = await self.page_request(request)
            if action.prefill is not None:
                found = await action.prefill(asked, values)
                values = values.changed(
                    {name: value for name, value in found.items() if name not in values}
                )
            model = await self._action_model(asked, action, values, asks=not action.has_form)
        except LogboomError as error:
            return self._error_page(request, error)
        return self.render(request, "action.html", model)

    async def _action_model(
        self, asked: PageRequest, action: ConsoleAction, values: FormValues, *, asks: bool
    ) -> ActionModel:
        preview = None
        if asks and action.preview is not None:
            preview = await action.preview(asked, values)
        return ActionModel(
            action=action,
            values=values,
            fields=action.fields,
            asks=asks,
            command=self._command_of(action, values),
            back=_back_of(values),
            question=action.question(values) if asks else "",
            preview=preview,
        )

    def _command_of(self, action: ConsoleAction, values: FormValues) -> str:
        """Return the command line, or what is still missing for it."""
        try:
            return command_text(
                action.command(_completed(action, values)), self.settings.server_options
            )
        except LogboomError as error:
            return f"# {error.text}"

    async def _act(self, request: Request) -> Response:
        """Show the question, or act after it was answered."""
        sent = await self._sent(request)
        if isinstance(sent, Response):
            return sent
        action, values = sent
        if not self.may_act(request.state.viewer):
            return self._refuse(request, action, values)
        completed = _completed(action, values)
        confirmed = values.text("confirmed") == "yes"
        asked: PageRequest | None = None
        try:
            asked = await self.page_request(request)
            _check_required(action, completed)
            action.command(completed)
            if not confirmed:
                model = await self._action_model(asked, action, values, asks=True)
                return self.render(request, "action.html", model)
            done = await action.run(asked, completed)
        except LogboomError as error:
            if confirmed:
                self._note(request, "action", action, error.code, completed)
            if asked is None or not action.has_form:
                return self._error_page(request, error)
            model = await self._action_model(asked, action, values, asks=False)
            model = dataclasses.replace(model, error=_error_text(error))
            return self.render(request, "action.html", model, status=status_of(error))
        # A failure of ours, or the end of the console: it may have been done all the same.
        except BaseException:
            if confirmed:
                self._note(request, "action", action, "INTERNAL", completed)
            raise
        self._note(request, "action", action, "ok", completed)
        (await self._source(request.state.viewer)).forget()
        if done.secret:
            model = ActionModel(
                action,
                values,
                (),
                asks=False,
                command="",
                back=done.url or _back_of(values),
                question=done.message,
                secret=done.secret,
                secret_name=done.secret_name,
            )
            return self.render(request, "action_secret.html", model)
        response = RedirectResponse(done.url or _back_of(values), 303)
        self.tell(request, response, Told("ok", done.message))
        return response

    async def _command_line(self, request: Request) -> Response:
        """Return the command of a form as it is filled in now."""
        sent = await self._sent(request)
        return sent if isinstance(sent, Response) else PlainTextResponse(self._command_of(*sent))

    async def _sent(self, request: Request) -> tuple[ConsoleAction, FormValues] | Response:
        """Read the form of an action, or return why it is refused."""
        action = self._action(request)
        if action is None:
            return await self._not_found(request, None)
        values = await self._form(request)
        return values if isinstance(values, Response) else (action, values)

    def _note(
        self, request: Request, event: str, action: ConsoleAction, result: str, values: FormValues
    ) -> None:
        viewer: Viewer = request.state.viewer
        self.audit.note(event, viewer.name, address_of(request), action.name, result, values)

    def _refuse(self, request: Request, action: ConsoleAction, values: FormValues) -> Response:
        self._note(request, "refused", action, "READ_ONLY", values)
        whose = "This console is" if self.settings.read_only else "You are"
        return self.render(
            request,
            "error.html",
            ErrorModel(403, "Read-only", f"{whose} read-only: nothing can be changed here."),
            status=403,
        )

    async def _form(self, request: Request) -> FormValues | Response:
        """Read the form of a POST, or return why it is refused."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return PlainTextResponse("a form is expected\n", 415)
        body = bytearray()
        # The sign-in page alone reads forms of nobody.
        most = MAX_BODY_BYTES if request.state.viewer.name else MAX_SIGN_IN_BYTES
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        return PlainTextResponse("the form is too large\n", 413)
        except TimeoutError:
            return PlainTextResponse("the form did not arrive in time\n", 408)
        except ClientDisconnect:
            # Nobody is there any more who reads this. It is no failure of ours, which would be logged.
            return PlainTextResponse("the form ended early\n", 400)
        try:
            values = FormValues.parse(body.decode())
        except (LogboomError, UnicodeDecodeError):
            return PlainTextResponse("the form cannot be read\n", 400)
        if not self.signer.is_form_token(request.state.session, values.text("token")):
            return self.render(
                request,
                "error.html",
                ErrorModel(
                    403,
                    "The page is too old",
                    "Its session has ended. Open the page again, and repeat what you did.",
                    url=_back_of(values),
                ),
                status=403,
            )
        return values

    read_form = _form
    """For extra routes."""

    # Answers.

    def tell(self, request: Request, response: Response, told: Told) -> None:
        """Let the next page show a message."""
        self._set_cookie(
            request,
            response,
            self.signer.message_cookie,
            self.signer.message_text(told),
            MESSAGE_S,
        )

    def _site(self, request: Request, told: Told | None) -> SiteView:
        viewer: Viewer = request.state.viewer
        return SiteView(
            viewer=viewer,
            may_act=self.may_act(viewer),
            token=self.signer.form_token(request.state.session),
            query=_query_of(request),
            navigation=self._navigation,
            version=__version__,
            can_sign_out=self.viewers.must_sign_in,
            message=told.text if told else "",
            message_tone=told.tone if told else "",
            now_ms=_now_ms(),
            static_version=self._static_version,
            server_options=self.settings.server_options,
        )

    def render(self, request: Request, template: str, model: object, status: int = 200) -> Response:
        """Return a page."""
        cookie = request.cookies.get(self.signer.message_cookie)
        # A partial update must not swallow the message of the page that comes next.
        whole = "hx-request" not in request.headers
        told = self.signer.message_of(cookie) if cookie and whole else None
        html = self._templates.get_template(template).render(
            page=model, site=self._site(request, told)
        )
        response = Response(
            html, status, headers={"cache-control": "no-store"}, media_type="text/html"
        )
        if told is not None:
            response.delete_cookie(self.signer.message_cookie, httponly=True, samesite="lax")
        return response

    def _render_part(self, request: Request, template: str, model: object) -> str:
        return self._templates.get_template(template).render(
            page=model, site=self._site(request, None)
        )

    def _error_page(self, request: Request, error: LogboomError) -> Response:
        status = status_of(error)
        title = TITLES.get(status, "The cluster does not answer as it should")
        model = ErrorModel(
            status, title, _error_text(error), error.code, str(_query_of(request).url())
        )
        return self.render(request, "error.html", model, status=status)

    async def _not_found(self, request: Request, _error: Exception | None) -> Response:
        if not hasattr(request.state, "viewer"):
            # Of a static file, which is served before anybody is known.
            return PlainTextResponse("there is no such file\n", 404)
        model = ErrorModel(404, "Not found", "There is no such page.")
        return self.render(request, "error.html", model, status=404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        if not hasattr(request.state, "viewer"):
            return PlainTextResponse("the console failed: its log has the rest\n", 500)
        model = ErrorModel(
            500, "The console failed", f"{type(error).__name__}: its log has the rest."
        )
        return self.render(request, "error.html", model, status=500)


class RequestGuard:
    """Checks every request before the application sees it, gives it a session and a viewer, and adds
    the headers that every answer has."""

    def __init__(self, inner: ASGIApp, console: WebConsole) -> None:
        self._inner = inner
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        new_cookie: list[tuple[bytes, bytes]] = []

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in present
                    ),
                    *new_cookie,
                ]
            await send(message)

        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        url_bytes = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        allowed = self._console.settings.allowed_hosts
        refused = check_request(scope["method"], url_bytes, headers, allowed)
        answer: ASGIApp
        if refused is not None:
            answer = PlainTextResponse(f"{refused.text}\n", refused.status)
            await answer(scope, receive, send_guarded)
            return
        if not _is_query(scope["query_string"]):
            answer = PlainTextResponse("the parameters of this address cannot be read\n", 400)
            await answer(scope, receive, send_guarded)
            return
        open_paths = (METRICS,) if self._console.settings.metrics else ()
        if scope["path"].startswith("/static/") or scope["path"] in open_paths:
            await self._inner(scope, receive, send_guarded)
            return
        session = self._console.session_of(Request(scope))
        if session is None:
            session = ConsoleSession(secrets.token_urlsafe(18), "")
            cookie = Response()
            self._console.set_session(Request(scope), cookie, session)
            new_cookie += [
                (name, value) for name, value in cookie.raw_headers if name == b"set-cookie"
            ]
        viewer = self._console.viewers.find(session.viewer)
        state = scope.setdefault("state", {})
        state["session"], state["console"] = session, self._console
        if viewer is None and scope["path"] != SIGN_IN:
            to = SIGN_IN
            if scope["method"] == "GET" and "hx-request" not in headers:
                came_from = _query_of(Request(scope)).url()
                to = PageQuery(to, FormValues([("next", came_from)])).url()
            answer = (
                Response("sign in first\n", 401, {"hx-redirect": to})
                if "hx-request" in headers
                else RedirectResponse(to, 303)
            )
            await answer(scope, receive, send_guarded)
            return
        state["viewer"] = viewer or Viewer("", read_only=True)
        connection = state.get("connection")
        if viewer is not None and isinstance(connection, BoundedProtocol):
            connection.note_known()
        await self._inner(scope, receive, send_guarded)


def address_of(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client is not None else ""


def _query_of(request: Request) -> PageQuery:
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    return PageQuery(path or request.url.path, request.url.query)


def _is_query(text: bytes) -> bool:
    """Return False for a query that cannot be read, such as one of too many parameters."""
    try:
        PageQuery("/", text.decode("latin-1"))
    except InvalidRequest:
        return False
    return True


def _now_ms() -> int:
    return int(time.time() * 1000)


def _back_of(values: FormValues) -> str:
    back = values.text("back", "/")
    return back if is_local(back) else "/"


def _completed(action: ConsoleAction, values: FormValues) -> FormValues:
    """Return a form with the defaults of fields that were not sent."""
    missing = {
        each.name: each.default
        for each in action.fields
        if each.kind != "checkbox" and each.name not in values and each.default
    }
    return values.changed(missing) if missing else values


def _check_required(action: ConsoleAction, values: FormValues) -> None:
    for each in action.fields:
        if each.required and not values.text(each.name):
            raise InvalidRequest(f"{each.label or each.name} is missing: fill it in")


def status_of(error: LogboomError) -> int:
    """Return the HTTP status of an error; 503: the cluster does not answer as it should."""
    if error.code.startswith("UNKNOWN_"):
        return 404
    # Plans are refused before they are sent, as requests that are not valid, with the code that the
    # cluster would answer.
    match error_for(error.code, error.text):
        case Unauthenticated() | Forbidden():
            return 403
        case InvalidRequest():
            return 400
        case AlreadyExists() | Refused() | GroupError() | TransactionError():
            return 409
    return 503


def _error_text(error: LogboomError) -> str:
    return error.text or str(error)


def _event(html: str, event_id: str = "") -> bytes:
    lines = [f"id: {event_id}"] if event_id else []
    lines += [f"data: {line}" for line in html.splitlines() if line.strip()]
    return ("\n".join(lines) + "\n\n").encode()


def _as_file(model: object, wanted: str, name: str) -> Response:
    """Return a table of a page as CSV or JSON."""
    tables = [
        value
        for each in dataclasses.fields(model)  # type: ignore[arg-type]  # models are dataclasses
        if isinstance(value := getattr(model, each.name), TableModel)
    ]
    table = next((each for each in tables if each.name == name), None)
    if table is None:
        return PlainTextResponse("this page has no such table\n", 404)
    if wanted == "csv":
        body: str | bytes = csv_text(table)
        kind = "text/csv; charset=utf-8"
    else:
        body, kind = json_bytes(table), "application/json"
    headers = {
        "cache-control": "no-store",
        "content-disposition": f'inline; filename="{name or "table"}.{wanted}"',
    }
    return Response(body, media_type=kind, headers=headers)


def _download(answer: FileAnswer) -> Response:
    """Return a file that browsers save and never show: anybody may have written it."""
    name = "".join(
        char if char.isascii() and (char.isalnum() or char in ".-_") else "_"
        for char in answer.name
    )
    headers = {
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="{name}"',
    }
    return Response(answer.data, media_type="application/octet-stream", headers=headers)


def _digest_of(folder: Path) -> str:
    """Return a mark of all static files: browsers keep a file until it changes."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _with_commands(text: str) -> markupsafe.Markup:
    """Return a text in which commands stand out."""
    return markupsafe.Markup().join(
        markupsafe.Markup("<code>{}</code>").format(part) if is_command else part
        for part, is_command in formats.command_parts(text)
    )


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": formats.count_text,
        "short": formats.short_text,
        "size": formats.size_text,
        "span": formats.span_text,
        "time": formats.time_text,
        "iso": formats.iso_text,
        "commands": _with_commands,
    }
    made.globals |= {"path_of": path_of}
    return made
