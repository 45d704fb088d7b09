"""Filters that the system applies to the packets of a listener or a connection (socket(7)).

A connection inherits the filter of the listener that accepted it, so nothing gets past one before
somebody looks. What a filter drops is sent again by the other side's system, after 0.2 s at first.
Linux only: where the system has no filters, nothing happens, and the caller is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys
from typing import Final

MAX_SMALL_BYTES: Final = 1280
"""Content of a small packet. The longest part of a handshake, with encryption, has some 600, and the
longest HELLO some 1,150."""
SO_ATTACH_FILTER: Final = 26
SO_DETACH_FILTER: Final = 27


class PacketFilter:
    """A program for the filter of socket(7): (code, true, false, operand) for each instruction."""

    def __init__(self, *instructions: tuple[int, int, int, int]) -> None:
        code = b"".join(struct.pack("=HBBI", *each) for each in instructions)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = struct.pack("HP", len(instructions), ctypes.addressof(self._code))

    def attach(self, to: socket.socket) -> bool:
        """Apply this filter to a socket, in place of the one it has; False if it has none now."""
        # Elsewhere the number may be that of another option.
        if sys.platform != "linux":
            return False
        try:
            to.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, self._program)
        except OSError:
            return False
        return True


def detach_filter(of: socket.socket) -> None:
    """Let all packets in, also if there was no filter."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        of.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


NO_PACKET: Final = PacketFilter((0x06, 0, 0, 0))
"""Drops everything: it keeps 0 bytes (BPF_RET)."""
SMALL_PACKETS: Final = PacketFilter(
    (0x30, 0, 0, 12),  # A = byte 12 of the TCP header, whose upper half is the header's length
    (0x54, 0, 0, 0xF0),
    (0x74, 0, 0, 2),  # A = length of the header in bytes
    (0x07, 0, 0, 0),  # X = A
    (0x80, 0, 0, 0),  # A = length of the packet
    (0x1C, 0, 0, 0),  # A -= X
    (0x25, 0, 1, MAX_SMALL_BYTES),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFF_FFFF),
)
"""Drops packets with more than `MAX_SMALL_BYTES` of content."""
