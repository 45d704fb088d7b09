"""The gate before a node's listeners: it is shut while file descriptors run out, or too much waits.

Closing the listener (zmq_unbind) is no way: libzmq 4.3.5 ends every connection that the listener has
accepted along with it. Leaving it open is none either: accept(2) fails for want of a descriptor, the
listener stays readable, and ZeroMQ's I/O thread tries again without a pause. So a filter that drops
every packet is attached to the listening socket. It concerns new connections only; their systems
repeat the first packet after 1, 3, 7 s. Those that the system had accepted already are reset one by
one (`accepted_connections`). Linux only, like that module.

While it is open, the listener has the filter for small packets, which its connections inherit until
they are admitted (`connection_limits.UnheardConnections`).
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Final

from logboom.wire.connection_limits import DescriptorGate, RefusalReason
from logboom.wire.event_log import log_event
from logboom.wire.packet_filters import NO_PACKET, SMALL_PACKETS

FOLLOWED_EVERY_S: Final = 0.002
"""Seconds between two counts of the descriptors."""
LISTED_EVERY_S: Final = 1.0
"""The same where the system does not tell their number and they are listed (Linux before 6.2)."""
MAX_DESCRIPTORS: Final = 1 << 30
"""More than any process may have: so many are in use if they cannot even be listed."""
OWN_DESCRIPTORS: Final = "/proc/self/fd"


class ListenerGate:
    """Shuts the listeners of one node while its process has few descriptors left."""

    def __init__(self) -> None:
        self._gate = DescriptorGate()
        self._waiting = DescriptorGate()
        self._listening: set[int] = set()
        """Descriptors of the listening sockets."""
        self._next_count = 0.0
        self._has_told = False
        """True if it was told that the system has no filters."""

    @property
    def is_open(self) -> bool:
        """True if connections are accepted."""
        return self.reason is None

    @property
    def reason(self) -> RefusalReason | None:
        """Why no connections are accepted; None: they are."""
        if not self._gate.is_open:
            return "descriptors"
        return None if self._waiting.is_open else "waiting"

    def listening(self, descriptor: int) -> None:
        """Take the descriptor of a listening socket."""
        self._listening.add(descriptor)
        if not self._set_filter(descriptor) and not self._has_told:
            self._has_told = True
            log_event(
                "no_packet_filters",
                text="this system cannot drop the large packets of new connections: strangers may make this "
                "node hold max_request_bytes for each of their connections; let a firewall keep "
                "them away, or run nodes on Linux",
            )

    def follow(self, now: float) -> None:
        """Count the descriptors in use, if that is due, and shut or open the listeners."""
        if now < self._next_count:
            return
        used, counted = _descriptors_in_use()
        self._next_count = now + (FOLLOWED_EVERY_S if counted else LISTED_EVERY_S)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if not used or limit == resource.RLIM_INFINITY or not self._gate.follow(used, limit):
            return
        self._changed(
            used,
            limit,
            f"{used} of {limit} file descriptors are in use: no more connections are accepted until it "
            "is less; find out who opens so many (`ss -tn`), or raise LimitNOFILE (ulimit -n)",
        )

    def follow_waiting(self, waiting_bytes: int, limit_bytes: int) -> None:
        """Take the memory of the requests that wait, and shut or open the listeners."""
        if self._waiting.follow(waiting_bytes, limit_bytes):
            self._changed(
                waiting_bytes,
                limit_bytes,
                f"requests of {waiting_bytes} bytes wait: no more connections are accepted until it is "
                "less; find out who sends so much (`logboom connections list`), or add brokers if this lasts",
            )

    def _changed(self, used: int, limit: int, text: str) -> None:
        """Set the filters of the listeners, and tell."""
        for descriptor in self._listening:
            self._set_filter(descriptor)
        if self.is_open:
            log_event("listeners_open", used=used, limit=limit)
        else:
            log_event("listeners_shut", used=used, limit=limit, text=text)

    def _set_filter(self, descriptor: int) -> bool:
        # ZeroMQ keeps the descriptor for as long as it listens, and there may be no other.
        listener = socket.socket(fileno=descriptor)
        try:
            return (SMALL_PACKETS if self.is_open else NO_PACKET).attach(listener)
        finally:
            listener.detach()


def _descriptors_in_use() -> tuple[int, bool]:
    """Return the number of this process's open descriptors (0: unknown), and if that was cheap."""
    try:
        size = os.stat(OWN_DESCRIPTORS).st_size  # noqa: PTH116 - twenty times a second
        return (size, True) if size else (len(os.listdir(OWN_DESCRIPTORS)), False)  # noqa: PTH208 - likewise
    except OSError as error:
        return (MAX_DESCRIPTORS, False) if error.errno == errno.EMFILE else (0, True)
