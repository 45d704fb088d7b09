"""Signing in and out: routes of their own, since they make the sessions that all others need."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from logboom.console.console_session import ConsoleSession
from logboom.console.passwords import is_password
from logboom.console.sign_in_limits import SignInLimits, network_of
from logboom.console.viewer_records import mark_of
from logboom.console.viewers_file import ViewersFile
from logboom.console.web_app import SIGN_IN, WebConsole, address_of
from logboom.console.widgets.page_query import FormValues, is_local

SIGN_OUT: Final = "/sign-out"
MAX_WAITING: Final = 64
"""Passwords that wait to be checked; more are refused at once."""
MAX_WAITING_OF_ADDRESS: Final = 8
"""Of these, of one address."""
BUSY: Final = "Too many passwords wait to be checked: try again in a moment."
WRONG: Final = "Name or password is wrong."


@dataclass(frozen=True, slots=True)
class SignInModel:
    """The sign-in page."""

    name: str
    next: str
    error: str


class SignInRoutes:
    """Signs viewers in and out. One password is checked at a time, outside the loop: each takes 64 MiB
    and much of a core."""

    def __init__(self, viewers: ViewersFile) -> None:
        self._viewers = viewers
        self._limits = SignInLimits()
        self._one = asyncio.Lock()
        self._waiting: Counter[str] = Counter()
        """Network → its passwords that wait to be checked."""

    @property
    def routes(self) -> Sequence[Route]:
        """The routes."""
        return (
            Route(SIGN_IN, self._show, methods=["GET"]),
            Route(SIGN_IN, self._sign_in, methods=["POST"]),
            Route(SIGN_OUT, self._sign_out, methods=["POST"]),
        )

    async def _show(self, request: Request) -> Response:
        console: WebConsole = request.state.console
        after = _next_of(request.query_params.get("next", "/"))
        if request.state.session.viewer and request.state.viewer.name:
            return RedirectResponse(after, 303)
        return console.render(request, "sign_in.html", SignInModel("", after, ""))

    async def _sign_in(self, request: Request) -> Response:
        console: WebConsole = request.state.console
        values = await console.read_form(request)
        if isinstance(values, Response):
            return values
        name, after = values.text("name"), _next_of(values.text("next", "/"))
        address = address_of(request)
        network = network_of(address)
        if self._waiting.total() >= MAX_WAITING or self._waiting[network] >= MAX_WAITING_OF_ADDRESS:
            return self._refused(request, SignInModel(name, after, BUSY), 1.0)
        turn = self._limits.begin(name, address, time.monotonic())
        if turn.is_refused:
            text = f"Too many failures: try again in {max(1, round(turn.wait_s))} s."
            return self._refused(request, SignInModel(name, after, text), turn.wait_s)
        if turn.wait_s > 0:
            await asyncio.sleep(turn.wait_s)
        record = self._viewers.viewers.get(name)
        if not await self._is_right(None if record is None else record.password, values, network):
            console.note_sign_in(request, "sign-in", name, "WRONG_PASSWORD")
            return self._again(request, SignInModel(name, after, WRONG), 403)
        if record is None:
            raise AssertionError("a viewer that there is not has no password")
        self._limits.succeeded(name, address)
        response = RedirectResponse(after, 303)
        # A new id: who knew the one before the sign-in gains nothing.
        session = ConsoleSession(secrets.token_urlsafe(18), mark_of(name, record))
        console.set_session(request, response, session)
        console.note_sign_in(request, "sign-in", name, "ok")
        return response

    async def _is_right(self, kept: str | None, values: FormValues, network: str) -> bool:
        self._waiting[network] += 1
        try:
            async with self._one:
                return await asyncio.to_thread(is_password, kept, values.raw("password"))
        finally:
            self._waiting[network] -= 1
            self._waiting += Counter()  # Only what is above zero is kept.

    def _again(self, request: Request, model: SignInModel, status: int) -> Response:
        console: WebConsole = request.state.console
        return console.render(request, "sign_in.html", model, status=status)

    def _refused(self, request: Request, model: SignInModel, wait_s: float) -> Response:
        console: WebConsole = request.state.console
        console.note_sign_in(request, "sign-in", model.name, "LOCKED")
        response = self._again(request, model, 429)
        response.headers["retry-after"] = str(max(1, round(wait_s)))
        return response

    async def _sign_out(self, request: Request) -> Response:
        console: WebConsole = request.state.console
        values = await console.read_form(request)
        if isinstance(values, Response):
            return values
        session: ConsoleSession = request.state.session
        name = request.state.viewer.name
        console.ended.add(session.id, time.monotonic())
        if name:
            console.note_sign_in(request, "sign-out", name, "ok")
        response = RedirectResponse(SIGN_IN, 303)
        response.delete_cookie(console.signer.session_cookie, httponly=True, samesite="lax")
        return response


def _next_of(text: str) -> str:
    """Return where a viewer goes after signing in: a page of this console, and not a part of one."""
    return text if is_local(text) and not text.startswith((SIGN_IN, SIGN_OUT)) else "/"
