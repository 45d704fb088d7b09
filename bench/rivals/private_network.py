"""A network of this process's own, which has nothing but a loopback.

Some rivals listen on all addresses of the machine and cannot be told otherwise. In such a network nobody
else reaches them. Programs started later are in it too; those that run already are not.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1
INTERFACE: Final = struct.Struct("16sH14x")
"""struct ifreq of netdevice(7): the name and the flags."""


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter() -> None:
    """Move this process, which must have one thread, to a network of its own.

    Raises:
        OSError: the system allows it to nobody but root.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _unshare(CLONE_NEWNET)
    else:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        # Within it we stay who we are, and its network is ours.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", IFF_UP))
