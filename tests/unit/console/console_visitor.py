"""Somebody who asks a web application within this process, as a browser would."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

HOST = "127.0.0.1:8080"
ADDRESS = "10.0.0.7"


@dataclass
class AppAnswer:
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class AppVisitor:
    """A browser with its cookies."""

    app: ASGIApp
    cookies: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    """What the answer that is under way, or the last one, has sent so far."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each piece."""

    async def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str | None
    ) -> AppAnswer:
        """Send a request, and wait for all of its answer; a header of None is left out."""
        sent: dict[str, str | None] = {
            "host": HOST,
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()) or None,
        }
        if method == "POST":
            sent |= {
                "origin": f"http://{HOST}",
                "content-type": "application/x-www-form-urlencoded",
            }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        place, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": [
                (name.encode(), value.encode()) for name, value in sent.items() if value is not None
            ],
            "client": (ADDRESS, 50_000),
            "server": ("127.0.0.1", 8080),
        }
        messages: list[Message] = [{"type": "http.request", "body": body}]
        told: dict[str, Any] = {}
        self.pieces.clear()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            # It stays until the answer has ended.
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.update(message)
            else:
                self.pieces.append(message.get("body", b"").decode())
                self.came.set()

        await self.app(scope, receive, send)
        found: dict[str, str] = {}
        for name, value in told["headers"]:
            if name == b"set-cookie":
                self._keep(value.decode())
            found[name.decode()] = value.decode()
        return AppAnswer(told["status"], found, "".join(self.pieces))

    def _keep(self, line: str) -> None:
        name, _, value = line.partition(";")[0].partition("=")
        if value in ("", '""'):
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value

    async def get(self, path: str, **headers: str | None) -> AppAnswer:
        """Open a page."""
        return await self.ask("GET", path, b"", **headers)

    async def token(self, path: str) -> str:
        """Return the token in the forms of a page."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', (await self.get(path)).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, token: str, **values: str) -> AppAnswer:
        """Send a form."""
        return await self.ask("POST", path, urlencode({"token": token, **values}).encode())


@asynccontextmanager
async def started(app: ASGIApp) -> AsyncIterator[None]:
    """Start an application, and stop it at the end."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    told: asyncio.Queue[Message] = asyncio.Queue()
    task = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, messages.get, told.put))
    await messages.put({"type": "lifespan.startup"})
    assert (await told.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await messages.put({"type": "lifespan.shutdown"})
        assert (await told.get())["type"] == "lifespan.shutdown.complete"
        await task
