"""A key pair of ZeroMQ's CURVE, and a holder for what must never be shown.

Keys are 40 characters of Z85 (ZeroMQ RFC 32). `wire.sockets` makes pairs, because this needs
libsodium.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple, NoReturn

HIDDEN: Final = "***"
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)


class Secret:
    """A text that no log, traceback or statistic shows; only `reveal` returns it."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text: for the library that encrypts, and for a file of mode 0600."""
        return self.__text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__text.encode(), other.__text.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash would tell something of the text

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a secret is not pickled or copied: read it from its file where it is used")


class SecretBytes(bytes):
    """Bytes that no log, traceback or statistic shows, such as the cluster key.

    They are used as bytes are; what is made of them by `strip` and the like is not secret any more.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a secret is not pickled or copied: read it from its file where it is used")


def z85(key: bytes) -> str:
    """Return a binary key as Z85: four bytes as five digits to the base 85 (ZeroMQ RFC 32)."""
    text: list[str] = []
    for at in range(0, len(key), 4):
        number = int.from_bytes(key[at : at + 4], "big")
        text += (_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return "".join(text)


class KeyPair(NamedTuple):
    """The keys of one user or node."""

    public: str
    secret: Secret
