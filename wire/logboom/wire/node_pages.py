"""What the metrics port of a node answers, by path: metrics and health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from logboom.wire.errors import StartError
from logboom.wire.event_log import log_event
from logboom.wire.exposition import Snapshot, families_of, write
from logboom.wire.health import report
from logboom.wire.listeners import is_loopback, metrics_address
from logboom.wire.page_server import TEXT, FindPage, Page, PageServer
from logboom.wire.private_files import exposed
from logboom.wire.snapshot_desk import HoldClock, SnapshotDesk
from logboom.wire.tls_files import TlsFiles

LIVE_S: Final = 10.0
"""Seconds within which the loop of a live node turns."""
ASK_S: Final = 5.0
"""Seconds that the loop gets to make a snapshot."""
MAX_SCRAPES: Final = 2
"""Scrapes at once; further ones are refused."""
PIECE_S: Final = 0.001
"""Seconds of writing after which other threads get a chance to work."""
PAUSE_S: Final = 0.00005
"""How long that chance is at least, in seconds."""
JSON: Final = "application/json"
INDEX: Final = """\
logboom {kind} {node}

/metrics  its metrics, in the text format of Prometheus or as OpenMetrics
/live     200 if its loop turns: else restart it
/ready    200 if it may be sent requests
/restart  200 if nothing is lost while it is down
"""


def open_pages(
    setting: str, first_listen: str, find_page: FindPage, tls: tuple[str, str] = ("", "")
) -> PageServer | None:
    """Bind the port for metrics and health of a node, or return None if it has none.

    Args:
        setting: `metrics_listen` of the node.
        first_listen: host:port of its first listener, as in its configuration.
        find_page: Returns the pages.
        tls: certificate and key, `metrics_tls_cert` and `metrics_tls_key` of the node.

    Raises:
        StartError: PORT_IN_USE, or BAD_CONFIG, unless the port was not named; or the certificate or its
            key cannot be used.
    """
    address = metrics_address(setting, first_listen)
    if not address:
        return None
    find_context = TlsFiles(*tls).context if tls[0] else None
    try:
        return PageServer(address, find_page, find_context)
    except StartError as error:
        if setting != "auto":
            raise
        log_event("metrics_not_served", text=f"{error.text} (metrics_listen)")
        return None


def is_exposed(endpoint: str, credentials_file: str) -> bool:
    """Return True if other machines reach the port of a node that else knows who asks.

    Args:
        endpoint: host:port that is bound; "" for none.
        credentials_file: As the node's settings name it; "" for a node that knows nobody.
    """
    return bool(endpoint and credentials_file) and not is_loopback(endpoint)


def tell_exposed(data: Path) -> None:
    """Write to the node's log that others can look into its data folder, if they can."""
    if path := exposed(data):
        log_event(
            "data_exposed",
            folder=path,
            text=f"others can look into the data folder: chmod 700 {path}",
        )


class NodePages:
    """The pages of one node."""

    def __init__(
        self,
        node: str,
        kind: str,
        desk: SnapshotDesk,
        ready_reasons: Callable[[Snapshot], list[str]],
        restart_reasons: Callable[[], list[str]],
    ) -> None:
        """Create them.

        Args:
            node: The id of the node.
            kind: "broker" or "name server".
            desk: Where its loop is asked.
            ready_reasons: Returns why it may be sent no requests.
            restart_reasons: Returns why it should not be stopped now. It runs in the thread of the
                probe.
        """
        self._node = node
        self._kind = kind
        self._desk = desk
        self._ready_reasons = ready_reasons
        self._restart_reasons = restart_reasons
        self._scrapes = threading.BoundedSemaphore(MAX_SCRAPES)
        self._pages: Mapping[str, Callable[[str], Page]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/live": self._live,
            "/ready": self._ready,
            "/restart": self._restart,
        }

    def page(self, path: str, accept: str) -> Page | None:
        """Return the page at a path, in the format that `accept` asks for; None: there is none."""
        made = self._pages.get(path)
        return None if made is None else made(accept)

    def _index(self, _accept: str) -> Page:
        text = INDEX.format(kind=self._kind, node=self._node)
        return Page(HTTPStatus.OK, TEXT, text.encode())

    def _metrics(self, accept: str) -> Page:
        if not self._scrapes.acquire(blocking=False):
            text = f"{MAX_SCRAPES} scrapes are under way: ask again\n"
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, text.encode(), retry_after_s=1)
        try:
            snapshot = self._desk.ask(ASK_S)
            if snapshot is None:
                return _silent()
            content_type, pieces = write(families_of(snapshot), accept)
            return Page(HTTPStatus.OK, content_type, self._join(pieces))
        finally:
            self._scrapes.release()

    def _join(self, pieces: Iterable[bytes]) -> bytes:
        """Join the pieces as they are written, and let other threads work now and then."""
        found, hold = [], HoldClock()
        for piece in pieces:
            found.append(piece)
            if hold.read()[0] >= PIECE_S:
                self._desk.note(hold)
                # The loop must not wait for a text of hundreds of series to be written.
                time.sleep(PAUSE_S)
                hold = HoldClock()
        return b"".join(found)

    def _live(self, _accept: str) -> Page:
        silent_s = time.monotonic() - self._desk.turned_at
        if silent_s <= LIVE_S:
            return self._health([])
        return self._health([f"the loop has not turned for {silent_s:.0f} s"])

    def _ready(self, _accept: str) -> Page:
        snapshot = self._desk.ask(ASK_S)
        if snapshot is None:
            return self._health([f"the loop does not answer within {ASK_S:.0f} s"])
        return self._health(self._ready_reasons(snapshot))

    def _restart(self, _accept: str) -> Page:
        return self._health(self._restart_reasons())

    def _health(self, reasons: list[str]) -> Page:
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return Page(status, JSON, msgspec.json.encode(report(self._node, reasons)) + b"\n")


def _silent() -> Page:
    text = f"the node's loop does not answer within {ASK_S:.0f} s\n"
    return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, text.encode())
